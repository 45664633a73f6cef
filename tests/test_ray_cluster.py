"""`td7 study --backend ray` on a real Ray cluster of several nodes, all on this machine."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import td7
import toys
from td7 import files
from td7.cli.main import main
from td7.errors import InputError
from td7.files import read_sealed
from td7.options import TrainOptions, to_words
from td7.studies.folder import (
    PlannedRun,
    RunState,
    StudyRequest,
    completed_fraction,
    run_state,
)
from td7.studies.plan import StudyStatus, plan_runs
from td7.studies.ray_cluster import RemoteResult, Resources, _collect, _pack, launch_on_ray
from td7.studies.run import make_plan, run_study, study_options
from test_own_study import SHARED, working_in
from test_study import TINY, study_command

pytest.importorskip("ray")
assert toys  # registers the tasks
RESOURCES = Resources(cpus=1, gpus=0, retries=3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and three nodes with one each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(3):
        made.add_node(num_cpus=1)
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]


def plan_design(out: Path, steps: int, *rows: str, **more: Any) -> list[PlannedRun]:
    options = TrainOptions(
        seeds=(0, 1),
        evaluate_every=20,
        evaluation_episodes=1,
        engine="eager",
        set=TINY,
        **more,
    )
    request = StudyRequest("design", rows, ("toys:Point-v0",), steps, options)
    return plan_runs(request, out, Path())


def test_a_lost_nodes_run_is_resumed_by_another(cluster: Any, tmp_path: Path) -> None:
    """A node is killed during a run: every run is done once, with the result of an unkilled run."""
    out = tmp_path / "study"
    runs = plan_design(out, 600, "TD3", "zs'a'", snapshot_every=0.005)
    killed: list[str] = []

    def kill_a_node(_: StudyStatus) -> None:
        """Kill one node that is training a run and has saved a snapshot of it."""
        for node in [] if killed else list(cluster.worker_nodes):
            (raylet,) = node.all_processes["raylet"]
            processes = _process_tree(raylet.process.pid)
            for run in runs:
                is_saved = completed_fraction(run) > 0.05 and list(run.folder.glob("snapshot/0*"))
                if is_saved and _is_trained_by(run, processes) and not killed:
                    cluster.remove_node(node, allow_graceful=False)
                    killed.append(run.name)

    status = launch_on_ray(runs, out, cluster.address, RESOURCES, kill_a_node)
    assert killed
    assert status.failed == {}
    assert sorted(run.name for run in status.done) == sorted(run.name for run in runs)
    (run,) = [run for run in runs if run.name == killed[0]]
    assert "$ td7 resume" in (out / "logs" / f"{run.name}.log").read_text()
    alone = tmp_path / "alone"
    assert (
        main(
            ["train", *to_words(replace(run.options, out=str(alone), quiet=True, snapshot_every=0))]
        )
        == 0
    )
    for name in ("evaluations.csv", "episodes.csv", "metrics.csv"):
        assert (run.folder / name).read_bytes() == (alone / name).read_bytes()


def _process_tree(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    tree, added = {pid}, {pid}
    while added:
        added = {child for child, parent in parents.items() if parent in added} - tree
        tree |= added
    return tree


def _is_trained_by(run: PlannedRun, pids: set[int]) -> bool:
    for pid in pids:
        try:
            if str(run.folder) in Path(f"/proc/{pid}/cmdline").read_text():
                return True
        except OSError:
            continue
    return False


def test_a_node_finds_a_study_in_the_heads_current_folder(cluster: Any, tmp_path: Path) -> None:
    """The cluster was started in another folder."""
    with working_in(tmp_path):
        request = {"name": "own_study:own", "rows": "Mine", **SHARED, "backend": "ray"}
        options = study_options({**request, "address": cluster.address, "quiet": True})
        status = run_study(make_plan(options))
    assert status.failed == {}
    (run,) = status.done
    config = td7.Run(tmp_path / run.folder).config
    assert config["variant"] == "own_study:own/Mine"
    assert config["algorithm"] == "own_study:Mine"


def test_a_node_that_does_not_share_the_folder_sends_its_run_to_the_head(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes read another token than the head gave them, so they train elsewhere."""
    runs = plan_design(tmp_path / "study", 60, "TD3")
    monkeypatch.setattr(
        "td7.studies.ray_cluster.write", lambda path, _: files.write(path, b"another")
    )
    status = launch_on_ray(runs, tmp_path / "study", cluster.address, RESOURCES, lambda _: None)
    (run,) = status.done
    assert run_state(run) is RunState.DONE
    assert not (run.folder / "snapshot").exists()
    assert td7.Run(run.folder).evaluations["step"].max() == 60
    assert td7.load(run.folder, 0) is not None


@pytest.mark.parametrize("exit_status", [0, 1])
def test_a_run_that_failed_on_a_node_does_not_replace_one_begun_here(
    tmp_path: Path, exit_status: int
) -> None:
    """The study folder holds a run with a snapshot; a node without access to it began again."""
    ray = SimpleNamespace(get=lambda ref: ref, exceptions=SimpleNamespace(RayError=OSError))
    (run,) = plan_design(tmp_path / "study", 60, "TD3")
    log_folder, remote = tmp_path / "logs", tmp_path / "remote"
    log_folder.mkdir()
    remote.mkdir()
    (remote / "origin").write_text("remote")
    result = RemoteResult(exit_status, b"td7: a fault\n", _pack(remote))
    (run.folder / "snapshot").mkdir(parents=True)
    _collect(ray, result, run, log_folder, StudyStatus([run], []))
    assert (run.folder / "snapshot").exists() == (exit_status != 0)
    assert (run.folder / "origin").exists() == (exit_status == 0)
    shutil.rmtree(run.folder)
    _collect(ray, result, run, log_folder, StudyStatus([run], []))
    assert (run.folder / "origin").exists()  # better than nothing


def test_the_command_reports_failures_and_runs_the_others(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    more = ("--backend", "ray", "--address", cluster.address)
    command = study_command(out, "--env", "toys:Point-v0,toys:Faulty-v0", *more, rows=("TD3",))
    assert main(command) == 1
    output = capsys.readouterr()
    assert "1 of 2 runs are done" in output.out
    assert "failed: 01-TD3--toys_Faulty-v0: seed 0, evaluation at step 0" in output.err
    assert list(read_sealed(out / "failed.json")) == ["01-TD3--toys_Faulty-v0"]


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="backend=ray needs ray, which the extra 'ray' installs"):
        launch_on_ray([], tmp_path, "", RESOURCES, lambda _: None)

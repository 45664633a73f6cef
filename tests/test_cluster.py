"""`td7 study --backend ray` on a real Ray cluster of several nodes, all on this machine."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import td7
import toys
from td7 import files
from td7.cli.main import main
from td7.errors import InputError
from td7.studies.folder import PlannedRun, RunState, StudyRequest, fraction, state
from td7.studies.plan import StudyStatus, plan
from td7.studies.ray_cluster import RemoteResult, Share, _packed, _take, launch_on_ray
from test_study import TINY, words

pytest.importorskip("ray")
assert toys  # registers the tasks
SHARE = Share(cpus=1, gpus=0, tries=3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and three nodes with one each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(3):
        made.add_node(num_cpus=1)
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]


def runs(out: Path, steps: int, *rows: str, **more: Any) -> list[PlannedRun]:
    options = {
        "seeds": (0, 1),
        "evaluate_every": 20,
        "evaluation_episodes": 1,
        "engine": "eager",
        "set": dict(word.split("=") for word in TINY),
        **more,
    }
    return plan(StudyRequest("design", rows, ("toys:Point-v0",), steps, options), out, Path())


def test_a_lost_nodes_run_is_resumed_by_another(cluster: Any, tmp_path: Path) -> None:
    """Killed in the middle: every run is done, once, and is what it would have been."""
    out = tmp_path / "study"
    wanted = runs(out, 600, "TD3", "zs'a'", snapshot_every=0.001)
    killed: list[str] = []

    def kill_one(standing: Any) -> None:
        """A node that is in the middle of a run and has saved some of it, once."""
        for node in [] if killed else list(cluster.worker_nodes):
            (raylet,) = node.all_processes["raylet"]
            below = _below(raylet.process.pid)
            for run in wanted:
                begun = fraction(run) > 0.05 and list(run.folder.glob("snapshot/0*"))
                if begun and _is_trained_by(run, below) and not killed:
                    cluster.remove_node(node, allow_graceful=False)
                    killed.append(run.name)

    standing = launch_on_ray(wanted, out, cluster.address, SHARE, kill_one)
    assert killed
    assert standing.failed == {}
    assert sorted(run.name for run in standing.done) == sorted(run.name for run in wanted)
    (run,) = [run for run in wanted if run.name == killed[0]]
    assert "$ td7 resume" in (out / "logs" / f"{run.name}.log").read_text()
    alone = tmp_path / "alone"
    td7.train(**{**run.options, "out": str(alone), "quiet": True})
    for name in ("evaluations.csv", "episodes.csv", "metrics.csv"):
        assert (run.folder / name).read_bytes() == (alone / name).read_bytes()


def _below(pid: int) -> set[int]:
    """A process and all that it started, and they."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it is gone
    found, more = {pid}, {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found


def _is_trained_by(run: PlannedRun, pids: set[int]) -> bool:
    for pid in pids:
        try:
            if str(run.folder) in Path(f"/proc/{pid}/cmdline").read_text():
                return True
        except OSError:
            continue
    return False


def test_runs_are_brought_back_where_the_folder_is_not_shared(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes read another token than the head gave them: they train elsewhere."""
    wanted = runs(tmp_path / "study", 60, "TD3")
    monkeypatch.setattr(
        "td7.studies.ray_cluster.write", lambda path, _: files.write(path, b"another")
    )
    standing = launch_on_ray(wanted, tmp_path / "study", cluster.address, SHARE, lambda _: None)
    (run,) = standing.done
    assert state(run) is RunState.DONE
    assert not (run.folder / "snapshot").exists()
    assert td7.Run(run.folder).evaluations["step"].max() == 60
    assert td7.load(run.folder, 0) is not None


@pytest.mark.parametrize("status", [0, 1])
def test_what_failed_elsewhere_does_not_replace_what_was_begun_here(
    tmp_path: Path, status: int
) -> None:
    """A run with a snapshot is here; a node that did not see it began again."""
    ray = SimpleNamespace(get=lambda came: came, exceptions=SimpleNamespace(RayError=OSError))
    (run,) = runs(tmp_path / "study", 60, "TD3")
    log_folder, there = tmp_path / "logs", tmp_path / "there"
    log_folder.mkdir()
    there.mkdir()
    (there / "from").write_text("there")
    came = RemoteResult(status, b"td7: a fault\n", _packed(there))
    (run.folder / "snapshot").mkdir(parents=True)
    _take(ray, came, run, log_folder, StudyStatus([run], []))
    assert (run.folder / "snapshot").exists() == (status != 0)
    assert (run.folder / "from").exists() == (status == 0)
    shutil.rmtree(run.folder)
    _take(ray, came, run, log_folder, StudyStatus([run], []))
    assert (run.folder / "from").exists()  # better than nothing


def test_the_command_counts_failures_and_goes_on(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    more = ("--backend", "ray", "--address", cluster.address)
    given = words(out, "--tasks", "toys:Point-v0,toys:Faulty-v0", *more, rows=("TD3",))
    assert main(given) == 1
    said = capsys.readouterr()
    assert "1 of 2 runs are done" in said.out
    assert "failed: 01-TD3--toys_Faulty-v0: seed 0, evaluation at step 0" in said.err
    assert list(json.loads((out / "failed.json").read_text())) == ["01-TD3--toys_Faulty-v0"]


def test_without_ray_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--backend ray needs Ray: pip install 'td7\[ray\]'"):
        launch_on_ray([], tmp_path, "", SHARE, lambda _: None)

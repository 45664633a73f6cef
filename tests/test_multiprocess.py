"""Seeds that train in several processes give the results of one process, resumed or not."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import td7
import toys
from faults.verdicts import tree
from folders import SMALL, results, words
from td7 import processes as processes_module
from td7.datasets.record import Recorder, record
from td7.errors import InputError, RunError
from td7.processes import Script
from td7.rollouts.registration import describe
from td7.runs.folder import Table
from td7.runs.members import Members
from td7.runs.policies import kept_policies
from td7.runs.policy_files import (
    read_description,
    steps_of,
    weights_file,
    write_policies,
)
from td7.runs.record import FINISHED, RunRecord
from td7.runs.snapshots import Snapshots, has_snapshot, process_folders
from td7.training.loops import single_process_loop
from td7.training.merge import MergedPolicies, merged_status
from td7.training.messages import (
    ProcessEnd,
    ProcessReady,
    SeedJob,
    TableRows,
)
from td7.training.multiprocess import (
    REPORTS_AT_ONCE,
    MultiprocessTraining,
    OwnerConnection,
    _train_seeds,
)
from td7.training.progress import MemberStatus, Status
from td7.training.resolve import run_config, train_options
from td7.training.signals import REPEAT_SECONDS

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
OPTIONS: dict[str, Any] = {
    "env": "toys:Point-v0",
    "seeds": "0,4,7",
    "steps": 120,
    "evaluate_every": 40,
    "evaluation_episodes": 2,
    "metrics_every": 10,
    "keep_policies": 40,
    "set": SMALL,
    "quiet": True,
    "precision": "float64",
}
LOCKSTEP = {**SMALL, "checkpoints": "none"}


def silent(*_: object) -> None:
    pass


def train(path: Path, processes: int = 2, **options: Any) -> td7.Run:
    return td7.train(**{**OPTIONS, **options}, processes=processes, out=str(path))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    """All seeds in one process."""
    return train(tmp_path_factory.mktemp("whole") / "run", 1)


class KeptPolicies:
    """A listener that notes whether an evaluated policy is kept by when its rows arrive."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self.exist: list[bool] = []

    def __call__(self, table: str, rows: Sequence[Any]) -> None:
        if table == "evaluations":
            seed, step = int(rows[0]["seed"]), int(rows[0]["step"])
            file = kept_policies(self._run, step) / f"seed-{seed}.safetensors"
            self.exist.append(file.exists())


@pytest.fixture(scope="module")
def divided_and_kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[td7.Run, KeptPolicies]:
    path = tmp_path_factory.mktemp("divided") / "run"
    kept = KeptPolicies(path)
    return train(path, tensorboard=True, listener=kept), kept


@pytest.fixture
def divided(divided_and_kept: tuple[td7.Run, KeptPolicies]) -> td7.Run:
    """All seeds in two processes."""
    return divided_and_kept[0]


def check_same(run: td7.Run, expected: td7.Run) -> None:
    """The runs agree to rounding: products of more seeds at once may add in another order."""
    for table in ("evaluations", "episodes", "metrics"):
        ours, theirs = getattr(run, table), getattr(expected, table)
        assert len(ours) > 0 or (table == "episodes" and run.config["dataset"])
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9, atol=1e-9)
    for seed in (0, 4, 7):
        policy, other = (td7.load(path.path, seed) for path in (run, expected))
        np.testing.assert_allclose(policy.flat, other.flat, rtol=1e-9, atol=1e-9)
    ours, theirs = (
        json.loads((path.path / "policy" / "policy.json").read_text()) for path in (run, expected)
    )
    for description in (ours, theirs):
        del description["weights"], description["sha256"]
    assert ours == theirs


def test_members_with_checkpoints(divided: td7.Run, whole: td7.Run) -> None:
    check_same(divided, whole)
    assert divided.config["processes"] == 2
    assert not multiprocessing.active_children()


def test_members_in_lockstep(tmp_path: Path) -> None:
    run = train(tmp_path / "divided", set=LOCKSTEP)
    check_same(run, train(tmp_path / "whole", 1, set=LOCKSTEP))


def test_members_that_learn_from_data(tmp_path: Path, divided: td7.Run) -> None:
    """A run in several processes recorded the data; each process has its own transitions."""
    file = tmp_path / "data.hdf5"
    record(divided.path, "replay", 80, file, seed=4, workers=0, report=silent, say=silent)
    options: dict[str, Any] = {
        "algorithm": "td3+bc",
        "dataset": str(file),
        "steps": 60,
        "evaluate_every": 20,
        "keep_policies": 20,
        "set": {"hidden_dim": 16, "batch_size": 16},
    }
    run = train(tmp_path / "divided", 3, **options)
    check_same(run, train(tmp_path / "whole", 1, **options))


def test_a_finished_run_needs_no_files_of_its_processes(divided: td7.Run, whole: td7.Run) -> None:
    """What it would resume from may be removed."""

    def names(run: td7.Run) -> set[str]:
        paths = (path.relative_to(run.path) for path in run.path.rglob("*"))
        others = ("snapshot", "tensorboard")
        return {str(path) for path in paths if path.parts[0] not in others}

    assert names(divided) == names(whole)
    assert len(list((divided.path / "policies").rglob("*.safetensors"))) == 4 * 3
    assert {path.name for path in (divided.path / "tensorboard").iterdir()} == {
        *("seed-0", "seed-4", "seed-7")
    }
    assert td7.evaluate(divided.path, episodes=2)["seed"].tolist() == [0, 0, 4, 4, 7, 7]
    timings = (run.path / "timings.csv" for run in (divided, whole))
    ours, theirs = (pd.read_csv(file).set_index("phase")["times"].to_dict() for file in timings)
    assert all(ours[name] == theirs[name] > 0 for name in ("collect", "evaluate"))


class Stopper:
    """A listener that ends the run in one of several ways at the first metrics."""

    def __init__(self, how: str) -> None:
        self._how = how
        self.tables: set[str] = set()

    def __call__(self, table: str, rows: Sequence[Any]) -> None:
        if table != "metrics" or table in self.tables:
            return
        self.tables.add(table)
        if self._how == "raise":
            raise ConnectionError("no network")
        if self._how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        if self._how == "kill":
            multiprocessing.active_children()[0].kill()


ENDS = {"raise": ConnectionError, "signal": td7.Stopped, "kill": RunError}


@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_was_stopped_resumes_exactly(tmp_path: Path, divided: td7.Run, how: str) -> None:
    path = tmp_path / "run"
    with pytest.raises(ENDS[how]) as caught:
        train(path, listener=Stopper(how))
    if how == "kill":
        assert "died (signal SIGKILL) while training" in str(caught.value)
        assert f"`td7 resume {path}` continues from what is saved" in str(caught.value)
    assert not multiprocessing.active_children()
    assert has_snapshot(path)
    assert not (path / "finished.json").exists()
    run = td7.resume(path, quiet=True)
    assert results(run.path) == results(divided.path)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()], ids=repr)
def test_whatever_its_owner_raises_every_process_saves(
    tmp_path: Path, divided: td7.Run, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    append = Table.append

    def fail_once(table: Table, rows: Any) -> None:
        if table.path == path / "metrics.csv":
            monkeypatch.undo()
            raise error
        append(table, rows)

    monkeypatch.setattr(Table, "append", fail_once)
    with pytest.raises((RunError, KeyboardInterrupt)) as caught:
        train(path)
    assert error in (caught.value, caught.value.__cause__)
    if isinstance(caught.value, RunError):
        assert f"a bug; `td7 resume {path}` continues" in str(caught.value)
        assert "a bug" in (path / "error.txt").read_text()
    assert not multiprocessing.active_children()
    assert has_snapshot(path)
    assert results(td7.resume(path, quiet=True).path) == results(divided.path)


def test_an_extended_run_is_one_that_was_longer(tmp_path: Path, divided: td7.Run) -> None:
    path = tmp_path / "run"
    train(path, steps=80)
    before = td7.Run(path).evaluations
    assert before["step"].max() == 80
    assert results(td7.resume(path, steps=120, quiet=True).path) == results(divided.path)


def test_processes_save_and_end_when_their_owner_is_killed(
    tmp_path: Path, divided: td7.Run
) -> None:
    """Standard output, which they inherit, ends with the last of them."""
    path = tmp_path / "run"
    program = """
import os, signal, sys
import td7
def kill(table, rows):
    if table == "metrics":
        os.kill(os.getpid(), signal.SIGKILL)
values = dict(word.split("=", 1) for word in sys.argv[1:])
td7.train(**values, set={settings!r}, listener=kill, quiet=True)
"""
    options = {**OPTIONS, "processes": 2, "out": path, "snapshot_every": 0}
    values = {name: value for name, value in options.items() if name not in ("set", "quiet")}
    process = subprocess.Popen(
        [sys.executable, "-c", program.format(settings=dict(SMALL)), *words(values)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (output, errors) == ("", "")
    assert all(has_snapshot(part) for part in process_folders(path))
    assert results(td7.resume(path, quiet=True).path) == results(divided.path)


def test_what_an_environment_raises_ends_the_run(tmp_path: Path, whole: td7.Run) -> None:
    path, cold = tmp_path / "run", tmp_path / "cold"
    cold.touch()
    with pytest.raises(RunError, match="motor is cold") as caught:
        train(path, env_kwargs={"fault": str(cold)})
    assert f"everything trained so far is saved, `td7 resume {path}` tries again" in str(
        caught.value
    )
    assert f"({path / 'error.txt'} has its traceback)" in str(caught.value)
    assert "snapshot" not in str(caught.value)
    cold.unlink()
    run = td7.resume(path, quiet=True)
    pd.testing.assert_frame_equal(run.episodes, whole.episodes, rtol=1e-6)


def test_environments_may_start_processes(tmp_path: Path) -> None:
    run = train(tmp_path / "run", env="toys:Helped-v0", seeds="0,4", steps=40)
    assert run.episodes["seed"].nunique() == 2
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("processes", [1, 3])
def test_another_number_of_processes_does_not_begin_anew(
    processes: int, tmp_path: Path, divided: td7.Run
) -> None:
    path = tmp_path / "run"
    shutil.copytree(divided.path, path)
    config = path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "processes": processes}))
    before = tree(path)
    with pytest.raises(td7.InputError, match="processes"):
        td7.resume(path, steps=160, quiet=True, trust=True)
    assert tree(path) == before


def test_a_run_without_one_of_its_processes_does_not_begin_anew(
    tmp_path: Path, divided: td7.Run
) -> None:
    path = tmp_path / "run"
    shutil.copytree(divided.path, path)
    shutil.rmtree(process_folders(path)[1])
    with pytest.raises(td7.InputError, match="snapshots of 1; put back"):
        td7.resume(path, steps=160, quiet=True)


def test_what_a_process_refuses_the_run_refuses(tmp_path: Path, divided: td7.Run) -> None:
    """Here, a table that does not match a snapshot; nothing is written."""
    path = tmp_path / "run"
    shutil.copytree(divided.path, path)
    part = process_folders(path)[1]
    (part / FINISHED).unlink()  # as if it had been killed
    table = part / "episodes.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]))
    before = (path / "episodes.csv").read_bytes()
    with pytest.raises(InputError, match="does not hold the rows that its snapshot counts"):
        td7.resume(path, steps=160, quiet=True)
    assert (path / "episodes.csv").read_bytes() == before
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 4}, r"processes=4 for 3 seed\(s\): at most one per seed"),
        ({"processes": 2, "workers": 1}, "workers=1 has no effect with processes=2, each"),
        ({"processes": 0}, "processes=0 must be at least 1"),
        ({"processes": "many"}, "processes"),
    ],
)
def test_impossible_numbers_of_processes_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        td7.train(**{**OPTIONS, **options}, out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_workers_are_refused_on_resume(tmp_path: Path, divided: td7.Run) -> None:
    with pytest.raises(InputError, match="workers=2 has no effect on a run in 2 processes"):
        td7.resume(divided.path, workers=2)


def test_a_divided_run_has_the_replay_of_a_whole_one(divided: td7.Run, whole: td7.Run) -> None:
    ours, theirs = (
        Recorder(RunRecord.read(run.path), Members((7,)), 60, 0, silent, silent).replay()
        for run in (divided, whole)
    )
    np.testing.assert_allclose(ours.rows, theirs.rows, rtol=1e-6)


class SignalToAll:
    """A listener that signals the processes, as a batch system does, and later their owner."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, table: str, rows: Sequence[Any]) -> None:
        if self.done or table != "metrics":
            return
        self.done = True
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGTERM)
        later = time.monotonic() + 1.5 * REPEAT_SECONDS
        while time.monotonic() < later:
            pass
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_to_all_processes_counts_as_one(tmp_path: Path) -> None:
    """No snapshot is lost to a second signal, however late the owner receives its own."""
    path = tmp_path / "run"
    with pytest.raises(td7.Stopped):
        train(path, steps=2000, set=LOCKSTEP, listener=SignalToAll())
    assert all(has_snapshot(part) for part in process_folders(path))
    assert not (path / "error.txt").exists()


@pytest.fixture
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Afterwards, threads and signal handlers of this process are as before."""
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    threads, signals = torch.get_num_threads(), (signal.SIGINT, signal.SIGTERM)
    before = {s: signal.getsignal(s) for s in signals}
    yield
    torch.set_num_threads(threads)
    for s, handler in before.items():
        signal.signal(s, handler)


@pytest.mark.usefixtures("restored_process")
def test_a_process_cannot_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal before it trains stops it when it does; another while it saves changes nothing."""
    config = run_config(train_options({**OPTIONS, "seeds": "0", "device": "cpu"}))
    save = Snapshots.save

    def save_slowly(snapshots: Snapshots, *arguments: Any) -> Path:
        later = time.monotonic() + 1.5 * REPEAT_SECONDS
        while time.monotonic() < later:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        return save(snapshots, *arguments)

    class SignalledConnection(OwnerConnection):
        def __init__(self, connection: Connection) -> None:
            super().__init__(connection)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Snapshots, "save", save_slowly)
    monkeypatch.setattr("td7.training.multiprocess.OwnerConnection", SignalledConnection)
    here, there = multiprocessing.Pipe()
    here.send((None, None))  # neither a dataset nor a run to start from
    here.send(None)  # it may train
    job = SeedJob(
        config=config,
        spec=describe(config.task),
        path=tmp_path,
        snapshot_every=0.0,
        script=Script.current(config.task),
        compile_threads=1,
        make_loop=single_process_loop,
    )
    _train_seeds(there, job)
    reports = []
    while here.poll():
        reports.append(here.recv())
    assert isinstance(reports[0], ProcessReady)
    assert reports[-1] == ProcessEnd()
    assert has_snapshot(tmp_path)


def test_a_stop_does_not_wait_for_processes_that_have_not_begun(tmp_path: Path) -> None:
    """One process compiles for all. This run is stopped in its random phase, before that."""
    path = tmp_path / "run"
    tables: list[str] = []

    def stop(table: str, rows: Sequence[Any]) -> None:
        if not tables:
            tables.append(table)
            os.kill(os.getpid(), signal.SIGTERM)

    long = {**SMALL, "random_steps": 1_000_000}
    with pytest.raises(td7.Stopped):
        train(path, steps=1_000_000, engine="compiled", set=long, listener=stop)
    assert tables == ["evaluations"]
    assert [has_snapshot(part) for part in process_folders(path)] == [True, False]
    assert not multiprocessing.active_children()


def test_a_process_that_reports_without_a_pause_leaves_the_owner_its_turn() -> None:
    """Else the owner would neither deliver rows to listeners nor merge policies."""
    processes, there = [], []
    for _ in range(2):
        here, other = multiprocessing.Pipe()
        there.append(other)
        processes.append(SimpleNamespace(end=None, worker=SimpleNamespace(connection=here)))
    owner = MultiprocessTraining.__new__(MultiprocessTraining)
    owner._processes = processes  # type: ignore[assignment]
    row, end = TableRows("episodes", [(0,)]), ProcessEnd()
    for _ in range(2 * REPORTS_AT_ONCE):
        there[0].send(row)
    there[1].send(end)
    turns = [[report for _, report in owner._reports()] for _ in range(2)]
    assert turns == [[row] * REPORTS_AT_ONCE + [end], [row] * REPORTS_AT_ONCE]


def test_an_evaluation_moves_the_policies_of_its_step_alone(tmp_path: Path) -> None:
    """The others have been moved: thousands of folders are not searched again for each row."""
    process = tmp_path / "process-0"
    for step in (40, 80):
        write_policies(kept_policies(process, step), {"steps": [step], "seeds": [4]}, {4: b""})
    MergedPolicies(tmp_path, Members((4,))).add_evaluated(process, [(4, 80, 1, 0.0, 10)])
    kept = {step: weights_file(kept_policies(tmp_path, step), 4).exists() for step in (40, 80)}
    assert kept == {40: False, 80: True}


def test_a_kept_policy_exists_when_a_listener_receives_its_evaluation(
    divided_and_kept: tuple[td7.Run, KeptPolicies],
) -> None:
    _, kept = divided_and_kept
    assert kept.exist == [True] * 4 * 3


def test_the_status_of_a_run_is_that_of_all_its_processes() -> None:
    def status(seed: int, *, learns: bool, compiling_since: float | None) -> Status:
        members = [MemberStatus(seed, 10, 5, "training", None, 0.0)]
        return Status("td7 Toy", "steps", 100, 90, 9.0, learns, compiling_since, 4.0, members)

    first, second = (
        status(3, learns=True, compiling_since=None),
        status(0, learns=False, compiling_since=7.0),
    )
    merged = merged_status([first, second], (0, 3), 20.0)
    assert [m.id for m in merged.members] == [0, 3]
    assert (merged.seconds, merged.learns, merged.compiling_since) == (20.0, False, 7.0)
    assert merged.compiled_seconds == 0.0  # of all processes together there is none
    merged = merged_status([first, replace(second, learns=True)], (0, 3), 20.0)
    assert (merged.learns, merged.compiling_since) == (True, None)


@pytest.mark.usefixtures("restored_process")
def test_a_process_reports_that_it_compiles() -> None:
    """At once, as it is too busy to report for a minute."""
    status = Status("td7 Toy", "steps", 100, 90, 9.0, False, 7.0, 0.0, [])
    here, there = multiprocessing.Pipe()
    with OwnerConnection(there).keep_showing(lambda: status):
        assert here.poll()
        assert here.recv() == status


def test_policies_are_merged_between_the_writes_of_a_process(tmp_path: Path) -> None:
    """A process has written its next policy.json, but not yet the weights, when another saves."""
    policies, target = MergedPolicies(tmp_path, Members((0, 4))), tmp_path / "policy"

    def write(process: int, seed: int, steps: int) -> Path:
        folder = tmp_path / f"process-{process}" / "policy"
        description = {"steps": [steps], "seeds": [seed]}
        write_policies(folder, description, {seed: str(steps).encode()})
        return folder

    def merged() -> tuple[list[int], bytes]:
        for folder in folders:
            policies.add_saved(folder.parent)
        description = read_description(target)
        content = weights_file(target, 4).read_bytes()
        assert steps_of(description, weights_file(target, 4), 4, content) == int(content)
        return description["steps"], content

    folders = [write(0, 0, 100), write(1, 4, 100)]
    assert merged() == ([100, 100], b"100")
    write(1, 4, 200)
    weights_file(folders[1], 4).rename(tmp_path / "aside")
    assert merged() == ([100, 100], b"100")
    (tmp_path / "aside").rename(weights_file(folders[1], 4))
    assert merged() == ([100, 200], b"200")


def test_a_write_error_at_the_start_names_the_seeds(tmp_path: Path, divided: td7.Run) -> None:
    """Here, a folder is in the place of a process's table."""
    path = tmp_path / "run"
    shutil.copytree(divided.path, path)
    part = process_folders(path)[1]
    (part / FINISHED).unlink()
    table = part / "episodes.csv"
    table.unlink()
    table.mkdir()
    with pytest.raises(RunError, match=r"seeds 4: .*Is a directory"):
        td7.resume(path, steps=160, quiet=True)
    assert not multiprocessing.active_children()


OVERRIDDEN = """
import gymnasium, numpy as np
import td7

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {{}}
    def step(self, action):
        return np.zeros(2), 7.0, False, False, {{}}

gymnasium.registry["Pendulum-v1"].entry_point = {entry}
run = td7.train(env="Pendulum-v1", seeds="0-1", processes=2, steps=200, evaluate_every=200,
                evaluation_episodes=1, out={out!r}, quiet=True,
                set=dict(random_steps=100, hidden_dim=8, embedding_dim=8, batch_size=8))
print(sorted(set(run.evaluations["return"])))
"""


@pytest.mark.parametrize("entry", ["Mine", "'toys:Point'"])
def test_a_task_that_a_script_replaced(tmp_path: Path, entry: str) -> None:
    """Other processes would have Gymnasium's own task under that name."""
    script = tmp_path / "script.py"
    script.write_text(OVERRIDDEN.format(entry=entry, out=str(tmp_path / "run")))
    command = [sys.executable, str(script)]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.stderr == ""
    returns = json.loads(done.stdout)
    if entry == "Mine":
        assert returns == [1400.0]
    else:
        assert min(returns) > -300  # Pendulum's own are far below


def test_either_all_processes_start_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come between two of them."""
    monkeypatch.setattr(processes_module, "get_context", multiprocessing.get_context)
    begin = SpawnProcess.start
    started: list[SpawnProcess] = []

    def start(process: SpawnProcess) -> None:
        if started:
            raise KeyboardInterrupt
        started.append(process)
        begin(process)

    monkeypatch.setattr(SpawnProcess, "start", start)
    with pytest.raises(KeyboardInterrupt):
        processes_module.start_workers(_train_seeds, {"a": (), "b": ()})
    assert len(started) == 1
    assert not multiprocessing.active_children()

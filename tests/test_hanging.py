"""Steps of environments that do not return: a signal still saves the run, and a timeout ends it."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest

import td7
import toys
from folders import SMALL, newest, results, words
from td7.cli.main import main
from td7.rollouts import vector
from td7.rollouts.watch import Abandonable, AbandonTask
from td7.runs.snapshots import has_snapshot, process_folders
from td7.training import lockstep, multiprocess

assert toys  # registers the tasks
LIMIT = 10.0  # seconds from a signal to the end of the run
TRAINING, EVALUATION = "104,1", "116,1"  # seeds, and in which of their episodes a step hangs
PLACES = {
    TRAINING: "seed 104, episode 3, step 3",
    EVALUATION: "seed 116, evaluation at step 40, episode 1, step 3",
}


class Gate:
    """The file whose existence makes some steps hang; the same one for all runs of this module."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        self.reached = folder / "gate.reached"

    def options(self, seeds: str, checkpoints: str, how: str = "wait") -> dict[str, Any]:
        return {
            "env": "toys:Hanging-v0",
            "env_kwargs": {"gate": str(self.path), "how": how},
            "seeds": seeds,
            "steps": 100,
            "evaluate_every": 40,
            "evaluation_episodes": 2,
            "metrics_every": 10,
            "set": {**SMALL, "checkpoints": checkpoints},
            "quiet": True,
        }

    def command(self, run: Path, *which: Any, **more: object) -> list[str]:
        """The same as words of the command line."""
        options = {**self.options(*which), **more}
        lists = {"--env-kwargs": options.pop("env_kwargs"), "--set": options.pop("set")}
        values = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        values[values.index("--quiet=True")] = "--quiet"
        sets = [word for flag, value in lists.items() for word in (flag, *words(value))]
        return ["train", "--out", str(run), *values, *sets]

    def signal_when_reached(self, signum: int = signal.SIGTERM) -> Callable[[], float]:
        """Signal this process once a step hangs; the function returns the seconds since then."""
        begin: list[float] = []

        def send() -> None:
            while not self.reached.exists():
                time.sleep(0.01)
            begin.append(time.monotonic())
            os.kill(os.getpid(), signum)

        threading.Thread(target=send, daemon=True).start()
        return lambda: time.monotonic() - begin[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate")


@pytest.fixture
def gate(folder: Path) -> Iterator[Gate]:
    gate = Gate(folder)
    gate.reached.unlink(missing_ok=True)
    gate.path.touch()
    yield gate
    gate.path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def uninterrupted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., td7.Run]:
    """Returns a run that never hangs; its results do not depend on workers."""

    @cache
    def train(*which: Any) -> td7.Run:
        path = Gate(folder).path
        exists = path.exists()
        path.unlink(missing_ok=True)
        out = tmp_path_factory.mktemp("uninterrupted") / "run"
        run = td7.train(**Gate(folder).options(*which), out=str(out))
        if exists:
            path.touch()
        return run

    return train


def abandoned_at(moment: int) -> tuple[str, list[str], bool]:
    """Abandon work before an instruction: its result, what it did, and whether it got so far."""
    abandonable, done, instructions = Abandonable(), [], count()

    def work() -> str:
        done.append("work")
        return "result"

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and next(instructions) == moment:
            abandonable.abandon()  # as a signal handler would
        return trace

    result = "lost"
    sys.settrace(trace)
    try:
        with suppress(AbandonTask):
            result = abandonable.run(work)
    finally:
        sys.settrace(None)
    is_abandoned = next(instructions) > moment
    if is_abandoned:
        with pytest.raises(AbandonTask):
            abandonable.run(work)
    return result, done, is_abandoned


def test_a_result_is_returned_or_lost() -> None:
    """A signal may come before every instruction, such as when the work has just ended."""
    outcomes = set()
    for moment in count():
        result, done, is_abandoned = abandoned_at(moment)
        outcomes.add((result, len(done)))
        if not is_abandoned:
            break
    assert moment > 20
    assert outcomes == {("lost", 0), ("lost", 1), ("result", 1)}


@pytest.mark.parametrize("error", [AbandonTask, ValueError("interrupted")])
def test_what_an_environment_makes_of_it_is_no_fault(error: Exception) -> None:
    abandonable = Abandonable()

    def work() -> None:
        try:
            abandonable.abandon()
        except AbandonTask:
            raise error from None

    with pytest.raises(AbandonTask):
        abandonable.run(work)


@pytest.mark.parametrize(
    ("seeds", "checkpoints", "workers", "spins"),
    [
        (TRAINING, "minimum", 0, False),
        (TRAINING, "minimum", 2, False),
        (TRAINING, "none", 0, False),
        (TRAINING, "none", 2, False),
        (TRAINING, "none", 2, True),
        (EVALUATION, "none", 0, False),
        (EVALUATION, "minimum", 2, False),
    ],
)
def test_a_signal_saves_a_run_whose_step_hangs(
    tmp_path: Path,
    gate: Gate,
    uninterrupted: Callable[..., td7.Run],
    seeds: str,
    checkpoints: str,
    workers: int,
    spins: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot is of the moment before that step, and the resumed run is the same."""
    monkeypatch.setattr(lockstep, "can_spin", lambda _: spins)
    monkeypatch.setattr(vector, "ABANDON_SECONDS", 0.2)
    expected = results(uninterrupted(seeds, checkpoints).path)
    run = tmp_path / "run"
    elapsed = gate.signal_when_reached()
    command = gate.command(run, seeds, checkpoints, workers=workers, snapshot_every=0)
    assert main(command) == 128 + signal.SIGTERM
    assert elapsed() < LIMIT
    assert newest(run).name == "000001"
    assert not multiprocessing.active_children()
    gate.path.unlink()
    td7.resume(run, workers=0, quiet=True)
    assert results(run) == expected


def hang(name: str, seeds: str) -> str:
    return f"worker process {name} hangs: {PLACES[seeds]} takes longer than 0.5 s (--step-timeout)"


@pytest.mark.parametrize(
    ("seeds", "checkpoints", "worker"),
    [
        (TRAINING, "minimum", "td7-worker"),
        (EVALUATION, "minimum", "td7-worker"),
        (TRAINING, "none", "td7-stepper"),
    ],
)
def test_a_step_that_hangs_again_and_again_is_named(
    tmp_path: Path,
    gate: Gate,
    uninterrupted: Callable[..., td7.Run],
    seeds: str,
    checkpoints: str,
    worker: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A worker that runs tasks is replaced before; in either case the run is saved."""
    expected = results(uninterrupted(seeds, checkpoints).path)
    run = tmp_path / "run"
    options = {"workers": 3, "step_timeout": 0.5, "snapshot_every": 0}
    assert main(gate.command(run, seeds, checkpoints, **options)) == 1
    *replaced, error = capfd.readouterr().err.splitlines()
    hangs = [hang(f"{worker}-{i}", seeds) for i in range(3)]
    saved = f"everything trained so far is saved, `td7 resume {run}` tries again"
    assert error in [f"td7: {h}; {saved}" for h in hangs]
    assert len(replaced) == (worker == "td7-worker")
    assert all(line in [f"{h}; a new worker replaces it" for h in hangs] for line in replaced)
    assert not multiprocessing.active_children()
    gate.path.unlink()
    td7.resume(run, workers=0, quiet=True)
    assert results(run) == expected


def test_a_step_that_hangs_once_changes_nothing(
    tmp_path: Path,
    gate: Gate,
    uninterrupted: Callable[..., td7.Run],
    capfd: pytest.CaptureFixture[str],
) -> None:
    expected = results(uninterrupted(TRAINING, "minimum", "once").path)
    run = tmp_path / "run"
    command = gate.command(run, TRAINING, "minimum", "once", workers=1, step_timeout=0.5)
    assert main(command) == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"{hang('td7-worker-0', TRAINING)}; a new worker replaces it"
    assert results(run) == expected


def test_a_process_that_no_signal_reaches_is_killed(
    tmp_path: Path,
    gate: Gate,
    uninterrupted: Callable[..., td7.Run],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its seeds have what they saved before; those of the other process lose nothing."""
    monkeypatch.setattr(multiprocess, "STOP_SECONDS", 0.5)
    expected = uninterrupted(TRAINING, "none", "deaf")
    run = tmp_path / "run"
    elapsed = gate.signal_when_reached()
    command = gate.command(run, TRAINING, "none", "deaf", processes=2, snapshot_every=0)
    assert main(command) == 128 + signal.SIGTERM
    assert elapsed() < LIMIT
    assert not multiprocessing.active_children()
    assert [has_snapshot(part) for part in process_folders(run)] == [False, True]
    killed, _ = capfd.readouterr().err.splitlines()
    assert killed == (
        f"{PLACES[TRAINING]}: the environment does not return; process td7-seeds-104 was killed "
        "and resumes from its last snapshot"
    )
    gate.path.unlink()
    resumed = td7.resume(run, quiet=True)
    pd.testing.assert_frame_equal(resumed.episodes, expected.episodes, rtol=1e-5)

"""An error anywhere in a loop: the run saves, reports that error, closes all, and resumes exactly.

One run per loop is interrupted again and again, each time by an error at another place.
"""

import multiprocessing
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from folders import SMALL, contents, differences, newest
from offline_runs import BOUNDS, TINY, point_fields, save
from td7.errors import EnvironmentFault, RunError
from td7.training.loop import SingleProcessTraining

assert toys  # registers the tasks
PLACES = [  # everything that a loop calls and that can fail
    "td7.engine.cuda.Fetch.is_ready",
    "td7.engine.cuda.Fetch.value",
    "td7.engine.engine.Engine.advance",
    "td7.engine.engine.Engine.check",
    "td7.engine.engine.Engine.fetch_metrics",
    "td7.engine.engine.Engine.fetch_policy",
    "td7.engine.engine.Engine.step",
    "td7.engine.replay.Replay.append",
    "td7.rollouts.pool.InProcess.completed",
    "td7.rollouts.pool.InProcess.submit",
    "td7.rollouts.vector.SerialVectorEnvironment.step",
    "td7.runs.folder.RunFolder.begin",
    "td7.runs.folder.RunFolder.counts",
    "td7.runs.folder.RunFolder.finish",
    "td7.runs.folder.RunFolder.write_timings",
    "td7.runs.folder.Table.append",
    "td7.runs.policies.save",
    "td7.runs.snapshots.Snapshots.save",
    "td7.training.listeners.RunListeners.deliver",
    "td7.training.progress.QuietProgress.show",
    "td7.training.timing.Clock.add_total",
    "td7.training.timing.LearningTimer.record",
]
ERRORS: list[Callable[[], BaseException]] = [
    lambda: OSError(28, "No space left on device"),
    MemoryError,
    lambda: RuntimeError("a bug"),
    KeyboardInterrupt,
    lambda: RunError("seed 4: a fault"),
    lambda: EnvironmentFault("seed 4: the environment is on fire"),
    lambda: StopIteration("a bug"),
]
# Where an error leaves a part of the state changed and another part not.
CHANGES = {
    "td7.engine.cuda.Fetch.value",  # of a time step's actions
    "td7.engine.engine.Engine.advance",
    "td7.engine.engine.Engine.step",
    "td7.engine.engine.Engine.fetch_metrics",
    "td7.engine.engine.Engine.fetch_policy",  # once an episode's last updates are made
    "td7.engine.replay.Replay.append",
    "td7.rollouts.pool.InProcess.submit",  # from one queue to the other
}
LOOPS: dict[str, dict[str, Any]] = {
    "checkpointed": {"env": "toys:Point-v0", "set": SMALL},
    "lockstep": {"env": "toys:Point-v0", "set": {**SMALL, "checkpoints": "none"}},
    "offline": {"algorithm": "td3+bc", "set": TINY["td3+bc"]},
}
OPTIONS: dict[str, Any] = {
    "seeds": [0, 4],
    "steps": 80,
    "evaluate_every": 20,
    "evaluation_episodes": 1,
    "metrics_every": 5,
    "keep_policies": 40,
    "snapshot_every": 0,
    "quiet": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "point.hdf5", point_fields(), **BOUNDS)


def options(loop: str, data: Path) -> dict[str, Any]:
    return {**OPTIONS, **LOOPS[loop], **({"dataset": str(data)} if loop == "offline" else {})}


class Fault:
    """An error at the n-th call of one place."""

    def __init__(self, place: str, n: int, error: BaseException) -> None:
        self.place, self.error = place, error
        self.is_raised = False
        self._left = n
        module, name = place.rsplit(".", 1)
        try:
            self._owner: Any = import_module(module)
        except ModuleNotFoundError:
            module, kind = module.rsplit(".", 1)
            self._owner = getattr(import_module(module), kind)
        self._name = name

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(self._owner, self._name)

        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.is_raised = True
                raise self.error
            return original(*arguments, **options)

        monkeypatch.setattr(self._owner, self._name, call)


def raised_by(train: Callable[[], object]) -> BaseException | None:
    try:
        train()
    except BaseException as error:
        return error
    return None


def newest_number(run: Path) -> int:
    return int(newest(run).name) if list(run.glob("snapshot/0*")) else 0


class Savings:
    """Notes whether loops considered their state consistent after an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._were_consistent: list[bool] = []
        save_after = SingleProcessTraining._save_after

        def note(loop: SingleProcessTraining, error: BaseException) -> str:
            self._were_consistent.append(loop._is_consistent)
            return save_after(loop, error)

        monkeypatch.setattr(SingleProcessTraining, "_save_after", note)

    def was_consistent(self) -> bool | None:
        """None: the error came before the loop began."""
        return self._were_consistent.pop() if self._were_consistent else None


@pytest.mark.parametrize("loop", LOOPS)
def test_an_error_anywhere_loses_nothing(
    tmp_path: Path, data: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, savings = tmp_path / "run", Savings(monkeypatch)
    outcomes: dict[str, set[bool | None]] = {}  # of each place that was reached
    for i, place in enumerate([*PLACES, *PLACES]):
        fault = Fault(place, 1 + (i * 7) % 4, ERRORS[i % len(ERRORS)]())
        before = newest_number(run)
        with monkeypatch.context() as patch:
            fault.install(patch)
            if run.exists():  # every time a little longer, since some places are not reached
                error = raised_by(partial(td7.resume, run, steps=OPTIONS["steps"] + i, quiet=True))
            else:
                error = raised_by(partial(td7.train, **options(loop, data), out=str(run)))
        assert not multiprocessing.active_children()
        assert (error is not None) == fault.is_raised, place
        if error is None:
            continue
        assert fault.error in (error, error.__cause__), place
        outcome = savings.was_consistent()
        outcomes.setdefault(place, set()).add(outcome)
        if outcome:
            assert newest_number(run) > before, place
            if isinstance(error, RunError):
                assert f"everything trained so far is saved, `td7 resume {run}`" in str(error)
    assert {place for place, seen in outcomes.items() if False in seen} <= CHANGES
    assert sum(True in seen for seen in outcomes.values()) >= 10
    td7.resume(run, quiet=True, steps=200)
    expected = td7.train(**{**options(loop, data), "steps": 200}, out=str(tmp_path / "expected"))
    assert differences(contents(run), contents(expected.path)) == []

"""Faults of an environment during a run: one line, nothing is lost, and the run can be resumed."""

import errno
import itertools
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from folders import SMALL, newest, results, words
from point_tasks import FAULTS
from td7.cli.main import main
from td7.errors import RunError, Stopped
from td7.files import FileDigest, write

SAVED, AGAIN = "all training before it is saved", "tries again"  # how such an error's line ends


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_fault_ends_the_run_in_one_line(
    tmp_path: Path,
    fault: str,
    message: str,
    workers: int,
    checkpoints: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The run folder, and nothing else, holds the traceback of what an environment raised."""
    run = tmp_path / "run"
    command = ["train", "--env", "toys:Point-v0", "--env-kwargs", f"fault={fault}", "at=3"]
    command += ["--seeds", "4", "--steps", "100", "--workers", str(workers), "--quiet"]
    settings = words({**SMALL, "checkpoints": checkpoints})
    assert main([*command, "--out", str(run), "--set", *settings]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("td7: seed 4, ")
    message += f"; {SAVED}, `td7 resume {run}` {AGAIN}"
    if fault in ("raise", "exit"):
        assert line.endswith(f"{message} ({run / 'error.txt'} has its traceback)")
        details = (run / "error.txt").read_text()
        assert details.startswith("Traceback (most recent call last):\n")
        assert f'File "{toys.__file__}"' in details
        assert {"raise": "is on fire", "exit": "SystemExit: 3"}[fault] in details.splitlines()[-1]
    else:
        assert line.endswith(message)
        assert not (run / "error.txt").exists()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_resumed_run_that_finishes_has_no_old_traceback(
    tmp_path: Path, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    settings = {**SMALL, "checkpoints": checkpoints}
    monkeypatch.setattr(toys.Point, "reset", lambda *_, **__: sys.exit())
    with pytest.raises(RunError, match=r"raised SystemExit.*error\.txt has its"):
        td7.train(env="toys:Point-v0", steps=40, set=settings, out=str(run), quiet=True)
    assert (run / "error.txt").exists()
    monkeypatch.undo()
    td7.resume(run, quiet=True)
    assert (run / "finished.json").exists()
    assert not (run / "error.txt").exists()


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file whose existence makes some episodes raise."""
    return tmp_path_factory.mktemp("faults") / "cold"


def interrupted_options(cold: Path, seeds: str, every: int, checkpoints: str) -> dict[str, Any]:
    return {
        "env": "toys:Point-v0",
        "env_kwargs": {"fault": str(cold)},
        "seeds": seeds,
        "steps": 200,
        "evaluate_every": every,
        "metrics_every": 10,
        "set": {**SMALL, "checkpoints": checkpoints},
        "quiet": True,
    }


@pytest.fixture(scope="module")
def uninterrupted(
    cold: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, bytes]]:
    """Returns the results of a run without a fault; they do not depend on workers."""

    @cache
    def train(*which: Any) -> dict[str, bytes]:
        out = tmp_path_factory.mktemp("uninterrupted") / "run"
        return results(td7.train(**interrupted_options(cold, *which), out=str(out)).path)

    return train


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("workers", ["0", "3"])
@pytest.mark.parametrize(
    ("seeds", "every", "place"),
    [("5,9", 1000, "5, episode 8"), ("7,9", 40, "7, evaluation at step 80")],
)
def test_a_run_resumed_after_a_fault_equals_one_without(
    tmp_path: Path,
    cold: Path,
    uninterrupted: Callable[..., dict[str, bytes]],
    seeds: str,
    every: int,
    place: str,
    workers: str,
    checkpoints: str,
) -> None:
    """Everything before the fault is saved."""
    options = interrupted_options(cold, seeds, every, checkpoints)
    expected = uninterrupted(seeds, every, checkpoints)
    run = tmp_path / "run"
    cold.touch()
    with pytest.raises(RunError, match=f"{place}.* is cold; {SAVED}"):
        td7.train(**options, workers=workers, snapshot_every=0, out=str(run))
    cold.unlink()
    saved = json.loads((newest(run) / "members.json").read_text())
    assert sum(member["steps"] for member in saved["members"]) >= 160
    assert sum(saved["updates"]) > 0
    td7.resume(run, quiet=True)
    assert results(run) == expected


def ignore_seed(reset: Any) -> Any:
    """Return a reset that ignores its seed."""
    return lambda self, *, seed=None, options=None: reset(self, seed=None, options=options)


def drift(step: Any) -> Any:
    """Return a step whose reward depends on all steps before, as with normalising wrappers."""
    steps = itertools.count()
    return lambda self, action: (
        (result := step(self, action))[0],
        result[1] + 1e-9 * next(steps),
        *result[2:],
    )


@pytest.mark.parametrize(("name", "change"), [("reset", ignore_seed), ("step", drift)])
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_run_warns_once_of_episodes_that_are_not_reproducible(
    tmp_path: Path,
    name: str,
    change: Any,
    checkpoints: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(toys.Point, name, change(getattr(toys.Point, name)))
    settings = {**SMALL, "checkpoints": checkpoints}
    options: dict[str, Any] = {"steps": 40, "seeds": "0-2", "set": settings, "quiet": True}
    td7.train(env="toys:Point-v0", out=str(tmp_path / "run"), **options)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("task toys:Point-v0: an episode does not follow from its reset seed")
    monkeypatch.undo()
    td7.train(env="toys:Point-v0", out=str(tmp_path / "other"), **options)
    assert capfd.readouterr().err == ""


def test_a_traceback_that_cannot_be_written_does_not_hide_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_error_txt(path: Path, content: bytes) -> FileDigest:
        if path.name == "error.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr("td7.runs.folder.write", refuse_error_txt)
    with pytest.raises(RunError, match=rf"ValueError: the motor is on fire; .* {AGAIN}$"):
        td7.train(env="toys:Faulty-v0", steps=40, set=SMALL, out=str(tmp_path / "run"), quiet=True)


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_an_interrupt_is_not_a_fault_of_the_environment(
    tmp_path: Path, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(toys.Point, "step", interrupt)
    settings = {**SMALL, "checkpoints": checkpoints}
    with pytest.raises(KeyboardInterrupt):
        td7.train(
            env="toys:Point-v0", steps=40, set=settings, out=str(tmp_path / "run"), quiet=True
        )


def test_a_signal_ends_an_episode_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation at step 0 stays in the snapshot, to be played again."""
    monkeypatch.setattr("td7.rollouts.evaluation.MAX_STEPS", 10**9)
    step = toys.Count.step

    def send_signal(self: toys.Count, action: Any) -> Any:
        if self._steps == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, action)

    monkeypatch.setattr(toys.Count, "step", send_signal)
    run = tmp_path / "run"
    with pytest.raises(Stopped, match="SIGTERM") as stopped:
        td7.train(env="toys:Endless-v0", steps=100, set=SMALL, out=str(run), quiet=True)
    assert not isinstance(stopped.value, Exception)  # so `except Exception` does not catch it
    members = json.loads((run / "snapshot" / "000001" / "members.json").read_text())
    assert [task["step"] for task in members["pending_evaluations"]] == [0]

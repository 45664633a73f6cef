"""A run that is killed, stopped or crashes at any moment, and resumed, equals one that was not."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
from folders import SMALL, contents, differences, newest
from interrupted_runs import (
    PROCESSES,
    STEPS,
    TIMEOUT,
    Runner,
    check_kills,
    ended,
    refused,
    run_on_terminal,
    train_words,
    wait_until,
)
from td7.cli.main import main
from td7.training.signals import REPEAT_SECONDS, StopSignals


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    for process in runner.processes:
        process.kill()
        process.join()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main([*train_words(path), "--quiet"]) == 0
    return path


@pytest.fixture(scope="module")
def uninterrupted(finished: Path) -> dict[str, Any]:
    everything = contents(finished)
    assert everything["members"]["members"][0]["steps"] > STEPS - 20
    return everything


# -- killed --------------------------------------------------------------------------------------


def test_a_run_killed_at_random_moments_resumes_exactly(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    check_kills(runner, uninterrupted, 1)


ENTROPY = {"random_steps": 30, "actor_hidden_dim": 8, "critic_hidden_dim": 8, "batch_size": 16}
TWIN = {"random_steps": 30, "hidden_dim": 8, "batch_size": 16}


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("td7", {**SMALL, "checkpoints": "none"}),
        ("td3", TWIN),
        ("td3+ofe", {**TWIN, "ofe_features": 12}),
        ("sac", {**ENTROPY, "sale": True}),
        ("tqc", ENTROPY),
    ],
)
def test_a_lockstep_run_killed_at_random_moments_resumes_exactly(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    """Kills come in the middle of episodes; environments step in this process and in others."""
    path = tmp_path / "uninterrupted"
    assert main([*train_words(path, algorithm, **settings), "--quiet"]) == 0
    runner = Runner(tmp_path, algorithm, **settings)
    check_kills(runner, contents(path), 3)
    for process in runner.processes:
        process.kill()


def test_a_run_killed_while_it_writes_snapshots_resumes_exactly(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    """On a slow disk, with a snapshot in every turn of the loop, kills fall into some."""
    random = np.random.default_rng(1)
    half_written = []

    def is_writing() -> bool:
        return any(name.endswith(".tmp") for name in runner.snapshots())

    for _ in range(4):
        process = runner.start("--snapshot-every", "0.00001", disk=0.003)
        # Each process writes a few whole snapshots, so that the run advances.
        enough = runner.newest_number() + int(random.integers(1, 4))
        wait_until(lambda n=enough: runner.newest_number() >= n, process)  # type: ignore[misc]
        wait_until(is_writing, process)
        process.kill()
        if ended(process) == 0:
            break
        half_written.append(is_writing())
    assert sum(half_written) >= 2
    runner.finish()
    assert not is_writing()  # the next save removes it
    assert differences(contents(runner.path), uninterrupted) == []


def test_a_run_killed_before_its_first_snapshot_starts_anew(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    process = runner.start("--snapshot-every", "0")
    assert wait_until(lambda: runner.rows() > 14, process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert runner.snapshots() == []
    runner.finish()
    assert differences(contents(runner.path), uninterrupted) == []


def test_a_folder_as_it_was_at_any_moment_can_be_resumed(
    tmp_path: Path, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy made while a run writes its files is what a kill at that moment leaves."""
    path = tmp_path / "run"
    chosen = set(np.random.default_rng(2).choice(200, 7, replace=False).tolist())
    copies: list[Path] = []
    calls = [0]
    sync = os.fsync

    def copy(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] in chosen:
            copies.append(tmp_path / f"copy-{calls[0]}")
            shutil.copytree(path, copies[-1])
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", copy)
        assert main([*train_words(path), "--quiet", "--snapshot-every", "0.0001"]) == 0
    assert len(copies) == 7
    assert differences(contents(path), uninterrupted) == []
    assert any(list(copied.rglob(".*.tmp")) for copied in copies)
    for copied in copies:
        td7.resume(copied, quiet=True, snapshot_every=0)
        assert differences(contents(copied), uninterrupted) == [], copied


# -- stopped -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signum", "workers"), [(signal.SIGTERM, 0), (signal.SIGINT, 2), (signal.SIGHUP, 1)]
)
def test_a_run_stopped_by_a_signal_resumes_exactly(
    runner: Runner, uninterrupted: dict[str, Any], signum: signal.Signals, workers: int
) -> None:
    process = runner.start("--workers", str(workers))
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    os.killpg(process.pid, signum)  # to workers as well, as from a terminal or `timeout`
    assert ended(process) == 128 + signum
    (line,) = runner.output().splitlines()
    command = f"td7 resume {runner.path}"
    assert line == f"td7: stopped by {signum.name}; continue it exactly with `{command}`"
    assert "000001" in runner.snapshots()
    members = json.loads((newest(runner.path) / "members.json").read_text())
    # In the middle of the run; with workers, either seed may be ahead of the other.
    assert 0 < sum(member["steps"] for member in members["members"]) < 2 * STEPS
    runner.finish("--workers", str(workers))
    assert differences(contents(runner.path), uninterrupted) == []


@pytest.mark.draws
def test_the_installed_command_stops_and_resumes(
    tmp_path: Path, uninterrupted: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m td7` is stopped while it shows its progress; resumed, it shows the results."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "td7", *train_words(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + TIMEOUT
    table = path / "metrics.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    first, second, third = err.splitlines()
    assert first.startswith("td7 on toys:Point-v0")
    assert second.startswith("stopping: writing a snapshot")
    assert third == f"td7: stopped by SIGINT; continue it exactly with `td7 resume {path}`"
    assert out == ""
    assert main(["resume", str(path)]) == 0
    assert "mean return of an evaluation" in capsys.readouterr().out
    assert (path / "learning_curve.png").stat().st_size > 1_000
    assert differences(contents(path), uninterrupted) == []


def test_a_run_whose_terminal_closes_saves(tmp_path: Path) -> None:
    """What it cannot show any more changes neither the snapshot nor the exit status."""
    path = tmp_path / "run"
    controller, terminal = os.openpty()
    words = [*train_words(path), "--steps", "100_000", "--engine", "eager"]
    arguments = (words, os.ttyname(terminal))
    process = PROCESSES.Process(target=run_on_terminal, args=arguments)
    process.start()
    os.set_blocking(controller, False)

    def has_metrics() -> bool:
        with suppress(OSError):  # nothing to read yet
            os.read(controller, 1 << 16)
        table = path / "metrics.csv"
        return table.exists() and len(table.read_text().splitlines()) > 2

    assert wait_until(has_metrics, process)
    os.close(terminal)
    os.close(controller)
    assert ended(process) == 128 + signal.SIGHUP
    assert json.loads((newest(path) / "members.json").read_text())["members"][0]["steps"] > 0


def test_hanging_up_several_times_does_not_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `nohup` it does nothing at all."""
    monkeypatch.setattr("td7.training.signals.REPEAT_SECONDS", 0.0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = StopSignals(lambda: None)
        with signals.handled():
            signal.raise_signal(signal.SIGHUP)
        assert signals.received is None
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with signals.handled():
            for _ in range(3):
                signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signals.received == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_stops_at_once(runner: Runner, uninterrupted: dict[str, Any]) -> None:
    process = runner.start(disk=0.3)  # a snapshot takes a while
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    later = time.monotonic() + 1.2 * REPEAT_SECONDS
    assert wait_until(lambda: any(n.endswith(".tmp") for n in runner.snapshots()), process)
    assert wait_until(lambda: time.monotonic() > later, process)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    assert runner.output() == "td7: interrupted\n"
    assert not any(name.isdigit() for name in runner.snapshots())
    runner.finish()
    assert differences(contents(runner.path), uninterrupted) == []


def test_two_signals_at_once_count_as_one(runner: Runner) -> None:
    """`timeout` signals a process, and then its group with the same process."""
    process = runner.start(disk=0.05)
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    for signum in (signal.SIGTERM, signal.SIGINT):  # two of a kind might arrive as one
        os.kill(process.pid, signum)
    assert ended(process) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert "000001" in runner.snapshots()


# -- not interrupted at all -----------------------------------------------------------------------


def test_a_folder_in_use_is_refused(
    runner: Runner, uninterrupted: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    process = runner.start(disk=0.05)  # its end takes a while
    assert wait_until(lambda: runner.rows() > 5, process)
    config = (runner.path / "config.json").read_bytes()
    for options in ([], ["--steps", "9e9"]):
        line = refused(["resume", str(runner.path), *options], capsys)
        assert line == f"td7: {runner.path} is in use by another td7 process"
    assert (runner.path / "config.json").read_bytes() == config
    assert ended(process) == 0
    assert differences(contents(runner.path), uninterrupted) == []


def test_a_finished_run_may_be_resumed(
    tmp_path: Path, finished: Path, uninterrupted: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    for workers in (0, 1):
        td7.resume(path, quiet=True, workers=workers)
        assert differences(contents(path), uninterrupted) == []
        assert (path / "config.json").read_bytes() == (finished / "config.json").read_bytes()


def test_one_process_is_not_continued_as_several(
    run_copy: Path, failing_command: Callable[..., str]
) -> None:
    config = run_copy / "config.json"
    config.write_text(config.read_text().replace('"processes": 1', '"processes": 2'))
    message = failing_command("resume", run_copy, "--steps", "60", "--trust")
    assert message.startswith(f"{config} says that 2 processes train the run, but there are ")

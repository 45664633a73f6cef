"""What a run shows to its user: a table on a terminal, lines elsewhere."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import td7
import toys
from folders import SMALL
from td7.training.progress import (
    LineProgress,
    LiveProgress,
    MemberStatus,
    Status,
    duration,
)

assert toys  # registers the tasks


def status(
    seconds: float = 10.0,
    step_unit: str = "steps",
    learning: tuple[float, int] | None = (5.0, 100),
) -> Status:
    members = [
        MemberStatus(0, 50, 20, "training", 12.5, 3.0),
        MemberStatus(1, 100, 70, "finished", None, -np.inf),
    ]
    return Status("td7 Toy", step_unit, 100, seconds, 50, learning, members)


def test_rate_and_remaining_time_by_hand() -> None:
    assert status().fraction == 0.75
    assert status().rate == 10.0  # 50 of the 150 steps were in the 5 s since updates began
    assert status().remaining == 5.0
    assert status(seconds=5.0).remaining is None
    # Before that, 100 of the 150 are this process's, in 10 s; the others will take longer.
    assert status(learning=None).rate == 10.0
    assert status(learning=None).remaining is None
    seconds: list[float | None] = [None, 5.4, 65, 3_700]
    assert [duration(s) for s in seconds] == ["?", "5s", "1m05s", "1h01m"]


def test_lines_come_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("td7.training.progress.time.monotonic", lambda: now[0])
    file = io.StringIO()
    progress = LineProgress(file)
    drawn: list[float] = []

    def ask() -> Status:
        drawn.append(now[0])
        return status()

    for now[0] in (101.0, 116.0, 117.0, 140.0):
        progress.show(ask)
    progress.show(ask, final=True)
    assert drawn == [116.0, 140.0, 140.0]
    assert len(file.getvalue().splitlines()) == 3
    assert " 75%" in file.getvalue()


def test_a_terminal_shows_a_table() -> None:
    file = io.StringIO()
    progress = LiveProgress(Console(file=file, force_terminal=True, width=120))
    ask: Callable[[], Status] = status
    progress.show(ask)
    progress.say("[not markup]")
    progress.show(ask, final=True)
    progress.close()
    shown = file.getvalue()
    for text in ("td7 Toy", "75%", "10 steps/s", "training", "12.5", "–", "[not markup]"):
        assert text in shown


def test_offline_progress_counts_updates() -> None:
    file = io.StringIO()
    progress = LiveProgress(Console(file=file, force_terminal=True, width=120))
    progress.show(lambda: status(step_unit="updates"), final=True)
    progress.close()
    LineProgress(file).show(lambda: status(step_unit="updates"), final=True)
    assert "10 updates/s" in file.getvalue()
    assert "step" not in file.getvalue()


def test_without_a_terminal_progress_is_lines_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = td7.train(
        env="toys:Point-v0",
        steps=40,
        seeds="0,5",
        evaluate_every=30,
        evaluation_episodes=2,
        set=SMALL,
        out=str(tmp_path / "run"),
    )
    out, err = capfd.readouterr()
    assert out == ""
    first, second, last = err.splitlines()
    assert "toys:Point-v0" in first
    assert "seeds 0,5, 40 steps, cpu, replay 0." in first
    assert " MB on cpu" in first
    assert str(run.path) in first
    assert second == "the last evaluation is at 30 steps, because --evaluate-every is 30"
    assert last.startswith("100%")
    mean = run.evaluations.query("seed == 5 and step == 30")["return"].mean()
    assert f"[5] 40 steps, evaluation {mean:,.1f}" in last

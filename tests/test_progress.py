"""What a run shows to its user: a table on a terminal, lines elsewhere."""

import io
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from rich.console import Console

import td7
import toys
from folders import SMALL
from td7.errors import Option, on_command_line
from td7.training.progress import (
    LineProgress,
    LiveProgress,
    MemberStatus,
    Pace,
    Status,
    compiling,
    duration,
    ticking,
)

assert toys  # registers the tasks


def status(
    seconds: float = 10.0,
    updates: int = 70,
    *,
    step_unit: str = "steps",
    learns: bool = True,
    compiling_since: float | None = None,
    compiled_seconds: float = 0.0,
) -> Status:
    """Of two seeds that make 90 updates each, one of which is finished."""
    members = [
        MemberStatus(0, 50, updates, "training", 12.5, 3.0),
        MemberStatus(1, 100, 70, "finished", None, -np.inf),
    ]
    times = (seconds, learns, compiling_since, compiled_seconds)
    return Status("td7 Toy", step_unit, 100, 90, *times, members)


def pace_of(*statuses: Status) -> Pace:
    pace = Pace()
    for one in statuses:
        pace.note(one)
    return pace


def test_rate_and_remaining_time_by_hand() -> None:
    before, now = status(10.0, 20), status(15.0, 70)
    assert now.fraction == 0.75
    assert now.updates_left == 20  # of seed 0; seed 1 is finished
    pace = pace_of(before, now)
    assert pace.rate == 10.0
    assert pace.remaining(now) == 2.0
    assert pace_of(now).remaining(now) is None
    assert pace_of(now).rate == 0.0
    seconds: list[float | None] = [None, 5.4, 65, 3_700]
    assert [duration(s) for s in seconds] == ["?", "5s", "1m05s", "1h01m"]


def test_random_steps_say_nothing_about_the_time_to_go() -> None:
    """They are much faster, so they count no longer once there are updates."""
    random = [replace(status(learns=False), seconds=s) for s in (1.0, 2.0)]
    random[1] = replace(
        random[1], members=[replace(m, steps=m.steps + 10) for m in random[1].members]
    )
    assert pace_of(*random).rate == 20.0
    assert pace_of(*random).remaining(random[1]) is None
    assert pace_of(*random, status(4.0, 20), status(6.0, 30)).rate == 5.0


def test_time_to_go_follows_the_last_minutes() -> None:
    """An hour of nearly nothing, such as a sleeping laptop's, is forgotten after the window."""
    slow = status(3_600.0, 1)
    recent = [status(3_600.0 + s, 1 + s // 10) for s in (100, 190, 280)]
    assert pace_of(status(0.0, 0), slow).rate == 1 / 3_600  # a window has two samples at least
    assert pace_of(slow, *recent).rate == 0.1
    assert pace_of(slow, *recent).remaining(recent[-1]) == 10 * recent[-1].updates_left


def test_compiling_is_not_in_the_estimates() -> None:
    before = status(10.0, 20)
    after = status(130.0, 30, compiled_seconds=119.0)
    assert pace_of(before, after).rate == 10.0
    assert pace_of(before, after).remaining(after) == after.updates_left / 10


def test_compiling_is_counted_in_seconds_and_names_the_way_out() -> None:
    first = replace(status(compiling_since=100.0), members=[])
    assert compiling(first, 134.4) == "compiling … 34 s (engine=eager starts at once)"
    with on_command_line():
        assert compiling(first, 134.4) == "compiling … 34 s (--engine eager starts at once)"
    # A run that has made updates cannot have another engine.
    assert compiling(status(compiling_since=100.0), 101.0) == "compiling … 1 s"
    assert compiling(status(), 101.0) is None


def test_lines_come_at_intervals() -> None:
    now = [0.0]
    file = io.StringIO()
    progress = LineProgress(file, lambda: now[0])  # setting up may take long
    asked: list[float] = []

    def ask() -> Status:
        asked.append(now[0])
        return status(now[0], int(now[0]) - 100)

    for now[0] in (101.0, 101.5, 116.0, 117.0, 140.0):
        progress.show(ask)
    progress.show(ask, final=True)
    assert asked == [101.0, 116.0, 117.0, 140.0, 140.0]  # once per second is enough
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(" 75%  1 steps/s  2m20s elapsed, 50s to go  [0] 50 steps")


def test_lines_of_a_run_that_compiles() -> None:
    now = [100.0]
    file = io.StringIO()
    progress = LineProgress(file, lambda: now[0])
    for now[0] in (101.0, 105.0, 116.0, 134.0):  # the first call begins the interval
        progress.show(lambda: replace(status(0.0, 0), compiling_since=100.0, members=[]))
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        "0%  compiling … 16 s (engine=eager starts at once)",
        "0%  compiling … 34 s (engine=eager starts at once)",
    ]


def test_a_busy_loop_is_shown_by_a_thread() -> None:
    """With the caller's spelling of options, until the block ends."""
    drawn: list[str] = []
    has_drawn = Event()

    def draw() -> None:
        drawn.append(str(Option("env_kwargs")))
        has_drawn.set()

    with on_command_line(), ticking(draw, every=0.0):
        assert has_drawn.wait(timeout=60)
    count = len(drawn)
    assert set(drawn) == {"--env-kwargs"}
    assert "td7-progress" not in [thread.name for thread in threading.enumerate()]
    assert len(drawn) == count


def test_a_terminal_shows_a_table() -> None:
    file = io.StringIO()
    now = [0.0]
    progress = LiveProgress(
        Console(file=file, force_terminal=True, width=120), clock=lambda: now[0]
    )
    for now[0] in (1.0, 1.1, 2.0):
        progress.show(lambda: status(now[0], int(10 * now[0])))
    progress.say("[not markup]")
    progress.show(lambda: status(now[0], 20, compiling_since=-32.0), final=True)
    progress.close()
    shown = file.getvalue()
    for text in ("td7 Toy", "75%", "10 steps/s", "training", "12.5", "–", "[not markup]"):
        assert text in shown
    assert "2s elapsed, 7s to go" in shown
    assert "compiling … 34 s" in shown


def test_offline_progress_counts_updates() -> None:
    file = io.StringIO()
    live = LiveProgress(Console(file=file, force_terminal=True, width=120))
    lines = LineProgress(file)
    for seconds in (1.0, 2.0):
        one = status(seconds, int(10 * seconds), step_unit="updates")
        live.show(partial(replace, one), final=True)
        lines.show(partial(replace, one), final=True)
    live.close()
    assert "10 updates/s  2s elapsed" in file.getvalue()  # of a line
    assert file.getvalue().count("10 updates/s") >= 2
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
    assert second == "the last evaluation is at 30 steps, because evaluate_every is 30"
    assert last.startswith("100%")
    mean = run.evaluations.query("seed == 5 and step == 30")["return"].mean()
    assert f"[5] 40 steps, evaluation {mean:,.1f}" in last

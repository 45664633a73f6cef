"""Progress for the user: a live table on a terminal, plain lines elsewhere, or none."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from td7.errors import say


@dataclass(frozen=True)
class MemberStatus:
    """How far one seed is."""

    seed: int
    steps: int
    updates: int
    activity: str
    evaluation: float | None  # mean return of the last one
    best: float  # the checkpoint's criterion; -inf before the first


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    title: str
    step_unit: str  # what a step is: "steps" of the task or, with a dataset, "updates"
    target: int  # steps per seed
    seconds: float  # since this process started
    steps_before: int  # of all seeds, made before this process
    learning: tuple[float, int] | None  # the seconds and steps at the first update
    members: Sequence[MemberStatus]

    @property
    def fraction(self) -> float:
        return sum(m.steps for m in self.members) / max(1, self.target * len(self.members))

    @property
    def rate(self) -> float:
        """Steps of all seeds per second since updates began; before them steps are much faster."""
        since, before = self.learning or (0.0, self.steps_before)
        seconds = self.seconds - since
        done = sum(m.steps for m in self.members) - before
        return done / seconds if seconds > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds to go at the rate so far; None: not known yet."""
        left = self.target * len(self.members) - sum(m.steps for m in self.members)
        if left == 0:
            return 0.0
        return left / self.rate if self.learning and self.rate > 0 else None


class Progress(Protocol):
    """What a run shows to its user."""

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        """Draw the status if it is time to; loops call this often."""
        ...

    def say(self, message: str) -> None: ...

    def warn(self, message: str) -> None:
        """Say it even in a quiet run."""
        ...

    def close(self) -> None: ...


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    if hours:
        return f"{hours}h{m:02d}m"
    return f"{m}m{s:02d}s" if minutes else f"{s}s"


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; the block gets a function that takes the amount done and the total."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
    )
    with Bars(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _times(status: Status) -> str:
    return f"{duration(status.seconds)} elapsed, {duration(status.remaining)} to go"


def _number(value: float | None) -> str:
    return "–" if value is None or value == float("-inf") else f"{value:,.1f}"


class LiveProgress:
    """A table of seeds under a bar, redrawn in place, as long as there is a terminal."""

    every = 0.25  # seconds

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()
        self._drawn = 0.0

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        if final or time.monotonic() - self._drawn >= self.every:
            self._drawn = time.monotonic()
            with suppress(OSError):
                self._live.update(_draw(status()), refresh=True)

    def say(self, message: str) -> None:
        with suppress(OSError):
            self._live.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        with suppress(OSError):
            self._live.console.print(message, markup=False, style="yellow", soft_wrap=True)

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()


def _draw(status: Status) -> Group:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("seed", justify="right")
    counts = dict.fromkeys((status.step_unit, "updates"))
    for column in (*counts, "evaluation", "checkpoint"):
        table.add_column(column, justify="right", min_width=10)
    table.add_column("now")
    for m in status.members:
        table.add_row(
            str(m.seed),
            *(f"{getattr(m, count):,}" for count in counts),
            _number(m.evaluation),
            _number(m.best),
            Text(m.activity, style="dim"),
        )
    line = Table.grid(padding=(0, 1))
    line.add_row(
        Text(status.title, style="bold"),
        ProgressBar(total=1.0, completed=status.fraction, width=30),
        f"{status.fraction:4.0%}",
        f"{status.rate:,.0f} {status.step_unit}/s",
        Text(_times(status), style="dim"),
    )
    return Group(line, table)


class LineProgress:
    """A plain line at intervals, for logs."""

    every = 15.0  # seconds

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._drawn = time.monotonic()

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        if not final and time.monotonic() - self._drawn < self.every:
            return
        self._drawn = time.monotonic()
        now = status()
        seeds = "  ".join(
            f"[{m.seed}] {m.steps:,} {now.step_unit}, evaluation {_number(m.evaluation)}"
            for m in now.members
        )
        rate = f"{now.rate:,.0f} {now.step_unit}/s"
        self.say(f"{now.fraction:4.0%}  {rate}  {_times(now)}  {seeds}")

    def say(self, message: str) -> None:
        say(message, self._file)

    def warn(self, message: str) -> None:
        self.say(message)

    def close(self) -> None:
        pass


class QuietProgress:
    """Only warnings, on standard error."""

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        pass

    def say(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        say(message)

    def close(self) -> None:
        pass


def make_progress(*, quiet: bool) -> Progress:
    """The progress that suits standard error, where it goes so that output can be piped."""
    if quiet:
        return QuietProgress()
    console = Console(stderr=True)
    return LiveProgress(console) if console.is_terminal else LineProgress(sys.stderr)

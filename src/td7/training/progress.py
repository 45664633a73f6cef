"""Progress for the user: a live table on a terminal or in a notebook, else lines, or none."""

import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from threading import Event, Thread
from typing import IO, Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from td7.errors import Option, assigned, say

WINDOW = 180.0  # seconds that rates and estimates are measured over
TICK = 1.0  # seconds between two drawings while the loop is busy


@dataclass(frozen=True)
class MemberStatus:
    """How far one member is."""

    id: int  # its seed or, where hyperparameters vary, its number
    steps: int
    updates: int
    activity: str
    evaluation: float | None  # mean return of the last one
    best: float  # the checkpoint's criterion; -inf before the first
    values: str = ""  # of hyperparameters that vary, and the seed; empty if nothing varies
    has_ended: bool = False  # before the run, because it diverged


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    title: str
    step_unit: str  # what a step is: "steps" of the task or, with a dataset, "updates"
    target: int  # steps per seed
    target_updates: int  # per seed, about: the random phase may be longer than it must be
    seconds: float  # since this process started
    learns: bool  # whether this process has made updates
    compiling_since: float | None  # by time.monotonic(); None: the compiler is not running
    compiled_seconds: float  # that the compiler has run before
    members: Sequence[MemberStatus]

    @property
    def fraction(self) -> float:
        steps = sum(self.target if m.has_ended else m.steps for m in self.members)
        return steps / max(1, self.target * len(self.members))

    @property
    def fewest_steps(self) -> int:
        """The steps of the member with the fewest, of those that have not ended."""
        steps = [m.steps for m in self.members if not m.has_ended]
        return min(steps, default=self.target)

    @property
    def updates_left(self) -> int:
        """Updates of all seeds that are still to be made, about."""
        training = (m for m in self.members if m.steps < self.target and not m.has_ended)
        return sum(max(0, self.target_updates - m.updates) for m in training)


class Pace:
    """How fast a run has been in the last minutes, without the time that compiling took.

    The pace of updates counts as soon as there are some: they take most of the time, and members
    with checkpoints make them after the steps that they belong to.
    """

    def __init__(self) -> None:
        self._learns = False
        self._samples: deque[tuple[float, int]] = deque()  # seconds, updates (or steps) by then

    def note(self, status: Status) -> None:
        """Take the status at a time when nothing is compiled."""
        if status.learns != self._learns:
            self._learns = status.learns
            self._samples.clear()
        seconds = status.seconds - status.compiled_seconds
        count = sum(m.updates if status.learns else m.steps for m in status.members)
        self._samples.append((seconds, count))
        while len(self._samples) > 2 and self._samples[1][0] <= seconds - WINDOW:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Steps of all seeds per second, one for each update."""
        if not self._samples:
            return 0.0
        (since, before), (until, now) = self._samples[0], self._samples[-1]
        return (now - before) / (until - since) if until > since else 0.0

    def remaining(self, status: Status) -> float | None:
        """Seconds to go; None: not known yet."""
        if status.fraction >= 1:
            return 0.0
        return status.updates_left / self.rate if self._learns and self.rate > 0 else None


class Progress(Protocol):
    """What a run shows to its user."""

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        """Draw the status if it is time to; loops call this often."""
        ...

    def keep_showing(self, status: Callable[[], Status]) -> AbstractContextManager[object]:
        """A context in which the loop is too busy to call `show`."""
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


@contextmanager
def ticking(draw: Callable[[], None], every: float = TICK) -> Iterator[None]:
    """A context in which a thread draws at intervals."""
    is_over = Event()

    def tick() -> None:
        while not is_over.wait(every):
            draw()

    # In a copy of the context, which says how messages spell options.
    thread = Thread(target=copy_context().run, args=(tick,), name="td7-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def compiling(status: Status, now: float) -> str | None:
    """For how long updates have been compiled, and how to do without; None if they are not."""
    if status.compiling_since is None:
        return None
    text = f"compiling … {now - status.compiling_since:.0f} s"
    if any(m.updates for m in status.members):  # too late to begin with another engine
        return text
    return f"{text} ({assigned(Option('engine'), 'eager')} starts at once)"


def _speed(status: Status, pace: Pace) -> tuple[str, str]:
    """The rate, and the time so far and to go."""
    times = f"{duration(status.seconds)} elapsed, {duration(pace.remaining(status))} to go"
    return f"{pace.rate:,.0f} {status.step_unit}/s", times


def _number(value: float | None) -> str:
    return "–" if value is None or value == float("-inf") else f"{value:,.1f}"


class TableProgress(ABC):
    """A table of seeds under a bar, which is replaced as the run proceeds."""

    every: float  # seconds

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace()
        self._drawn = 0.0

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        if not final and self._clock() - self._drawn < self.every:
            return
        self._drawn = self._clock()
        now = status()
        busy = compiling(now, self._drawn)
        if busy is None:
            self._pace.note(now)
        self._replace(self._drawing(now, _speed(now, self._pace) if busy is None else (busy,)))

    def _drawing(self, status: Status, speed: Sequence[str]) -> Group:
        """What to show of a status: the bar and a row per member."""
        return Group(bar(status, speed), member_table(status))

    @abstractmethod
    def _replace(self, table: Group) -> None:
        """Show this table instead of the last one."""

    def keep_showing(self, status: Callable[[], Status]) -> AbstractContextManager[object]:
        return ticking(lambda: self.show(status))


class LiveProgress(TableProgress):
    """The table redrawn in place, as long as there is a terminal."""

    every = 0.25

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def _replace(self, table: Group) -> None:
        with suppress(OSError):
            self._live.update(table, refresh=True)

    def say(self, message: str) -> None:
        with suppress(OSError):
            self._live.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        with suppress(OSError):
            self._live.console.print(message, markup=False, style="yellow", soft_wrap=True)

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()


def member_table(status: Status) -> Table:
    """A row per member."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    varies = any(m.values for m in status.members)
    table.add_column("member" if varies else "seed", justify="right")
    counts = dict.fromkeys((status.step_unit, "updates"))
    for column in (*counts, "evaluation", "checkpoint"):
        table.add_column(column, justify="right", min_width=10)
    for column in (*(["values"] if varies else []), "now"):
        table.add_column(column)
    for m in status.members:
        table.add_row(
            str(m.id),
            *(f"{getattr(m, count):,}" for count in counts),
            _number(m.evaluation),
            _number(m.best),
            *([m.values] if varies else []),
            Text(m.activity, style="dim"),
        )
    return table


def bar(status: Status, speed: Sequence[str]) -> Table:
    """How far the run is, and how fast."""
    line = Table.grid(padding=(0, 1))
    line.add_row(
        Text(status.title, style="bold"),
        ProgressBar(total=1.0, completed=status.fraction, width=30),
        f"{status.fraction:4.0%}",
        *(Text(text, style="dim" if i else "") for i, text in enumerate(speed)),
    )
    return line


class NotebookOutput:
    """What stands below a notebook's cell, by IPython alone: rich needs widgets, which may lack."""

    def __init__(self) -> None:
        self._handle: Any = None  # from the first output on

    def replace(self, output: RenderableType) -> None:
        from IPython.display import display

        shown = Table.grid()  # which IPython can show, unlike a Group
        shown.add_row(output)
        if self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]  # IPython has none
        else:
            self._handle.update(shown)


class NotebookProgress(TableProgress):
    """The table below a notebook's cell."""

    every = 0.5

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._output = NotebookOutput()

    def _replace(self, table: Group) -> None:
        self._output.replace(table)

    def say(self, message: str) -> None:
        say(message, sys.stdout)

    def warn(self, message: str) -> None:
        say(message)  # red, as notebooks show standard error

    def close(self) -> None:
        pass


class LineProgress:
    """A plain line at intervals, for logs."""

    every = 15.0  # seconds

    def __init__(self, file: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._pace = Pace()
        self._drawn: float | None = None
        self._noted = float("-inf")

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        time = self._clock()
        self._drawn = time if self._drawn is None else self._drawn
        is_due = final or time - self._drawn >= self.every
        if not is_due and time - self._noted < TICK:
            return
        self._noted, now = time, status()
        busy = compiling(now, time)
        if busy is None:
            self._pace.note(now)
        if not is_due:
            return
        self._drawn = time
        speed = "  ".join(_speed(now, self._pace)) if busy is None else busy
        self.say(f"{now.fraction:4.0%}  {speed}  {self._details(now)}")

    def _details(self, status: Status) -> str:
        """What to say of the members."""
        return "  ".join(
            f"[{m.id}] {m.steps:,} {status.step_unit}, evaluation {_number(m.evaluation)}"
            for m in status.members
        )

    def keep_showing(self, status: Callable[[], Status]) -> AbstractContextManager[object]:
        return ticking(lambda: self.show(status))

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

    def keep_showing(self, status: Callable[[], Status]) -> AbstractContextManager[object]:
        del status
        return nullcontext()

    def say(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        say(message)

    def close(self) -> None:
        pass


def make_progress(*, quiet: bool) -> Progress:
    """The progress that suits a notebook, or standard error, so that output can be piped."""
    if quiet:
        return QuietProgress()
    console = Console(stderr=True)
    if console.is_jupyter:
        return NotebookProgress()
    return LiveProgress(console) if console.is_terminal else LineProgress(sys.stderr)

"""How far a study is, to watch."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from td7.training.progress import duration

if TYPE_CHECKING:
    from td7.studies.plan import StudyStatus


class StudyProgress:
    """How far a study is: a line on a terminal, redrawn, or one now and then in a log."""

    def __init__(self, usual: Mapping[str, float], at_once: int) -> None:
        self._usual, self._at_once = usual, at_once
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._every = 2.0 if self._console.is_terminal else 30.0  # seconds
        self._ended = -1
        self._drawn = time.monotonic()
        if self._console.is_terminal:
            self._live.start()

    def show(self, standing: "StudyStatus") -> None:
        ended = len(standing.done) + len(standing.failed)
        if ended == self._ended and time.monotonic() - self._drawn < self._every:
            return
        self._ended, self._drawn = ended, time.monotonic()
        failed = f", {len(standing.failed)} failed" if standing.failed else ""
        left = duration(standing.seconds(self._usual, self._at_once))
        now = ", ".join(f"{run.label} on {run.where}" for run in standing.running)
        text = f"{len(standing.done)} of {len(standing.runs)} runs done{failed}, {left} to go"
        text += f": {now}" if now else ""
        if self._console.is_terminal:
            self._live.update(Text(text), refresh=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._console.is_terminal:
            self._live.stop()

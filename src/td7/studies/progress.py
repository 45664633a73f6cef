"""Progress of a study: a line on a terminal or in a notebook, redrawn, or lines in a log."""

import time
from collections.abc import Mapping
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from td7.errors import say
from td7.studies.plan import StudyStatus
from td7.training.progress import NotebookOutput, duration


class StudyProgress:
    """Shows how many runs are done, how long the rest takes, and which runs are being trained."""

    def __init__(self, usual_rates: Mapping[str, float], at_once: int) -> None:
        self._usual_rates, self._at_once = usual_rates, at_once
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._notebook = NotebookOutput() if self._console.is_jupyter else None
        self._seconds_between = 2.0 if self._console.is_terminal or self._notebook else 30.0
        self._ended = -1
        self._shown = time.monotonic()
        if self._console.is_terminal:
            self._live.start()

    def show(self, status: StudyStatus) -> None:
        """Called often; writes a line when a run has ended or the last line is old."""
        ended = len(status.done) + len(status.failed)
        if ended == self._ended and time.monotonic() - self._shown < self._seconds_between:
            return
        self._ended, self._shown = ended, time.monotonic()
        failed = f", {len(status.failed)} failed" if status.failed else ""
        left = duration(status.seconds_left(self._usual_rates, self._at_once))
        running = ", ".join(f"{run.label} on {run.task}" for run in status.running)
        text = f"{len(status.done)} of {len(status.runs)} runs done{failed}, {left} left"
        text += f": {running}" if running else ""
        if self._console.is_terminal:
            with suppress(OSError):  # the terminal is gone
                self._live.update(Text(text), refresh=True)
        elif self._notebook:
            self._notebook.replace(Text(text))
        else:
            say(text)

    def close(self) -> None:
        if self._console.is_terminal:
            with suppress(OSError):
                self._live.stop()

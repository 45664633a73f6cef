"""SIGINT, SIGTERM and SIGHUP as requests to stop a run."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

from td7.processes import SIGHUP, on_signals

# Signals closer than this count as one: `timeout` signals a process, then its whole group.
REPEAT_SECONDS = 0.3


class StopSignals:
    """The first signal asks the run to stop with a snapshot; a later one interrupts it.

    SIGHUP never interrupts: a terminal that closes may send it several times.
    """

    def __init__(self, stop: Callable[[], None], *, can_interrupt: bool = True) -> None:
        """`stop` is called by the signal handler, once."""
        self.received: int | None = None  # the first signal
        self._stop = stop
        self._can_interrupt = can_interrupt
        self._received_at = 0.0

    def handled(self) -> AbstractContextManager[None]:
        """A context in which this object handles the signals."""
        return on_signals(self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.received is None:
            self.received, self._received_at = signum, time.monotonic()
            self._stop()
            return
        is_repeated = time.monotonic() - self._received_at > REPEAT_SECONDS
        if is_repeated and self._can_interrupt and signum != SIGHUP:
            raise KeyboardInterrupt

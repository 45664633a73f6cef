"""Steps of environments that hang: seen from another process, or given up after a signal."""

import time
from collections.abc import Callable
from ctypes import Structure, c_char, c_int64
from multiprocessing.sharedctypes import RawValue
from typing import TypeVar, final

from td7.errors import ControlFlow, EnvironmentFault

T = TypeVar("T")
EPISODE_BYTES = 160  # of an episode's name, which may be cut


@final
class Place(Structure):
    """Where the environments of a process are; `shared` makes one that its owner can read.

    A step writes one number when it begins and one when it ends, and takes no lock: what is read of
    a process that hangs does not change.
    """

    _fields_ = (
        ("position", c_int64),  # 0: no environment's code runs; 1: a reset; n + 1: step n
        ("episode", c_char * EPISODE_BYTES),
    )

    @staticmethod
    def shared() -> "Place":
        place: Place = RawValue(Place)
        return place

    def __str__(self) -> str:
        episode = bytes(self.episode).decode(errors="replace")
        return f"{episode}, step {self.position - 1}" if self.position > 1 else f"{episode}, reset"


class StepTimer:
    """Measures how long a step in another process takes, for an owner that looks now and then."""

    def __init__(self, place: Place, limit: float) -> None:
        """`limit` is in seconds; 0: a step may take for ever."""
        self.place = place
        self._limit = limit
        self._seen = b""
        self._looked_at = 0.0
        self._seconds = 0.0

    def is_overdue(self) -> bool:
        now, seen = time.monotonic(), bytes(self.place)
        if self.place.position and seen == self._seen:
            # While the owner did not look, it may have been stopped, and the other process with it.
            self._seconds += min(now - self._looked_at, self._limit / 4)
        else:
            self._seconds = 0.0
        self._seen, self._looked_at = seen, now
        return 0 < self._limit <= self._seconds

    def fault(self, process: str) -> EnvironmentFault:
        """Return the error for a step that is overdue."""
        return EnvironmentFault(
            f"worker process {process} hangs: {self.place} takes longer than {self._limit:g} s "
            "(--step-timeout)"
        )


def interrupt_fault(what: str) -> EnvironmentFault:
    """Return the error for a KeyboardInterrupt that only the environment can have raised."""
    return EnvironmentFault(f"{what}: the environment raised KeyboardInterrupt")


class AbandonTask(ControlFlow):
    """Ends a task from within a signal handler; no environment's `except Exception` stops it."""


class Abandonable:
    """Work that a signal handler may give up at any moment, and that is then repeated later."""

    def __init__(self) -> None:
        self._is_running = False
        self._is_abandoned = False

    def run(self, work: Callable[[], T]) -> T:
        """Raise AbandonTask from where the work is when `abandon` is called, or was called.

        Outside of this function nothing is raised: the result is either returned or lost.
        """
        try:
            self._is_running = True
            if self._is_abandoned:
                raise AbandonTask
            return work()
        except Exception as error:
            if self._is_abandoned:  # what an environment made of AbandonTask
                raise AbandonTask from error
            raise
        finally:
            self._is_running = False

    def abandon(self) -> None:
        """Give up the work, and all that `run` is called with from now on."""
        self._is_abandoned = True
        if self._is_running:
            raise AbandonTask

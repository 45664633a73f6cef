"""Where the time of a run went."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Where the time went: seconds and times a phase; worker processes count their own seconds."""

    def __init__(self) -> None:
        phases = ("setup", "collect", "evaluate", "update", "snapshot", "learn", "total")
        self.seconds = dict.fromkeys(phases, 0.0)
        self.times = dict.fromkeys(phases, 0)

    def add(self, phase: str, seconds: float, times: int = 1) -> None:
        self.seconds[phase] += seconds
        self.times[phase] += times

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - begin)

"""Where the time of a run goes."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

PHASES = ("setup", "collect", "evaluate", "update", "snapshot", "learn", "total")
WARM_UPDATES = 10  # per seed; everything is compiled and captured after these


class Clock:
    """Seconds and counts per phase. Worker processes measure their own seconds."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.times = dict.fromkeys(PHASES, 0)
        self._total_until = time.monotonic()

    def add(self, phase: str, seconds: float, times: int = 1) -> None:
        self.seconds[phase] += seconds
        self.times[phase] += times

    @contextmanager
    def phase(self, name: str, times: int = 1) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - begin, times)

    def add_total(self) -> None:
        """Add the time since this was last done, at first since the clock was made, to "total"."""
        now = time.monotonic()
        self.add("total", now - self._total_until)
        self._total_until = now

    def restore(self, seconds: Mapping[str, float], times: Mapping[str, int]) -> None:
        """Add what an earlier process of the run measured."""
        for phase in seconds:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds[phase]
            self.times[phase] = self.times.get(phase, 0) + times[phase]


class LearningTimer:
    """Measures the phase "learn": the seconds that updates take, and the updates of all seeds.

    Only the second half of the steps counts, and only after some updates, so neither random
    exploration nor compilation is included. Nor are snapshots, the user's listener and, where the
    learner's process plays them, evaluations.
    """

    def __init__(
        self, clock: Clock, steps: int, updates: Sequence[int], *, evaluates_here: bool
    ) -> None:
        """`steps`: of every seed when the run ends. `updates`: of every seed so far."""
        self._clock = clock
        self._final_steps = steps
        self._updates_before = list(updates)
        self._excluded_phases = ("snapshot", "evaluate") if evaluates_here else ("snapshot",)
        self._excluded_seconds = 0.0
        self._last: tuple[float, int] | None = None  # seconds, updates of all seeds

    def exclude(self, seconds: float) -> None:
        self._excluded_seconds += seconds

    def record(
        self, steps: Sequence[int], updates: Sequence[int], ended: Collection[int] = ()
    ) -> None:
        """Add the updates since the last call, given every seed's steps and updates.

        `ended`: the positions of those that train no more.
        """
        now, total = self._seconds(), sum(updates)
        if self._last is None:
            if self._has_begun(steps, updates, ended):
                self._last = now, total
            return
        since, before = self._last
        if total > before:  # time after the last update does not count
            self._clock.add("learn", now - since, total - before)
            self._last = now, total

    def _seconds(self) -> float:
        excluded = sum(self._clock.seconds[phase] for phase in self._excluded_phases)
        return time.perf_counter() - excluded - self._excluded_seconds

    def _has_begun(
        self, steps: Sequence[int], updates: Sequence[int], ended: Collection[int]
    ) -> bool:
        return all(
            updates[m] - self._updates_before[m] >= WARM_UPDATES
            and 2 * steps[m] >= self._final_steps
            for m in range(len(steps))
            if m not in ended
        )

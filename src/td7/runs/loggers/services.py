"""Services that a run is logged to. A thread talks to them, so that a slow one slows no run."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Protocol

from td7.errors import describe_raised
from td7.runs.loggers.scalars import Point
from td7.runs.record import RunRecord

BATCH_SECONDS = 1.0  # between deliveries
RETRY_SECONDS = 60.0  # after a delivery that failed
MOST_WAITING = 100_000  # points; a service that is away for longer loses the oldest
MOST_AT_ONCE = 1_000  # points per delivery
END_SECONDS = 60.0  # that a service may take for the last points
STOP_SECONDS = 5.0  # likewise of a run that a signal stops, which has to end soon


class Outcome(Enum):
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @classmethod
    def of(cls, error: BaseException | None) -> "Outcome":
        if error is None:
            return cls.FINISHED
        return cls.STOPPED if isinstance(error, KeyboardInterrupt) else cls.FAILED


class Service(Protocol):
    """Has a run of its own per member. All calls come from one thread, and may raise anything."""

    name: str

    def open(self) -> str:
        """Start or continue the runs; return where people see them, or ""."""
        ...

    def send(self, points: Sequence[Point]) -> None:
        """Log points; after an error, all of them come again."""
        ...

    def close(self, outcome: Outcome) -> None: ...


class ServiceLogger:
    """Passes points to a service, tries again after errors, and warns once of the first."""

    def __init__(
        self, service: Service, say: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self._service = service
        self._say = say
        self._warn = warn
        self._points: deque[Point] = deque(maxlen=MOST_WAITING)
        self._place = ""  # that is still to be shown, where the progress is: in the main thread
        self._failure: BaseException | None = None  # the first, likewise
        self._has_warned = False
        self._is_open = False
        self._is_done = False
        self._outcome: Outcome | None = None
        self._end = Event()
        self._thread = Thread(target=self._work, name=f"td7-{service.name}", daemon=True)

    def __enter__(self) -> "ServiceLogger":
        self._thread.start()
        return self

    def log(self, point: Point) -> None:
        self._points.append(point)
        self._show()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._outcome = Outcome.of(error)
        self._end.set()
        self._thread.join(STOP_SECONDS if self._outcome is Outcome.STOPPED else END_SECONDS)
        self._show()
        if not self._is_done:
            self._warn(
                f"{self._service.name} has not received everything; the run's tables are complete"
            )

    def _show(self) -> None:
        if self._place:
            self._say(f"{self._service.name}: {self._place}")
            self._place = ""
        if self._failure is not None and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"{self._service.name} failed: {describe_raised(self._failure)}; the run "
                "continues, and its tables are complete"
            )

    # -- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._is_done:
            outcome = self._outcome  # of which all points are here
            try:
                self._deliver()
                if outcome is not None:
                    self._service.close(outcome)
                    self._is_done = True
            except BaseException as error:  # foreign code may raise anything, and even exit
                self._failure = self._failure or error
                if outcome is not None:
                    return
                self._end.wait(RETRY_SECONDS)
            else:
                self._end.wait(BATCH_SECONDS)

    def _deliver(self) -> None:
        if not self._is_open:
            self._place = self._service.open()
            self._is_open = True
        while self._points:
            count = min(len(self._points), MOST_AT_ONCE)
            points = [self._points.popleft() for _ in range(count)]
            try:
                self._service.send(points)
            except BaseException:
                self._points.extendleft(reversed(points))
                raise


# -- what services show of a run -------------------------------------------------------------------


@dataclass(frozen=True)
class LoggedRun:
    """A run as services know it."""

    record: RunRecord

    @property
    def group(self) -> str:
        """What its members have in common: a study's row and task, or the folder's name."""
        record = self.record
        return f"{record.variant} on {self.env_id}" if record.variant else record.folder.name

    @property
    def env_id(self) -> str:
        """The task, or the dataset that it learns from."""
        dataset = self.record.dataset
        return dataset.d4rl or Path(dataset.source).stem if dataset else self.record.task.name

    @property
    def version(self) -> str:
        """Like `git describe`, where there is a commit: v0.1.0-g1234567, perhaps -dirty."""
        commit: Mapping[str, Any] | None = self.record.data.get("commit")
        version = f"v{self.record.versions.get('td7')}"
        if commit is None:
            return version
        return f"{version}-g{commit['id'][:7]}{'' if commit['is_clean'] else '-dirty'}"

    @property
    def tags(self) -> list[str]:
        """The version, by which openrlbenchmark selects runs, and the user's WANDB_TAGS."""
        others = os.environ.get("WANDB_TAGS", "").split(",")
        return [self.version, *(tag.strip() for tag in others if tag.strip())]

    def id(self, member: object) -> str:
        """One that no other run has, and that stays on resume."""
        return f"{self.record.data['logging_id']}-{member}"

    def name(self, member: int) -> str:
        members = self.record.members
        values = members.description(members.ids.index(member))
        return f"{self.group}, {f'member {member}, {values}' if values else f'seed {member}'}"

    def config(self, member: int) -> dict[str, Any]:
        """config.json, with the names by which openrlbenchmark selects runs.

        Where hyperparameters vary, it has the member's.
        """
        record = self.record
        members, exp_name = record.members, record.variant or record.algorithm
        m = members.ids.index(member)
        own: dict[str, Any] = {
            "exp_name": exp_name,
            "env_id": self.env_id,
            "seed": members.seeds[m],
        }
        if members.numbers:
            values = members.values(m)
            own |= {"hyperparameters": {**record.hyperparameters, **values}, "varied": values}
            own |= {"numbers": [member], "member": member}
        return {**record.data, **own}

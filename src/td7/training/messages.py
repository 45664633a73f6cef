"""What the processes of a run and their owner send to each other (multiprocess.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from td7.processes import Script
from td7.rollouts.watch import Place
from td7.training.config import RunConfig
from td7.training.loop import SingleProcessTraining
from td7.training.member import Origin
from td7.training.parts import RunSetup
from td7.training.progress import Status
from td7.types import Probe, TaskSpec

Row = Sequence[object]


@dataclass(frozen=True)
class SeedJob:
    """What a process needs to train its seeds. Its dataset and start are sent once all run."""

    config: RunConfig
    spec: TaskSpec
    path: Path
    snapshot_every: float
    script: Script
    compile_threads: int
    make_loop: Callable[[RunSetup], SingleProcessTraining]
    origins: Sequence[Origin] = ()
    place: Place = field(default_factory=Place.shared)  # where its environments are


@dataclass(frozen=True)
class ProcessReady:
    """A process has restored its seeds; it trains when the owner asks for that."""

    status: Status
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class ProgressMessage:
    text: str
    is_warning: bool


@dataclass(frozen=True)
class TableRows:
    table: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class ProcessEnd:
    """A process's last report; everything that it did is in its folder."""

    error: Exception | None = None  # a NoMemberLeftError is no reason to stop the others
    is_finished: bool = False  # else it was stopped


Report = ProcessReady | ProgressMessage | TableRows | Probe | Status | ProcessEnd

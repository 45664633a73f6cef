"""One member's progress through a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from td7.algorithms.checkpoints import Assessment

UNSAVED = ("collecting", "finished")  # fields that snapshots do not hold
OPTIONAL = ("fault",)  # that they hold only where there is something
SAVED_AS = {"id": "seed"}  # fields with another name in snapshots, from when each id was a seed


@dataclass(frozen=True)
class Origin:
    """A member of a run that has ended, which continues in another run."""

    run: Path
    id: int


@dataclass
class Member:
    """One member's progress through the protocol; its learner is part of the stacked tensors."""

    id: int  # its seed or, where hyperparameters vary, its number
    steps: int = 0  # of its environment; with a dataset, updates
    episodes: int = 0
    owed: int = 0  # updates to make before the next episode
    next_evaluation: int = 0  # the time step at which it is due
    evaluation: float | None = None  # mean return of the last one
    evaluation_step: int = -1
    assessment: Assessment = field(default_factory=Assessment)
    learns: bool = False  # without checkpoints: an update follows every time step from now on
    collecting: bool = False
    finished: bool = False
    fault: str = ""  # why it has ended before the run, such as "critic_loss is not finite"

    def to_json(self) -> dict[str, Any]:
        values = asdict(self).items()
        saved = {n: v for n, v in values if n not in UNSAVED and (v or n not in OPTIONAL)}
        return {SAVED_AS.get(name, name): value for name, value in saved.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Member":
        named = {name: data[saved_as] for name, saved_as in SAVED_AS.items()}
        values = {name: v for name, v in data.items() if name not in SAVED_AS.values()}
        member = cls(**{**values, **named, "assessment": Assessment(**data["assessment"])})
        member.finished = bool(member.fault)
        return member

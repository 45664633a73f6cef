"""One seed's place in a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from td7.algorithms.checkpoints import Assessment


@dataclass
class Member:
    """One seed's place in the protocol; the learner's side of it is in the stacked tensors."""

    seed: int
    steps: int = 0  # of its environment; with given data, updates
    episodes: int = 0
    owed: int = 0  # updates to run before the next episode
    next_evaluation: int = 0  # the time step it is due at
    evaluation: float | None = None  # mean return of the last one
    evaluation_step: int = -1
    assessment: Assessment = field(default_factory=Assessment)
    learns: bool = False  # without checkpoints: an update after every time step from now on
    # What follows is made anew on resume.
    collecting: bool = False
    finished: bool = False

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["collecting"], data["finished"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Member":
        return cls(**{**data, "assessment": Assessment(**data["assessment"])})

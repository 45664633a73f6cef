"""What decides the result of a run: options → RunConfig → config.json and back."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from td7.algorithms import algorithm
from td7.algorithms.config import LearnerConfig, OnlineConfig
from td7.configs import build_config, check_fields, parse
from td7.datasets.scores import score
from td7.engine.engine import MODES
from td7.errors import InputError
from td7.runs.record import DatasetRecord, RunRecord
from td7.types import Task

PRECISIONS = ("float32", "float64")
_POSITIVE = {"at_least": 1}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result, but for the versions of the software."""

    algorithm: str
    variant: str  # STUDY/LABEL that the hyperparameters come from, if any
    task: Task
    seeds: tuple[int, ...]
    steps: int = field(metadata=_POSITIVE)  # environment steps, or with given data updates, a seed
    hyperparameters: LearnerConfig
    evaluate_every: int = field(metadata=_POSITIVE)  # environment steps, or with given data updates
    evaluation_episodes: int = field(metadata=_POSITIVE)
    metrics_every: int = field(metadata=_POSITIVE)  # updates
    device: str = field(metadata={"choices": ("cpu", "cuda")})
    replay_device: str = field(metadata={"choices": ("cpu", "cuda")})  # where its rows are
    precision: str = field(metadata={"choices": PRECISIONS})
    engine: str = field(metadata={"choices": MODES})  # how updates run; decides the last digits
    threads: int = field(metadata=_POSITIVE)  # PyTorch's; they may, too
    dataset: DatasetRecord | None = None  # what it learns from; None: what it collects itself
    # Steps between evaluated policies that are kept; 0: none are.
    keep_policies: int = field(default=0, metadata={"at_least": 0})
    processes: int = field(default=1, metadata=_POSITIVE)  # that seeds are divided among

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def online(self) -> OnlineConfig:
        """The hyperparameters of an algorithm that collects its own data."""
        if not isinstance(self.hyperparameters, OnlineConfig):
            raise TypeError(f"{self.algorithm} cannot collect its own data")
        return self.hyperparameters

    @property
    def step_unit(self) -> str:
        """What a step is."""
        return "updates" if self.dataset else "steps"

    @property
    def is_scored(self) -> bool:
        """Whether returns have D4RL's score: of agents that learn from data, on tasks with one."""
        return self.dataset is not None and score(self.task.id, []) is not None

    @property
    def replay_rows(self) -> int:
        """A replay's size, a seed: a short run does not fill the capacity."""
        if self.dataset:
            return self.dataset.rows
        return min(self.online.replay_capacity, self.steps)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: RunRecord) -> "RunConfig":
        """The config that `to_json` wrote; fields newer than the run have their defaults."""
        config = algorithm(record.algorithm).config
        hyperparameters = build_config(config, record.hyperparameters).for_task(record.task)
        values: dict[str, Any] = {"hyperparameters": hyperparameters}
        for f in fields(cls):
            is_newer = f.name not in record.data and f.default is not MISSING
            if f.name in values or is_newer:
                continue
            if hasattr(record, f.name):
                values[f.name] = getattr(record, f.name)
            else:
                kind: Any = f.type  # a class: annotations are no strings here
                values[f.name] = parse(f.name, record.data[f.name], kind)
        return cls(**values)


def check_same(now: Mapping[str, Any], saved: Mapping[str, Any], prefix: str = "") -> None:
    """Raises for the first field that another config would have; only `steps` may grow."""
    for name in {**now, **saved}:
        a, b = now.get(name), saved.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            check_same(a, b, f"{prefix}{name}.")
        elif name == "steps" and not prefix:
            if a < b:  # type: ignore[operator]  # both are whole numbers
                raise InputError(f"this run has steps={b} already; steps can only grow, given {a}")
        elif prefix == "dataset." and name != "sha256":
            pass  # where the same rows are now, and what is known of them
        elif name not in saved and prefix in ("", "hyperparameters."):
            pass  # a field that is newer than the snapshot, and has its default
        elif json.dumps(a) != json.dumps(b):
            raise InputError(
                f"a run's config cannot change on resume: {prefix}{name} is {b!r}, given {a!r}; "
                "`td7 train` starts a run with others"
            )

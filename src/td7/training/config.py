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
from td7.types import Task

PRECISIONS = ("float32", "float64")
_POSITIVE = {"at_least": 1}


@dataclass(frozen=True)
class DatasetRecord:
    """The dataset that a run learns from."""

    source: str  # a path, or Minari's id
    rows: int
    sha256: str  # of the rows
    self_collected: bool  # recorded by this package, not D4RL's or Minari's
    mean_return: float | None = None  # of its complete episodes, if it has any
    d4rl: str | None = None  # D4RL's name of the file; empty: none of D4RL's; None: not checked


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result, except the versions of the software."""

    algorithm: str
    variant: str  # STUDY/LABEL of the row that the hyperparameters come from, or empty
    task: Task
    seeds: tuple[int, ...]
    steps: int = field(metadata=_POSITIVE)  # per seed: environment steps, with a dataset updates
    hyperparameters: LearnerConfig
    evaluate_every: int = field(metadata=_POSITIVE)  # steps, with a dataset updates
    evaluation_episodes: int = field(metadata=_POSITIVE)
    metrics_every: int = field(metadata=_POSITIVE)  # updates
    device: str = field(metadata={"choices": ("cpu", "cuda")})
    replay_device: str = field(metadata={"choices": ("cpu", "cuda")})  # of its rows
    precision: str = field(metadata={"choices": PRECISIONS})
    engine: str = field(metadata={"choices": MODES})  # how updates run; affects the last digits
    threads: int = field(metadata=_POSITIVE)  # PyTorch's; affect the last digits
    dataset: DatasetRecord | None = None  # None: the run collects its own data
    # Steps between evaluated policies that are kept; 0: none.
    keep_policies: int = field(default=0, metadata={"at_least": 0})
    processes: int = field(default=1, metadata=_POSITIVE)  # that share the seeds

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
        """What a step of this run is."""
        return "updates" if self.dataset else "steps"

    @property
    def is_scored(self) -> bool:
        """Whether returns get D4RL's score: learned from a dataset, on a task that has one."""
        return self.dataset is not None and score(self.task.id, []) is not None

    @property
    def replay_rows(self) -> int:
        """The replay's size per seed: a short run does not fill the capacity."""
        if self.dataset:
            return self.dataset.rows
        return min(self.online.replay_capacity, self.steps)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_json`; a field that the data are too old for gets its default."""
        task = Task(str(data["task"]["id"]), dict(data["task"]["kwargs"]))
        config = algorithm(str(data["algorithm"])).config
        values: dict[str, Any] = {
            "task": task,
            "seeds": tuple(parse("seeds", seed, int) for seed in data["seeds"]),
            "hyperparameters": build_config(config, dict(data["hyperparameters"])).for_task(task),
            "dataset": DatasetRecord(**data["dataset"]) if data["dataset"] else None,
        }
        for f in fields(cls):
            is_newer = f.name not in data and f.default is not MISSING
            if f.name not in values and not is_newer:
                kind: Any = f.type  # a class: annotations are not strings here
                values[f.name] = parse(f.name, data[f.name], kind)
        return cls(**values)


def check_same(now: Mapping[str, Any], saved: Mapping[str, Any], prefix: str = "") -> None:
    """Raise for the first field that differs; only `steps` may grow."""
    for name in {**now, **saved}:
        a, b = now.get(name), saved.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            check_same(a, b, f"{prefix}{name}.")
        elif name == "steps" and not prefix:
            if a < b:  # type: ignore[operator]  # both are ints
                raise InputError(f"this run has steps={b} already; steps can only grow, given {a}")
        elif prefix == "dataset." and name != "sha256":
            pass  # the same rows may be elsewhere now, or better known
        elif name not in saved and prefix in ("", "hyperparameters."):
            pass  # a field newer than the snapshot, which had its default
        elif json.dumps(a) != json.dumps(b):
            raise InputError(
                f"a run's config cannot change on resume: {prefix}{name} is {b!r}, given {a!r}; "
                "`td7 train` starts a run with other settings"
            )

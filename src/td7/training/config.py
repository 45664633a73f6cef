"""What decides the result of a run: options → RunConfig → config.json and back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from td7.algorithms import algorithm
from td7.algorithms.config import LearnerConfig, OnlineConfig, check_varies
from td7.configs import build_config, check_fields, complete, parse
from td7.datasets.scores import score
from td7.errors import InputError, one_of
from td7.option_values import MOST_SEEDS
from td7.options import ENGINES, MOST_STEPS, PRECISIONS
from td7.runs.members import Members
from td7.runs.record import DatasetRecord, RunRecord, StartRecord, uses_tf32
from td7.types import Task

MOST_THREADS = 1_000  # more are probably a typing error
_POSITIVE = {"at_least": 1}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result, except the versions of the software."""

    algorithm: str
    variant: str  # STUDY/LABEL of the row that the hyperparameters come from, or empty
    task: Task
    seeds: tuple[int, ...]  # of each member
    steps: int = field(
        metadata=_POSITIVE | {"at_most": MOST_STEPS}
    )  # per seed: environment steps, with a dataset updates
    hyperparameters: LearnerConfig  # but for those that vary between members
    evaluate_every: int = field(metadata=_POSITIVE)  # steps, with a dataset updates
    evaluation_episodes: int = field(metadata=_POSITIVE)
    metrics_every: int = field(metadata=_POSITIVE)  # updates
    device: str = field(metadata={"choices": ("cpu", "cuda")})
    replay_device: str = field(metadata={"choices": ("cpu", "cuda")})  # of its rows
    precision: str = field(metadata={"choices": PRECISIONS})
    engine: str = field(metadata={"choices": ENGINES})  # how updates run; affects the last digits
    # PyTorch's; affect the last digits
    threads: int = field(metadata=_POSITIVE | {"at_most": MOST_THREADS})
    dataset: DatasetRecord | None = None  # None: the run collects its own data
    # Steps between evaluated policies that are kept; 0: none.
    keep_policies: int = field(default=0, metadata={"at_least": 0})
    # That share the seeds.
    processes: int = field(default=1, metadata=_POSITIVE | {"at_most": MOST_SEEDS})
    normalise_observations: bool = False  # by running statistics, in front of the networks
    tf32: bool = False  # whether a GPU's products of float32 matrices are TF32
    start_from: StartRecord | None = None  # None: with new networks
    # Hyperparameters that vary, with their values in each member; then members have numbers.
    varied: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()
    # Members without seed or steps, which keep the shapes of a search's runs equal.
    padding: int = field(default=0, metadata={"at_least": 0})

    def __post_init__(self) -> None:
        check_fields(self)
        _ = self.hyperparameters_of  # raises for values out of range

    @property
    def members(self) -> Members:
        return Members(self.seeds, self.varied, self.numbers)

    def of_members(self, positions: Sequence[int]) -> "RunConfig":
        """The config of some members alone, by position."""
        members = self.members.take(positions)
        return replace(
            self, seeds=members.seeds, varied=members.varied, numbers=members.numbers, padding=0
        )

    @cached_property
    def hyperparameters_of(self) -> tuple[LearnerConfig, ...]:
        """Those of each member."""
        kind, members = type(self.hyperparameters), self.members
        common = {f.name: getattr(self.hyperparameters, f.name) for f in fields(kind)}
        for name in self.varied:
            check_varies(kind, name)
        return tuple(
            build_config(kind, {**common, **members.values(m)}) for m in range(len(members))
        )

    @property
    def online(self) -> OnlineConfig:
        """The hyperparameters of an algorithm that collects its own data."""
        if not isinstance(self.hyperparameters, OnlineConfig):
            raise TypeError(f"{self.algorithm} cannot collect its own data")
        return self.hyperparameters

    def online_of(self, m: int) -> OnlineConfig:
        """The hyperparameters of the m-th member of a run that collects its own data."""
        config = self.hyperparameters_of[m]
        assert isinstance(config, OnlineConfig)
        return config

    @property
    def random_steps(self) -> int:
        """The time steps before the first member trains."""
        return min(self.online_of(m).random_steps for m in range(len(self.seeds)))

    @property
    def updates(self) -> int:
        """Updates per seed, about: the random phase may be longer than it must be."""
        return self.steps if self.dataset else max(0, self.steps - self.random_steps)

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
    def from_record(cls, record: RunRecord) -> "RunConfig":
        """The config that `to_json` wrote; newer fields have the values that the run had."""
        config = algorithm(record.algorithm).config
        recorded = complete(config, record.hyperparameters)
        hyperparameters = build_config(config, recorded).for_task(record.task)
        members = record.members
        values: dict[str, Any] = {
            "hyperparameters": hyperparameters,
            **{name: getattr(members, name) for name in ("seeds", "varied", "numbers")},
        }
        for f in fields(cls):
            is_newer = f.name not in record.data and f.default is not MISSING
            if f.name in values or is_newer:
                continue
            if hasattr(record, f.name):
                values[f.name] = getattr(record, f.name)
            else:
                kind: Any = f.type  # a class: annotations are no strings here
                values[f.name] = parse(f.name, record.data[f.name], kind)
        return cls(**{**values, "tf32": uses_tf32(record.data)})


def precision_settings(precision: str, device: str) -> dict[str, Any]:
    """The fields of a RunConfig that follow from `--precision`."""
    one_of("precision", precision, ("auto", *PRECISIONS))
    return {
        "precision": "float32" if precision == "auto" else precision,
        "tf32": precision == "auto" and device == "cuda",
    }


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
        elif name not in saved and prefix in ("", "task.", "hyperparameters."):
            pass  # a field newer than the snapshot, which had its default
        elif json.dumps(a) != json.dumps(b):
            raise InputError(
                f"a run's config cannot change on resume: {prefix}{name} is {b!r}, given {a!r}; "
                "`td7 train` starts a run with other settings"
            )

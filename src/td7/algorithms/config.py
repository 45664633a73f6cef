"""What the configs of all algorithms have in common."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

import torch

from td7.algorithms.checkpoints import CRITERIA, CheckpointRule
from td7.configs import build_config, check_fields, setting
from td7.errors import InputError, Option, unknown
from td7.option_values import to_word
from td7.types import Task

Config = TypeVar("Config", bound="LearnerConfig")

LARGEST_BATCH = 1_000_000  # far above any in use; a larger one is probably a typo


def new_default(base: type["LearnerConfig"], name: str, default: Any, before: Any = None) -> Any:
    """The field `name` of a base config, with another default; `before` as in `setting`."""
    (inherited,) = (f for f in fields(base) if f.name == name)
    return field(default=default, metadata={**inherited.metadata, "before": before})


@dataclass(frozen=True)
class LearnerConfig:
    """The hyperparameters of every algorithm, online or offline."""

    discount: float = setting(
        0.99,
        "discount factor gamma",
        group="Common",
        at_least=0,
        at_most=1,
        per_member=True,
        search="0.95,0.97,0.98,0.99,0.995,0.999",
    )
    batch_size: int = setting(
        256, "transitions per update", group="Common", at_least=1, at_most=LARGEST_BATCH
    )
    learning_rate: float = setting(
        3e-4,
        "Adam's learning rate, for every network",
        group="Optimiser",
        above=0,
        per_member=True,
        search="3e-5..3e-3:log",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def for_task(self, task: Task) -> Self:
        """This config with the paper's values for the task filled in."""
        del task
        return self


ONLINE_GROUPS = ("Exploration", "Replay", "Policy checkpoints")  # no effect on a dataset
WITH_CHECKPOINTS = {"checkpoints": tuple(CRITERIA)}


@dataclass(frozen=True)
class OnlineConfig(LearnerConfig):
    """The hyperparameters of the loops that collect data."""

    random_steps: int = setting(
        25_000,
        "time steps of uniformly random actions before training; with --start-from, of the other "
        "run's policy",
        group="Exploration",
        at_least=1,
        per_member=True,
    )
    random_phase: str = setting(
        "episode",
        "when the random actions end: after the episode that reaches `random_steps`, or exactly at "
        "that step; with checkpoints always after an episode",
        group="Exploration",
        choices=("episode", "steps"),
        needs={"checkpoints": ("none",)},
    )
    replay_capacity: int = setting(
        1_000_000, "transitions kept per seed", group="Replay", at_least=1
    )
    checkpoints: str = setting(
        "none",
        "how a policy is assessed; none: no checkpoints, one update after every time step",
        group="Policy checkpoints",
        choices=(*CRITERIA, "none"),
    )
    assessments_end_early: bool = setting(
        True,
        "end an assessment as soon as it is worse than the checkpoint",
        group="Policy checkpoints",
        needs=WITH_CHECKPOINTS,
    )
    early_assessment_episodes: int = setting(
        1,
        "episodes per assessment, early stage",
        group="Policy checkpoints",
        at_least=1,
        needs=WITH_CHECKPOINTS,
        per_member=True,
    )
    late_assessment_episodes: int = setting(
        20,
        "episodes per assessment, late stage",
        group="Policy checkpoints",
        at_least=1,
        needs=WITH_CHECKPOINTS,
        per_member=True,
    )
    # Differs from paper: counted in updates, as in the authors' program; the text says time steps.
    early_updates: int = setting(
        750_000,
        "updates after which the late stage starts",
        group="Policy checkpoints",
        at_least=0,
        needs=WITH_CHECKPOINTS,
        per_member=True,
    )
    late_stage: str = setting(
        "next_update",
        "when the late stage starts: with the update after the `early_updates` first ones, as in "
        "the authors' program, or right after them",
        group="Policy checkpoints",
        needs=WITH_CHECKPOINTS,
        choices=("next_update", "at_once"),
        before="at_once",
    )
    criterion_reset_weight: float = setting(
        0.9,
        "factor on the checkpoint's criterion when the late stage starts",
        group="Policy checkpoints",
        needs=WITH_CHECKPOINTS,
        at_least=0,
        per_member=True,
    )
    test_policy: str = setting(
        "checkpoint",
        "policy that evaluations use, if there are checkpoints",
        group="Policy checkpoints",
        needs=WITH_CHECKPOINTS,
        choices=("checkpoint", "current"),
    )

    @property
    def checkpoint_rule(self) -> CheckpointRule | None:
        """None: no checkpoints, one update after every time step."""
        if self.checkpoints == "none":
            return None
        return CheckpointRule(
            criterion=self.checkpoints,
            ends_early=self.assessments_end_early,
            early_episodes=self.early_assessment_episodes,
            late_episodes=self.late_assessment_episodes,
            early_updates=self.early_updates,
            starts_late_at_once=self.late_stage == "at_once",
            reset_weight=self.criterion_reset_weight,
        )


def check_varies(cls: type[LearnerConfig], name: str) -> None:
    """Raise unless a hyperparameter may differ between the members of a run."""
    allowed = [f.name for f in fields(cls) if f.metadata.get("per_member")]
    if name in allowed:
        return
    if name in cls.__dataclass_fields__:
        raise InputError(
            f"{name} cannot vary within a run: all members have the same shapes, periods and "
            f"choices; allowed: {', '.join(allowed)}"
        )
    raise unknown("hyperparameter", name, allowed, shown=len(allowed))


def stacked(config: Config, varied: Mapping[str, Sequence[float]], device: torch.device) -> Config:
    """The config as a learner of members with these values reads it: each field is a tensor [S]."""
    config = copy(config)
    for name, values in varied.items():
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        object.__setattr__(config, name, tensor)  # frozen, but nobody else has it yet
    return config


def without_effect(
    cls: type[LearnerConfig],
    settings: Mapping[str, Any],
    names: Iterable[str],
    *,
    offline: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return why some of the settings change nothing, by name: "with encoder=False".

    Only those among `names` that differ from the defaults count. `offline` are an algorithm's
    defaults on a dataset, if it learns from one.
    """
    defaults = build_config(cls, offline or {})
    config = build_config(cls, {**(offline or {}), **settings})
    reasons = {}
    for name in names:
        metadata = cls.__dataclass_fields__[name].metadata
        if getattr(config, name) == getattr(defaults, name):
            continue
        if offline is not None and metadata.get("group") in ONLINE_GROUPS:
            reasons[name] = f"with {Option('dataset')}"
            continue
        for other, wanted in (metadata.get("needs") or {}).items():
            value = getattr(config, other)
            values = value if isinstance(value, tuple) else (value,)
            if not set(values) & set(wanted):
                reasons[name] = f"with {other}={to_word(value)}"
    return reasons

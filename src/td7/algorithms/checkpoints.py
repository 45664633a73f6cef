"""Policy checkpoints: a pure rule over finished training episodes (paper, section 5.1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True)
class CheckpointRule:
    criterion: str  # of CRITERIA
    ends_early: bool  # whether an assessment ends once it is worse than the checkpoint
    early_episodes: int  # episodes per assessment in the early stage
    late_episodes: int  # and in the late stage
    early_updates: int  # updates of the early stage
    reset_weight: float  # factor on the checkpoint's criterion when the late stage starts
    starts_late_at_once: bool  # right after the early updates, not with the one that follows them


@dataclass(frozen=True)
class Assessment:
    """The assessment of the current policy so far, and the criterion of the checkpoint."""

    episodes: int = 0
    steps: int = 0
    min_return: float = math.inf
    sum_of_returns: float = 0.0
    best: float = -math.inf  # the checkpoint's criterion
    late: bool = False


CRITERIA: dict[str, Callable[[Assessment], float]] = {
    "minimum": lambda now: now.min_return,
    "mean": lambda now: now.sum_of_returns / now.episodes,
}


class Verdict(Enum):
    CONTINUE = "play another assessment episode with the same policy"
    TRAIN = "the policy is worse than the checkpoint: train"
    CHECKPOINT = "the policy is the new checkpoint: keep it, then train"


def assess(
    rule: CheckpointRule, before: Assessment, episode_return: float, length: int
) -> tuple[Assessment, Verdict, int]:
    """Return the assessment after an episode, the verdict and the number of updates now due."""
    now = replace(
        before,
        episodes=before.episodes + 1,
        steps=before.steps + length,
        min_return=min(before.min_return, episode_return),
        sum_of_returns=before.sum_of_returns + episode_return,
    )
    value = CRITERIA[rule.criterion](now)
    is_complete = now.episodes >= (rule.late_episodes if now.late else rule.early_episodes)
    # Differs from paper: strict, as in the authors' program; the text has both <= and >=.
    if value < now.best and (rule.ends_early or is_complete):
        return _reset(now), Verdict.TRAIN, now.steps
    if is_complete:
        return _reset(replace(now, best=value)), Verdict.CHECKPOINT, now.steps
    return now, Verdict.CONTINUE, 0


def after_updates(rule: CheckpointRule, now: Assessment, updates: int) -> Assessment:
    """Start the late stage with the update that follows `early_updates` others.

    If an episode's updates end exactly there, the next episode still belongs to the early stage.
    """
    first = rule.early_updates + (0 if rule.starts_late_at_once else 1)
    if now.late or updates < first:
        return now
    # Differs from paper: a negative best is multiplied as it is, which raises the bar.
    best = now.best * rule.reset_weight if math.isfinite(now.best) else now.best
    return replace(now, late=True, best=best)


def _reset(now: Assessment) -> Assessment:
    return replace(now, episodes=0, steps=0, min_return=math.inf, sum_of_returns=0.0)

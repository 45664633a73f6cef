"""The shared parts of TD3, TD3+OFE and TD7: hyperparameters, LAP's loss, value clipping.

Glossary:
    q           both critics' values [S, 2, B, 1]
    y           their value target [S, B, 1]
    error       q - y [S, 2, B, 1]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import OnlineConfig
from td7.algorithms.learner import Learner
from td7.configs import setting
from td7.networks.masked import assign
from td7.types import Exploration, TaskSpec

# The part of q that the actor maximises.
ACTOR_VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda q: q,
    "first": lambda q: q[:, :1],
}


@dataclass(frozen=True)
class TwinCriticConfig(OnlineConfig):
    """The hyperparameters of TD3 and of its extensions here. Defaults are TD3's."""

    exploration_noise: float = setting(
        0.1,
        "standard deviation of the noise on actions in [-1, 1]",
        group="Exploration",
        at_least=0,
        per_member=True,
        search="0.03..0.3:log",
    )
    target_every: int = setting(
        250, "updates between copies to the target networks", group="Common", at_least=1
    )
    hidden_dim: int = setting(
        256, "width of every hidden layer", group="Networks", at_least=1, structural=True
    )
    critic_activation: str = setting(
        "relu",
        "activation in the critics",
        group="Networks",
        choices=("elu", "relu"),
        structural=True,
    )
    target_noise: float = setting(
        0.2,
        "standard deviation of the target policy's noise, sigma",
        group="TD3",
        at_least=0,
        per_member=True,
        search="0.05..0.4",
    )
    target_noise_clip: float = setting(
        0.5,
        "bound on the target policy's noise, c",
        group="TD3",
        at_least=0,
        per_member=True,
    )
    actor_every: int = setting(2, "updates between actor updates", group="TD3", at_least=1)
    actor_value: str = setting(
        "first",
        "critics that the actor maximises: the mean of both, or the first",
        group="TD3",
        choices=tuple(ACTOR_VALUES),
    )
    replay: str = setting(
        "uniform",
        "lap: prioritised, with LAP's Huber loss; uniform: with the squared error",
        group="LAP",
        choices=("lap", "uniform"),
    )
    priority_exponent: float = setting(
        0.4,
        "exponent of the priorities, alpha in LAP",
        group="LAP",
        at_least=0,
        needs={"replay": ("lap",)},
        per_member=True,
        search="0..0.8",
    )
    min_priority: float = setting(
        1.0,
        "minimum |TD error| of a priority, and where the Huber loss becomes linear",
        group="LAP",
        above=0,
        needs={"replay": ("lap",)},
        per_member=True,
    )
    value_clipping: bool = setting(
        False, "clip target values to the range of value targets seen", group="Value clipping"
    )


class CriticLoss:
    """LAP's Huber loss with its priorities, or the squared error without priorities."""

    def __init__(self, config: TwinCriticConfig) -> None:
        self.is_prioritised = config.replay == "lap"
        self._config = config

    def __call__(self, error: Tensor) -> Tensor:
        """The loss [S]."""
        if self.is_prioritised:
            return losses.lap_huber(error, self._config.min_priority)
        return losses.squared_error(error)

    def priorities(self, error: Tensor) -> Tensor | None:
        """The new priorities [S, B]; None with uniform replay."""
        if not self.is_prioritised:
            return None
        c = self._config
        return losses.lap_priority(error, c.min_priority, c.priority_exponent)


class ValueClip:
    """The range of value targets seen, and the clipping bounds in use.

    Disabled, it still follows the range, but clips nothing.
    """

    def __init__(
        self, members: int, device: torch.device, dtype: torch.dtype, *, enabled: bool
    ) -> None:
        def per_member(value: float) -> Tensor:
            return torch.full((members,), value, device=device, dtype=dtype)

        self.enabled = enabled
        self.seen_min, self.seen_max = per_member(torch.inf), per_member(-torch.inf)
        self.min, self.max = per_member(0.0), per_member(0.0)

    def state(self) -> dict[str, Tensor]:
        return {
            "target_seen_min": self.seen_min,
            "target_seen_max": self.seen_max,
            "clip_min": self.min,
            "clip_max": self.max,
        }

    def clipped(self, value: Tensor) -> Tensor:
        """clip(V, Q_min, Q_max) of [S, B, 1]."""
        return losses.clipped_value(value, self.min, self.max) if self.enabled else value

    def follow(self, y: Tensor, active: Tensor | None) -> None:
        """Q_min <- min(Q_min, y), Q_max <- max(Q_max, y)."""
        # Differs from paper: followed at every update, in use only from the next target copy on.
        assign(self.seen_min, self.seen_min.minimum(y.flatten(1).amin(1)), active)
        assign(self.seen_max, self.seen_max.maximum(y.flatten(1).amax(1)), active)

    def refresh(self, active: Tensor | None) -> None:
        """Take the range seen so far as the bounds in use."""
        assign(self.min, self.seen_min, active)
        assign(self.max, self.seen_max, active)


def value_metrics(q: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The metrics of a critic step, [S] each."""
    return {
        "value": losses.per_member_mean(q),
        "value_target": losses.per_member_mean(y),
        "td_error": losses.per_member_mean((q - y.unsqueeze(1)).abs()),
    }


def critic_metrics(q: Tensor, y: Tensor, clip: ValueClip) -> dict[str, Tensor]:
    """The metrics of a critic step and the clipping bounds."""
    return {**value_metrics(q, y), "clip_min": clip.min, "clip_max": clip.max}


class TwinCriticLearner(Learner):
    """TD3, TD3+OFE and TD7 without their networks."""

    metrics: tuple[str, ...] = (
        "critic_loss",
        "actor_loss",
        "value",
        "policy_value",
        "value_target",
        "td_error",
        "clip_min",
        "clip_max",
    )

    def __init__(
        self,
        config: TwinCriticConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        c = config
        self.exploration = Exploration("added_noise", c.exploration_noise)
        self.actor_every = c.actor_every
        self.target_every = c.target_every
        self.noise_shapes = {"target_policy": (c.batch_size, task.action_dim)}
        self.actor_value = ACTOR_VALUES[c.actor_value]
        self.critic_loss = CriticLoss(c)
        self.is_prioritised = self.critic_loss.is_prioritised
        self.clip = ValueClip(len(seeds), device, dtype, enabled=c.value_clipping)

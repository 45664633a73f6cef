"""TQC: SAC with truncated mixtures of quantile critics (the paper's third baseline).

Glossary:
    q, z        all critics' quantiles [S, N, B, Q]; z_i is one of them
    y           the targets that the quantiles learn [S, B, targets]; y_j is one of them
"""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import new_default
from td7.algorithms.maximum_entropy import MaximumEntropyConfig, MaximumEntropyLearner
from td7.configs import setting
from td7.errors import InputError
from td7.types import Task


@dataclass(frozen=True)
class TQCConfig(MaximumEntropyConfig):
    """The paper's table "TQC Hyperparameters"."""

    random_steps: int = new_default(MaximumEntropyConfig, "random_steps", 256)
    random_phase: str = new_default(MaximumEntropyConfig, "random_phase", "steps", before="episode")
    critic_hidden_dim: int = setting(
        512, "width of the critics' hidden layers", group="Networks", at_least=1, structural=True
    )
    critics: int = setting(5, "critic networks", group="TQC", at_least=1, structural=True)
    quantiles: int = setting(25, "quantiles per critic", group="TQC", at_least=1, structural=True)
    dropped_quantiles: int = setting(
        -1,
        "largest quantiles dropped per critic; -1: the paper's number for its tasks, 2 for others",
        group="TQC",
        at_least=-1,
    )

    def for_task(self, task: Task) -> Self:
        if self.dropped_quantiles >= 0:
            return self
        return replace(self, dropped_quantiles=DROPPED.get(task.family, DROPPED_ELSEWHERE))


# Quantiles dropped per critic: the paper's table, which follows TQC's authors.
DROPPED = {"HalfCheetah": 0, "Hopper": 5, "Walker2d": 2, "Ant": 2, "Humanoid": 2}
DROPPED_ELSEWHERE = 2
HUBER_THRESHOLD = 1.0  # of TQC's authors


class TQC(MaximumEntropyLearner):
    config: TQCConfig
    correction = staticmethod(losses.tanh_correction_sigmoid)

    def critic_shape(self) -> tuple[tuple[int, ...], int]:
        """Five critics: (s, a) -> 512 -> 512 -> 512 -> 25 quantiles."""
        c, h = self.config, self.config.critic_hidden_dim
        if c.dropped_quantiles >= c.quantiles:
            raise InputError(
                f"dropped_quantiles={c.dropped_quantiles} must be below quantiles={c.quantiles}"
            )
        return (h, h, h, c.quantiles), c.critics

    def next_value(self, next_q: Tensor) -> Tensor:
        """All critics' quantiles without the largest."""
        return losses.truncated(next_q, self.config.critics * self.config.dropped_quantiles)

    def critic_loss(self, q: Tensor, y: Tensor) -> Tensor:
        """The quantile Huber loss of every pair z_i, y_j."""
        return losses.quantile_huber(q, y, HUBER_THRESHOLD)

    def td_error(self, q: Tensor, y: Tensor) -> Tensor:
        """The error of the mean over critics and quantiles."""
        return q.mean(dim=(1, 3)) - y.mean(dim=-1)

    def policy_value(self, q: Tensor) -> Tensor:
        """E[z(s, a)], the mean over critics and quantiles."""
        return q.mean(dim=(1, 3)).unsqueeze(-1)

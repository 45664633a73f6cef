"""TQC: SAC with truncated mixtures of quantile critics (the paper's third baseline).

Glossary:
    z, y        all critics' quantiles [S, N, B, Q], and the targets they learn [S, B, targets]
"""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.maximum_entropy import MaximumEntropyConfig, MaximumEntropyLearner
from td7.configs import setting
from td7.errors import InputError
from td7.types import Task


@dataclass(frozen=True)
class TQCConfig(MaximumEntropyConfig):
    """The paper's table "TQC Hyperparameters"."""

    random_steps: int = setting(
        256,
        "time steps of uniformly random actions before training",
        group="Exploration",
        at_least=1,
    )
    critic_hidden_dim: int = setting(
        512, "width of the critics' hidden layers", group="Networks", at_least=1
    )
    critics: int = setting(5, "critic networks", group="TQC", at_least=1)
    quantiles: int = setting(25, "of each critic", group="TQC", at_least=1)
    dropped_quantiles: int = setting(
        -1,
        "the largest left out of a target, a critic; -1: the paper's for its tasks, 2 for others",
        group="TQC",
        at_least=-1,
    )

    def for_task(self, task: Task) -> Self:
        if self.dropped_quantiles >= 0:
            return self
        return replace(self, dropped_quantiles=DROPPED.get(task.family, DROPPED_ELSEWHERE))


# Quantiles dropped a critic: the paper's table, from the suggestions of TQC's authors.
DROPPED = {"HalfCheetah": 0, "Hopper": 5, "Walker2d": 2, "Ant": 2, "Humanoid": 2}
DROPPED_ELSEWHERE = 2
HUBER_THRESHOLD = 1.0  # as TQC's authors have it


class TQC(MaximumEntropyLearner):
    config: TQCConfig
    correction = staticmethod(losses.tanh_correction_sigmoid)

    def critic_shape(self) -> tuple[tuple[int, ...], int]:
        """Five of: (s, a) -> 512 -> 512 -> 512 -> 25 quantiles."""
        c, h = self.config, self.config.critic_hidden_dim
        if c.dropped_quantiles >= c.quantiles:
            raise InputError(
                f"dropped_quantiles={c.dropped_quantiles} must be below quantiles={c.quantiles}"
            )
        return (h, h, h, c.quantiles), c.critics

    def bootstrapped(self, next_q: Tensor) -> Tensor:
        """The smallest of all critics' quantiles."""
        return losses.truncated(next_q, self.config.critics * self.config.dropped_quantiles)

    def critic_loss(self, q: Tensor, y: Tensor) -> Tensor:
        """Quantile Huber of every z_i and y_j."""
        return losses.quantile_huber(q, y, HUBER_THRESHOLD)

    def td_error(self, q: Tensor, y: Tensor) -> Tensor:
        """Of the mean over critics and quantiles."""
        return q.mean(dim=(1, 3)) - y.mean(dim=-1)

    def climbed(self, q: Tensor) -> Tensor:
        """E[z(s, a)] over critics and quantiles."""
        return q.mean(dim=(1, 3)).unsqueeze(-1)

"""SAC: soft actor-critic with a learned temperature (the paper's second baseline).

Glossary:
    q, y        both critics' values [S, 2, B, 1], and their value target [S, B, 1]
"""

from dataclasses import dataclass

from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.maximum_entropy import MaximumEntropyConfig, MaximumEntropyLearner
from td7.configs import setting


@dataclass(frozen=True)
class SACConfig(MaximumEntropyConfig):
    """The paper's table "SAC Hyperparameters"."""

    critic_hidden_dim: int = setting(
        256, "width of the critics' hidden layers", group="Networks", at_least=1, structural=True
    )


class SAC(MaximumEntropyLearner):
    config: SACConfig
    correction = staticmethod(losses.tanh_correction_epsilon)

    def critic_shape(self) -> tuple[tuple[int, ...], int]:
        """Two critics: (s, a) -> 256 -> 256 -> 1."""
        h = self.config.critic_hidden_dim
        return (h, h, 1), 2

    def next_value(self, next_q: Tensor) -> Tensor:
        """min Q'(s', a')."""
        return next_q.amin(dim=1)

    def critic_loss(self, q: Tensor, y: Tensor) -> Tensor:
        """(y - Q(s, a))^2 of both critics."""
        return losses.squared_error(q - y.unsqueeze(1))

    def td_error(self, q: Tensor, y: Tensor) -> Tensor:
        return q - y.unsqueeze(1)

    def policy_value(self, q: Tensor) -> Tensor:
        """min Q(s, a)."""
        return q.amin(dim=1)

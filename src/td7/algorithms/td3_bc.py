"""TD3+BC: TD3 whose actor also clones the data's actions, on normalised states (offline).

Glossary, besides TD3's:
    m, d        mean and standard deviation of the data's states, a dimension
    W, b        the actor's first layer

Sources of values, in full in docs/offline-sources.md: files of the authors' program.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.td3 import DelayedLearner, TD3Config
from td7.configs import setting
from td7.networks.stacked import flatten
from td7.types import Float32, RowLayout, TaskSpec

SMALLEST_SPREAD = 1e-3  # added to a state dimension's standard deviation: utils.py


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """The authors' program at the paper's command; TD3's parts can be added here, too.

    Rates, widths and delay are TD3's, as TD3_BC.py has them; target noise and its clip: main.py.
    """

    # main.py, `--alpha`
    cloning_alpha: float = setting(
        2.5, "weight of the value, over its mean size, beside cloning's 1", group="TD3+BC", above=0
    )


class TD3BC(DelayedLearner):
    """Networks learn in normalised states; `policies` reads states as they are."""

    config: TD3BCConfig

    def __init__(
        self,
        config: TD3BCConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self._mean = torch.zeros(task.state_dim, device=device, dtype=dtype)
        self._spread = torch.ones_like(self._mean)

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """(s - mean) / (std + 1e-3), and s' by the same numbers."""
        rows = rows.copy()
        parts = layout.split(rows)
        mean = parts.state.mean(axis=0, dtype=float)
        spread = parts.state.std(axis=0, dtype=float) + SMALLEST_SPREAD
        for states in (parts.state, parts.next_state):
            states[:] = (states - mean) / spread
        self._mean.copy_(torch.from_numpy(mean))
        self._spread.copy_(torch.from_numpy(spread))
        return rows

    def actor_loss(self, q: Tensor, action: Tensor, data_action: Tensor) -> Tensor:
        return losses.td3_bc_loss(q, action, data_action, self.config.cloning_alpha)

    def policies(self) -> Tensor:
        """The normalisation is one more linear map before the first layer: W (s - m) / d + b."""
        parameters = dict(self.actor.parameters)
        weight = parameters["a1.weight"].clone()
        used = weight[:, : len(self._mean)]
        used /= self._spread.unsqueeze(1)
        parameters["a1.weight"] = weight
        parameters["a1.bias"] = parameters["a1.bias"] - self._mean @ used
        return flatten(self.actor.layout, parameters)

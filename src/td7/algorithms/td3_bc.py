"""TD3+BC: TD3 on normalised states, whose actor also clones the data's actions (offline).

Glossary, in addition to TD3's:
    m, d        mean and standard deviation of the data's states, per dimension
    W, b        the actor's first layer

Sources of values, in full in docs/reproduction/offline-sources.md: files of the authors' program.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.td3 import TD3Config, TD3Learner
from td7.configs import setting
from td7.networks.stacked import flatten
from td7.types import Float32, RowLayout, TaskSpec

MIN_STD = 1e-3  # added to a state dimension's standard deviation: utils.py


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """The authors' program with the paper's command; TD3's options apply as well.

    TD3_BC.py has TD3's rates, widths and delay; main.py has its target noise and clip.
    """

    # main.py, `--alpha`
    cloning_alpha: float = setting(
        2.5,
        "weight of Q / mean |Q| relative to cloning, alpha",
        group="TD3+BC",
        above=0,
        per_member=True,
        search="0.5..10:log",
    )


class TD3BC(TD3Learner):
    """The networks read normalised states; the policies of `policies` read raw states."""

    config: TD3BCConfig
    normalises_observations = True

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
        self._std = torch.ones_like(self._mean)

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """(s - m) / (d + 1e-3); s' likewise, with the m and d of s."""
        rows = rows.copy()
        parts = layout.split(rows)
        mean = parts.state.mean(axis=0, dtype=float)
        std = parts.state.std(axis=0, dtype=float) + MIN_STD
        for states in (parts.state, parts.next_state):
            states[:] = (states - mean) / std
        self._mean.copy_(torch.from_numpy(mean))
        self._std.copy_(torch.from_numpy(std))
        return rows

    def actor_loss(self, q: Tensor, action: Tensor, data_action: Tensor) -> Tensor:
        return losses.td3_bc_loss(q, action, data_action, self.config.cloning_alpha)

    def policies(self) -> Tensor:
        """The first layer includes the normalisation: W (s - m) / d + b."""
        parameters = dict(self.actor.parameters)
        weight = parameters["a1.weight"].clone()
        used_rows = weight[:, : len(self._mean)]
        used_rows /= self._std.unsqueeze(1)
        parameters["a1.weight"] = weight
        parameters["a1.bias"] = parameters["a1.bias"] - self._mean @ used_rows
        return flatten(self.actor.layout, parameters)

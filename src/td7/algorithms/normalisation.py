"""Observations normalised by running statistics, in front of any learner.

Glossary:
    n, m, q     of a member's observations so far: number, mean, sum of squared deviations from it
    d           their standard deviation sqrt(q / n)
    layer       clip((s - m) / d), the first layer of the policy's network

n, m and q follow the rows that enter the replay, also in the random phase; offline they are the
dataset's. The layer takes over m and d with every update, and at no other time. A policy therefore
stays the same while it plays, and has the statistics that it was trained with.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from td7.algorithms.learner import Batch, Lanes, Learner, Turn, stage
from td7.networks.description import Layer, Layout, Network
from td7.networks.masked import assign
from td7.networks.stacked import Parameters, apply, flatten, unflatten
from td7.types import Float32, RowLayout

LAYER = "normalised_state"
ROWS_AT_ONCE = 100_000  # of a dataset, so that their float64 copy stays small
# An observation that deviates by less is constant: it is centred, but rounding is not scaled up.
CONSTANT = 1e-6  # relative to the mean
TINY = 1e-35  # smaller numbers have few digits in float32


@final
class NormalisedLearner(Learner):
    """A learner that reads normalised observations; its policies read the task's own."""

    policy_every = 1  # every update takes over new statistics

    def __init__(self, learner: Learner, state_dim: int) -> None:
        self.learner = learner
        self.metrics = learner.metrics
        self.recorded = learner.recorded
        self.exploration = learner.exploration
        self.noise_shapes = learner.noise_shapes
        self.actor_every = learner.actor_every
        self.target_every = learner.target_every
        self.is_prioritised = learner.is_prioritised
        self.begins_anew = learner.begins_anew
        layer = Layer(LAYER, ("state",), state_dim, norm="observations")
        self.network = Network({"state": state_dim}, (layer,))
        self.policy_network = self.network.then(_reading(LAYER, learner.policy_network))
        self.layout = Layout.of(self.network)
        policies = learner.policies()
        self.count = policies.new_zeros(len(policies), 1, dtype=torch.float64)
        self.mean = policies.new_zeros(len(policies), state_dim, dtype=torch.float64)
        self.squares = torch.zeros_like(self.mean)
        self.layer = self._flat(self.mean, torch.ones_like(self.mean)).to(policies.dtype)

    @property
    def lanes(self) -> Lanes:
        return self.learner.lanes

    @lanes.setter
    def lanes(self, lanes: Lanes) -> None:
        self.learner.lanes = lanes

    def wrap_stages(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        super().wrap_stages(wrapper)
        self.learner.wrap_stages(wrapper)

    def state(self) -> dict[str, Tensor]:
        return {
            **self.learner.state(),
            "observations.count": self.count,
            "observations.mean": self.mean,
            "observations.squares": self.squares,
            "observations.layer": self.layer,
        }

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """Take the statistics of a dataset's states."""
        states = layout.split(rows).state
        for begin in range(0, len(states), ROWS_AT_ONCE):
            part = torch.from_numpy(states[begin : begin + ROWS_AT_ONCE])
            self.observe(part.unsqueeze(0).to(self.mean.device), None)
        return self.learner.prepare_rows(rows, layout)

    def observe(self, states: Tensor, active: Tensor | None) -> None:
        """Chan's formulas: n, m and q of two samples, the states [S or 1, n, width] and before."""
        new_mean = states.double().mean(dim=1)
        new_squares = (states - new_mean.unsqueeze(1)).square().sum(dim=1)
        new_count, count = states.shape[1], self.count + states.shape[1]
        difference = new_mean - self.mean
        squares = self.squares + new_squares + difference**2 * (self.count * new_count / count)
        assign(self.mean, self.mean + difference * (new_count / count), active)
        assign(self.squares, squares, active)
        assign(self.count, count, active)

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        return self.learner.update(self._normalised_batch(batch, turn.active), noise, turn)

    @stage
    def _normalised_batch(self, batch: Batch, active: Tensor | None) -> Batch:
        """The batch, normalised by the current statistics, which the layer takes over."""
        std = (self.squares / self.count).sqrt()
        is_constant = std <= (CONSTANT * self.mean.abs()).clamp(min=TINY)
        assign(self.layer, self._flat(self.mean, std.where(~is_constant, 1.0)), active)
        state, next_state = map(self._normalised, (batch.state, batch.next_state))
        return batch._replace(state=state, next_state=next_state)

    def _flat(self, mean: Tensor, std: Tensor) -> Tensor:
        return flatten(self.layout, {f"{LAYER}.mean": mean, f"{LAYER}.std": std})

    def _normalised(self, state: Tensor) -> Tensor:
        layer: Parameters = unflatten(self.layout, self.layer)
        return apply(self.network, layer, state=state)

    def copy_targets(self, active: Tensor | None) -> None:
        self.learner.copy_targets(active)

    def policies(self) -> Tensor:
        """The layer, followed by the learner's policies."""
        return torch.cat([self.layer, self.learner.policies()], dim=1)

    def explore(self, state: Tensor, noise: Tensor) -> Tensor:
        return self.learner.explore(self._normalised(state), noise)


def _reading(name: str, network: Network) -> Network:
    """The network with another name for its input "state"."""

    def renamed(read: str) -> str:
        return name if read == "state" else read

    layers = [replace(layer, inputs=tuple(map(renamed, layer.inputs))) for layer in network.layers]
    inputs = {renamed(read): width for read, width in network.inputs.items()}
    return Network(inputs, tuple(layers), network.heads)

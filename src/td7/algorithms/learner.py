"""The contract of an algorithm's learner, whose `update` is the paper's algorithm box."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from td7.algorithms.config import LearnerConfig
from td7.networks.description import Layout, Network
from td7.networks.masked import assign
from td7.networks.stacked import EXPLORERS, unflatten, values
from td7.types import Exploration, Float32, RowLayout, TaskSpec, Transitions

Batch = Transitions[Tensor]  # of every member, [S, B, width]; actions in [-1, 1]


class Turn(NamedTuple):
    """The members that an update trains: masks [S], None for all members."""

    active: Tensor | None = None
    trains_actors: bool = True  # whether the update trains any actor
    actor_mask: Tensor | None = None  # its members, if not all active ones

    @property
    def actors(self) -> Tensor | None:
        """The members whose actors are trained, if `trains_actors`."""
        return self.active if self.actor_mask is None else self.actor_mask


Method = TypeVar("Method", bound=Callable[..., Any])


def stage(method: Method) -> Method:
    """Mark a part of an update that is compiled as one function."""
    method.is_stage = True  # type: ignore[attr-defined]  # `wrap_stages` reads it
    return method


class Lanes:
    """The parts of an update that may run in parallel. In this class they run one after another.

    Work in `beside(name)` starts after everything that the surrounding lane has started. Nothing
    waits for it before `join(name)` or the end of a unit of updates. Work of one lane runs in
    order.
    """

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        """Start work in a lane; `reads` are tensors made elsewhere that it reads."""
        del name, reads
        return nullcontext()

    def kept(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor, for a lane to read while others write to the original."""
        return tensor

    def join(self, *names: str) -> None:
        """Wait for the lanes, or for all lanes."""


class Learner(ABC):
    """S members of one algorithm. It neither samples, logs, prints, saves nor evaluates."""

    lanes: Lanes

    metrics: tuple[str, ...]  # the names that updates record
    policy_network: Network  # reads "state"; its last value is the action
    exploration: Exploration  # how the policy acts in training
    noise_shapes: Mapping[str, tuple[int, ...]]  # standard normals per update and member
    actor_every: int  # updates between actor updates
    policy_every: int = 1  # updates between changes of `policies()`; `copy_targets` may add some
    target_every: int = 250  # updates between calls of `copy_targets`
    is_prioritised: bool = True  # whether updates return priorities, by which rows are sampled
    # Names of `state()` that a run does not take over from the run that it starts from.
    begins_anew: tuple[str, ...] = ()
    normalises_observations: ClassVar[bool] = False  # by itself, as in the algorithm's paper

    @abstractmethod
    def __init__(
        self,
        config: LearnerConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        del config, task
        self.lanes = Lanes()
        self.recorded = {
            name: torch.zeros(len(seeds), device=device, dtype=dtype) for name in self.metrics
        }

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """Return a dataset's rows [N, width] as the algorithm reads them; called once, first."""
        del layout
        return rows

    def observe(self, states: Tensor, active: Tensor | None) -> None:
        """Receive the states [S or 1, n, width] of the active members' new rows, before updates."""
        del states, active

    def record(self, active: Tensor | None, **metrics: Tensor) -> None:
        """Keep the latest metrics [S] of the active members, on the device."""
        for name, value in metrics.items():
            assign(self.recorded[name], value, active)

    def explorations(self) -> list[Exploration]:
        """How each member acts in training; the learner's own has a tensor where they differ."""
        scale, members = self.exploration.scale, len(next(iter(self.recorded.values())))
        scales = scale.tolist() if isinstance(scale, Tensor) else [scale] * members
        return [replace(self.exploration, scale=one) for one in scales]

    def wrap_stages(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace every stage by `wrapper(stage)`."""
        for name in dir(type(self)):
            if getattr(getattr(type(self), name), "is_stage", False):
                setattr(self, name, wrapper(getattr(self, name)))

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor [S, ...] that lives on between updates, by name."""

    @abstractmethod
    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        """Update the members whose turn it is, as a function of state, batch and noise.

        Return the new priorities [S, B] of the batch's rows, or None without prioritisation.
        """

    @abstractmethod
    def copy_targets(self, active: Tensor | None) -> None:
        """Copy networks to target networks; called after every `target_every` updates."""

    @abstractmethod
    def policies(self) -> Tensor:
        """[S, P]: the flat parameters of `policy_network` that currently act."""

    def explore(self, state: Tensor, noise: Tensor) -> Tensor:
        """The exploring actions [S, n, A] in states [S, n, width], from standard normals."""
        weights = unflatten(Layout.of(self.policy_network), self.policies())
        outputs = values(self.policy_network, weights, state=state)
        return EXPLORERS[self.exploration.kind](outputs, noise, self.exploration.scale)

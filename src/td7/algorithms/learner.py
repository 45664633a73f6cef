"""What an algorithm is: a config, and a learner whose update is the paper's box."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from td7.algorithms.config import LearnerConfig
from td7.networks.description import Layout, Network
from td7.networks.masked import assign
from td7.networks.stacked import EXPLORERS, unflatten, values
from td7.types import Exploration, Float32, RowLayout, TaskSpec, Transitions

Batch = Transitions[Tensor]  # of every member: [S, B, width]


class Turn(NamedTuple):
    """Whose update it is: masks [S] of members, None for all of them."""

    active: Tensor | None = None
    trains_actors: bool = True  # whether it is one of the updates that do
    whose: Tensor | None = None  # actors, if not of all active members

    @property
    def actors(self) -> Tensor | None:
        """Whose actors are trained, if any are."""
        return self.active if self.whose is None else self.whose


Method = TypeVar("Method", bound=Callable[..., Any])


def stage(method: Method) -> Method:
    """Marks a part of an update that is compiled as one."""
    method.is_stage = True  # type: ignore[attr-defined]  # `wrap_stages` asks for it
    return method


class Lanes:
    """Which parts of an update may run beside each other. Here: none do, all run in turn.

    `beside(name)` begins work that nothing waits for until `join(name)`, or the end of a unit of
    updates. Work of one lane runs in order; it sees all that was begun before it outside of lanes.
    """

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        """`reads`: tensors made elsewhere that the work in the lane needs."""
        del name, reads
        return nullcontext()

    def kept(self, tensor: Tensor) -> Tensor:
        """The tensor as it is now, for a lane to read while others go on to write to it."""
        return tensor

    def join(self, *names: str) -> None:
        pass


class Learner(ABC):
    """S members of one algorithm. It neither samples, logs, prints, saves nor evaluates."""

    lanes: Lanes

    metrics: ClassVar[tuple[str, ...]]  # the names that updates record
    policy_network: Network  # reads "state", its last value is the action
    exploration: Exploration  # how that acts in training
    noise_shapes: Mapping[str, tuple[int, ...]]  # standard normals an update takes, a member
    actor_every: int  # updates; every such update trains the actor
    policy_every: int = 1  # updates; every such update changes what acts, as copying targets may
    target_every: int = 250  # updates; after every such update `copy_targets` is due
    is_prioritised: bool = True  # whether updates give new priorities, and sampling is by them

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
        """A dataset's rows [N, width] as the algorithm wants them; asked for once, before all."""
        del layout
        return rows

    def record(self, active: Tensor | None, **metrics: Tensor) -> None:
        """Keeps the latest metrics [S] of the active members; nothing is read from the device."""
        for name, value in metrics.items():
            assign(self.recorded[name], value, active)

    def wrap_stages(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces every stage by what `wrapper` makes of it."""
        for name in dir(type(self)):
            if getattr(getattr(type(self), name), "is_stage", False):
                setattr(self, name, wrapper(getattr(self, name)))

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor [S, ...] that lives on between updates, by name."""

    @abstractmethod
    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        """One update of those whose turn it is, a function of state, batch, noise.

        Gives back the new priorities [S, B] of the batch's rows, if it is prioritised.
        """

    @abstractmethod
    def copy_targets(self, active: Tensor | None) -> None:
        """What is due after every `target_every` updates."""

    @abstractmethod
    def policies(self) -> Tensor:
        """[S, P]: the flat parameters of `policy_network` that act now."""

    def explore(self, state: Tensor, noise: Tensor) -> Tensor:
        """The actions [S, n, A] of training in states [S, n, width], from standard normals."""
        weights = unflatten(Layout.of(self.policy_network), self.policies())
        known = values(self.policy_network, weights, state=state)
        return EXPLORERS[self.exploration.kind](known, noise, self.exploration.scale)

"""What an algorithm is: a config, and a learner whose update is the paper's box."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from td7.architectures import Network
from td7.checkpoints import CheckpointRule
from td7.configs import check, hyper
from td7.types import TaskSpec


class Batch(NamedTuple):
    """Transitions of every member: [S, B, width]."""

    state: Tensor
    action: Tensor  # in [-1, 1]
    next_state: Tensor
    reward: Tensor  # [S, B, 1]
    not_terminated: Tensor  # [S, B, 1]; 0 only where the task really ended


class Update(NamedTuple):
    """What one update gives back; tensors all, nothing is read from the device."""

    priorities: Tensor  # [S, B], of the batch's rows
    metrics: dict[str, Tensor]  # [S] each


@dataclass(frozen=True)
class OnlineConfig(ABC):
    """What the training loop itself reads of every algorithm's config."""

    random_steps: int = hyper(
        25_000,
        "time steps of uniformly random actions before training",
        group="Exploration",
        at_least=1,
    )
    exploration_noise: float = hyper(
        0.1,
        "standard deviation of the noise on actions in [-1, 1]",
        group="Exploration",
        at_least=0,
    )
    discount: float = hyper(0.99, "discount factor gamma", group="Common", at_least=0, at_most=1)
    replay_capacity: int = hyper(1_000_000, "transitions kept, a seed", group="Common", at_least=1)
    batch_size: int = hyper(256, "transitions an update", group="Common", at_least=1)
    target_every: int = hyper(
        250, "updates between copies to the target networks", group="Common", at_least=1
    )
    learning_rate: float = hyper(3e-4, "Adam's, for every network", group="Optimiser", above=0)

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def checkpoint_rule(self) -> CheckpointRule: ...


class Learner(ABC):
    """S members of one algorithm. It neither samples, logs, prints, saves nor evaluates."""

    metrics: ClassVar[tuple[str, ...]]  # the names `update` gives back
    policy_network: Network  # reads "state", its last value is the action
    noise_shapes: Mapping[str, tuple[int, ...]]  # standard normals an update takes, a member
    actor_every: int  # updates; every such update trains the actor
    target_every: int  # updates; after every such update `copy_targets` is due

    @abstractmethod
    def __init__(
        self,
        config: OnlineConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None: ...

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor [S, ...] that lives on between updates, by name."""

    @abstractmethod
    def update(
        self,
        batch: Batch,
        noise: Mapping[str, Tensor],
        active: Tensor | None,
        *,
        train_actor: bool,
    ) -> Update:
        """One update of the active members [S] (None: all), a function of state, batch, noise."""

    @abstractmethod
    def copy_targets(self, active: Tensor | None) -> None:
        """What is due after every `target_every` updates."""

    @abstractmethod
    def policies(self) -> Tensor:
        """[S, P]: the flat parameters of `policy_network` that act now."""

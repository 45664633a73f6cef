"""What SAC and TQC share: a tanh-Gaussian policy and a learned temperature."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from td7 import losses
from td7.actors import LOG_STD_BOUNDS
from td7.algorithms.base import OnlineConfig
from td7.architectures import Layer, Layout, Network, Parameter
from td7.configs import hyper
from td7.networks import values
from td7.optimisers import Trained
from td7.types import Exploration

EXPLORATION = Exploration("squashed_gaussian")


@dataclass(frozen=True)
class MaximumEntropyConfig(OnlineConfig):
    """Hyperparameters that SAC and TQC share."""

    actor_hidden_dim: int = hyper(
        256, "width of the actor's hidden layers", group="Networks", at_least=1
    )
    target_rate: float = hyper(
        0.005, "Polyak rate of the target critics, tau", group="Common", above=0, at_most=1
    )
    target_entropy_per_dimension: float = hyper(
        -1.0, "the policy's entropy aimed at, an action dimension", group="SAC"
    )


def policy_network(state_dim: int, action_dim: int, hidden_dim: int) -> Network:
    """s -> 256 -> 256 -> mean and log std, ReLU; its last value is tanh(mean), the test action."""
    h = hidden_dim
    return Network(
        {"state": state_dim},
        (
            Layer("a1", ("state",), h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("log_std", ("a2",), action_dim),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    )


def sampled(
    network: Network,
    actor: Mapping[str, Tensor],
    state: Tensor,
    noise: Tensor,
    correction: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """a = tanh(u), u = mean + std * noise, and log pi(a | s) [S, B, 1]."""
    known = values(network, actor, state=state)
    mean, log_std = known["action.linear"], known["log_std"].clamp(*LOG_STD_BOUNDS)
    u = mean + log_std.exp() * noise
    log_prob = losses.gaussian_log_prob(mean, log_std, noise) - correction(u)
    return torch.tanh(u), log_prob.sum(dim=-1, keepdim=True)


def temperature(
    members: int, learning_rate: float, device: torch.device, dtype: torch.dtype
) -> Trained:
    """log alpha of every member, 0 at first, and its optimiser."""
    layout = Layout((Parameter("log_alpha", (1,), 1, 0, 0.0),), heads=1)
    flat = torch.zeros(members, layout.size, device=device, dtype=dtype)
    return Trained(layout, flat, learning_rate)

"""What SAC and TQC share: a tanh-Gaussian policy, a learned temperature and, if asked for, SALE."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7 import losses
from td7.actors import LOG_STD_BOUNDS
from td7.algorithms.base import Batch, OnlineConfig
from td7.architectures import Layer, Layout, Network, Parameter
from td7.configs import hyper
from td7.networks import Parameters, unflatten, values
from td7.optimisers import Results, Trained, trained
from td7.representations import Sale
from td7.targets import assign
from td7.types import Exploration, TaskSpec

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
    sale: bool = hyper(False, "critics and actor read SALE's embeddings, as TD7's do", group="SALE")
    embedding_dim: int = hyper(256, "width of zs and zsa", group="SALE", at_least=1)
    target_every: int = hyper(
        250, "updates between copies to SALE's fixed encoders", group="SALE", at_least=1
    )


def policy_network(state_dim: int, action_dim: int, config: MaximumEntropyConfig) -> Network:
    """s -> 256 -> 256 -> mean and log std, ReLU; its last value is tanh(mean), the test action.

    With SALE it reads zs and phi = AvgL1Norm(Linear(s)) in place of s.
    """
    c, h = config, config.actor_hidden_dim
    first = (Layer("phi", ("state",), h, norm="avg_l1"),) if c.sale else ()
    return Network(
        {"state": state_dim, "zs": c.embedding_dim},
        (
            *first,
            Layer("a1", ("zs", "phi") if c.sale else ("state",), h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("log_std", ("a2",), action_dim),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    ).without_unread()


def critic_network(
    state_dim: int, action_dim: int, config: MaximumEntropyConfig, hidden: Sequence[int], heads: int
) -> Network:
    """(s, a) -> hidden layers -> values, ReLU; with SALE [zsa, zs, phi] in place of (s, a)."""
    z, raw = config.embedding_dim, ("state", "action")
    first = (Layer("phi", raw, hidden[0], norm="avg_l1"),) if config.sale else ()
    layers: list[Layer] = []
    reads: tuple[str, ...] = ("zsa", "zs", "phi") if config.sale else raw
    *widths, last = hidden
    for i, width in enumerate(widths, start=1):
        layers.append(Layer(f"q{i}", reads, width, activation="relu"))
        reads = (f"q{i}",)
    inputs = {"state": state_dim, "action": action_dim, "zsa": z, "zs": z}
    all_layers = (*first, *layers, Layer("value", reads, last))
    return Network(inputs, all_layers, heads).without_unread()


class Embeddings:
    """SALE's encoder with its fixed copies, or nothing: then networks read (s, a) as it is."""

    def __init__(
        self,
        config: MaximumEntropyConfig,
        task: TaskSpec,
        start: tuple[Sequence[int], float, torch.device, torch.dtype],
    ) -> None:
        self.is_on = config.sale
        if self.is_on:
            z, h = config.embedding_dim, config.actor_hidden_dim
            self.sale = Sale.of(task.state_dim, task.action_dim, z, h)
            self.encoder = trained(self.sale.layout, 0, *start)
            self.fixed = self.encoder.flat.clone()
            self.target_fixed = self.encoder.flat.clone()

    def state(self) -> dict[str, Tensor]:
        if not self.is_on:
            return {}
        return {
            **{f"encoder.{name}": tensor for name, tensor in self.encoder.state().items()},
            "fixed_encoder.parameters": self.fixed,
            "target_fixed_encoder.parameters": self.target_fixed,
        }

    def train(self, batch: Batch, active: Tensor | None) -> Tensor:
        """(g(f(s), a) - |f(s')|x)^2; gives back the loss [S]."""
        next_zs = self.sale.zs(self.encoder.parameters, batch.next_state)

        def loss(encoder: Parameters) -> Results:
            zsa = self.sale.zsa(encoder, self.sale.zs(encoder, batch.state), batch.action)
            return (losses.encoder_loss(zsa, next_zs),)

        (encoder_loss,) = self.encoder.descend(loss, active)
        found: Tensor = encoder_loss
        return found

    def of_state(self, state: Tensor, *, target: bool = False) -> dict[str, Tensor]:
        """What the actor reads: s and, with SALE, z_t^s (of the target networks z_{t-1}^s)."""
        if not self.is_on:
            return {"state": state}
        return {"state": state, "zs": self.sale.zs(self._encoder(target=target), state)}

    def with_action(
        self, of_state: Mapping[str, Tensor], action: Tensor, *, target: bool = False
    ) -> dict[str, Tensor]:
        """What the critics read: that, a and, with SALE, z^sa."""
        x = {**of_state, "action": action}
        if self.is_on:
            x["zsa"] = self.sale.zsa(self._encoder(target=target), x["zs"], action)
        return x

    def _encoder(self, *, target: bool) -> Parameters:
        return unflatten(self.sale.layout, self.target_fixed if target else self.fixed)

    def copy(self, active: Tensor | None) -> None:
        """target fixed <- fixed <- encoder."""
        if self.is_on:
            assign(self.target_fixed, self.fixed, active)
            assign(self.fixed, self.encoder.flat, active)

    def policy(self, actor: Network) -> Network:
        return self.sale.f.then(actor) if self.is_on else actor

    def policies(self, actor: Tensor) -> Tensor:
        """Flat parameters of `policy`."""
        if not self.is_on:
            return actor
        return torch.cat([self.fixed[:, : Layout.of(self.sale.f).size], actor], dim=1)


def sampled(
    network: Network,
    actor: Mapping[str, Tensor],
    reads: Mapping[str, Tensor],
    noise: Tensor,
    correction: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """a = tanh(u), u = mean + std * noise, and log pi(a | s) [S, B, 1]."""
    known = values(network, actor, **reads)
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

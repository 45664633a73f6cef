"""The shared part of SAC and TQC: a tanh-Gaussian policy, a learned temperature, optional SALE.

Glossary:
    pi, u       the policy, and its action before tanh: a = tanh(u), u = mean + std * noise
    alpha       the temperature, the weight of log pi
    q, y        N critics' Q values each [S, N, B, Q], and the targets they learn [S, B, targets]
    x           the critics' inputs: (s, a); with SALE [zsa, zs, s, a]
    zs, zsa     SALE's embeddings f(s) and g(zs, a), as in td7.py
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import OnlineConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.representations import Sale
from td7.configs import setting
from td7.networks.description import LOG_STD_BOUNDS, Layer, Layout, Network, Parameter
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import ParameterGroup, parameter_group, states
from td7.networks.scalars import Scalar
from td7.networks.stacked import Parameters, apply, unflatten, values
from td7.types import Exploration, TaskSpec

EXPLORATION = Exploration("squashed_gaussian")
Features = dict[str, Tensor]  # name: [S, B, width]


@dataclass(frozen=True)
class MaximumEntropyConfig(OnlineConfig):
    """The hyperparameters that SAC and TQC share."""

    actor_hidden_dim: int = setting(
        256, "width of the actor's hidden layers", group="Networks", at_least=1, structural=True
    )
    target_rate: float = setting(
        0.005,
        "Polyak rate of the target critics, tau",
        group="Common",
        above=0,
        at_most=1,
        per_member=True,
        search="1e-3..0.02:log",
    )
    target_entropy_per_dimension: float = setting(
        -1.0,
        "target entropy of the policy per action dimension",
        group="SAC",
        per_member=True,
        search="-2..-0.25",
    )
    sale: bool = setting(
        False, "critics and actor read SALE's embeddings, as in TD7", group="SALE", structural=True
    )
    embedding_dim: int = setting(
        256,
        "width of the embeddings zs and zsa",
        group="SALE",
        at_least=1,
        structural=True,
        needs={"sale": (True,)},
    )
    target_every: int = setting(
        250,
        "updates between copies to SALE's fixed encoders",
        group="SALE",
        at_least=1,
        needs={"sale": (True,)},
    )


def policy_network(state_dim: int, action_dim: int, config: MaximumEntropyConfig) -> Network:
    """s -> 256 -> 256 -> mean and log std, ReLU; its last value is tanh(mean), the test action.

    With SALE it reads zs and phi = AvgL1Norm(Linear(s)) instead of s.
    """
    c, h = config, config.actor_hidden_dim
    phi = (Layer("phi", ("state",), h, norm="avg_l1"),) if c.sale else ()
    return Network(
        {"state": state_dim, "zs": c.embedding_dim},
        (
            *phi,
            Layer("a1", ("zs", "phi") if c.sale else ("state",), h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("log_std", ("a2",), action_dim),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    ).without_unread()


def critic_network(
    state_dim: int, action_dim: int, config: MaximumEntropyConfig, hidden: Sequence[int], heads: int
) -> Network:
    """(s, a) -> hidden layers -> values, ReLU; with SALE it reads [zsa, zs, phi] instead."""
    z, raw = config.embedding_dim, ("state", "action")
    phi = (Layer("phi", raw, hidden[0], norm="avg_l1"),) if config.sale else ()
    layers: list[Layer] = []
    reads: tuple[str, ...] = ("zsa", "zs", "phi") if config.sale else raw
    *widths, last = hidden
    for i, width in enumerate(widths, start=1):
        layers.append(Layer(f"q{i}", reads, width, activation="relu"))
        reads = (f"q{i}",)
    inputs = {"state": state_dim, "action": action_dim, "zsa": z, "zs": z}
    all_layers = (*phi, *layers, Layer("value", reads, last))
    return Network(inputs, all_layers, heads).without_unread()


class Embeddings:
    """SALE's encoder and its fixed copies; disabled, it passes (s, a) through unchanged."""

    def __init__(
        self,
        config: MaximumEntropyConfig,
        task: TaskSpec,
        start: tuple[Sequence[int], Scalar, torch.device, torch.dtype],
    ) -> None:
        self.enabled = config.sale
        if self.enabled:
            z, h = config.embedding_dim, config.actor_hidden_dim
            self.sale = Sale.of(task.state_dim, task.action_dim, z, h)
            self.encoder = parameter_group(self.sale.layout, 0, *start)
            self.fixed = self.encoder.flat.clone()
            self.target_fixed = self.encoder.flat.clone()

    def state(self) -> dict[str, Tensor]:
        if not self.enabled:
            return {}
        return {
            **{f"encoder.{name}": tensor for name, tensor in self.encoder.state().items()},
            "fixed_encoder.parameters": self.fixed,
            "target_fixed_encoder.parameters": self.target_fixed,
        }

    def train(self, batch: Batch, active: Tensor | None) -> Tensor:
        """(g(f(s), a) - |f(s')|x)^2; returns the loss [S]."""
        next_zs = self.sale.zs(self.encoder.parameters, batch.next_state)

        def loss(encoder: Parameters) -> tuple[Tensor, None]:
            zsa = self.sale.zsa(encoder, self.sale.zs(encoder, batch.state), batch.action)
            return losses.encoder_loss(zsa, next_zs), None

        encoder_loss, _ = self.encoder.descend(loss, active)
        return encoder_loss

    def of_state(self, state: Tensor, *, target: bool = False) -> Features:
        """s and, with SALE, z_t^s; the target critics read z_{t-1}^s."""
        if not self.enabled:
            return {"state": state}
        return {"state": state, "zs": self.sale.zs(self._encoder(target=target), state)}

    def with_action(self, of_state: Features, action: Tensor, *, target: bool = False) -> Features:
        """x: the features of the state, a and, with SALE, z^sa."""
        x = {**of_state, "action": action}
        if self.enabled:
            x["zsa"] = self.sale.zsa(self._encoder(target=target), x["zs"], action)
        return x

    def _encoder(self, *, target: bool) -> Parameters:
        return unflatten(self.sale.layout, self.target_fixed if target else self.fixed)

    def copy(self, active: Tensor | None) -> None:
        """target fixed <- fixed <- encoder."""
        if self.enabled:
            assign(self.target_fixed, self.fixed, active)
            assign(self.fixed, self.encoder.flat, active)

    def policy(self, actor: Network) -> Network:
        """The actor's network; with SALE, f in front of it."""
        return self.sale.f.then(actor) if self.enabled else actor

    def policies(self, actor: Tensor) -> Tensor:
        """The flat parameters of `policy`."""
        if not self.enabled:
            return actor
        return torch.cat([self.fixed[:, : Layout.of(self.sale.f).size], actor], dim=1)


def sample_action(
    network: Network,
    actor: Mapping[str, Tensor],
    reads: Mapping[str, Tensor],
    noise: Tensor,
    correction: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """An action a ~ pi(s) and log pi(a | s) [S, B, 1]."""
    outputs = values(network, actor, **reads)
    mean, log_std = outputs["action.linear"], outputs["log_std"].clamp(*LOG_STD_BOUNDS)
    return sample_squashed(mean, log_std, noise, correction)


def sample_squashed(
    mean: Tensor, log_std: Tensor, noise: Tensor, correction: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """tanh(u) [..., A], u = mean + std * noise, and the logarithm of its density [..., 1]."""
    u = mean + log_std.exp() * noise
    log_prob = losses.gaussian_log_prob(log_std, noise) - correction(u)
    return torch.tanh(u), log_prob.sum(dim=-1, keepdim=True)


def temperature(
    members: int, learning_rate: Scalar, device: torch.device, dtype: torch.dtype
) -> ParameterGroup:
    """log alpha of every member, initially 0, with its optimiser."""
    layout = Layout((Parameter("log_alpha", (1,), 1, 0, 0.0),), heads=1)
    flat = torch.zeros(members, layout.size, device=device, dtype=dtype)
    return ParameterGroup(layout, flat, learning_rate)


def descend_temperature(
    temperature: ParameterGroup, log_prob: Tensor, target_entropy: Scalar, active: Tensor | None
) -> None:
    """-log alpha E[log pi + target entropy]."""

    def loss(parameters: Parameters) -> tuple[Tensor, None]:
        log_alpha = parameters["log_alpha"].squeeze(-1)
        return losses.temperature_loss(log_alpha, log_prob, target_entropy), None

    temperature.descend(loss, active)


class PolicyAux(NamedTuple):
    q: Tensor  # [S, B, 1], of the policy's actions
    log_prob: Tensor  # [S, B, 1]


class MaximumEntropyLearner(Learner):
    """SAC and TQC without their critics."""

    config: MaximumEntropyConfig
    correction: Callable[[Tensor], Tensor]  # u -> the change of log pi under tanh

    metrics = (
        "critic_loss",
        "actor_loss",
        "value",
        "policy_value",
        "value_target",
        "td_error",
        "entropy",
        "temperature",
        "encoder_loss",
    )

    @abstractmethod
    def critic_shape(self) -> tuple[tuple[int, ...], int]:
        """The widths of a critic's layers, and the number of critics."""

    @abstractmethod
    def next_value(self, next_q: Tensor) -> Tensor:
        """V(s') without the entropy, from the target critics: [S, B, targets]."""

    @abstractmethod
    def critic_loss(self, q: Tensor, y: Tensor) -> Tensor:
        """The loss [S]."""

    @abstractmethod
    def td_error(self, q: Tensor, y: Tensor) -> Tensor:
        """The distance of the values from their targets, [S, ...]."""

    @abstractmethod
    def policy_value(self, q: Tensor) -> Tensor:
        """The value that the actor maximises, [S, B, 1]."""

    def __init__(
        self,
        config: MaximumEntropyConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config.for_task(task.task)
        self.exploration = EXPLORATION
        self.actor_every = 1
        self.is_prioritised = False
        shape = (c.batch_size, task.action_dim)
        self.noise_shapes = {"next_policy": shape, "policy": shape}
        dims = (task.state_dim, task.action_dim)
        self.critic_network = critic_network(*dims, c, *self.critic_shape())
        self.actor_network = policy_network(*dims, c)
        self.target_entropy = c.target_entropy_per_dimension * task.action_dim

        start = (seeds, c.learning_rate, device, dtype)
        self.embeddings = Embeddings(c, task, start)
        self.policy_network = self.embeddings.policy(self.actor_network)
        self.target_every = c.target_every
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start)
        self.actor = parameter_group(Layout.of(self.actor_network), 2, *start)
        self.temperature = temperature(len(seeds), c.learning_rate, device, dtype)
        self.target_critic = self.critic.flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(critic=self.critic, actor=self.actor, temperature=self.temperature),
            "target_critic.parameters": self.target_critic,
            **self.embeddings.state(),
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """One step of the critics, their targets, the actor and the temperature."""
        active, alpha = turn.active, self._alpha()  # every update trains every network
        if self.embeddings.enabled:
            self._train_encoder(batch, active)
        y = self._value_target(batch, noise["next_policy"], alpha)
        self._train_critics(batch, y, active)
        log_prob = self._train_actor(batch, noise["policy"], alpha, active)
        self._train_temperature(log_prob, active)

    @stage
    def _train_encoder(self, batch: Batch, active: Tensor | None) -> None:
        self.record(active, encoder_loss=self.embeddings.train(batch, active))

    @stage
    def _alpha(self) -> Tensor:
        """The temperature, [S, 1, 1]."""
        return self.temperature.parameters["log_alpha"].exp().unsqueeze(-1)

    def _sample_action(
        self, actor: Parameters, reads: Features, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        return sample_action(self.actor_network, actor, reads, noise, self.correction)

    def _q(self, critic: Parameters, x: Features) -> Tensor:
        """[S, N, B, Q]: the Q values of each of N critics."""
        q = apply(self.critic_network, critic, **x)
        return q if q.dim() == 4 else q.unsqueeze(1)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, alpha: Tensor) -> Tensor:
        """y = r + gamma (V(s') - alpha log pi(a' | s')), a' ~ pi(s')."""
        critic = unflatten(self.critic.layout, self.target_critic)
        reads = self.embeddings.of_state(batch.next_state)  # there is no target actor
        action, log_prob = self._sample_action(self.actor.parameters, reads, noise)
        reads = self.embeddings.of_state(batch.next_state, target=True)
        x = self.embeddings.with_action(reads, action, target=True)
        next_value = self.next_value(self._q(critic, x)) - alpha * log_prob
        return losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

    @stage
    def _train_critics(self, batch: Batch, y: Tensor, active: Tensor | None) -> None:
        """The critics' loss; then the target critics follow."""
        x = self.embeddings.with_action(self.embeddings.of_state(batch.state), batch.action)

        def loss(critic: Parameters) -> tuple[Tensor, Tensor]:
            q = self._q(critic, x)
            return self.critic_loss(q, y), q

        critic_loss, q = self.critic.descend(loss, active)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        self.record(
            active,
            critic_loss=critic_loss,
            value=losses.per_member_mean(q),
            value_target=losses.per_member_mean(y),
            td_error=losses.per_member_mean(self.td_error(q, y).abs()),
        )

    @stage
    def _train_actor(
        self, batch: Batch, noise: Tensor, alpha: Tensor, active: Tensor | None
    ) -> Tensor:
        """alpha log pi(a | s) - Q(s, a), a ~ pi(s); returns log pi(a | s)."""
        critic = self.critic.parameters
        reads = self.embeddings.of_state(batch.state)

        def loss(actor: Parameters) -> tuple[Tensor, PolicyAux]:
            action, log_prob = self._sample_action(actor, reads, noise)
            x = self.embeddings.with_action(reads, action)
            q = self.policy_value(self._q(critic, x))
            return losses.per_member_mean(alpha * log_prob - q), PolicyAux(q, log_prob)

        actor_loss, aux = self.actor.descend(loss, active)
        self.record(
            active,
            actor_loss=actor_loss,
            policy_value=losses.per_member_mean(aux.q),
            entropy=-losses.per_member_mean(aux.log_prob),
        )
        return aux.log_prob

    @stage
    def _train_temperature(self, log_prob: Tensor, active: Tensor | None) -> None:
        descend_temperature(self.temperature, log_prob, self.target_entropy, active)
        self.record(active, temperature=self._alpha().flatten())

    def copy_targets(self, active: Tensor | None) -> None:
        """Copy SALE's encoders; the target critics follow with every update."""
        self.embeddings.copy(active)

    def policies(self) -> Tensor:
        return self.embeddings.policies(self.actor.flat)

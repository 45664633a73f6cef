"""What SAC and TQC share: a tanh-Gaussian policy, a learned temperature and, if asked for, SALE."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import OnlineConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.representations import Sale
from td7.configs import setting
from td7.networks.description import LOG_STD_BOUNDS, Layer, Layout, Network, Parameter
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import ParameterGroup, Results, parameter_group, states
from td7.networks.stacked import Parameters, apply, unflatten, values
from td7.types import Exploration, TaskSpec

EXPLORATION = Exploration("squashed_gaussian")


@dataclass(frozen=True)
class MaximumEntropyConfig(OnlineConfig):
    """Hyperparameters that SAC and TQC share."""

    actor_hidden_dim: int = setting(
        256, "width of the actor's hidden layers", group="Networks", at_least=1
    )
    target_rate: float = setting(
        0.005, "Polyak rate of the target critics, tau", group="Common", above=0, at_most=1
    )
    target_entropy_per_dimension: float = setting(
        -1.0, "the policy's entropy aimed at, an action dimension", group="SAC"
    )
    sale: bool = setting(
        False, "critics and actor read SALE's embeddings, as TD7's do", group="SALE"
    )
    embedding_dim: int = setting(256, "width of zs and zsa", group="SALE", at_least=1)
    target_every: int = setting(
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
            self.encoder = parameter_group(self.sale.layout, 0, *start)
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
        """s and, with SALE, z_t^s, which the actor reads (the target critics read z_{t-1}^s)."""
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
    return squashed(mean, log_std, noise, correction)


def squashed(
    mean: Tensor, log_std: Tensor, noise: Tensor, correction: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """tanh(mean + std * noise) [..., A], and the logarithm of its density [..., 1]."""
    u = mean + log_std.exp() * noise
    log_prob = losses.gaussian_log_prob(log_std, noise) - correction(u)
    return torch.tanh(u), log_prob.sum(dim=-1, keepdim=True)


def temperature(
    members: int, learning_rate: float, device: torch.device, dtype: torch.dtype
) -> ParameterGroup:
    """log alpha of every member, 0 at first, and its optimiser."""
    layout = Layout((Parameter("log_alpha", (1,), 1, 0, 0.0),), heads=1)
    flat = torch.zeros(members, layout.size, device=device, dtype=dtype)
    return ParameterGroup(layout, flat, learning_rate)


class MaximumEntropyLearner(Learner):
    """All of SAC and TQC but for their critics; q is [S, N, B, Q], Q values of N critics."""

    config: MaximumEntropyConfig
    correction: Callable[[Tensor], Tensor]  # of log pi, for the tanh

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
        """Widths of a critic's layers, and the number of critics."""

    @abstractmethod
    def bootstrapped(self, next_q: Tensor) -> Tensor:
        """The target critics' part of the value target: [S, B, targets]."""

    @abstractmethod
    def critic_loss(self, q: Tensor, y: Tensor) -> Tensor:
        """[S], for targets y [S, B, targets]."""

    @abstractmethod
    def td_error(self, q: Tensor, y: Tensor) -> Tensor:
        """[S, ...]: how far from their target values are."""

    @abstractmethod
    def climbed(self, q: Tensor) -> Tensor:
        """[S, B, 1]: what the actor makes large."""

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
        """The critics', the actor's and the temperature's step, and the target critics'."""
        active, alpha = turn.active, self._alpha()  # every update trains all
        if self.embeddings.is_on:
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
        """[S, 1, 1]"""
        return self.temperature.parameters["log_alpha"].exp().unsqueeze(-1)

    def _sampled(
        self, actor: Parameters, reads: Mapping[str, Tensor], noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        return sampled(self.actor_network, actor, reads, noise, self.correction)

    def _q(self, critic: Parameters, x: Mapping[str, Tensor]) -> Tensor:
        """[S, N, B, Q]: Q values of each of N critics."""
        q = apply(self.critic_network, critic, **x)
        return q if q.dim() == 4 else q.unsqueeze(1)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, alpha: Tensor) -> Tensor:
        """y = r + gamma (V' - alpha log pi(a' | s')), a' ~ pi(s'), V' of the target critics."""
        critic = unflatten(self.critic.layout, self.target_critic)
        reads = self.embeddings.of_state(batch.next_state)  # the actor is the current one
        action, log_prob = self._sampled(self.actor.parameters, reads, noise)
        reads = self.embeddings.of_state(batch.next_state, target=True)
        x = self.embeddings.with_action(reads, action, target=True)
        next_value = self.bootstrapped(self._q(critic, x)) - alpha * log_prob
        return losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

    @stage
    def _train_critics(self, batch: Batch, y: Tensor, active: Tensor | None) -> None:
        """The critics' loss; then the target critics take a step after them."""
        x = self.embeddings.with_action(self.embeddings.of_state(batch.state), batch.action)

        def loss(critic: Parameters) -> Results:
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
        """alpha log pi(a | s) - V(s, a), a ~ pi(s); gives back log pi."""
        critic = self.critic.parameters
        reads = self.embeddings.of_state(batch.state)

        def loss(actor: Parameters) -> Results:
            action, log_prob = self._sampled(actor, reads, noise)
            x = self.embeddings.with_action(reads, action)
            q = self.climbed(self._q(critic, x))
            return losses.per_member_mean(alpha * log_prob - q), q, log_prob

        actor_loss, q, log_prob = self.actor.descend(loss, active)
        self.record(
            active,
            actor_loss=actor_loss,
            policy_value=losses.per_member_mean(q),
            entropy=-losses.per_member_mean(log_prob),
        )
        stopped: Tensor = log_prob
        return stopped

    @stage
    def _train_temperature(self, log_prob: Tensor, active: Tensor | None) -> None:
        """-log alpha E[log pi + target entropy]."""

        def loss(parameters: Parameters) -> Results:
            log_alpha = parameters["log_alpha"].squeeze(-1)
            return (losses.temperature_loss(log_alpha, log_prob, self.target_entropy),)

        self.temperature.descend(loss, active)
        self.record(active, temperature=self._alpha().flatten())

    def copy_targets(self, active: Tensor | None) -> None:
        """SALE's fixed encoders; the target critics take a step with every update."""
        self.embeddings.copy(active)

    def policies(self) -> Tensor:
        return self.embeddings.policies(self.actor.flat)

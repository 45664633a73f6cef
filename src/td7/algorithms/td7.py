"""TD7: TD3 with SALE, policy checkpoints, LAP and, offline, behaviour cloning.

Glossary, after the paper's appendix A:
    zs, zsa         the embeddings f(s) and g(zs, a)
    encoder         (f, g)_{t+1}: trained
    fixed           (f, g)_t: feeds the critics, the actor and the acting policy
    target_fixed    (f, g)_{t-1}: feeds the target critics and the target actor
    x               the critics' inputs: [zsa, zs, s, a], or the part of it that a variant reads
    q, y            the value of a critic, and its value target
    phi             AvgL1Norm(Linear(.)) of the raw input, inside a critic or an actor
    |.|x            the stop-gradient operator
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import new_default
from td7.algorithms.learner import Batch, Turn, stage
from td7.algorithms.representations import Sale
from td7.algorithms.twin_critics import TwinCriticConfig, TwinCriticLearner, critic_metrics
from td7.configs import setting
from td7.errors import InputError
from td7.networks.description import Layer, Layout, Network
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import descend_together, detached, parameter_group, states
from td7.networks.scalars import spread
from td7.networks.stacked import BatchStatistics, Parameters, apply, follow, unflatten
from td7.types import TaskSpec

NORMS = ("none", "avg_l1", "layer", "batch")
SLOW_RATE = 0.01  # per update, the rate at which the slow encoder follows the encoder
ACTION_INPUTS = ("zsa", "phi", "sa")  # those of the critics' inputs that depend on the action

ENCODER_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": losses.encoder_loss,
    "cosine": losses.cosine_loss,
}

# What zsa is trained to predict; no gradient flows into it.
LEARNING_TARGETS: dict[str, Callable[["TD7", Batch, Tensor], Tensor]] = {
    "next_zs": lambda td7, batch, _: td7.next_zs(batch),
    "slow_next_zs": lambda td7, batch, _: td7.slow_next_zs(batch),
    "next_state": lambda _, batch, __: batch.next_state,
    "next_zs_and_reward": lambda td7, batch, _: td7.next_zs(batch),
    "next_zsa": lambda td7, batch, noise: td7.next_zsa(batch, noise),
}

of_sale = partial(setting, group="SALE", structural=True)
weight = partial(setting, at_least=0, per_member=True)


@dataclass(frozen=True)
class TD7Config(TwinCriticConfig):
    """The paper's table "TD7 Hyperparameters", and the choices that its studies vary."""

    embedding_dim: int = of_sale(256, "width of the embeddings zs and zsa", at_least=1)
    critic_inputs: tuple[str, ...] = of_sale(
        ("zsa", "zs", "phi"),
        "what the critics read; phi: a linear layer of (s, a) with a norm; sa: the raw (s, a)",
        choices=("zsa", "zs", "phi", "sa"),
    )
    actor_inputs: tuple[str, ...] = of_sale(
        ("zs", "phi"),
        "what the actor reads; phi: a linear layer of s with a norm; s: the raw state",
        choices=("zs", "phi", "s"),
    )
    critic_phi_dim: int = of_sale(
        0,
        "phi's width in the critics; 0: hidden_dim",
        at_least=0,
        needs={"critic_inputs": ("phi",)},
    )
    zs_norm: str = of_sale("avg_l1", "norm of zs", choices=NORMS)
    zsa_norm: str = of_sale("none", "norm of zsa", choices=NORMS)
    phi_norm: str = of_sale("avg_l1", "norm of every phi", choices=NORMS)
    learning_target: str = of_sale("next_zs", "what zsa predicts", choices=tuple(LEARNING_TARGETS))
    encoder_loss: str = setting(
        "mse",
        "loss between zsa and its target",
        group="SALE",
        choices=tuple(ENCODER_LOSSES),
        needs={"encoder_training": ("decoupled", "end_to_end")},
    )
    encoder_training: str = of_sale(
        "decoupled",
        "the encoder learns from its own loss, jointly with the critics, or not at all",
        choices=("decoupled", "end_to_end", "frozen"),
    )
    encoder_loss_weight: float = weight(
        1.0,
        "weight of the encoder's loss in end-to-end training, beta",
        group="SALE",
        needs={"encoder_training": ("end_to_end",)},
    )
    fixed_embeddings: bool = of_sale(True, "critics and actor read the previous encoder")
    critic_activation: str = new_default(TwinCriticConfig, "critic_activation", "elu")
    actor_value: str = new_default(TwinCriticConfig, "actor_value", "mean")
    replay: str = new_default(TwinCriticConfig, "replay", "lap")
    value_clipping: bool = new_default(TwinCriticConfig, "value_clipping", True)
    cloning_weight: float = weight(
        0.0, "behaviour cloning weight, lambda (offline: 0.1)", group="TD3+BC", search="0.01..1:log"
    )
    checkpoints: str = new_default(TwinCriticConfig, "checkpoints", "minimum")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(ACTION_INPUTS) & set(self.critic_inputs):
            raise InputError(
                f"critic_inputs={','.join(self.critic_inputs)} must have one of "
                f"{', '.join(ACTION_INPUTS)}: a critic reads the action"
            )


def critic_network(
    state_dim: int, action_dim: int, config: TD7Config, zsa_dim: int | None = None
) -> Network:
    """Two critics: [zsa, zs, AvgL1Norm(Linear(s, a))] -> 256 -> 256 -> 1, ELU."""
    c, z, h = config, config.embedding_dim, config.hidden_dim
    raw = ("state", "action")
    phi = [Layer("phi", raw, c.critic_phi_dim or h, norm=c.phi_norm)]
    reads = [name for i in c.critic_inputs for name in (raw if i == "sa" else (i,))]
    return Network(
        {"state": state_dim, "action": action_dim, "zsa": zsa_dim or z, "zs": z},
        (
            *(phi if "phi" in c.critic_inputs else []),
            Layer("q1", tuple(reads), h, activation=c.critic_activation),
            Layer("q2", ("q1",), h, activation=c.critic_activation),
            Layer("value", ("q2",), 1),
        ),
        heads=2,
    ).without_unread()


def actor_network(state_dim: int, action_dim: int, config: TD7Config) -> Network:
    """[zs, AvgL1Norm(Linear(s))] -> 256 -> 256 -> action, ReLU and tanh."""
    c, h = config, config.hidden_dim
    phi = [Layer("phi", ("state",), h, norm=c.phi_norm)]
    reads = tuple("state" if i == "s" else i for i in c.actor_inputs)
    return Network(
        {"state": state_dim, "zs": c.embedding_dim},
        (
            *(phi if "phi" in c.actor_inputs else []),
            Layer("a1", reads, h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    ).without_unread()


def embedding_sources(config: TD7Config) -> tuple[str, str]:
    """The encoders whose embeddings the current and the target networks read."""
    if not config.fixed_embeddings:
        return "current", "current"
    is_end_to_end = config.encoder_training == "end_to_end"
    return ("current", "fixed") if is_end_to_end else ("fixed", "target_fixed")


Features = dict[str, Tensor]  # name: [S, B, width]


class CriticAux(NamedTuple):
    q: Tensor  # [S, 2, B, 1]
    priorities: Tensor | None  # [S, B]
    statistics: BatchStatistics


class JointAux(NamedTuple):
    critic_loss: Tensor  # [S]
    encoder_loss: Tensor  # [S]
    q: Tensor  # [S, 2, B, 1]
    critic_statistics: BatchStatistics
    encoder_statistics: BatchStatistics


class ActorAux(NamedTuple):
    q: Tensor  # [S, 1 or 2, B, 1]
    statistics: BatchStatistics


class TD7(TwinCriticLearner):
    metrics = ("encoder_loss", *TwinCriticLearner.metrics)

    def __init__(
        self,
        config: TD7Config,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config

        zsa_dim = task.state_dim if c.learning_target == "next_state" else c.embedding_dim
        self.sale = Sale.of(
            task.state_dim,
            task.action_dim,
            c.embedding_dim,
            c.hidden_dim,
            zsa_dim=zsa_dim,
            zs_norm=c.zs_norm,
            zsa_norm=c.zsa_norm,
            predicts_reward=c.learning_target == "next_zs_and_reward",
        )
        self.critic_network = critic_network(task.state_dim, task.action_dim, c, zsa_dim)
        self.actor_network = actor_network(task.state_dim, task.action_dim, c)
        self._actor_reads_zs = "zs" in c.actor_inputs
        self._reads_zsa = "zsa" in c.critic_inputs
        self._reads_zs = self._reads_zsa or self._actor_reads_zs or "zs" in c.critic_inputs
        self.policy_network = (
            self.sale.f.then(self.actor_network) if self._actor_reads_zs else self.actor_network
        )

        start = (seeds, c.learning_rate, device, dtype)
        self.encoder = parameter_group(self.sale.layout, 0, *start)
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start)
        self.actor = parameter_group(Layout.of(self.actor_network), 2, *start)
        self.fixed_encoder = self.encoder.flat.clone()
        self.target_fixed_encoder = self.encoder.flat.clone()
        self.slow_encoder = self.encoder.flat.clone()
        self.target_critic = self.critic.flat.clone()
        self.target_actor = self.actor.flat.clone()

        encoders = {
            "current": self.encoder.flat,
            "fixed": self.fixed_encoder,
            "target_fixed": self.target_fixed_encoder,
        }
        current, target = embedding_sources(c)
        self._input_encoder, self._target_input_encoder = encoders[current], encoders[target]
        if not (self._actor_reads_zs and self._input_encoder is self.encoder.flat):
            self.policy_every = c.actor_every
        # An encoder that no network reads is not trained.
        self._trains_encoder = self._reads_zs and c.encoder_training == "decoupled"
        self._is_end_to_end = self._reads_zs and c.encoder_training == "end_to_end"
        self._critic_step = self._joint_step if self._is_end_to_end else self._separate_step
        self._has_slow_encoder = c.learning_target == "slow_next_zs"
        self._learning_target = LEARNING_TARGETS[c.learning_target]
        self._zsa_loss = ENCODER_LOSSES[c.encoder_loss]

    def state(self) -> dict[str, Tensor]:
        state = {
            **states(encoder=self.encoder, critic=self.critic, actor=self.actor),
            "fixed_encoder.parameters": self.fixed_encoder,
            "target_fixed_encoder.parameters": self.target_fixed_encoder,
            "target_critic.parameters": self.target_critic,
            "target_actor.parameters": self.target_actor,
            **self.clip.state(),
        }
        if self._has_slow_encoder:
            state["slow_encoder.parameters"] = self.slow_encoder
        return state

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        """The paper's "TD7 Train Function", without sampling and the periodic copies."""
        target_noise = noise["target_policy"]
        self._encoder_step(batch, target_noise, turn.active)
        x = self._embedding_step(batch)
        y = self._value_target(batch, target_noise, turn.active)
        priorities = self._critic_step(batch, target_noise, x, y, turn.active)
        if turn.trains_actors:
            self._actor_step(batch, x, turn.actors)
        return priorities

    # -- steps: what runs in which lane --------------------------------------------------------

    def _encoder_step(self, batch: Batch, noise: Tensor, active: Tensor | None) -> None:
        """Train the encoder in parallel with everything that reads the fixed encoders."""
        if not self._trains_encoder:
            return
        with self.lanes.beside("encoder", *batch, noise):
            self._train_encoder(batch, noise, active)
        if not self.config.fixed_embeddings:
            self.lanes.join("encoder")

    def _embedding_step(self, batch: Batch) -> Features:
        """x of the batch, in parallel with the value target; {} if the critics' loss computes x."""
        if self._is_end_to_end:
            return {}
        with self.lanes.beside("embedding", *batch):
            return self._embed(batch)

    def _separate_step(
        self, batch: Batch, noise: Tensor, x: Features, y: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Train the critics; return LAP's priorities, the only thing the next update waits for."""
        del batch, noise
        self.lanes.join("embedding")
        with self.lanes.beside("critic", y, *x.values()):
            loss, aux, backward = self.critic.forward(
                lambda critic: self._critic_loss(critic, x, y)
            )
        self.lanes.join("critic")
        with self.lanes.beside("critic"):
            self._apply_gradients(backward(), loss, aux, y, active)
        return aux.priorities

    def _joint_step(
        self, batch: Batch, noise: Tensor, x: Features, y: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Train critics and encoder end to end; wait, because what follows reads the encoder."""
        del x  # empty: the loss computes x
        with self.lanes.beside("critic", *batch, noise, y):
            priorities = self._train_critic_and_encoder(batch, noise, y, active)
        self.lanes.join("critic")
        return priorities

    def _actor_step(self, batch: Batch, x: Features, active: Tensor | None) -> None:
        """Train the actor in parallel with the next update, on copies of what that one changes."""
        if self._is_end_to_end:
            x = self._embed(batch)  # by the encoder after its step
        encoder = self._input_encoder
        if encoder is self.encoder.flat:
            encoder = self.lanes.kept(encoder)
        with self.lanes.beside("critic"):  # after the critics' step
            critic = self.lanes.kept(self.critic.flat)
            with self.lanes.beside("actor", *batch, *x.values(), encoder, critic):
                self._train_actor(batch, x, encoder, critic, active)

    # -- the encoder ---------------------------------------------------------------------------

    @stage
    def _train_encoder(self, batch: Batch, noise: Tensor, active: Tensor | None) -> None:
        """(g(f(s), a) - |f(s')|x)^2; the target comes from the current encoder."""
        target = self._learning_target(self, batch, noise)
        encoder_loss, statistics = self.encoder.descend(
            lambda encoder: self._encoder_loss(encoder, batch, target), active
        )
        self._follow_encoder(statistics, active)
        self.record(active, encoder_loss=encoder_loss)

    def _encoder_loss(
        self, encoder: Parameters, batch: Batch, target: Tensor
    ) -> tuple[Tensor, BatchStatistics]:
        """(zsa - |target|x)^2; with the reward among the targets, plus (g_r(zs, a) - r)^2."""
        statistics: BatchStatistics = {}
        zs = self.sale.zs(encoder, batch.state, statistics)
        predicted = self.sale.predictions(encoder, zs, batch.action, statistics)
        loss = self._zsa_loss(predicted["zsa"], target)
        if "reward" in predicted:
            loss = loss + losses.per_member_mean((predicted["reward"] - batch.reward).square())
        return loss, statistics

    def _follow_encoder(self, statistics: BatchStatistics, active: Tensor | None) -> None:
        """After each encoder step, move the running statistics and the slow encoder."""
        follow(self.encoder.layout, self.encoder.flat, statistics, active)
        if self._has_slow_encoder:
            polyak(self.slow_encoder, self.encoder.flat, SLOW_RATE, active)

    def next_zs(self, batch: Batch) -> Tensor:
        """f(s') of the current encoder; batch norms use the batch's own statistics."""
        return self.sale.zs(self.encoder.parameters, batch.next_state, {})

    def slow_next_zs(self, batch: Batch) -> Tensor:
        """f(s') of the slow encoder."""
        return self.sale.zs(unflatten(self.sale.layout, self.slow_encoder), batch.next_state)

    def next_zsa(self, batch: Batch, noise: Tensor) -> Tensor:
        """g(f(s'), a') of the current encoder, a' the target policy's action."""
        encoder = self.encoder.parameters
        next_zs = self.sale.zs(encoder, batch.next_state, {})
        next_action = self._next_x(batch, noise)["action"]
        return self.sale.predictions(encoder, next_zs, next_action, {})["zsa"]

    # -- the critics' inputs -------------------------------------------------------------------

    def _x(
        self, encoder: Parameters, state: Tensor, action: Tensor, zs: Tensor | None = None
    ) -> Features:
        """The part of x = [zsa, zs, s, a] that some network reads; zs may be known already."""
        x = {"state": state, "action": action}
        if self._reads_zs:
            x["zs"] = self.sale.zs(encoder, state) if zs is None else zs
        if self._reads_zsa:
            x["zsa"] = self.sale.zsa(encoder, x["zs"], action)
        return x

    @stage
    def _embed(self, batch: Batch) -> Features:
        """x = [z_t^sa, z_t^s, s, a] of the batch."""
        encoder = unflatten(self.sale.layout, self._input_encoder)
        return self._x(encoder, batch.state, batch.action)

    def _next_x(self, batch: Batch, noise: Tensor) -> Features:
        """x = [z_{t-1}^{s'a'}, z_{t-1}^{s'}, s', a'], a' = pi_t(z_{t-1}^{s'}, s') + noise."""
        c = self.config
        encoder = unflatten(self.sale.layout, self._target_input_encoder)
        actor = unflatten(self.actor.layout, self.target_actor)
        reads = {"state": batch.next_state}
        if self._reads_zs:
            reads["zs"] = self.sale.zs(encoder, batch.next_state)
        next_action = losses.smoothed_action(
            apply(self.actor_network, actor, **reads), noise, c.target_noise, c.target_noise_clip
        )
        return self._x(encoder, batch.next_state, next_action, reads.get("zs"))

    # -- the critics ---------------------------------------------------------------------------

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, active: Tensor | None) -> Tensor:
        """y = r + gamma clip(min Q_t(x'), Qmin, Qmax), x' of the next state and action.

        Also Qmin <- min(Qmin, y) and Qmax <- max(Qmax, y).
        """
        c = self.config
        critic = unflatten(self.critic.layout, self.target_critic)
        next_q = apply(self.critic_network, critic, **self._next_x(batch, noise))
        next_value = self.clip.clipped(next_q.amin(dim=1))
        y = losses.value_target(batch.reward, batch.not_terminated, next_value, c.discount)
        self.clip.follow(y, active)
        return y

    @stage
    def _critic_loss(self, critic: Parameters, x: Features, y: Tensor) -> tuple[Tensor, CriticAux]:
        """Huber(y - Q(z_t^sa, z_t^s, s, a)) of both critics."""
        statistics: BatchStatistics = {}
        q = apply(self.critic_network, critic, statistics, **x)
        error = q - y.unsqueeze(1)
        aux = CriticAux(q, self.critic_loss.priorities(error), statistics)
        # Detached here: compiled alone, the stage would otherwise prepare gradients of the aux.
        return self.critic_loss(error), detached(aux)

    @stage
    def _apply_gradients(
        self, gradients: Parameters, loss: Tensor, aux: CriticAux, y: Tensor, active: Tensor | None
    ) -> None:
        """The critics' step, from the gradients of `_critic_loss`."""
        self.critic.step(gradients, active)
        follow(self.critic.layout, self.critic.flat, aux.statistics, active)
        self.record(active, critic_loss=loss, **critic_metrics(aux.q, y, self.clip))

    @stage
    def _train_critic_and_encoder(
        self, batch: Batch, noise: Tensor, y: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Huber(y - Q(z_{t+1}^sa, z_{t+1}^s, s, a)) + beta (z_{t+1}^sa - |z_{t+1}^s'|x)^2."""
        beta = self.config.encoder_loss_weight
        target = self._learning_target(self, batch, noise)

        def joint_loss(both: Parameters) -> tuple[Tensor, JointAux]:
            encoder_loss, encoder_statistics = self._encoder_loss(both, batch, target)
            critic_statistics: BatchStatistics = {}
            x = self._x(both, batch.state, batch.action)
            q = apply(self.critic_network, both, critic_statistics, **x)
            critic_loss = self.critic_loss(q - y.unsqueeze(1))
            aux = JointAux(critic_loss, encoder_loss, q, critic_statistics, encoder_statistics)
            return critic_loss + spread(beta, encoder_loss) * encoder_loss, aux

        _, aux = descend_together((self.encoder, self.critic), joint_loss, active)
        self._follow_encoder(aux.encoder_statistics, active)
        follow(self.critic.layout, self.critic.flat, aux.critic_statistics, active)
        self.record(active, encoder_loss=aux.encoder_loss)
        self.record(active, critic_loss=aux.critic_loss, **critic_metrics(aux.q, y, self.clip))
        return self.critic_loss.priorities(aux.q - y.unsqueeze(1))

    # -- the actor -----------------------------------------------------------------------------

    @stage
    def _train_actor(
        self, batch: Batch, x: Features, encoders: Tensor, critics: Tensor, active: Tensor | None
    ) -> None:
        """-Q + lambda |E[Q]|x (a_pi - a)^2, Q the mean of both critics at a_pi = pi(z_t^s, s)."""
        encoder = unflatten(self.sale.layout, encoders)
        critic = unflatten(self.critic.layout, critics)
        zs = x.get("zs")

        def loss(actor: Parameters) -> tuple[Tensor, ActorAux]:
            statistics: BatchStatistics = {}
            action = apply(self.actor_network, actor, statistics, **x)
            both_q = apply(self.critic_network, critic, **self._x(encoder, batch.state, action, zs))
            q = self.actor_value(both_q)
            loss = losses.actor_loss(q, action, batch.action, self.config.cloning_weight)
            return loss, ActorAux(q, statistics)

        actor_loss, aux = self.actor.descend(loss, active)
        follow(self.actor.layout, self.actor.flat, aux.statistics, active)
        self.record(active, actor_loss=actor_loss, policy_value=losses.per_member_mean(aux.q))

    # -- targets -------------------------------------------------------------------------------

    def copy_targets(self, active: Tensor | None) -> None:
        """Copy every network of the next iteration, in order; then refresh the clipping bounds."""
        assign(self.target_actor, self.actor.flat, active)
        assign(self.target_critic, self.critic.flat, active)
        assign(self.target_fixed_encoder, self.fixed_encoder, active)
        assign(self.fixed_encoder, self.encoder.flat, active)
        self.clip.refresh(active)

    def policies(self) -> Tensor:
        """The f that the actor reads, followed by the actor."""
        if not self._actor_reads_zs:
            return self.actor.flat
        f_size = Layout.of(self.sale.f).size
        return torch.cat([self._input_encoder[:, :f_size], self.actor.flat], dim=1)

"""TD7: TD3 with SALE, policy checkpoints, LAP and, offline, behaviour cloning.

Glossary, after the paper's appendix A:
    zs, zsa         the embeddings f(s) and g(zs, a)
    encoder         (f, g)_{t+1}: trained
    fixed           (f, g)_t: feeds the critics, the actor and acting
    target_fixed    (f, g)_{t-1}: feeds the target critics and the target actor
    x               what the critics read: [zsa, zs, s, a], or as much of it as a variant says
    q, y            a critic's value, and the value target it learns
    phi             AvgL1Norm(Linear(.)) of the raw input, inside a critic or an actor
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.checkpoints import CRITERIA
from td7.algorithms.learner import Batch, Turn, stage
from td7.algorithms.representations import Sale
from td7.algorithms.twin_critics import (
    ACTOR_VALUES,
    TwinCriticConfig,
    TwinCriticLearner,
    critic_metrics,
)
from td7.configs import setting
from td7.errors import InputError
from td7.networks.description import NORM_PARAMETERS, Layer, Layout, Network
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import (
    ParameterGroup,
    Results,
    descend_together,
    detached,
    parameter_group,
    states,
)
from td7.networks.stacked import BatchStatistics, Parameters, apply, follow, unflatten
from td7.types import TaskSpec

NORMS = tuple(NORM_PARAMETERS)
SLOW_RATE = 0.01  # at which the slow encoder of one learning target follows, each update

ENCODER_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": losses.encoder_loss,
    "cosine": losses.cosine_loss,
}


def _next_zs(td7: "TD7", batch: Batch, noise: Tensor) -> Tensor:
    del noise
    return td7.next_zs(td7.encoder.parameters, batch, training=True)


# What zsa learns to be, without a gradient of its own.
LEARNING_TARGETS: dict[str, Callable[["TD7", Batch, Tensor], Tensor]] = {
    "next_zs": _next_zs,
    "slow_next_zs": lambda td7, batch, _: td7.next_zs(
        unflatten(td7.sale.layout, td7.slow_encoder), batch
    ),
    "next_state": lambda _, batch, __: batch.next_state,
    "next_zs_and_reward": _next_zs,
    "next_zsa": lambda td7, batch, noise: td7.next_zsa(batch, noise),
}
# Of what critics may read, all that tells one action from another.
OF_ACTIONS = ("zsa", "phi", "sa")


@dataclass(frozen=True)
class TD7Config(TwinCriticConfig):
    """The paper's table "TD7 Hyperparameters", and what its studies vary."""

    embedding_dim: int = setting(256, "width of zs and zsa", group="SALE", at_least=1)
    critic_inputs: tuple[str, ...] = setting(
        ("zsa", "zs", "phi"),
        "what the critics read; sa is (s, a) as it is",
        group="SALE",
        choices=("zsa", "zs", "phi", "sa"),
    )
    actor_inputs: tuple[str, ...] = setting(
        ("zs", "phi"),
        "what the actor reads; s is the state as it is",
        group="SALE",
        choices=("zs", "phi", "s"),
    )
    critic_phi_dim: int = setting(
        0, "width of phi in the critics; 0: hidden_dim", group="SALE", at_least=0
    )
    zs_norm: str = setting("avg_l1", "on zs", group="SALE", choices=NORMS)
    zsa_norm: str = setting("none", "on zsa", group="SALE", choices=NORMS)
    phi_norm: str = setting("avg_l1", "on every phi", group="SALE", choices=NORMS)
    learning_target: str = setting(
        "next_zs", "what zsa is trained to be", group="SALE", choices=tuple(LEARNING_TARGETS)
    )
    encoder_loss: str = setting(
        "mse", "between zsa and its target", group="SALE", choices=tuple(ENCODER_LOSSES)
    )
    encoder_training: str = setting(
        "decoupled",
        "by its own loss; with the critics' loss and its own; or not at all",
        group="SALE",
        choices=("decoupled", "end_to_end", "frozen"),
    )
    encoder_loss_weight: float = setting(
        1.0, "of its own loss where it is trained end to end, beta", group="SALE", at_least=0
    )
    fixed_embeddings: bool = setting(
        True, "critics and actor read the last iteration's encoder", group="SALE"
    )
    critic_activation: str = setting(
        "elu", "in the critics", group="Networks", choices=("elu", "relu")
    )
    actor_value: str = setting(
        "mean", "which critics the actor climbs", group="TD3", choices=tuple(ACTOR_VALUES)
    )
    replay: str = setting(
        "lap",
        "lap: prioritised, with its Huber loss; uniform: with the squared error",
        group="LAP",
        choices=("lap", "uniform"),
    )
    value_clipping: bool = setting(
        True, "value targets stay within the range of those seen", group="Value clipping"
    )
    cloning_weight: float = setting(
        0.0, "behaviour cloning weight, lambda (offline: 0.1)", group="TD3+BC", at_least=0
    )
    checkpoints: str = setting(
        "minimum",
        "what an assessment's returns are judged by; none: an update after every time step",
        group="Policy checkpoints",
        choices=(*CRITERIA, "none"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(OF_ACTIONS) & set(self.critic_inputs):
            raise InputError(
                f"critic_inputs={','.join(self.critic_inputs)} must have one of "
                f"{', '.join(OF_ACTIONS)}: a critic reads the action"
            )


def critic_network(
    state_dim: int, action_dim: int, config: TD7Config, zsa_dim: int | None = None
) -> Network:
    """Two of: [zsa, zs, AvgL1Norm(Linear(s, a))] -> 256 -> 256 -> 1, ELU."""
    c, z, h = config, config.embedding_dim, config.hidden_dim
    activation = c.critic_activation
    raw = ("state", "action")
    first = [Layer("phi", raw, c.critic_phi_dim or h, norm=c.phi_norm)]
    reads = [name for i in c.critic_inputs for name in (raw if i == "sa" else (i,))]
    return Network(
        {"state": state_dim, "action": action_dim, "zsa": zsa_dim or z, "zs": z},
        (
            *(first if "phi" in c.critic_inputs else []),
            Layer("q1", tuple(reads), h, activation=activation),
            Layer("q2", ("q1",), h, activation=activation),
            Layer("value", ("q2",), 1),
        ),
        heads=2,
    ).without_unread()


def actor_network(state_dim: int, action_dim: int, config: TD7Config) -> Network:
    """[zs, AvgL1Norm(Linear(s))] -> 256 -> 256 -> action, ReLU and tanh."""
    c, h = config, config.hidden_dim
    first = [Layer("phi", ("state",), h, norm=c.phi_norm)]
    reads = tuple("state" if i == "s" else i for i in c.actor_inputs)
    return Network(
        {"state": state_dim, "zs": c.embedding_dim},
        (
            *(first if "phi" in c.actor_inputs else []),
            Layer("a1", reads, h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    ).without_unread()


def embedding_sources(config: TD7Config) -> tuple[str, str]:
    """Whose embeddings the current networks read, and whose the target networks."""
    if not config.fixed_embeddings:
        return "current", "current"
    is_end_to_end = config.encoder_training == "end_to_end"
    return ("current", "fixed") if is_end_to_end else ("fixed", "target_fixed")


class TD7(TwinCriticLearner):
    metrics = ("encoder_loss", *TwinCriticLearner.metrics)
    sale: Sale
    encoder: ParameterGroup
    slow_encoder: Tensor

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
        self._read_encoder, self._target_read_encoder = encoders[current], encoders[target]
        if not (self._actor_reads_zs and self._read_encoder is self.encoder.flat):
            self.policy_every = c.actor_every
        # An encoder that nobody reads is not trained.
        self._trains_encoder = self._reads_zs and c.encoder_training == "decoupled"
        self._is_end_to_end = self._reads_zs and c.encoder_training == "end_to_end"
        self._waits_for_encoder = self._trains_encoder and not c.fixed_embeddings
        self._has_slow_encoder = c.learning_target == "slow_next_zs"
        self._learning_target = LEARNING_TARGETS[c.learning_target]
        self._loss_of_zsa = ENCODER_LOSSES[c.encoder_loss]

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
        """The paper's "TD7 Train Function", but for sampling and for the periodic copies."""
        target_noise, active = noise["target_policy"], turn.active
        if self._trains_encoder:
            with self.lanes.beside("encoder", *batch, target_noise):
                self._train_encoder(batch, target_noise, active)
        if self._waits_for_encoder:
            self.lanes.join("encoder")
        priorities: Tensor | None
        if self._is_end_to_end:
            y = self._value_target(batch, target_noise, active)
            priorities = self._train_critic_and_encoder(batch, target_noise, y, active)
            if turn.trains_actors:
                encoder = self._actors_encoder(turn)
                self._begin_actor(batch, self._embedded(batch), encoder, turn.actors)
            return priorities
        with self.lanes.beside("embedding", *batch):
            x = self._embedded(batch)
        y = self._value_target(batch, target_noise, active)
        self.lanes.join("embedding")
        with self.lanes.beside("critic", y, *x.values()):
            results, gradients = self.critic.begin(lambda critic: self._critic_loss(critic, x, y))
        loss, told, statistics = results
        self.lanes.join("critic")  # the priorities are all that the next update waits for
        encoder = self._actors_encoder(turn)  # before the next update can train it
        with self.lanes.beside("critic"):
            self._step_critic(gradients(), statistics, loss, told["q"], y, active)
            if turn.trains_actors:
                self._begin_actor(batch, x, encoder, turn.actors)
        priorities = told.get("priorities")
        return priorities

    def _actors_encoder(self, turn: Turn) -> Tensor:
        """What the actor's step reads, beside the next update, which may train it."""
        encoder = self._read_encoder
        if turn.trains_actors and encoder is self.encoder.flat:
            return self.lanes.kept(encoder)
        return encoder

    def _begin_actor(
        self, batch: Batch, x: dict[str, Tensor], encoder: Tensor, active: Tensor | None
    ) -> None:
        """Beside the next update, which goes on to write to what this reads."""
        critic = self.lanes.kept(self.critic.flat)
        with self.lanes.beside("actor", *batch, *x.values(), encoder, critic):
            self._train_actor(batch, x, encoder, critic, active)

    # -- the encoder ---------------------------------------------------------------------------

    @stage
    def _train_encoder(self, batch: Batch, noise: Tensor, active: Tensor | None) -> None:
        """(g(f(s), a) - |f(s')|x)^2; the target is the current encoder's."""
        target = self._learning_target(self, batch, noise)
        encoder_loss, statistics = self.encoder.descend(
            lambda encoder: self._encoder_loss(encoder, batch, target), active
        )
        self._follow_encoder(statistics, active)
        self.record(active, encoder_loss=encoder_loss)

    def _follow_encoder(self, statistics: BatchStatistics, active: Tensor | None) -> None:
        """What comes after each of its steps: batch norms' statistics, and the slow encoder."""
        follow(self.encoder.layout, self.encoder.flat, statistics, active)
        if self._has_slow_encoder:
            polyak(self.slow_encoder, self.encoder.flat, SLOW_RATE, active)

    def _encoder_loss(
        self, encoder: Parameters, batch: Batch, target: Tensor
    ) -> tuple[Tensor, BatchStatistics]:
        statistics: BatchStatistics = {}
        zs = self.sale.zs(encoder, batch.state, statistics)
        predicted = self.sale.predicted(encoder, zs, batch.action, statistics)
        loss = self._loss_of_zsa(predicted["zsa"], target)
        if "reward" in predicted:
            loss = loss + losses.per_member_mean((predicted["reward"] - batch.reward).square())
        return loss, statistics

    def next_zs(self, encoder: Parameters, batch: Batch, *, training: bool = False) -> Tensor:
        """f(s'); in training, batch norms use the batch's own statistics."""
        return self.sale.zs(encoder, batch.next_state, {} if training else None)

    def next_zsa(self, batch: Batch, noise: Tensor) -> Tensor:
        """g(f(s'), a') of the current encoder, a' the target policy's."""
        encoder = self.encoder.parameters
        next_zs = self.next_zs(encoder, batch, training=True)
        next_action = self._next_x(batch, noise)["action"]
        return self.sale.predicted(encoder, next_zs, next_action, {})["zsa"]

    # -- what the critics read -----------------------------------------------------------------

    def _x(
        self, encoder: Parameters, state: Tensor, action: Tensor, zs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """x = [z^sa, z^s, s, a], as much as is read of it; z^s may be known already."""
        x = {"state": state, "action": action}
        if self._reads_zs:
            x["zs"] = self.sale.zs(encoder, state) if zs is None else zs
        if self._reads_zsa:
            x["zsa"] = self.sale.zsa(encoder, x["zs"], action)
        return x

    @stage
    def _embedded(self, batch: Batch) -> dict[str, Tensor]:
        """x of the batch, with z_t^s and z_t^sa."""
        encoder = unflatten(self.sale.layout, self._read_encoder)
        return self._x(encoder, batch.state, batch.action)

    def _next_x(self, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
        """x = [z_{t-1}^{s'a'}, z_{t-1}^{s'}, s', a'], a' = pi_t(z_{t-1}^{s'}, s') + noise."""
        c = self.config
        encoder = unflatten(self.sale.layout, self._target_read_encoder)
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
        """y = r + gamma clip(min Q_t(x), Qmin, Qmax), x that of the next state and action.

        And Qmin <- min(Qmin, y), Qmax <- max(Qmax, y).
        """
        critic = unflatten(self.critic.layout, self.target_critic)
        next_q = apply(self.critic_network, critic, **self._next_x(batch, noise))
        y = losses.value_target(
            batch.reward,
            batch.not_terminated,
            self.clip.clipped(next_q.amin(dim=1)),
            self.config.discount,
        )
        self.clip.follow(y, active)
        return y

    @stage
    def _critic_loss(self, critic: Parameters, x: dict[str, Tensor], y: Tensor) -> Results:
        """Huber(y - Q(z_t^sa, z_t^s, s, a)) of both critics; their values; LAP's priorities."""
        statistics: BatchStatistics = {}
        told = {"q": apply(self.critic_network, critic, statistics, **x)}
        error = told["q"] - y.unsqueeze(1)
        priorities = self.critic_loss.priority(error)
        if priorities is not None:
            told["priorities"] = priorities
        # Detached here, so that compiled alone it prepares no gradients that nobody asks for.
        return self.critic_loss.loss(error), *detached((told, statistics))

    @stage
    def _step_critic(
        self,
        gradients: Parameters,
        statistics: BatchStatistics,
        loss: Tensor,
        q: Tensor,
        y: Tensor,
        active: Tensor | None,
    ) -> None:
        """The rest of the critics' step, by the gradients of `_critic_loss`."""
        self.critic.step(gradients, active)
        follow(self.critic.layout, self.critic.flat, statistics, active)
        self.record(active, critic_loss=loss, **critic_metrics(q, y, self.clip))

    @stage
    def _train_critic_and_encoder(
        self, batch: Batch, noise: Tensor, y: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Huber(y - Q(z_{t+1}^sa, z_{t+1}^s, s, a)) + beta (z_{t+1}^sa - |z_{t+1}^s'|x)^2."""
        c = self.config
        target = self._learning_target(self, batch, noise)

        def loss(both: Parameters) -> Results:
            encoder_loss, of_encoder = self._encoder_loss(both, batch, target)
            of_critic: BatchStatistics = {}
            x = self._x(both, batch.state, batch.action)
            q = apply(self.critic_network, both, of_critic, **x)
            critic_loss = self.critic_loss.loss(q - y.unsqueeze(1))
            total = critic_loss + c.encoder_loss_weight * encoder_loss
            return total, critic_loss, encoder_loss, q, of_encoder, of_critic

        _, critic_loss, encoder_loss, q, of_encoder, of_critic = descend_together(
            (self.encoder, self.critic), loss, active
        )
        self._follow_encoder(of_encoder, active)
        follow(self.critic.layout, self.critic.flat, of_critic, active)
        self.record(active, encoder_loss=encoder_loss)
        self.record(active, critic_loss=critic_loss, **critic_metrics(q, y, self.clip))
        return self.critic_loss.priority(q - y.unsqueeze(1))

    # -- the actor -----------------------------------------------------------------------------

    @stage
    def _train_actor(
        self,
        batch: Batch,
        x: dict[str, Tensor],
        encoder_flat: Tensor,
        critic_flat: Tensor,
        active: Tensor | None,
    ) -> None:
        """-Q + lambda |E[Q]|x (a_pi - a)^2, Q the mean of both critics at a_pi = pi(z_t^s, s)."""
        c = self.config
        encoder = unflatten(self.sale.layout, encoder_flat)
        critic = unflatten(self.critic.layout, critic_flat)
        zs = x.get("zs")

        def loss(actor: Parameters) -> Results:
            statistics: BatchStatistics = {}
            action = apply(self.actor_network, actor, statistics, **x)
            q = apply(self.critic_network, critic, **self._x(encoder, batch.state, action, zs))
            q = self.actor_value(q)
            return losses.actor_loss(q, action, batch.action, c.cloning_weight), q, statistics

        actor_loss, q, statistics = self.actor.descend(loss, active)
        follow(self.actor.layout, self.actor.flat, statistics, active)
        self.record(active, actor_loss=actor_loss, policy_value=losses.per_member_mean(q))

    # -- targets -------------------------------------------------------------------------------

    def copy_targets(self, active: Tensor | None) -> None:
        """Each target and fixed network takes the network of the next iteration; then the clip."""
        assign(self.target_actor, self.actor.flat, active)
        assign(self.target_critic, self.critic.flat, active)
        assign(self.target_fixed_encoder, self.fixed_encoder, active)
        assign(self.fixed_encoder, self.encoder.flat, active)
        self.clip.refresh(active)

    def policies(self) -> Tensor:
        """The f that the actor reads, then the actor."""
        if not self._actor_reads_zs:
            return self.actor.flat
        f_size = Layout.of(self.sale.f).size
        return torch.cat([self._read_encoder[:, :f_size], self.actor.flat], dim=1)

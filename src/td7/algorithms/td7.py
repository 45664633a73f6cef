"""TD7: TD3 with SALE, policy checkpoints, LAP and, offline, behaviour cloning.

Glossary, after the paper's appendix A:
    zs, zsa         the embeddings f(s) and g(zs, a)
    encoder         (f, g)_{t+1}: trained
    fixed           (f, g)_t: feeds the critics, the actor and acting
    target_fixed    (f, g)_{t-1}: feeds the target critics and the target actor
    q, y            a critic's value, and the value target it learns
    phi             AvgL1Norm(Linear(.)) of the raw input, inside a critic or an actor
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7 import losses
from td7.algorithms.base import Batch, Learner, OnlineConfig, stage
from td7.architectures import Layer, Layout, Network
from td7.checkpoints import CRITERIA
from td7.configs import hyper
from td7.networks import Parameters, apply, initial, unflatten
from td7.optimisers import Trained
from td7.representations import Sale
from td7.streams import Stream, generator
from td7.targets import assign
from td7.types import TaskSpec


@dataclass(frozen=True)
class TD7Config(OnlineConfig):
    """The paper's table "TD7 Hyperparameters"."""

    embedding_dim: int = hyper(256, "width of zs and zsa", group="SALE", at_least=1)
    hidden_dim: int = hyper(256, "width of every hidden layer and of phi", group="SALE", at_least=1)
    target_noise: float = hyper(
        0.2, "standard deviation of the target policy's noise, sigma", group="TD3", at_least=0
    )
    target_noise_clip: float = hyper(
        0.5, "where the target policy's noise is clipped, c", group="TD3", at_least=0
    )
    actor_every: int = hyper(2, "updates between two of the actor", group="TD3", at_least=1)
    priority_exponent: float = hyper(
        0.4, "amount of prioritisation, alpha in LAP", group="LAP", at_least=0
    )
    min_priority: float = hyper(
        1.0,
        "smallest |TD error| that counts, and where the Huber loss turns linear",
        group="LAP",
        above=0,
    )
    cloning_weight: float = hyper(
        0.0, "behaviour cloning weight, lambda (offline: 0.1)", group="TD3+BC", at_least=0
    )
    checkpoints: str = hyper(
        "minimum",
        "what an assessment's returns are judged by; none: an update after every time step",
        group="Policy checkpoints",
        choices=(*CRITERIA, "none"),
    )


def critic_network(state_dim: int, action_dim: int, config: TD7Config) -> Network:
    """Two of: [zsa, zs, AvgL1Norm(Linear(s, a))] -> 256 -> 256 -> 1, ELU."""
    z, h = config.embedding_dim, config.hidden_dim
    return Network(
        {"state": state_dim, "action": action_dim, "zsa": z, "zs": z},
        (
            Layer("phi", ("state", "action"), h, norm="avg_l1"),
            Layer("q1", ("zsa", "zs", "phi"), h, activation="elu"),
            Layer("q2", ("q1",), h, activation="elu"),
            Layer("value", ("q2",), 1),
        ),
        heads=2,
    )


def actor_network(state_dim: int, action_dim: int, config: TD7Config) -> Network:
    """[zs, AvgL1Norm(Linear(s))] -> 256 -> 256 -> action, ReLU and tanh."""
    z, h = config.embedding_dim, config.hidden_dim
    return Network(
        {"state": state_dim, "zs": z},
        (
            Layer("phi", ("state",), h, norm="avg_l1"),
            Layer("a1", ("zs", "phi"), h, activation="relu"),
            Layer("a2", ("a1",), h, activation="relu"),
            Layer("action", ("a2",), action_dim, activation="tanh"),
        ),
    )


class TD7(Learner):
    metrics = (
        "encoder_loss",
        "critic_loss",
        "actor_loss",
        "value",
        "value_target",
        "td_error",
        "clip_min",
        "clip_max",
    )

    def __init__(
        self,
        config: TD7Config,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = config
        self.actor_every = config.actor_every
        self.target_every = config.target_every
        self.noise_shapes = {"target_policy": (config.batch_size, task.action_dim)}

        dims = (task.state_dim, task.action_dim)
        self.sale = Sale.of(*dims, config.embedding_dim, config.hidden_dim)
        self.critic_network = critic_network(*dims, config)
        self.actor_network = actor_network(*dims, config)
        self.policy_network = self.sale.f.then(self.actor_network)

        def trained(group: int, layout: Layout) -> Trained:
            generators = [generator(seed, Stream.PARAMETERS, group) for seed in seeds]
            flat = torch.from_numpy(initial(layout, generators))
            return Trained(layout, flat.to(device, dtype), config.learning_rate)

        self.encoder = trained(0, self.sale.layout)
        self.critic = trained(1, Layout.of(self.critic_network))
        self.actor = trained(2, Layout.of(self.actor_network))
        self.fixed_encoder = self.encoder.flat.clone()
        self.target_fixed_encoder = self.encoder.flat.clone()
        self.target_critic = self.critic.flat.clone()
        self.target_actor = self.actor.flat.clone()

        def per_member(value: float) -> Tensor:
            return torch.full((len(seeds),), value, device=device, dtype=dtype)

        self.target_seen_min, self.target_seen_max = per_member(torch.inf), per_member(-torch.inf)
        self.clip_min, self.clip_max = per_member(0.0), per_member(0.0)

    def state(self) -> dict[str, Tensor]:
        groups = {"encoder": self.encoder, "critic": self.critic, "actor": self.actor}
        return {
            **{
                f"{name}.{k}": v for name, group in groups.items() for k, v in group.state().items()
            },
            "fixed_encoder.parameters": self.fixed_encoder,
            "target_fixed_encoder.parameters": self.target_fixed_encoder,
            "target_critic.parameters": self.target_critic,
            "target_actor.parameters": self.target_actor,
            "target_seen_min": self.target_seen_min,
            "target_seen_max": self.target_seen_max,
            "clip_min": self.clip_min,
            "clip_max": self.clip_max,
        }

    def update(
        self,
        batch: Batch,
        noise: Mapping[str, Tensor],
        active: Tensor | None,
        *,
        train_actor: bool,
        actors: Tensor | None = None,
    ) -> Tensor:
        """The paper's "TD7 Train Function", but for sampling and for the periodic copies."""
        with self.lanes.beside("encoder", *batch):
            self._train_encoder(batch, active)
        with self.lanes.beside("embedding", *batch):
            fixed_zs, fixed_zsa = self._fixed_embeddings(batch)

        y = self._value_target(batch, noise["target_policy"], active)
        self.lanes.join("embedding")
        priorities = self._train_critic(batch, fixed_zs, fixed_zsa, y, active)
        if train_actor:
            critic = self.lanes.kept(self.critic.flat)
            with self.lanes.beside("actor", *batch, fixed_zs, critic):
                self._train_actor(batch, fixed_zs, critic, active if actors is None else actors)
        return priorities

    @stage
    def _train_encoder(self, batch: Batch, active: Tensor | None) -> None:
        """(g(f(s), a) - |f(s')|x)^2; the target is the current encoder's."""
        next_zs = self.sale.zs(self.encoder.parameters, batch.next_state)

        def loss(encoder: Parameters) -> tuple[Tensor]:
            zsa = self.sale.zsa(encoder, self.sale.zs(encoder, batch.state), batch.action)
            return (losses.encoder_loss(zsa, next_zs),)

        (encoder_loss,) = self.encoder.descend(loss, active)
        self.record(active, encoder_loss=encoder_loss)

    @stage
    def _fixed_embeddings(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """z_t^s and z_t^sa, which the critics and the actor read."""
        fixed = unflatten(self.sale.layout, self.fixed_encoder)
        fixed_zs = self.sale.zs(fixed, batch.state)
        return fixed_zs, self.sale.zsa(fixed, fixed_zs, batch.action)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, active: Tensor | None) -> Tensor:
        """y = r + gamma clip(min Q_t(x), Qmin, Qmax), x = [z_{t-1}^{s'a'}, z_{t-1}^{s'}, s', a'].

        And Qmin <- min(Qmin, y), Qmax <- max(Qmax, y).
        """
        c = self.config
        target_fixed = unflatten(self.sale.layout, self.target_fixed_encoder)
        target_actor = unflatten(self.actor.layout, self.target_actor)
        target_critic = unflatten(self.critic.layout, self.target_critic)

        next_zs = self.sale.zs(target_fixed, batch.next_state)
        next_action = losses.smoothed_action(
            apply(self.actor_network, target_actor, state=batch.next_state, zs=next_zs),
            noise,
            c.target_noise,
            c.target_noise_clip,
        )
        next_zsa = self.sale.zsa(target_fixed, next_zs, next_action)
        next_q = self._q(target_critic, batch.next_state, next_action, next_zsa, next_zs)
        y = losses.value_target(
            batch.reward, batch.not_terminated, next_q, self.clip_min, self.clip_max, c.discount
        )
        # Differs from paper: followed at every update, in use only from the next target copy on.
        assign(self.target_seen_min, self.target_seen_min.minimum(y.flatten(1).amin(1)), active)
        assign(self.target_seen_max, self.target_seen_max.maximum(y.flatten(1).amax(1)), active)
        return y

    @stage
    def _train_critic(
        self,
        batch: Batch,
        fixed_zs: Tensor,
        fixed_zsa: Tensor,
        y: Tensor,
        active: Tensor | None,
    ) -> Tensor:
        """Huber(y - Q(z_t^sa, z_t^s, s, a)) of both critics; gives back LAP's priorities."""
        c = self.config

        def loss(critic: Parameters) -> tuple[Tensor, ...]:
            q = self._q(critic, batch.state, batch.action, fixed_zsa, fixed_zs)
            error = q - y.unsqueeze(1)
            return losses.lap_huber(error, c.min_priority), q, error

        critic_loss, q, error = self.critic.descend(loss, active)
        self.record(
            active,
            critic_loss=critic_loss,
            value=losses.per_member_mean(q),
            value_target=losses.per_member_mean(y),
            td_error=losses.per_member_mean(error.abs()),
            clip_min=self.clip_min,
            clip_max=self.clip_max,
        )
        return losses.lap_priority(error, c.min_priority, c.priority_exponent)

    @stage
    def _train_actor(
        self, batch: Batch, fixed_zs: Tensor, critic_flat: Tensor, active: Tensor | None
    ) -> None:
        """-Q + lambda |E[Q]|x (a_pi - a)^2, Q the mean of both critics at a_pi = pi(z_t^s, s)."""
        fixed = unflatten(self.sale.layout, self.fixed_encoder)
        critic = unflatten(self.critic.layout, critic_flat)

        def loss(actor: Parameters) -> tuple[Tensor]:
            action = apply(self.actor_network, actor, state=batch.state, zs=fixed_zs)
            zsa = self.sale.zsa(fixed, fixed_zs, action)
            q = self._q(critic, batch.state, action, zsa, fixed_zs)
            return (losses.actor_loss(q, action, batch.action, self.config.cloning_weight),)

        (actor_loss,) = self.actor.descend(loss, active)
        self.record(active, actor_loss=actor_loss)

    def _q(
        self, critic: Parameters, state: Tensor, action: Tensor, zsa: Tensor, zs: Tensor
    ) -> Tensor:
        """[S, 2, B, 1]: both critics' values."""
        return apply(self.critic_network, critic, state=state, action=action, zsa=zsa, zs=zs)

    def copy_targets(self, active: Tensor | None) -> None:
        """Each target and fixed network takes the network of the next iteration; then the clip."""
        assign(self.target_actor, self.actor.flat, active)
        assign(self.target_critic, self.critic.flat, active)
        assign(self.target_fixed_encoder, self.fixed_encoder, active)
        assign(self.fixed_encoder, self.encoder.flat, active)
        assign(self.clip_min, self.target_seen_min, active)
        assign(self.clip_max, self.target_seen_max, active)

    def policies(self) -> Tensor:
        """The fixed encoder's f, then the actor."""
        f_size = Layout.of(self.sale.f).size
        return torch.cat([self.fixed_encoder[:, :f_size], self.actor.flat], dim=1)

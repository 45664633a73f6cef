"""TD3: twin critics, delayed and smoothed deterministic policy (the paper's first baseline).

Glossary:
    q, y        both critics' values [S, 2, B, 1], and their value target [S, B, 1]
    x           the critics' inputs: (s, a); with an encoder [zsa, zs, s, a]
    zs, zsa     f(s) and g(zs, a) of the optional encoder, a part of the critics
    Q', pi'     the target critics and the target actor
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.learner import Batch, Turn, stage
from td7.algorithms.representations import Sale
from td7.algorithms.twin_critics import TwinCriticConfig, TwinCriticLearner, critic_metrics
from td7.configs import setting
from td7.networks.description import Layout, Network, mlp
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import descend_together, parameter_group, states
from td7.networks.stacked import Parameters, apply, unflatten
from td7.types import TaskSpec


@dataclass(frozen=True)
class TD3Config(TwinCriticConfig):
    """The paper's table "TD3 Hyperparameters", and the choices of its ablations."""

    target_update: str = setting(
        "polyak",
        "how targets follow: with every actor update, or copied every `target_every` updates",
        group="TD3",
        choices=("polyak", "copy"),
    )
    target_rate: float = setting(
        0.005,
        "Polyak rate of the target networks, tau",
        group="TD3",
        above=0,
        at_most=1,
        needs={"target_update": ("polyak",)},
        per_member=True,
        search="1e-3..0.02:log",
    )
    encoder: bool = setting(
        False,
        "SALE's encoder as part of the critics, trained by their loss",
        group="SALE",
        structural=True,
    )
    embedding_dim: int = setting(
        256,
        "width of the embeddings zs and zsa",
        group="SALE",
        at_least=1,
        structural=True,
        needs={"encoder": (True,)},
    )


def critic_network(state_dim: int, action_dim: int, config: TD3Config) -> Network:
    """Two critics: (s, a) -> 256 -> 256 -> 1, ReLU; with an encoder [zsa, zs, s, a] -> ..."""
    z, h, activation = config.embedding_dim, config.hidden_dim, config.critic_activation
    embeddings = {"zsa": z, "zs": z} if config.encoder else {}
    inputs = {**embeddings, "state": state_dim, "action": action_dim}
    return mlp(inputs, ("q1", "q2", "value"), (h, h, 1), activation, heads=2)


def actor_network(state_dim: int, action_dim: int, config: TD3Config) -> Network:
    """s -> 256 -> 256 -> action, ReLU and tanh."""
    names, widths = ("a1", "a2", "action"), (config.hidden_dim, config.hidden_dim, action_dim)
    return mlp({"state": state_dim}, names, widths, "relu", last_activation="tanh")


class TD3Learner(TwinCriticLearner):
    """TD3 and TD3+BC without the actor's loss."""

    def __init__(
        self,
        config: TD3Config,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config
        self.policy_every = c.actor_every
        dims = (task.state_dim, task.action_dim)
        self.sale = Sale.of(*dims, c.embedding_dim, c.hidden_dim)
        self.critic_network = critic_network(*dims, c)
        self.actor_network = self.policy_network = actor_network(*dims, c)

        start = (seeds, c.learning_rate, device, dtype)
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start)
        self.actor = parameter_group(Layout.of(self.actor_network), 2, *start)
        self.target_critic = self.critic.flat.clone()
        self.target_actor = self.actor.flat.clone()
        self.critics = {"critic": self.critic}  # the groups that the critics' loss trains
        self.target_critics = {"critic": self.target_critic}
        if c.encoder:
            self.critics["encoder"] = parameter_group(self.sale.layout, 0, *start)
            self.target_critics["encoder"] = self.critics["encoder"].flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(**self.critics, actor=self.actor),
            **{f"target_{name}.parameters": flat for name, flat in self.target_critics.items()},
            "target_actor.parameters": self.target_actor,
            **self.clip.state(),
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        """One step of the critics and, every second time, of the actor and the targets."""
        y = self._value_target(batch, noise["target_policy"], turn.active)
        priorities = self._train_critics(batch, y, turn.active)
        if turn.trains_actors:
            self._train_actor(batch, turn.actors)
        return priorities

    def _parameters(self, flats: Mapping[str, Tensor]) -> Parameters:
        """The parameters of all groups that the critics' loss trains, by name."""
        return {
            name: tensor
            for group, flat in flats.items()
            for name, tensor in unflatten(self.critics[group].layout, flat).items()
        }

    def _q(self, critics: Parameters, state: Tensor, action: Tensor) -> Tensor:
        """[S, 2, B, 1]: both critics' values."""
        x = {"state": state, "action": action}
        if self.config.encoder:
            x["zs"] = self.sale.zs(critics, state)
            x["zsa"] = self.sale.zsa(critics, x["zs"], action)
        return apply(self.critic_network, critics, **x)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, active: Tensor | None) -> Tensor:
        """y = r + gamma min Q'(s', a'), a' = pi'(s') + clipped noise; Q' may be clipped."""
        c = self.config
        actor = unflatten(self.actor.layout, self.target_actor)
        next_action = losses.smoothed_action(
            apply(self.actor_network, actor, state=batch.next_state),
            noise,
            c.target_noise,
            c.target_noise_clip,
        )
        next_q = self._q(self._parameters(self.target_critics), batch.next_state, next_action)
        next_value = self.clip.clipped(next_q.amin(dim=1))
        y = losses.value_target(batch.reward, batch.not_terminated, next_value, c.discount)
        self.clip.follow(y, active)
        return y

    @stage
    def _train_critics(self, batch: Batch, y: Tensor, active: Tensor | None) -> Tensor | None:
        """(y - Q(s, a))^2 of both critics; with LAP its Huber loss. Returns LAP's priorities."""

        def loss(critics: Parameters) -> tuple[Tensor, Tensor]:
            q = self._q(critics, batch.state, batch.action)
            return self.critic_loss(q - y.unsqueeze(1)), q

        critic_loss, q = descend_together(list(self.critics.values()), loss, active)
        error = q - y.unsqueeze(1)
        self.record(active, critic_loss=critic_loss, **critic_metrics(q, y, self.clip))
        return self.critic_loss.priorities(error)

    @stage
    def _train_actor(self, batch: Batch, active: Tensor | None) -> None:
        """-Q1(s, pi(s)); then the target networks follow."""
        c = self.config
        critics = self._parameters({name: group.flat for name, group in self.critics.items()})

        def loss(actor: Parameters) -> tuple[Tensor, Tensor]:
            action = apply(self.actor_network, actor, state=batch.state)
            q = self.actor_value(self._q(critics, batch.state, action))
            return self.actor_loss(q, action, batch.action), q

        actor_loss, q = self.actor.descend(loss, active)
        self.record(active, actor_loss=actor_loss, policy_value=losses.per_member_mean(q))
        if c.target_update == "polyak":
            for target, source in self._targets():
                polyak(target, source, c.target_rate, active)

    @abstractmethod
    def actor_loss(self, q: Tensor, action: Tensor, data_action: Tensor) -> Tensor:
        """The loss [S] for q [S, 1 or 2, B, 1] of the policy's actions."""

    def _targets(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs of a target network and the network that it follows."""
        critics = [(self.target_critics[name], group.flat) for name, group in self.critics.items()]
        return [*critics, (self.target_actor, self.actor.flat)]

    def copy_targets(self, active: Tensor | None) -> None:
        """Copy the target networks, unless they follow by Polyak; refresh the clipping bounds."""
        if self.config.target_update == "copy":
            for target, source in self._targets():
                assign(target, source, active)
        self.clip.refresh(active)

    def policies(self) -> Tensor:
        return self.actor.flat


class TD3(TD3Learner):
    def actor_loss(self, q: Tensor, action: Tensor, data_action: Tensor) -> Tensor:
        return losses.actor_loss(q, action, data_action, 0.0)

"""DDPG as a module outside the package: everything that an algorithm needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7.algorithms import (
    ALGORITHMS,
    Algorithm,
    Batch,
    Exploration,
    Layout,
    Learner,
    OnlineConfig,
    Parameters,
    TaskSpec,
    Turn,
    apply,
    losses,
    mlp,
    parameter_group,
    polyak,
    setting,
    stage,
    states,
    unflatten,
)


@dataclass(frozen=True)
class DDPGConfig(OnlineConfig):
    hidden_dim: int = setting(256, "width of every hidden layer", group="Networks", at_least=1)
    target_rate: float = setting(
        0.005, "Polyak rate, tau", group="DDPG", above=0, at_most=1, per_member=True
    )
    exploration_noise: float = setting(
        0.1, "on actions", group="Exploration", at_least=0, per_member=True
    )


class DDPG(Learner):
    metrics = ("critic_loss", "actor_loss", "value", "policy_value")
    actor_every = 1  # every update trains the actor
    is_prioritised = False

    def __init__(
        self,
        config: DDPGConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config
        self.exploration = Exploration("added_noise", c.exploration_noise)
        self.noise_shapes = {}  # an update takes no noise
        s, a, h = task.state_dim, task.action_dim, c.hidden_dim
        reads = {"state": s, "action": a}
        self.critic_network = mlp(reads, ("q1", "q2", "value"), (h, h, 1), "relu")
        names, widths = ("a1", "a2", "action"), (h, h, a)
        self.policy_network = mlp({"state": s}, names, widths, "relu", last_activation="tanh")
        start = (seeds, c.learning_rate, device, dtype)
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start)
        self.actor = parameter_group(Layout.of(self.policy_network), 2, *start)
        self.target_critic, self.target_actor = self.critic.flat.clone(), self.actor.flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(critic=self.critic, actor=self.actor),
            "target_critic.parameters": self.target_critic,
            "target_actor.parameters": self.target_actor,
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """One step of the critic, the actor and their targets."""
        del noise  # an update takes no noise
        y = self._value_target(batch)
        self._train_critic(batch, y, turn.active)
        self._train_actor(batch, turn.active)

    def _q(self, critic: Parameters, state: Tensor, action: Tensor) -> Tensor:
        return apply(self.critic_network, critic, state=state, action=action)

    @stage
    def _value_target(self, batch: Batch) -> Tensor:
        """y = r + gamma Q'(s', pi'(s'))."""
        actor = unflatten(self.actor.layout, self.target_actor)
        critic = unflatten(self.critic.layout, self.target_critic)
        action = apply(self.policy_network, actor, state=batch.next_state)
        q = self._q(critic, batch.next_state, action)
        return losses.value_target(batch.reward, batch.not_terminated, q, self.config.discount)

    @stage
    def _train_critic(self, batch: Batch, y: Tensor, active: Tensor | None) -> None:
        """(y - Q(s, a))^2."""

        def loss(critic: Parameters) -> tuple[Tensor, Tensor]:
            q = self._q(critic, batch.state, batch.action)
            return losses.per_member_mean((q - y).square()), q

        critic_loss, q = self.critic.descend(loss, active)
        self.record(active, critic_loss=critic_loss, value=losses.per_member_mean(q))

    @stage
    def _train_actor(self, batch: Batch, active: Tensor | None) -> None:
        """-Q(s, pi(s)); then the target networks follow."""
        critic = self.critic.parameters

        def loss(actor: Parameters) -> tuple[Tensor, None]:
            action = apply(self.policy_network, actor, state=batch.state)
            return -losses.per_member_mean(self._q(critic, batch.state, action)), None

        actor_loss, _ = self.actor.descend(loss, active)
        self.record(active, actor_loss=actor_loss, policy_value=-actor_loss)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        polyak(self.target_actor, self.actor.flat, self.config.target_rate, active)

    def copy_targets(self, active: Tensor | None) -> None:
        """Nothing to copy: the target networks follow with every update."""

    def policies(self) -> Tensor:
        return self.actor.flat


ALGORITHMS["ddpg"] = Algorithm("ddpg", "TD3 without what TD3 added", DDPGConfig, DDPG)

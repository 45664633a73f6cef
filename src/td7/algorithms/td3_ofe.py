"""TD3+OFE: TD3 on the features of OFENet, which learns to predict the next state.

Glossary:
    net         OFENet, trained by its own loss alone
    zs, zsa     its features of s and of (s, a), which include the raw s and a: named values
    q, y        both critics' values [S, 2, B, 1], and their value target [S, B, 1]
    Q', pi'     the target critics and the target actor
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.learner import Batch, Turn, stage
from td7.algorithms.representations import OFENet
from td7.algorithms.twin_critics import TwinCriticConfig, TwinCriticLearner, critic_metrics
from td7.configs import setting
from td7.errors import InputError
from td7.networks.description import Layout, Network, mlp
from td7.networks.masked import polyak
from td7.networks.optimiser import parameter_group, states
from td7.networks.stacked import BatchStatistics, Parameters, apply, follow, unflatten
from td7.types import Task, TaskSpec

# Layers per block of OFENet: the paper's table; 6 for other tasks.
LAYERS = {"HalfCheetah": 8, "Hopper": 6, "Walker2d": 6, "Ant": 6, "Humanoid": 8}
LAYERS_ELSEWHERE = 6
# Dimensions of the next state that are predicted; all for other tasks. Humanoid's last 84 of 376
# are external contact forces (cfrc_ext), which jump at every contact with the ground.
PREDICTED = {"Humanoid-v4": 292}

Features = dict[str, Tensor]  # name: [S, B, width]


@dataclass(frozen=True)
class TD3OFEConfig(TwinCriticConfig):
    """The paper's table "TD3 & TD3+OFE Hyperparameters"."""

    target_rate: float = setting(
        0.005,
        "Polyak rate of the target networks, tau",
        group="TD3",
        above=0,
        at_most=1,
        per_member=True,
        search="1e-3..0.02:log",
    )
    ofe_features: int = setting(
        240,
        "learned features of s, and as many of (s, a)",
        group="OFE",
        at_least=1,
        structural=True,
    )
    ofe_layers: int = setting(
        0,
        "layers per block; 0: the paper's number for its tasks, 6 for others",
        group="OFE",
        at_least=0,
        structural=True,
    )
    ofe_predicted_dims: int = setting(
        0,
        "leading dimensions of s' to predict; 0: 292 for Humanoid-v4, all for others",
        group="OFE",
        at_least=0,
        structural=True,
    )

    def for_task(self, task: Task) -> Self:
        layers = self.ofe_layers or LAYERS.get(task.family, LAYERS_ELSEWHERE)
        predicted = self.ofe_predicted_dims or PREDICTED.get(task.name, 0)
        return replace(self, ofe_layers=layers, ofe_predicted_dims=predicted)


def critic_network(zsa: Mapping[str, int], config: TD3OFEConfig) -> Network:
    """Two critics: zsa -> 256 -> 256 -> 1, ReLU."""
    h = config.hidden_dim
    widths = (h, h, 1)
    return mlp(zsa, ("q1", "q2", "value"), widths, config.critic_activation, heads=2)


def actor_network(zs: Mapping[str, int], action_dim: int, config: TD3OFEConfig) -> Network:
    """zs -> 256 -> 256 -> action, ReLU and tanh."""
    names, widths = ("a1", "a2", "action"), (config.hidden_dim, config.hidden_dim, action_dim)
    return mlp(zs, names, widths, "relu", last_activation="tanh")


class TD3OFE(TwinCriticLearner):
    metrics = ("ofe_loss", *TwinCriticLearner.metrics)

    def __init__(
        self,
        config: TD3OFEConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config.for_task(task.task)
        self.predicted_dim = c.ofe_predicted_dims or task.state_dim
        if self.predicted_dim > task.state_dim:
            raise InputError(
                f"ofe_predicted_dims={self.predicted_dim} must be at most {task.state_dim}, the "
                "state's"
            )
        if c.ofe_features % c.ofe_layers:
            raise InputError(
                f"ofe_features={c.ofe_features} must be a multiple of ofe_layers={c.ofe_layers}"
            )
        self.ofe = OFENet.of(
            task.state_dim, task.action_dim, c.ofe_features, c.ofe_layers, self.predicted_dim
        )
        self.critic_network = critic_network(self.ofe.zsa_widths, c)
        self.actor_network = actor_network(self.ofe.zs_widths, task.action_dim, c)
        self.policy_network = self.ofe.state_block.then(self.actor_network)

        start = (seeds, c.learning_rate, device, dtype)
        self.net = parameter_group(self.ofe.layout, 0, *start)
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start)
        self.actor = parameter_group(Layout.of(self.actor_network), 2, *start)
        self.target_critic = self.critic.flat.clone()
        self.target_actor = self.actor.flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(ofe=self.net, critic=self.critic, actor=self.actor),
            "target_critic.parameters": self.target_critic,
            "target_actor.parameters": self.target_actor,
            **self.clip.state(),
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> Tensor | None:
        """One step of OFENet, the critics and, every second time, the actor and the targets."""
        self._train_net(batch, turn.active)
        zs, zsa, y = self._features_and_target(batch, noise["target_policy"], turn.active)
        priorities = self._train_critics(zsa, y, turn.active)
        if turn.trains_actors:
            self._train_actor(batch, zs, turn.actors)
        return priorities

    @stage
    def _train_net(self, batch: Batch, active: Tensor | None) -> None:
        """(predicted s' - s')^2; batch norms are in training mode only here."""
        ofe_loss, statistics = self.net.descend(lambda net: self._net_loss(net, batch), active)
        follow(self.net.layout, self.net.flat, statistics, active)
        self.record(active, ofe_loss=ofe_loss)

    def _net_loss(self, net: Parameters, batch: Batch) -> tuple[Tensor, BatchStatistics]:
        statistics: BatchStatistics = {}
        zs = self.ofe.zs(net, batch.state, statistics)
        predicted = self.ofe.next_state(net, zs, batch.action, statistics)
        target = batch.next_state[..., : self.predicted_dim]
        return losses.per_member_mean((predicted - target).square()), statistics

    @stage
    def _features_and_target(
        self, batch: Batch, noise: Tensor, active: Tensor | None
    ) -> tuple[Features, Features, Tensor]:
        """zs, zsa and y = r + gamma min Q'(zsa'), a' = pi'(zs') + clipped noise.

        The current net reads (s, a) and (s', a') in one pass, because its many small layers take
        hardly longer for both than for one.
        """
        c, net = self.config, self.net.parameters
        actor = unflatten(self.actor.layout, self.target_actor)
        critic = unflatten(self.critic.layout, self.target_critic)
        both_zs = self.ofe.zs(net, torch.cat([batch.state, batch.next_state], dim=1))
        zs, next_zs = _halves(both_zs)
        next_action = losses.smoothed_action(
            apply(self.actor_network, actor, **next_zs), noise, c.target_noise, c.target_noise_clip
        )
        both_actions = torch.cat([batch.action, next_action], dim=1)
        zsa, next_zsa = _halves(self.ofe.zsa(net, both_zs, both_actions))
        next_value = self.clip.clipped(apply(self.critic_network, critic, **next_zsa).amin(dim=1))
        y = losses.value_target(batch.reward, batch.not_terminated, next_value, c.discount)
        self.clip.follow(y, active)
        return zs, zsa, y

    @stage
    def _train_critics(self, zsa: Features, y: Tensor, active: Tensor | None) -> Tensor | None:
        """(y - Q(zsa))^2 of both critics; it does not train OFENet."""

        def loss(critic: Parameters) -> tuple[Tensor, Tensor]:
            q = apply(self.critic_network, critic, **zsa)
            return self.critic_loss(q - y.unsqueeze(1)), q

        critic_loss, q = self.critic.descend(loss, active)
        error = q - y.unsqueeze(1)
        self.record(active, critic_loss=critic_loss, **critic_metrics(q, y, self.clip))
        return self.critic_loss.priorities(error)

    @stage
    def _train_actor(self, batch: Batch, zs: Features, active: Tensor | None) -> None:
        """-Q1(zsa), a = pi(zs), through OFENet; then both target networks follow."""
        c, net, critic = self.config, self.net.parameters, self.critic.parameters

        def loss(actor: Parameters) -> tuple[Tensor, Tensor]:
            action = apply(self.actor_network, actor, **zs)
            q = apply(self.critic_network, critic, **self.ofe.zsa(net, zs, action))
            q = self.actor_value(q)
            return losses.actor_loss(q, action, batch.action, 0.0), q

        actor_loss, q = self.actor.descend(loss, active)
        self.record(active, actor_loss=actor_loss, policy_value=losses.per_member_mean(q))
        polyak(self.target_critic, self.critic.flat, c.target_rate, active)
        polyak(self.target_actor, self.actor.flat, c.target_rate, active)

    def copy_targets(self, active: Tensor | None) -> None:
        """Refresh the clipping bounds; the target networks follow with every actor update."""
        self.clip.refresh(active)

    def policies(self) -> Tensor:
        """OFENet's block of the state, followed by the actor."""
        size = Layout.of(self.ofe.state_block).size
        return torch.cat([self.net.flat[:, :size], self.actor.flat], dim=1)


def _halves(features: Features) -> tuple[Features, Features]:
    """The features of the first and the second half of a batch [S, 2 B, ...]."""
    pairs = {name: x.chunk(2, dim=1) for name, x in features.items()}
    return {name: x for name, (x, _) in pairs.items()}, {name: x for name, (_, x) in pairs.items()}

"""IQL: values by expectile regression on the data's actions, and cloning weighted by advantage.

Glossary:
    q           min(Q1', Q2')(s, a): the target critics' value of the data's action [S, B, 1]
    v           V(s) [S, B, 1]
    y           the value target of the critics [S, B, 1]
    weight      the weight of cloning an action [S, B, 1]

Sources of values, in full in docs/reproduction/offline-sources.md: files of the authors' programs,
IQL's with the paper's command and X-QL's, which is built on it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.twin_critics import value_metrics
from td7.configs import setting
from td7.networks.description import Layout, mlp
from td7.networks.masked import polyak
from td7.networks.optimiser import MOMENTS, cosine, parameter_group, states
from td7.networks.stacked import Parameters, apply, orthogonal_start, unflatten
from td7.types import Exploration, Float32, Float64, RowLayout, TaskSpec

LOG_STD_BOUNDS = (-5.0, 2.0)  # IQL's learner.py and policy.py
ACTION_LIMIT = 1 - 1e-5  # bound on the data's actions: IQL's dataset_utils.py
RETURN_RANGE = 1000.0  # range of returns after scaling: train_offline.py of both, `normalize`
# A trajectory ends where s' is further than this from the next row's s: IQL's dataset_utils.py.
SAME_STATE = 1e-6


@dataclass(frozen=True)
class InSampleConfig(LearnerConfig):
    """The hyperparameters that IQL and X-QL share, from their programs for D4RL's MuJoCo tasks.

    The learning rate is in mujoco_config.py of both. All offline agents share discount and batch
    size; the paper's C.3 gives X-QL's batch size.
    """

    # mujoco_config.py of IQL and X-QL, `hidden_dims`
    hidden_dim: int = setting(
        256, "width of every hidden layer", group="Networks", at_least=1, structural=True
    )
    # mujoco_config.py of IQL and X-QL, `tau`
    target_rate: float = setting(
        0.005,
        "Polyak rate of the target critics, tau",
        group="Common",
        above=0,
        at_most=1,
        per_member=True,
    )
    # mujoco_config.py of IQL and X-QL, `temperature`
    advantage_temperature: float = setting(
        3.0,
        "factor in the cloning weights exp(factor (q - v))",
        group="Policy",
        at_least=0,
        per_member=True,
        search="0.3..10:log",
    )
    # actor.py of IQL and X-QL
    largest_weight: float = setting(
        100.0,
        "maximum of the cloning weights",
        group="Policy",
        above=0,
        per_member=True,
    )
    # IQL's learner.py, `opt_decay_schedule` and `max_steps`
    decay_updates: int = setting(
        1_000_000,
        "updates over which the policy's learning rate falls to 0 along a cosine",
        group="Policy",
        at_least=1,
        per_member=True,
    )


@dataclass(frozen=True)
class IQLConfig(InSampleConfig):
    # mujoco_config.py, `expectile`
    expectile: float = setting(
        0.7,
        "expectile of q that v learns",
        group="IQL",
        above=0,
        at_most=1,
        per_member=True,
        search="0.6..0.95",
    )


class InSampleLearner(Learner):
    """IQL and X-QL without the losses of value and critics."""

    config: InSampleConfig
    value_norm = "none"  # norm of the value network's hidden layers

    metrics = (
        "value_loss",
        "critic_loss",
        "actor_loss",
        "value",
        "state_value",
        "value_target",
        "td_error",
        "advantage_weight",
        "policy_std",
    )

    def __init__(
        self,
        config: InSampleConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config
        self.exploration = Exploration("added_noise", 0.0)
        # The learning rate falls with the actor's steps, perhaps to 0 in the run before.
        self.begins_anew = tuple(f"actor.{name}" for name in MOMENTS)
        self.actor_every = 1
        self.is_prioritised = False
        self.noise_shapes = {}
        state = {"state": task.state_dim}
        both = {**state, "action": task.action_dim}
        hidden = (c.hidden_dim, c.hidden_dim)
        self.value_network = mlp(
            state, ("v1", "v2", "value"), (*hidden, 1), "relu", norm=self.value_norm
        )
        self.critic_network = mlp(both, ("q1", "q2", "value"), (*hidden, 1), "relu", heads=2)
        self.actor_network = self.policy_network = mlp(
            state,
            ("a1", "a2", "action"),
            (*hidden, task.action_dim),
            "relu",
            last_activation="tanh",
        )
        actor = Layout.of(self.actor_network).with_parameter("log_std", task.action_dim, 0.0)

        start = (seeds, c.learning_rate, device, dtype)
        orthogonal = orthogonal_start
        self.value = parameter_group(Layout.of(self.value_network), 0, *start, start=orthogonal)
        self.critic = parameter_group(Layout.of(self.critic_network), 1, *start, start=orthogonal)
        self.actor = parameter_group(
            actor, 2, *start, start=orthogonal, schedule=cosine(c.decay_updates)
        )
        self.target_critic = self.critic.flat.clone()

    @abstractmethod
    def value_loss(self, difference: Tensor) -> Tensor:
        """The loss [S] for q - v [S, B, 1]."""

    @abstractmethod
    def critic_loss(self, error: Tensor) -> Tensor:
        """The loss [S] for Q - y [S, 2, B, 1]."""

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """Scale rewards by 1000 / (range of returns), clip actions slightly within [-1, 1]."""
        rows = rows.copy()
        parts = layout.split(rows)
        np.clip(parts.action, -ACTION_LIMIT, ACTION_LIMIT, out=parts.action)
        returns = trajectory_returns(rows, layout)
        spread = returns.max() - returns.min()
        if spread > 0:  # a single trajectory has no range
            parts.reward[:] *= RETURN_RANGE / spread
        return rows

    def state(self) -> dict[str, Tensor]:
        return {
            **states(value=self.value, critic=self.critic, actor=self.actor),
            "target_critic.parameters": self.target_critic,
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """One step of the value network, the policy, the critics and their targets."""
        del noise  # an update takes no noise
        active = turn.active  # every update trains every network
        weight = self._train_value(batch, active)
        self._train_actor(batch, weight, active)
        self._train_critics(batch, active)

    def _v(self, value: Parameters, state: Tensor) -> Tensor:
        return apply(self.value_network, value, state=state)

    @stage
    def _train_value(self, batch: Batch, active: Tensor | None) -> Tensor:
        """The loss of q - V(s); returns the weights of cloning, from V after its step."""
        target = unflatten(self.critic.layout, self.target_critic)
        q = apply(self.critic_network, target, state=batch.state, action=batch.action).amin(dim=1)
        value_loss, _ = self.value.descend(
            lambda value: (self.value_loss(q - self._v(value, batch.state)), None), active
        )
        c = self.config
        v = self._v(self.value.parameters, batch.state)
        weight = losses.advantage_weight(q - v, c.advantage_temperature, c.largest_weight)
        self.record(
            active,
            value_loss=value_loss,
            state_value=losses.per_member_mean(v),
            advantage_weight=losses.per_member_mean(weight),
        )
        return weight

    @stage
    def _train_actor(self, batch: Batch, weight: Tensor, active: Tensor | None) -> None:
        """-weight log N(a | tanh(mean(s)), std^2); std does not depend on the state."""

        def loss(actor: Parameters) -> tuple[Tensor, Tensor]:
            mean = apply(self.actor_network, actor, state=batch.state)
            log_std = actor["log_std"].clamp(*LOG_STD_BOUNDS).unsqueeze(1)
            noise = (batch.action - mean) / log_std.exp()
            log_prob = losses.gaussian_log_prob(log_std, noise).sum(dim=-1, keepdim=True)
            return -losses.per_member_mean(weight * log_prob), log_std.exp()

        actor_loss, std = self.actor.descend(loss, active)
        self.record(active, actor_loss=actor_loss, policy_std=losses.per_member_mean(std))

    @stage
    def _train_critics(self, batch: Batch, active: Tensor | None) -> None:
        """The loss of Q - y, y = r + gamma V(s'); then the target critics follow."""
        next_value = self._v(self.value.parameters, batch.next_state)
        y = losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

        def loss(critic: Parameters) -> tuple[Tensor, Tensor]:
            q = apply(self.critic_network, critic, state=batch.state, action=batch.action)
            return self.critic_loss(q - y.unsqueeze(1)), q

        critic_loss, q = self.critic.descend(loss, active)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        self.record(
            active,
            critic_loss=critic_loss,
            **value_metrics(q, y),
        )

    def copy_targets(self, active: Tensor | None) -> None:
        """Nothing to copy: the target critics follow with every update."""

    def policies(self) -> Tensor:
        return self.actor.flat[:, : Layout.of(self.actor_network).size]


class IQL(InSampleLearner):
    config: IQLConfig

    def value_loss(self, difference: Tensor) -> Tensor:
        return losses.expectile_loss(difference, self.config.expectile)

    def critic_loss(self, error: Tensor) -> Tensor:
        return losses.squared_error(error)


def trajectory_returns(rows: Float32, layout: RowLayout) -> Float64:
    """The sum of rewards of each trajectory: up to a terminal, a jump of the state or the end."""
    parts = layout.split(rows)
    jumps = np.linalg.norm(parts.state[1:] - parts.next_state[:-1], axis=1) > SAME_STATE
    ends = np.append(jumps, True) | (parts.not_terminated[:, 0] == 0)
    starts = np.flatnonzero(np.append(True, ends[:-1]))
    returns: Float64 = np.add.reduceat(parts.reward[:, 0].astype(float), starts)
    return returns

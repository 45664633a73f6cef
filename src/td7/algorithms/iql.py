"""IQL: values learned by expectiles of the data's own actions, a policy cloned by advantage.

Glossary:
    q           min(Q1', Q2')(s, a): the target critics' value of the data's action
    v           V(s)
    y           the value target that the critics learn
    weight      how much the policy clones an action

Sources of values, in full in docs/offline-sources.md: files of the authors' programs, IQL's at the
paper's command and X-QL's, which is built on it.
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
from td7.networks.optimiser import cosine, parameter_group, states
from td7.networks.stacked import Parameters, apply, orthogonal_start, unflatten
from td7.types import Exploration, Float32, RowLayout, TaskSpec

LOG_STD_BOUNDS = (-5.0, 2.0)  # IQL's learner.py and policy.py
ACTION_LIMIT = 1 - 1e-5  # data's actions are kept within: IQL's dataset_utils.py
RETURN_RANGE = 1000.0  # that rewards are scaled to: train_offline.py of both, `normalize`
# A next state further than this from the next row's state ends a piece: IQL's dataset_utils.py.
SAME_STATE = 1e-6


@dataclass(frozen=True)
class InSampleConfig(LearnerConfig):
    """What IQL and X-QL share: the authors' programs for D4RL's MuJoCo tasks.

    Learning rate: mujoco_config.py of both. Discount and batch are the same in all offline agents;
    the paper's C.3 says X-QL's batch.
    """

    # mujoco_config.py of both, `hidden_dims`
    hidden_dim: int = setting(256, "width of every hidden layer", group="Networks", at_least=1)
    # mujoco_config.py of both, `tau`
    target_rate: float = setting(
        0.005, "Polyak rate of the target critics, tau", group="Common", above=0, at_most=1
    )
    # mujoco_config.py of both, `temperature`
    advantage_temperature: float = setting(
        3.0,
        "factor of the advantage in the weights exp(factor (q - v))",
        group="Policy",
        at_least=0,
    )
    # actor.py of both
    largest_weight: float = setting(
        100.0, "where those weights are clipped", group="Policy", above=0
    )
    # IQL's learner.py, `opt_decay_schedule` and `max_steps`
    decay_updates: int = setting(
        1_000_000,
        "updates over which the policy's rate falls to 0, as a cosine",
        group="Policy",
        at_least=1,
    )


@dataclass(frozen=True)
class IQLConfig(InSampleConfig):
    # mujoco_config.py, `expectile`
    expectile: float = setting(
        0.7, "of the data's actions that v learns", group="IQL", above=0, at_most=1
    )


class InSampleLearner(Learner):
    """IQL and X-QL but for the losses of value and critics."""

    config: InSampleConfig
    value_norm = "none"  # in the value network's hidden layers

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
        """[S], of q - v [S, B, 1]."""

    @abstractmethod
    def critic_loss(self, error: Tensor) -> Tensor:
        """[S], of Q - y [S, 2, B, 1]."""

    def prepare_rows(self, rows: Float32, layout: RowLayout) -> Float32:
        """Rewards times 1000 over the range of returns; actions a little within [-1, 1]."""
        rows = rows.copy()
        parts = layout.split(rows)
        np.clip(parts.action, -ACTION_LIMIT, ACTION_LIMIT, out=parts.action)
        returns = piece_returns(rows, layout)
        spread = returns.max() - returns.min()
        if spread > 0:  # of one piece, or of equal ones, there is no range
            parts.reward[:] *= RETURN_RANGE / spread
        return rows

    def state(self) -> dict[str, Tensor]:
        return {
            **states(value=self.value, critic=self.critic, actor=self.actor),
            "target_critic.parameters": self.target_critic,
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """The value's, the policy's and the critics' step, and the target critics'."""
        del noise  # there is none
        active = turn.active  # every update trains all
        weight = self._train_value(batch, active)
        self._train_actor(batch, weight, active)
        self._train_critics(batch, active)

    def _v(self, value: Parameters, state: Tensor) -> Tensor:
        return apply(self.value_network, value, state=state)

    @stage
    def _train_value(self, batch: Batch, active: Tensor | None) -> Tensor:
        """The loss of q - V(s); gives back the weights of cloning, by V after its step."""
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
        """-weight log N(a | tanh(mean(s)), std^2), std the same in every state."""

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
        """The loss of Q - y, y = r + gamma V(s'); then the target critics take a step."""
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
        """Nothing: the target critics take a step with every update."""

    def policies(self) -> Tensor:
        return self.actor.flat[:, : Layout.of(self.actor_network).size]


class IQL(InSampleLearner):
    config: IQLConfig

    def value_loss(self, difference: Tensor) -> Tensor:
        return losses.expectile_loss(difference, self.config.expectile)

    def critic_loss(self, error: Tensor) -> Tensor:
        return losses.squared_error(error)


def piece_returns(rows: Float32, layout: RowLayout) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Sums of rewards over the data's pieces: up to a terminal, to a jump, to the last row."""
    parts = layout.split(rows)
    jumps = np.linalg.norm(parts.state[1:] - parts.next_state[:-1], axis=1) > SAME_STATE
    ends = np.append(jumps, True) | (parts.not_terminated[:, 0] == 0)
    starts = np.flatnonzero(np.append(True, ends[:-1]))
    return np.add.reduceat(parts.reward[:, 0].astype(float), starts)

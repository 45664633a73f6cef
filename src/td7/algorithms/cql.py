"""CQL: SAC whose critics have low values at actions outside the data (offline).

Glossary:
    q, y        both critics' values [S, 2, B, 1], and their value target [S, B, 1]
    sampled     3N actions: N uniform ones, N of pi(s') and N of pi(s), all valued at s
    push        the conservative loss: it lowers q at the sampled actions, raises it at the data's
    alpha       the temperature of the policy's entropy
    u           an action before tanh

Sources of values, in full in docs/reproduction/offline-sources.md: the paper's command, files of
the authors' program, and of rlkit, on which it is built.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.maximum_entropy import (
    PolicyAux,
    descend_temperature,
    sample_squashed,
    temperature,
)
from td7.algorithms.twin_critics import value_metrics
from td7.configs import setting
from td7.networks.description import Layer, Layout, Network, Parameter, mlp
from td7.networks.masked import polyak
from td7.networks.optimiser import parameter_group, states
from td7.networks.scalars import spread
from td7.networks.stacked import Parameters, Start, apply, unflatten, values
from td7.types import Exploration, Float64, TaskSpec

LOG_STD_BOUNDS = (-5.0, 2.0)  # policies.py; rlkit itself has (-20, 2)
# Bound of the policy's mean in the density of the data's actions: policies.py, `log_prob`.
CLONED_MEAN_BOUND = 9.0
# Bounds of the last layers' initial weights: rlkit's networks.py, and policies.py.
CRITIC_LAST_WEIGHT, POLICY_LAST_WEIGHT = 3e-3, 1e-3


@dataclass(frozen=True)
class CQLConfig(LearnerConfig):
    """The authors' program with the paper's command: CQL(H) with a fixed weight.

    All offline agents share discount and batch size.
    """

    # cql_mujoco_new.py, `qf_lr`
    learning_rate: float = setting(
        3e-4,
        "Adam's learning rate, for the critics",
        group="Optimiser",
        above=0,
        per_member=True,
        search="3e-5..3e-3:log",
    )
    # the paper's C.3, `--policy_lr`; cql.py has the same for the temperature
    policy_learning_rate: float = setting(
        3e-5,
        "Adam's learning rate, for policy and temperature",
        group="Optimiser",
        above=0,
        per_member=True,
        search="3e-6..3e-4:log",
    )
    # cql_mujoco_new.py, `layer_size`, of three layers
    hidden_dim: int = setting(
        256, "width of every hidden layer", group="Networks", at_least=1, structural=True
    )
    # the same
    hidden_layers: int = setting(
        3, "hidden layers per network", group="Networks", at_least=1, structural=True
    )
    # `soft_target_tau`
    target_rate: float = setting(
        0.005,
        "Polyak rate of the target critics, tau",
        group="Common",
        above=0,
        at_most=1,
        per_member=True,
    )
    # cql.py, `use_automatic_entropy_tuning`
    target_entropy_per_dimension: float = setting(
        -1.0,
        "target entropy of the policy per action dimension",
        group="SAC",
        per_member=True,
    )
    # the paper's C.3, `--min_q_weight`
    conservative_weight: float = setting(
        10.0,
        "weight of the conservative loss",
        group="CQL",
        at_least=0,
        per_member=True,
        search="1..30:log",
    )
    # `num_random`
    sampled_actions: int = setting(
        10, "sampled actions of each kind: uniform, pi(s') and pi(s)", group="CQL", at_least=1
    )
    # `--policy_eval_start`
    cloning_updates: int = setting(
        40_000,
        "update from which on the policy maximises values; before, it clones",
        group="CQL",
        at_least=0,
        per_member=True,
    )


def rlkit_start(last: float) -> Start:
    """Hidden weights within 1/sqrt(width), biases 0.1; weights of last layers within `last`.

    From rlkit's pytorch_util.py and networks.py.
    """

    def start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        layer, _, kind = p.name.rpartition(".")
        if layer in ("value", "action", "log_std"):
            return random.uniform(-last, last, shape)
        if kind == "bias":
            return np.full(shape, 0.1)
        return random.uniform(-(shape[1] ** -0.5), shape[1] ** -0.5, shape)

    return start


class CriticAux(NamedTuple):
    q: Tensor  # [S, 2, B, 1], of the data's actions
    push: Tensor  # [S]


class CQL(Learner):
    metrics = (
        "critic_loss",
        "conservative_loss",
        "actor_loss",
        "value",
        "policy_value",
        "value_target",
        "td_error",
        "entropy",
        "temperature",
    )

    def __init__(
        self,
        config: CQLConfig,
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
        actions = (c.batch_size, task.action_dim)
        sampled = (c.sampled_actions, *actions)
        self.noise_shapes = {
            "policy": actions,
            "next_policy": actions,
            "sampled": sampled,
            "next_sampled": sampled,
            "random": sampled,
        }
        self.action_dim = task.action_dim
        self.target_entropy = c.target_entropy_per_dimension * task.action_dim
        count, widths = c.hidden_layers, (c.hidden_dim,) * c.hidden_layers
        self.critic_network = mlp(
            {"state": task.state_dim, "action": task.action_dim},
            (*(f"q{i}" for i in range(1, count + 1)), "value"),
            (*widths, 1),
            "relu",
            heads=2,
        )
        names = tuple(f"a{i}" for i in range(1, count + 1))
        body = mlp({"state": task.state_dim}, names, widths, "relu", last_activation="relu")
        heads = (
            Layer("log_std", names[-1:], task.action_dim),
            Layer("action", names[-1:], task.action_dim, activation="tanh"),
        )
        self.actor_network = self.policy_network = Network(body.inputs, (*body.layers, *heads))

        rate, policy_rate, placement = c.learning_rate, c.policy_learning_rate, (device, dtype)
        start = rlkit_start(CRITIC_LAST_WEIGHT)
        layout = Layout.of(self.critic_network)
        self.critic = parameter_group(layout, 1, seeds, rate, *placement, start=start)
        start = rlkit_start(POLICY_LAST_WEIGHT)
        layout = Layout.of(self.actor_network)
        self.actor = parameter_group(layout, 2, seeds, policy_rate, *placement, start=start)
        self.temperature = temperature(len(seeds), policy_rate, *placement)
        # Differs from paper: target critics start as copies; the authors' program draws weights of
        # their own for them.
        self.target_critic = self.critic.flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(critic=self.critic, actor=self.actor, temperature=self.temperature),
            "target_critic.parameters": self.target_critic,
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """One step of the temperature, the policy, the critics and their targets.

        The critics' loss has actions of the policy before its step, and the policy's loss has the
        critics before theirs.
        """
        active = turn.active  # every update trains every network
        y = self._value_target(batch, noise["next_policy"])
        actions, log_density = self._sample_actions(batch, noise)
        self._train_actor(batch, noise["policy"], active)
        self._train_critics(batch, y, actions, log_density, active)

    def _gaussian(self, actor: Parameters, state: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and log std of u."""
        outputs = values(self.actor_network, actor, state=state)
        return outputs["action.linear"], outputs["log_std"].clamp(*LOG_STD_BOUNDS)

    def _q(self, critic: Parameters, state: Tensor, action: Tensor) -> Tensor:
        """[S, 2, B, 1]: both critics' values."""
        return apply(self.critic_network, critic, state=state, action=action)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor) -> Tensor:
        """y = r + gamma min Q'(s', a'), a' ~ pi(s'), without the entropy."""
        mean, log_std = self._gaussian(self.actor.parameters, batch.next_state)
        action, _ = sample_squashed(mean, log_std, noise, losses.tanh_correction_epsilon)
        critic = unflatten(self.critic.layout, self.target_critic)
        next_value = self._q(critic, batch.next_state, action).amin(dim=1)
        return losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

    @stage
    def _sample_actions(self, batch: Batch, noise: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The sampled actions [S, 3N, B, A] and the logarithms of their densities [S, 3N, B, 1]."""
        # The error function makes standard normals uniform.
        uniform = torch.erf(noise["random"] / math.sqrt(2))
        density = uniform.new_full((*uniform.shape[:-1], 1), self.action_dim * math.log(0.5))
        samples = [(uniform, density)]
        for state, name in ((batch.next_state, "next_sampled"), (batch.state, "sampled")):
            mean, log_std = self._gaussian(self.actor.parameters, state)
            gaussian = (mean.unsqueeze(1), log_std.unsqueeze(1), noise[name])
            samples.append(sample_squashed(*gaussian, losses.tanh_correction_epsilon))
        actions, log_densities = zip(*samples, strict=True)
        return torch.cat(actions, dim=1), torch.cat(log_densities, dim=1)

    @stage
    def _train_actor(self, batch: Batch, noise: Tensor, active: Tensor | None) -> None:
        """alpha log pi(a_pi | s) - min Q(s, a_pi), a_pi ~ pi(s); alpha takes its step first.

        In the first updates log pi(a | s) of the data's action replaces Q.
        """
        actor = self.actor.parameters
        mean, log_std = self._gaussian(actor, batch.state)
        _, log_prob = sample_squashed(mean, log_std, noise, losses.tanh_correction_epsilon)
        descend_temperature(self.temperature, log_prob, self.target_entropy, active)
        alpha = self.temperature.parameters["log_alpha"].exp()  # [S, 1]
        count = self.actor.count
        clones = (count + 1 < spread(self.config.cloning_updates, count)).unsqueeze(-1)  # [S, 1, 1]
        critic = self.critic.parameters

        def loss(actor: Parameters) -> tuple[Tensor, PolicyAux]:
            mean, log_std = self._gaussian(actor, batch.state)
            action, log_prob = sample_squashed(mean, log_std, noise, losses.tanh_correction_epsilon)
            q = self._q(critic, batch.state, action).amin(dim=1)
            objective = torch.where(clones, _log_prob(mean, log_std, batch.action), q)
            loss = losses.per_member_mean(alpha.unsqueeze(-1) * log_prob - objective)
            return loss, PolicyAux(q, log_prob)

        actor_loss, aux = self.actor.descend(loss, active)
        self.record(
            active,
            actor_loss=actor_loss,
            policy_value=losses.per_member_mean(aux.q),
            entropy=-losses.per_member_mean(aux.log_prob),
            temperature=alpha.squeeze(-1),
        )

    @stage
    def _train_critics(
        self, batch: Batch, y: Tensor, actions: Tensor, log_density: Tensor, active: Tensor | None
    ) -> None:
        """(Q - y)^2 and the push, of both critics; then the target critics follow."""
        count = actions.shape[1]
        flat = actions.flatten(1, 2)  # [S, 3N * B, A]
        repeated = batch.state.repeat(1, count, 1)

        def loss(critic: Parameters) -> tuple[Tensor, CriticAux]:
            q = self._q(critic, batch.state, batch.action)
            sampled = self._q(critic, repeated, flat)
            sampled = sampled.view(*sampled.shape[:2], count, -1, 1)
            push = losses.conservative_loss(sampled, log_density, q)
            push = spread(self.config.conservative_weight, push) * push
            return losses.squared_error(q - y.unsqueeze(1)) + push, CriticAux(q, push)

        critic_loss, aux = self.critic.descend(loss, active)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        self.record(
            active,
            critic_loss=critic_loss,
            conservative_loss=aux.push,
            **value_metrics(aux.q, y),
        )

    def copy_targets(self, active: Tensor | None) -> None:
        """Nothing to copy: the target critics follow with every update."""

    def policies(self) -> Tensor:
        return self.actor.flat


def _log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log pi(a | s) of the data's actions, [S, B, 1]."""
    bounded = mean.clamp(-CLONED_MEAN_BOUND, CLONED_MEAN_BOUND)
    u = losses.inverse_tanh(action)
    noise = (u - bounded) / log_std.exp()
    correction = torch.log(1 - action.square() + 1e-6)
    return (losses.gaussian_log_prob(log_std, noise) - correction).sum(dim=-1, keepdim=True)

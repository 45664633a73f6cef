"""CQL: SAC whose critics are pushed down where the data has no actions (offline).

Glossary:
    q, y        both critics' values [S, 2, B, 1], and the value target they learn [S, B, 1]
    sampled     N actions each, uniform, of pi(s') and of pi(s), all valued at s
    alpha       the temperature of the policy's entropy

Sources of values, in full in docs/offline-sources.md: the paper's command, files of the authors'
program, and of rlkit, which it is built on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.maximum_entropy import squashed, temperature
from td7.algorithms.twin_critics import value_metrics
from td7.configs import setting
from td7.networks.description import Layer, Layout, Network, Parameter, mlp
from td7.networks.masked import polyak
from td7.networks.optimiser import Results, parameter_group, states
from td7.networks.stacked import Parameters, Start, apply, unflatten, values
from td7.types import Exploration, Float64, TaskSpec

LOG_STD_BOUNDS = (-5.0, 2.0)  # policies.py; rlkit's own are (-20, 2)
# On the policy's mean before tanh, in the density of the data's actions: policies.py, `log_prob`.
CLONED_MEAN_BOUND = 9.0
# Within which the weights of last layers begin: rlkit's networks.py, and policies.py.
CRITICS_LAST, POLICYS_LAST = 3e-3, 1e-3


@dataclass(frozen=True)
class CQLConfig(LearnerConfig):
    """The authors' program at the paper's command: CQL(H) with a fixed weight.

    Discount and batch are the same in all offline agents.
    """

    # cql_mujoco_new.py, `qf_lr`
    learning_rate: float = setting(3e-4, "Adam's, for the critics", group="Optimiser", above=0)
    # the paper's C.3, `--policy_lr`; the temperature's is the policy's: cql.py
    policy_learning_rate: float = setting(
        3e-5, "Adam's, for the policy and the temperature", group="Optimiser", above=0
    )
    # cql_mujoco_new.py, `layer_size`, of three layers
    hidden_dim: int = setting(256, "width of every hidden layer", group="Networks", at_least=1)
    # the same
    hidden_layers: int = setting(3, "of every network", group="Networks", at_least=1)
    # `soft_target_tau`
    target_rate: float = setting(
        0.005, "Polyak rate of the target critics, tau", group="Common", above=0, at_most=1
    )
    # cql.py, `use_automatic_entropy_tuning`
    target_entropy_per_dimension: float = setting(
        -1.0, "the policy's entropy aimed at, an action dimension", group="SAC"
    )
    # the paper's C.3, `--min_q_weight`
    conservative_weight: float = setting(10.0, "of the push on values", group="CQL", at_least=0)
    # `num_random`
    sampled_actions: int = setting(
        10, "uniform, of pi(s') and of pi(s), so many of each", group="CQL", at_least=1
    )
    # `--policy_eval_start`
    cloning_updates: int = setting(
        40_000,
        "the update from which the policy climbs values; it clones before",
        group="CQL",
        at_least=0,
    )


def start_like_rlkit(last: float) -> Start:
    """Hidden weights within 1/sqrt(width), biases 0.1; the last layers within `last`.

    As rlkit's pytorch_util.py and networks.py have it.
    """

    def start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
        layer, _, kind = p.name.rpartition(".")
        if layer in ("value", "action", "log_std"):
            return random.uniform(-last, last, shape)
        if kind == "bias":
            return np.full(shape, 0.1)
        return random.uniform(-(shape[1] ** -0.5), shape[1] ** -0.5, shape)

    return start


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
        one = (c.batch_size, task.action_dim)
        many = (c.sampled_actions, *one)
        self.noise_shapes = {
            "policy": one,
            "next_policy": one,
            "sampled": many,
            "next_sampled": many,
            "random": many,
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

        where = (device, dtype)
        rate, policy_rate = c.learning_rate, c.policy_learning_rate
        first = start_like_rlkit(CRITICS_LAST)
        self.critic = parameter_group(
            Layout.of(self.critic_network), 1, seeds, rate, *where, start=first
        )
        first = start_like_rlkit(POLICYS_LAST)
        layout = Layout.of(self.actor_network)
        self.actor = parameter_group(layout, 2, seeds, policy_rate, *where, start=first)
        self.temperature = temperature(len(seeds), policy_rate, *where)
        # Differs from paper: copies, as everyone else's; the authors' program draws them apart.
        self.target_critic = self.critic.flat.clone()

    def state(self) -> dict[str, Tensor]:
        return {
            **states(critic=self.critic, actor=self.actor, temperature=self.temperature),
            "target_critic.parameters": self.target_critic,
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor], turn: Turn) -> None:
        """The temperature's, the policy's and the critics' step, and the target critics'.

        The critics see actions of the policy before its step, the policy the critics before theirs.
        """
        active = turn.active  # every update trains all
        y = self._value_target(batch, noise["next_policy"])
        actions, log_density = self._sampled(batch, noise)
        self._train_actor(batch, noise["policy"], active)
        self._train_critics(batch, y, actions, log_density, active)

    def _gaussian(self, actor: Parameters, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std of an action before tanh."""
        known = values(self.actor_network, actor, state=state)
        return known["action.linear"], known["log_std"].clamp(*LOG_STD_BOUNDS)

    def _q(self, critic: Parameters, state: Tensor, action: Tensor) -> Tensor:
        """[S, 2, B, 1]: both critics' values."""
        return apply(self.critic_network, critic, state=state, action=action)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor) -> Tensor:
        """y = r + gamma min Q'(s', a'), a' ~ pi(s'), without its entropy."""
        mean, log_std = self._gaussian(self.actor.parameters, batch.next_state)
        action, _ = squashed(mean, log_std, noise, losses.tanh_correction_epsilon)
        critic = unflatten(self.critic.layout, self.target_critic)
        next_value = self._q(critic, batch.next_state, action).amin(dim=1)
        return losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

    @stage
    def _sampled(self, batch: Batch, noise: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """3N actions [S, 3N, B, A] and the logarithms of their densities [S, 3N, B, 1]."""
        # The error function makes standard normals uniform.
        uniform = torch.erf(noise["random"] / math.sqrt(2))
        density = uniform.new_full((*uniform.shape[:-1], 1), self.action_dim * math.log(0.5))
        found = [(uniform, density)]
        for state, name in ((batch.next_state, "next_sampled"), (batch.state, "sampled")):
            mean, log_std = self._gaussian(self.actor.parameters, state)
            of_policy = (mean.unsqueeze(1), log_std.unsqueeze(1), noise[name])
            found.append(squashed(*of_policy, losses.tanh_correction_epsilon))
        actions, densities = zip(*found, strict=True)
        return torch.cat(actions, dim=1), torch.cat(densities, dim=1)

    @stage
    def _train_actor(self, batch: Batch, noise: Tensor, active: Tensor | None) -> None:
        """alpha log pi(a_pi | s) - min Q(s, a_pi), a_pi ~ pi(s); alpha takes its step first.

        In the first updates - log pi(a | s), of the data's action, in place of Q.
        """
        actor = self.actor.parameters
        mean, log_std = self._gaussian(actor, batch.state)
        _, log_prob = squashed(mean, log_std, noise, losses.tanh_correction_epsilon)

        def temperature_loss(parameters: Parameters) -> Results:
            log_alpha = parameters["log_alpha"].squeeze(-1)
            return (losses.temperature_loss(log_alpha, log_prob, self.target_entropy),)

        self.temperature.descend(temperature_loss, active)
        alpha = self.temperature.parameters["log_alpha"].exp()  # [S, 1]
        clones = (self.actor.count + 1 < self.config.cloning_updates).unsqueeze(-1)  # [S, 1, 1]
        critic = self.critic.parameters

        def loss(actor: Parameters) -> Results:
            mean, log_std = self._gaussian(actor, batch.state)
            action, log_prob = squashed(mean, log_std, noise, losses.tanh_correction_epsilon)
            q = self._q(critic, batch.state, action).amin(dim=1)
            climbed = torch.where(clones, _log_prob(mean, log_std, batch.action), q)
            return losses.per_member_mean(alpha.unsqueeze(-1) * log_prob - climbed), q, log_prob

        actor_loss, q, log_prob = self.actor.descend(loss, active)
        self.record(
            active,
            actor_loss=actor_loss,
            policy_value=losses.per_member_mean(q),
            entropy=-losses.per_member_mean(log_prob),
            temperature=alpha.squeeze(-1),
        )

    @stage
    def _train_critics(
        self, batch: Batch, y: Tensor, actions: Tensor, log_density: Tensor, active: Tensor | None
    ) -> None:
        """(Q - y)^2 and the push, of both critics; then the target critics take a step."""
        count = actions.shape[1]
        flat = actions.flatten(1, 2)  # [S, 3N * B, A]
        repeated = batch.state.repeat(1, count, 1)

        def loss(critic: Parameters) -> Results:
            q = self._q(critic, batch.state, batch.action)
            sampled = self._q(critic, repeated, flat)
            sampled = sampled.view(*sampled.shape[:2], count, -1, 1)
            push = self.config.conservative_weight * losses.conservative_loss(
                sampled, log_density, q
            )
            return losses.squared_error(q - y.unsqueeze(1)) + push, q, push

        critic_loss, q, push = self.critic.descend(loss, active)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        self.record(
            active,
            critic_loss=critic_loss,
            conservative_loss=push,
            **value_metrics(q, y),
        )

    def copy_targets(self, active: Tensor | None) -> None:
        """Nothing: the target critics take a step with every update."""

    def policies(self) -> Tensor:
        return self.actor.flat


def _log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """log pi(a | s) of the data's actions, [S, B, 1]."""
    bounded = mean.clamp(-CLONED_MEAN_BOUND, CLONED_MEAN_BOUND)
    u = losses.inverse_tanh(action)
    noise = (u - bounded) / log_std.exp()
    correction = torch.log(1 - action.square() + 1e-6)
    return (losses.gaussian_log_prob(log_std, noise) - correction).sum(dim=-1, keepdim=True)

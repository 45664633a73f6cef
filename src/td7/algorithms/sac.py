"""SAC: soft actor-critic with a learned temperature (the paper's second baseline).

Glossary:
    q, y        a critic's value, and the value target it learns
    alpha       the temperature: what entropy is worth
    log_prob    log pi(a | s)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from td7 import losses
from td7.algorithms.base import Batch, Learner, stage
from td7.algorithms.gaussian import (
    EXPLORATION,
    Embeddings,
    MaximumEntropyConfig,
    critic_network,
    policy_network,
    sampled,
    temperature,
)
from td7.architectures import Layout
from td7.configs import hyper
from td7.networks import Parameters, apply, unflatten
from td7.optimisers import Results, trained
from td7.targets import polyak
from td7.types import TaskSpec


@dataclass(frozen=True)
class SACConfig(MaximumEntropyConfig):
    """The paper's table "SAC Hyperparameters"."""

    critic_hidden_dim: int = hyper(
        256, "width of the critics' hidden layers", group="Networks", at_least=1
    )


class SAC(Learner):
    metrics = (
        "critic_loss",
        "actor_loss",
        "value",
        "policy_value",
        "value_target",
        "td_error",
        "entropy",
        "temperature",
        "encoder_loss",
    )

    def __init__(
        self,
        config: SACConfig,
        task: TaskSpec,
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(config, task, seeds, device, dtype)
        self.config = c = config
        self.exploration = EXPLORATION
        self.actor_every = 1
        self.is_prioritised = False
        shape = (c.batch_size, task.action_dim)
        self.noise_shapes = {"next_policy": shape, "policy": shape}
        dims = (task.state_dim, task.action_dim)
        h = c.critic_hidden_dim
        self.critic_network = critic_network(*dims, c, (h, h, 1), heads=2)
        self.actor_network = policy_network(*dims, c)
        self.target_entropy = c.target_entropy_per_dimension * task.action_dim

        start = (seeds, c.learning_rate, device, dtype)
        self.embeddings = Embeddings(c, task, start)
        self.policy_network = self.embeddings.policy(self.actor_network)
        self.target_every = c.target_every
        self.critic = trained(Layout.of(self.critic_network), 1, *start)
        self.actor = trained(Layout.of(self.actor_network), 2, *start)
        self.temperature = temperature(len(seeds), c.learning_rate, device, dtype)
        self.target_critic = self.critic.flat.clone()

    def state(self) -> dict[str, Tensor]:
        groups = {"critic": self.critic, "actor": self.actor, "temperature": self.temperature}
        return {
            **{
                f"{name}.{k}": v for name, group in groups.items() for k, v in group.state().items()
            },
            "target_critic.parameters": self.target_critic,
            **self.embeddings.state(),
        }

    def update(
        self,
        batch: Batch,
        noise: Mapping[str, Tensor],
        active: Tensor | None,
        *,
        train_actor: bool,
        actors: Tensor | None = None,
    ) -> None:
        """The critics', the actor's and the temperature's step, and the target critics'."""
        del train_actor, actors  # every update trains all
        alpha = self._alpha()
        if self.embeddings.is_on:
            self._train_encoder(batch, active)
        y = self._value_target(batch, noise["next_policy"], alpha)
        self._train_critics(batch, y, active)
        log_prob = self._train_actor(batch, noise["policy"], alpha, active)
        self._train_temperature(log_prob, active)

    @stage
    def _train_encoder(self, batch: Batch, active: Tensor | None) -> None:
        self.record(active, encoder_loss=self.embeddings.train(batch, active))

    @stage
    def _alpha(self) -> Tensor:
        """[S, 1, 1]"""
        return self.temperature.parameters["log_alpha"].exp().unsqueeze(-1)

    def _sampled(
        self, actor: Parameters, reads: Mapping[str, Tensor], noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        correction = losses.tanh_correction_epsilon
        return sampled(self.actor_network, actor, reads, noise, correction)

    @stage
    def _value_target(self, batch: Batch, noise: Tensor, alpha: Tensor) -> Tensor:
        """y = r + gamma (min Q'(s', a') - alpha log pi(a' | s')), a' ~ pi(s')."""
        critic = unflatten(self.critic.layout, self.target_critic)
        reads = self.embeddings.of_state(batch.next_state, target=True)
        action, log_prob = self._sampled(self.actor.parameters, reads, noise)
        x = self.embeddings.with_action(reads, action, target=True)
        next_q = apply(self.critic_network, critic, **x)
        next_value = next_q.amin(dim=1) - alpha * log_prob
        return losses.value_target(
            batch.reward, batch.not_terminated, next_value, self.config.discount
        )

    @stage
    def _train_critics(self, batch: Batch, y: Tensor, active: Tensor | None) -> None:
        """(y - Q(s, a))^2 of both critics; then the target critics take a step after them."""
        x = self.embeddings.with_action(self.embeddings.of_state(batch.state), batch.action)

        def loss(critic: Parameters) -> Results:
            q = apply(self.critic_network, critic, **x)
            return losses.squared_error(q - y.unsqueeze(1)), q

        critic_loss, q = self.critic.descend(loss, active)
        polyak(self.target_critic, self.critic.flat, self.config.target_rate, active)
        self.record(
            active,
            critic_loss=critic_loss,
            value=losses.per_member_mean(q),
            value_target=losses.per_member_mean(y),
            td_error=losses.per_member_mean((q - y.unsqueeze(1)).abs()),
        )

    @stage
    def _train_actor(
        self, batch: Batch, noise: Tensor, alpha: Tensor, active: Tensor | None
    ) -> Tensor:
        """alpha log pi(a | s) - min Q(s, a), a ~ pi(s); gives back log pi."""
        critic = self.critic.parameters
        reads = self.embeddings.of_state(batch.state)

        def loss(actor: Parameters) -> Results:
            action, log_prob = self._sampled(actor, reads, noise)
            x = self.embeddings.with_action(reads, action)
            q = apply(self.critic_network, critic, **x).amin(dim=1)
            return losses.per_member_mean(alpha * log_prob - q), q, log_prob

        actor_loss, q, log_prob = self.actor.descend(loss, active)
        self.record(
            active,
            actor_loss=actor_loss,
            policy_value=losses.per_member_mean(q),
            entropy=-losses.per_member_mean(log_prob),
        )
        stopped: Tensor = log_prob
        return stopped

    @stage
    def _train_temperature(self, log_prob: Tensor, active: Tensor | None) -> None:
        """-log alpha E[log pi + target entropy]."""

        def loss(parameters: Parameters) -> Results:
            log_alpha = parameters["log_alpha"].squeeze(-1)
            return (losses.temperature_loss(log_alpha, log_prob, self.target_entropy),)

        self.temperature.descend(loss, active)
        self.record(active, temperature=self._alpha().flatten())

    def copy_targets(self, active: Tensor | None) -> None:
        """SALE's fixed encoders; the target critics take a step with every update."""
        self.embeddings.copy(active)

    def policies(self) -> Tensor:
        return self.embeddings.policies(self.actor.flat)

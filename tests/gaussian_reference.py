"""One plain update of SAC and of TQC, single seed, written from the paper to compare against."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]

HIDDEN_LAYERS = {"sac": ("q1", "q2"), "tqc": ("q1", "q2", "q3")}
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
EPSILON = 1e-6


def copied(weights: Weights, trained: bool) -> Weights:
    """Float64 clones of one network's tensors."""
    return {
        name: tensor.detach().clone().to(torch.float64).requires_grad_(trained)
        for name, tensor in weights.items()
    }


def linear(weights: Weights, layer: str, x: Tensor) -> Tensor:
    """One affine layer, its weight stored as [in, out]."""
    return x @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]


def quantile_huber_loss(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Mean quantile Huber loss of quantiles [B, critics, n] towards targets [B, m]."""
    n = quantiles.shape[-1]
    tau = (torch.arange(n, dtype=quantiles.dtype) + 0.5) / n
    delta = targets[:, None, None, :] - quantiles[:, :, :, None]  # [B, critics, n, m]
    size = delta.abs()
    huber = torch.where(size <= 1.0, 0.5 * delta**2, size - 0.5)
    weight = (tau[None, None, :, None] - (delta.detach() < 0).to(delta.dtype)).abs()
    return (weight * huber).mean()


class PlainAgent:
    """SAC or TQC with autograd and `torch.optim.Adam`, one tensor per layer."""

    def __init__(
        self,
        algorithm: str,
        settings: Mapping[str, Any],
        critics: Sequence[Weights],
        actor: Weights,
        action_dim: int,
    ) -> None:
        """Clone the given networks, make the target critics and the three optimisers."""
        if algorithm not in HIDDEN_LAYERS:
            raise ValueError(f"unknown algorithm {algorithm!r}")
        self.algorithm = algorithm
        self.discount = float(settings.get("discount", 0.99))
        self.target_rate = float(settings.get("target_rate", 0.005))
        self.target_entropy = float(settings.get("target_entropy_per_dimension", -1.0)) * action_dim
        self.dropped_quantiles = int(settings.get("dropped_quantiles", 2))

        self.critics = [copied(critic, trained=True) for critic in critics]
        self.target_critics = [copied(critic, trained=False) for critic in critics]
        self.actor = copied(actor, trained=True)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)

        rate = float(settings.get("learning_rate", 3e-4))
        self.critic_optimizer = self._adam([t for c in self.critics for t in c.values()], rate)
        self.actor_optimizer = self._adam(list(self.actor.values()), rate)
        self.alpha_optimizer = self._adam([self.log_alpha], rate)

    @staticmethod
    def _adam(tensors: list[Tensor], rate: float) -> torch.optim.Adam:
        """Adam with the usual constants."""
        return torch.optim.Adam(tensors, lr=rate, betas=(0.9, 0.999), eps=1e-8)

    def _value(self, critic: Weights, state: Tensor, action: Tensor) -> Tensor:
        """One critic's outputs: [B, 1] for SAC, [B, n] quantiles for TQC."""
        x = torch.cat([state, action], dim=1)
        for layer in HIDDEN_LAYERS[self.algorithm]:
            x = torch.relu(linear(critic, layer, x))
        return linear(critic, "value", x)

    def _values(self, critics: Sequence[Weights], state: Tensor, action: Tensor) -> Tensor:
        """All critics' outputs, [B, critics, outputs]."""
        return torch.stack([self._value(critic, state, action) for critic in critics], dim=1)

    def _policy(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The sampled action [B, action_dim] and its log probability [B, 1]."""
        x = torch.relu(linear(self.actor, "a1", state))
        x = torch.relu(linear(self.actor, "a2", x))
        mean = linear(self.actor, "action", x)
        log_std = linear(self.actor, "log_std", x).clamp(LOG_STD_MIN, LOG_STD_MAX)
        std = log_std.exp()
        u = mean + std * noise
        action = torch.tanh(u)
        log_normal = -0.5 * ((u - mean) / std) ** 2 - log_std - 0.5 * math.log(2.0 * math.pi)
        if self.algorithm == "sac":
            correction = torch.log(1.0 - action**2 + EPSILON)
        else:
            correction = (
                2.0 * math.log(2.0)
                + functional.logsigmoid(2.0 * u)
                + functional.logsigmoid(-2.0 * u)
            )
        return action, (log_normal - correction).sum(dim=1, keepdim=True)

    def _targets(
        self,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        next_noise: Tensor,
        alpha: Tensor,
    ) -> Tensor:
        """The critics' targets: [B, 1] for SAC, [B, kept quantiles] for TQC."""
        next_action, next_log_pi = self._policy(next_state, next_noise)
        values = self._values(self.target_critics, next_state, next_action)
        if self.algorithm == "sac":
            kept = values.amin(dim=1)
        else:
            pooled = values.flatten(start_dim=1).sort(dim=1).values
            left_out = self.dropped_quantiles * len(self.target_critics)
            kept = pooled[:, : pooled.shape[1] - left_out]
        return reward + self.discount * not_terminated * (kept - alpha * next_log_pi)

    def update(
        self,
        state: Tensor,
        action: Tensor,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        next_noise: Tensor,
        noise: Tensor,
    ) -> None:
        """One training update: critics, actor, temperature, target critics."""
        state, action, next_state, reward, not_terminated, next_noise, noise = (
            tensor.to(torch.float64)
            for tensor in (state, action, next_state, reward, not_terminated, next_noise, noise)
        )
        alpha = self.log_alpha.detach().exp()

        with torch.no_grad():
            targets = self._targets(next_state, reward, not_terminated, next_noise, alpha)
        values = self._values(self.critics, state, action)
        if self.algorithm == "sac":
            critic_loss = ((values - targets[:, None, :]) ** 2).mean(dim=(0, 2)).sum()
        else:
            critic_loss = quantile_huber_loss(values, targets)
        self._step(self.critic_optimizer, critic_loss)

        new_action, log_pi = self._policy(state, noise)
        values = self._values(self.critics, state, new_action)
        if self.algorithm == "sac":
            objective = values.amin(dim=1)
        else:
            objective = values.mean(dim=(1, 2)).unsqueeze(1)
        self._step(self.actor_optimizer, (alpha * log_pi - objective).mean())

        alpha_loss = -self.log_alpha * (log_pi.detach() + self.target_entropy).mean()
        self._step(self.alpha_optimizer, alpha_loss)

        with torch.no_grad():
            for critic, target in zip(self.critics, self.target_critics, strict=True):
                for name, tensor in target.items():
                    tensor.copy_(tensor + self.target_rate * (critic[name] - tensor))

    @staticmethod
    def _step(optimizer: torch.optim.Adam, loss: Tensor) -> None:
        """One optimiser step down the loss; gradients left by other losses are cleared first."""
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def networks(self) -> dict[str, list[Weights]]:
        """Copies of every network's tensors as they are now."""
        return {
            "critic": [copied(critic, trained=False) for critic in self.critics],
            "target_critic": [copied(critic, trained=False) for critic in self.target_critics],
            "actor": [copied(self.actor, trained=False)],
        }

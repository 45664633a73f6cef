"""One plain update of SAC and of TQC, single seed, written from the paper to compare against.

With an encoder they read SALE's embeddings: the current networks those of the fixed encoder, the
target critics those of the one before it.
"""

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


def avg_l1_norm(x: Tensor) -> Tensor:
    """Each row over the mean of its absolute values."""
    return x / x.abs().mean(dim=1, keepdim=True).clamp(min=1e-8)


def embedded_state(encoder: Weights, state: Tensor) -> Tensor:
    """z^s = f(s)."""
    x = functional.elu(linear(encoder, "f1", state))
    x = functional.elu(linear(encoder, "f2", x))
    return avg_l1_norm(linear(encoder, "zs", x))


def embedded_pair(encoder: Weights, zs: Tensor, action: Tensor) -> Tensor:
    """z^sa = g(z^s, a)."""
    x = functional.elu(linear(encoder, "g1", torch.cat([zs, action], dim=1)))
    x = functional.elu(linear(encoder, "g2", x))
    return linear(encoder, "zsa", x)


class PlainAgent:
    """SAC or TQC with autograd and `torch.optim.Adam`, one tensor per layer."""

    def __init__(
        self,
        algorithm: str,
        settings: Mapping[str, Any],
        critics: Sequence[Weights],
        actor: Weights,
        action_dim: int,
        encoder: Weights | None = None,
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
        self.encoder: Weights | None = None
        self.fixed: Weights | None = None
        self.target_fixed: Weights | None = None
        if encoder is not None:
            self.encoder = copied(encoder, trained=True)
            self.fixed = copied(encoder, trained=False)
            self.target_fixed = copied(encoder, trained=False)
            self.encoder_optimizer = self._adam(list(self.encoder.values()), rate)

    @staticmethod
    def _adam(tensors: list[Tensor], rate: float) -> torch.optim.Adam:
        """Adam with the usual constants."""
        return torch.optim.Adam(tensors, lr=rate, betas=(0.9, 0.999), eps=1e-8)

    def _value(
        self, critic: Weights, encoder: Weights | None, state: Tensor, action: Tensor
    ) -> Tensor:
        """One critic's outputs: [B, 1] for SAC, [B, n] quantiles for TQC."""
        x = torch.cat([state, action], dim=1)
        if encoder is not None:
            zs = embedded_state(encoder, state)
            phi = avg_l1_norm(linear(critic, "phi", x))
            x = torch.cat([embedded_pair(encoder, zs, action), zs, phi], dim=1)
        for layer in HIDDEN_LAYERS[self.algorithm]:
            x = torch.relu(linear(critic, layer, x))
        return linear(critic, "value", x)

    def _values(
        self, critics: Sequence[Weights], encoder: Weights | None, state: Tensor, action: Tensor
    ) -> Tensor:
        """All critics' outputs, [B, critics, outputs]."""
        found = [self._value(critic, encoder, state, action) for critic in critics]
        return torch.stack(found, dim=1)

    def _policy(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The sampled action [B, action_dim] and its log probability [B, 1]."""
        x = state
        if self.fixed is not None:
            phi = avg_l1_norm(linear(self.actor, "phi", state))
            x = torch.cat([embedded_state(self.fixed, state), phi], dim=1)
        x = torch.relu(linear(self.actor, "a1", x))
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
        values = self._values(self.target_critics, self.target_fixed, next_state, next_action)
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
        if self.encoder is not None:
            zsa = embedded_pair(self.encoder, embedded_state(self.encoder, state), action)
            learned = embedded_state(self.encoder, next_state).detach()
            self._step(self.encoder_optimizer, ((zsa - learned) ** 2).mean())

        with torch.no_grad():
            targets = self._targets(next_state, reward, not_terminated, next_noise, alpha)
        values = self._values(self.critics, self.fixed, state, action)
        if self.algorithm == "sac":
            critic_loss = ((values - targets[:, None, :]) ** 2).mean(dim=(0, 2)).sum()
        else:
            critic_loss = quantile_huber_loss(values, targets)
        self._step(self.critic_optimizer, critic_loss)

        new_action, log_pi = self._policy(state, noise)
        values = self._values(self.critics, self.fixed, state, new_action)
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

    def copy_encoders(self) -> None:
        """target fixed <- fixed <- encoder."""
        if self.encoder is not None and self.fixed is not None:
            self.target_fixed = self.fixed
            self.fixed = copied(self.encoder, trained=False)

    @staticmethod
    def _step(optimizer: torch.optim.Adam, loss: Tensor) -> None:
        """One optimiser step down the loss; gradients left by other losses are cleared first."""
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def networks(self) -> dict[str, list[Weights]]:
        """Copies of every network's tensors as they are now."""
        encoders = {
            "encoder": self.encoder,
            "fixed_encoder": self.fixed,
            "target_fixed_encoder": self.target_fixed,
        }
        return {
            "critic": [copied(critic, trained=False) for critic in self.critics],
            "target_critic": [copied(critic, trained=False) for critic in self.target_critics],
            "actor": [copied(self.actor, trained=False)],
            **{k: [copied(v, trained=False)] for k, v in encoders.items() if v is not None},
        }

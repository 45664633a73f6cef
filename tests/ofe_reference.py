"""TD3+OFE written a second time, in ordinary PyTorch, for `test_ofe.py` to hold the package to.

One seed, float64, autograd and `torch.optim.Adam`; nothing is shared with the package. A linear
layer's weight is [in, out]. The state-action features are [action, state, s1.., sa1..].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, mse_loss, relu, silu

Weights = dict[str, Tensor]

STATISTICS = ("mean", "variance")


@dataclass(frozen=True)
class Settings:
    """The constants of the update, at the paper's values."""

    discount: float = 0.99
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_frequency: int = 2
    target_rate: float = 0.005
    learning_rate: float = 3e-4


def _trained(weights: Weights) -> Weights:
    """A float64 copy in which everything but the running statistics asks for a gradient."""
    copy = {name: value.detach().clone().double() for name, value in weights.items()}
    for name, value in copy.items():
        value.requires_grad_(name.rpartition(".")[2] not in STATISTICS)
    return copy


def _frozen(weights: Weights) -> Weights:
    return {name: value.detach().clone().double() for name, value in weights.items()}


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _dense_layer(weights: Weights, name: str, x: Tensor, training: bool) -> Tensor:
    """swish(batchnorm(Linear(x))); in training mode the running statistics move, in place."""
    normalised = batch_norm(
        _linear(weights, name, x),
        weights[f"{name}.mean"],
        weights[f"{name}.variance"],
        weights[f"{name}.gain"],
        weights[f"{name}.shift"],
        training=training,
        momentum=0.1,
        eps=1e-5,
    )
    return silu(normalised)


def state_features(weights: Weights, layers: int, state: Tensor, training: bool = False) -> Tensor:
    """zs = [state, s1, .., sL]."""
    features = state
    for i in range(1, layers + 1):
        x = _dense_layer(weights, f"s{i}", features, training)
        features = torch.cat([features, x], dim=1)
    return features


def action_features(
    weights: Weights, layers: int, zs: Tensor, action: Tensor, training: bool = False
) -> Tensor:
    """zsa = [action, zs, sa1, .., saL]."""
    features = torch.cat([action, zs], dim=1)
    for i in range(1, layers + 1):
        x = _dense_layer(weights, f"sa{i}", features, training)
        features = torch.cat([features, x], dim=1)
    return features


def critic_value(weights: Weights, zsa: Tensor) -> Tensor:
    """Q(zsa), [B]."""
    x = relu(_linear(weights, "q1", zsa))
    x = relu(_linear(weights, "q2", x))
    return _linear(weights, "value", x).squeeze(1)


def actor_action(weights: Weights, zs: Tensor) -> Tensor:
    """pi(zs), [B, A]."""
    x = relu(_linear(weights, "a1", zs))
    x = relu(_linear(weights, "a2", x))
    return torch.tanh(_linear(weights, "action", x))


class PlainTD3OFE:
    """TD3+OFE for one seed, one update at a time."""

    def __init__(
        self,
        settings: Settings,
        ofe: Weights,
        critics: Sequence[Weights],
        actor: Weights,
        layers: int,
        predicted_dim: int,
    ) -> None:
        self.settings = settings
        self.layers = layers
        self.predicted_dim = predicted_dim
        self.updates = 0
        self.ofe = _trained(ofe)
        self.critics = [_trained(critic) for critic in critics]
        self.actor = _trained(actor)
        self.target_critics = [_frozen(critic) for critic in critics]
        self.target_actor = _frozen(actor)
        self._ofe_adam = self._adam([self.ofe])
        self._critic_adam = self._adam(self.critics)
        self._actor_adam = self._adam([self.actor])

    def _adam(self, networks: Sequence[Weights]) -> torch.optim.Adam:
        trained = [value for net in networks for value in net.values() if value.requires_grad]
        return torch.optim.Adam(
            trained, lr=self.settings.learning_rate, betas=(0.9, 0.999), eps=1e-8
        )

    def networks(self) -> dict[str, list[Weights]]:
        """Every network's weights, by name."""
        return {
            "ofe": [self.ofe],
            "critic": self.critics,
            "target_critic": self.target_critics,
            "actor": [self.actor],
            "target_actor": [self.target_actor],
        }

    def act(self, state: Tensor) -> Tensor:
        """The policy without exploration, batch norm in evaluation mode."""
        with torch.no_grad():
            return actor_action(self.actor, state_features(self.ofe, self.layers, state))

    def update(
        self,
        state: Tensor,
        action: Tensor,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        noise: Tensor,
    ) -> None:
        """One update on a batch; `reward` and `not_terminated` are [B], `noise` [B, A]."""
        self.updates += 1
        self._update_ofe(state, action, next_state)
        ofe = _frozen(self.ofe)
        with torch.no_grad():
            zs = state_features(ofe, self.layers, state)
            zsa = action_features(ofe, self.layers, zs, action)
            target = self._target(ofe, next_state, reward, not_terminated, noise)
        self._update_critics(zsa, target)
        if self.updates % self.settings.policy_frequency == 0:
            self._update_actor(ofe, zs)
            self._move_targets()

    def _update_ofe(self, state: Tensor, action: Tensor, next_state: Tensor) -> None:
        zs = state_features(self.ofe, self.layers, state, training=True)
        zsa = action_features(self.ofe, self.layers, zs, action, training=True)
        prediction = _linear(self.ofe, "next_state", zsa)
        loss = mse_loss(prediction, next_state[:, : self.predicted_dim])
        self._ofe_adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._ofe_adam.step()

    def _target(
        self,
        ofe: Weights,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        noise: Tensor,
    ) -> Tensor:
        limit = self.settings.target_noise_clip
        zs = state_features(ofe, self.layers, next_state)
        smoothing = (self.settings.target_noise * noise).clamp(-limit, limit)
        action = (actor_action(self.target_actor, zs) + smoothing).clamp(-1, 1)
        zsa = action_features(ofe, self.layers, zs, action)
        values = torch.stack([critic_value(critic, zsa) for critic in self.target_critics])
        return reward + self.settings.discount * not_terminated * values.min(dim=0).values

    def _update_critics(self, zsa: Tensor, target: Tensor) -> None:
        losses = [mse_loss(critic_value(critic, zsa), target) for critic in self.critics]
        self._critic_adam.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        self._critic_adam.step()

    def _update_actor(self, ofe: Weights, zs: Tensor) -> None:
        zsa = action_features(ofe, self.layers, zs, actor_action(self.actor, zs))
        loss = -critic_value(self.critics[0], zsa).mean()
        self._actor_adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._actor_adam.step()

    def _move_targets(self) -> None:
        sources = [*self.critics, self.actor]
        targets = [*self.target_critics, self.target_actor]
        with torch.no_grad():
            for source, target in zip(sources, targets, strict=True):
                for name, value in target.items():
                    value.add_(source[name] - value, alpha=self.settings.target_rate)

"""TD7's update and LAP's buffer once more: one seed, float64, straight from the equations.

The package is tested against this file, so the two share no code and this one is plain, not fast.

Glossary (network, time, symbol):
  s, a, r        state, action, reward; next_ marks the following time step
  zs, zsa        f(s) and g(zs, a), the embeddings
  phi            AvgL1Norm(Linear(s, a)) in a critic, AvgL1Norm(Linear(s)) in the actor
  encoder        (f, g) at t+1, trained
  fixed          (f, g) at t, feeds the current critics and actor
  target_fixed   (f, g) at t-1, feeds the target critics and actor
  q, y           the two critics' values [B, 2] and the critics' target [B, 1]
"""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor, nn


def avg_l1_norm(x: Tensor) -> Tensor:
    """x / mean_i |x_i|, the mean over the last axis and never below 1e-8."""
    return x / x.abs().mean(dim=-1, keepdim=True).clamp(min=1e-8)


def lap_huber(x: Tensor, min_priority: float) -> Tensor:
    """0.5 x^2 where |x| < m, m |x| otherwise (m the minimum priority), elementwise."""
    return torch.where(x.abs() < min_priority, 0.5 * x**2, min_priority * x.abs())


class Encoder(nn.Module):
    """zs = f(s) and zsa = g(zs, a)."""

    def __init__(self, state_dim: int, action_dim: int, embedding_dim: int, hidden_dim: int = 256):
        super().__init__()
        self.f1 = nn.Linear(state_dim, hidden_dim)
        self.f2 = nn.Linear(hidden_dim, hidden_dim)
        self.f3 = nn.Linear(hidden_dim, embedding_dim)
        self.g1 = nn.Linear(embedding_dim + action_dim, hidden_dim)
        self.g2 = nn.Linear(hidden_dim, hidden_dim)
        self.g3 = nn.Linear(hidden_dim, embedding_dim)

    def f(self, s: Tensor) -> Tensor:
        x = F.elu(self.f1(s))
        x = F.elu(self.f2(x))
        return avg_l1_norm(self.f3(x))

    def g(self, zs: Tensor, a: Tensor) -> Tensor:
        # The paper's box concatenates [action, zs]; the order only permutes g1's columns.
        x = F.elu(self.g1(torch.cat([zs, a], dim=-1)))
        x = F.elu(self.g2(x))
        zsa: Tensor = self.g3(x)
        return zsa


class QNetwork(nn.Module):
    """Q(zsa, zs, s, a), one value a row: [B, 1]."""

    def __init__(self, state_dim: int, action_dim: int, embedding_dim: int, hidden_dim: int = 256):
        super().__init__()
        self.l0 = nn.Linear(state_dim + action_dim, hidden_dim)
        self.l1 = nn.Linear(embedding_dim * 2 + hidden_dim, hidden_dim)
        self.l2 = nn.Linear(hidden_dim, hidden_dim)
        self.l3 = nn.Linear(hidden_dim, 1)

    def forward(self, s: Tensor, a: Tensor, zsa: Tensor, zs: Tensor) -> Tensor:
        phi = avg_l1_norm(self.l0(torch.cat([s, a], dim=-1)))
        x = F.elu(self.l1(torch.cat([zsa, zs, phi], dim=-1)))
        x = F.elu(self.l2(x))
        value: Tensor = self.l3(x)
        return value


class Critic(nn.Module):
    """Both value networks side by side: [B, 2]."""

    def __init__(self, state_dim: int, action_dim: int, embedding_dim: int, hidden_dim: int = 256):
        super().__init__()
        self.q1 = QNetwork(state_dim, action_dim, embedding_dim, hidden_dim)
        self.q2 = QNetwork(state_dim, action_dim, embedding_dim, hidden_dim)

    def forward(self, s: Tensor, a: Tensor, zsa: Tensor, zs: Tensor) -> Tensor:
        return torch.cat([self.q1(s, a, zsa, zs), self.q2(s, a, zsa, zs)], dim=-1)


class Actor(nn.Module):
    """pi(zs, s), an action in [-1, 1]."""

    def __init__(self, state_dim: int, action_dim: int, embedding_dim: int, hidden_dim: int = 256):
        super().__init__()
        self.l0 = nn.Linear(state_dim, hidden_dim)
        self.l1 = nn.Linear(embedding_dim + hidden_dim, hidden_dim)
        self.l2 = nn.Linear(hidden_dim, hidden_dim)
        self.l3 = nn.Linear(hidden_dim, action_dim)

    def forward(self, s: Tensor, zs: Tensor) -> Tensor:
        phi = avg_l1_norm(self.l0(s))
        x = F.relu(self.l1(torch.cat([zs, phi], dim=-1)))
        x = F.relu(self.l2(x))
        return torch.tanh(self.l3(x))


class ReferenceTD7:
    def __init__(
        self,
        state_dim: int,
        action_dim: int,
        embedding_dim: int = 256,
        hidden_dim: int = 256,
        *,
        discount: float = 0.99,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        actor_every: int = 2,
        target_every: int = 250,
        priority_exponent: float = 0.4,
        min_priority: float = 1.0,
        learning_rate: float = 3e-4,
        bc_weight: float = 0.0,
    ) -> None:
        self.discount, self.bc_weight = discount, bc_weight
        self.target_noise, self.target_noise_clip = target_noise, target_noise_clip
        self.actor_every, self.target_every = actor_every, target_every
        self.priority_exponent, self.min_priority = priority_exponent, min_priority

        sizes = (state_dim, action_dim, embedding_dim, hidden_dim)
        self.encoder = Encoder(*sizes).double()
        self.critic = Critic(*sizes).double()
        self.actor = Actor(*sizes).double()

        self.fixed_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.target_fixed_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)

        self.encoder_optimizer = torch.optim.Adam(self.encoder.parameters(), lr=learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=learning_rate)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=learning_rate)

        self.running_min, self.running_max = math.inf, -math.inf  # of y, over all updates
        self.clip_min, self.clip_max = 0.0, 0.0  # q_min and q_max in use
        self.updates = 0
        self.losses: dict[str, float] = {}  # of the latest update

    def update(
        self,
        state: Tensor,
        action: Tensor,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """One TD7 update; the rows' new LAP priorities, [B].

        reward and not_terminated are [B, 1]; noise is standard normal, [B, A]. The buffer's
        `reset_maximum` after every target_every-th update is the caller's.
        """
        s, a, next_s = state.double(), action.double(), next_state.double()
        r, not_terminated, noise = reward.double(), not_terminated.double(), noise.double()
        self.updates += 1

        # Encoder: (g(f(s), a) - |f(s')|x)^2
        zsa = self.encoder.g(self.encoder.f(s), a)
        encoder_loss = F.mse_loss(zsa, self.encoder.f(next_s).detach())
        self._step(self.encoder_optimizer, encoder_loss)
        self.losses = {"encoder_loss": encoder_loss.item()}

        # y = r + discount * not_terminated * clip(min(Q1', Q2'), q_min, q_max)
        with torch.no_grad():
            epsilon = self.target_noise * noise
            epsilon = epsilon.clamp(-self.target_noise_clip, self.target_noise_clip)
            next_zs = self.target_fixed_encoder.f(next_s)
            next_a = (self.target_actor(next_s, next_zs) + epsilon).clamp(-1, 1)
            next_zsa = self.target_fixed_encoder.g(next_zs, next_a)
            next_q = self.target_critic(next_s, next_a, next_zsa, next_zs)
            next_q = next_q.min(dim=-1, keepdim=True).values.clamp(self.clip_min, self.clip_max)
            y = r + self.discount * not_terminated * next_q
            self.running_min = min(self.running_min, y.min().item())
            self.running_max = max(self.running_max, y.max().item())

            fixed_zs = self.fixed_encoder.f(s)
            fixed_zsa = self.fixed_encoder.g(fixed_zs, a)

        # Critics: Huber(y - Q), summed over both critics, mean over the batch
        delta = y - self.critic(s, a, fixed_zsa, fixed_zs)
        critic_loss = lap_huber(delta, self.min_priority).sum(dim=-1).mean()
        self._step(self.critic_optimizer, critic_loss)
        self.losses["critic_loss"] = critic_loss.item()

        # LAP: max(|delta|, m)^alpha, |delta| the larger of the two critics' errors
        larger_delta = delta.detach().abs().max(dim=-1).values
        priorities: Tensor = larger_delta.clamp(min=self.min_priority) ** self.priority_exponent

        # Actor: -Q + lambda |E|Q||x (a_pi - a)^2
        if self.updates % self.actor_every == 0:
            pi_a = self.actor(s, fixed_zs)
            q = self.critic(s, pi_a, self.fixed_encoder.g(fixed_zs, pi_a), fixed_zs)
            bc_loss = q.abs().mean().detach() * F.mse_loss(pi_a, a)
            actor_loss = -q.mean() + self.bc_weight * bc_loss
            self._step(self.actor_optimizer, actor_loss)
            self.losses["actor_loss"] = actor_loss.item()

        if self.updates % self.target_every == 0:
            self.target_actor.load_state_dict(self.actor.state_dict())
            self.target_critic.load_state_dict(self.critic.state_dict())
            self.target_fixed_encoder.load_state_dict(self.fixed_encoder.state_dict())
            self.fixed_encoder.load_state_dict(self.encoder.state_dict())
            self.clip_min, self.clip_max = self.running_min, self.running_max
        return priorities

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()  # also drops what the actor's loss left on the critics
        loss.backward()  # type: ignore[no-untyped-call]  # torch ships it untyped
        optimizer.step()


class ReferenceLAP:
    """The priorities of a ring of `capacity` rows; the oldest row is overwritten first."""

    def __init__(self, capacity: int) -> None:
        self.priorities = np.zeros(capacity, dtype=np.float64)
        self.capacity, self.size, self.position = capacity, 0, 0
        self.maximum = 1.0

    def add(self, n: int) -> NDArray[np.int64]:
        """The indices of n new rows, each with the maximum priority."""
        indices = (self.position + np.arange(n, dtype=np.int64)) % self.capacity
        self.priorities[indices] = self.maximum
        self.position = (self.position + n) % self.capacity
        self.size = min(self.size + n, self.capacity)
        return indices

    def sample(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each u in [0, 1), the first i with p_0 + ... + p_i > u * total."""
        cumulative = np.cumsum(self.priorities[: self.size])
        thresholds = np.asarray(uniforms, dtype=np.float64) * cumulative[-1]
        indices: NDArray[np.int64] = np.searchsorted(cumulative, thresholds, side="right")
        return indices

    def set_priorities(self, indices: NDArray[np.int64], priorities: NDArray[np.float64]) -> None:
        """Of an index given twice the later priority stays; the maximum sees both."""
        for index, priority in zip(indices, priorities, strict=True):
            self.priorities[index] = priority
            self.maximum = max(self.maximum, float(priority))

    def reset_maximum(self) -> None:
        """The maximum of the rows stored now, which may be lower than the largest seen."""
        self.maximum = float(self.priorities[: self.size].max())

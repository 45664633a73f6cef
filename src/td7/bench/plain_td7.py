"""A straightforward TD7 update of one seed, which `td7 bench` compares with.

It has the equations and sizes of `td7.algorithms.td7`, written the way such programs usually are:
`torch.nn` modules, `torch.optim.Adam`, a cumulative sum over all priorities for every batch.
"""

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from td7.algorithms.td7 import TD7Config
from td7.types import Float32, RowLayout


def _norm(x: Tensor) -> Tensor:
    return x / x.abs().mean(-1, keepdim=True).clamp(min=1e-8)


class Encoder(nn.Module):
    def __init__(self, state_dim: int, action_dim: int, z: int, h: int) -> None:
        super().__init__()
        self.f1, self.f2, self.f3 = nn.Linear(state_dim, h), nn.Linear(h, h), nn.Linear(h, z)
        self.g1, self.g2, self.g3 = nn.Linear(z + action_dim, h), nn.Linear(h, h), nn.Linear(h, z)

    def zs(self, state: Tensor) -> Tensor:
        return _norm(self.f3(functional.elu(self.f2(functional.elu(self.f1(state))))))

    def zsa(self, zs: Tensor, action: Tensor) -> Tensor:
        x = functional.elu(self.g1(torch.cat([zs, action], 1)))
        zsa: Tensor = self.g3(functional.elu(self.g2(x)))
        return zsa


class Value(nn.Module):
    def __init__(self, state_dim: int, action_dim: int, z: int, h: int) -> None:
        super().__init__()
        self.l0, self.l1 = nn.Linear(state_dim + action_dim, h), nn.Linear(2 * z + h, h)
        self.l2, self.l3 = nn.Linear(h, h), nn.Linear(h, 1)

    def forward(self, state: Tensor, action: Tensor, zsa: Tensor, zs: Tensor) -> Tensor:
        phi = _norm(self.l0(torch.cat([state, action], 1)))
        x = functional.elu(self.l1(torch.cat([zsa, zs, phi], 1)))
        value: Tensor = self.l3(functional.elu(self.l2(x)))
        return value


class Critic(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.q1, self.q2 = Value(*dims), Value(*dims)

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat([self.q1(*inputs), self.q2(*inputs)], 1)


class Actor(nn.Module):
    def __init__(self, state_dim: int, action_dim: int, z: int, h: int) -> None:
        super().__init__()
        self.l0, self.l1 = nn.Linear(state_dim, h), nn.Linear(z + h, h)
        self.l2, self.l3 = nn.Linear(h, h), nn.Linear(h, action_dim)

    def forward(self, state: Tensor, zs: Tensor) -> Tensor:
        x = functional.relu(self.l1(torch.cat([zs, _norm(self.l0(state))], 1)))
        return torch.tanh(self.l3(functional.relu(self.l2(x))))


class PlainTD7:
    """One seed. `update()` samples a batch and makes one update."""

    def __init__(
        self, config: TD7Config, layout: RowLayout, rows: Float32, device: torch.device
    ) -> None:
        self.config = config
        self.device = device
        parts = layout.split(torch.from_numpy(rows).to(device))
        self.data = [part.contiguous() for part in parts]
        self.priority = torch.ones(len(rows), device=device)
        dims = (layout.state_dim, layout.action_dim, config.embedding_dim, config.hidden_dim)
        self.encoder, self.critic = Encoder(*dims).to(device), Critic(*dims).to(device)
        self.actor = Actor(*dims).to(device)
        self.fixed, self.target_fixed = copy.deepcopy(self.encoder), copy.deepcopy(self.encoder)
        self.target_critic, self.target_actor = (
            copy.deepcopy(self.critic),
            copy.deepcopy(self.actor),
        )
        self.adams = {
            name: torch.optim.Adam(module.parameters(), lr=config.learning_rate)
            for name, module in (
                ("encoder", self.encoder),
                ("critic", self.critic),
                ("actor", self.actor),
            )
        }
        self.seen, self.clip = (np.inf, -np.inf), (0.0, 0.0)
        self.updates = 0

    def _step(self, name: str, loss: Tensor) -> None:
        self.adams[name].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's
        self.adams[name].step()

    def update(self) -> None:
        c = self.config
        self.updates += 1
        cumulative = torch.cumsum(self.priority, 0)
        uniform = torch.rand(c.batch_size, device=self.device) * cumulative[-1]
        indices = torch.searchsorted(cumulative, uniform).clamp(max=len(self.priority) - 1)
        state, action, next_state, reward, not_terminated = (x[indices] for x in self.data)

        with torch.no_grad():
            next_zs = self.encoder.zs(next_state)
        zsa = self.encoder.zsa(self.encoder.zs(state), action)
        self._step("encoder", functional.mse_loss(zsa, next_zs))

        with torch.no_grad():
            next_zs = self.target_fixed.zs(next_state)
            noise = (c.target_noise * torch.randn_like(action)).clamp(
                -c.target_noise_clip, c.target_noise_clip
            )
            next_action = (self.target_actor(next_state, next_zs) + noise).clamp(-1, 1)
            next_zsa = self.target_fixed.zsa(next_zs, next_action)
            q = self.target_critic(next_state, next_action, next_zsa, next_zs)
            q = q.min(1, keepdim=True)[0].clamp(*self.clip)
            y = reward + c.discount * not_terminated * q
            self.seen = (min(self.seen[0], float(y.min())), max(self.seen[1], float(y.max())))
            zs = self.fixed.zs(state)
            zsa = self.fixed.zsa(zs, action)
        error = (self.critic(state, action, zsa, zs) - y).abs()
        huber = torch.where(error < c.min_priority, 0.5 * error.square(), c.min_priority * error)
        self._step("critic", huber.sum(1).mean())
        self.priority[indices] = (
            error.detach().max(1)[0].clamp(min=c.min_priority).pow(c.priority_exponent)
        )

        if self.updates % c.actor_every == 0:
            chosen = self.actor(state, zs)
            q = self.critic(state, chosen, self.fixed.zsa(zs, chosen), zs)
            self._step("actor", -q.mean())

        if self.updates % c.target_every == 0:
            self.target_actor.load_state_dict(self.actor.state_dict())
            self.target_critic.load_state_dict(self.critic.state_dict())
            self.target_fixed.load_state_dict(self.fixed.state_dict())
            self.fixed.load_state_dict(self.encoder.state_dict())
            self.clip = self.seen

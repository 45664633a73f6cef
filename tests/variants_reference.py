"""The updates of TD7, TD3 and their variants in ordinary single-seed PyTorch, for comparison."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Weights = dict[str, Tensor]
Moves = list[tuple[Tensor, Tensor]]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"elu": F.elu, "relu": F.relu}

SHARED = {
    "discount": 0.99,
    "target_noise": 0.2,
    "target_noise_clip": 0.5,
    "actor_every": 2,
    "target_every": 250,
    "learning_rate": 3e-4,
    "min_priority": 1.0,
    "priority_exponent": 0.4,
    "zs_norm": "avg_l1",
    "zsa_norm": "none",
    "phi_norm": "avg_l1",
    "cloning_weight": 0.0,
}
TD7 = SHARED | {
    "critic_activation": "elu",
    "actor_value": "mean",
    "replay": "lap",
    "value_clipping": True,
    "critic_inputs": ("zsa", "zs", "phi"),
    "actor_inputs": ("zs", "phi"),
    "learning_target": "next_zs",
    "encoder_loss": "mse",
    "encoder_training": "decoupled",
    "encoder_loss_weight": 1.0,
    "fixed_embeddings": True,
}
TD3 = SHARED | {
    "critic_activation": "relu",
    "actor_value": "first",
    "replay": "uniform",
    "value_clipping": False,
    "target_update": "polyak",
    "target_rate": 0.005,
    "encoder": False,
}


class Batch(NamedTuple):
    """One sampled batch and the noise of the target policy."""

    state: Tensor
    action: Tensor
    next_state: Tensor
    reward: Tensor
    not_terminated: Tensor
    noise: Tensor


def trained(weights: Weights) -> list[Tensor]:
    """Every tensor but the running statistics."""
    return [w for name, w in weights.items() if not name.endswith((".mean", ".variance"))]


def copied(weights: Weights) -> Weights:
    """Clones of their own, without gradient."""
    return {name: w.detach().clone().to(torch.float64) for name, w in weights.items()}


def trainable(weights: Weights) -> Weights:
    """Clones of their own whose trained tensors ask for a gradient."""
    clones = copied(weights)
    for tensor in trained(clones):
        tensor.requires_grad_()
    return clones


def detached(weights: Weights) -> Weights:
    """The same tensors, through which no gradient reaches the weights."""
    return {name: w.detach() for name, w in weights.items()}


@torch.no_grad()
def follow(target: Weights, source: Weights, rate: float = 1.0) -> None:
    """Move every tensor of `target` towards `source`; a rate of 1 copies exactly."""
    for name, tensor in target.items():
        if rate == 1.0:
            tensor.copy_(source[name])
        else:
            tensor.copy_((1 - rate) * tensor + rate * source[name])


def adam(networks: Iterable[Weights], learning_rate: float) -> torch.optim.Adam | None:
    """Adam over the trained tensors, or None where there are none."""
    tensors = [w for weights in networks for w in trained(weights)]
    if not tensors:
        return None
    return torch.optim.Adam(tensors, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8)


def descend(
    loss: Tensor, optimisers: Sequence[torch.optim.Adam | None], moves: Moves | None = None
) -> None:
    """One step of each optimiser on one loss, then the batch norms' running statistics."""
    present = [optimiser for optimiser in optimisers if optimiser is not None]
    for optimiser in present:
        optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for optimiser in present:
        optimiser.step()
    with torch.no_grad():
        for running, moved in moves or []:
            running.copy_(moved)


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """The layer `name`."""
    return F.linear(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"])


def normalise(weights: Weights, name: str, kind: str, x: Tensor, moves: Moves | None) -> Tensor:
    """The norm behind a layer; training mode collects the moved statistics in `moves`."""
    if kind == "none":
        return x
    if kind == "avg_l1":
        return x / x.abs().mean(-1, keepdim=True).clamp(min=1e-8)
    gain, shift = weights[f"{name}.gain"], weights[f"{name}.shift"]
    if kind == "layer":
        return F.layer_norm(x, x.shape[-1:], gain, shift, eps=1e-5)
    if kind != "batch":
        raise ValueError(f"unknown norm {kind!r}")
    mean, variance = weights[f"{name}.mean"], weights[f"{name}.variance"]
    if moves is None:
        return F.batch_norm(x, mean, variance, gain, shift, training=False, eps=1e-5)
    moved_mean, moved_variance = mean.clone(), variance.clone()
    moves += [(mean, moved_mean), (variance, moved_variance)]
    return F.batch_norm(
        x, moved_mean, moved_variance, gain, shift, training=True, momentum=0.1, eps=1e-5
    )


class PlainAgent:
    """One agent, TD7 or TD3, with any of the paper's variants; tensors are float64."""

    def __init__(
        self,
        algorithm: str,
        settings: Mapping[str, Any],
        encoder: Weights,
        critics: Sequence[Weights],
        actor: Weights,
    ) -> None:
        self.algorithm = algorithm
        self.settings: dict[str, Any] = {**{"td7": TD7, "td3": TD3}[algorithm], **settings}
        if algorithm == "td3":
            self.settings["critic_inputs"] = (
                ("zsa", "zs", "sa") if self.settings["encoder"] else ("sa",)
            )
            self.settings["actor_inputs"] = ("s",)
        inputs = {*self.settings["critic_inputs"], *self.settings["actor_inputs"]}
        self.reads_embeddings = bool(inputs & {"zs", "zsa"})
        self.end_to_end = self.reads_embeddings and (
            algorithm == "td3" or self.settings["encoder_training"] == "end_to_end"
        )

        self.encoder = trainable(encoder)
        self.critics = [trainable(critic) for critic in critics]
        self.actor = trainable(actor)
        self.target_critics = [copied(critic) for critic in critics]
        self.target_actor = copied(actor)
        self.target_encoder = copied(encoder)
        self.fixed_encoder = copied(encoder)
        self.target_fixed_encoder = copied(encoder)
        self.slow_encoder = copied(encoder)

        rate = self.settings["learning_rate"]
        self.encoder_adam = adam([self.encoder], rate)
        self.critic_adam = adam(self.critics, rate)
        self.actor_adam = adam([self.actor], rate)

        self.updates = 0
        self.clip_min, self.clip_max = 0.0, 0.0
        self.lowest, self.highest = math.inf, -math.inf

    def update(
        self,
        state: Tensor,
        action: Tensor,
        next_state: Tensor,
        reward: Tensor,
        not_terminated: Tensor,
        noise: Tensor,
    ) -> Tensor | None:
        """One update on one batch; the new priorities [B], or None with uniform replay."""
        batch = Batch(state, action, next_state, reward, not_terminated, noise)
        self.updates += 1
        if self.algorithm == "td7" and self.settings["encoder_training"] == "decoupled":
            self._encoder_step(batch)
        target = self._value_target(batch)
        priorities = self._critic_step(batch, target)
        if self.updates % self.settings["actor_every"] == 0:
            self._actor_step(batch)
            if self.algorithm == "td3" and self.settings["target_update"] == "polyak":
                self._move_targets(self.settings["target_rate"])
        if self.updates % self.settings["target_every"] == 0:
            self._refresh()
        return priorities

    def networks(self) -> dict[str, list[Weights]]:
        """Clones of the current weights of every network, by name."""
        networks = {
            "encoder": [self.encoder],
            "actor": [self.actor],
            "critic": self.critics,
            "target_critic": self.target_critics,
            "target_actor": [self.target_actor],
        }
        if self.algorithm == "td7":
            networks["fixed_encoder"] = [self.fixed_encoder]
            networks["target_fixed_encoder"] = [self.target_fixed_encoder]
            if self.settings["learning_target"] == "slow_next_zs":
                networks["slow_encoder"] = [self.slow_encoder]
        elif self.settings["encoder"]:
            networks["target_encoder"] = [self.target_encoder]
        return {name: [copied(weights) for weights in group] for name, group in networks.items()}

    def _zs(self, encoder: Weights, state: Tensor, moves: Moves | None = None) -> Tensor:
        """The state embedding f(s)."""
        x = F.elu(linear(encoder, "f1", state))
        x = F.elu(linear(encoder, "f2", x))
        return normalise(encoder, "zs", self.settings["zs_norm"], linear(encoder, "zs", x), moves)

    def _g_hidden(self, encoder: Weights, zs: Tensor, action: Tensor) -> Tensor:
        """The last hidden value of g, from which zsa and the reward are read."""
        x = F.elu(linear(encoder, "g1", torch.cat([zs, action], -1)))
        return F.elu(linear(encoder, "g2", x))

    def _zsa(
        self, encoder: Weights, zs: Tensor, action: Tensor, moves: Moves | None = None
    ) -> Tensor:
        """The state-action embedding g(zs, a)."""
        x = linear(encoder, "zsa", self._g_hidden(encoder, zs, action))
        return normalise(encoder, "zsa", self.settings["zsa_norm"], x, moves)

    def _policy(
        self, actor: Weights, encoder: Weights, state: Tensor, moves: Moves | None = None
    ) -> Tensor:
        """The actor's action; the encoder is always in evaluation mode."""
        inputs = self.settings["actor_inputs"]
        parts = {"s": state}
        if "zs" in inputs:
            parts["zs"] = self._zs(encoder, state)
        if "phi" in inputs:
            phi = linear(actor, "phi", state)
            parts["phi"] = normalise(actor, "phi", self.settings["phi_norm"], phi, moves)
        x = torch.cat([parts[name] for name in inputs], -1)
        x = F.relu(linear(actor, "a1", x))
        x = F.relu(linear(actor, "a2", x))
        return torch.tanh(linear(actor, "action", x))

    def _values(
        self,
        critics: Sequence[Weights],
        encoder: Weights,
        state: Tensor,
        action: Tensor,
        moves: Moves | None = None,
    ) -> Tensor:
        """The critics' values [B, critics]; the encoder is always in evaluation mode."""
        inputs = self.settings["critic_inputs"]
        activation = ACTIVATIONS[self.settings["critic_activation"]]
        pair = torch.cat([state, action], -1)
        parts = {"sa": pair}
        if "zs" in inputs or "zsa" in inputs:
            parts["zs"] = self._zs(encoder, state)
        if "zsa" in inputs:
            parts["zsa"] = self._zsa(encoder, parts["zs"], action)
        values = []
        for critic in critics:
            if "phi" in inputs:
                phi = linear(critic, "phi", pair)
                parts["phi"] = normalise(critic, "phi", self.settings["phi_norm"], phi, moves)
            x = torch.cat([parts[name] for name in inputs], -1)
            x = activation(linear(critic, "q1", x))
            x = activation(linear(critic, "q2", x))
            values.append(linear(critic, "value", x))
        return torch.cat(values, -1)

    def _reading_encoder(self) -> Weights:
        """The encoder whose embeddings the current critics and the actor read."""
        if self.algorithm == "td3" or self.end_to_end or not self.settings["fixed_embeddings"]:
            return self.encoder
        return self.fixed_encoder

    def _target_side_encoder(self) -> Weights:
        """The encoder whose embeddings the target critics and the target actor read."""
        if self.algorithm == "td3":
            return self.target_encoder
        if not self.settings["fixed_embeddings"]:
            return self.encoder
        return self.fixed_encoder if self.end_to_end else self.target_fixed_encoder

    @torch.no_grad()
    def _target_action(self, batch: Batch) -> Tensor:
        """The target policy's action at s', with smoothing noise."""
        limit: float = self.settings["target_noise_clip"]
        noise: Tensor = (self.settings["target_noise"] * batch.noise).clamp(-limit, limit)
        action = self._policy(self.target_actor, self._target_side_encoder(), batch.next_state)
        return (action + noise).clamp(-1, 1)

    @torch.no_grad()
    def _learning_target(self, batch: Batch) -> Tensor:
        """What zsa is trained to predict."""
        kind = self.settings["learning_target"]
        if kind == "next_state":
            return batch.next_state
        if kind == "slow_next_zs":
            return self._zs(self.slow_encoder, batch.next_state)
        next_zs = self._zs(self.encoder, batch.next_state, [])
        if kind == "next_zsa":
            return self._zsa(self.encoder, next_zs, self._target_action(batch), [])
        if kind not in ("next_zs", "next_zs_and_reward"):
            raise ValueError(f"unknown learning target {kind!r}")
        return next_zs

    def _encoder_loss(self, batch: Batch, moves: Moves) -> Tensor:
        """The encoder's own loss, in training mode."""
        target = self._learning_target(batch)
        zs = self._zs(self.encoder, batch.state, moves)
        zsa = self._zsa(self.encoder, zs, batch.action, moves)
        if self.settings["encoder_loss"] == "cosine":
            loss = -F.cosine_similarity(zsa, target, dim=-1).mean()
        else:
            loss = F.mse_loss(zsa, target)
        if self.settings["learning_target"] == "next_zs_and_reward":
            hidden = self._g_hidden(self.encoder, zs, batch.action)
            loss = loss + F.mse_loss(linear(self.encoder, "reward", hidden), batch.reward)
        return loss

    def _encoder_step(self, batch: Batch) -> None:
        """Train the encoder by its own loss, where anything reads it."""
        if not self.reads_embeddings:
            return
        moves: Moves = []
        descend(self._encoder_loss(batch, moves), [self.encoder_adam], moves)
        follow(self.slow_encoder, self.encoder, 0.01)

    @torch.no_grad()
    def _value_target(self, batch: Batch) -> Tensor:
        """The critics' target y [B, 1]; its extremes are followed."""
        action = self._target_action(batch)
        values = self._values(
            self.target_critics, self._target_side_encoder(), batch.next_state, action
        )
        value = values.min(-1, keepdim=True).values
        if self.settings["value_clipping"]:
            value = value.clamp(self.clip_min, self.clip_max)
        discount: float = self.settings["discount"]
        target = batch.reward + discount * batch.not_terminated * value
        self.lowest = min(self.lowest, target.min().item())
        self.highest = max(self.highest, target.max().item())
        return target

    def _critic_step(self, batch: Batch, target: Tensor) -> Tensor | None:
        """Train the critics, with the encoder where it belongs to them; the new priorities."""
        lap = self.settings["replay"] == "lap"
        floor: float = self.settings["min_priority"]
        exponent: float = self.settings["priority_exponent"]
        moves: Moves = []
        optimisers = [self.critic_adam]
        encoder = self._reading_encoder()
        if not self.end_to_end:
            encoder = detached(encoder)
        error = self._values(self.critics, encoder, batch.state, batch.action, moves) - target
        size = error.abs()
        each = torch.where(size < floor, 0.5 * size**2, floor * size) if lap else error**2
        loss = each.mean(0).sum()
        if self.end_to_end:
            optimisers.append(self.encoder_adam)
            if self.algorithm == "td7":
                weight = self.settings["encoder_loss_weight"]
                loss = loss + weight * self._encoder_loss(batch, moves)
        descend(loss, optimisers, moves)
        if self.end_to_end:
            follow(self.slow_encoder, self.encoder, 0.01)
        if not lap:
            return None
        largest = size.detach().max(-1).values
        return largest.clamp(min=floor) ** exponent

    def _actor_step(self, batch: Batch) -> None:
        """Train the actor through the critics."""
        moves: Moves = []
        encoder = detached(self._reading_encoder())
        critics = [detached(critic) for critic in self.critics]
        if self.settings["actor_value"] == "first":
            critics = critics[:1]
        action = self._policy(self.actor, encoder, batch.state, moves)
        value = self._values(critics, encoder, batch.state, action)
        scale = self.settings["cloning_weight"] * value.detach().abs().mean()
        loss = -value.mean() + scale * F.mse_loss(action, batch.action)
        descend(loss, [self.actor_adam], moves)

    def _move_targets(self, rate: float = 1.0) -> None:
        """Move the target actor, critics and encoder towards their sources."""
        follow(self.target_actor, self.actor, rate)
        for target, critic in zip(self.target_critics, self.critics, strict=True):
            follow(target, critic, rate)
        follow(self.target_encoder, self.encoder, rate)

    def _refresh(self) -> None:
        """The hard copies and the clipping bounds of every `target_every`-th update."""
        if self.algorithm == "td7" or self.settings["target_update"] == "copy":
            self._move_targets()
        follow(self.target_fixed_encoder, self.fixed_encoder)
        follow(self.fixed_encoder, self.encoder)
        self.clip_min, self.clip_max = self.lowest, self.highest

"""The offline agents' updates in plain single-seed PyTorch, float64, to compare the package with.

Written from the papers' equations and the values in `docs/reproduction/offline-sources.md`; it
shares no code with the package. Randomness enters `update` as data, gradients are autograd's, every
optimiser is `torch.optim.Adam` with PyTorch's betas and epsilon. A network is a dictionary of named
tensors (see `Weights`), cloned when an agent is made; `networks()` gives clones of them all.

Glossary (network, time, symbol):
    s, a, r     state, action, reward; next_ marks the following time step
    pi_a        the policy's own action at s
    q, v, y     Q(s, a), V(s), and the value target that the critics learn; [B, 1] each
    u           an action before tanh
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from reference import ReferenceTD7

# "LAYER.weight" [in, out] and "LAYER.bias" [out]; "LAYER.gain" and "LAYER.shift" where the layer
# has a layer norm; a bare "log_std" [A] where a policy's spread does not depend on the state.
# Heads are called as in HEADS, every other layer is hidden, in the dictionary's order.
Weights = dict[str, Tensor]
HEADS = ("value", "action", "log_std")
Losses = dict[str, float]


class Batch(NamedTuple):
    state: Tensor  # [B, S]
    action: Tensor  # [B, A]
    next_state: Tensor  # [B, S]
    reward: Tensor  # [B, 1]
    not_terminated: Tensor  # [B, 1]; 0 only where the task really ended

    def double(self) -> "Batch":
        return Batch(*(part.double() for part in self))


# -- networks ------------------------------------------------------------------------------------


def loaded(weights: Weights, *, trained: bool) -> Weights:
    """Float64 clones of a network's tensors."""
    return {
        name: tensor.detach().clone().double().requires_grad_(trained)
        for name, tensor in weights.items()
    }


def linear(weights: Weights, layer: str, x: Tensor) -> Tensor:
    return x @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]


def hidden_layers(weights: Weights) -> list[str]:
    layers = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
    return [layer for layer in layers if layer not in HEADS]


def features(weights: Weights, *inputs: Tensor, norm_epsilon: float = 1e-6) -> Tensor:
    """The last hidden layer's values: relu(LayerNorm(Linear(x))), the norm where there is one."""
    x = torch.cat(inputs, dim=-1)
    for layer in hidden_layers(weights):
        x = linear(weights, layer, x)
        if f"{layer}.gain" in weights:
            x = (x - x.mean(-1, keepdim=True)) / (
                x.var(-1, keepdim=True, correction=0) + norm_epsilon
            ).sqrt()
            x = x * weights[f"{layer}.gain"] + weights[f"{layer}.shift"]
        x = torch.relu(x)
    return x


def q_values(critics: Sequence[Weights], s: Tensor, a: Tensor) -> list[Tensor]:
    """Each critic's Q(s, a)."""
    return [linear(critic, "value", features(critic, s, a)) for critic in critics]


def smallest(values: Sequence[Tensor]) -> Tensor:
    """min over the critics, element by element."""
    return torch.stack(list(values)).amin(dim=0)


def deterministic_action(actor: Weights, s: Tensor) -> Tensor:
    return torch.tanh(linear(actor, "action", features(actor, s)))


def adam(networks: Sequence[Weights], rate: float) -> torch.optim.Adam:
    tensors = [tensor for network in networks for tensor in network.values()]
    return torch.optim.Adam(tensors, lr=rate)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """One step down the loss; gradients that other losses left are cleared first."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch ships it untyped
    optimizer.step()
    return loss.item()


@torch.no_grad()
def follow(targets: Sequence[Weights], networks: Sequence[Weights], rate: float) -> None:
    """target <- (1 - tau) target + tau network."""
    for target, network in zip(targets, networks, strict=True):
        for name, tensor in target.items():
            tensor.copy_((1 - rate) * tensor + rate * network[name])


def clones(networks: Sequence[Weights]) -> list[Weights]:
    return [loaded(network, trained=False) for network in networks]


# -- formulas ------------------------------------------------------------------------------------


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """E |tau - 1(x < 0)| x^2 of x = q - v: tau where v is too small, 1 - tau elsewhere."""
    weight = (expectile - (difference < 0).double()).abs()
    return (weight * difference**2).mean()


def gumbel_loss(difference: Tensor, temperature: float, clip: float) -> Tensor:
    """E[exp(z) - z - 1] / exp(m), z = min((q - v) / beta, clip).

    m is the batch's largest z, at least -1, without a gradient. Where z is clipped, v has no
    gradient from that row at all.
    """
    z = (difference / temperature).clamp(max=clip)
    m = z.max().clamp(min=-1.0).detach()
    return (torch.exp(z - m) - z * torch.exp(-m) - torch.exp(-m)).mean()


def huber(error: Tensor, threshold: float) -> Tensor:
    """x^2 / 2 up to the threshold d, d (|x| - d / 2) beyond it; element by element."""
    x = error.abs()
    return torch.where(x <= threshold, 0.5 * x**2, threshold * (x - 0.5 * threshold))


def advantage_weights(advantage: Tensor, temperature: float, largest: float) -> Tensor:
    """min(exp(temperature * (q - v)), largest)."""
    return torch.exp(temperature * advantage).clamp(max=largest)


def cosine_rate(updates_before: int, first_rate: float, total: int) -> float:
    """first_rate * (1 + cos(pi t / T)) / 2 of an update that t others came before; 0 from T on."""
    return first_rate * 0.5 * (1 + math.cos(math.pi * min(updates_before, total) / total))


def normal_log_density(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(x | mean, exp(log_std)^2), a number a dimension."""
    return -0.5 * ((x - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


def tanh_correction(a: Tensor) -> Tensor:
    """log(1 - a^2 + 1e-6), what log N(u) is too large by as a density of a = tanh(u)."""
    return torch.log(1 - a**2 + 1e-6)


def inverse_tanh(a: Tensor) -> Tensor:
    """log((1 + a) / (1 - a)) / 2, both kept at 1e-6 or more."""
    return 0.5 * torch.log((1 + a).clamp(min=1e-6) / (1 - a).clamp(min=1e-6))


def soft_maximum(values: Tensor, log_densities: Tensor, temperature: float) -> Tensor:
    """beta log sum_k exp((Q_k - log p_k) / beta) over the first axis, p_k what action k came from.

    A sum, not a mean: log of the number of actions is not taken off.
    """
    return temperature * torch.logsumexp((values - log_densities) / temperature, dim=0)


# -- TD7 -----------------------------------------------------------------------------------------


class TD7Offline:
    """`ReferenceTD7` with its behaviour-cloning term, between named tensors.

    -Q + lambda |E|Q||x E(pi_a - a)^2, both over both critics; all else is online TD7's update.
    """

    NAMES: Mapping[str, Mapping[str, str]] = {  # here: there
        "encoder": {"f1": "f1", "f2": "f2", "zs": "f3", "g1": "g1", "g2": "g2", "zsa": "g3"},
        "critic": {"phi": "l0", "q1": "l1", "q2": "l2", "value": "l3"},
        "actor": {"phi": "l0", "a1": "l1", "a2": "l2", "action": "l3"},
    }

    def __init__(
        self,
        encoder: Weights,
        critics: Sequence[Weights],
        actor: Weights,
        *,
        cloning_weight: float = 0.1,  # lambda
        **settings: Any,
    ) -> None:
        """`settings` as of `ReferenceTD7`."""
        state_dim, hidden_dim = encoder["f1.weight"].shape
        sizes = (state_dim, len(actor["action.bias"]), len(encoder["zs.bias"]), hidden_dim)
        self.agent = ReferenceTD7(*sizes, bc_weight=cloning_weight, **settings)
        self.priorities = torch.empty(0)  # of the latest update, [B]
        for name, modules in self._modules().items():
            group = name.rpartition("_")[2]
            given = {"encoder": [encoder], "critic": critics, "actor": [actor]}[group]
            for module, weights in zip(modules, given, strict=True):
                for here, there in self.NAMES[group].items():
                    layer = getattr(module, there)
                    layer.weight.data.copy_(weights[f"{here}.weight"].t())
                    layer.bias.data.copy_(weights[f"{here}.bias"])

    def _modules(self) -> dict[str, list[nn.Module]]:
        """The plain modules of each network, one a head."""
        t = self.agent
        return {
            "encoder": [t.encoder],
            "fixed_encoder": [t.fixed_encoder],
            "target_fixed_encoder": [t.target_fixed_encoder],
            "critic": [t.critic.q1, t.critic.q2],
            "target_critic": [t.target_critic.q1, t.target_critic.q2],
            "actor": [t.actor],
            "target_actor": [t.target_actor],
        }

    def update(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """noise: "target_policy", standard normal [B, A]."""
        self.priorities = self.agent.update(*batch, noise["target_policy"])
        return self.agent.losses

    def networks(self) -> dict[str, list[Weights]]:
        found: dict[str, list[Weights]] = {}
        for name, modules in self._modules().items():
            found[name] = []
            for module in modules:
                weights: Weights = {}
                for here, there in self.NAMES[name.rpartition("_")[2]].items():
                    layer = getattr(module, there)
                    weights[f"{here}.weight"] = layer.weight.detach().clone().t()
                    weights[f"{here}.bias"] = layer.bias.detach().clone()
                found[name].append(weights)
        return found


# -- TD3+BC --------------------------------------------------------------------------------------


class TD3BC:
    """TD3 whose actor also clones; the batch's states are already normalised."""

    def __init__(
        self,
        critics: Sequence[Weights],
        actor: Weights,
        *,
        cloning_alpha: float = 2.5,
        discount: float = 0.99,
        target_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        actor_every: int = 2,
        target_rate: float = 0.005,
        learning_rate: float = 3e-4,
    ) -> None:
        self.cloning_alpha, self.discount, self.target_rate = cloning_alpha, discount, target_rate
        self.target_noise, self.target_noise_clip = target_noise, target_noise_clip
        self.actor_every, self.updates = actor_every, 0

        self.critics = [loaded(critic, trained=True) for critic in critics]
        self.actor = loaded(actor, trained=True)
        self.target_critics = clones(self.critics)
        self.target_actor = loaded(actor, trained=False)
        self.critic_optimizer = adam(self.critics, learning_rate)
        self.actor_optimizer = adam([self.actor], learning_rate)

    def update(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """noise: "target_policy", standard normal [B, A]. Without an actor step, no actor_loss."""
        s, a, next_s, r, not_terminated = batch.double()
        self.updates += 1
        losses: Losses = {}

        # y = r + gamma min(Q1', Q2')(s', clip(pi'(s') + clip(sigma eps, -c, c), -1, 1))
        with torch.no_grad():
            epsilon = self.target_noise * noise["target_policy"].double()
            epsilon = epsilon.clamp(-self.target_noise_clip, self.target_noise_clip)
            next_a = (deterministic_action(self.target_actor, next_s) + epsilon).clamp(-1, 1)
            next_q = smallest(q_values(self.target_critics, next_s, next_a))
            y = r + self.discount * not_terminated * next_q

        # Critics: E(Q1 - y)^2 + E(Q2 - y)^2
        q1, q2 = q_values(self.critics, s, a)
        critic_loss = ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()
        losses["critic_loss"] = step(self.critic_optimizer, critic_loss)

        # Every second update the actor: -lambda E[Q1(s, pi_a)] + E(pi_a - a)^2, the last mean over
        # batch and dimensions, Q1 after its step, lambda = |alpha / E|Q1(s, pi_a)||x
        if self.updates % self.actor_every == 0:
            pi_a = deterministic_action(self.actor, s)
            q = q_values(self.critics[:1], s, pi_a)[0]
            scale = self.cloning_alpha / q.abs().mean().detach()
            actor_loss = -scale * q.mean() + ((pi_a - a) ** 2).mean()
            losses["actor_loss"] = step(self.actor_optimizer, actor_loss)

            # ... and then, only then, all target networks
            follow(self.target_critics, self.critics, self.target_rate)
            follow([self.target_actor], [self.actor], self.target_rate)
        return losses

    def networks(self) -> dict[str, list[Weights]]:
        return {
            "critic": clones(self.critics),
            "target_critic": clones(self.target_critics),
            "actor": clones([self.actor]),
            "target_actor": clones([self.target_actor]),
        }


# -- IQL and X-QL --------------------------------------------------------------------------------


class InSample:
    """IQL or X-QL, by the two losses given; rewards and actions are already scaled and clipped.

    The policy is N(tanh(mean(s)), std^2), std = exp(log_std) the same for every state; the density
    is the Gaussian's own, without a change of variables, since the noise comes after the tanh.
    """

    def __init__(
        self,
        value: Weights,
        critics: Sequence[Weights],
        actor: Weights,
        value_loss: Callable[[Tensor], Tensor],  # of q - v, [B, 1]
        critic_loss: Callable[[Tensor], Tensor],  # of one critic's Q - y, [B, 1]
        *,
        advantage_temperature: float = 3.0,
        largest_weight: float = 100.0,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        discount: float = 0.99,
        target_rate: float = 0.005,
        learning_rate: float = 3e-4,
        cosine_updates: int = 1_000_000,
        norm_epsilon: float = 1e-6,  # of the value network's layer norm, where it has one
    ) -> None:
        self.value_loss, self.critic_loss = value_loss, critic_loss
        self.advantage_temperature = advantage_temperature
        self.largest_weight, self.log_std_bounds = largest_weight, log_std_bounds
        self.discount, self.target_rate = discount, target_rate
        self.norm_epsilon = norm_epsilon

        self.value = loaded(value, trained=True)
        self.critics = [loaded(critic, trained=True) for critic in critics]
        self.actor = loaded(actor, trained=True)
        self.target_critics = clones(self.critics)
        self.value_optimizer = adam([self.value], learning_rate)
        self.critic_optimizer = adam(self.critics, learning_rate)
        self.actor_optimizer = adam([self.actor], learning_rate)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.actor_optimizer, lambda t: cosine_rate(t, 1.0, cosine_updates)
        )

    def _v(self, s: Tensor) -> Tensor:
        return linear(self.value, "value", features(self.value, s, norm_epsilon=self.norm_epsilon))

    def update(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """noise: none is needed."""
        s, a, next_s, r, not_terminated = batch.double()
        losses: Losses = {}
        with torch.no_grad():
            q = smallest(q_values(self.target_critics, s, a))  # min(Q1', Q2')(s, a)

        # Value: the loss of q - V(s)
        losses["value_loss"] = step(self.value_optimizer, self.value_loss(q - self._v(s)))

        # Actor: -E[w log pi(a | s)], w = |min(exp(temperature (q - V(s))), 100)|x, V after its step
        with torch.no_grad():
            weight = advantage_weights(
                q - self._v(s), self.advantage_temperature, self.largest_weight
            )
        mean = deterministic_action(self.actor, s)
        log_std = self.actor["log_std"].clamp(*self.log_std_bounds)
        log_pi = normal_log_density(a, mean, log_std).sum(dim=-1, keepdim=True)
        losses["actor_loss"] = step(self.actor_optimizer, -(weight * log_pi).mean())
        self.schedule.step()

        # Critics: the losses of Q1 - y and Q2 - y, y = r + gamma V(s'), V after its step
        with torch.no_grad():
            y = r + self.discount * not_terminated * self._v(next_s)
        q1, q2 = q_values(self.critics, s, a)
        critic_loss = self.critic_loss(q1 - y) + self.critic_loss(q2 - y)
        losses["critic_loss"] = step(self.critic_optimizer, critic_loss)

        # Target critics, at every update
        follow(self.target_critics, self.critics, self.target_rate)
        return losses

    def networks(self) -> dict[str, list[Weights]]:
        return {
            "value": clones([self.value]),
            "critic": clones(self.critics),
            "target_critic": clones(self.target_critics),
            "actor": clones([self.actor]),
        }


def iql(
    value: Weights,
    critics: Sequence[Weights],
    actor: Weights,
    *,
    expectile: float = 0.7,
    **settings: Any,
) -> InSample:
    """Expectile regression of V, squared errors of Q; `settings` as of `InSample`."""
    return InSample(
        value,
        critics,
        actor,
        value_loss=lambda difference: expectile_loss(difference, expectile),
        critic_loss=lambda error: (error**2).mean(),
        **settings,
    )


def xql(
    value: Weights,
    critics: Sequence[Weights],
    actor: Weights,
    *,
    gumbel_temperature: float = 2.0,
    gumbel_clip: float = 7.0,
    huber_threshold: float = 20.0,
    **settings: Any,
) -> InSample:
    """Gumbel regression of V (its network with layer norms), Huber errors of Q."""
    return InSample(
        value,
        critics,
        actor,
        value_loss=lambda difference: gumbel_loss(difference, gumbel_temperature, gumbel_clip),
        critic_loss=lambda error: huber(error, huber_threshold).mean(),
        **settings,
    )


# -- CQL -----------------------------------------------------------------------------------------


class CQL:
    """CQL(H) on SAC with a fixed weight: importance-sampled, no entropy in the value target."""

    def __init__(
        self,
        critics: Sequence[Weights],
        actor: Weights,
        action_dim: int,
        *,
        target_critics: Sequence[Weights] | None = None,  # None: the critics'
        conservative_weight: float = 10.0,
        conservative_temperature: float = 1.0,
        cloning_updates: int = 40_000,
        target_entropy_per_dimension: float = -1.0,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        cloned_mean_bound: float = 9.0,
        discount: float = 0.99,
        target_rate: float = 0.005,
        critic_rate: float = 3e-4,
        actor_rate: float = 3e-5,
        temperature_rate: float = 3e-5,
    ) -> None:
        self.conservative_weight = conservative_weight
        self.conservative_temperature = conservative_temperature
        self.cloning_updates = cloning_updates
        self.target_entropy = target_entropy_per_dimension * action_dim
        self.log_std_bounds, self.cloned_mean_bound = log_std_bounds, cloned_mean_bound
        self.discount, self.target_rate = discount, target_rate
        self.updates = 0

        self.critics = [loaded(critic, trained=True) for critic in critics]
        self.target_critics = clones(critics if target_critics is None else target_critics)
        self.actor = loaded(actor, trained=True)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.critic_optimizer = adam(self.critics, critic_rate)
        self.actor_optimizer = adam([self.actor], actor_rate)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=temperature_rate)

    def _gaussian(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std of u, both of the state."""
        x = features(self.actor, s)
        log_std = linear(self.actor, "log_std", x).clamp(*self.log_std_bounds)
        return linear(self.actor, "action", x), log_std

    def _sampled(self, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """a = tanh(u), u = mean + std eps, and log pi(a | s) [..., 1]; eps is [..., B, A]."""
        mean, log_std = self._gaussian(s)
        u = mean + log_std.exp() * noise
        a = torch.tanh(u)
        log_pi = normal_log_density(u, mean, log_std) - tanh_correction(a)
        return a, log_pi.sum(dim=-1, keepdim=True)

    def _log_pi(self, s: Tensor, a: Tensor) -> Tensor:
        """log pi(a | s) of the data's actions [B, 1]; here, and only here, the mean is bounded."""
        mean, log_std = self._gaussian(s)
        mean = mean.clamp(-self.cloned_mean_bound, self.cloned_mean_bound)
        log_pi = normal_log_density(inverse_tanh(a), mean, log_std) - tanh_correction(a)
        return log_pi.sum(dim=-1, keepdim=True)

    def update(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """noise: standard normals "policy" and "next_policy" [B, A], "sampled" and "next_sampled"
        [N, B, A]; uniforms in [-1, 1] "random" [N, B, A].

        critic_loss is both critics' whole loss, conservative_loss its second part.
        """
        s, a, next_s, r, not_terminated = batch.double()
        epsilon = {name: tensor.double() for name, tensor in noise.items()}
        self.updates += 1
        losses: Losses = {}

        # All that the critics need of the policy is of the policy before its step, without gradient
        with torch.no_grad():
            next_a, _ = self._sampled(next_s, epsilon["next_policy"])
            sampled_a, sampled_log_pi = self._sampled(s, epsilon["sampled"])
            next_sampled_a, next_sampled_log_pi = self._sampled(next_s, epsilon["next_sampled"])
        random_a = epsilon["random"]
        random_log_p = torch.full_like(sampled_log_pi, a.shape[-1] * math.log(0.5))

        # Temperature: -log alpha E|log pi + target entropy|x
        pi_a, log_pi = self._sampled(s, epsilon["policy"])
        alpha_loss = -self.log_alpha * (log_pi.detach() + self.target_entropy).mean()
        losses["temperature_loss"] = step(self.alpha_optimizer, alpha_loss)
        alpha = self.log_alpha.detach().exp()  # after its step

        # Actor: E[alpha log pi(pi_a | s) - min(Q1, Q2)(s, pi_a)], Q before its step; in the first
        # updates (1 to cloning_updates - 1) E[alpha log pi(pi_a | s) - log pi(a | s)]
        if self.updates < self.cloning_updates:
            climbed = self._log_pi(s, a)
        else:
            climbed = smallest(q_values(self.critics, s, pi_a))
        actor_loss = (alpha * log_pi - climbed).mean()
        losses["actor_loss"] = step(self.actor_optimizer, actor_loss)

        # y = r + gamma min(Q1', Q2')(s', a'), a' one action of the policy, no entropy
        with torch.no_grad():
            next_q = smallest(q_values(self.target_critics, next_s, next_a))
            y = r + self.discount * not_terminated * next_q

        # Critics, each: E(Q - y)^2 + weight E[log sum exp(Q(s, .) - log p(.)) - Q(s, a)], the sum
        # over N random actions, N of pi(s') and N of pi(s), all at s
        actions = torch.cat([random_a, next_sampled_a, sampled_a])  # [3N, B, A]
        log_p = torch.cat([random_log_p, next_sampled_log_pi, sampled_log_pi])  # [3N, B, 1]
        states = s.expand(len(actions), *s.shape)
        critic_loss = torch.zeros((), dtype=torch.float64)
        conservative_loss = torch.zeros((), dtype=torch.float64)
        for critic in self.critics:
            (q,) = q_values([critic], s, a)
            (other_q,) = q_values([critic], states, actions)
            soft_q = soft_maximum(other_q, log_p, self.conservative_temperature)
            conservative_loss = conservative_loss + self.conservative_weight * (soft_q - q).mean()
            critic_loss = critic_loss + ((q - y) ** 2).mean()
        losses["conservative_loss"] = conservative_loss.item()
        losses["critic_loss"] = step(self.critic_optimizer, critic_loss + conservative_loss)

        # Target critics, at every update
        follow(self.target_critics, self.critics, self.target_rate)
        return losses

    def networks(self) -> dict[str, list[Weights]]:
        return {
            "critic": clones(self.critics),
            "target_critic": clones(self.target_critics),
            "actor": clones([self.actor]),
        }


# -- numbers to check with a calculator ----------------------------------------------------------


class Example(NamedTuple):
    given: dict[str, Any]  # arguments, by the names that the formulas above have
    expected: Any


LN2, LN3, LN5, LN10, LN100 = (math.log(n) for n in (2, 3, 5, 10, 100))

BY_HAND: dict[str, tuple[Example, ...]] = {
    # (0.7 * 2^2 + 0.3 * 1^2) / 2; at 0.5 it is half the mean square
    "expectile_loss": (
        Example({"difference": [2.0, -1.0], "expectile": 0.7}, 1.55),
        Example({"difference": [2.0, -1.0], "expectile": 0.5}, 1.25),
        Example({"difference": [0.0, 0.0], "expectile": 0.7}, 0.0),
    ),
    "gumbel_loss": (
        # z = 0, log 2; m = log 2: (0 + (2 - log 2 - 1) / 2) / 2
        Example(
            {"difference": [0.0, 2 * LN2], "temperature": 2.0, "clip": 7.0}, (1 - LN2) / 4
        ),  # 0.0767132
        # the same, by the clip; V's gradient is 0 in both rows
        Example({"difference": [0.0, 100.0], "temperature": 2.0, "clip": LN2}, (1 - LN2) / 4),
        # z = 10, clipped: 7; m = 7: (e^7 - 7 - 1) / e^7
        Example(
            {"difference": [20.0], "temperature": 2.0, "clip": 7.0}, 1 - 8 * math.exp(-7)
        ),  # 0.9927049
        # z = -4 in all rows; m = -1, not -4: e (e^-4 + 4 - 1)
        Example(
            {"difference": [-8.0, -8.0], "temperature": 2.0, "clip": 7.0},
            math.e * (math.exp(-4) + 3),
        ),  # 8.2046326
    ),
    # (e^z - 1) / (-beta e^m n) for V, 0 where clipped: first example above, then with a clip
    "gumbel_gradient_of_v": (
        Example({"difference": [0.0, 2 * LN2], "temperature": 2.0, "clip": 7.0}, [0.0, -0.125]),
        Example({"difference": [2 * LN2, 20.0], "temperature": 2.0, "clip": LN3}, [-1 / 12, 0.0]),
    ),
    # 10^2 / 2; 20 * (30 - 10)
    "huber": (Example({"error": [10.0, -30.0], "threshold": 20.0}, [50.0, 400.0]),),
    # e^0, 2, 1/4, e^(log 100) = 100 just not clipped, e^6 = 403.4 clipped
    "advantage_weights": (
        Example(
            {
                "advantage": [0.0, LN2 / 3, -2 * LN2 / 3, LN100 / 3, 2.0],
                "temperature": 3.0,
                "largest": 100.0,
            },
            [1.0, 2.0, 0.25, 100.0, 100.0],
        ),
    ),
    # the first update has the full rate; cos 45 degrees = 0.7071068; never below 0
    "cosine_rate": tuple(
        Example({"updates_before": t, "first_rate": 3e-4, "total": 1_000_000}, rate)
        for t, rate in (
            (0, 3e-4),
            (250_000, 3e-4 * (2 + math.sqrt(2)) / 4),  # 2.5606602e-4
            (500_000, 1.5e-4),
            (1_000_000, 0.0),
            (1_500_000, 0.0),
        )
    ),
    # log N(0.5 | 0.5, 1), and one standard deviation 2 away
    "normal_log_density": (
        Example({"x": [0.5], "mean": [0.5], "log_std": [0.0]}, [-0.9189385332046727]),
        Example({"x": [2.5], "mean": [0.5], "log_std": [LN2]}, [-1.4189385332046727 - LN2]),
    ),
    # tanh(log 2) = 3/5; at the bounds log(2 / 1e-6) / 2 = 7.2543289
    "inverse_tanh": (
        Example({"a": [0.6, 0.0, 1.0, -1.0]}, [LN2, 0.0, math.log(2e6) / 2, -math.log(2e6) / 2]),
    ),
    "soft_maximum": (
        # one action of each kind, A = 1: -log p = log 2 (random), 0, log 5: log(2 + 3 + 5)
        Example(
            {
                "values": [0.0, LN3, 0.0],
                "log_densities": [-LN2, 0.0, -LN5],
                "temperature": 1.0,
            },
            LN10,
        ),
        # two random actions, A = 2: log(4 + 4 * 2), not log of the mean
        Example(
            {
                "values": [0.0, LN2],
                "log_densities": [-2 * LN2, -2 * LN2],
                "temperature": 1.0,
            },
            math.log(12),
        ),
        # temperature 2: 2 log(2 + 3 + 5)
        Example(
            {
                "values": [2 * LN2, 2 * LN3, 2 * LN5],
                "log_densities": [0.0, 0.0, 0.0],
                "temperature": 2.0,
            },
            2 * LN10,
        ),
    ),
    # 10 * (log 10 - 1): the first example above where Q(s, a) = 1
    "conservative_loss": (
        Example(
            {
                "values": [0.0, LN3, 0.0],
                "log_densities": [-LN2, 0.0, -LN5],
                "temperature": 1.0,
                "data_value": 1.0,
                "weight": 10.0,
            },
            10 * (LN10 - 1),
        ),  # 13.0258509
    ),
    # lambda = 2.5 / ((2 + 6) / 2) = 0.625; E[Q] = -2; E(pi_a - a)^2 = (1/4 + 1) / 4 = 0.3125:
    # 0.625 * 2 + 0.3125
    "td3_bc_actor_loss": (
        Example(
            {
                "q": [[2.0], [-6.0]],  # Q1 alone
                "pi_a": [[0.5, 0.0], [0.0, 0.0]],
                "a": [[0.0, 0.0], [0.0, 1.0]],
                "cloning_alpha": 2.5,
            },
            1.5625,
        ),
    ),
    # E[Q] = 1, E|Q| = 4 over both critics and rows: -1 + 0.1 * 4 * 0.3125
    "td7_actor_loss": (
        Example(
            {
                "q": [[2.0, 4.0], [-6.0, 4.0]],
                "pi_a": [[0.5, 0.0], [0.0, 0.0]],
                "a": [[0.0, 0.0], [0.0, 1.0]],
                "cloning_weight": 0.1,
            },
            -0.875,
        ),
    ),
}

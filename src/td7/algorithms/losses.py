"""The paper's formulas as pure functions; losses are per member, [S].

Constants are arguments. A `Scalar` is a number, or one per member where members differ.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from td7.networks.scalars import Scalar, spread


def per_member_mean(x: Tensor) -> Tensor:
    """[S]: the mean over everything but the member axis."""
    return x.flatten(1).mean(dim=1)


def encoder_loss(zsa: Tensor, next_zs: Tensor) -> Tensor:
    """(zsa - |zs'|x)^2, the mean over dimensions and batch; the caller stops the gradient."""
    return per_member_mean((zsa - next_zs).square())


def cosine_loss(zsa: Tensor, next_zs: Tensor) -> Tensor:
    """-cos(zsa, |zs'|x), the mean over the batch; the caller stops the gradient."""
    # Differs from paper: the minus sign; as printed, the loss would push the two apart.
    return -per_member_mean(functional.cosine_similarity(zsa, next_zs, dim=-1))


def smoothed_action(action: Tensor, noise: Tensor, scale: Scalar, clip: Scalar) -> Tensor:
    """a' = clip(pi + clip(eps, -c, c), -1, 1), eps = scale * standard normal noise."""
    c, scaled = spread(clip, noise), spread(scale, noise) * noise
    clipped = scaled.clamp(-c, c)  # type: ignore[arg-type]  # both are numbers, or both tensors
    return (action + clipped).clamp(-1.0, 1.0)


def value_target(
    reward: Tensor,
    not_terminated: Tensor,
    next_value: Tensor,
    discount: Scalar,
) -> Tensor:
    """r + gamma * not_terminated * V(s')."""
    return reward + spread(discount, reward) * not_terminated * next_value


def clipped_value(value: Tensor, clip_min: Tensor, clip_max: Tensor) -> Tensor:
    """clip(V, Qmin, Qmax), with bounds per member, [S]."""
    bounds = [bound.view(-1, 1, 1) for bound in (clip_min, clip_max)]
    return torch.minimum(torch.maximum(value, bounds[0]), bounds[1])


def squared_error(error: Tensor) -> Tensor:
    """error^2, summed over heads, mean over the batch; error is [S, heads, B, 1]."""
    return error.square().sum(dim=1).flatten(1).mean(dim=1)


def lap_huber(error: Tensor, min_priority: Scalar) -> Tensor:
    """LAP's Huber loss of x = |error|: x^2 / 2 below the minimum priority m, m x above it.

    Summed over heads, mean over the batch; error is [S, heads, B, 1].
    """
    # Differs from paper: no -m^2/2 in the linear part, as in the authors' program (same gradient).
    x, m = error.abs(), spread(min_priority, error)
    huber = torch.where(x < m, 0.5 * x.square(), m * x)
    return huber.sum(dim=1).flatten(1).mean(dim=1)


def lap_priority(error: Tensor, min_priority: Scalar, exponent: Scalar) -> Tensor:
    """max(|delta|, m)^alpha, |delta| the larger of both errors: [S, heads, B, 1] -> [S, B]."""
    delta = error.abs().amax(dim=1).squeeze(-1)
    return delta.clamp(min=spread(min_priority, delta)) ** spread(exponent, delta)


def actor_loss(q: Tensor, action: Tensor, data_action: Tensor, cloning_weight: Scalar) -> Tensor:
    """-Q + lambda |E[Q]|x (a_pi - a)^2, Q the mean over both critics: [S, heads, B, 1] -> [S]."""
    loss = -per_member_mean(q)
    if isinstance(cloning_weight, Tensor) or cloning_weight > 0:
        # Differs from paper: the weight is the mean of |Q|, as in the authors' program; the
        # text's bars around E[Q] are the stop-gradient sign.
        scale = per_member_mean(q.detach().abs())
        weight = spread(cloning_weight, scale)
        loss = loss + weight * scale * per_member_mean((action - data_action).square())
    return loss


def gaussian_log_prob(log_std: Tensor, noise: Tensor) -> Tensor:
    """log N(u | mean, std^2) at u = mean + std * noise, per dimension."""
    return -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std


def tanh_correction_epsilon(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2 + 1e-6), the change of the log density under tanh: SAC's form."""
    return torch.log(1 - torch.tanh(u).square() + 1e-6)


def tanh_correction_sigmoid(u: Tensor) -> Tensor:
    """2 log 2 + log sigmoid(2u) + log sigmoid(-2u), exact, without an epsilon: TQC's form."""
    return 2 * math.log(2) + functional.logsigmoid(2 * u) + functional.logsigmoid(-2 * u)


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: Scalar) -> Tensor:
    """-log alpha E[log pi + target entropy]; the caller stops the gradient of log pi."""
    return -log_alpha * per_member_mean(log_prob + spread(target_entropy, log_prob))


def truncated(z: Tensor, dropped: int) -> Tensor:
    """All critics' quantiles [S, N, B, Q], pooled, sorted, the largest dropped: [S, B, T]."""
    pooled = z.transpose(1, 2).flatten(2).sort(dim=-1).values
    return pooled[..., : pooled.shape[-1] - dropped]


def quantile_huber(z: Tensor, target: Tensor, threshold: float) -> Tensor:
    """|tau_i - 1(delta < 0)| huber(delta), delta = target_j - z_i, tau_i = (i + 0.5) / Q.

    The mean over the batch, critics, quantiles z [S, N, B, Q] and targets [S, B, T]. The Huber
    loss is linear above the threshold.
    """
    delta = target.unsqueeze(1).unsqueeze(-2) - z.unsqueeze(-1)  # [S, N, B, Q, T]
    x = delta.abs()
    linear = threshold * (x - 0.5 * threshold)
    huber = torch.where(x > threshold, linear, 0.5 * x.square())
    n = z.shape[-1]
    tau = (torch.arange(n, device=z.device, dtype=z.dtype) + 0.5) / n
    weight = (tau.view(-1, 1) - (delta < 0).to(z.dtype)).abs()
    return per_member_mean(weight * huber)


# -- offline -------------------------------------------------------------------------------------


def td3_bc_loss(q: Tensor, action: Tensor, data_action: Tensor, alpha: Scalar) -> Tensor:
    """-alpha / |E|Q||x Q + (a_pi - a)^2, TD3+BC's actor loss; q is [S, heads, B, 1]."""
    mean = per_member_mean(q.detach().abs())
    scale = spread(alpha, mean) / mean
    return -scale * per_member_mean(q) + per_member_mean((action - data_action).square())


def expectile_loss(difference: Tensor, expectile: Scalar) -> Tensor:
    """|expectile - 1(x < 0)| x^2 of x = q - v [S, B, 1], IQL's value loss."""
    weight = (spread(expectile, difference) - (difference < 0).to(difference.dtype)).abs()
    return per_member_mean(weight * difference.square())


def gumbel_loss(difference: Tensor, temperature: Scalar, clip: Scalar) -> Tensor:
    """(exp(z) - z - 1) / exp(|m|x) of z = min((q - v) / beta, clip) [S, B, 1], X-QL's value loss.

    m is the batch's largest z, at least -1; it keeps the exponentials from overflowing.
    """
    z = (difference / spread(temperature, difference)).clamp(max=spread(clip, difference))
    m = z.detach().amax(dim=(1, 2), keepdim=True).clamp(min=-1)
    return per_member_mean(torch.exp(z - m) - (z + 1) * torch.exp(-m))


def huber(error: Tensor, threshold: Scalar) -> Tensor:
    """x^2 / 2 up to the threshold d, d (x - d / 2) above it, x = |error|.

    Summed over heads, mean over the batch; error is [S, heads, B, 1].
    """
    x, d = error.abs(), spread(threshold, error)
    loss = torch.where(x <= d, 0.5 * x.square(), d * (x - 0.5 * d))
    return loss.sum(dim=1).flatten(1).mean(dim=1)


def advantage_weight(advantage: Tensor, temperature: Scalar, largest: Scalar) -> Tensor:
    """min(exp(temperature (q - v)), largest), the weight of cloning an action."""
    factor, bound = spread(temperature, advantage), spread(largest, advantage)
    return torch.exp(factor * advantage).clamp(max=bound)


def inverse_tanh(action: Tensor) -> Tensor:
    """log((1 + a) / (1 - a)) / 2, with 1 + a and 1 - a at least 1e-6."""
    return 0.5 * torch.log((1 + action).clamp(min=1e-6) / (1 - action).clamp(min=1e-6))


def conservative_loss(q_sampled: Tensor, log_density: Tensor, q_data: Tensor) -> Tensor:
    """log sum_k exp(Q(s, a_k) - log p(a_k)) - Q(s, a), CQL's push by importance sampling.

    Summed over heads, mean over the batch. q_sampled [S, heads, N, B, 1] are the values of N
    actions, log_density [S, N, B, 1] their log p, and q_data [S, heads, B, 1] is Q(s, a).
    """
    soft = torch.logsumexp(q_sampled - log_density.unsqueeze(1), dim=2)
    return (soft - q_data).sum(dim=1).flatten(1).mean(dim=1)

"""The paper's formulas as pure functions; constants are arguments, losses are per member, [S]."""

import math

import torch
from torch import Tensor
from torch.nn import functional


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


def smoothed_action(action: Tensor, noise: Tensor, scale: float, clip: float) -> Tensor:
    """a' = clip(pi + clip(eps, -c, c), -1, 1), eps = scale * standard normal noise."""
    return (action + (scale * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)


def value_target(
    reward: Tensor,
    not_terminated: Tensor,
    next_value: Tensor,
    discount: float,
) -> Tensor:
    """r + gamma * not_terminated * V(s')."""
    return reward + discount * not_terminated * next_value


def clipped_value(value: Tensor, clip_min: Tensor, clip_max: Tensor) -> Tensor:
    """clip(V, Qmin, Qmax), with bounds per member, [S]."""
    bounds = [bound.view(-1, 1, 1) for bound in (clip_min, clip_max)]
    return torch.minimum(torch.maximum(value, bounds[0]), bounds[1])


def squared_error(error: Tensor) -> Tensor:
    """error^2, summed over heads, mean over the batch; error is [S, heads, B, 1]."""
    return error.square().sum(dim=1).flatten(1).mean(dim=1)


def lap_huber(error: Tensor, min_priority: float) -> Tensor:
    """LAP's Huber loss of x = |error|: x^2 / 2 below the minimum priority m, m x above it.

    Summed over heads, mean over the batch; error is [S, heads, B, 1].
    """
    # Differs from paper: no -m^2/2 in the linear part, as in the authors' program (same gradient).
    x = error.abs()
    huber = torch.where(x < min_priority, 0.5 * x.square(), min_priority * x)
    return huber.sum(dim=1).flatten(1).mean(dim=1)


def lap_priority(error: Tensor, min_priority: float, exponent: float) -> Tensor:
    """max(|delta|, m)^alpha, |delta| the larger of both errors: [S, heads, B, 1] -> [S, B]."""
    return error.abs().amax(dim=1).squeeze(-1).clamp(min=min_priority) ** exponent


def actor_loss(q: Tensor, action: Tensor, data_action: Tensor, cloning_weight: float) -> Tensor:
    """-Q + lambda |E[Q]|x (a_pi - a)^2, Q the mean over both critics: [S, heads, B, 1] -> [S]."""
    loss = -per_member_mean(q)
    if cloning_weight > 0:
        # Differs from paper: the weight is the mean of |Q|, as in the authors' program; the
        # text's bars around E[Q] are the stop-gradient sign.
        scale = per_member_mean(q.detach().abs())
        loss = loss + cloning_weight * scale * per_member_mean((action - data_action).square())
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


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """-log alpha E[log pi + target entropy]; the caller stops the gradient of log pi."""
    return -log_alpha * per_member_mean(log_prob + target_entropy)


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


def td3_bc_loss(q: Tensor, action: Tensor, data_action: Tensor, alpha: float) -> Tensor:
    """-alpha / |E|Q||x Q + (a_pi - a)^2, TD3+BC's actor loss; q is [S, heads, B, 1]."""
    scale = alpha / per_member_mean(q.detach().abs())
    return -scale * per_member_mean(q) + per_member_mean((action - data_action).square())


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """|expectile - 1(x < 0)| x^2 of x = q - v [S, B, 1], IQL's value loss."""
    weight = (expectile - (difference < 0).to(difference.dtype)).abs()
    return per_member_mean(weight * difference.square())


def gumbel_loss(difference: Tensor, temperature: float, clip: float) -> Tensor:
    """(exp(z) - z - 1) / exp(|m|x) of z = min((q - v) / beta, clip) [S, B, 1], X-QL's value loss.

    m is the batch's largest z, at least -1; it keeps the exponentials from overflowing.
    """
    z = (difference / temperature).clamp(max=clip)
    m = z.detach().amax(dim=(1, 2), keepdim=True).clamp(min=-1)
    return per_member_mean(torch.exp(z - m) - (z + 1) * torch.exp(-m))


def huber(error: Tensor, threshold: float) -> Tensor:
    """x^2 / 2 up to the threshold d, d (x - d / 2) above it, x = |error|.

    Summed over heads, mean over the batch; error is [S, heads, B, 1].
    """
    x = error.abs()
    loss = torch.where(x <= threshold, 0.5 * x.square(), threshold * (x - 0.5 * threshold))
    return loss.sum(dim=1).flatten(1).mean(dim=1)


def advantage_weight(advantage: Tensor, temperature: float, largest: float) -> Tensor:
    """min(exp(temperature (q - v)), largest), the weight of cloning an action."""
    return torch.exp(temperature * advantage).clamp(max=largest)


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

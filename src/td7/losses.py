"""Every formula of the paper, pure; constants are arguments. Losses come back per member, [S]."""

import torch
from torch import Tensor
from torch.nn import functional


def per_member_mean(x: Tensor) -> Tensor:
    """[S]: the mean over everything but the member axis."""
    return x.flatten(1).mean(dim=1)


def encoder_loss(zsa: Tensor, next_zs: Tensor) -> Tensor:
    """(z^sa - |z^s'|x)^2: the mean over dimensions and batch; the caller stops the gradient."""
    return per_member_mean((zsa - next_zs).square())


def cosine_loss(zsa: Tensor, next_zs: Tensor) -> Tensor:
    """-cos(z^sa, |z^s'|x), the mean over the batch."""
    # Differs from paper: the minus; as printed, the loss would make the two unlike.
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
    """clip(V, q_min, q_max), the bounds a member's own, [S]."""
    bounds = [bound.view(-1, 1, 1) for bound in (clip_min, clip_max)]
    return torch.minimum(torch.maximum(value, bounds[0]), bounds[1])


def squared_error(error: Tensor) -> Tensor:
    """error^2 of [S, heads, B, 1]; summed over heads, mean over the batch."""
    return error.square().sum(dim=1).flatten(1).mean(dim=1)


def lap_huber(error: Tensor, min_priority: float) -> Tensor:
    """LAP's Huber of |error|: x^2 / 2 below the minimum priority m, m x from it on.

    error is [S, heads, B, 1]; summed over heads, mean over the batch.
    """
    # Differs from paper: no -m^2/2 in the linear part, as in the authors' program (same gradient).
    x = error.abs()
    huber = torch.where(x < min_priority, 0.5 * x.square(), min_priority * x)
    return huber.sum(dim=1).flatten(1).mean(dim=1)


def lap_priority(error: Tensor, min_priority: float, exponent: float) -> Tensor:
    """max(|delta|, m)^alpha, |delta| the largest error: [S, heads, B, 1] -> [S, B]."""
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

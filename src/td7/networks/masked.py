"""Writes to tensors [S, ...], for the active members alone."""

from torch import Tensor

from td7.networks.scalars import Scalar, spread


def column(active: Tensor, like: Tensor) -> Tensor:
    """active [S] shaped to broadcast against `like` [S, ...]."""
    return active.view(-1, *[1] * (like.dim() - 1))


def assign(target: Tensor, value: Tensor, active: Tensor | None) -> None:
    """target <- value in place, for the active members only; None stands for all members."""
    if active is None:
        target.copy_(value)
    else:
        target.copy_(value.to(target.dtype).where(column(active, value), target))


def polyak(target: Tensor, source: Tensor, rate: Scalar, active: Tensor | None) -> None:
    """target <- (1 - rate) target + rate source, for the active members only."""
    assign(target, target + spread(rate, target) * (source - target), active)

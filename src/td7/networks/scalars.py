"""Hyperparameters in formulas: a number or, where members differ, one number per member."""

from torch import Tensor

Scalar = float | Tensor  # a tensor is [S], in float64


def spread(value: Scalar, like: Tensor) -> Scalar:
    """A number as it is; one number per member shaped to broadcast against `like` [S, ...]."""
    if not isinstance(value, Tensor):
        return value
    return value.to(like.dtype).view(-1, *[1] * (like.dim() - 1))

"""A GPU kernel for a linear layer, the one place where a profile asked for one.

An update is a chain of small products. The libraries' kernels for them fill a GPU's shared memory,
so that lanes wait for each other, and leave bias and activation to a second kernel. This one does
neither.
"""

from typing import Any

import torch
from torch import Tensor

SMALLEST = 64  # rows and columns of a tile; for smaller products the libraries are as fast

DEVICES = ("cuda",)
# Of x [S, B, n], weight [S, n, w] stored [S, w, n], bias [S, w], activation; None: not in use.
linear: Any = None


def activate(*, tf32: bool) -> None:
    """Use `linear`, whose products are TF32, if they may be and Triton is installed.

    Loading it takes seconds, and only compiled code uses it.
    """
    global linear  # noqa: PLW0603  # its users look it up while they are compiled
    linear = _load() if tf32 and torch.version.cuda is not None else None


def _load() -> Any:
    try:
        from td7.networks import triton_kernels
    except Exception:  # whatever a broken Triton raises: the libraries have kernels as well
        return None
    return triton_kernels.linear


def is_suitable(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether `linear` takes these; only in compiled code, so that eager code is the reference."""
    return (
        linear is not None
        and torch.compiler.is_compiling()
        and x.device.type in DEVICES
        and x.dtype == torch.float32
        and min(x.shape[1], weight.shape[2]) >= SMALLEST
        and x.shape[1] * max(weight.shape[1:]) < 2**31  # its offsets have 32 bits
        and weight.stride()[1:] == (1, weight.shape[1])
        and bias.stride(1) == 1
    )

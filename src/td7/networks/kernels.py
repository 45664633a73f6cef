"""A GPU kernel of this project's own, where a profile asked for one: a linear layer.

An update is a chain of small products. The libraries' kernels for them fill a GPU's shared memory,
so that lanes wait for each other, and leave bias and activation to a kernel after them. This one
does neither.
"""

from typing import Any

import torch
from torch import Tensor

SMALLEST = 64  # rows and columns of a tile; for anything smaller the libraries are as good

DEVICES = ("cuda",)
linear: Any = None  # of x [S, B, n], weight [S, n, w] stored [S, w, n], bias [S, w], activation
is_loaded = False


def load() -> None:
    """Has `linear` ready where Triton is: it takes seconds, and only compiled code has a use."""
    global linear, is_loaded
    if is_loaded or torch.version.cuda is None:
        return
    try:
        from td7.networks import triton_kernels
    except Exception:  # whatever a broken Triton raises: the libraries do it, too
        return
    linear, is_loaded = triton_kernels.linear, True


def suit(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether `linear` is for these: in compiled code; what is not compiled shows what it does."""
    return (
        is_loaded
        and torch.compiler.is_compiling()
        and x.device.type in DEVICES
        and x.dtype == torch.float32
        and min(x.shape[1], weight.shape[2]) >= SMALLEST
        and x.shape[1] * max(weight.shape[1:]) < 2**31  # it counts rows in 32 bits
        and weight.stride()[1:] == (1, weight.shape[1])
        and bias.stride(1) == 1
    )

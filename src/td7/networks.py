"""PyTorch's side of a network description: stacked parameters, and how a layer is run.

Every tensor has a leading member axis [S, ...]: S seeds of one algorithm, side by side.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from td7.architectures import Layout, Network
from td7.types import Float64

Parameters = dict[str, Tensor]  # name: [S, ...]


def avg_l1_norm(x: Tensor) -> Tensor:
    """AvgL1Norm(x) = x / mean_i |x_i|, guarded by 1e-8."""
    return x / x.abs().mean(dim=-1, keepdim=True).clamp(min=1e-8)


NORMS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda x: x, "avg_l1": avg_l1_norm}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "elu": functional.elu,
    "relu": functional.relu,
    "tanh": torch.tanh,
}


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b for every member: [S, B, in] or, with heads, [S, H, B, in]."""
    return torch.matmul(x, weight) + bias.unsqueeze(-2)


def apply(network: Network, parameters: Mapping[str, Tensor], **inputs: Tensor) -> Tensor:
    """The network's last value; inputs are [S, B, width], outputs [S, B, w] or [S, H, B, w]."""
    values = inputs
    if network.heads > 1:
        values = {
            name: x.unsqueeze(1).expand(-1, network.heads, -1, -1) for name, x in inputs.items()
        }
    for layer in network.layers:
        x = torch.cat([values[name] for name in layer.inputs], dim=-1)
        x = linear(x, parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"])
        values[layer.output] = ACTIVATIONS[layer.activation](NORMS[layer.norm](x))
    return values[network.output]


def unflatten(layout: Layout, flat: Tensor) -> Parameters:
    """Named views [S, ...] into flat rows [S, P]."""
    return {
        p.name: flat[:, p.offset : p.offset + p.size].view(len(flat), *p.shape)
        for p in layout.parameters
    }


def flatten(layout: Layout, parameters: Mapping[str, Tensor]) -> Tensor:
    """The inverse of `unflatten`, as a new tensor [S, P]."""
    return torch.cat([parameters[p.name].flatten(1) for p in layout.parameters], dim=1)


def initial(layout: Layout, generators: Sequence[np.random.Generator]) -> Float64:
    """[S, P], each member from its own generator, by PyTorch's default for `Linear`.

    Weights and biases are uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in)).
    """
    bounds = np.concatenate([np.full(p.size, p.fan_in**-0.5) for p in layout.parameters])
    return np.stack([random.uniform(-bounds, bounds) for random in generators])

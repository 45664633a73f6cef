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


def apply(network: Network, parameters: Mapping[str, Tensor], **inputs: Tensor) -> Tensor:
    """The network's last value; inputs are [S, B, width], outputs [S, B, w] or [S, H, B, w]."""
    heads = network.heads
    values = inputs
    if heads > 1:  # a head is to the layers what a member is
        values = {name: x.repeat_interleave(heads, dim=0) for name, x in inputs.items()}
    for layer in network.layers:
        weight, bias = parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"]
        x = _joined([values[name] for name in layer.inputs], weight.shape[-2])
        x = torch.bmm(x, weight) + bias.unsqueeze(1)
        values[layer.output] = ACTIVATIONS[layer.activation](NORMS[layer.norm](x))
    output = values[network.output]
    return output if heads == 1 else output.view(-1, heads, *output.shape[1:])


def _joined(parts: Sequence[Tensor], width: int) -> Tensor:
    """The parts side by side, filled up with 0 to `width`."""
    missing = width - sum(part.shape[-1] for part in parts)
    if missing:
        parts = [*parts, parts[0].new_zeros(*parts[0].shape[:-1], missing)]
    return torch.cat(list(parts), dim=-1) if len(parts) > 1 else parts[0]


def unflatten(layout: Layout, flat: Tensor) -> Parameters:
    """Named views [S * H, ...] into flat rows [S, P]."""
    rows = flat.view(-1, layout.head_size)
    return {
        p.name: rows[:, p.offset : p.offset + p.size].view(len(rows), *p.shape)
        for p in layout.parameters
    }


def flatten(layout: Layout, parameters: Mapping[str, Tensor]) -> Tensor:
    """The inverse of `unflatten`, as a new tensor [S, P]."""
    ends = [p.offset for p in layout.parameters[1:]] + [layout.head_size]
    rows = torch.cat(
        [
            functional.pad(parameters[p.name].flatten(1), (0, end - p.offset - p.size))
            for p, end in zip(layout.parameters, ends, strict=True)
        ],
        dim=1,
    )
    return rows.view(-1, layout.size)


def initial(layout: Layout, generators: Sequence[np.random.Generator]) -> Float64:
    """[S, P], each member from its own generator, by PyTorch's default for `Linear`.

    Weights and biases are uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in)).
    """
    flat = np.zeros((len(generators), layout.heads, layout.head_size))
    for member, random in zip(flat, generators, strict=True):
        for head in member:
            for p in layout.parameters:
                used = head[p.offset : p.offset + p.size].reshape(p.shape)[p.used]
                used[...] = random.uniform(-(p.fan_in**-0.5), p.fan_in**-0.5, used.shape)
    return flat.reshape(len(generators), layout.size)

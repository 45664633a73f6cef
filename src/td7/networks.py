"""PyTorch's side of a network description: stacked parameters, and how a layer is run.

Every tensor has a leading member axis [S, ...]: S seeds of one algorithm, side by side.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from td7.actors import LOG_STD_BOUNDS
from td7.architectures import NORM_PARAMETERS, Layout, Network, Parameter
from td7.targets import assign
from td7.types import Float64

Parameters = dict[str, Tensor]  # name: [S, ...]


def avg_l1_norm(x: Tensor) -> Tensor:
    """AvgL1Norm(x) = x / mean_i |x_i|, guarded by 1e-8."""
    return x / x.abs().mean(dim=-1, keepdim=True).clamp(min=1e-8)


EPSILON, MOMENTUM = 1e-5, 0.1  # PyTorch's defaults for layer and batch norm

# A layer's batch norm: its mean and variance over a batch, [S, width] each.
BatchStatistics = dict[str, tuple[Tensor, Tensor]]


def _layer_norm(x: Tensor, own: Mapping[str, Tensor]) -> Tensor:
    """Over the units of each state on its own."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / (variance + EPSILON).sqrt() * own["gain"] + own["shift"]


def _batch_norm(x: Tensor, own: Mapping[str, Tensor]) -> Tensor:
    """Over the batch, each unit on its own, by the mean and variance that are given."""
    return (x - own["mean"]) / (own["variance"] + EPSILON).sqrt() * own["gain"] + own["shift"]


NORMS: dict[str, Callable[[Tensor, Mapping[str, Tensor]], Tensor]] = {
    "none": lambda x, _: x,
    "avg_l1": lambda x, _: avg_l1_norm(x),
    "layer": _layer_norm,
    "batch": _batch_norm,
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "elu": functional.elu,
    "relu": functional.relu,
    "swish": functional.silu,
    "tanh": torch.tanh,
}


# The action in training, from all values of a policy's network, noise and a scale.
EXPLORERS: dict[str, Callable[[Mapping[str, Tensor], Tensor, float], Tensor]] = {
    "added_noise": lambda known, noise, scale: (known["action"] + scale * noise).clamp(-1.0, 1.0),
    "squashed_gaussian": lambda known, noise, _: torch.tanh(
        known["action.linear"] + known["log_std"].clamp(*LOG_STD_BOUNDS).exp() * noise
    ),
}


def apply(
    network: Network,
    parameters: Mapping[str, Tensor],
    statistics: BatchStatistics | None = None,
    /,
    **inputs: Tensor,
) -> Tensor:
    """The network's last value; inputs are [S, B, width], outputs [S, B, w] or [S, H, B, w].

    With `statistics`, batch norms are in training mode: they use the batch's own and note them.
    """
    return values(network, parameters, statistics, **inputs)[network.output]


def values(
    network: Network,
    parameters: Mapping[str, Tensor],
    statistics: BatchStatistics | None = None,
    /,
    **inputs: Tensor,
) -> dict[str, Tensor]:
    """Every layer's value, as `apply` gives the last one's, and NAME.linear, before activation."""
    heads = network.heads
    known = {name: inputs[name] for name in network.inputs}
    if heads > 1:  # a head is to the layers what a member is
        known = {name: x.repeat_interleave(heads, dim=0) for name, x in known.items()}
    for layer in network.layers:
        weight, bias = parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"]
        runs = groupby(layer.inputs, key=lambda name: name in network.inputs)
        x = _product([[known[name] for name in names] for _, names in runs], weight)
        x = x + bias.unsqueeze(1)
        own = {
            kind: parameters[f"{layer.output}.{kind}"].unsqueeze(1)
            for kind in NORM_PARAMETERS[layer.norm]
        }
        if layer.norm == "batch":  # running statistics follow batches, never a gradient
            own |= {kind: own[kind].detach() for kind in ("mean", "variance")}
        if layer.norm == "batch" and statistics is not None:
            variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
            own |= {"mean": mean, "variance": variance}
            unbiased = variance * (x.shape[1] / max(1, x.shape[1] - 1))
            statistics[layer.output] = mean.squeeze(1).detach(), unbiased.squeeze(1).detach()
        known[f"{layer.output}.linear"] = x
        known[layer.output] = ACTIVATIONS[layer.activation](NORMS[layer.norm](x, own))
    outputs = {name: x for name, x in known.items() if name not in network.inputs}
    if heads == 1:
        return outputs
    return {name: x.view(-1, heads, *x.shape[1:]) for name, x in outputs.items()}


def _product(runs: Sequence[Sequence[Tensor]], weight: Tensor) -> Tensor:
    """A layer's inputs [S, B, n] side by side, by its weight [S, n, w].

    They come in runs of what the network is given and of what its layers made.
    """
    width = weight.shape[-2]
    if weight.is_cuda:
        x = _joined([part for run in runs for part in run], width)
        if weight.shape[-1] > 1:
            return torch.bmm(x, weight)
        return (x * weight.transpose(1, 2)).sum(dim=-1, keepdim=True)  # fused with what is around
    # A network is seldom trained through what it is given: multiplied apart, that gradient, a
    # twentieth of TD7's products, is never made. A GPU pays more for the further kernels.
    ends = list(accumulate(sum(part.shape[-1] for part in run) for run in runs))
    ends[-1] = width
    x = torch.bmm(_joined(runs[0], ends[0]), weight[:, : ends[0]])
    for run, (begin, end) in zip(runs[1:], pairwise(ends), strict=True):
        x = torch.baddbmm(x, _joined(run, end - begin), weight[:, begin:end])
    return x


def follow(
    layout: Layout, flat: Tensor, statistics: BatchStatistics, active: Tensor | None
) -> None:
    """Running means and variances in flat [S, P] take a step towards a batch's."""
    parameters = unflatten(layout, flat)
    rows = None if active is None else active.repeat_interleave(layout.heads)
    for layer, found in statistics.items():
        for kind, value in zip(("mean", "variance"), found, strict=True):
            running = parameters[f"{layer}.{kind}"]
            assign(running, running + MOMENTUM * (value - running), rows)


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
    return flattened_heads(layout, parameters).view(-1, layout.size)


def flattened_heads(layout: Layout, parameters: Mapping[str, Tensor]) -> Tensor:
    """The same by heads: [S * H, P / H]."""
    ends = [p.offset for p in layout.parameters[1:]] + [layout.head_size]
    return torch.cat(
        [
            functional.pad(parameters[p.name].flatten(1), (0, end - p.offset - p.size))
            for p, end in zip(layout.parameters, ends, strict=True)
        ],
        dim=1,
    )


# A parameter's first value, of one member and head: [its shape], from a random generator.
Start = Callable[[Parameter, np.random.Generator, tuple[int, ...]], Float64]


def default_start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
    """PyTorch's for `Linear`: uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    return random.uniform(-(p.fan_in**-0.5), p.fan_in**-0.5, shape)


def orthogonal_start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
    """Weights with orthogonal rows or columns, each of length sqrt(2); biases 0."""
    del p
    if len(shape) == 1:
        return np.zeros(shape)
    drawn = random.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(drawn)
    q = q * np.sign(np.diag(r))  # else not every orthogonal matrix would be as likely
    found: Float64 = math.sqrt(2) * (q if shape == q.shape else q.T)
    return found


def initial(
    layout: Layout, generators: Sequence[np.random.Generator], start: Start = default_start
) -> Float64:
    """[S, P], each member from its own generator; what fills gaps is 0."""
    flat = np.zeros((len(generators), layout.heads, layout.head_size))
    for member, random in zip(flat, generators, strict=True):
        for head in member:
            for p in layout.parameters:
                used = head[p.offset : p.offset + p.size].reshape(p.shape)[p.used]
                used[...] = start(p, random, used.shape) if p.start is None else p.start
    return flat.reshape(len(generators), layout.size)

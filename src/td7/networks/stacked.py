"""A network description in PyTorch: stacked parameters, and how a layer runs.

Every tensor has a leading member axis [S, ...]: S seeds of one algorithm, side by side.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from td7.networks import kernels
from td7.networks.description import (
    AVG_L1_FLOOR,
    LOG_STD_BOUNDS,
    NORM_EPSILON,
    OBSERVATION_BOUND,
    Layer,
    Layout,
    Network,
    Parameter,
)
from td7.networks.masked import assign
from td7.networks.scalars import Scalar, spread
from td7.types import Float64

Parameters = dict[str, Tensor]  # name: [S, ...]


def avg_l1_norm(x: Tensor) -> Tensor:
    """AvgL1Norm(x) = x / mean_i |x_i|, guarded by 1e-8."""
    return x / x.abs().mean(dim=-1, keepdim=True).clamp(min=AVG_L1_FLOOR)


MOMENTUM = 0.1  # of a batch norm's running mean and variance: PyTorch's default

# The mean and variance over a batch, [S, width] each, by the name of the layer with the batch norm.
BatchStatistics = dict[str, tuple[Tensor, Tensor]]


def _layer_norm(x: Tensor, norm: Mapping[str, Tensor]) -> Tensor:
    """Normalise over the units, for each state separately."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / (variance + NORM_EPSILON).sqrt() * norm["gain"] + norm["shift"]


def _batch_norm(x: Tensor, norm: Mapping[str, Tensor]) -> Tensor:
    """Normalise every unit by its mean and variance over a batch, or over many."""
    root = (norm["variance"] + NORM_EPSILON).sqrt()
    return (x - norm["mean"]) / root * norm["gain"] + norm["shift"]


def _observation_norm(x: Tensor, norm: Mapping[str, Tensor]) -> Tensor:
    """Normalise every observation by its running mean and standard deviation, and clip it."""
    return ((x - norm["mean"]) / norm["std"]).clamp(-OBSERVATION_BOUND, OBSERVATION_BOUND)


NORMS: dict[str, Callable[[Tensor, Mapping[str, Tensor]], Tensor]] = {
    "none": lambda x, _: x,
    "avg_l1": lambda x, _: avg_l1_norm(x),
    "layer": _layer_norm,
    "batch": _batch_norm,
    "observations": _observation_norm,
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "elu": functional.elu,
    "relu": functional.relu,
    "swish": functional.silu,
    "tanh": torch.tanh,
}
# Activations that are part of a linear layer: the gradient before one, from the gradient after it
# and its value.
BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda gradient, _: gradient,
    "elu": lambda gradient, y: torch.ops.aten.elu_backward(gradient, 1, 1, 1, True, y),
    "relu": lambda gradient, y: torch.ops.aten.threshold_backward(gradient, y, 0),
}


# The action in training, from all values of a policy's network, noise and a scale.
EXPLORERS: dict[str, Callable[[Mapping[str, Tensor], Tensor, Scalar], Tensor]] = {
    "added_noise": lambda x, noise, scale: (x["action"] + spread(scale, noise) * noise).clamp(
        -1.0, 1.0
    ),
    "squashed_gaussian": lambda x, noise, _: torch.tanh(
        x["action.linear"] + x["log_std"].clamp(*LOG_STD_BOUNDS).exp() * noise
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

    With `statistics`, batch norms are in training mode: they use the mean and variance of this
    batch, and add them to `statistics`.
    """
    return values(network, parameters, statistics, **inputs)[network.output]


def values(
    network: Network,
    parameters: Mapping[str, Tensor],
    statistics: BatchStatistics | None = None,
    /,
    **inputs: Tensor,
) -> dict[str, Tensor]:
    """Every layer's value, in the shape of the last one's that `apply` returns.

    Also NAME.linear, the value before norm and activation, of layers with a norm or with an
    activation that `BACKWARD` does not have.
    """
    heads = network.heads
    known = {name: inputs[name] for name in network.inputs}
    if heads > 1:  # layers treat a head as a member
        known = {name: x.repeat_interleave(heads, dim=0) for name, x in known.items()}
    for layer in network.layers:
        reads = [known[name] for name in layer.inputs]
        if layer.is_linear:
            weight, bias = parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"]
            if layer.norm == "none" and layer.activation in BACKWARD:
                known[layer.output] = linear(weight, bias, layer.activation, *reads)
                continue
            x = linear(weight, bias, "none", *reads)
        else:
            x = _joined(reads, layer.width)
        norm = _norm_parameters(layer, parameters, x, statistics)
        known[f"{layer.output}.linear"] = x
        known[layer.output] = ACTIVATIONS[layer.activation](NORMS[layer.norm](x, norm))
    outputs = {name: x for name, x in known.items() if name not in network.inputs}
    if heads == 1:
        return outputs
    return {name: x.view(-1, heads, *x.shape[1:]) for name, x in outputs.items()}


def _norm_parameters(
    layer: Layer,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    statistics: BatchStatistics | None,
) -> dict[str, Tensor]:
    """What the layer's norm of x [S, B, w] reads, [S, 1, w] each."""
    norm = {kind: p.unsqueeze(1) for kind, p in layer.norm_parameters(parameters).items()}
    if layer.norm != "batch":
        return norm
    # Running statistics follow batches, never a gradient.
    norm |= {kind: norm[kind].detach() for kind in ("mean", "variance")}
    if statistics is not None:
        variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        norm |= {"mean": mean, "variance": variance}
        unbiased = variance * (x.shape[1] / max(1, x.shape[1] - 1))
        statistics[layer.output] = mean.squeeze(1).detach(), unbiased.squeeze(1).detach()
    return norm


def linear(weight: Tensor, bias: Tensor, activation: str, *inputs: Tensor) -> Tensor:
    """activation(x W + b), where x [S, B, n] joins the inputs; W is [S, n, w], b [S, w]."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in (weight, bias, *inputs)):
        y: Tensor = _Linear.apply(weight, bias, activation, *inputs)  # type: ignore[no-untyped-call]  # PyTorch's
        return y
    return _linear(weight, bias, activation, _joined(inputs, weight.shape[1]))


def _linear(weight: Tensor, bias: Tensor, activation: str, x: Tensor) -> Tensor:
    if kernels.is_suitable(x, weight, bias):
        y: Tensor = kernels.linear(x, weight, bias, activation)
        return y
    return ACTIVATIONS[activation](_product(x, weight) + bias.unsqueeze(1))


class _Linear(torch.autograd.Function):
    """A linear layer that computes only the gradients that are needed, W's stored as W is.

    PyTorch's would be the transpose of how a weight is stored. Where inputs are joined, PyTorch
    computes the gradients of all of them, which wastes a twentieth of TD7's products.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, activation: str, *inputs: Tensor) -> Tensor:
        x = _joined(inputs, weight.shape[1])
        y = _linear(weight, bias, activation, x)
        ctx.save_for_backward(weight, x, y)
        ctx.activation, ctx.widths = activation, [part.shape[-1] for part in inputs]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, y = ctx.saved_tensors
        of_weight, of_bias, _, *of_inputs = ctx.needs_input_grad
        gradient = BACKWARD[ctx.activation](gradient, y)
        gradients: list[Tensor | None] = [None, gradient.sum(dim=1) if of_bias else None, None]
        if of_weight and weight.shape[2] > 1:
            gradients[0] = _product(gradient.mT, x).mT
        elif of_weight:
            gradients[0] = _product(x.mT, gradient)
        begin = 0
        parts = zip(of_inputs, ctx.widths, strict=True)
        for is_needed, neighbours in groupby(parts, key=lambda part: part[0]):
            widths = [width for _, width in neighbours]
            end = begin + sum(widths)
            if is_needed:  # neighbours share one product
                joined = _product(gradient, weight[:, begin:end].mT)
                gradients += torch.split(joined, widths, dim=-1)
            else:
                gradients += [None] * len(widths)
            begin = end
        return tuple(gradients)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b, [S, m, k] by [S, k, n]."""
    if a.is_cuda and b.shape[2] == 1:  # these can be fused with neighbouring kernels
        return (a * b.mT).sum(dim=-1, keepdim=True)
    if a.is_cuda and a.shape[2] == 1:
        return a * b
    return torch.bmm(a, b)


def follow(
    layout: Layout, flat: Tensor, statistics: BatchStatistics, active: Tensor | None
) -> None:
    """Move the running means and variances in flat [S, P] a step towards a batch's."""
    parameters = unflatten(layout, flat)
    rows = None if active is None else active.repeat_interleave(layout.heads)
    for layer, moments in statistics.items():
        for kind, value in zip(("mean", "variance"), moments, strict=True):
            running = parameters[f"{layer}.{kind}"]
            assign(running, running + MOMENTUM * (value - running), rows)


def _joined(parts: Sequence[Tensor], width: int) -> Tensor:
    """The parts side by side, padded with zeros to `width`."""
    missing = width - sum(part.shape[-1] for part in parts)
    if missing:
        parts = [*parts, parts[0].new_zeros(*parts[0].shape[:-1], missing)]
    return torch.cat(list(parts), dim=-1) if len(parts) > 1 else parts[0]


def unflatten(layout: Layout, flat: Tensor) -> Parameters:
    """Named views [S * H, ...] into flat rows [S, P]."""
    rows = flat.view(-1, layout.head_size)
    return {
        p.name: _transposed(rows[:, p.offset : p.offset + p.size].view(len(rows), *p.stored_shape))
        for p in layout.parameters
    }


def flatten(layout: Layout, parameters: Mapping[str, Tensor]) -> Tensor:
    """The inverse of `unflatten`, as a new tensor [S, P]."""
    return flattened_heads(layout, parameters).view(-1, layout.size)


def flattened_heads(layout: Layout, parameters: Mapping[str, Tensor]) -> Tensor:
    """The inverse of `unflatten`, as a new tensor by heads: [S * H, P / H]."""
    ends = [p.offset for p in layout.parameters[1:]] + [layout.head_size]
    return torch.cat(
        [
            functional.pad(_transposed(parameters[p.name]).flatten(1), (0, end - p.offset - p.size))
            for p, end in zip(layout.parameters, ends, strict=True)
        ],
        dim=1,
    )


def _transposed(parameter: Tensor) -> Tensor:
    """A weight [S, in, out] as stored, [S, out, in], and the other way; a bias as it is."""
    return parameter.transpose(1, -1)


# The initial value of a parameter of one member and head: [its shape], from a random generator.
Start = Callable[[Parameter, np.random.Generator, tuple[int, ...]], Float64]


def default_start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
    """PyTorch's default for `Linear`: uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    return random.uniform(-(p.fan_in**-0.5), p.fan_in**-0.5, shape)


def orthogonal_start(p: Parameter, random: np.random.Generator, shape: tuple[int, ...]) -> Float64:
    """Weights with orthogonal rows or columns, each of length sqrt(2); biases 0."""
    del p
    if len(shape) == 1:
        return np.zeros(shape)
    q, r = np.linalg.qr(random.standard_normal((max(shape), min(shape))))
    q = q * np.sign(np.diag(r))  # otherwise not all orthogonal matrices are equally likely
    weight: Float64 = math.sqrt(2) * (q if shape == q.shape else q.T)
    return weight


def initial(
    layout: Layout, generators: Sequence[np.random.Generator], start: Start = default_start
) -> Float64:
    """Initial flat parameters [S, P], each member's from its own generator; gaps are 0."""
    flat = np.zeros((len(generators), layout.heads, layout.head_size))
    for member, random in zip(flat, generators, strict=True):
        for head in member:
            for p in layout.parameters:
                used = p.within(head)
                used[...] = start(p, random, used.shape) if p.start is None else p.start
    return flat.reshape(len(generators), layout.size)

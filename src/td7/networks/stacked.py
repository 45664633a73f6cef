"""PyTorch's side of a network description: stacked parameters, and how a layer is run.

Every tensor has a leading member axis [S, ...]: S seeds of one algorithm, side by side.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from td7.networks import kernels
from td7.networks.description import LOG_STD_BOUNDS, NORM_PARAMETERS, Layout, Network, Parameter
from td7.networks.masked import assign
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
# Activations that are part of a linear layer: a gradient before one, from the gradient after it and
# its value.
BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda gradient, _: gradient,
    "elu": lambda gradient, y: torch.ops.aten.elu_backward(gradient, 1, 1, 1, True, y),
    "relu": lambda gradient, y: torch.ops.aten.threshold_backward(gradient, y, 0),
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
    """Every layer's value, as `apply` gives the last one's.

    And NAME.linear, before norm and activation, of layers with a norm or another activation than
    `BACKWARD` has.
    """
    heads = network.heads
    known = {name: inputs[name] for name in network.inputs}
    if heads > 1:  # a head is to the layers what a member is
        known = {name: x.repeat_interleave(heads, dim=0) for name, x in known.items()}
    for layer in network.layers:
        weight, bias = parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"]
        reads = [known[name] for name in layer.inputs]
        if layer.norm == "none" and layer.activation in BACKWARD:
            known[layer.output] = linear(weight, bias, layer.activation, *reads)
            continue
        x = linear(weight, bias, "none", *reads)
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


def linear(weight: Tensor, bias: Tensor, activation: str, *inputs: Tensor) -> Tensor:
    """activation(x W + b), x [S, B, n] the inputs side by side; W is [S, n, w], b [S, w]."""
    if torch.is_grad_enabled() and any(x.requires_grad for x in (weight, bias, *inputs)):
        y: Tensor = _Linear.apply(weight, bias, activation, *inputs)  # type: ignore[no-untyped-call]  # PyTorch's
        return y
    return _linear(weight, bias, activation, _joined(inputs, weight.shape[1]))


def _linear(weight: Tensor, bias: Tensor, activation: str, x: Tensor) -> Tensor:
    if kernels.suit(x, weight, bias):
        y: Tensor = kernels.linear(x, weight, bias, activation)
        return y
    return ACTIVATIONS[activation](_product(x, weight) + bias.unsqueeze(1))


class _Linear(torch.autograd.Function):
    """Of the gradients only those that are asked for; W's lies as W does.

    PyTorch's own would be the transpose of how a weight is stored, and where inputs are joined it
    makes the gradient of all of them, a twentieth of TD7's products for nothing.
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
        found: list[Tensor | None] = [None, gradient.sum(dim=1) if of_bias else None, None]
        if of_weight and weight.shape[2] > 1:
            found[0] = _product(gradient.mT, x).mT
        elif of_weight:
            found[0] = _product(x.mT, gradient)
        begin = 0
        run: list[int] = []  # widths of neighbours that are asked for: they take one product
        for i, width in enumerate(ctx.widths):
            if not of_inputs[i]:
                found.append(None)
                begin += width
                continue
            run.append(width)
            if not any(of_inputs[i + 1 : i + 2]):
                end = begin + sum(run)
                found += torch.split(_product(gradient, weight[:, begin:end].mT), run, dim=-1)
                begin, run = end, []
        return tuple(found)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b, [S, m, k] by [S, k, n]."""
    if a.is_cuda and b.shape[2] == 1:  # fused with what is around it
        return (a * b.mT).sum(dim=-1, keepdim=True)
    if a.is_cuda and a.shape[2] == 1:
        return a * b
    return torch.bmm(a, b)


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
        p.name: _turned(rows[:, p.offset : p.offset + p.size].view(len(rows), *p.stored_shape))
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
            functional.pad(_turned(parameters[p.name]).flatten(1), (0, end - p.offset - p.size))
            for p, end in zip(layout.parameters, ends, strict=True)
        ],
        dim=1,
    )


def _turned(parameter: Tensor) -> Tensor:
    """A weight between [S, in, out] and, as it is stored, [S, out, in]; a bias as it is."""
    return parameter.transpose(1, -1)


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
                used = p.within(head)
                used[...] = start(p, random, used.shape) if p.start is None else p.start
    return flat.reshape(len(generators), layout.size)

"""Adam over stacked members, each with its own count of steps; PyTorch's counts per tensor."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from td7.networks.description import Layout
from td7.networks.masked import assign
from td7.networks.stacked import (
    Parameters,
    Start,
    default_start,
    flattened_heads,
    initial,
    unflatten,
)
from td7.seeding import Stream, generator

Results = tuple[Any, ...]  # a loss [S], then whatever else: tensors, or dictionaries of them
Gradients = Callable[[], Parameters]  # of a loss that is known already; to be asked for once

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # PyTorch's defaults, which the paper uses


# The factor [S, 1] of a learning rate, from the counts of steps made before.
Schedule = Callable[[Tensor], Tensor]


def constant(steps: Tensor) -> Tensor:
    return torch.ones_like(steps)


def cosine(total: int) -> Schedule:
    """(1 + cos(pi t / T)) / 2 for the step after t others; 0 from t = T on."""
    return lambda steps: 0.5 * (1 + torch.cos(math.pi * (steps / total).clamp(max=1)))


class ParameterGroup:
    """The flat parameters [S, P] of one network group, and their Adam moments."""

    def __init__(
        self, layout: Layout, flat: Tensor, learning_rate: float, schedule: Schedule = constant
    ) -> None:
        self.layout = layout
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.flat = flat
        self.first = torch.zeros_like(flat)
        self.second = torch.zeros_like(flat)
        # float64: 1 - 0.999^t loses half its digits in float32 for small t.
        self.count = torch.zeros(len(flat), 1, dtype=torch.float64, device=flat.device)
        # The next step's factors, computed one step ahead: otherwise a compiler fuses these powers
        # into the loop over parameters and computes them for each.
        self._step_size = torch.empty(len(flat), 1, dtype=flat.dtype, device=flat.device)
        self._root_correction = torch.empty_like(self._step_size)
        self._look_ahead(None)

    @property
    def parameters(self) -> Parameters:
        return unflatten(self.layout, self.flat)

    def state(self) -> dict[str, Tensor]:
        return {
            "parameters": self.flat,
            "first_moment": self.first,
            "second_moment": self.second,
            "steps": self.count,
            "step_size": self._step_size,
            "root_correction": self._root_correction,
        }

    def _look_ahead(self, active: Tensor | None) -> None:
        """Compute the next step's factors: rate / (1 - beta1^t), sqrt(1 - beta2^t)."""
        rate = self.learning_rate * self.schedule(self.count)
        count = self.count + 1
        assign(self._step_size, rate / (1 - BETA1**count), active)
        assign(self._root_correction, (1 - BETA2**count).sqrt(), active)

    def descend(self, loss: Callable[[Parameters], Results], active: Tensor | None) -> Results:
        """One Adam step of the active members on `loss(...)[0]` [S]; gives back all of it."""
        results, gradients = self.begin(loss)
        self.step(gradients(), active)
        return results

    def begin(self, loss: Callable[[Parameters], Results]) -> tuple[Results, Gradients]:
        """What `loss` gives, and its gradients for `step`: `descend` in two halves."""
        return _differentiated(loss, self.parameters)

    def step(self, gradients: Parameters, active: Tensor | None) -> None:
        """m, v <- moments; theta <- theta - rate * m^ / (sqrt(v^) + eps), ^ corrects the bias."""
        # By heads: in any other shape, compiled gradients would be copied before they are read.
        gradient = flattened_heads(self.layout, gradients)

        def by_heads(x: Tensor) -> Tensor:
            return x.repeat_interleave(self.layout.heads, dim=0)

        stored = (self.flat, self.first, self.second)
        old_flat, old_first, old_second = (tensor.view(gradient.shape) for tensor in stored)
        first = torch.lerp(old_first, gradient, 1 - BETA1)
        second = (BETA2 * old_second).addcmul_(gradient, gradient, value=1 - BETA2)
        denominator = second.sqrt().div_(by_heads(self._root_correction)).add_(EPSILON)
        flat = old_flat - by_heads(self._step_size) * first / denominator
        active_heads = None if active is None else by_heads(active)
        assign(old_first, first, active_heads)
        assign(old_second, second, active_heads)
        assign(old_flat, flat, active_heads)
        assign(self.count, self.count + 1, active)
        self._look_ahead(active)


def parameter_group(
    layout: Layout,
    group: int,
    seeds: Sequence[int],
    learning_rate: float,
    device: torch.device,
    dtype: torch.dtype,
    *,
    start: Start = default_start,
    schedule: Schedule = constant,
) -> ParameterGroup:
    """A network group with initial parameters, each member's from its own stream of that group."""
    generators = [generator(seed, Stream.PARAMETERS, group) for seed in seeds]
    flat = torch.from_numpy(initial(layout, generators, start))
    return ParameterGroup(layout, flat.to(device, dtype), learning_rate, schedule)


def states(**groups: ParameterGroup) -> dict[str, Tensor]:
    """The tensors of all groups, as GROUP.NAME."""
    return {f"{name}.{k}": v for name, group in groups.items() for k, v in group.state().items()}


def descend_together(
    groups: Sequence[ParameterGroup],
    loss: Callable[[Parameters], Results],
    active: Tensor | None,
) -> Results:
    """As `ParameterGroup.descend`, of groups whose parameters have other names, on one loss."""
    parameters = {name: tensor for group in groups for name, tensor in group.parameters.items()}
    results, gradients = _differentiated(loss, parameters)
    found = gradients()
    for group in groups:
        group.step(found, active)
    return results


def _differentiated(
    loss: Callable[[Parameters], Results], parameters: Parameters
) -> tuple[Results, Gradients]:
    """All that `loss` gives, and the gradient of `loss(...)[0]`, summed over members.

    Members share no parameter, so the gradient of the sum is each member's own.
    """
    tracked = {name: _tracked(tensor) for name, tensor in parameters.items()}
    with torch.enable_grad():
        results = loss(tracked)
        total = results[0].sum()

    def backward() -> Parameters:
        # A batch norm's running mean and variance are not trained: their gradient is 0.
        found = torch.autograd.grad(total, list(tracked.values()), materialize_grads=True)
        return dict(zip(tracked, found, strict=True))

    return tuple(map(detached, results)), backward


def _tracked(tensor: Tensor) -> Tensor:
    """The tensor as a variable to differentiate by."""
    if not torch.compiler.is_compiling():
        return tensor.detach().requires_grad_()
    with torch.enable_grad():
        tracked: Tensor = _Tracked.apply(tensor, TAPE)  # type: ignore[no-untyped-call]  # PyTorch's
    return tracked


# Compiled code cannot make a tensor require a gradient, unless another one already does.
TAPE = torch.zeros((), requires_grad=True)


class _Tracked(torch.autograd.Function):
    """The identity, which makes a tensor depend on the tape in name."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, tape: Tensor) -> Tensor:
        del ctx, tape
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        del ctx, gradient
        return None, None


def detached(result: Any) -> Any:
    """Tensors, and dictionaries and tuples of them, without their gradients."""
    if isinstance(result, dict):
        return {name: detached(value) for name, value in result.items()}
    if isinstance(result, tuple):
        return tuple(map(detached, result))
    return result.detach()

"""Adam for stacked members: every member has its own step count; PyTorch's has one per tensor."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from td7.networks.description import Layout
from td7.networks.masked import assign
from td7.networks.scalars import Scalar, spread
from td7.networks.stacked import (
    Parameters,
    Start,
    default_start,
    flattened_heads,
    initial,
    unflatten,
)
from td7.seeding import Stream, generator

# What a loss returns besides its value: a tensor, a NamedTuple or dictionary of tensors, or None.
# The compiler evaluates annotations of functions that a stage defines; it only knows plain classes
# there, not `dict[str, Tensor]` as an aux.
Aux = TypeVar("Aux")
Loss = Callable[[Parameters], tuple[Tensor, Aux]]  # the loss of every member, [S], and its aux
Backward = Callable[[], Parameters]  # the gradients of a loss; call it once

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # PyTorch's defaults, which the paper uses

# What `ParameterGroup.state` has besides the parameters.
MOMENTS = ("first_moment", "second_moment", "steps", "step_size", "root_correction")

Schedule = Callable[[Tensor], Tensor]  # steps taken so far [S, 1] -> factor on the learning rate


def constant(steps: Tensor) -> Tensor:
    return torch.ones_like(steps)


def cosine(total: Scalar) -> Schedule:
    """(1 + cos(pi t / T)) / 2 after t steps; 0 from t = T on."""
    return lambda steps: (
        0.5 * (1 + torch.cos(math.pi * (steps / spread(total, steps)).clamp(max=1)))
    )


class ParameterGroup:
    """The flat parameters [S, P] of one network group, and their Adam moments."""

    def __init__(
        self, layout: Layout, flat: Tensor, learning_rate: Scalar, schedule: Schedule = constant
    ) -> None:
        self.layout = layout
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.flat = flat
        self.first = torch.zeros_like(flat)
        self.second = torch.zeros_like(flat)
        # float64: 1 - 0.999^t loses half its digits in float32 for small t.
        self.count = torch.zeros(len(flat), 1, dtype=torch.float64, device=flat.device)
        # The next step's factors, computed one step ahead: otherwise a compiler would compute these
        # powers once per parameter.
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
        rate = spread(self.learning_rate, self.count) * self.schedule(self.count)
        count = self.count + 1
        assign(self._step_size, rate / (1 - BETA1**count), active)
        assign(self._root_correction, (1 - BETA2**count).sqrt(), active)

    def descend(self, loss: Loss[Aux], active: Tensor | None) -> tuple[Tensor, Aux]:
        """Take one Adam step of the active members; return the loss [S] and its aux."""
        value, aux, backward = self.forward(loss)
        self.step(backward(), active)
        return value, aux

    def forward(self, loss: Loss[Aux]) -> tuple[Tensor, Aux, Backward]:
        """Return the loss [S], its aux and the backward pass, whose gradients `step` takes."""
        return _forward(loss, self.parameters)

    def step(self, gradients: Parameters, active: Tensor | None) -> None:
        """theta <- theta - rate m^ / (sqrt(v^) + eps), m^ and v^ the bias-corrected moments."""
        # One row per head: in another shape, compiled gradients would be copied before being read.
        gradient = flattened_heads(self.layout, gradients)

        def by_heads(x: Tensor) -> Tensor:
            return x.repeat_interleave(self.layout.heads, dim=0)

        tensors = (self.flat, self.first, self.second)
        old_flat, old_first, old_second = (tensor.view(gradient.shape) for tensor in tensors)
        first = torch.lerp(old_first, gradient, 1 - BETA1)
        second = (BETA2 * old_second).addcmul_(gradient, gradient, value=1 - BETA2)
        denominator = second.sqrt().div_(by_heads(self._root_correction)).add_(EPSILON)
        flat = old_flat - by_heads(self._step_size) * first / denominator
        mask = None if active is None else by_heads(active)
        assign(old_first, first, mask)
        assign(old_second, second, mask)
        assign(old_flat, flat, mask)
        assign(self.count, self.count + 1, active)
        self._look_ahead(active)


def step_size_after(steps: Tensor, first: Tensor) -> Tensor:
    """The factor of the step after `steps` others at a constant rate, given that of the first."""
    return first * (1 - BETA1) / (1 - BETA1 ** (steps + 1))


def parameter_group(
    layout: Layout,
    group: int,
    seeds: Sequence[int],
    learning_rate: Scalar,
    device: torch.device,
    dtype: torch.dtype,
    *,
    start: Start = default_start,
    schedule: Schedule = constant,
) -> ParameterGroup:
    """Initialise a network group, each member from its own random stream of that group."""
    generators = [generator(seed, Stream.PARAMETERS, group) for seed in seeds]
    flat = torch.from_numpy(initial(layout, generators, start))
    return ParameterGroup(layout, flat.to(device, dtype), learning_rate, schedule)


def states(**groups: ParameterGroup) -> dict[str, Tensor]:
    """The tensors of all groups, named GROUP.NAME."""
    return {f"{name}.{k}": v for name, group in groups.items() for k, v in group.state().items()}


def descend_together(
    groups: Sequence[ParameterGroup], loss: Loss[Aux], active: Tensor | None
) -> tuple[Tensor, Aux]:
    """As `ParameterGroup.descend`, for several groups with one loss; parameter names differ."""
    parameters = {name: tensor for group in groups for name, tensor in group.parameters.items()}
    value, aux, backward = _forward(loss, parameters)
    gradients = backward()
    for group in groups:
        group.step(gradients, active)
    return value, aux


def _forward(loss: Loss[Aux], parameters: Parameters) -> tuple[Tensor, Aux, Backward]:
    """The loss [S], its aux, and the backward pass of the loss summed over members.

    Members share no parameter, so the gradient of the sum is each member's own gradient.
    """
    tracked = {name: _tracked(tensor) for name, tensor in parameters.items()}
    with torch.enable_grad():
        value, aux = loss(tracked)
        total = value.sum()

    def backward() -> Parameters:
        # The loss does not reach a batch norm's running mean and variance: their gradient is 0.
        gradients = torch.autograd.grad(total, list(tracked.values()), materialize_grads=True)
        return dict(zip(tracked, gradients, strict=True))

    return value.detach(), detached(aux), backward


def _tracked(tensor: Tensor) -> Tensor:
    """The tensor as a variable that a loss is differentiated by."""
    if not torch.compiler.is_compiling():
        return tensor.detach().requires_grad_()
    with torch.enable_grad():
        tracked: Tensor = _Tracked.apply(tensor, TAPE)  # type: ignore[no-untyped-call]  # PyTorch's
    return tracked


# In a compiled function a tensor can only require a gradient if another one already does.
TAPE = torch.zeros((), requires_grad=True)


class _Tracked(torch.autograd.Function):
    """The identity, recorded as if the tensor depended on the tape."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, tape: Tensor) -> Tensor:
        del ctx, tape
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        del ctx, gradient
        return None, None


def detached(aux: Aux) -> Aux:
    """The aux of a loss, its tensors without their gradients."""
    values: Aux = _detached(aux)
    return values


def _detached(aux: Any) -> Any:
    if aux is None:
        return None
    if isinstance(aux, dict):
        return {name: _detached(value) for name, value in aux.items()}
    if isinstance(aux, tuple):
        values = [_detached(value) for value in aux]
        return type(aux)(*values) if hasattr(aux, "_fields") else tuple(values)
    return aux.detach()

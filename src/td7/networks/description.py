"""Networks as data: one description, three interpreters.

PyTorch runs it for learning (`stacked`), NumPy for acting (`numpy_actor`), and `onnx` writes it to
a file. A network is a list of layers over named values; each layer is
`output = activation(norm(Linear(concatenated inputs)))`; the norm "observations" has no linear part
before it. No torch here: workers import this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from td7.types import AnyFloat, aligned

Value = TypeVar("Value")

NORM_EPSILON = 1e-5  # of layer and batch norm: PyTorch's default
AVG_L1_FLOOR = 1e-8  # the paper's guard of AvgL1Norm
LOG_STD_BOUNDS = (-20.0, 2.0)  # the paper's, of SAC and TQC
OBSERVATION_BOUND = 10.0  # standard deviations, beyond which a normalised observation is clipped

# The parameters of a norm, one number per unit, and their initial values. Gain and shift are
# trained; mean and variance follow the batches that the network is trained on. "observations" is
# clip((x - mean) / std), whose parameters `algorithms.normalisation` sets.
NORM_PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "none": {},
    "avg_l1": {},
    "layer": {"gain": 1.0, "shift": 0.0},
    "batch": {"gain": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0},
    "observations": {"mean": 0.0, "std": 1.0},
}


@dataclass(frozen=True)
class Layer:
    """output = activation(norm(Linear(concatenated inputs)))."""

    output: str
    inputs: tuple[str, ...]
    width: int
    norm: str = "none"
    activation: str = "none"

    @property
    def is_linear(self) -> bool:
        """Whether it has the linear part; observations are normalised as they are."""
        return self.norm != "observations"

    def norm_parameters(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Those of the layer's norm by kind, out of a network's."""
        return {kind: parameters[f"{self.output}.{kind}"] for kind in NORM_PARAMETERS[self.norm]}


@dataclass(frozen=True)
class Network:
    """Layers in order over named inputs; `heads` independent copies side by side (twins are 2)."""

    inputs: Mapping[str, int]  # name: width
    layers: tuple[Layer, ...]
    heads: int = 1

    @property
    def output(self) -> str:
        return self.layers[-1].output

    def without_unread(self) -> "Network":
        """The network without inputs that no layer reads."""
        read = {name for layer in self.layers for name in layer.inputs}
        return replace(self, inputs={n: width for n, width in self.inputs.items() if n in read})

    def widths(self) -> dict[str, int]:
        return {**self.inputs, **{layer.output: layer.width for layer in self.layers}}

    def then(self, other: "Network") -> "Network":
        """This network followed by one that reads its values: a policy of encoder and actor."""
        known = self.widths()
        added = {name: width for name, width in other.inputs.items() if name not in known}
        return Network({**self.inputs, **added}, self.layers + other.layers, self.heads)


# A GPU's matrix units want rows, and parameters, to begin at multiples of these counts of numbers;
# otherwise products are up to three times slower. Zeros fill the gaps and stay zeros.
ROW_ALIGNMENT = 8
PARAMETER_ALIGNMENT = 64


@dataclass(frozen=True)
class Parameter:
    """A weight [in, out] or a bias [out] of one head.

    A weight is stored output by output, [out, in], so that the numbers that a GPU's matrix units
    add up are contiguous.
    """

    name: str
    shape: tuple[int, ...]
    fan_in: int  # of a weight's rows, this many are in use; the others are 0
    offset: int
    start: float | None = None  # the initial value; None: a random one

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def used(self) -> tuple[slice, ...]:
        """Indexes the part in use."""
        return (slice(self.fan_in),) if len(self.shape) == 2 else ()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape[::-1]

    def within(self, head: AnyFloat) -> AnyFloat:
        """A view of the part in use, into all parameters of one head."""
        whole = head[self.offset : self.offset + self.size].reshape(self.stored_shape).T
        return whole[self.used]


@dataclass(frozen=True)
class Layout:
    """Where each parameter of some networks lies in one flat vector: head after head."""

    parameters: tuple[Parameter, ...]  # of one head
    heads: int

    @classmethod
    def of(cls, *networks: Network) -> "Layout":
        parameters: list[Parameter] = []
        offset = 0
        for network in networks:
            widths = network.widths()
            for layer in network.layers:
                fan_in = sum(widths[name] for name in layer.inputs)
                rows = aligned(fan_in, ROW_ALIGNMENT)
                kinds: dict[str, tuple[tuple[int, ...], float | None]] = {}
                if layer.is_linear:
                    kinds = {"weight": ((rows, layer.width), None), "bias": ((layer.width,), None)}
                for kind, value in NORM_PARAMETERS[layer.norm].items():
                    kinds[kind] = ((layer.width,), value)
                for kind, (shape, start) in kinds.items():
                    name = f"{layer.output}.{kind}"
                    parameters.append(Parameter(name, shape, fan_in, offset, start))
                    offset = aligned(offset + parameters[-1].size, PARAMETER_ALIGNMENT)
        if not parameters:
            raise ValueError("a network needs at least one layer")
        (heads,) = {network.heads for network in networks}
        return cls(tuple(parameters), heads)

    def with_parameter(self, name: str, size: int, start: float) -> "Layout":
        """The layout with a parameter that belongs to no layer; `start` is its initial value."""
        added = Parameter(name, (size,), size, self.head_size, start)
        return replace(self, parameters=(*self.parameters, added))

    @property
    def head_size(self) -> int:
        last = self.parameters[-1]
        return aligned(last.offset + last.size, PARAMETER_ALIGNMENT)

    @property
    def size(self) -> int:
        return self.heads * self.head_size


def mlp(
    inputs: Mapping[str, int],
    outputs: tuple[str, ...],
    widths: tuple[int, ...],
    activation: str,
    last_norm: str = "none",
    *,
    norm: str = "none",
    last_activation: str = "none",
    heads: int = 1,
) -> Network:
    """A chain of layers named `outputs`; the last one has `last_norm` and `last_activation`."""
    layers = []
    reads = tuple(inputs)
    last = len(outputs) - 1
    for i, (output, width) in enumerate(zip(outputs, widths, strict=True)):
        layers.append(
            Layer(
                output,
                reads,
                width,
                norm=last_norm if i == last else norm,
                activation=last_activation if i == last else activation,
            )
        )
        reads = (output,)
    return Network(inputs, tuple(layers), heads)


def to_json(network: Network) -> dict[str, Any]:
    return {
        "inputs": dict(network.inputs),
        "layers": [{**vars(layer), "inputs": list(layer.inputs)} for layer in network.layers],
        "heads": network.heads,
    }


def from_json(data: Mapping[str, Any]) -> Network:
    layers = tuple(Layer(**{**layer, "inputs": tuple(layer["inputs"])}) for layer in data["layers"])
    return Network(dict(data["inputs"]), layers, data["heads"])

"""Networks as data: described once, run by PyTorch for learning and by NumPy for acting.

A network is a list of layers over named values; each layer is
`output = activation(norm(Linear(concatenated inputs)))`. No torch here: workers import this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """output = activation(norm(Linear(concatenated inputs)))."""

    output: str
    inputs: tuple[str, ...]
    width: int
    norm: str = "none"
    activation: str = "none"


@dataclass(frozen=True)
class Network:
    """Layers in order over named inputs; `heads` independent copies side by side (twins are 2)."""

    inputs: Mapping[str, int]  # name: width
    layers: tuple[Layer, ...]
    heads: int = 1

    @property
    def output(self) -> str:
        return self.layers[-1].output

    def widths(self) -> dict[str, int]:
        return {**self.inputs, **{layer.output: layer.width for layer in self.layers}}

    def then(self, other: "Network") -> "Network":
        """This network followed by one that reads its values: one policy of encoder and actor."""
        known = self.widths()
        inputs = {
            **self.inputs,
            **{name: width for name, width in other.inputs.items() if name not in known},
        }
        return Network(inputs, self.layers + other.layers, self.heads)


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: tuple[int, ...]
    fan_in: int
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Where each parameter of some networks lies in one flat vector."""

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, *networks: Network) -> "Layout":
        """Weights are [heads, in, out] and biases [heads, out], without the axis for one head."""
        parameters: list[Parameter] = []
        offset = 0
        for network in networks:
            widths = network.widths()
            heads = () if network.heads == 1 else (network.heads,)
            for layer in network.layers:
                fan_in = sum(widths[name] for name in layer.inputs)
                for kind, shape in (
                    ("weight", (*heads, fan_in, layer.width)),
                    ("bias", (*heads, layer.width)),
                ):
                    name = f"{layer.output}.{kind}"
                    parameters.append(Parameter(name, shape, fan_in, offset))
                    offset += parameters[-1].size
        return cls(tuple(parameters))

    @property
    def size(self) -> int:
        return self.parameters[-1].offset + self.parameters[-1].size


def mlp(
    inputs: Mapping[str, int],
    outputs: tuple[str, ...],
    widths: tuple[int, ...],
    activation: str,
    *,
    last_norm: str = "none",
    last_activation: str = "none",
    heads: int = 1,
) -> Network:
    """A chain of layers named `outputs`; the last has its own norm and activation."""
    layers = []
    reads = tuple(inputs)
    last = len(outputs) - 1
    for i, (output, width) in enumerate(zip(outputs, widths, strict=True)):
        layers.append(
            Layer(
                output,
                reads,
                width,
                norm=last_norm if i == last else "none",
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

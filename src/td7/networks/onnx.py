"""A network description as ONNX nodes: its third interpreter."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from td7.networks.description import (
    AVG_L1_FLOOR,
    NORM_EPSILON,
    OBSERVATION_BOUND,
    Layer,
    Layout,
    Network,
)
from td7.networks.numpy_actor import folded_linear, unflatten
from td7.types import AnyFloat

OPSET = 18  # of 2022; the first in which ReduceMean takes its axes as ReduceSum does
IR = 9


class Graph:
    """An ONNX graph that grows node by node. A value is known by its name."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper = helper
        self._tensor = numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant.{len(self.constants)}"
        self.constants.append(self._tensor(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node; return its value's name, which is `name` where readers look for it."""
        name = name or f"{kind.lower()}.{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def _avg_l1_norm(graph: Graph, x: str, norm: Mapping[str, AnyFloat]) -> str:
    del norm
    mean = graph.add("ReduceMean", graph.add("Abs", x), graph.constant([-1], np.int64), keepdims=1)
    return graph.add("Div", x, graph.add("Max", mean, graph.constant(AVG_L1_FLOOR)))


def _layer_norm(graph: Graph, x: str, norm: Mapping[str, AnyFloat]) -> str:
    gain, shift = graph.constant(norm["gain"]), graph.constant(norm["shift"])
    return graph.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=NORM_EPSILON)


def _observation_norm(graph: Graph, x: str, norm: Mapping[str, AnyFloat]) -> str:
    centred = graph.add("Sub", x, graph.constant(norm["mean"]))
    scaled = graph.add("Div", centred, graph.constant(norm["std"]))
    low, high = graph.constant(-OBSERVATION_BOUND), graph.constant(OBSERVATION_BOUND)
    return graph.add("Clip", scaled, low, high)


# The same names as in `numpy_actor`.
NORMS: dict[str, Callable[[Graph, str, Mapping[str, AnyFloat]], str]] = {
    "none": lambda _, x, __: x,
    "avg_l1": _avg_l1_norm,
    "layer": _layer_norm,
    "batch": lambda _, x, __: x,  # `folded_linear` has applied it
    "observations": _observation_norm,
}
ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "none": lambda _, x: x,
    "elu": lambda graph, x: graph.add("Elu", x),
    "relu": lambda graph, x: graph.add("Relu", x),
    "swish": lambda graph, x: graph.add("Mul", x, graph.add("Sigmoid", x)),
    "tanh": lambda graph, x: graph.add("Tanh", x),
}


def add_network(graph: Graph, network: Network, flat: AnyFloat, **inputs: str) -> str:
    """Add the network with these flat weights to the graph; return its output."""
    parameters = unflatten(Layout.of(network), flat)
    values = dict(inputs)
    for layer in _layers_of_output(network):
        reads = [values[name] for name in layer.inputs]
        x = reads[0] if len(reads) == 1 else graph.add("Concat", *reads, axis=-1)
        if layer.is_linear:
            weight, bias = map(graph.constant, folded_linear(layer, parameters))
            x = graph.add("Gemm", x, weight, bias)
        x = NORMS[layer.norm](graph, x, layer.norm_parameters(parameters))
        values[layer.output] = ACTIVATIONS[layer.activation](graph, x)
    return values[network.output]


def _layers_of_output(network: Network) -> list[Layer]:
    """Without layers that exploration alone reads, such as a Gaussian's width."""
    wanted = {network.output}
    layers = []
    for layer in reversed(network.layers):
        if layer.output in wanted:
            wanted.update(layer.inputs)
            layers.append(layer)
    return layers[::-1]

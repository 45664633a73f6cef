"""A network description as ONNX nodes, the third of its interpreters."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from td7.networks.description import Layer
from td7.networks.numpy_actor import EPSILON
from td7.types import AnyFloat

OPSET = 18  # of 2022; the first in which ReduceMean takes its axes as ReduceSum does
IR = 9


class Graph:
    """An ONNX graph that grows by a node at a time; values are known by their names."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self._helper = helper
        self._tensor = numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant.{len(self.constants)}"
        self.constants.append(self._tensor(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node's value; `name` is for those that a reader of the file will look for."""
        name = name or f"{kind.lower()}.{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def _avg_l1(graph: Graph, x: str, own: Mapping[str, AnyFloat]) -> str:
    del own
    mean = graph.add("ReduceMean", graph.add("Abs", x), graph.constant([-1], np.int64), keepdims=1)
    return graph.add("Div", x, graph.add("Max", mean, graph.constant(1e-8)))


def _layer(graph: Graph, x: str, own: Mapping[str, AnyFloat]) -> str:
    gain, shift = graph.constant(own["gain"]), graph.constant(own["shift"])
    return graph.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=EPSILON)


# As in `actors`, a row each.
NORMS: dict[str, Callable[[Graph, str, Mapping[str, AnyFloat]], str]] = {
    "none": lambda _, x, __: x,
    "avg_l1": _avg_l1,
    "layer": _layer,
    "batch": lambda _, x, __: x,  # is in weight and bias already: `actors.linear`
}
ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "none": lambda _, x: x,
    "elu": lambda graph, x: graph.add("Elu", x),
    "relu": lambda graph, x: graph.add("Relu", x),
    "swish": lambda graph, x: graph.add("Mul", x, graph.add("Sigmoid", x)),
    "tanh": lambda graph, x: graph.add("Tanh", x),
}


def needed(layers: tuple[Layer, ...], output: str) -> list[Layer]:
    """Without what only exploring reads, such as a Gaussian's width."""
    wanted = {output}
    found: list[Layer] = []
    for layer in reversed(layers):
        if layer.output in wanted:
            wanted.update(layer.inputs)
            found.insert(0, layer)
    return found

"""The NumPy actor that collects and evaluates: flat weights in, actions in [-1, 1] out.

At one state at a time NumPy is several times faster than eager PyTorch, and worker processes need
not load PyTorch at all.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from td7.networks.description import LOG_STD_BOUNDS, NORM_PARAMETERS, Layer, Layout, Network
from td7.types import AnyFloat, Exploration

Function = Callable[[AnyFloat], AnyFloat]


def avg_l1_norm(x: AnyFloat) -> AnyFloat:
    """AvgL1Norm(x) = x / mean_i |x_i|, guarded by 1e-8."""
    mean = np.abs(x).sum(axis=-1, keepdims=True) / x.shape[-1]  # as .mean() is, but faster
    scale: AnyFloat = np.maximum(mean, 1e-8)
    return x / scale


def elu(x: AnyFloat) -> AnyFloat:
    return np.maximum(x, 0) + np.expm1(np.minimum(x, 0))


def layer_norm(x: AnyFloat, own: Mapping[str, AnyFloat]) -> AnyFloat:
    """Over the units of each state on its own."""
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    normed: AnyFloat = (x - mean) / np.sqrt(variance + EPSILON)
    return normed * own["gain"] + own["shift"]


EPSILON = 1e-5  # PyTorch's default


def swish(x: AnyFloat) -> AnyFloat:
    """x * sigmoid(x), with exponentials of what is not positive only."""
    e: AnyFloat = np.exp(-np.abs(x))
    return (np.maximum(x, 0) + np.minimum(x, 0) * e) / (1 + e)


def linear(weights: Mapping[str, AnyFloat], layer: Layer) -> tuple[AnyFloat, AnyFloat]:
    """A layer's weight and bias, and in them its batch norm: each unit's own scale and shift.

    It is by the mean and variance of the batches that the network was trained on.
    """
    own = {kind: weights[f"{layer.output}.{kind}"] for kind in NORM_PARAMETERS[layer.norm]}
    weight, bias = weights[f"{layer.output}.weight"], weights[f"{layer.output}.bias"]
    if layer.norm == "batch":
        scale = own["gain"] / np.sqrt(own["variance"] + EPSILON)
        weight, bias = weight * scale, (bias - own["mean"]) * scale + own["shift"]
    return np.ascontiguousarray(weight), bias


NORMS: dict[str, Callable[[AnyFloat, Mapping[str, AnyFloat]], AnyFloat]] = {
    "none": lambda x, _: x,
    "avg_l1": lambda x, _: avg_l1_norm(x),
    "layer": layer_norm,
    "batch": lambda x, _: x,  # is in weight and bias already: `linear`
}
ACTIVATIONS: dict[str, Function] = {
    "none": lambda x: x,
    "elu": elu,
    "relu": lambda x: np.maximum(x, 0),
    "swish": swish,
    "tanh": np.tanh,
}


def unflatten(layout: Layout, flat: AnyFloat) -> dict[str, AnyFloat]:
    """Named views into one flat vector, without what only fills it up."""
    return {p.name: p.within(flat) for p in layout.parameters}


def flatten(layout: Layout, weights: Mapping[str, AnyFloat]) -> AnyFloat:
    """The inverse of `unflatten`; raises ValueError for a weight of another shape."""
    flat = np.zeros(layout.size, next(iter(weights.values())).dtype)
    for name, view in unflatten(layout, flat).items():
        if weights[name].shape != view.shape:
            raise ValueError(f"{name} has shape {weights[name].shape}, not {view.shape}")
        view[...] = weights[name]
    return flat


# The action in training, from all values of a policy's network, noise and a scale.
EXPLORERS: dict[str, Callable[[Mapping[str, AnyFloat], AnyFloat, float], AnyFloat]] = {
    "added_noise": lambda known, noise, scale: np.clip(known["action"] + scale * noise, -1.0, 1.0),
    "squashed_gaussian": lambda known, noise, _: np.tanh(
        known["action.linear"] + np.exp(np.clip(known["log_std"], *LOG_STD_BOUNDS)) * noise
    ),
}


class Actor:
    """A policy: `actor(state)` is the action in [-1, 1] at test time, for one state or many."""

    def __init__(self, network: Network, flat: AnyFloat) -> None:
        weights = unflatten(Layout.of(network), flat)
        self._output = network.output
        self._dtype = flat.dtype
        self._layers = [
            (
                layer.output,
                layer.inputs,
                *linear(weights, layer),
                NORMS[layer.norm],
                {kind: weights[f"{layer.output}.{kind}"] for kind in NORM_PARAMETERS[layer.norm]},
                ACTIVATIONS[layer.activation],
            )
            for layer in network.layers
        ]

    def __call__(self, state: ArrayLike) -> AnyFloat:
        return self._values(state)[self._output]

    def explore(self, state: ArrayLike, noise: AnyFloat, exploration: Exploration) -> AnyFloat:
        """The action in training."""
        return EXPLORERS[exploration.kind](self._values(state), noise, exploration.scale)

    def _values(self, state: ArrayLike) -> dict[str, AnyFloat]:
        """Every layer's value and, as NAME.linear, what it was before norm and activation."""
        values: dict[str, AnyFloat] = {"state": np.asarray(state, self._dtype)}
        for output, inputs, weight, bias, norm, own, activation in self._layers:
            if len(inputs) == 1:
                x = values[inputs[0]]
            else:
                x = np.concatenate([values[name] for name in inputs], axis=-1)
            values[f"{output}.linear"] = x @ weight + bias
            values[output] = activation(norm(values[f"{output}.linear"], own))
        return values

"""The NumPy actor that collects and evaluates: flat weights in, actions in [-1, 1] out.

For one state at a time NumPy is several times faster than eager PyTorch, and worker processes need
not load PyTorch.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from td7.networks.description import (
    AVG_L1_FLOOR,
    LOG_STD_BOUNDS,
    NORM_EPSILON,
    OBSERVATION_BOUND,
    Layer,
    Layout,
    Network,
)
from td7.types import AnyFloat, Exploration


def avg_l1_norm(x: AnyFloat) -> AnyFloat:
    """AvgL1Norm(x) = x / mean_i |x_i|, guarded by 1e-8."""
    mean = np.abs(x).sum(axis=-1, keepdims=True) / x.shape[-1]  # faster than .mean()
    scale: AnyFloat = np.maximum(mean, AVG_L1_FLOOR)
    return x / scale


def elu(x: AnyFloat) -> AnyFloat:
    return np.maximum(x, 0) + np.expm1(np.minimum(x, 0))


def layer_norm(x: AnyFloat, norm: Mapping[str, AnyFloat]) -> AnyFloat:
    """Normalise over the units, for each state separately."""
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    normed: AnyFloat = (x - mean) / np.sqrt(variance + NORM_EPSILON)
    return normed * norm["gain"] + norm["shift"]


def swish(x: AnyFloat) -> AnyFloat:
    """x * sigmoid(x); exponents are never positive, so that none overflows."""
    e: AnyFloat = np.exp(-np.abs(x))
    return (np.maximum(x, 0) + np.minimum(x, 0) * e) / (1 + e)


def observation_norm(x: AnyFloat, norm: Mapping[str, AnyFloat]) -> AnyFloat:
    """Normalise every observation by its running mean and standard deviation, and clip it."""
    return np.clip((x - norm["mean"]) / norm["std"], -OBSERVATION_BOUND, OBSERVATION_BOUND)


def folded_linear(layer: Layer, parameters: Mapping[str, AnyFloat]) -> tuple[AnyFloat, AnyFloat]:
    """The layer's weight and bias, with its batch norm folded into them.

    Acting uses the running mean and variance of training, so the norm is linear.
    """
    weight, bias = parameters[f"{layer.output}.weight"], parameters[f"{layer.output}.bias"]
    if layer.norm == "batch":
        norm = layer.norm_parameters(parameters)
        scale = norm["gain"] / np.sqrt(norm["variance"] + NORM_EPSILON)
        weight, bias = weight * scale, (bias - norm["mean"]) * scale + norm["shift"]
    return np.ascontiguousarray(weight), bias


NORMS: dict[str, Callable[[AnyFloat, Mapping[str, AnyFloat]], AnyFloat]] = {
    "none": lambda x, _: x,
    "avg_l1": lambda x, _: avg_l1_norm(x),
    "layer": layer_norm,
    "batch": lambda x, _: x,  # `folded_linear` has applied it
    "observations": observation_norm,
}
ACTIVATIONS: dict[str, Callable[[AnyFloat], AnyFloat]] = {
    "none": lambda x: x,
    "elu": elu,
    "relu": lambda x: np.maximum(x, 0),
    "swish": swish,
    "tanh": np.tanh,
}


def unflatten(layout: Layout, flat: AnyFloat) -> dict[str, AnyFloat]:
    """Named views into one flat vector, without the zeros that fill gaps."""
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
    "added_noise": lambda x, noise, scale: np.clip(x["action"] + scale * noise, -1.0, 1.0),
    "squashed_gaussian": lambda x, noise, _: np.tanh(
        x["action.linear"] + np.exp(np.clip(x["log_std"], *LOG_STD_BOUNDS)) * noise
    ),
}


class Actor:
    """A policy: `actor(state)` is the action in [-1, 1] at test time, for one state or many."""

    def __init__(self, network: Network, flat: AnyFloat) -> None:
        parameters = unflatten(Layout.of(network), flat)
        self._output = network.output
        self._dtype = flat.dtype
        self._layers = [
            (
                layer.output,
                layer.inputs,
                folded_linear(layer, parameters) if layer.is_linear else None,
                NORMS[layer.norm],
                layer.norm_parameters(parameters),
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
        """Every layer's value and, as NAME.linear, its value before norm and activation."""
        values: dict[str, AnyFloat] = {"state": np.asarray(state, self._dtype)}
        for output, inputs, linear, norm, norm_parameters, activation in self._layers:
            if len(inputs) == 1:
                x = values[inputs[0]]
            else:
                x = np.concatenate([values[name] for name in inputs], axis=-1)
            if linear is not None:
                weight, bias = linear
                x = np.dot(x, weight) + bias  # faster than x @ weight
            values[f"{output}.linear"] = x
            values[output] = activation(norm(x, norm_parameters))
        return values

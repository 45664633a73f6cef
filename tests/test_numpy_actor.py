"""The NumPy actor computes what the PyTorch network computes, from the same flat weights."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from td7.algorithms import ALGORITHMS
from td7.algorithms.learner import Batch, Learner, Turn
from td7.algorithms.td7 import TD7, TD7Config
from td7.networks import numpy_actor
from td7.networks import stacked as networks
from td7.networks.description import Layer, Layout, Network, from_json, to_json
from td7.networks.numpy_actor import Actor
from td7.types import Task, TaskSpec

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0, -1.0), (1.0, 1.0), None)
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"embedding_dim": 8, "hidden_dim": 16, "batch_size": 32}
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}


def learner(name: str, dtype: torch.dtype) -> Learner:
    """Two members of an algorithm at a small size."""
    chosen = ALGORITHMS[name]
    known = {f.name for f in dataclasses.fields(chosen.config)}
    config = chosen.config(**{k: v for k, v in SMALL.items() if k in known})
    return chosen.learner(config, TASK, [0, 1], CPU, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_numpy_acts_as_pytorch(name: str, dtype: torch.dtype) -> None:
    """For one state and for many, with the policy of every algorithm."""
    members = learner(name, dtype)
    layout = Layout.of(members.policy_network)
    flat = members.policies()
    states = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    expected = networks.apply(
        members.policy_network, networks.unflatten(layout, flat), state=states
    ).numpy()
    assert expected.shape == (2, 7, 2)
    assert np.abs(expected).max() <= 1
    for m in range(2):
        actor = Actor(members.policy_network, flat[m].numpy())
        many = actor(states[m].numpy())
        assert many.dtype == expected.dtype
        assert_allclose(many, expected[m], rtol=0, atol=TOLERANCE[dtype])
        for state, action in zip(states[m].numpy(), expected[m], strict=True):
            assert_allclose(actor(state), action, rtol=0, atol=TOLERANCE[dtype])
    assert not np.allclose(expected[0], expected[1])


def test_the_policy_is_the_fixed_encoders_f_and_the_actor() -> None:
    """After training, when the encoder differs from the fixed one."""
    td7 = TD7(TD7Config(**SMALL), TASK, [0, 1], CPU, torch.float64)
    random = torch.Generator().manual_seed(0)
    batch = Batch(*(torch.randn(2, 32, n, generator=random).double() for n in (5, 2, 5, 1, 1)))
    noise = {"target_policy": torch.zeros(2, 32, 2, dtype=torch.float64)}
    td7.update(batch, noise, Turn())
    td7.copy_targets(None)
    td7.update(batch, noise, Turn())
    td7.update(batch, noise, Turn())

    f_size = Layout.of(td7.sale.f).size
    assert torch.equal(td7.policies()[:, :f_size], td7.fixed_encoder[:, :f_size])
    assert torch.equal(td7.policies()[:, f_size:], td7.actor.flat)
    assert not torch.equal(td7.fixed_encoder, td7.encoder.flat)
    assert not torch.equal(td7.fixed_encoder, td7.target_fixed_encoder)

    # The actor computes pi(f(s), s) as the parts do.
    fixed = networks.unflatten(td7.sale.layout, td7.fixed_encoder)
    zs = td7.sale.zs(fixed, batch.state)
    pi = networks.apply(td7.actor_network, td7.actor.parameters, state=batch.state, zs=zs)
    for m in range(2):
        actor = Actor(td7.policy_network, td7.policies()[m].numpy())
        assert_allclose(actor(batch.state[m].numpy()), pi[m], atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("table", ["NORMS", "ACTIVATIONS"])
def test_numpy_knows_what_pytorch_knows(table: str, dtype: type[np.floating]) -> None:
    """The same names and numbers, and no warning for the largest and smallest floats."""
    random = np.random.default_rng(0).standard_normal((50, 8)).astype(dtype)
    extreme = np.array(
        [
            np.zeros(8),
            [1e-30, -1e-30] * 4,
            [1e-9, -2e-9] * 4,
            [-1e-4, 1e4] * 4,
            [-100.0, 100.0] * 4,
            [-1e30, 1e30] * 4,
            [-1e30, 0.0, 1e-30, 1.0] * 2,
        ],
        dtype,
    )
    rtol = 1e-5 if dtype is np.float32 else 1e-12
    in_numpy, in_torch = getattr(numpy_actor, table), getattr(networks, table)
    assert in_numpy.keys() == in_torch.keys()
    norm_parameters = {
        "gain": np.linspace(0.5, 1.5, 8, dtype=dtype),
        "shift": np.linspace(-1.0, 1.0, 8, dtype=dtype),
        "mean": np.linspace(-0.3, 0.3, 8, dtype=dtype),
        "variance": np.linspace(0.1, 2.0, 8, dtype=dtype),
        "std": np.linspace(0.1, 2.0, 8, dtype=dtype),
    }
    in_tensors = {name: torch.from_numpy(x) for name, x in norm_parameters.items()}
    for name in in_torch:
        for x in (random, extreme):
            if name == "batch":  # folded into the weights
                continue
            own = (table == "NORMS") * ((norm_parameters, in_tensors),)
            # Squares of larger numbers overflow in float32.
            clipped = x.clip(-1e15, 1e15) if name == "layer" else x
            result = in_numpy[name](clipped, *(a for a, _ in own))
            expected = in_torch[name](torch.from_numpy(clipped), *(b for _, b in own))
            assert result.dtype == dtype, name
            assert_allclose(result, expected, rtol=rtol, atol=rtol / 20, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_batch_norm_is_folded_into_the_weights(dtype: type[np.floating]) -> None:
    """With a mean and variance far from the initial ones."""
    layers = (
        Layer("h", ("state",), 6, norm="batch", activation="swish"),
        Layer("action", ("h", "state"), 2, norm="batch", activation="tanh"),
    )
    network = Network({"state": 5}, layers)
    layout = Layout.of(network)
    random = np.random.default_rng(0)
    flat = networks.initial(layout, [random]).astype(dtype)
    for name, view in numpy_actor.unflatten(layout, flat[0]).items():
        if name.endswith(("gain", "shift", "mean", "variance")):
            view[...] = random.uniform(0.2, 3.0, view.shape)
    states = random.standard_normal((7, 5)).astype(dtype)
    weights = networks.unflatten(layout, torch.from_numpy(flat))
    expected = networks.apply(network, weights, state=torch.from_numpy(states).unsqueeze(0))
    actions = Actor(network, flat[0])(states)
    assert actions.dtype == dtype
    assert_allclose(actions, expected[0], rtol=1e-5 if dtype is np.float32 else 1e-12)


def test_flattening_inverts_unflattening() -> None:
    """NumPy and PyTorch split the same flat vector in the same way."""
    td7 = TD7(TD7Config(**SMALL), TASK, [0, 1], CPU, torch.float64)
    for network in (td7.policy_network, td7.critic_network):
        layout = Layout.of(network)
        random = [np.random.default_rng(seed) for seed in (0, 1)]
        flat = torch.from_numpy(networks.initial(layout, random))
        stacked = networks.unflatten(layout, flat)
        assert torch.equal(networks.flatten(layout, stacked), flat)
        for row, head in enumerate(flat.view(-1, layout.head_size)):
            solo = numpy_actor.unflatten(layout, head.numpy())
            assert solo.keys() == stacked.keys()
            for name, weight in solo.items():
                assert_array_equal(weight, stacked[name][row, : len(weight)])
                assert not stacked[name][row, len(weight) :].any()
            assert_array_equal(
                numpy_actor.flatten(dataclasses.replace(layout, heads=1), solo), head
            )


def test_a_layout_by_hand() -> None:
    """Weights before biases, layer by layer, one head after the other.

    The rows of a weight are padded to a multiple of 8, the size of a parameter to one of 64.
    """
    network = Network({"x": 2, "y": 1}, (Layer("h", ("x", "y"), 4), Layer("out", ("h", "x"), 1)))
    twins = dataclasses.replace(network, heads=2)

    def rows(of: Network) -> list[tuple[str, tuple[int, ...], int, int]]:
        return [(p.name, p.shape, p.fan_in, p.offset) for p in Layout.of(of).parameters]

    assert rows(network) == [
        ("h.weight", (8, 4), 3, 0),
        ("h.bias", (4,), 3, 64),
        ("out.weight", (8, 1), 6, 128),
        ("out.bias", (1,), 6, 192),
    ]
    assert rows(twins) == rows(network)
    assert (Layout.of(network).size, Layout.of(twins).size) == (256, 512)


def test_a_weight_of_another_shape_is_refused() -> None:
    layout = Layout.of(Network({"x": 2}, (Layer("y", ("x",), 3),)))
    weights = {"y.weight": np.zeros((3, 2)), "y.bias": np.zeros(3)}
    with pytest.raises(ValueError, match=r"y\.weight has shape \(3, 2\), not \(2, 3\)"):
        numpy_actor.flatten(layout, weights)


def test_networks_survive_json() -> None:
    td7 = TD7(TD7Config(**SMALL), TASK, [0], CPU, torch.float32)
    for network in (td7.policy_network, td7.critic_network, td7.sale.g):
        assert from_json(json.loads(json.dumps(to_json(network)))) == network

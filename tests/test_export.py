"""`td7 export`: the file does what the policy does, by another library's reading of it."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import td7
import toys
from folders import two_policies
from td7.algorithms import ALGORITHMS
from td7.cli.main import main
from td7.errors import InputError, RunError
from td7.networks import onnx as onnx_module
from td7.networks.description import Layer, Layout, Network
from td7.networks.numpy_actor import ACTIVATIONS, NORMS, flatten
from td7.rollouts.registration import describe
from td7.runs.export import write_onnx
from td7.runs.policies import Policy
from td7.types import Exploration, Task, TaskSpec

assert toys  # registers the tasks
NOISE = Exploration("added_noise", 0.1)


def with_weights(spec: TaskSpec, network: Network) -> Policy:
    """Of any numbers; variances and standard deviations are not negative."""
    random = np.random.default_rng(1)
    layout = Layout.of(network)
    weights = {}
    for p in layout.parameters:
        drawn = random.standard_normal(p.shape)[p.used].astype(np.float32)
        if p.name.endswith("weight"):
            drawn /= np.sqrt(p.fan_in)
        weights[p.name] = np.abs(drawn) if p.name.endswith(("variance", "std")) else drawn
    return Policy(spec, network, flatten(layout, weights), NOISE)


def run_file(path: Path, observations: Any) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"observation": observations})
    return action


def observations(spec: TaskSpec, n: int = 200) -> Any:
    drawn = np.random.default_rng(2).standard_normal((n, *spec.state_shape))
    return (3 * drawn).astype(np.float32)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_agents_policy(name: str, tmp_path: Path) -> None:
    chosen = ALGORITHMS[name]
    spec = describe(Task("toys:Point-v0"))
    learner = chosen.learner(chosen.config(), spec, [0], torch.device("cpu"), torch.float32)
    policy = with_weights(spec, learner.policy_network)
    write_onnx(policy, tmp_path / "policy.onnx", {})
    given = observations(spec)
    expected, _ = policy.predict(given)
    found = run_file(tmp_path / "policy.onnx", given)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.ptp(found, axis=0).min() > 0.1  # it does act
    low, high = policy.action_bounds
    assert (found >= low).all()
    assert (found <= high).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_norm_and_activation(norm: str, activation: str, tmp_path: Path) -> None:
    spec = describe(Task("toys:Point-v0"))
    layers = (
        Layer("a1", ("state",), 2 if norm == "observations" else 8, norm, activation),
        Layer("a2", ("a1", "state"), 8, activation="elu"),
        Layer("unread", ("a2",), 3),
        Layer("action", ("a2",), spec.action_dim, activation="tanh"),
    )
    policy = with_weights(spec, Network({"state": spec.state_dim}, layers))
    write_onnx(policy, tmp_path / "policy.onnx", {})
    given = observations(spec)
    found = run_file(tmp_path / "policy.onnx", given)
    np.testing.assert_allclose(found, policy.predict(given)[0], atol=2e-5)
    products = [n for n in onnx.load(tmp_path / "policy.onnx").graph.node if n.op_type == "Gemm"]
    linear = sum(layer.is_linear for layer in layers)
    assert len(products) == linear - 1  # without the layer that leads nowhere


def test_shapes_and_whole_numbers(tmp_path: Path) -> None:
    """Observations [3, 2] in, actions [2, 2] of int64 in [-3, 5] out, for a batch of any size."""
    spec = TaskSpec(Task("toys:Point-v0"), (3, 2), (2, 2), (-3.0,) * 4, (5.0,) * 4, 20, "int64")
    layers = (Layer("action", ("state",), 4, activation="tanh"),)
    policy = with_weights(spec, Network({"state": 6}, layers))
    write_onnx(policy, tmp_path / "policy.onnx", {})
    for n in (1, 64):
        given = observations(spec, n)
        found = run_file(tmp_path / "policy.onnx", given)
        expected, _ = policy.predict(given)
        assert found.shape == (n, 2, 2)
        assert found.dtype == expected.dtype == np.int64
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    return two_policies(tmp_path_factory.mktemp("exported") / "run")


def test_a_run_is_exported(run: td7.Run, tmp_path: Path) -> None:
    spec = describe(Task("toys:Point-v0"))
    for seed in (2, 5):
        assert td7.export(run.path, seed=seed) == run.path / "policy" / f"seed-{seed}.onnx"
        found = run_file(run.path / "policy" / f"seed-{seed}.onnx", observations(spec))
        expected, _ = td7.load(run.path, seed=seed).predict(observations(spec))
        np.testing.assert_allclose(found, expected, atol=2e-5)
    model = onnx.load(run.path / "policy" / "seed-5.onnx")
    props = {p.key: p.value for p in model.metadata_props}
    assert props == {"task": "toys:Point-v0", "algorithm": "td7", "seed": "5"}
    kept = td7.export(run.path / "policies" / "000000040", tmp_path / "kept.onnx", seed=2)
    expected, _ = td7.load(run.path / "policies" / "000000040", seed=2).predict(observations(spec))
    np.testing.assert_allclose(run_file(kept, observations(spec)), expected, atol=2e-5)


def test_the_command(run: td7.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.onnx"
    assert main(["export", str(run.path), "--seed", "5", "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_bytes() == td7.export(run.path, seed=5).read_bytes()
    assert main(["export", str(run.path)]) == 2
    assert "choose one of 2, 5" in capsys.readouterr().err


def test_without_the_package(run: td7.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match="needs onnx, which the extra 'onnx' installs"):
        td7.export(run.path, tmp_path / "policy.onnx", seed=2)


def test_a_file_that_differs_is_not_written(
    run: td7.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(onnx_module.ACTIVATIONS, "relu", lambda _, x: x)
    with pytest.raises(RunError, match="differs from the policy by"):
        td7.export(run.path, tmp_path / "wrong.onnx", seed=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "has several seeds: choose one of 2, 5"),
        ({"seed": 3}, "has no seed 3; allowed: 2, 5"),
        ({"seed": 2, "out": "policy.txt"}, "ends in .onnx, given 'policy.txt'"),
        ({"seed": 2, "out": "no/where.onnx"}, "no is not a folder"),
        ({"seed": 2, "out": "/proc/x.onnx"}, "cannot write to /proc/x.onnx: No such file"),
        ({"seed": 2, "format": "onx"}, "unknown format 'onx'; did you mean 'onnx'?"),
    ],
)
def test_bad_words(
    given: dict[str, Any], told: str, run: td7.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=told.replace("?", r"\?")):
        td7.export(run.path, **given)
    assert not list(tmp_path.iterdir())

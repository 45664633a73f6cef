"""`td7 bench` compares programs that do the same work and do not disturb each other."""

import gc
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import config as dynamo
from torch.utils.flop_counter import FlopCounterMode

from td7.algorithms import ALGORITHMS
from td7.bench import peers
from td7.bench.processes import updates_in_processes
from td7.bench.updates import ProductFloor, _fresh_updates, engine_updates, measure, random_rows
from td7.networks.description import Layer, Network
from td7.networks.stacked import apply
from td7.processes import Worker, start_workers
from td7.types import Task, TaskSpec

CHEETAH = TaskSpec(Task("none"), (17,), (6,), (-1.0,) * 6, (1.0,) * 6, None)
DATA = random_rows(CHEETAH, 300)


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_makes_the_same_matrix_products(name: str) -> None:
    """Up to what one of the two leaves out: from 5% fewer to 17% more."""
    if not peers.peer(name):
        pytest.skip(f"{peers.PEERS[name].name} is not installed")
    operations = []
    for run in (
        engine_updates(name, "eager", CHEETAH, 1, DATA, "cpu", lambda _: None, 2),
        peers.updates(name, CHEETAH, DATA, "cpu", 2),
    ):
        with FlopCounterMode(display=False) as counter:
            run()
        operations.append(counter.get_total_flops())
    own, theirs = operations
    assert 0.95 < theirs / own < 1.17


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_floor_has_every_matrix_product(name: str) -> None:
    """A product of [n, k] and [k, m] takes 2 n k m operations."""
    with FlopCounterMode(display=False) as counter:
        floor = ProductFloor(name, CHEETAH, DATA)
    operations = sum(2 * times * a.numel() * b.shape[1] for times, a, b in floor._factors)
    assert operations == counter.get_total_flops() > 0


def test_no_gradient_is_made_for_what_a_network_is_given() -> None:
    """Products of a training step, by hand: those of the state's gradient are not among them."""
    network = Network({"s": 8}, (Layer("phi", ("s",), 4), Layer("out", ("s", "phi"), 3)))
    sizes = {"phi.weight": (8, 4), "phi.bias": (4,), "out.weight": (12, 3), "out.bias": (3,)}
    weights = {name: torch.randn(1, *size, requires_grad=True) for name, size in sizes.items()}
    with FlopCounterMode(display=False) as counter:
        total = apply(network, weights, s=torch.randn(1, 32, 8)).sum()
        torch.autograd.grad(total, list(weights.values()))
    forward = weight_gradients = 8 * 4 + 12 * 3
    phi_gradient = 4 * 3
    assert counter.get_total_flops() == 2 * 32 * (forward + weight_gradients + phi_gradient)


def test_sampling_alone_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of an update takes less time than all of it, even uncompiled."""
    monkeypatch.setattr(torch, "compile", lambda **_: lambda function: function)
    results = measure(
        "td7",
        CHEETAH,
        seeds=[1],
        engines=["eager", "sampling"],
        rows=[300],
        device="cpu",
        seconds=0.5,
        say=lambda _: None,
    )
    found = {r.engine: r.milliseconds for r in results}
    assert set(found) == {"plain", "eager", "sampling"}
    assert found["sampling"] < found["eager"] / 2
    floors = {r.engine: r.floor_milliseconds for r in results}
    assert floors["sampling"] is None  # it has no products
    assert floors["eager"]


def test_processes_divide_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds in two processes, which make a round when they are asked to, and end."""
    monkeypatch.setattr("td7.bench.processes.fast_processes", lambda _: 2)
    shares: list[int] = []

    def start(target: Any, arguments: dict[str, Any]) -> list[Worker]:
        shares.extend(share for _, share in arguments.values())
        return start_workers(target, arguments)

    monkeypatch.setattr("td7.bench.processes.start_workers", start)
    run = updates_in_processes(partial(_fresh_updates, "td3", "eager", CHEETAH, 300), 3)
    assert shares == [2, 1]
    for _ in range(2):
        run()
    assert {child.name for child in active_children()} == {"td7-bench-0", "td7-bench-1"}
    del run
    gc.collect()
    assert not active_children()


def test_an_absent_peer_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"td7", "td3+ofe", "xql"}.isdisjoint(peers.PEERS)
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    assert not any(peers.peer(name) for name in ALGORITHMS)
    (result,) = measure(
        "td3+bc",
        CHEETAH,
        seeds=[1],
        engines=["eager"],
        rows=[300],
        device="cpu",
        seconds=0.01,
        say=lambda _: None,
    )
    assert not result.is_reference


def test_importing_a_peer_is_quiet_and_changes_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """d3rlpy turns compiled autograd on for the whole process, where there is CUDA."""
    lines = (
        "import sys",
        "from torch._dynamo import config",
        "print('too old', file=sys.stderr)",
        "config.compiled_autograd = True",
    )
    (tmp_path / "loud_peer.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert not dynamo.compiled_autograd
    peers._import("loud_peer")
    assert not dynamo.compiled_autograd
    assert capsys.readouterr().err == ""

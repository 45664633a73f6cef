"""Captured updates are the eager ones, to rounding, and the host never waits for a GPU."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor

from engines import (
    LAYOUT,
    READS_THE_TRAINED_ENCODER,
    SMALL,
    TASK,
    build,
    check_close,
    check_time_steps,
    fails,
    needs_gpu,
    run,
    step_through,
    tensors,
)
from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.compiling import compile_whole
from td7.engine.cuda import GraphRunner, MaskedGraph, Work
from td7.engine.runner import HostRunner, Slot
from td7.networks import kernels
from td7.networks import stacked as networks
from td7.networks.description import Layout
from td7.networks.stacked import apply, unflatten


class RepeatedWork:
    """Stands for `torch.cuda.CUDAGraph` on a CPU: a replay does the captured work once more."""

    def replay(self) -> None:
        self.work()

    def work(self) -> None:
        raise AssertionError("replayed before it was captured")


@pytest.fixture
def replays_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = GraphRunner._capture

    def captured(runner: GraphRunner, work: Work, slots: Sequence[Slot]) -> MaskedGraph:
        graph = capture(runner, work, slots)
        monkeypatch.setattr(graph.graph, "work", lambda: work(graph, slots))
        return graph

    monkeypatch.setattr(GraphRunner, "_capture", captured)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RepeatedWork)
    monkeypatch.setattr(torch.cuda, "graph", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock)
    monkeypatch.setattr(Tensor, "record_stream", lambda *_: None)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)


@pytest.mark.usefixtures("replays_on_cpu")
def test_masked_units_and_time_steps_are_the_eager_ones() -> None:
    """With a CPU in place of a GPU: who takes part is in the masks, not in the captured work."""
    graph, eager = build("eager", "cpu"), build("eager", "cpu")
    assert isinstance(graph._runner, HostRunner)
    graph._runner = GraphRunner(graph._runner, graph._stages, None, pytest.fail)
    for wanted in ((37, 20, 0), (13, 30, 55), (21, 20, 15)):
        run(graph, wanted)
        run(eager, wanted)
    check_close(graph, eager, 1e-9)
    check_time_steps(graph, eager)


def test_without_graphs_the_host_starts_all_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where capturing fails, which changes nothing; it warns once."""
    for name in ("current_stream", "set_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(GraphRunner, "_capture", fails)
    messages: list[str] = []
    graph, eager = build("eager", "cpu"), build("eager", "cpu")
    assert isinstance(graph._runner, HostRunner)
    graph._runner = GraphRunner(graph._runner, graph._stages, None, messages.append)
    for engine in (graph, eager):
        run(engine, (23, 7, 2))
        step_through(engine)
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(graph).items())
    assert messages == ["updates run without a CUDA graph, which fails here: too long"]


@pytest.mark.gpu
@needs_gpu
def test_a_captured_time_step_is_the_eager_one() -> None:
    check_time_steps(build("graph", "cuda"), build("eager", "cuda"))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("config", [SMALL, *READS_THE_TRAINED_ENCODER])
def test_a_graph_is_eager_on_a_gpu(config: TD7Config) -> None:
    """Members with different counts and phases, past target copies; a race would show here."""
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 0.05)):
        graph, eager = (build(mode, "cuda", dtype, config=config) for mode in ("graph", "eager"))
        for wanted in ((37, 20, 0), (13, 30, 55), (21, 20, 15)):
            run(graph, wanted)
            run(eager, wanted)
        check_close(graph, eager, tolerance)


@needs_gpu
@pytest.mark.gpu
def test_a_graph_with_the_kernel_is_eager_on_a_gpu() -> None:
    """Few updates: the kernel truncates factors that libraries round, and updates amplify it."""
    wide = replace(SMALL, embedding_dim=64, hidden_dim=64, batch_size=64)
    graph, eager = (build(mode, "cuda", torch.float32, config=wide) for mode in ("graph", "eager"))
    for engine in (graph, eager):
        run(engine, (5, 2, 0))
        run(engine, (1, 3, 6))
    check_close(graph, eager, 0.02)


@needs_gpu
@pytest.mark.gpu
def test_updates_that_cannot_be_captured_run_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In units and time steps; a host that waits for the device cannot be captured."""

    def waits(learner: TD7, batch: Any, noise: Any, turn: Any) -> Tensor | None:
        priorities = update(learner, batch, noise, turn)
        torch.cuda.synchronize()
        return priorities

    update = TD7.update
    monkeypatch.setattr(TD7, "update", waits)
    messages: list[str] = []
    graph, eager = build("graph", "cuda", warn=messages.append), build("eager", "cuda")
    for engine in (graph, eager):
        run(engine, (23, 7, 2))
        step_through(engine)
    check_close(graph, eager, 1e-9)
    assert len(messages) == 1
    assert messages[0].startswith("updates run without a CUDA graph, which fails here: ")
    assert isinstance(graph._runner, GraphRunner)
    assert not graph._runner.works


@contextmanager
def no_waiting() -> Iterator[None]:
    """PyTorch raises where the host would wait for the GPU, and warns that this mode is new."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.gpu
def test_the_host_never_waits_for_updates() -> None:
    """Nor for rows, masks, noise, copies of targets, policies and metrics."""
    engine = build("graph", "cuda")
    run(engine, (3, 5, 8))  # compiled and captured
    rows = np.zeros((7, LAYOUT.width), np.float32)
    with no_waiting():
        for wanted in ((40, 40, 40), (300, 0, 17)):
            for m in range(3):
                engine.replay.append(m, rows)
            run(engine, wanted)
            fetched = [engine.fetch_policy(0), engine.fetch_metrics(0)]
        with pytest.raises(RuntimeError, match="synchronizing"):
            engine.replay.max_priority.cpu()
    assert all(np.isfinite(fetch.value()).all() for fetch in fetched)


@needs_gpu
@pytest.mark.gpu
def test_capturing_a_graph_changes_nothing() -> None:
    engine = build("graph", "cuda")
    before = tensors(engine)
    engine.advance([0, 0, 0])
    after = tensors(engine)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@needs_gpu
@pytest.mark.gpu
def test_masked_members_stay_bit_identical_in_a_graph() -> None:
    engine = build("graph", "cuda")
    run(engine, [12, 5, 7])
    before = tensors(engine)
    run(engine, [25, 0, 0])
    after = tensors(engine)
    for name, tensor in after.items():
        assert torch.equal(tensor[1:], before[name][1:]), name
    for name in ("encoder.parameters", "critic.parameters", "actor.parameters", "leaves"):
        assert not torch.equal(after[name][0], before[name][0]), name


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("fixed_embeddings", [True, False])
def test_a_gpu_repeats_itself_bit_for_bit(fixed_embeddings: bool) -> None:
    """Ten members at the paper's sizes in float32, in different units of updates."""
    config = TD7Config(target_every=60, fixed_embeddings=fixed_embeddings)
    once, again = (build("graph", "cuda", torch.float32, 10, config=config) for _ in range(2))
    counts = range(120, 150, 3)  # a long unit is among them
    run(once, counts)
    parts = [7] * 10, [0, 13] * 5
    for wanted in (*parts, [n - a - b for n, a, b in zip(counts, *parts, strict=True)]):
        run(again, wanted)
    actual, expected = tensors(again), tensors(once)
    assert again.updates == once.updates
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


@needs_gpu
@pytest.mark.gpu
def test_a_network_is_the_same_on_a_gpu() -> None:
    """Values and gradients of twin critics, whose layers read inputs and other layers."""
    network = TD7(SMALL, TASK, range(2), torch.device("cpu"), torch.float64).critic_network
    layout = Layout.of(network)
    flat = torch.randn(2, layout.size, dtype=torch.float64)
    inputs = {n: torch.randn(2, 32, w, dtype=torch.float64) for n, w in network.inputs.items()}
    results = []
    for device in ("cpu", "cuda"):
        weights = flat.to(device).requires_grad_()
        here = {name: x.to(device) for name, x in inputs.items()}
        values = apply(network, unflatten(layout, weights), **here)
        (gradient,) = torch.autograd.grad(values.square().sum(), weights)
        results.append((values.detach().cpu(), gradient.cpu()))
    for on_cpu, on_gpu in zip(*results, strict=True):
        assert torch.allclose(on_cpu, on_gpu, rtol=1e-9, atol=1e-9)


@pytest.fixture
def tf32() -> Iterator[None]:
    """The precision of engines on a GPU; without it PyTorch's compiler warns."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("activation", networks.BACKWARD)
@pytest.mark.parametrize("sizes", [(3, 100, 40, 72), (2, 64, 256, 64), (16, 1024, 24, 256)])
@pytest.mark.usefixtures("tf32")
def test_the_kernel_is_a_linear_layer(sizes: tuple[int, int, int, int], activation: str) -> None:
    """Value and gradients, as in float64; other numbers surround the weights in memory.

    The numbers are eighths, whose products are exact in TF32, and no value is nearly 0.
    """
    members, rows, depth, columns = sizes
    torch.compiler.reset()  # every case compiles again, and PyTorch limits how often
    kernels.activate(tf32=True)

    def loss(x: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
        weight = flat[:, 64 : 64 + depth * columns].view(members, columns, depth).mT
        y = networks.linear(weight, flat[:, :columns], activation, x)
        return y, (y * torch.linspace(-1, 1, rows, device=y.device).unsqueeze(1)).sum()

    random = torch.Generator().manual_seed(0)
    inputs, weights = (
        torch.randint(-8, 9, (members, *size), generator=random) / 8
        for size in ((rows, depth), (128 + depth * columns,))
    )
    results = []
    for device, dtype, run_it in (
        ("cpu", torch.float64, loss),
        ("cuda", torch.float32, compile_whole(loss)),
    ):
        x, flat = (z.to(device, dtype).requires_grad_() for z in (inputs, weights))
        with torch.profiler.profile(acc_events=True) as profile:
            y, total = run_it(x, flat)
        names = [event.key for event in profile.key_averages()]
        assert ("_linear" in names) == (device == "cuda"), names
        results.append((y, *torch.autograd.grad(total, (x, flat))))
    for on_cpu, on_gpu in zip(*results, strict=True):
        assert (on_cpu - on_gpu.cpu()).norm() < 1e-3 * on_cpu.norm()
    assert torch.allclose(results[0][0], results[1][0].cpu().double(), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        x[0, 0, 0] = torch.nan
        assert run_it(x, flat)[0][0, 0].isnan().all()


@needs_gpu
@pytest.mark.gpu
def test_which_kernels_are_fastest_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch times kernels and takes the fastest, which may differ by day and GPU.

    Here each kernel in turn seems to be the fastest, for sums like those of an update.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.utils import fresh_cache

    def sums(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.nn.functional.elu(x)
        return y.sum(dim=1), y.abs().mean(dim=2), y.square().flatten(1).mean(dim=1)

    # With these sizes, on an H200, PyTorch's free choice would change the results.
    random = torch.Generator("cuda").manual_seed(0)
    inputs = [
        torch.randn(size, device="cuda", generator=random)
        for size in ((20, 256, 256), (10, 256, 24))
    ]
    results = []
    for place in range(4):

        def bench(kernel: Any, launcher: Any, *_: Any, place: int = place, **__: Any) -> float:
            return float(launcher is not kernel.launchers[place % len(kernel.launchers)])

        monkeypatch.setattr(CachingAutotuner, "bench", bench)
        torch.compiler.reset()
        with fresh_cache():
            results.append([each for x in inputs for each in compile_whole(sums)(x)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_gpu
@pytest.mark.gpu
def test_rows_on_the_host_change_nothing() -> None:
    """Eager and captured, in units and in time steps, bit for bit."""
    for mode in ("eager", "graph"):
        here, there = (build(mode, "cuda", rows_on_host=on_host) for on_host in (False, True))
        for engine in (here, there):
            run(engine, (12, 5, 7))
            step_through(engine)
        actual, expected = tensors(there), tensors(here)
        assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
        assert torch.equal(here.replay.rows.cpu(), there.replay.rows.cpu())

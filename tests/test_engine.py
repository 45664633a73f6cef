"""Compiled and captured updates are the eager ones, to rounding; noise is fresh in each of them."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from td7.algorithms.td7 import TD7, TD7Config
from td7.engine import compiling as compiling_module
from td7.engine import noise as noise_module
from td7.engine.cuda import GraphRunner
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.engine.runner import HostRunner
from td7.engine.stages import Stages
from td7.networks import kernels
from td7.networks import stacked as networks
from td7.networks.description import Layout
from td7.networks.stacked import apply, unflatten
from td7.types import RowLayout, Task, TaskSpec

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
LAYOUT = RowLayout(5, 2)
SMALL = TD7Config(embedding_dim=8, hidden_dim=16, batch_size=32, target_every=20)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def build(
    mode: str,
    device: str,
    dtype: torch.dtype = torch.float64,
    members: int = 3,
    *,
    config: TD7Config = SMALL,
    rows_on_host: bool = False,
    warn: Callable[[str], None] = pytest.fail,
    say: Callable[[str], None] = lambda _: None,
) -> Engine:
    where = torch.device(device)
    learner = TD7(config, TASK, range(members), where, dtype)
    replay = Replay(LAYOUT, 300, members, where, dtype, rows_on_host=rows_on_host)
    for m in range(members):
        rows = np.random.default_rng(m).standard_normal((200, LAYOUT.width)).astype(np.float32)
        rows[:, -1] = rows[:, -1] > -1
        replay.append(m, rows)
    # Where compiling fails, updates go on without: these tests must not.
    return Engine(learner, replay, config.batch_size, range(members), mode, warn, say)


@pytest.fixture(
    params=[
        "traced",
        pytest.param("generated", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ]
)
def compiler(request: pytest.FixtureRequest) -> None:
    """PyTorch's: all of it, or up to the graph, since generating code takes minutes."""
    torch.compiler.reset()
    if request.param == "traced":
        request.getfixturevalue("traced")


def run(engine: Engine, wanted: Sequence[int]) -> None:
    left = list(wanted)
    while any(left):
        before = list(engine.updates)
        engine.advance(left)
        done = zip(left, engine.updates, before, strict=True)
        left = [n - (now - then) for n, now, then in done]


def tensors(engine: Engine) -> dict[str, Tensor]:
    state = {**engine.learner.state(), **engine.state()}
    state |= {"leaves": engine.replay.leaves, "max": engine.replay.max_priority}
    return {name: tensor.cpu().clone() for name, tensor in state.items()}


def check_close(a: Engine, b: Engine, tolerance: float) -> None:
    assert a.updates == b.updates
    expected = tensors(b)
    for name, tensor in tensors(a).items():
        scale = expected[name].abs().max().clamp(min=1e-30)
        assert float((tensor - expected[name]).abs().max() / scale) < tolerance, name


def step_through(engine: Engine) -> list[NDArray[np.floating[Any]]]:
    """Time steps in which nobody, some and all members learn, at other phases."""
    random = np.random.default_rng(0)
    schedule = [[], [1], [1], [0, 1], [0, 1, 2], [1, 2], *[[0, 1, 2]] * 22]
    actions = []
    for members in schedule:
        sizes = (LAYOUT.width, LAYOUT.state_dim, LAYOUT.action_dim)
        rows, states, noise = (random.standard_normal((3, n)).astype(np.float32) for n in sizes)
        actions.append(engine.step(rows, states, noise, members))
    return actions


@pytest.mark.usefixtures("compiler")
def test_compiled_is_eager() -> None:
    """All members at once, then members with other counts and phases, then time steps of them.

    Compiling is most of this test: hence one engine does all.
    """
    compiled, eager = build("compiled", "cpu"), build("eager", "cpu")
    for wanted in ((22, 22, 22), (3, 0, 5), (4, 9, 1)):
        run(compiled, wanted)
        run(eager, wanted)
    check_close(compiled, eager, 1e-10)
    check_time_steps(compiled, eager)


@pytest.mark.gpu
@needs_gpu
def test_a_captured_time_step_is_the_eager_one() -> None:
    check_time_steps(build("graph", "cuda"), build("eager", "cuda"))


def check_time_steps(fast: Engine, eager: Engine) -> None:
    """Rows are stored, members updated, actions given: past target copies."""
    before = list(fast.updates)
    found, expected = step_through(fast), step_through(eager)
    done = [now - then for now, then in zip(fast.updates, before, strict=True)]
    assert done == [24, 27, 24]
    check_close(fast, eager, 1e-9)
    assert np.allclose(found, expected, atol=1e-6)
    assert torch.equal(fast.replay.rows.cpu(), eager.replay.rows.cpu())
    assert fast.replay.added == eager.replay.added == [228] * 3


def test_a_time_step_is_storing_updating_acting() -> None:
    """`step` beside its parts, one after the other."""
    together, apart = build("eager", "cpu"), build("eager", "cpu")
    random = np.random.default_rng(0)
    for update in range(22):
        sizes = (LAYOUT.width, LAYOUT.state_dim, LAYOUT.action_dim)
        rows, states, noise = (random.standard_normal((3, n)).astype(np.float32) for n in sizes)
        members = [0, 1, 2] if update < 3 else [0, 2]
        actions = together.step(rows, states, noise, members)
        for m in range(3):
            apart.replay.append(m, rows[m : m + 1])
        run(apart, [1, int(update < 3), 1])
        assert np.array_equal(actions, apart.act(states, noise)), update
    check_close(together, apart, 1e-15)
    for a, b in zip(together.replay._levels, apart.replay._levels, strict=True):
        assert torch.allclose(a, b, rtol=1e-14)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_compiling_is_announced_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stages, "compile", lambda *_: None)  # not what takes long
    said: list[str] = []
    engine = build(mode, "cpu", say=said.append)
    rows, states, noise = (np.zeros((3, n), np.float32) for n in (LAYOUT.width, 5, 2))
    engine.step(rows, states, noise, [])
    assert said == []  # not before the first update
    run(engine, [3, 3, 3])
    assert len(said) == (mode == "compiled")


def test_without_a_compiler_updates_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no\ncompiler found")

    monkeypatch.setattr(torch, "compile", broken)
    said: list[str] = []
    learner = TD7(TD7Config(), TASK, [0], torch.device("cpu"), torch.float32)
    replay = Replay(LAYOUT, 10, 1, torch.device("cpu"), torch.float32)
    engine = Engine(learner, replay, 256, [0], "compiled", warn=said.append)
    replay.append(0, np.ones((5, LAYOUT.width), np.float32))
    engine.advance([1])
    assert said == ["updates run without compilation, which fails here: no compiler found"]


def compiler_that(does: Callable[..., Any]) -> Callable[..., Any]:
    """It compiles what is small, as the function that it is tried with, and else `does`."""

    def backend(graph: Any, inputs: Any) -> Any:
        return graph if len(graph.graph.nodes) < 10 else does(graph, inputs)

    return partial(torch.compile, fullgraph=True, dynamic=False, backend=backend)


def fails(*_: object) -> None:
    raise RuntimeError("too\nlong")


@pytest.mark.parametrize("staged", [False, True])
def test_what_does_not_compile_goes_on_without(
    monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    """From its very first update, bit for bit; in stages, as on a GPU, too. It is told once."""
    torch.compiler.reset()
    monkeypatch.setattr(compiling_module, "compile_whole", compiler_that(fails))
    said: list[str] = []
    compiled = build("eager" if staged else "compiled", "cpu", warn=said.append)
    if staged:
        compiled.learner.wrap_stages(compiling_module.Compiler(said.append))
    eager = build("eager", "cpu")
    for engine in (compiled, eager):
        run(engine, (23, 7, 2))
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(compiled).items())
    (line,) = said
    assert line.startswith("updates run without compilation, which fails here: ")
    assert "RuntimeError: too long" in line


def test_a_backward_pass_that_does_not_compile_goes_on_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In stages it is compiled after half of an update: hence an update of nobody before all."""
    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=fails)
    trace = partial(torch.compile, fullgraph=True, dynamic=False, backend=backend)
    monkeypatch.setattr(compiling_module, "compile_whole", trace)
    said: list[str] = []
    staged, eager = build("eager", "cpu"), build("eager", "cpu")
    compiler = compiling_module.Compiler(said.append)
    staged.learner.wrap_stages(compiler)
    assert isinstance(staged._runner, HostRunner)
    staged._runner._rehearses_with = compiler
    for engine in (staged, eager):
        run(engine, (23, 7, 2))
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(staged).items())
    assert said == ["updates run without compilation, which fails here: too long"]


def test_without_graphs_updates_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where capturing fails, which changes nothing; it is told once."""
    for name in ("current_stream", "set_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(GraphRunner, "_capture", fails)
    said: list[str] = []
    graph, eager = build("eager", "cpu"), build("eager", "cpu")
    assert isinstance(graph._runner, HostRunner)
    graph._runner = GraphRunner(graph._runner, graph._stages, None, said.append)
    for engine in (graph, eager):
        run(engine, (23, 7, 2))
        step_through(engine)
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(graph).items())
    assert said == ["updates run without a CUDA graph, which fails here: too long"]


def test_what_fails_once_it_runs_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have done half of its work."""
    torch.compiler.reset()
    monkeypatch.setattr(compiling_module, "compile_whole", compiler_that(lambda *_: fails))
    with pytest.raises(RuntimeError, match=r"^too\nlong$"):
        run(build("compiled", "cpu"), (1, 1, 1))


@pytest.mark.usefixtures("traced")
def test_what_others_compile_is_as_it_was() -> None:
    """Limits, and what would have a compiled `backward` of somebody else's do nothing."""
    dynamo = torch._dynamo.config

    def settings() -> tuple[Any, ...]:
        limits = dynamo.recompile_limit, dynamo.accumulated_recompile_limit
        return (*limits, dynamo.trace_autograd_ops)

    before = settings()
    run(build("compiled", "cpu"), (1, 1, 1))
    assert settings() == before == (8, 256, False)


@pytest.mark.usefixtures("traced")
def test_a_process_may_compile_for_many_runs() -> None:
    class Adding:
        def __init__(self, number: int) -> None:
            self.number = number

        def add(self, x: Tensor) -> Tensor:
            return x + self.number

    compiler = compiling_module.Compiler(pytest.fail)
    added = [compiler(Adding(n).add)(torch.zeros(())) for n in range(20)]
    assert added == list(range(20))


def test_a_unit_ends_where_targets_or_noise_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots by hand: a unit of 10, targets every 20, noise blocks of 15."""
    monkeypatch.setattr(noise_module, "NOISE_BLOCK", 15)
    engine = build("eager", "cpu")
    steps = []
    for _ in range(4):
        engine.advance([100, 7, 0])
        steps.append(list(engine.updates))
    assert steps == [[10, 7, 0], [15, 14, 0], [20, 15, 0], [30, 20, 0]]


def test_a_resumed_step_acts_as_the_step_before_it_would_have() -> None:
    """To the last bit: `act` is what a run takes its next action by when it goes on."""
    torch.compiler.reset()
    config = replace(SMALL, hidden_dim=64, embedding_dim=64)
    engine = build("compiled", "cpu", torch.float32, config=config)
    random = np.random.default_rng(0)
    for _ in range(5):
        rows, states, noise = (
            random.standard_normal((3, n)).astype(np.float32) for n in (LAYOUT.width, 5, 2)
        )
        given = engine.step(rows, states, noise, []).copy()
        assert np.array_equal(engine.act(states, noise), given)


def test_a_unit_is_long_where_all_have_much_to_do() -> None:
    """As in a graph; slots by hand: 20 if nobody stops before, else 10."""
    engine = build("eager", "cpu", config=replace(SMALL, target_every=50))
    engine.units = [20, 10]
    steps = []
    for wanted in ([100, 30, 20], [80, 10, 80], [100, 100, 0], [100] * 3, [100] * 3):
        engine.advance(wanted)
        steps.append(list(engine.updates))
    assert steps == [[20, 20, 20], [30, 30, 30], [40, 40, 30], [50, 50, 40], [60, 60, 50]]


READS_THE_TRAINED_ENCODER = (
    replace(SMALL, fixed_embeddings=False),
    replace(SMALL, encoder_training="end_to_end"),
)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("config", [SMALL, READS_THE_TRAINED_ENCODER[1]])
def test_compiled_stage_by_stage_is_eager(config: TD7Config) -> None:
    """As on a GPU, where a critic step's two halves are compiled apart."""
    staged, eager = build("eager", "cpu", config=config), build("eager", "cpu", config=config)
    staged.learner.wrap_stages(compiling_module.Compiler(pytest.fail))
    for engine in (staged, eager):
        run(engine, (23, 7, 2))
    check_close(staged, eager, 1e-9)


@pytest.mark.usefixtures("traced")
def test_compiled_layers_are_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU with another kernel in its place: those that it suits, and nothing else changes."""
    seen: list[tuple[int, ...]] = []

    @torch.library.custom_op("td7_tests::linear", mutates_args=())
    def kernel(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
        seen.append(tuple(weight.shape))
        assert weight.stride()[1:] == (1, weight.shape[1])
        y = torch.bmm(x, weight) + bias.unsqueeze(1)
        return networks.ACTIVATIONS[activation](y) if activation != "none" else y

    @kernel.register_fake
    def _(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
        del bias, activation
        return x.new_empty(*x.shape[:2], weight.shape[2])

    wide = replace(SMALL, embedding_dim=64, hidden_dim=64, batch_size=64)
    compiled, eager = (
        build(mode, "cpu", torch.float32, config=wide) for mode in ("compiled", "eager")
    )
    monkeypatch.setattr(kernels, "DEVICES", ("cpu",))
    monkeypatch.setattr(kernels, "is_loaded", True)
    monkeypatch.setattr(kernels, "linear", kernel)
    for engine in (compiled, eager):
        run(engine, (5, 2, 1))
    assert {shape[1:] for shape in seen} == {(8, 64), (64, 64), (72, 64), (128, 64), (192, 64)}
    check_close(compiled, eager, 1e-3)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("config", [SMALL, *READS_THE_TRAINED_ENCODER])
def test_a_graph_is_eager_on_a_gpu(config: TD7Config) -> None:
    """Members with other counts and phases, over target copies; a race would show here."""
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 0.05)):
        graph, eager = (build(mode, "cuda", dtype, config=config) for mode in ("graph", "eager"))
        for wanted in ((37, 20, 0), (13, 30, 55), (21, 20, 15)):
            run(graph, wanted)
            run(eager, wanted)
        check_close(graph, eager, tolerance)


@needs_gpu
@pytest.mark.gpu
def test_a_graph_with_the_kernel_is_eager_on_a_gpu() -> None:
    """Few updates: the kernel cuts factors off where libraries round them, and updates amplify."""
    wide = replace(SMALL, embedding_dim=64, hidden_dim=64, batch_size=64)
    graph, eager = (build(mode, "cuda", torch.float32, config=wide) for mode in ("graph", "eager"))
    for engine in (graph, eager):
        run(engine, (5, 2, 0))
        run(engine, (1, 3, 6))
    check_close(graph, eager, 0.02)


@needs_gpu
@pytest.mark.gpu
def test_what_cannot_be_captured_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """In units and time steps; a host that waits for the device cannot be captured."""

    def waits(learner: TD7, batch: Any, noise: Any, turn: Any) -> Tensor | None:
        found = update(learner, batch, noise, turn)
        torch.cuda.synchronize()
        return found

    update = TD7.update
    monkeypatch.setattr(TD7, "update", waits)
    said: list[str] = []
    graph, eager = build("graph", "cuda", warn=said.append), build("eager", "cuda")
    for engine in (graph, eager):
        run(engine, (23, 7, 2))
        step_through(engine)
    check_close(graph, eager, 1e-9)
    assert len(said) == 1
    assert said[0].startswith("updates run without a CUDA graph, which fails here: ")
    assert isinstance(graph._runner, GraphRunner)
    assert not graph._runner._works


@pytest.mark.parametrize(
    ("mode", "device"),
    [
        ("eager", "cpu"),
        pytest.param("graph", "cuda", marks=[pytest.mark.gpu, needs_gpu]),
    ],
)
def test_every_update_draws_fresh_numbers(
    mode: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three units of ten. Priorities stay equal, so that nothing else moves what is drawn."""
    update, unit = TD7.update, 10
    seen = torch.zeros(unit, 2, 3, SMALL.batch_size, device=device, dtype=torch.float64)
    slots = itertools.cycle(range(unit))

    def tells(learner: TD7, batch: Any, noise: Any, turn: Any) -> Tensor | None:
        drawn = torch.stack([batch.state[..., 0], noise["target_policy"][..., 0]])
        seen[next(slots)].copy_(drawn)
        return update(learner, batch, noise, turn)

    monkeypatch.setattr(TD7, "update", tells)
    engine = build(mode, device, config=replace(SMALL, priority_exponent=0.0, target_every=60))
    found = []
    for _ in range(3):
        engine.advance([unit] * 3)
        found.append(seen.cpu().clone())
    assert engine.updates == [30] * 3
    drawn = torch.stack(found).flatten(0, 1)  # [30, rows and noise, members, batch]
    for kind in (0, 1):
        of_members = drawn[:, kind].flatten(0, 1).tolist()
        assert len(set(map(tuple, of_members))) == 30 * 3


@contextmanager
def no_waiting() -> Iterator[None]:
    """PyTorch raises in here where the host would wait for the GPU; it warns that this is new."""
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
    """Nor for what surrounds them: rows, masks, noise, copies of targets, policies, metrics."""
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
    """Ten members at the paper's sizes in float32, however their updates are divided."""
    config = TD7Config(target_every=60, fixed_embeddings=fixed_embeddings)
    once, again = (build("graph", "cuda", torch.float32, 10, config=config) for _ in range(2))
    counts = range(120, 150, 3)  # a long unit is among them
    run(once, counts)
    parts = [7] * 10, [0, 13] * 5
    for wanted in (*parts, [n - a - b for n, a, b in zip(counts, *parts, strict=True)]):
        run(again, wanted)
    found, expected = tensors(again), tensors(once)
    assert again.updates == once.updates
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@needs_gpu
@pytest.mark.gpu
def test_a_network_is_the_same_on_a_gpu() -> None:
    """Values and gradients of twin critics, which read what is given and what they made of it."""
    network = TD7(SMALL, TASK, range(2), torch.device("cpu"), torch.float64).critic_network
    layout = Layout.of(network)
    flat = torch.randn(2, layout.size, dtype=torch.float64)
    inputs = {n: torch.randn(2, 32, w, dtype=torch.float64) for n, w in network.inputs.items()}
    found = []
    for device in ("cpu", "cuda"):
        weights = flat.to(device).requires_grad_()
        here = {name: x.to(device) for name, x in inputs.items()}
        values = apply(network, unflatten(layout, weights), **here)
        (gradient,) = torch.autograd.grad(values.square().sum(), weights)
        found.append((values.detach().cpu(), gradient.cpu()))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.fixture
def tf32() -> Iterator[None]:
    """As engines have it on a GPU; without, PyTorch's compiler warns."""
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
    """Value and gradients, as in float64; weights have other numbers before and behind them.

    The numbers are eighths: products of them lose nothing in TF32, and no value is nearly 0.
    """
    members, rows, depth, columns = sizes
    torch.compiler.reset()  # every case compiles anew, and PyTorch counts
    kernels.load()

    def loss(x: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
        weight = flat[:, 64 : 64 + depth * columns].view(members, columns, depth).mT
        y = networks.linear(weight, flat[:, :columns], activation, x)
        return y, (y * torch.linspace(-1, 1, rows, device=y.device).unsqueeze(1)).sum()

    random = torch.Generator().manual_seed(0)
    given, weights = (
        torch.randint(-8, 9, (members, *size), generator=random) / 8
        for size in ((rows, depth), (128 + depth * columns,))
    )
    found = []
    for device, dtype, run_it in (
        ("cpu", torch.float64, loss),
        ("cuda", torch.float32, compiling_module.compile_whole(loss)),
    ):
        x, flat = (z.to(device, dtype).requires_grad_() for z in (given, weights))
        with torch.profiler.profile(acc_events=True) as profile:
            y, total = run_it(x, flat)
        names = [event.key for event in profile.key_averages()]
        assert ("_linear" in names) == (device == "cuda"), names
        found.append((y, *torch.autograd.grad(total, (x, flat))))
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs.cpu()).norm() < 1e-3 * ours.norm()
    assert torch.allclose(found[0][0], found[1][0].cpu().double(), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        x[0, 0, 0] = torch.nan
        assert run_it(x, flat)[0][0, 0].isnan().all()


@needs_gpu
@pytest.mark.gpu
def test_which_kernels_are_fastest_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch times kernels and takes the fastest: another day, or another GPU, another one.

    Sums as an update makes them; here one kernel after the other seems to be the fastest.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.utils import fresh_cache

    def sums(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.nn.functional.elu(x)
        return y.sum(dim=1), y.abs().mean(dim=2), y.square().flatten(1).mean(dim=1)

    # With these sizes, on an H200, PyTorch's choice changes what comes out if it is let.
    random = torch.Generator("cuda").manual_seed(0)
    given = [
        torch.randn(size, device="cuda", generator=random)
        for size in ((20, 256, 256), (10, 256, 24))
    ]
    found = []
    for place in range(4):

        def bench(kernel: Any, launcher: Any, *_: Any, place: int = place, **__: Any) -> float:
            return float(launcher is not kernel.launchers[place % len(kernel.launchers)])

        monkeypatch.setattr(CachingAutotuner, "bench", bench)
        torch.compiler.reset()
        with fresh_cache():
            found.append([each for x in given for each in compiling_module.compile_whole(sums)(x)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@needs_gpu
@pytest.mark.gpu
def test_rows_on_the_host_change_nothing() -> None:
    """Eager and captured, in units and a time step at a time: bit for bit."""
    for mode in ("eager", "graph"):
        here, there = (build(mode, "cuda", rows_on_host=on_host) for on_host in (False, True))
        for engine in (here, there):
            run(engine, (12, 5, 7))
            step_through(engine)
        found, expected = tensors(there), tensors(here)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        assert torch.equal(here.replay.rows.cpu(), there.replay.rows.cpu())

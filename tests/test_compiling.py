"""Compiled updates are the eager ones, to rounding; where compiling fails, updates are eager."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException

import folders
import td7
import toys
from engines import (
    LAYOUT,
    READS_THE_TRAINED_ENCODER,
    SMALL,
    TASK,
    build,
    check_close,
    check_time_steps,
    fails,
    run,
    tensors,
)
from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.compiling import RECOMPILES, Compiler
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.engine.runner import HostRunner
from td7.engine.stages import Stages
from td7.errors import RunError
from td7.networks import kernels
from td7.networks import stacked as networks
from td7.processes import STOP_SIGNALS
from td7.runs.snapshots import has_snapshot

assert toys  # registers the tasks


@pytest.fixture(
    params=[
        "traced",
        pytest.param("generated", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ]
)
def compiler(request: pytest.FixtureRequest) -> None:
    """PyTorch's compiler: all of it, or up to the graph, since generating code takes minutes."""
    torch.compiler.reset()
    if request.param == "traced":
        request.getfixturevalue("traced")


@pytest.mark.usefixtures("compiler")
def test_compiled_is_eager() -> None:
    """All members at once, then members with different counts and phases, then time steps.

    Most of this test is compiling: hence one engine does everything.
    """
    compiled, eager = build("compiled", "cpu"), build("eager", "cpu")
    for wanted in ((22, 22, 22), (3, 0, 5), (4, 9, 1)):
        run(compiled, wanted)
        run(eager, wanted)
    check_close(compiled, eager, 1e-10)
    check_time_steps(compiled, eager)


def watch_to(contexts: list[str]) -> Callable[[], AbstractContextManager[None]]:
    """What makes contexts that append their beginnings and ends."""

    @contextmanager
    def watch() -> Iterator[None]:
        contexts.append("begin")
        yield
        contexts.append("end")

    return watch


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_compiling_is_announced_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first update is one compilation, although it compiles several functions."""
    monkeypatch.setattr(Stages, "compile", lambda *_: None)  # which takes long
    messages: list[str] = []
    contexts: list[str] = []
    engine = build(mode, "cpu", say=messages.append)
    engine.watch_compiler(watch_to(contexts))
    rows, states, noise = (np.zeros((3, n), np.float32) for n in (LAYOUT.width, 5, 2))
    engine.step(rows, states, noise, [])
    assert messages == []  # none before the first update
    run(engine, [3, 3, 3])
    assert len(messages) == (mode == "compiled")
    assert contexts == (["begin", "end"] if mode == "compiled" else [])
    assert engine.compiling_since is None
    assert (engine.compiled_seconds > 0) == (mode == "compiled")


@pytest.mark.usefixtures("traced")
def test_a_compiler_is_watched_whenever_it_compiles() -> None:
    contexts: list[str] = []
    compiler = Compiler(pytest.fail)
    compiler.watch = watch_to(contexts)
    compiled = compiler(lambda x: x + 1)
    for size in (2, 2, 3, 2):  # each size is compiled once
        compiled(torch.zeros(size))
    assert contexts == ["begin", "end"] * 2
    assert compiler.since is None
    assert compiler.seconds > 0
    torch.compile(lambda x: x - 1, backend="eager")(torch.zeros(2))  # another program's
    assert len(contexts) == 4


def test_without_a_compiler_updates_are_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no\ncompiler found")

    monkeypatch.setattr(torch, "compile", broken)
    messages: list[str] = []
    learner = TD7(TD7Config(), TASK, [0], torch.device("cpu"), torch.float32)
    replay = Replay(LAYOUT, 10, 1, torch.device("cpu"), torch.float32)
    engine = Engine(learner, replay, 256, [0], "compiled", warn=messages.append)
    replay.append(0, np.ones((5, LAYOUT.width), np.float32))
    engine.advance([1])
    assert messages == ["updates run without compilation, which fails here: no compiler found"]


def compiler_that(does: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler that compiles small functions, as the one that it is tried with; else `does`."""

    def backend(graph: Any, inputs: Any) -> Any:
        return graph if len(graph.graph.nodes) < 10 else does(graph, inputs)

    return partial(torch.compile, fullgraph=True, dynamic=False, backend=backend)


@pytest.mark.parametrize("staged", [False, True])
def test_updates_that_do_not_compile_are_eager(
    monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    """From the very first update, bit for bit, also in stages as on a GPU; it warns once."""
    torch.compiler.reset()
    monkeypatch.setattr("td7.engine.compiling.compile_whole", compiler_that(fails))
    messages: list[str] = []
    compiled = build("eager" if staged else "compiled", "cpu", warn=messages.append)
    if staged:
        compiled.learner.wrap_stages(Compiler(messages.append))
    eager = build("eager", "cpu")
    for engine in (compiled, eager):
        run(engine, (23, 7, 2))
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(compiled).items())
    (line,) = messages
    assert line.startswith("updates run without compilation, which fails here: ")
    assert "RuntimeError: too long" in line


def test_updates_whose_backward_pass_does_not_compile_are_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In stages it is compiled after half of an update: hence a first update of no member."""
    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=fails)
    trace = partial(torch.compile, fullgraph=True, dynamic=False, backend=backend)
    monkeypatch.setattr("td7.engine.compiling.compile_whole", trace)
    messages: list[str] = []
    staged, eager = build("eager", "cpu"), build("eager", "cpu")
    compiler = Compiler(messages.append)
    staged.learner.wrap_stages(compiler)
    assert isinstance(staged._runner, HostRunner)
    staged._runner._rehearses_with = compiler
    for engine in (staged, eager):
        run(engine, (23, 7, 2))
    expected = tensors(eager)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors(staged).items())
    assert messages == ["updates run without compilation, which fails here: too long"]


def test_a_function_that_fails_when_it_runs_does_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have done half of its work."""
    torch.compiler.reset()
    monkeypatch.setattr("td7.engine.compiling.compile_whole", compiler_that(lambda *_: fails))
    with pytest.raises(RuntimeError, match=r"^too\nlong$"):
        run(build("compiled", "cpu"), (1, 1, 1))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("compiles", [True, False])
def test_settings_of_other_compiled_programs_stay(
    compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits, and `trace_autograd_ops`, which disables a compiled `backward` of other code."""

    def settings() -> tuple[int, int, bool]:
        config = torch._dynamo.config
        limits = config.recompile_limit, config.accumulated_recompile_limit
        return (*limits, config.trace_autograd_ops)

    during = []

    def backend(graph: Any, inputs: Any) -> Any:
        del inputs
        during.append(settings())
        return graph if compiles else fails()

    trace = partial(torch.compile, fullgraph=True, backend=backend)
    monkeypatch.setattr("td7.engine.compiling.compile_whole", trace)
    torch.compiler.reset()
    before = settings()
    messages: list[str] = []
    assert Compiler(messages.append)(lambda x: x + 1)(torch.zeros(())) == 1
    assert during == [(RECOMPILES, RECOMPILES, True)]
    assert settings() == before == (8, 256, False)
    assert len(messages) == (not compiles)


@pytest.mark.usefixtures("traced")
def test_a_process_may_compile_for_many_runs() -> None:
    class Adding:
        def __init__(self, number: int) -> None:
            self.number = number

        def add(self, x: Tensor) -> Tensor:
            return x + self.number

    compiler = Compiler(pytest.fail)
    sums = [compiler(Adding(n).add)(torch.zeros(())) for n in range(20)]
    assert sums == list(range(20))


def test_a_resumed_step_acts_as_the_step_before_it_would_have() -> None:
    """To the last bit: a resumed run takes its first actions from `act`."""
    torch.compiler.reset()
    config = replace(SMALL, hidden_dim=64, embedding_dim=64)
    engine = build("compiled", "cpu", torch.float32, config=config)
    random = np.random.default_rng(0)
    for _ in range(5):
        rows, states, noise = (
            random.standard_normal((3, n)).astype(np.float32) for n in (LAYOUT.width, 5, 2)
        )
        actions = engine.step(rows, states, noise, []).copy()
        assert np.array_equal(engine.act(states, noise), actions)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("config", [SMALL, READS_THE_TRAINED_ENCODER[1]])
def test_compiled_stage_by_stage_is_eager(config: TD7Config) -> None:
    """As on a GPU, where the two halves of a critic step are compiled separately."""
    staged, eager = build("eager", "cpu", config=config), build("eager", "cpu", config=config)
    staged.learner.wrap_stages(Compiler(pytest.fail))
    for engine in (staged, eager):
        run(engine, (23, 7, 2))
    check_close(staged, eager, 1e-9)


@pytest.mark.usefixtures("traced")
def test_compiled_layers_use_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with another kernel in its place: the suitable layers do, and results stay."""
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

    wide = replace(SMALL, embedding_dim=64, hidden_dim=64, batch_size=64, actor_every=1)
    compiled, eager = (
        build(mode, "cpu", torch.float32, config=wide) for mode in ("compiled", "eager")
    )
    monkeypatch.setattr(kernels, "DEVICES", ("cpu",))
    monkeypatch.setattr(kernels, "linear", kernel)
    for engine in (compiled, eager):
        run(engine, (4, 4, 4))
    assert {shape[1:] for shape in seen} == {(8, 64), (64, 64), (72, 64), (128, 64), (192, 64)}
    check_close(compiled, eager, 1e-3)


def test_private_names_of_pytorch_stay_in_one_module() -> None:
    """They change without notice; `td7.engine.compiling` gives the reason for each."""
    source = Path(td7.__file__).parent
    users = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"\btorch\._|\b_(dynamo|inductor|functorch)\b", path.read_text())
    }
    assert users == {"engine/compiling.py"}


# -- stopped while compiling ---------------------------------------------------------------------


@pytest.fixture
def compiled_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """A function that replaces the compiler by one that calls another function, and no more."""

    def replace_by(compile_now: Callable[[], None]) -> None:
        def compile_whole(function: Callable[..., Any]) -> Callable[..., Any]:
            def compiled(*arguments: Any) -> Any:
                compile_now()
                return function(*arguments)

            return compiled

        monkeypatch.setattr("td7.engine.compiling.compile_whole", compile_whole)

    monkeypatch.setattr("td7.engine.engine.can_compile", lambda *_: True)
    return replace_by


def train_compiled(path: Path) -> td7.Run:
    settings = dict(folders.SMALL)
    options: dict[str, Any] = {"env": "toys:Point-v0", "steps": 60, "set": settings, "quiet": True}
    return td7.train(**options, engine="compiled", out=str(path))


def test_a_stop_while_compiling_never_ends_in_fall_back(
    tmp_path: Path,
    compiled_by: Callable[[Callable[[], None]], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Updates of functions as they are would differ in the last bits."""

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise TorchDynamoException("the C++ compiler was killed")

    path = tmp_path / "run"
    compiled_by(interrupt)
    with pytest.raises(RunError, match=r"failed while the run was stopping \(the C.* starts anew"):
        train_compiled(path)
    assert "without compilation" not in capfd.readouterr().err
    compiled_by(lambda: None)
    expected = train_compiled(tmp_path / "expected")
    assert folders.results(td7.resume(path, quiet=True).path) == folders.results(expected.path)


def test_programs_that_compile_receive_no_signals(
    tmp_path: Path, compiled_by: Callable[[Callable[[], None]], None]
) -> None:
    """The terminal and `timeout` signal them as well; this process stops when it has compiled."""
    blocked: list[str] = []
    program = "import signal; print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))"

    def compile_slowly() -> None:
        if not blocked:
            output = subprocess.check_output([sys.executable, "-c", program], text=True)
            blocked.extend(output.split())
            os.kill(os.getpid(), signal.SIGTERM)

    compiled_by(compile_slowly)
    with pytest.raises(td7.Stopped):
        train_compiled(tmp_path / "run")
    assert {int(number) for number in blocked} == set(STOP_SIGNALS)
    assert has_snapshot(tmp_path / "run")

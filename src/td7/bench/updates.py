"""`td7 bench`: updates a second, beside another program of the same algorithm in the same run.

TD7's is a plain program of the same equations; TD3's, SAC's and TQC's are Stable-Baselines3's and
sb3-contrib's, TD3+BC's, IQL's and CQL's are d3rlpy's, where they are installed.

And steps a second of real training runs, with everything in them.
"""

import os
import platform
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from td7.algorithms import algorithm
from td7.algorithms.td7 import TD7Config
from td7.bench import peers
from td7.bench.plain_td7 import PlainTD7
from td7.engine.engine import Engine
from td7.engine.noise import NOISE_BLOCK
from td7.engine.replay import Replay
from td7.processes import Worker, end_workers, start_workers, worker_death
from td7.runs.record import versions
from td7.training.hardware import fast_processes
from td7.types import Float32, RowLayout, TaskSpec

SAMPLING = "sampling"  # among engines: no update, but what prioritised replay takes of one
PROCESSES = "processes"  # compiled, on a CPU: seeds divided among processes of one thread
ROUND = 10  # updates timed at once; rounds of all candidates take turns
# Draws timed at once, each of other rows. They are short, and the first call after other work takes
# ten times as long, as the interpreter comes back into the caches: an update's share, not theirs.
DRAWS = NOISE_BLOCK


@dataclass(frozen=True)
class Result:
    """One candidate's measured speed."""

    algorithm: str
    device: str
    engine: str  # or the program that it is measured beside
    seeds: int
    rows: int
    first_seconds: float  # until the first updates were done: compiling, capturing
    milliseconds: float  # an update of all seeds, the best round
    median_milliseconds: float
    kernels: float | None  # an update, on CUDA
    floor_milliseconds: float | None  # the update's matrix products alone, on a CPU
    is_reference: bool  # another program, whose speed the others are compared with

    @property
    def seed_updates_per_second(self) -> float:
        return 1e3 * self.seeds / self.milliseconds


def measure(
    name: str,
    spec: TaskSpec,
    *,
    seeds: Sequence[int],
    engines: Sequence[str],
    rows: Sequence[int],
    device: str,
    seconds: float,
    say: Callable[[str], None],
) -> list[Result]:
    """Best and median of many interleaved rounds, on made-up transitions of a task's sizes."""
    results = []
    for capacity in rows:
        data = made_up(spec, capacity)
        makers: dict[tuple[str, int], Callable[[], Callable[[], None]]] = {}
        reference = "plain" if name == "td7" else peers.peer(name)
        if reference == "plain":
            makers[reference, 1] = partial(_plain, spec, data, device)
        elif reference:
            makers[reference, 1] = partial(peers.updates, name, spec, data, device, ROUND)
        for count in seeds:
            for mode in engines:
                own = {
                    SAMPLING: partial(_sampling, name, spec, count, data, device),
                    PROCESSES: partial(_processes, name, "compiled", spec, count, capacity),
                }
                updates = partial(_engine, name, mode, spec, count, data, device, say, ROUND)
                makers[mode, count] = own.get(mode, updates)
        candidates: dict[tuple[str, int], tuple[Callable[[], None], float]] = {}
        for (mode, count), make in makers.items():
            begin = time.perf_counter()
            run = make()
            run()
            _wait(device)
            candidates[mode, count] = (run, time.perf_counter() - begin)
            say(f"{name}, {mode}, {count} seed(s), {capacity:,} rows: ready")
        floor = ProductFloor(name, spec, data) if device == "cpu" else None
        times: dict[tuple[str, int], list[float]] = {key: [] for key in candidates}
        finish = time.perf_counter() + seconds * len(candidates)
        while time.perf_counter() < finish:
            if floor is not None:
                floor.run()
            for key, (run, _) in candidates.items():
                begin = time.perf_counter()
                run()
                _wait(device)
                times[key].append(1e3 * (time.perf_counter() - begin))
        for (mode, count), (run, first) in candidates.items():
            at_once = DRAWS if mode == SAMPLING else ROUND
            taken = np.array(times[mode, count]) / at_once
            results.append(
                Result(
                    name,
                    device,
                    mode,
                    count,
                    capacity,
                    first,
                    float(taken.min()),
                    float(np.median(taken)),
                    _kernels(run) / at_once if device == "cuda" else None,
                    None if floor is None or mode == SAMPLING else count * floor.milliseconds,
                    mode == reference,
                )
            )
    return results


def made_up(spec: TaskSpec, rows: int) -> Float32:
    """Transitions of the task's sizes: speed does not depend on what they say."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    random = np.random.default_rng(0)
    data = random.standard_normal((rows, layout.width), dtype=np.float32)
    parts = layout.split(data)
    parts.action[:] = random.uniform(-1, 1, parts.action.shape)
    parts.not_terminated[:] = 1.0
    return data


def _plain(spec: TaskSpec, data: Float32, device: str) -> Callable[[], None]:
    plain = PlainTD7(
        TD7Config(), RowLayout(spec.state_dim, spec.action_dim), data, torch.device(device)
    )

    def run() -> None:
        for _ in range(ROUND):
            plain.update()

    return run


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's
    """Notes the matrix products that are made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's
        self.sizes: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.aten.bmm.default:
            a, b = args
            self.sizes[tuple(a.shape[1:]), tuple(b.shape[1:])] += len(a)
        return func(*args, **(kwargs or {}))


class ProductFloor:
    """The matrix products of one update, each alone and at its best: no program can be faster.

    They are those of two updates of one seed, of which one trains the actor, if not both do.
    """

    def __init__(self, name: str, spec: TaskSpec, data: Float32) -> None:
        run = _engine(name, "eager", spec, 1, data[:1000], "cpu", lambda _: None, 2)
        with _Products() as products:
            run()
        self._factors = [
            (n, torch.randn(a), torch.randn(b)) for (a, b), n in products.sizes.items()
        ]
        self._best = [float("inf")] * len(self._factors)

    def run(self) -> None:
        """Every product a few times more, so that its factors are in the cache."""
        for i, (_, a, b) in enumerate(self._factors):
            for _ in range(4):
                begin = time.perf_counter()
                torch.mm(a, b)
                self._best[i] = min(self._best[i], time.perf_counter() - begin)

    @property
    def milliseconds(self) -> float:
        pairs = zip(self._factors, self._best, strict=True)
        return float(1e3 * sum(n * best for (n, _, _), best in pairs) / 2)


def _engine(
    name: str,
    mode: str,
    spec: TaskSpec,
    count: int,
    data: Float32,
    device: str,
    say: Callable[[str], None],
    updates: int,
) -> Callable[[], None]:
    chosen, where = algorithm(name), torch.device(device)
    config = chosen.config().for_task(spec.task)
    members = range(count)
    learner = chosen.learner(config, spec, members, where, torch.float32)
    layout = RowLayout(spec.state_dim, spec.action_dim)
    replay = Replay(layout, len(data), count, where, torch.float32)
    for m in members:
        replay.append(m, data)
    engine = Engine(learner, replay, config.batch_size, members, mode, warn=say)

    def run() -> None:
        goal = engine.updates[0] + updates
        while engine.updates[0] < goal:
            engine.advance([goal - engine.updates[0]] * count)

    return run


def _sampling(
    name: str, spec: TaskSpec, count: int, data: Float32, device: str
) -> Callable[[], None]:
    """What LAP takes of an update: rows chosen by priority, and priorities written back.

    Not the rows themselves, which any replay gathers. And a call of what was compiled, which
    within a compiled update it does not take.
    """
    where = torch.device(device)
    layout = RowLayout(spec.state_dim, spec.action_dim)
    replay = Replay(layout, len(data), count, where, torch.float32)
    for m in range(count):
        replay.append(m, data)
    shape = (DRAWS, count, algorithm(name).config().batch_size)
    uniforms = torch.rand(shape, device=where, dtype=torch.float64)
    priorities = 1 + torch.rand(shape, device=where)

    @torch.compile(fullgraph=True, dynamic=False)
    def draw_and_write(u: Tensor, new: Tensor) -> Tensor:
        indices = replay.sample(u)
        replay.set_priorities(indices, new, None)
        return indices

    def run() -> None:
        for u, new in zip(uniforms, priorities, strict=True):
            draw_and_write(u, new)

    return run


def _processes(name: str, mode: str, spec: TaskSpec, count: int, rows: int) -> Callable[[], None]:
    """As many as `td7 train` would have, each with its share of the seeds."""
    processes = fast_processes(count)
    shares = {i: len(range(i, count, processes)) for i in range(processes)}
    given = {f"td7-bench-{i}": (name, mode, spec, share, rows) for i, share in shares.items()}
    workers = start_workers(_update_when_asked, given)

    def run(among: Sequence[Worker] = workers) -> None:
        for worker in among:
            worker.connection.send(None)
        for worker in among:
            try:
                worker.connection.recv()
            except EOFError:
                raise worker_death(worker, "making updates") from None

    weakref.finalize(run, end_workers, workers)
    run(workers[:1])  # what it compiles, the others find compiled
    return run


def _update_when_asked(
    connection: Connection, name: str, mode: str, spec: TaskSpec, count: int, rows: int
) -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # each has but a core
    torch.set_num_threads(1)
    run = _engine(name, mode, spec, count, made_up(spec, rows), "cpu", lambda _: None, ROUND)
    with suppress(EOFError):  # whoever asks is gone
        while True:
            connection.recv()
            run()
            connection.send(None)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _kernels(run: Callable[[], None]) -> float:
    from torch.profiler import ProfilerActivity, profile

    # Without `acc_events` PyTorch warns that only the last cycle's are told; there is one.
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run()
        torch.cuda.synchronize()
    return float(sum(e.count for e in profiler.key_averages()))


def table(results: Sequence[Result], title: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for column in (
        "algorithm",
        "device",
        "replay rows",
        "engine",
        "seeds",
        "ms/update",
        "median",
        "seed-updates/s",
        "×",
        "kernels",
        "floor",
        "ready in s",
    ):
        left = column in ("algorithm", "device", "engine")
        shown.add_column(column, justify="left" if left else "right")
    references = {(r.algorithm, r.device, r.rows): r for r in results if r.is_reference}
    for r in results:
        reference = references.get((r.algorithm, r.device, r.rows))
        shown.add_row(
            r.algorithm,
            r.device,
            f"{r.rows:,}",
            r.engine,
            str(r.seeds),
            f"{r.milliseconds:.2f}",
            f"{r.median_milliseconds:.2f}",
            f"{r.seed_updates_per_second:,.0f}",
            "–"
            if reference is None
            else f"{r.seed_updates_per_second / reference.seed_updates_per_second:.2f}",
            "–" if r.kernels is None else f"{r.kernels:.0f}",
            "–" if r.floor_milliseconds is None else f"{r.floor_milliseconds / r.milliseconds:.0%}",
            f"{r.first_seconds:.1f}",
        )
    shown.caption = (
        "×: beside the first program on the device; floor: the share of matrix products alone"
    )
    return shown


def machine(devices: Sequence[str]) -> dict[str, Any]:
    """What the figures were made on."""
    found = {
        "versions": versions(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": ",".join(devices),
    }
    if "cuda" in devices:
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


Say = Callable[[str], None]

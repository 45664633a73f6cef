"""`td7 bench`: updates per second, next to another program of the same algorithm in the same run.

TD7 is compared with a plain program of the same equations, TD3, SAC and TQC with Stable-Baselines3
and sb3-contrib, TD3+BC, IQL and CQL with d3rlpy, where those are installed.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from td7.algorithms import algorithm
from td7.algorithms.td7 import TD7Config
from td7.bench import peers
from td7.bench.plain_td7 import PlainTD7
from td7.bench.processes import updates_in_processes
from td7.engine.engine import Engine
from td7.engine.noise import NOISE_BLOCK
from td7.engine.replay import Replay
from td7.types import Float32, RowLayout, TaskSpec

SAMPLING = "sampling"  # listed among the engines: no update, only what prioritised replay costs
PROCESSES = "processes"  # compiled, on a CPU: seeds divided among processes of one thread each
ROUND = 10  # updates that are timed together; rounds of all candidates take turns
# Draws that are timed together, each of other rows. Draws are short, and the first call after other
# work takes ten times as long, because the interpreter has left the caches; that cost belongs to a
# whole update.
DRAWS = NOISE_BLOCK
PLAIN = "plain"

Work = Callable[[], None]
Say = Callable[[str], None]
Key = tuple[str, int]  # engine or program, number of seeds


@dataclass(frozen=True)
class Result:
    """The measured speed of one candidate."""

    algorithm: str
    device: str
    engine: str  # or the program it is compared with
    seeds: int
    rows: int
    first_seconds: float  # until the first updates were done, compiling and capturing included
    milliseconds: float  # per update of all seeds, in the best round
    median_milliseconds: float
    kernels: float | None  # per update, on CUDA
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
    say: Say,
) -> list[Result]:
    """Best and median of many interleaved rounds, on random transitions of a task's sizes."""
    reference = PLAIN if name == "td7" else peers.peer(name)
    results = []
    for capacity in rows:
        data = random_rows(spec, capacity)
        makers = _references(name, reference, spec, data, device) | {
            (mode, count): _maker(name, mode, spec, count, data, device, say)
            for count in seeds
            for mode in engines
        }
        first_seconds = {}
        candidates = {}
        for (mode, count), make in makers.items():
            begin = time.perf_counter()
            candidates[mode, count] = work = make()
            work()
            _wait(device)
            first_seconds[mode, count] = time.perf_counter() - begin
            say(f"{name}, {mode}, {count} seed(s), {capacity:,} rows: ready")
        floor = ProductFloor(name, spec, data) if device == "cpu" else None
        times = _time_in_turns(candidates, floor, seconds * len(candidates), device)
        for (mode, count), work in candidates.items():
            per_round = DRAWS if mode == SAMPLING else ROUND
            milliseconds = np.array(times[mode, count]) / per_round
            has_floor = floor is not None and mode != SAMPLING
            results.append(
                Result(
                    name,
                    device,
                    mode,
                    count,
                    capacity,
                    first_seconds[mode, count],
                    float(milliseconds.min()),
                    float(np.median(milliseconds)),
                    _kernels(work) / per_round if device == "cuda" else None,
                    count * floor.milliseconds if floor is not None and has_floor else None,
                    mode == reference,
                )
            )
    return results


def _references(
    name: str, reference: str, spec: TaskSpec, data: Float32, device: str
) -> dict[Key, Callable[[], Work]]:
    """The other program, with one seed, if there is one for the algorithm."""
    if reference == PLAIN:
        return {(PLAIN, 1): partial(_plain_updates, spec, data, device)}
    if reference:
        return {(reference, 1): partial(peers.updates, name, spec, data, device, ROUND)}
    return {}


def _maker(
    name: str, mode: str, spec: TaskSpec, count: int, data: Float32, device: str, say: Say
) -> Callable[[], Work]:
    """A function that prepares one engine's updates."""
    if mode == SAMPLING:
        return partial(_sampling, name, spec, count, data, device)
    if mode == PROCESSES:
        updates = partial(_fresh_updates, name, "compiled", spec, len(data))
        return partial(updates_in_processes, updates, count)
    return partial(engine_updates, name, mode, spec, count, data, device, say, ROUND)


def _fresh_updates(name: str, mode: str, spec: TaskSpec, rows: int, count: int) -> Work:
    """The same updates in a process of their own, which makes its own transitions."""
    data = random_rows(spec, rows)
    return engine_updates(name, mode, spec, count, data, "cpu", lambda _: None, ROUND)


def _time_in_turns(
    candidates: Mapping[Key, Work], floor: "ProductFloor | None", seconds: float, device: str
) -> dict[Key, list[float]]:
    """Milliseconds of every round; the candidates take turns, so that noise hits them alike."""
    times: dict[Key, list[float]] = {key: [] for key in candidates}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if floor is not None:
            floor.run()
        for key, work in candidates.items():
            begin = time.perf_counter()
            work()
            _wait(device)
            times[key].append(1e3 * (time.perf_counter() - begin))
    return times


def random_rows(spec: TaskSpec, rows: int) -> Float32:
    """Transitions of the task's sizes; speed does not depend on their values."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    random = np.random.default_rng(0)
    data = random.standard_normal((rows, layout.width), dtype=np.float32)
    parts = layout.split(data)
    parts.action[:] = random.uniform(-1, 1, parts.action.shape)
    parts.not_terminated[:] = 1.0
    return data


def _plain_updates(spec: TaskSpec, data: Float32, device: str) -> Work:
    layout = RowLayout(spec.state_dim, spec.action_dim)
    plain = PlainTD7(TD7Config(), layout, data, torch.device(device))

    def run() -> None:
        for _ in range(ROUND):
            plain.update()

    return run


class ProductFloor:
    """The matrix products of one update, each alone and at its best: no program can be faster.

    They are counted in two updates of one seed, since an actor may be trained in every second one.
    """

    def __init__(self, name: str, spec: TaskSpec, data: Float32) -> None:
        run = engine_updates(name, "eager", spec, 1, data[:1000], "cpu", lambda _: None, 2)
        products: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()

        def count(a: Sequence[int], b: Sequence[int], *_: Any, **__: Any) -> int:
            products[tuple(a[1:]), tuple(b[1:])] += a[0]
            return 0

        with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.bmm: count}):
            run()
        self._factors = [(n, torch.randn(a), torch.randn(b)) for (a, b), n in products.items()]
        self._best = [float("inf")] * len(self._factors)

    def run(self) -> None:
        """Every product several times in a row, so that its factors are in the cache."""
        for i, (_, a, b) in enumerate(self._factors):
            for _ in range(4):
                begin = time.perf_counter()
                torch.mm(a, b)
                self._best[i] = min(self._best[i], time.perf_counter() - begin)

    @property
    def milliseconds(self) -> float:
        pairs = zip(self._factors, self._best, strict=True)
        return float(1e3 * sum(n * best for (n, _, _), best in pairs) / 2)


def engine_updates(
    name: str,
    mode: str,
    spec: TaskSpec,
    count: int,
    data: Float32,
    device: str,
    say: Say,
    updates: int,
) -> Work:
    """Work of `updates` updates of `count` seeds, which all learn from the same rows."""
    chosen, where = algorithm(name), torch.device(device)
    config = chosen.config().for_task(spec.task)
    members = range(count)
    learner = chosen.learner(config, spec, members, where, torch.float32)
    replay = _filled_replay(spec, count, data, where)
    engine = Engine(learner, replay, config.batch_size, members, mode, warn=say)

    def run() -> None:
        goal = engine.updates[0] + updates
        while engine.updates[0] < goal:
            engine.advance([goal - engine.updates[0]] * count)

    return run


def _filled_replay(spec: TaskSpec, count: int, data: Float32, device: torch.device) -> Replay:
    layout = RowLayout(spec.state_dim, spec.action_dim)
    replay = Replay(layout, len(data), count, device, torch.float32)
    for member in range(count):
        replay.append(member, data)
    return replay


def _sampling(name: str, spec: TaskSpec, count: int, data: Float32, device: str) -> Work:
    """What LAP adds to an update: choosing rows by priority, and writing priorities back.

    Gathering the rows is left out, since any replay does it. The call of a compiled function is
    included, although a compiled update does not pay for it.
    """
    where = torch.device(device)
    replay = _filled_replay(spec, count, data, where)
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


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _kernels(work: Work) -> float:
    from torch.profiler import ProfilerActivity, profile

    # Without `acc_events` PyTorch warns that it reports the last cycle only; there is one.
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    return float(sum(e.count for e in profiler.key_averages()))


LEFT_ALIGNED = ("algorithm", "device", "engine")


def table(results: Sequence[Result], title: str) -> Table:
    """The results for a terminal."""
    references = {(r.algorithm, r.device, r.rows): r for r in results if r.is_reference}
    shown = Table(title=title, title_justify="left")
    shown.caption = (
        "×: compared with the first program on the device; floor: the share of matrix products"
    )
    for number, result in enumerate(results):
        reference = references.get((result.algorithm, result.device, result.rows))
        cells = _cells(result, reference)
        if number == 0:
            for column in cells:
                shown.add_column(column, justify="left" if column in LEFT_ALIGNED else "right")
        shown.add_row(*cells.values())
    return shown


def _cells(result: Result, reference: Result | None) -> dict[str, str]:
    speed, kernels, floor = (
        result.seed_updates_per_second,
        result.kernels,
        result.floor_milliseconds,
    )
    ratio = None if reference is None else speed / reference.seed_updates_per_second
    return {
        "algorithm": result.algorithm,
        "device": result.device,
        "replay rows": f"{result.rows:,}",
        "engine": result.engine,
        "seeds": str(result.seeds),
        "ms/update": f"{result.milliseconds:.2f}",
        "median": f"{result.median_milliseconds:.2f}",
        "seed-updates/s": f"{speed:,.0f}",
        "×": "–" if ratio is None else f"{ratio:.2f}",
        "kernels": "–" if kernels is None else f"{kernels:.0f}",
        "floor": "–" if floor is None else f"{floor / result.milliseconds:.0%}",
        "ready in s": f"{result.first_seconds:.1f}",
    }

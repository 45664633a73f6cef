"""Whole training runs, timed with everything that belongs to them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from rich.table import Table

from td7.bench.updates import PROCESSES, Say
from td7.training.hardware import choose_workers, fast_processes
from td7.training.progress import QuietProgress, Status
from td7.training.resolve import train_options
from td7.training.start import start


@dataclass(frozen=True)
class WholeRun:
    """The speed of one real training run, evaluation included."""

    algorithm: str
    device: str
    env: str
    seeds: int
    steps: int
    engine: str
    workers: int
    seconds: float  # in total, compiling included
    steady: float  # steps of all seeds per second, over the second half

    @property
    def seed_steps_per_second(self) -> float:
        return self.seeds * self.steps / self.seconds


class _Stopwatch(QuietProgress):
    """Notes how many steps all seeds have made, and when."""

    def __init__(self) -> None:
        self.times: list[tuple[float, int]] = []

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        del final
        self.times.append((time.perf_counter(), sum(m.steps for m in status().members)))

    def rate_of_second_half(self, steps: int) -> float:
        """Steps per second from half of `steps` on."""
        half = next((t, n) for t, n in self.times if n >= steps / 2)
        last = next((t, n) for t, n in self.times if n >= steps)
        return (last[1] - half[1]) / max(last[0] - half[0], 1e-9)


def whole_run(
    name: str, env: str, seeds: int, steps: int, device: str, engine: str, say: Say
) -> WholeRun:
    """Time a run as `td7 train` makes it, but with a short random phase, and delete its folder."""
    say(f"{name} on {env}, {engine}, {seeds} seed(s): training {steps:,} steps")
    has_processes = engine == PROCESSES
    with TemporaryDirectory() as folder:
        options = train_options(
            {
                "algorithm": name,
                "env": env,
                "seeds": range(seeds),
                "steps": steps,
                "device": device,
                "engine": "compiled" if has_processes else engine,
                "processes": fast_processes(seeds) if has_processes else 1,
                "out": f"{folder}/run",
                "set": {"random_steps": min(1_000, steps // 4)},
            }
        )
        stopwatch = _Stopwatch()
        begin = time.perf_counter()
        start(options, stopwatch)
        seconds = time.perf_counter() - begin
    workers = choose_workers(options.workers, device, seeds)
    steady = stopwatch.rate_of_second_half(seeds * steps)
    return WholeRun(name, device, env, seeds, steps, engine, workers, seconds, steady)


def whole_run_table(runs: Sequence[WholeRun], title: str) -> Table:
    """The runs for a terminal."""
    table = Table(title=title, title_justify="left")
    for column in ("algorithm", "device", "task", "engine"):
        table.add_column(column)
    for column in ("seeds", "steps", "workers", "seconds", "seed-steps/s", "second half"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(
            run.algorithm,
            run.device,
            run.env,
            run.engine,
            str(run.seeds),
            f"{run.steps:,}",
            str(run.workers),
            f"{run.seconds:.1f}",
            f"{run.seed_steps_per_second:,.0f}",
            f"{run.steady:,.0f}",
        )
    return table

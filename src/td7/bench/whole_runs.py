"""Whole training runs, timed with everything in them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from rich.table import Table

from td7.bench.updates import PROCESSES, Say
from td7.training.hardware import choose_workers, fast_processes
from td7.training.progress import Progress, QuietProgress, Status
from td7.training.resolve import train_options
from td7.training.start import start


@dataclass(frozen=True)
class EndToEnd:
    """One real training run's speed, evaluation included."""

    algorithm: str
    device: str
    env: str
    seeds: int
    steps: int
    engine: str
    workers: int
    seconds: float  # in all, compiling included
    steady: float  # steps of all seeds a second, over the second half

    @property
    def seed_steps_per_second(self) -> float:
        return self.seeds * self.steps / self.seconds


class _Watch(QuietProgress):
    """When how many steps of all seeds were done."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        del final
        self.seen.append((time.perf_counter(), sum(m.steps for m in status().members)))


def end_to_end(
    train: Callable[[Progress], object],
    name: str,
    device: str,
    env: str,
    *,
    seeds: int,
    steps: int,
    engine: str,
    workers: int,
) -> EndToEnd:
    """Times `train`, a run of so many steps."""
    watch = _Watch()
    begin = time.perf_counter()
    train(watch)
    end = time.perf_counter()
    half = next((t, n) for t, n in watch.seen if n >= seeds * steps / 2)
    last = next((t, n) for t, n in watch.seen if n >= seeds * steps)
    steady = (last[1] - half[1]) / max(last[0] - half[0], 1e-9)
    return EndToEnd(name, device, env, seeds, steps, engine, workers, end - begin, steady)


def end_to_end_table(results: Sequence[EndToEnd], title: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for column in ("algorithm", "device", "task", "engine"):
        shown.add_column(column)
    for column in ("seeds", "steps", "workers", "seconds", "seed-steps/s", "second half"):
        shown.add_column(column, justify="right")
    for r in results:
        shown.add_row(
            r.algorithm,
            r.device,
            r.env,
            r.engine,
            str(r.seeds),
            f"{r.steps:,}",
            str(r.workers),
            f"{r.seconds:.1f}",
            f"{r.seed_steps_per_second:,.0f}",
            f"{r.steady:,.0f}",
        )
    return shown


def whole_run(
    name: str, env: str, seeds: int, steps: int, device: str, engine: str, say: Say
) -> EndToEnd:
    """A run as `td7 train` makes it, but for a short random phase, timed and thrown away."""
    say(f"{name} on {env}, {engine}, {seeds} seed(s): training {steps:,} steps")
    is_divided = engine == PROCESSES
    with TemporaryDirectory() as folder:
        options = train_options(
            {
                "algorithm": name,
                "env": env,
                "seeds": range(seeds),
                "steps": steps,
                "device": device,
                "engine": "compiled" if is_divided else engine,
                "processes": fast_processes(seeds) if is_divided else 1,
                "out": f"{folder}/run",
                "set": {"random_steps": min(1_000, steps // 4)},
            }
        )
        return end_to_end(
            lambda shown: start(options, shown),
            name,
            device,
            env,
            seeds=seeds,
            steps=steps,
            engine=engine,
            workers=choose_workers(options.workers, device, seeds),
        )

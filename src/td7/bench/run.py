"""`td7 bench`: updates and whole runs are timed, and what was measured is kept at once."""

import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

from td7.algorithms import algorithm
from td7.bench import updates as updates_module
from td7.bench.updates import PROCESSES, SAMPLING, Say, machine, table
from td7.bench.whole_runs import end_to_end_table, whole_run
from td7.engine.engine import MODES
from td7.errors import InputError, Stopped, one_of
from td7.files import write_json, writing_to
from td7.rollouts.registration import describe
from td7.training.hardware import WORTH_COMPILING, choose_device, choose_engine
from td7.types import Task

NO_ENGINES = (SAMPLING, PROCESSES)  # named among them, but not `td7 train --engine`'s


def measure(
    algorithms: Sequence[str],
    tasks: Sequence[str],
    devices: Sequence[str],
    engines: Sequence[str],  # none: eager and the fast one
    *,
    seeds: Sequence[int],
    rows: Sequence[int],
    seconds: float,
    steps: int,
    out: Path,
    say: Say,
    show: Callable[[Table], None],
) -> Path:
    """Every combination, in turns; a JSON file in `out` has the figures.

    With `steps`, runs of so many are timed, too. Raises `Stopped`, with the file, after a signal.
    """
    devices = [choose_device(device) for device in devices]
    twice = [device for i, device in enumerate(devices) if device in devices[:i]]
    if twice:
        raise InputError(f"device {twice[0]} is given twice")
    for engine in engines:
        one_of("engine", engine, ("auto", *MODES, *NO_ENGINES))
    if PROCESSES in engines and "cuda" in devices:
        raise InputError("engine processes is for a CPU; a GPU has all seeds in one process")
    chosen = {
        device: [
            e if e in NO_ENGINES else choose_engine(e, device, WORTH_COMPILING)
            for e in engines or ("eager", "auto")
        ]
        for device in devices
    }
    names = [algorithm(name).name for name in algorithms]
    specs = {task: describe(Task(task)) for task in tasks}  # bad names show before an hour is gone
    for name in names:
        if steps and not algorithm(name).online:
            raise InputError(f"steps={steps}: {name} learns from data and takes none; allowed: 0")
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    file = out / f"{'-'.join(devices)}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    data: dict[str, Any] = {"machine": machine(devices), "results": [], "end_to_end": []}
    for (task, spec), name in product(specs.items(), names):
        results = [
            result
            for device in devices
            for result in updates_module.measure(
                name,
                spec,
                seeds=seeds,
                engines=chosen[device],
                rows=rows,
                device=device,
                seconds=seconds,
                say=say,
            )
        ]
        show(table(results, f"updates, sizes of {task}"))
        data["results"] += [
            {"env": task, **vars(r), "seed_updates_per_second": r.seed_updates_per_second}
            for r in results
        ]
        write_json(file, data)  # at once, as it may be stopped
    runs = []
    for name, device, task, count in product(names, devices, tasks, seeds) if steps else ():
        named = chosen[device] if engines else chosen[device][-1:]  # the slow one takes hours
        for engine in (e for e in named if e != SAMPLING):
            try:
                runs.append(whole_run(name, task, count, steps, device, engine, say))
            except Stopped as stop:
                raise Stopped(stop.signum, file) from None
            run = runs[-1]
            data["end_to_end"].append(
                {**vars(run), "seed_steps_per_second": run.seed_steps_per_second}
            )
            write_json(file, data)
    if runs:
        show(end_to_end_table(runs, "training"))
    return file

"""`td7 bench`: times updates and whole runs, and writes every result down at once."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from td7.algorithms import algorithm
from td7.bench import updates
from td7.bench.updates import PROCESSES, SAMPLING, Say
from td7.bench.whole_runs import whole_run, whole_run_table
from td7.engine.replay import required_bytes
from td7.errors import InputError, Option, Stopped, assigned, one_of
from td7.files import make_folder, write_json
from td7.options import ENGINES
from td7.rollouts.registration import describe
from td7.runs.record import versions
from td7.training.hardware import WORTH_COMPILING, choose_device, choose_engine, device_bytes
from td7.types import RowLayout, Task, TaskSpec

SPECIAL = (SAMPLING, PROCESSES)  # accepted here, but not by `td7 train --engine`


def measure(
    algorithms: Sequence[str],
    tasks: Sequence[str],
    devices: Sequence[str],
    engines: Sequence[str],  # none: eager and the fast one
    *,
    members: Sequence[int],  # numbers of seeds to train side by side
    rows: Sequence[int],
    seconds: float,
    steps: int,
    out: Path,
    say: Say,
    show: Callable[[Table], None],
) -> Path:
    """Measure every combination in turns; a JSON file in `out` has the results.

    With `steps`, also time training runs of that many steps. After a signal, raise `Stopped` with
    the file.
    """
    devices = [choose_device(device) for device in devices]
    chosen = _chosen_engines(engines, devices)
    names = [algorithm(name).name for name in algorithms]
    specs = {task: describe(Task(task)) for task in tasks}  # bad names show before hours have gone
    _check_steps(steps, names)
    for device, spec in product(devices, specs.values()):
        _check_memory(device, spec, max(members), max(rows))
    make_folder(out)
    file = out / f"{'-'.join(devices)}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    data: dict[str, Any] = {"machine": machine(devices), "results": [], "end_to_end": []}
    options: dict[str, Any] = {"seeds": members, "rows": rows, "seconds": seconds, "say": say}
    for (task, spec), name in product(specs.items(), names):
        results = _measure_updates(name, spec, chosen, options)
        show(updates.table(results, f"updates, sizes of {task}"))
        data["results"] += [
            {"env": task, **vars(r), "seed_updates_per_second": r.seed_updates_per_second}
            for r in results
        ]
        write_json(file, data)  # at once, since the command may be stopped
    runs = []
    combinations = product(names, devices, tasks, members) if steps else ()
    for name, device, task, count in combinations:
        # By default only the fast engine: the other one takes hours.
        wanted = chosen[device] if engines else chosen[device][-1:]
        for engine in (e for e in wanted if e != SAMPLING):
            with _stopped_with(file):
                runs.append(whole_run(name, task, count, steps, device, engine, say))
            rate = runs[-1].seed_steps_per_second
            data["end_to_end"].append({**vars(runs[-1]), "seed_steps_per_second": rate})
            write_json(file, data)
    if runs:
        show(whole_run_table(runs, "training"))
    return file


@contextmanager
def _stopped_with(file: Path) -> Iterator[None]:
    """A signal during a run reports this file instead of the run's folder, which is deleted."""
    try:
        yield
    except Stopped as stop:
        raise Stopped(stop.signum, file) from None


def _check_steps(steps: int, names: Sequence[str]) -> None:
    for name in names:
        if steps and not algorithm(name).online:
            raise InputError(
                f"{assigned(Option('steps'), steps)}: {name} learns from a dataset and takes no "
                "steps; allowed: 0"
            )


def _check_memory(device: str, spec: TaskSpec, seeds: int, rows: int) -> None:
    """Refuse a replay that cannot fit, with the transitions that it is filled with."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    needed = sum(required_bytes(layout, rows, seeds, shared=False)) + 4 * layout.width * rows
    free = device_bytes(device)
    if free is not None and needed > free:
        raise InputError(
            f"{assigned(Option('rows'), f'{rows:,}')} of {seeds} seed(s) take "
            f"{needed / 1e9:,.1f} GB of {device}, which has {free / 1e9:.1f} GB free"
        )


def _chosen_engines(engines: Sequence[str], devices: Sequence[str]) -> dict[str, list[str]]:
    """The engines to measure on each device; by default eager and the fast one."""
    twice = [device for i, device in enumerate(devices) if device in devices[:i]]
    if twice:
        raise InputError(f"device {twice[0]} is given twice")
    for engine in engines:
        one_of("engine", engine, ("auto", *ENGINES, *SPECIAL))
    if PROCESSES in engines and "cuda" in devices:
        raise InputError("engine processes is for a CPU; a GPU trains all seeds in one process")
    return {
        device: [
            e if e in SPECIAL else choose_engine(e, device, WORTH_COMPILING)
            for e in engines or ("eager", "auto")
        ]
        for device in devices
    }


def _measure_updates(
    name: str, spec: TaskSpec, engines: dict[str, list[str]], options: dict[str, Any]
) -> list[updates.Result]:
    return [
        result
        for device, chosen in engines.items()
        for result in updates.measure(name, spec, engines=chosen, device=device, **options)
    ]


def machine(devices: Sequence[str]) -> dict[str, Any]:
    """The hardware and software that the results depend on."""
    record = {
        "versions": versions(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": ",".join(devices),
    }
    if "cuda" in devices:
        record["gpu"] = torch.cuda.get_device_name()
    return record


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()

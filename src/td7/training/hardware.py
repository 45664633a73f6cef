"""What a run uses of this machine, and what does not fit it: checked before anything is written."""

import os
from multiprocessing import current_process
from typing import Any

import torch

from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Learner
from td7.configs import parse_number
from td7.engine.replay import required_bytes
from td7.errors import InputError, Option, assigned, describe_error, one_of
from td7.memory import free_bytes
from td7.options import DEVICES, ENGINES, check_device
from td7.processes import Script, available_cores
from td7.training.config import MOST_THREADS, RunConfig
from td7.training.parts import build_learner
from td7.types import RowLayout, Task, TaskSpec

WORTH_THREADS = 4_000_000  # multiplications per product; below, threads wait more than they work
MOST_WORKERS = 1_000  # more is a typing error
# Updates of all seeds on a CPU: compilation takes one or two minutes and saves 10 ms per update.
WORTH_COMPILING = 20_000
# Likewise: ten processes start two minutes later and save 4 ms per update.
WORTH_DIVIDING = 50_000
PROCESSES = Option("processes")
PROCESSES_PER_CORE = 5  # with ten seeds on two cores, one seed per process is the fastest
PROCESS_BYTES = 450_000_000  # what a process takes in addition to its replay


def choose_device(option: str) -> str:
    check_device(option)
    if option == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if option == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda needs a GPU, and PyTorch sees no CUDA device; allowed: cpu")
    return option


def choose_replay_device(option: str, device: str) -> str:
    one_of("replay-device", option, DEVICES)
    if option == "cuda" and device != "cuda":
        raise InputError("replay-device cuda needs device cuda; allowed on a cpu: auto, cpu")
    return device if option == "auto" else option


def choose_workers(option: str, device: str, seeds: int) -> int:
    if option == "auto":
        spare = max(1, len(available_cores()) - 1)
        return min(seeds + 5, spare) if device == "cuda" else 0
    return parse_number(
        Option("workers"), option, int, otherwise="auto", at_least=0, at_most=MOST_WORKERS
    )


def choose_processes(
    option: str, device: str, task: Task, *, seeds: int, updates: int, workers: int, threads: str
) -> int:
    """`auto` is the fastest for a number of updates, counted over all seeds."""
    if option != "auto":
        processes = parse_number(PROCESSES, option, int, otherwise="auto", at_least=1)
        _check_processes(processes, device, seeds, workers)
        return processes
    if device == "cuda" or workers or updates < WORTH_DIVIDING or current_process().daemon:
        return 1
    try:
        if Script.current(task).must_run:  # which may have other effects
            return 1
    except InputError:  # other processes could not make the task
        return 1
    return fast_processes(seeds, 1 if threads == "auto" else _parse_threads(threads))


def _check_processes(processes: int, device: str, seeds: int, workers: int) -> None:
    if processes > seeds:
        raise InputError(
            f"{assigned(PROCESSES, processes)} for {seeds} seed(s): at most one per seed"
        )
    if processes == 1:
        return
    if device == "cuda":
        raise InputError(
            f"{assigned(PROCESSES, processes)} is for a cpu; a GPU trains all seeds in one "
            "process; allowed: 1"
        )
    if current_process().daemon:
        raise InputError(
            f"{assigned(PROCESSES, processes)}: this is a daemonic process of Python's "
            "multiprocessing, which may not start any; allowed: 1"
        )
    if workers:
        raise InputError(
            f"{assigned(Option('workers'), workers)} has no effect with "
            f"{assigned(PROCESSES, processes)}, each of which plays its own episodes; allowed: 0"
        )


def fast_processes(seeds: int, threads: int = 1) -> int:
    """One process per seed, which was the fastest; see results/bench.

    Fewer if they would crowd the cores or fill the memory; one if there is one core.
    """
    if _cores() <= threads:
        return 1
    most = PROCESSES_PER_CORE * _cores() if threads == 1 else _cores() // threads
    free = device_bytes("cpu")
    room = most if free is None else free // (2 * PROCESS_BYTES)
    return max(1, min(seeds, most, room))


def _cores() -> int:
    """As many as PyTorch would use."""
    return torch.get_num_threads()


def choose_threads(option: str, hyperparameters: LearnerConfig, processes: int) -> int:
    """PyTorch's threads per process."""
    if option != "auto":
        return _parse_threads(option)
    sizes = ("hidden_dim", "critic_hidden_dim")
    size = max(getattr(hyperparameters, name, 0) for name in sizes)
    work = hyperparameters.batch_size * size * size  # multiplications in a layer, roughly
    return max(1, _cores() // processes) if work >= WORTH_THREADS else 1


def _parse_threads(option: str) -> int:
    return parse_number(
        Option("threads"), option, int, otherwise="auto", at_least=1, at_most=MOST_THREADS
    )


def choose_engine(option: str, device: str, updates: int) -> str:
    """`auto` is the fastest for a number of updates, counted over all seeds."""
    one_of("engine", option, ("auto", *ENGINES))
    if option == "auto":
        if device == "cuda":
            return "graph"
        return "compiled" if updates >= WORTH_COMPILING else "eager"
    if option == "graph" and device != "cuda":
        raise InputError("engine graph needs a CUDA device; allowed on cpu: eager, compiled")
    return option


def check_memory(config: RunConfig, spec: TaskSpec) -> None:
    """Refuse a replay that cannot fit, before it is half full."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    rows, seeds = config.replay_rows, len(config.seeds) + config.padding
    is_shared = config.dataset is not None
    row_bytes, priority_bytes = required_bytes(layout, rows, seeds, shared=is_shared)
    if config.processes > 1:
        if config.dataset:  # every process holds it, and a replay of it
            row_bytes *= 2 * config.processes
        row_bytes += config.processes * PROCESS_BYTES
    on_device = priority_bytes + (row_bytes if config.replay_device == config.device else 0)
    for device, needed in {config.replay_device: row_bytes, config.device: on_device}.items():
        free = device_bytes(device)
        if free is None or needed <= free:
            continue
        fits = f"replay_capacity={int(0.95 * rows * free / needed):.1e} or less"
        allowed = ["a smaller dataset" if config.dataset else fits]
        if seeds > 1:
            allowed.append("fewer seeds at once")
        if config.processes > 1:
            allowed.append(assigned(PROCESSES, 1))
        if config.replay_device != "cpu":
            allowed.append(assigned(Option("replay_device"), "cpu"))
        processes = f" in {config.processes} processes" if config.processes > 1 else ""
        raise InputError(
            f"the replay of {seeds} seed(s){processes} takes {needed / 1e9:.1f} GB of {device} "
            f"({rows:,} rows each), which has {free / 1e9:.1f} GB free; "
            f"allowed: {', '.join(allowed)}"
        )


def check_learner(config: RunConfig, spec: TaskSpec) -> Learner:
    """Refuse hyperparameters that do not fit each other or the task.

    Learners raise when they are built; one member on the CPU, which comes back, is built quickly.
    """
    try:
        return build_learner(config.of_members([0]), spec, torch.device("cpu"), torch.float32)
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # sizes that no array has
        name = config.algorithm
        raise InputError(
            f"{name} cannot be built with these hyperparameters: {describe_error(error)}"
        ) from error


def device_bytes(device: str) -> int | None:
    """Memory that a run may take; None where that cannot be known."""
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else free_bytes()


def hardware(device: str) -> dict[str, Any]:
    """What the speed of a run depends on, for its config.json."""
    description: dict[str, Any] = {"cores": os.cpu_count()}
    if device == "cuda":
        description["gpu"] = torch.cuda.get_device_name()
    return description

"""What of this machine a run takes, and what it has not: told before anything is written."""

import os
import re
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.configs import parse_number
from td7.errors import InputError, one_of
from td7.options import DEVICES
from td7.processes import Script, available_cores
from td7.types import RowLayout, Task, TaskSpec

if TYPE_CHECKING:
    from td7.algorithms.config import LearnerConfig
    from td7.training.config import RunConfig
CGROUPS = Path("/sys/fs/cgroup")  # Linux' control groups, version 2
WORTH_THREADS = 4_000_000  # multiplications a product: below, threads wait more than they work
MOST_WORKERS = 1_000  # more is a slip of the finger
# Updates of all seeds on a CPU: a minute or two of compiling against 10 ms saved in each.
WORTH_COMPILING = 20_000
# Likewise: two minutes more until ten processes have begun, against 4 ms saved in each update.
WORTH_DIVIDING = 50_000
PROCESSES_A_CORE = 5  # ten seeds on two cores are one each, which is faster than two of five
PROCESS_BYTES = 450_000_000  # what a process takes besides its replay


def choose_device(given: str) -> str:
    import torch

    one_of("device", given, DEVICES)
    if given == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if given == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but PyTorch sees no CUDA device; allowed: cpu")
    return given


def choose_replay_device(given: str, device: str) -> str:
    one_of("replay-device", given, DEVICES)
    if given == "cuda" and device != "cuda":
        raise InputError("replay-device cuda needs device cuda; allowed on a cpu: auto, cpu")
    return device if given == "auto" else given


def choose_workers(given: str, device: str, seeds: int) -> int:
    if given == "auto":
        spare = max(1, len(available_cores()) - 1)
        return min(seeds + 5, spare) if device == "cuda" else 0
    return parse_number("workers", given, int, at_least=0, at_most=MOST_WORKERS)


def choose_processes(
    given: str, device: str, task: Task, *, seeds: int, updates: int, workers: int, threads: str
) -> int:
    """`auto` is what is fastest for so many updates, of all seeds."""
    if given != "auto":
        processes = parse_number("processes", given, int, at_least=1)
        if processes > seeds:
            raise InputError(f"processes={processes} for {seeds} seed(s): at most one a seed")
        if processes > 1 and device == "cuda":
            raise InputError("processes are for a cpu; a GPU has all seeds in one, allowed: 1")
        if processes > 1 and current_process().daemon:
            raise InputError(
                f"processes={processes}: this is a daemonic process of Python's multiprocessing, "
                "which may not start any; allowed: 1"
            )
        if processes > 1 and workers:
            raise InputError(
                f"processes={processes} play their own episodes and take no workers={workers}"
            )
        return processes
    if device == "cuda" or workers or updates < WORTH_DIVIDING or current_process().daemon:
        return 1
    try:
        if Script.current(task).must_run:  # which may have other effects
            return 1
    except InputError:  # other processes could not make it
        return 1
    return fast_processes(
        seeds, 1 if threads == "auto" else parse_number("threads", threads, int, at_least=1)
    )


def fast_processes(seeds: int, threads: int = 1) -> int:
    """One a seed, which was the fastest; see results/bench.

    Fewer where they would crowd the cores or fill the memory; one where there is one core.
    """
    if _cores() <= threads:
        return 1
    most = PROCESSES_A_CORE * _cores() if threads == 1 else _cores() // threads
    free = _free_bytes("cpu")
    room = most if free is None else free // (2 * PROCESS_BYTES)
    return max(1, min(seeds, most, room))


def _cores() -> int:
    """As many as PyTorch would use."""
    import torch

    return torch.get_num_threads()


def choose_threads(given: str, hyperparameters: "LearnerConfig", processes: int) -> int:
    """Of each process."""
    if given != "auto":
        return parse_number("threads", given, int, at_least=1)
    sizes = ("hidden_dim", "critic_hidden_dim")
    size = max(getattr(hyperparameters, name, 0) for name in sizes)
    work = hyperparameters.batch_size * size * size  # of a layer's product, about
    return max(1, _cores() // processes) if work >= WORTH_THREADS else 1


def choose_engine(given: str, device: str, updates: int) -> str:
    """`auto` is what is fastest for so many updates, of all seeds."""
    from td7.engine.engine import MODES

    one_of("engine", given, ("auto", *MODES))
    if given == "auto":
        if device == "cuda":
            return "graph"
        return "compiled" if updates >= WORTH_COMPILING else "eager"
    if given == "graph" and device != "cuda":
        raise InputError("engine graph needs a CUDA device; allowed on cpu: eager, compiled")
    return given


def check_memory(config: "RunConfig", spec: TaskSpec) -> None:
    """Refuses a replay that cannot fit, before it is half full."""
    from td7.engine.replay import required_bytes

    layout = RowLayout(spec.state_dim, spec.action_dim)
    rows, seeds = config.replay_rows, len(config.seeds)
    of_rows, of_priorities = required_bytes(layout, rows, seeds, shared=config.dataset is not None)
    if config.processes > 1:
        if config.dataset:  # which every process has, and a replay of it
            of_rows *= 2 * config.processes
        of_rows += config.processes * PROCESS_BYTES
    on_device = of_priorities + (of_rows if config.replay_device == config.device else 0)
    for device, needed in {config.replay_device: of_rows, config.device: on_device}.items():
        free = _free_bytes(device)
        if free is None or needed <= free:
            continue
        fits = f"--set replay_capacity={int(0.95 * rows * free / needed):.1e} or less"
        allowed = ["a smaller dataset" if config.dataset else fits]
        if seeds > 1:
            allowed.append("fewer seeds at once")
        if config.processes > 1:
            allowed.append("--processes 1")
        if config.replay_device != "cpu":
            allowed.append("--replay-device cpu")
        among = f" in {config.processes} processes" if config.processes > 1 else ""
        raise InputError(
            f"the replay of {seeds} seed(s){among} takes {needed / 1e9:.1f} GB of {device} "
            f"({rows:,} rows each), which has {free / 1e9:.1f} GB free; "
            f"allowed: {', '.join(allowed)}"
        )


def check_learner(config: "RunConfig", spec: TaskSpec) -> None:
    """Refuses hyperparameters that do not go together, or not with the task.

    Learners say so when they are built; one member on the CPU is soon built.
    """
    import torch

    from td7.algorithms import algorithm

    build = algorithm(config.algorithm).learner
    build(config.hyperparameters, spec, config.seeds[:1], torch.device("cpu"), torch.float32)


def _free_bytes(device: str) -> int | None:
    """Memory that a run may take, where it can be told."""
    import torch

    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    free = [1024 * int(found[1])] if found else []
    return min([*free, *_group_bytes()], default=None)


def _group_bytes(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> list[int]:
    """What is left of the limits that containers and batch systems set, one above the other."""
    try:
        place = re.search(r"^0::/(.*)$", own.read_text(), re.MULTILINE)
    except OSError:
        return []
    group = root / (place[1] if place else "")
    free = []
    for level in (group, *group.parents):
        try:
            limit, used = ((level / f"memory.{name}").read_text() for name in ("max", "current"))
            cached = re.findall(r"^inactive_file (\d+)$", (level / "memory.stat").read_text(), re.M)
            free.append(max(0, int(limit) - int(used) + sum(map(int, cached))))
        except (OSError, ValueError):  # no file there, or "max", which is no limit
            continue
    return free


def hardware(device: str) -> dict[str, Any]:
    """What a run's speed depends on."""
    import torch

    found: dict[str, Any] = {"cores": os.cpu_count()}
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found

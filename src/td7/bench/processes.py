"""Updates of seeds that are divided among processes, as `td7 train` divides them on a CPU."""

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from td7.processes import Worker, end_workers, start_workers, worker_death
from td7.training.hardware import fast_processes


def updates_in_processes(
    make: Callable[[int], Callable[[], None]], seeds: int
) -> Callable[[], None]:
    """The work that `make(n)` prepares for n seeds, in as many processes as a run would have."""
    processes = fast_processes(seeds)
    shares = {i: len(range(i, seeds, processes)) for i in range(processes)}
    workers = start_workers(
        _work_when_asked, {f"td7-bench-{i}": (make, share) for i, share in shares.items()}
    )

    def run(among: list[Worker] = workers) -> None:
        for worker in among:
            worker.connection.send(None)
        for worker in among:
            try:
                worker.connection.recv()
            except EOFError:
                raise worker_death(worker, "making updates") from None

    weakref.finalize(run, end_workers, workers)
    run(workers[:1])  # the others find in the cache what the first one compiles
    return run


def _work_when_asked(
    connection: Connection, make: Callable[[int], Callable[[], None]], seeds: int
) -> None:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # each process has one core
    torch.set_num_threads(1)
    work = make(seeds)
    with suppress(EOFError):  # the parent has ended
        while True:
            connection.recv()
            work()
            connection.send(None)

"""Worker processes: how they start, what they must not inherit, how they end.

Workers import this module, so no torch here.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import cloudpickle
import gymnasium

from td7.errors import EnvironmentFault, InputError, one_line
from td7.types import Task

SIGHUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
# Each asks a run to stop.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([SIGHUP] if SIGHUP is not None else []))


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a run here; SIGHUP may be ignored, as under `nohup`."""
    is_ignored = SIGHUP is not None and signal.getsignal(SIGHUP) is signal.SIG_IGN
    return [s for s in STOP_SIGNALS if not (s == SIGHUP and is_ignored)]


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that stop a run within the block, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread handle signals
        return
    before = {s: signal.signal(s, handler) for s in stop_signals()}
    try:
        yield
    finally:
        for s, previous in before.items():
            signal.signal(s, previous)


@cache
def start_signal_receiver() -> None:
    """Start a thread that receives signals while the main thread blocks them.

    As always, Python runs their handlers in the main thread.
    """
    threading.Thread(target=threading.Event().wait, name="td7-signals", daemon=True).start()


@contextmanager
def signals_blocked(signals: Collection[int] = STOP_SIGNALS) -> Iterator[None]:
    """This thread, and the processes that it starts within the block, do not receive the signals.

    This thread receives them after the block; what it started never does. Windows blocks none.
    """
    if os.name == "nt":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def available_cores() -> set[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Worker:
    process: BaseProcess
    connection: Connection

    @property
    def name(self) -> str:
        return self.process.name


def start_workers(
    target: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    may_have_children: bool = False,
) -> list[Worker]:
    """Start one process per name, which runs `target(connection, *arguments)`; all or none."""
    # Not fork: a copy of a process with CUDA or threads is not safe to use.
    context = get_context("spawn")
    workers: list[Worker] = []
    try:
        with _single_threaded_children(), _signals_blocked_in_children(), _empty_main_module():
            for name, values in arguments.items():
                here, there = context.Pipe()
                process = context.Process(target=target, args=(there, *values), name=name)
                process.daemon = not may_have_children
                workers.append(Worker(process, here))
                process.start()
                there.close()
    except BaseException:  # including Ctrl-C
        with suppress(Exception):  # the first error is the one to report
            end_workers([worker for worker in workers if worker.process.pid is not None])
        raise
    return workers


def worker_death(worker: Worker, doing: str) -> EnvironmentFault:
    """Return the error for a worker whose pipe has closed."""
    worker.process.join(timeout=5)
    code = worker.process.exitcode
    how = "does not respond" if code is None else f"died ({_describe_exit(code)})"
    return EnvironmentFault(f"worker process {worker.name} {how} while {doing}")


def end_workers(workers: Sequence[Worker]) -> None:
    """End all workers, those that have ended included; then raise the first error, if any."""
    errors: list[Exception] = []
    for end in (_close_pipe, _end_process):
        for worker in workers:
            try:
                end(worker)
            except Exception as error:  # the other workers must end as well
                errors.append(error)
    if errors:
        raise errors[0]


def _close_pipe(worker: Worker) -> None:
    worker.connection.close()  # a worker ends when its pipe closes


def _end_process(worker: Worker) -> None:
    worker.process.join(timeout=0.2)
    if worker.process.is_alive():  # in the middle of an episode that is no longer needed
        worker.process.kill()
        worker.process.join()


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    """Processes that start within the block use one BLAS thread: an actor's products are small."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _signals_blocked_in_children() -> Iterator[None]:
    """Processes that start within the block never receive the signals; the parent does.

    Ctrl-C and `timeout` signal the whole process group, workers that are still importing included.
    """
    if SIGHUP is not None:
        with signals_blocked({SIGHUP}):  # the tracker ignores the others by itself
            resource_tracker.ensure_running()  # starting it later would unblock the signals
    with signals_blocked():
        yield


@contextmanager
def _empty_main_module() -> Iterator[None]:
    """Processes that start within the block do not run the user's script again.

    The script therefore needs no `if __name__ == "__main__"`; see `Script`.
    """
    main = sys.modules["__main__"]
    empty = ModuleType("__main__")
    empty.__spec__ = None
    sys.modules["__main__"] = empty
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass(frozen=True)
class Script:
    """What a worker needs to register a task that the user's program registered."""

    path: str | None  # of the program, which workers import up to where it first runs td7
    entry: bytes | None  # Gymnasium's entry for the task, pickled, if it can be
    is_registered: bool

    @classmethod
    def current(cls, task: Task) -> "Script":
        main = sys.modules["__main__"]
        path = getattr(main, "__file__", None) if main.__spec__ is None else None
        path = path if path and Path(path).is_file() else None
        spec = gymnasium.registry.get(task.name)
        if spec is None:
            return cls(path, None, is_registered=False)
        try:
            # With the code that the program or a notebook itself defines, which no worker has.
            entry = cloudpickle.dumps(spec)
        except Exception as error:  # whatever the objects raise that the task refers to
            if path is None or task.is_callable:
                raise InputError(
                    f"worker processes cannot make the task {task.id!r}, because it cannot be sent "
                    f"to them ({one_line(error, 200)}); move the task to a module and name it "
                    f"'module:{task.name}', or use workers=0 and processes=1"
                ) from error
            return cls(path, None, is_registered=True)
        return cls(path, entry, is_registered=True)

    @property
    def must_run(self) -> bool:
        """Whether only the program can register the task."""
        return self.is_registered and self.entry is None


def _describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

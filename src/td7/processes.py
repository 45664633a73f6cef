"""Worker processes: how they start, what they must not inherit, how they end or die.

No torch here: workers import this module.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from td7.errors import EnvironmentFault, InputError
from td7.types import Task


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM go to the handler in here, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, own in before.items():
            signal.signal(s, own)


def available_cores() -> set[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # only Linux has it
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@dataclass
class Worker:
    process: BaseProcess
    connection: Connection
    task: Any = None  # what it is busy with


def start_workers(
    target: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    may_have_children: bool = False,
) -> list[Worker]:
    """A process a name, that runs `target(connection, *arguments)`; all of them, or none."""
    # spawn: a forked copy of a process with CUDA or threads is not safe to use.
    context = get_context("spawn")
    workers: list[Worker] = []
    try:
        with _single_threaded_children(), _deaf_children(), _children_without_main():
            for name, given in arguments.items():
                here, there = context.Pipe()
                process = context.Process(target=target, args=(there, *given), name=name)
                process.daemon = not may_have_children
                workers.append(Worker(process, here))
                process.start()
                there.close()
    except BaseException:  # Ctrl-C may come in between
        end_workers([worker for worker in workers if worker.process.pid is not None])
        raise
    return workers


def worker_death(worker: Worker, doing: str) -> EnvironmentFault:
    worker.process.join(timeout=5)
    code = worker.process.exitcode
    how = "is not answering" if code is None else f"died ({_exit_words(code)})"
    return EnvironmentFault(f"worker process {worker.process.name} {how} while {doing}")


def end_workers(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.connection.close()  # a worker ends when its pipe does
    for worker in workers:
        worker.process.join(timeout=0.2)
        if worker.process.is_alive():  # in the middle of an episode nobody needs
            worker.process.kill()
            worker.process.join()
        worker.process.close()


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    """Processes started in here use one BLAS thread: the actor's products are small."""
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
def _deaf_children() -> Iterator[None]:
    """Processes started in here never see SIGINT and SIGTERM: those are the parent's to handle.

    Ctrl-C and `timeout` send them to the whole group, also to a worker that is still importing.
    """
    resource_tracker.ensure_running()  # its own start would let the signals in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _children_without_main() -> Iterator[None]:
    """Processes started in here do not run the user's script again.

    So the script needs no `if __name__ == "__main__"`; see `Script`.
    """
    main = sys.modules["__main__"]
    empty = ModuleType("__main__")
    empty.__spec__ = None
    sys.modules["__main__"] = empty
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class StopScriptImport(BaseException):
    """A user's script, run again, has come to where it uses this package."""


class _ScriptImport:
    is_active = False  # whether this process is reading a user's script


def stop_script_import() -> None:
    """Called by whatever a script may start: where it is read again, it has done its part."""
    if _ScriptImport.is_active:
        raise StopScriptImport


@contextmanager
def script_import() -> Iterator[None]:
    """A user's script is run again in here, up to where it uses this package."""
    _ScriptImport.is_active = True
    try:
        yield
    finally:
        _ScriptImport.is_active = False


@dataclass(frozen=True)
class Script:
    """How workers get to know a task that the program which uses this package registered."""

    path: str | None  # of the program, to be run again up to where it uses this package
    entry: EnvSpec | None  # as registered, if that can be sent
    is_registered: bool  # by whomever

    @classmethod
    def current(cls, task: Task) -> "Script":
        main = sys.modules["__main__"]
        path = getattr(main, "__file__", None) if main.__spec__ is None else None
        path = path if path and Path(path).is_file() else None
        entry = gymnasium.registry.get(task.name)
        is_registered = entry is not None
        if entry is not None and not _can_be_sent(entry):
            entry = None
            if path is None:
                raise InputError(
                    f"worker processes cannot make the task {task.id!r}, which a program without "
                    f"a file defines: put it into a module, as 'module:{task.name}', or give "
                    "workers=0 and processes=1"
                )
        return cls(path, entry, is_registered)

    @property
    def must_run(self) -> bool:
        """Only the program knows how to make the task."""
        return self.is_registered and self.entry is None


def _can_be_sent(entry: EnvSpec) -> bool:
    """Not what a program itself defines: a worker's `__main__` is another."""
    if getattr(entry.entry_point, "__module__", "") == "__main__":
        return False
    try:
        with _children_without_main():
            pickle.dumps(entry)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _exit_words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

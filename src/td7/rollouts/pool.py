"""Episodes and evaluations as pure tasks: weights in, transitions or returns out.

A task's result depends on nothing but the task, so it does not matter which process runs it, when,
or how often: a task lost in a crash is simply given again.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Protocol

from td7.errors import InputError, RunError
from td7.networks.description import Network
from td7.processes import Script, Worker, end_workers, start_workers, worker_death
from td7.rollouts.episodes import AnyTask, EpisodeTask, EvaluationTask, Player, TaskResult
from td7.rollouts.registration import register_in_worker
from td7.types import Task


class Executor(Protocol):
    """Takes tasks, gives results back in any order."""

    def submit(self, task: AnyTask) -> None: ...

    def completed(self, *, block: bool) -> list[TaskResult]:
        """Results that are ready; with `block`, at least one unless a timeout passes first.

        What an environment raises comes from here, in a call of its own: no result is lost with
        it, and its task stays among those pending.
        """
        ...

    @property
    def pending(self) -> tuple[AnyTask, ...]: ...

    def abandon(self) -> None:
        """For signal handlers: gives up the task that this thread is running, if any."""
        ...

    def close(self) -> None: ...


class Abandoned(BaseException):
    """Ends a task from within a signal handler; no environment's `except Exception` stops it."""


class InProcess:
    """Runs a task where it stands: one at each call of `completed`."""

    def __init__(self, task: Task, network: Network) -> None:
        self._player = Player(task, network)
        self._queue: deque[AnyTask] = deque()
        self._is_playing = False

    def submit(self, task: AnyTask) -> None:
        self._queue.append(task)

    def completed(self, *, block: bool) -> list[TaskResult]:
        del block  # a task that waits is run at once either way
        if not self._queue:
            return []
        try:
            self._is_playing = True
            done = self._player.run(self._queue[0])
        except Abandoned:  # the task stays, and is played again another time
            return []
        finally:
            self._is_playing = False
        self._queue.popleft()
        return [done]

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        return tuple(self._queue)

    def abandon(self) -> None:
        if self._is_playing:
            raise Abandoned

    def close(self) -> None:
        self._player.close()


class Pool:
    """Worker processes, each with its own environments; training episodes go before evaluations.

    A worker that dies is replaced, and its task given to another.
    """

    def __init__(
        self, task: Task, network: Network, workers: int, warn: Callable[[str], None] = print
    ) -> None:
        self._warn = warn
        self._fault: Exception | None = None  # raised when no result is left
        self._lost: set[str] = set()  # what workers were doing when they died
        self._plays = False  # whether training episodes are among its tasks
        self._episodes: deque[AnyTask] = deque()
        self._evaluations: deque[AnyTask] = deque()
        self._given = (task, network, Script.current(task))
        names = [f"td7-worker-{i}" for i in range(workers)]
        self._workers = start_workers(_work, dict.fromkeys(names, self._given))
        # At the latest when Python ends; it would only send SIGTERM, and wait for ever.
        self._end = Finalize(self, end_workers, (self._workers,), exitpriority=0)

    def submit(self, task: AnyTask) -> None:
        self._plays |= isinstance(task, EpisodeTask)
        self._queue(task).append(task)
        self._dispatch()

    def _queue(self, task: AnyTask) -> deque[AnyTask]:
        return self._episodes if isinstance(task, EpisodeTask) else self._evaluations

    def _dispatch(self) -> None:
        for worker in self._workers:
            queue = self._episodes or (self._evaluations if self._may_evaluate() else None)
            if not queue or self._fault is not None:
                return
            if worker.task is None:
                worker.task = queue.popleft()
                with suppress(OSError):  # it died, which `completed` finds out
                    worker.connection.send(worker.task)

    def _may_evaluate(self) -> bool:
        """One of several workers is kept for episodes: training waits for those."""
        evaluating = sum(isinstance(worker.task, EvaluationTask) for worker in self._workers)
        kept = 1 if self._plays and len(self._workers) > 1 else 0
        return evaluating < len(self._workers) - kept

    def completed(self, *, block: bool) -> list[TaskResult]:
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), timeout=0.5 if block and self.pending else 0)
        results: list[TaskResult] = []
        for connection in ready:
            worker = by_connection[connection]  # type: ignore[index]  # only connections are waited for
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if isinstance(answer, Exception):
                self._fault = answer
            else:
                worker.task = None
                results.append(answer)
        if self._fault is not None and not results:
            raise self._fault
        self._dispatch()
        return results

    def _replace(self, worker: Worker) -> None:
        """Of the same task only once: it may be what workers die of."""
        doing = "idle" if worker.task is None else f"busy with {worker.task}"
        fault = worker_death(worker, doing)
        if doing in self._lost:
            self._fault = fault
            return
        self._lost.add(doing)
        self._warn(f"{fault}; another takes its place")
        if worker.task is not None:
            self._queue(worker.task).appendleft(worker.task)
        place, name = self._workers.index(worker), worker.process.name
        end_workers([worker])
        self._workers[place : place + 1] = start_workers(_work, {name: self._given})

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        running = [worker.task for worker in self._workers if worker.task is not None]
        return (*running, *self._episodes, *self._evaluations)

    def abandon(self) -> None:
        pass  # no task runs in this process

    def close(self) -> None:
        self._end()


def _work(connection: Connection, task: Task, network: Network, script: Script) -> None:
    """A worker process: tasks in, results or what went wrong out, until the pipe closes."""
    register_in_worker(task, script)
    player = Player(task, network)
    try:
        while True:
            request = connection.recv()
            try:
                answer: TaskResult | Exception = player.run(request)
            except (RunError, InputError) as error:
                answer = error
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        player.close()


def make_executor(
    task: Task, network: Network, workers: int, warn: Callable[[str], None] = print
) -> Executor:
    """Worker processes, or none at all for 0; `warn` is told of those that die."""
    return Pool(task, network, workers, warn) if workers else InProcess(task, network)

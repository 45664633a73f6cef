"""Who runs the tasks: this process, or a pool of worker processes.

A task's result depends on the task alone, so a task that is lost in a crash is simply run again.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Protocol

from td7.errors import InputError, RunError, describe_error
from td7.networks.description import Network
from td7.processes import Script, Worker, end_workers, start_workers, worker_death
from td7.rollouts.episodes import AnyTask, EpisodeTask, EvaluationTask, Player, TaskResult
from td7.rollouts.registration import register_in_worker
from td7.types import Task


class Executor(Protocol):
    """Runs tasks; results come back in any order."""

    def submit(self, task: AnyTask) -> None: ...

    def completed(self, *, block: bool) -> list[TaskResult]:
        """Return the results that are ready; with `block`, wait for one until a timeout passes.

        Raises what an environment raised, in a call that returns no results, so that none is lost;
        the task that failed stays pending.
        """
        ...

    @property
    def pending(self) -> tuple[AnyTask, ...]: ...

    def abandon(self) -> None:
        """Give up the task that this thread is running, if any; signal handlers call this."""
        ...

    def close(self) -> None: ...


class AbandonTask(BaseException):
    """Ends a task from within a signal handler; no environment's `except Exception` stops it."""


class InProcess:
    """Runs tasks in this process, one per call of `completed`."""

    def __init__(self, task: Task, network: Network) -> None:
        self._player = Player(task, network)
        self._queue: deque[AnyTask] = deque()
        self._is_playing = False

    def submit(self, task: AnyTask) -> None:
        self._queue.append(task)

    def completed(self, *, block: bool) -> list[TaskResult]:
        del block  # a queued task runs at once either way
        if not self._queue:
            return []
        try:
            try:
                self._is_playing = True
                result = self._player.run(self._queue[0])
            finally:
                self._is_playing = False
        except AbandonTask:  # the task stays in the queue and can be run again
            return []
        self._queue.popleft()
        return [result]

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        return tuple(self._queue)

    def abandon(self) -> None:
        if self._is_playing:
            raise AbandonTask

    def close(self) -> None:
        self._player.close()


class Pool:
    """Worker processes, each with its own environments; training episodes precede evaluations.

    A worker that dies is replaced, and its task is queued again.
    """

    def __init__(
        self, task: Task, network: Network, workers: int, warn: Callable[[str], None] = print
    ) -> None:
        self._warn = warn
        self._fault: Exception | None = None  # raised once all results have been returned
        self._deaths: set[str] = set()  # what workers were doing when they died
        self._plays_episodes = False
        self._episodes: deque[AnyTask] = deque()
        self._evaluations: deque[AnyTask] = deque()
        self._running: dict[str, AnyTask] = {}  # by the name of the worker
        self._results: list[TaskResult] = []  # that `completed` has not returned
        self._arguments = (task, network, Script.current(task))
        names = [f"td7-worker-{i}" for i in range(workers)]
        self._workers = start_workers(_run_tasks, dict.fromkeys(names, self._arguments))
        # When Python exits, multiprocessing would send SIGTERM, which workers block, and then wait
        # forever.
        self._end = Finalize(self, end_workers, (self._workers,), exitpriority=0)

    def submit(self, task: AnyTask) -> None:
        self._plays_episodes |= isinstance(task, EpisodeTask)
        self._queue(task).append(task)
        self._dispatch()

    def _queue(self, task: AnyTask) -> deque[AnyTask]:
        return self._episodes if isinstance(task, EpisodeTask) else self._evaluations

    def _dispatch(self) -> None:
        for worker in self._workers:
            queue = self._episodes or (self._evaluations if self._may_evaluate() else None)
            if not queue or self._fault is not None:
                return
            if worker.name not in self._running:
                task = self._running[worker.name] = queue.popleft()
                with suppress(OSError):  # `completed` notices that the worker has died
                    worker.connection.send(task)

    def _may_evaluate(self) -> bool:
        """Whether a worker is free for an evaluation.

        One of several workers is reserved for episodes, because training waits for those.
        """
        evaluating = sum(isinstance(task, EvaluationTask) for task in self._running.values())
        reserved = 1 if self._plays_episodes and len(self._workers) > 1 else 0
        return evaluating < len(self._workers) - reserved

    def completed(self, *, block: bool) -> list[TaskResult]:
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), timeout=0.5 if block and self.pending else 0)
        for connection in ready:
            worker = by_connection[connection]  # type: ignore[index]  # `wait` got connections only
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if isinstance(answer, Exception):
                self._fault = answer
            else:
                del self._running[worker.name]
                self._results.append(answer)
        if self._fault is not None and not self._results:
            raise self._fault
        self._dispatch()
        results, self._results = self._results, []
        return results

    def _replace(self, worker: Worker) -> None:
        """Replace a dead worker, but only once per task: the task may be the cause of death."""
        task = self._running.get(worker.name)
        doing = "idle" if task is None else f"busy with {task}"
        fault = worker_death(worker, doing)
        if doing in self._deaths:
            self._fault = fault
            return
        self._deaths.add(doing)
        if task is not None:
            del self._running[worker.name]
            self._queue(task).appendleft(task)
        index = self._workers.index(worker)
        end_workers([worker])
        # In place: the finalizer holds this list.
        del self._workers[index]
        try:
            new = start_workers(_run_tasks, {worker.name: self._arguments})
        except Exception as error:  # no memory, no processes, whatever starting one raises
            self._continue_without(f"{fault}; a new one does not start: {describe_error(error)}")
        else:
            self._workers[index:index] = new
            self._warn(f"{fault}; a new worker replaces it")

    def _continue_without(self, problem: str) -> None:
        """Continue with the workers that are left; without any, nothing can be done."""
        if self._workers:
            self._warn(f"{problem}; the run continues with {len(self._workers)} worker(s)")
        else:
            self._fault = RunError(problem)

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        answered = [result.task for result in self._results]
        running = [self._running[w.name] for w in self._workers if w.name in self._running]
        return (*answered, *running, *self._episodes, *self._evaluations)

    def abandon(self) -> None:
        pass  # no task runs in this process

    def close(self) -> None:
        self._end()


def _run_tasks(connection: Connection, task: Task, network: Network, script: Script) -> None:
    """Run tasks in a worker process and answer each with a result or an error."""
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
    """Return a pool of workers, or for 0 workers an executor in this process.

    `warn` receives a message when a worker dies.
    """
    return Pool(task, network, workers, warn) if workers else InProcess(task, network)

"""Who runs the tasks: this process, or a pool of worker processes.

A task's result depends on the task alone, so a task that is lost in a crash is simply run again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Protocol

from td7.errors import EnvironmentFault, InputError, RunError, describe_error
from td7.networks.description import Network
from td7.processes import Script, Worker, end_workers, start_workers, worker_death
from td7.rollouts.environment import Environment
from td7.rollouts.episodes import AnyTask, EpisodeTask, EvaluationTask, Player, TaskResult
from td7.rollouts.registration import register_in_worker
from td7.rollouts.watch import Abandonable, AbandonTask, Place, StepTimer, interrupt_fault
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
        """Run no more tasks in this thread, and give up the one it runs; for signal handlers."""
        ...

    def close(self) -> None: ...


class InProcess:
    """Runs tasks in this process, one per call of `completed`."""

    def __init__(self, task: Task, network: Network) -> None:
        self._player = Player(task, network)
        self._queue: deque[AnyTask] = deque()
        self._abandonable = Abandonable()

    def submit(self, task: AnyTask) -> None:
        self._queue.append(task)

    def completed(self, *, block: bool) -> list[TaskResult]:
        del block  # a queued task runs at once either way
        if not self._queue:
            return []
        try:
            result = self._abandonable.run(lambda: self._player.run(self._queue[0]))
        except AbandonTask:  # the task stays in the queue and can be run again
            return []
        self._queue.popleft()
        return [result]

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        return tuple(self._queue)

    def abandon(self) -> None:
        self._abandonable.abandon()

    def close(self) -> None:
        self._player.close()


class Pool:
    """Worker processes, each with its own environments; training episodes precede evaluations.

    A worker that dies is replaced, and its task is queued again. So is one whose environment does
    not return for `step_timeout` seconds, unless that is 0.
    """

    def __init__(
        self,
        task: Task,
        network: Network,
        workers: int,
        warn: Callable[[str], None] = print,
        *,
        step_timeout: float = 0.0,
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
        self._timers = {name: StepTimer(Place.shared(), step_timeout) for name in names}
        self._workers = self._start(names)
        # When Python exits, multiprocessing would send SIGTERM, which workers block, and then wait
        # forever.
        self._end = Finalize(self, end_workers, (self._workers,), exitpriority=0)

    def _start(self, names: Sequence[str]) -> list[Worker]:
        places = {name: self._timers[name].place for name in names}
        arguments = {name: (*self._arguments, place) for name, place in places.items()}
        return start_workers(_run_tasks, arguments)

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
        self._replace_hanging()
        if self._fault is not None and not self._results:
            raise self._fault
        self._dispatch()
        results, self._results = self._results, []
        return results

    def _replace_hanging(self) -> None:
        for worker in list(self._workers):
            timer = self._timers[worker.name]
            if self._fault is None and timer.is_overdue():
                self._replace(worker, timer.fault(worker.name))

    def _replace(self, worker: Worker, fault: EnvironmentFault | None = None) -> None:
        """Replace a worker that is dead or at fault, once per task: the task may be the cause."""
        task = self._running.get(worker.name)
        doing = "idle" if task is None else f"busy with {task}"
        fault = fault or worker_death(worker, doing)
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
        self._timers[worker.name].place.position = 0
        try:
            new = self._start([worker.name])
        except Exception as error:  # no memory, no processes, whatever starting one raises
            self._continue_without(f"{fault}; a new worker cannot start: {describe_error(error)}")
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


def _run_tasks(
    connection: Connection, task: Task, network: Network, script: Script, place: Place
) -> None:
    """Run tasks in a worker process and answer each with a result or an error."""
    Environment.current_place = place
    register_in_worker(task, script)
    player = Player(task, network)
    try:
        while True:
            request = connection.recv()
            try:
                answer: TaskResult | Exception = player.run(request)
            except (RunError, InputError) as error:
                answer = error
            except KeyboardInterrupt:  # no signal reaches this process
                answer = interrupt_fault(str(request))
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        player.close()


def make_executor(
    task: Task,
    network: Network,
    workers: int,
    warn: Callable[[str], None] = print,
    *,
    step_timeout: float = 0.0,
) -> Executor:
    """Return a pool of workers, or for 0 workers an executor in this process.

    `warn` receives a message when a worker dies or hangs.
    """
    if workers:
        return Pool(task, network, workers, warn, step_timeout=step_timeout)
    return InProcess(task, network)

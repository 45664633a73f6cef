"""Episodes and evaluations as pure tasks: weights in, transitions or returns out.

A task's result depends on nothing but the task, so it does not matter which process runs it, when,
or how often: a task lost in a crash is simply given again.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Protocol

import numpy as np

from td7.errors import InputError, RunError
from td7.networks.description import Network
from td7.networks.numpy_actor import Actor
from td7.processes import Script, Worker, death, end, start
from td7.rollouts.environment import Environment, make, own_words
from td7.rollouts.evaluation import beginning, check_finite, evaluate
from td7.seeding import Stream, derived_seed, generator
from td7.types import AnyFloat, Episode, EvaluationEpisode, Exploration, RowLayout, Task


@dataclass(frozen=True)
class EpisodeTask:
    """Play training episode `episode` of `seed`, at most `limit` steps of it."""

    seed: int
    episode: int
    limit: int
    policy: AnyFloat | None  # flat weights; None plays uniformly random actions
    exploration: Exploration

    def __str__(self) -> str:
        return f"seed {self.seed}, episode {self.episode}"


@dataclass(frozen=True)
class EvaluationTask:
    """Play the evaluation of `seed` due at time step `step`."""

    seed: int
    step: int
    episodes: int
    policy: AnyFloat

    def __str__(self) -> str:
        return f"seed {self.seed}, evaluation at step {self.step}"


@dataclass(frozen=True)
class EpisodeDone:
    task: EpisodeTask
    episode: Episode
    seconds: float


@dataclass(frozen=True)
class EvaluationDone:
    task: EvaluationTask
    episodes: tuple[EvaluationEpisode, ...]
    seconds: float
    repeats: bool  # whether episodes follow from their reset seed and actions alone


AnyTask = EpisodeTask | EvaluationTask
Done = EpisodeDone | EvaluationDone


class Player:
    """Runs tasks: one environment for training episodes, another for evaluation."""

    def __init__(self, task: Task, network: Network) -> None:
        self._task = task
        self._network = network
        self._environments: dict[type, Environment] = {}

    def run(self, task: AnyTask) -> Done:
        environment = self._environments.get(type(task))
        if environment is None:
            environment = self._environments[type(task)] = make(self._task)
        begin = time.perf_counter()
        with own_words(str(task)):
            if isinstance(task, EvaluationTask):
                return self._evaluate(environment, task, begin)
            episode = play(environment, self._network, task)
            return EpisodeDone(task, episode, time.perf_counter() - begin)

    def _evaluate(
        self, environment: Environment, task: EvaluationTask, begin: float
    ) -> EvaluationDone:
        """And, the first time, whether an episode is the same again after others."""
        actor = Actor(self._network, task.policy)
        is_first, seed = task.step == 0, derived_seed(task.seed, Stream.EVALUATION_RESET, 0, 0)
        before = beginning(environment, actor, seed) if is_first else []
        returns = tuple(
            evaluate(environment, actor, seed=task.seed, step=task.step, episodes=task.episodes)
        )
        repeats = not is_first or beginning(environment, actor, seed) == before
        return EvaluationDone(task, returns, time.perf_counter() - begin, repeats)

    def close(self) -> None:
        for environment in self._environments.values():
            environment.close()


def play(environment: Environment, network: Network, task: EpisodeTask) -> Episode:
    """One training episode; it depends only on (policy, seed, episode)."""
    actor = None if task.policy is None else Actor(network, task.policy)
    spec = environment.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    reset_seed = derived_seed(task.seed, Stream.EPISODE_RESET, task.episode)
    stream = Stream.RANDOM_ACTION if actor is None else Stream.EXPLORATION
    random = generator(task.seed, stream, task.episode)

    state = environment.reset(reset_seed)
    check_finite(state, 0.0, f"{task}, reset")
    rows: list[AnyFloat] = []
    total, ended = 0.0, False
    while not ended and len(rows) < task.limit:
        if actor is None:
            action: AnyFloat = random.uniform(-1.0, 1.0, spec.action_dim)
        else:
            noise = random.standard_normal(spec.action_dim)
            action = actor.explore(state, noise, task.exploration)
        # The row holds the action as the learner sees it, so the environment is given the same.
        action = action.astype(np.float32)
        next_state, reward, terminated, truncated = environment.step(action)
        check_finite(next_state, reward, f"{task}, step {len(rows) + 1}")
        rows.append(layout.row(state, action, next_state, reward, terminated))
        total += reward
        ended = terminated or truncated
        state = next_state
    return Episode(np.stack(rows), total, len(rows), ended)


class Executor(Protocol):
    """Takes tasks, gives results back in any order."""

    def submit(self, task: AnyTask) -> None: ...

    def completed(self, *, block: bool) -> list[Done]:
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

    def completed(self, *, block: bool) -> list[Done]:
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
        self._workers = start(_work, dict.fromkeys(names, self._given))
        # At the latest when Python ends; it would only send SIGTERM, and wait for ever.
        self._end = Finalize(self, end, (self._workers,), exitpriority=0)

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

    def completed(self, *, block: bool) -> list[Done]:
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), timeout=0.5 if block and self.pending else 0)
        results: list[Done] = []
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
        fault = death(worker, doing)
        if doing in self._lost:
            self._fault = fault
            return
        self._lost.add(doing)
        self._warn(f"{fault}; another takes its place")
        if worker.task is not None:
            self._queue(worker.task).appendleft(worker.task)
        place, name = self._workers.index(worker), worker.process.name
        end([worker])
        self._workers[place : place + 1] = start(_work, {name: self._given})

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
    script.make_known(task)
    player = Player(task, network)
    try:
        while True:
            request = connection.recv()
            try:
                answer: Done | Exception = player.run(request)
            except (RunError, InputError) as error:
                answer = error
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        player.close()


def executor(
    task: Task, network: Network, workers: int, warn: Callable[[str], None] = print
) -> Executor:
    """Worker processes, or none at all for 0; `warn` is told of those that die."""
    return Pool(task, network, workers, warn) if workers else InProcess(task, network)

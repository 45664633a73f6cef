"""Episodes and evaluations as pure tasks: weights in, transitions or returns out.

A task's result depends on nothing but the task, so it does not matter which process runs it, when,
or how often: a task lost in a crash is simply given again.
"""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, Protocol

import numpy as np

from td7.actors import Actor
from td7.architectures import Network
from td7.environments import Environment, make
from td7.errors import RunError, one_line
from td7.evaluation import check_finite, evaluate
from td7.streams import Stream, derived_seed, generator
from td7.types import AnyFloat, Episode, EvaluationEpisode, Float32, RowLayout, Task


@dataclass(frozen=True)
class EpisodeTask:
    """Play training episode `episode` of `seed`, at most `limit` steps of it."""

    seed: int
    episode: int
    limit: int
    policy: AnyFloat | None  # flat weights; None plays uniformly random actions
    exploration_noise: float  # standard deviation, in units of the [-1, 1] action

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
        with _own_words(str(task)):
            if isinstance(task, EvaluationTask):
                actor = Actor(self._network, task.policy)
                returns = evaluate(
                    environment, actor, seed=task.seed, step=task.step, episodes=task.episodes
                )
                return EvaluationDone(task, tuple(returns), time.perf_counter() - begin)
            episode = play(environment, self._network, task)
            return EpisodeDone(task, episode, time.perf_counter() - begin)

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
            noise = task.exploration_noise * random.standard_normal(spec.action_dim)
            action = np.clip(actor(state) + noise, -1.0, 1.0)
        # The row holds the action as the learner sees it, so the environment is given the same.
        action = action.astype(np.float32)
        next_state, reward, terminated, truncated = environment.step(action)
        check_finite(next_state, reward, f"{task}, step {len(rows) + 1}")
        rows.append(_row(layout, state, action, next_state, reward, terminated))
        total += reward
        ended = terminated or truncated
        state = next_state
    return Episode(np.stack(rows), total, len(rows), ended)


def _row(
    layout: RowLayout,
    state: AnyFloat,
    action: AnyFloat,
    next_state: AnyFloat,
    reward: float,
    terminated: bool,
) -> Float32:
    """A transition as the replay keeps it."""
    row = np.empty(layout.width, np.float32)
    # Differs from paper: a true end on the very last step of the time limit is an end; the
    # authors' program takes it for the time limit.
    end = (reward, 0.0 if terminated else 1.0)
    np.concatenate((state, action, next_state, end), out=row, casting="same_kind")
    return row


class Executor(Protocol):
    """Takes tasks, gives results back in any order."""

    def submit(self, task: AnyTask) -> None: ...

    def completed(self, *, block: bool) -> list[Done]:
        """Results that are ready; with `block`, at least one unless a timeout passes first."""
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
            self._is_playing = False
        except Abandoned:  # the task stays, and is played again another time
            self._is_playing = False
            return []
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


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: AnyTask | None = None


class Pool:
    """Worker processes, each with its own environments; training episodes go before evaluations."""

    def __init__(self, task: Task, network: Network, workers: int) -> None:
        self._episodes: deque[AnyTask] = deque()
        self._evaluations: deque[AnyTask] = deque()
        self._workers = _start(_work, [(task, network)] * workers, "td7-worker")
        # At the latest when Python ends; it would only send SIGTERM, and wait for ever.
        self._end = Finalize(self, _end, (self._workers,), exitpriority=0)

    def submit(self, task: AnyTask) -> None:
        queue = self._episodes if isinstance(task, EpisodeTask) else self._evaluations
        queue.append(task)
        self._dispatch()

    def _dispatch(self) -> None:
        for worker in self._workers:
            queue = self._episodes or self._evaluations
            if not queue:
                return
            if worker.task is None:
                worker.task = queue.popleft()
                try:
                    worker.connection.send(worker.task)
                except OSError:
                    raise _death(worker, str(worker.task)) from None

    def completed(self, *, block: bool) -> list[Done]:
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), timeout=0.5 if block and self.pending else 0)
        results: list[Done] = []
        for connection in ready:
            worker = by_connection[connection]  # type: ignore[index]  # only connections are waited for
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                raise _death(worker, "" if worker.task is None else str(worker.task)) from None
            if isinstance(answer, str):
                raise RunError(answer)
            worker.task = None
            results.append(answer)
        self._dispatch()
        return results

    @property
    def pending(self) -> tuple[AnyTask, ...]:
        running = [worker.task for worker in self._workers if worker.task is not None]
        return (*running, *self._episodes, *self._evaluations)

    def abandon(self) -> None:
        pass  # no task runs in this process

    def close(self) -> None:
        self._end()


def _start(
    target: Callable[..., None], arguments: Sequence[tuple[Any, ...]], name: str
) -> list[_Worker]:
    """A process each, that runs `target(connection, *arguments)`."""
    # spawn: a forked copy of a process with CUDA or threads is not safe to use.
    context = get_context("spawn")
    workers = []
    with _single_threaded_children(), _deaf_children():
        for i, given in enumerate(arguments):
            here, there = context.Pipe()
            process = context.Process(
                target=target, args=(there, *given), name=f"{name}-{i}", daemon=True
            )
            process.start()
            there.close()
            workers.append(_Worker(process, here))
    return workers


def _death(worker: _Worker, task: str) -> RunError:
    worker.process.join(timeout=5)
    doing = f"busy with {task}" if task else "idle"
    code = worker.process.exitcode
    how = "is not answering" if code is None else f"died ({_exit_words(code)})"
    return RunError(f"worker process {worker.process.name} {how} while {doing}")


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.connection.close()  # a worker ends when its pipe does
    for worker in workers:
        worker.process.join(timeout=0.2)
        if worker.process.is_alive():  # in the middle of an episode nobody needs
            worker.process.kill()
            worker.process.join()
        worker.process.close()


def _work(connection: Connection, task: Task, network: Network) -> None:
    """A worker process: tasks in, results out, until the pipe closes."""
    player = Player(task, network)
    try:
        while True:
            request = connection.recv()
            try:
                answer: Done | str = player.run(request)
            except RunError as error:
                traceback.print_exc()
                answer = str(error)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        player.close()


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


def _exit_words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def executor(task: Task, network: Network, workers: int) -> Executor:
    """Worker processes, or none at all for 0."""
    return Pool(task, network, workers) if workers else InProcess(task, network)


# -- members in lockstep -----------------------------------------------------------------------


@dataclass(frozen=True)
class Live:
    """An episode that goes on: what it takes to be where it is."""

    episode: int
    is_random: bool  # uniformly random actions
    actions: Float32  # [steps so far, action_dim]: played again, they lead to the same state


class Stepped(NamedTuple):
    """What one time step of a member led to."""

    row: Float32  # the transition
    state: Float32  # what to act on next: of the next episode, where this one ended
    noise: Float32  # standard normals to explore with
    ended: bool
    episode_return: float  # so far
    length: int


class LiveEpisodes:
    """One seed's training episodes, a time step at a time."""

    def __init__(self, task: Task, seed: int, live: Live) -> None:
        self._seed = seed
        self._environment = make(task)
        spec = self._environment.spec
        self._layout = RowLayout(spec.state_dim, spec.action_dim)
        self._begin(live.episode, is_random=live.is_random)
        for action in live.actions:
            self._step(action)

    def _begin(self, episode: int, *, is_random: bool) -> None:
        self._episode = episode
        self._is_random = is_random
        self._return, self._length = 0.0, 0
        stream = Stream.RANDOM_ACTION if is_random else Stream.EXPLORATION
        self._random = generator(self._seed, stream, episode)
        self._state = self._environment.reset(
            derived_seed(self._seed, Stream.EPISODE_RESET, episode)
        )
        check_finite(self._state, 0.0, f"{self}, reset")
        self._draw()

    def _draw(self) -> None:
        """The random part of the next action, ahead of it."""
        size = self._layout.action_dim
        if self._is_random:
            self._chosen = self._random.uniform(-1.0, 1.0, size).astype(np.float32)
            self._noise = np.zeros(size, np.float32)
        else:
            self._noise = self._random.standard_normal(size).astype(np.float32)

    def _step(self, action: Float32) -> tuple[Float32, bool]:
        """The row, and whether the episode ended with it."""
        state, reward, terminated, truncated = self._environment.step(action)
        self._length += 1
        check_finite(state, reward, f"{self}, step {self._length}")
        row = _row(self._layout, self._state, action, state, reward, terminated)
        self._return += reward
        self._state = state
        self._draw()
        return row, terminated or truncated

    def now(self) -> tuple[Float32, Float32]:
        """The state to act on, and the noise to explore with."""
        return self._state.astype(np.float32), self._noise

    def step(self, action: Float32, *, next_is_random: bool) -> Stepped:
        """One time step; where the episode ends, the next one begins."""
        row, ended = self._step(self._chosen if self._is_random else action)
        episode_return, length = self._return, self._length
        if ended:
            self._begin(self._episode + 1, is_random=next_is_random)
        return Stepped(row, *self.now(), ended, episode_return, length)

    def close(self) -> None:
        self._environment.close()

    def __str__(self) -> str:
        return f"seed {self._seed}, episode {self._episode}"


class Stepper(Protocol):
    """All members' environments, each a time step at a time."""

    def now(self) -> list[tuple[Float32, Float32]]:
        """A member's state to act on, and noise to explore with."""
        ...

    def step(self, actions: Float32, next_is_random: Sequence[bool]) -> list[Stepped]:
        """actions [S, action_dim], in [-1, 1]."""
        ...

    def close(self) -> None: ...


class StepperInProcess:
    """One member after the other."""

    def __init__(self, task: Task, seeds: Sequence[int], live: Sequence[Live]) -> None:
        self._members = []
        for seed, where in zip(seeds, live, strict=True):
            with _own_words(f"seed {seed}, episode {where.episode}"):
                self._members.append(LiveEpisodes(task, seed, where))

    def now(self) -> list[tuple[Float32, Float32]]:
        return [member.now() for member in self._members]

    def step(self, actions: Float32, next_is_random: Sequence[bool]) -> list[Stepped]:
        results = []
        for member, action, is_random in zip(self._members, actions, next_is_random, strict=True):
            with _own_words(str(member)):
                results.append(member.step(action, next_is_random=is_random))
        return results

    def close(self) -> None:
        for member in self._members:
            member.close()


@contextmanager
def _own_words(where: str) -> Iterator[None]:
    """Whatever an environment raises, as one line that says where."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise RunError(
            f"{where}: the environment raised {type(error).__name__}: {one_line(error)}"
        ) from error


class StepperPool:
    """Members spread over processes, which step at the same time."""

    def __init__(
        self, task: Task, seeds: Sequence[int], live: Sequence[Live], processes: int
    ) -> None:
        self._shares = [range(i, len(seeds), processes) for i in range(processes)]
        given = [(task, [seeds[m] for m in s], [live[m] for m in s]) for s in self._shares]
        self._workers = _start(_step_for, given, "td7-stepper")
        self._end = Finalize(self, _end, (self._workers,), exitpriority=0)
        self._members = len(seeds)

    def now(self) -> list[tuple[Float32, Float32]]:
        return self._ask([None] * len(self._workers))

    def step(self, actions: Float32, next_is_random: Sequence[bool]) -> list[Stepped]:
        requests = [(actions[s], [next_is_random[m] for m in s]) for s in self._shares]
        return self._ask(requests)

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        """Every worker's answers, in the order of the members."""
        try:
            for worker, request in zip(self._workers, requests, strict=True):
                worker.connection.send(request)
            answers = []
            for worker in self._workers:
                answers.append(worker.connection.recv())
        except (EOFError, OSError):
            raise _death(worker, "a time step") from None
        found: list[Any] = [None] * self._members
        for share, answer in zip(self._shares, answers, strict=True):
            if isinstance(answer, str):
                raise RunError(answer)
            for m, result in zip(share, answer, strict=True):
                found[m] = result
        return found

    def close(self) -> None:
        self._end()


def _step_for(
    connection: Connection, task: Task, seeds: Sequence[int], live: Sequence[Live]
) -> None:
    """A stepping process: actions in, what they led to out, until the pipe closes."""
    stepper: StepperInProcess | None = None
    try:
        while True:
            request = connection.recv()
            try:
                stepper = stepper or StepperInProcess(task, seeds, live)
                answer: Any = stepper.now() if request is None else stepper.step(*request)
            except RunError as error:
                traceback.print_exc()
                answer = str(error)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        if stepper is not None:
            stepper.close()


def stepper(task: Task, seeds: Sequence[int], live: Sequence[Live], processes: int) -> Stepper:
    """Stepping processes, or none at all for 0."""
    if processes:
        return StepperPool(task, seeds, live, min(processes, len(seeds)))
    return StepperInProcess(task, seeds, live)

"""Members' environments in lockstep: one time step at a time, in this process or in others.

No torch here: worker processes import this module.
"""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, Protocol

import numpy as np

from td7.environments import make, own_words
from td7.errors import RunError
from td7.evaluation import check_finite
from td7.processes import Script, death, end, start
from td7.streams import Stream, derived_seed, generator
from td7.types import Float32, RowLayout, Task


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
        row = self._layout.row(self._state, action, state, reward, terminated)
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
            with own_words(f"seed {seed}, episode {where.episode}"):
                self._members.append(LiveEpisodes(task, seed, where))

    def now(self) -> list[tuple[Float32, Float32]]:
        return [member.now() for member in self._members]

    def step(self, actions: Float32, next_is_random: Sequence[bool]) -> list[Stepped]:
        results = []
        for member, action, is_random in zip(self._members, actions, next_is_random, strict=True):
            with own_words(str(member)):
                results.append(member.step(action, next_is_random=is_random))
        return results

    def close(self) -> None:
        for member in self._members:
            member.close()


class StepperPool:
    """Members spread over processes, which step at the same time."""

    def __init__(
        self, task: Task, seeds: Sequence[int], live: Sequence[Live], processes: int
    ) -> None:
        self._shares = [range(i, len(seeds), processes) for i in range(processes)]
        script = Script.current()
        given = [(task, [seeds[m] for m in s], [live[m] for m in s], script) for s in self._shares]
        self._workers = start(_step_for, given, "td7-stepper")
        self._end = Finalize(self, end, (self._workers,), exitpriority=0)
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
            raise death(worker, "a time step") from None
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
    connection: Connection, task: Task, seeds: Sequence[int], live: Sequence[Live], script: Script
) -> None:
    """A stepping process: actions in, what they led to out, until the pipe closes."""
    script.make_known(task)
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

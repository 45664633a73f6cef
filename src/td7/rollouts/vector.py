"""Members' environments in lockstep: one time step at a time, in this process or in others.

No torch here: worker processes import this module.
"""

import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from ctypes import c_byte, c_int64
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td7.errors import InputError, RunError
from td7.processes import Script, Worker, available_cores, end_workers, start_workers, worker_death
from td7.rollouts.environment import environment_faults
from td7.rollouts.evaluation import check_finite
from td7.rollouts.registration import make, register_in_worker
from td7.seeding import Stream, derived_seed, generator
from td7.types import Float32, RowLayout, Task, TaskSpec


@dataclass(frozen=True)
class EpisodeState:
    """An episode that goes on: what it takes to be where it is."""

    episode: int
    is_random: bool  # uniformly random actions
    actions: Float32  # [steps so far, action_dim]: played again, they lead to the same state


class VectorStep(NamedTuple):
    """What a time step led to, a row a member; the next time step writes over it."""

    row: Float32  # [S, width]: transitions
    state: Float32  # what to act on next: of the next episode, where this one ended
    noise: Float32  # standard normals to explore with
    ended: NDArray[np.bool_]
    episode_return: NDArray[np.float64]  # so far
    length: NDArray[np.int64]


class LiveEpisodes:
    """One seed's training episodes, a time step at a time."""

    def __init__(self, task: Task, seed: int, live: EpisodeState) -> None:
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

    def show(self, place: Any) -> None:
        """The state to act on, and the noise to explore with."""
        place["state"] = self._state
        place["noise"] = self._noise

    def step(self, place: Any) -> None:
        """One time step; where the episode ends, the next one begins."""
        action = self._chosen if self._is_random else place["action"]
        place["row"], place["ended"] = self._step(action)
        place["episode_return"], place["length"] = self._return, self._length
        if place["ended"]:
            self._begin(self._episode + 1, is_random=bool(place["next_is_random"]))
        self.show(place)

    def close(self) -> None:
        self._environment.close()

    def __str__(self) -> str:
        return f"seed {self._seed}, episode {self._episode}"


def places(spec: TaskSpec) -> np.dtype[np.void]:
    """A member's place on the board that it and the learner share: what a step takes and gives."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    return np.dtype(
        [
            ("action", np.float32, layout.action_dim),
            ("next_is_random", np.bool_),
            ("row", np.float32, layout.width),
            ("state", np.float32, layout.state_dim),
            ("noise", np.float32, layout.action_dim),
            ("ended", np.bool_),
            ("episode_return", np.float64),
            ("length", np.int64),
        ]
    )


class VectorEnvironment(ABC):
    """All members' environments, each a time step at a time."""

    def __init__(self, board: NDArray[np.void]) -> None:
        self._board = board
        self._stepped = VectorStep(*(board[name] for name in VectorStep._fields))

    def observe(self) -> VectorStep:
        """Where the members are: their states to act on and noise to explore with."""
        self.look()
        return self._stepped

    def step(self, actions: Float32, next_is_random: Sequence[bool]) -> VectorStep:
        """actions [S, action_dim], in [-1, 1]."""
        self._board["action"] = actions
        self._board["next_is_random"] = next_is_random
        self.advance()
        return self._stepped

    @abstractmethod
    def look(self) -> None:
        """Fills in states and noise."""

    @abstractmethod
    def advance(self) -> None:
        """One time step, from the board and to it."""

    @abstractmethod
    def close(self) -> None: ...


class SerialVectorEnvironment(VectorEnvironment):
    """One member after the other."""

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        live: Sequence[EpisodeState],
        board: NDArray[np.void],
    ) -> None:
        super().__init__(board)
        self._members = []
        for seed, where in zip(seeds, live, strict=True):
            with environment_faults(f"seed {seed}, episode {where.episode}"):
                self._members.append(LiveEpisodes(task, seed, where))

    def look(self) -> None:
        for member, place in zip(self._members, self._board, strict=True):
            member.show(place)

    def advance(self) -> None:
        for member, place in zip(self._members, self._board, strict=True):
            with environment_faults(str(member)):
                member.step(place)

    def close(self) -> None:
        for member in self._members:
            member.close()


class ParallelVectorEnvironment(VectorEnvironment):
    """Members spread over processes, which step at the same time, on a board in shared memory.

    A pipe takes longer than a time step: where there are cores enough, processes look at a line of
    shared memory instead, again and again, for what they are asked and for what is done. Each look
    gives the core away to whoever wants it: another run's processes may want the same cores.
    """

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        live: Sequence[EpisodeState],
        spec: TaskSpec,
        processes: int,
        *,
        spins: bool,
    ) -> None:
        dtype = places(spec)
        memory = RawArray(c_byte, len(seeds) * dtype.itemsize)
        super().__init__(_shared(memory, dtype))
        lines = RawArray(c_int64, processes * LINE)
        self._lines = _shared(lines, np.int64).reshape(processes, LINE)
        self._spins = spins
        script = Script.current(task)
        given = {}
        for i in range(processes):
            share = slice(i, None, processes)
            desk = Desk(memory, dtype, share, lines, i, spins)
            given[f"td7-stepper-{i}"] = (task, seeds[share], live[share], desk, script)
        self._workers = start_workers(_step_for, given)
        self._end = Finalize(self, end_workers, (self._workers,), exitpriority=0)

    def look(self) -> None:
        self._ask(LOOK)

    def advance(self) -> None:
        self._ask(ADVANCE)

    def _ask(self, request: int) -> None:
        """Has every worker do it; one to which it fails answers with what went wrong."""
        lines, number = self._lines, int(self._lines[0, ASKED]) + 1
        lines[:, REQUEST] = request
        lines[:, ASKED] = number
        if self._spins:
            waits = 0
            while (lines[:, DONE] != number).any():
                os.sched_yield()
                waits += 1
                if waits % LOOKS == 0:  # something takes long, or someone is gone
                    self._check_alive()
        else:
            for worker in self._workers:
                self._talk(worker, lambda w: w.connection.send_bytes(b""))
            for worker in self._workers:
                self._talk(worker, lambda w: w.connection.recv_bytes())
        if lines[:, FAILED].any():
            worker = self._workers[int(np.flatnonzero(lines[:, FAILED])[0])]
            raise self._talk(worker, lambda w: w.connection.recv())

    def _check_alive(self) -> None:
        for worker in self._workers:
            if not worker.process.is_alive():
                raise worker_death(worker, "busy with a time step")

    def _talk(self, worker: Worker, what: Callable[[Worker], Any]) -> Any:
        try:
            return what(worker)
        except (EOFError, OSError):
            raise worker_death(worker, "busy with a time step") from None

    def close(self) -> None:
        self._end()


# A worker's line of shared memory: numbers of the last request and of the last one done, what is
# asked for, and whether it failed. As long as a cache line, so that no two workers share one.
ASKED, REQUEST, DONE, FAILED, LINE = 0, 1, 2, 3, 8
LOOK, ADVANCE = 1, 2
LOOKS = 20_000  # at shared memory before one at the clock or the other process
PATIENCE = 0.005  # seconds that a worker looks before it begins to rest between looks
REST = 0.0005  # seconds


def _shared(memory: Any, dtype: Any) -> NDArray[Any]:
    return np.frombuffer(memory, dtype)


@dataclass(frozen=True)
class Desk:
    """What a stepping process shares with the learner."""

    memory: Any
    dtype: np.dtype[np.void]
    share: slice
    lines: Any
    number: int
    spins: bool

    def board(self) -> NDArray[np.void]:
        return _shared(self.memory, self.dtype)[self.share]

    def line(self) -> NDArray[np.int64]:
        line: NDArray[np.int64] = _shared(self.lines, np.int64).reshape(-1, LINE)[self.number]
        return line

    def await_request(self, line: NDArray[np.int64], connection: Connection) -> int:
        """What is asked for next; raises EOFError where the learner is gone."""
        if not self.spins:
            connection.recv_bytes()
            return int(line[REQUEST])
        done = line[DONE]
        begin = time.monotonic()
        while line[ASKED] == done:
            os.sched_yield()
            if time.monotonic() - begin > PATIENCE and connection.poll(REST):
                raise EOFError  # nothing is ever sent: this is the pipe's end
        return int(line[REQUEST])


def _step_for(
    connection: Connection,
    task: Task,
    seeds: Sequence[int],
    live: Sequence[EpisodeState],
    desk: Desk,
    script: Script,
) -> None:
    """A stepping process: does what it is asked for until the learner is gone."""
    register_in_worker(task, script)
    line = desk.line()
    stepper: SerialVectorEnvironment | None = None
    try:
        while True:
            request = desk.await_request(line, connection)
            fault: Exception | None = None
            try:
                stepper = stepper or SerialVectorEnvironment(task, seeds, live, desk.board())
                stepper.advance() if request == ADVANCE else stepper.look()
            except (RunError, InputError) as error:
                fault = error
                line[FAILED] = 1
            line[DONE] = line[ASKED]
            if not desk.spins:
                connection.send_bytes(b"")
            if fault is not None:  # after DONE: a long one passes only while the learner reads
                connection.send(fault)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        if stepper is not None:
            stepper.close()


def make_vector_environment(
    task: Task,
    seeds: Sequence[int],
    live: Sequence[EpisodeState],
    spec: TaskSpec,
    processes: int,
    *,
    spins: bool = False,
) -> VectorEnvironment:
    """Stepping processes, or none at all for 0. `spins`: they may keep their cores busy."""
    if processes:
        count = min(processes, len(seeds))
        return ParallelVectorEnvironment(task, seeds, live, spec, count, spins=spins)
    return SerialVectorEnvironment(task, seeds, live, np.zeros(len(seeds), places(spec)))


def can_spin(processes: int) -> bool:
    """Whether so many, and the learner, have a core each, and see writes in their order."""
    return len(available_cores()) > processes and platform.machine() == "x86_64"

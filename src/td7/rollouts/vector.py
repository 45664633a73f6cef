"""All members' environments, advanced one time step at a time, in this process or in others."""

import math
import os
import platform
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from ctypes import c_byte
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from td7.errors import EnvironmentFault, InputError, RunError
from td7.processes import Script, Worker, available_cores, end_workers, start_workers, worker_death
from td7.rollouts.environment import Environment
from td7.rollouts.registration import make_again, register_in_worker
from td7.rollouts.watch import Abandonable, AbandonTask, Place, StepTimer, interrupt_fault
from td7.seeding import Stream, derived_seed, generator
from td7.types import Float32, RowLayout, Task, TaskSpec


@dataclass(frozen=True)
class EpisodeState:
    """What it takes to continue an episode: its actions, replayed, lead to the same state."""

    episode: int
    random_steps: int  # that many actions at its beginning are uniformly random
    actions: Float32  # [steps so far, action_dim]


class VectorStep(NamedTuple):
    """The result of a time step, one row per member; the next time step overwrites it."""

    row: Float32  # [S, width]: transitions
    state: Float32  # to act on next: the first one of the next episode where this one ended
    noise: Float32  # standard normals to explore with
    ended: NDArray[np.bool_]
    episode_return: NDArray[np.float64]  # so far
    length: NDArray[np.int64]


def member_dtype(spec: TaskSpec) -> np.dtype[np.void]:
    """What a member's environment shares with the learner: inputs of a time step, and results."""
    layout = RowLayout(spec.state_dim, spec.action_dim)
    return np.dtype(
        [
            ("action", np.float32, layout.action_dim),
            ("next_random_steps", np.int64),  # of the next episode
            ("row", np.float32, layout.width),
            ("state", np.float32, layout.state_dim),
            ("noise", np.float32, layout.action_dim),
            ("ended", np.bool_),
            ("episode_return", np.float64),
            ("length", np.int64),
        ]
    )


class MemberEnvironment:
    """One seed's environment and its current training episode."""

    def __init__(self, task: Task, seed: int, current: EpisodeState) -> None:
        self._seed = seed
        self._environment = make_again(task)
        spec = self._environment.spec
        self._layout = RowLayout(spec.state_dim, spec.action_dim)
        self._begin(current.episode, current.random_steps)
        for action in current.actions:
            self._step(action)

    def _begin(self, episode: int, random_steps: int) -> None:
        self._episode = episode
        self._random_steps = random_steps
        self._return, self._length = 0.0, 0
        self._random = {
            stream: generator(self._seed, stream, episode)
            for stream in (Stream.RANDOM_ACTION, Stream.EXPLORATION)
        }
        self._state = self._environment.reset(
            derived_seed(self._seed, Stream.EPISODE_RESET, episode),
            f"seed {self._seed}, episode {episode}",
        )
        self._draw()

    def _draw(self) -> None:
        """Draw the random part of the next action."""
        size = self._layout.action_dim
        if self._is_random:
            random = self._random[Stream.RANDOM_ACTION]
            self._random_action = random.uniform(-1.0, 1.0, size).astype(np.float32)
            self._noise = np.zeros(size, np.float32)
        else:
            random = self._random[Stream.EXPLORATION]
            self._noise = random.standard_normal(size).astype(np.float32)

    @property
    def _is_random(self) -> bool:
        """Whether the next action is random."""
        return self._length < self._random_steps

    def _step(self, action: Float32) -> tuple[Float32, bool]:
        """Return the row, and whether the episode ended with it."""
        state, reward, terminated, truncated = self._environment.step(action)
        self._length += 1
        row = self._layout.row(self._state, action, state, reward, terminated)
        self._return += reward
        self._state = state
        self._draw()
        return row, terminated or truncated

    def observe(self, shared: Any) -> None:
        """Write the state to act on, and the noise to explore with."""
        shared["state"] = self._state
        shared["noise"] = self._noise

    def step(self, shared: Any) -> None:
        """Make one time step; where the episode ends, begin the next one."""
        action = self._random_action if self._is_random else shared["action"]
        shared["row"], shared["ended"] = self._step(action)
        shared["episode_return"], shared["length"] = self._return, self._length
        if shared["ended"]:
            self._begin(self._episode + 1, int(shared["next_random_steps"]))
        self.observe(shared)

    def close(self) -> None:
        self._environment.close()


class VectorEnvironment(ABC):
    """All members' environments; a time step advances every member by one."""

    def __init__(self, members: NDArray[np.void]) -> None:
        self._shared = members  # [S] of `member_dtype`
        self._result = VectorStep(*(members[name] for name in VectorStep._fields))

    def observe(self) -> VectorStep:
        """Return the current states to act on and noise to explore with; the rest is undefined."""
        self._write_observations()
        return self._result

    def step(self, actions: Float32, next_random_steps: Sequence[int]) -> VectorStep:
        """Make a time step with actions [S, action_dim] in [-1, 1].

        Where an episode ends with it, the next one begins with so many random actions.
        Raises AbandonTask if it was given up; then no member may step again.
        """
        self._shared["action"] = actions
        self._shared["next_random_steps"] = next_random_steps
        self._advance()
        return self._result

    @abstractmethod
    def _write_observations(self) -> None:
        """Write every member's state and noise."""

    @abstractmethod
    def _advance(self) -> None:
        """Read every member's action, make a time step, write its result."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up the time step, if there is one; signal handlers call this."""

    @abstractmethod
    def close(self) -> None: ...


class SerialVectorEnvironment(VectorEnvironment):
    """Members step one after the other, in this process."""

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        current: Sequence[EpisodeState],
        members: NDArray[np.void],
    ) -> None:
        super().__init__(members)
        self._abandonable = Abandonable()
        self._environments = [
            MemberEnvironment(task, seed, state) for seed, state in zip(seeds, current, strict=True)
        ]

    def _write_observations(self) -> None:
        for environment, shared in zip(self._environments, self._shared, strict=True):
            environment.observe(shared)

    def _advance(self) -> None:
        self._abandonable.run(self._step_all)

    def _step_all(self) -> None:
        for environment, shared in zip(self._environments, self._shared, strict=True):
            environment.step(shared)

    def abandon(self) -> None:
        self._abandonable.abandon()

    def execute(self, command: int) -> None:
        """Carry out a command of the learner's."""
        if command == ADVANCE:
            self._advance()
        else:
            self._write_observations()

    def close(self) -> None:
        for environment in self._environments:
            environment.close()


OBSERVE, ADVANCE = 1, 2  # commands
# The learner writes a command to every mailbox, then the number of its request; a process answers
# with the number of the request that it completed. A mailbox is as long as a cache line, so that no
# two processes write to the same line.
MAILBOX = np.dtype(
    {
        "names": ["requested", "command", "completed", "failed"],
        "formats": [np.int64] * 4,
        "offsets": [0, 8, 16, 24],
        "itemsize": 64,
    }
)
SPINS_PER_CHECK = 20_000  # polls by the learner before it checks the processes
CHECK_SECONDS = 0.25  # how long it waits for a message before it does
ABANDON_SECONDS = 5.0  # that a time step has to end after it was abandoned
SPIN_SECONDS = 0.005  # how long a process polls at full speed before it rests between polls
REST_SECONDS = 0.0005


class SharedBuffers:
    """Arrays in shared memory that the learner and its processes both map."""

    def __init__(self, members: int, dtype: np.dtype[np.void], processes: int) -> None:
        self._dtype = dtype
        self._members: Any = RawArray(c_byte, members * dtype.itemsize)
        self._mailboxes: Any = RawArray(c_byte, processes * MAILBOX.itemsize)
        self.places: Any = RawArray(Place, processes)

    def members(self) -> NDArray[np.void]:
        """[members], of `member_dtype`."""
        return np.frombuffer(memoryview(self._members).cast("B"), self._dtype)

    def mailboxes(self) -> NDArray[np.void]:
        """[processes], of `MAILBOX`."""
        return np.frombuffer(memoryview(self._mailboxes).cast("B"), MAILBOX)


class ParallelVectorEnvironment(VectorEnvironment):
    """Members are divided among processes, which step at the same time.

    A message through a pipe takes longer than a time step. Where there are enough cores, both sides
    therefore poll their mailboxes instead of waiting for a pipe. Each poll yields the core to any
    other process that wants it, such as those of another run.
    """

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        current: Sequence[EpisodeState],
        spec: TaskSpec,
        processes: int,
        *,
        spins: bool,
        step_timeout: float,
    ) -> None:
        buffers = SharedBuffers(len(seeds), member_dtype(spec), processes)
        super().__init__(buffers.members())
        mailboxes = buffers.mailboxes()
        self._requested, self._completed = mailboxes["requested"], mailboxes["completed"]
        self._command, self._failed = mailboxes["command"], mailboxes["failed"]
        self._spins = spins
        self._timers = [StepTimer(place, step_timeout) for place in buffers.places]
        self._give_up_at = math.inf
        script = Script.current(task)
        arguments = {}
        for i in range(processes):
            share = slice(i, None, processes)
            members = (seeds[share], current[share], share)
            arguments[f"td7-stepper-{i}"] = (task, *members, i, buffers, script, spins)
        self._workers = start_workers(_serve_members, arguments)
        self._end = Finalize(self, end_workers, (self._workers,), exitpriority=0)
        self._pollers = {worker.name: select.poll() for worker in self._workers}
        for worker in self._workers:  # faster than `Connection.poll`, which registers every time
            self._pollers[worker.name].register(worker.connection, select.POLLIN)

    def _write_observations(self) -> None:
        self._request(OBSERVE)

    def _advance(self) -> None:
        self._request(ADVANCE)

    def _request(self, command: int) -> None:
        """Have every process do it, and raise what went wrong in one of them."""
        number = int(self._requested[0]) + 1
        self._command[:] = command
        self._requested[:] = number  # last: a process that polls acts on it at once
        if self._spins:
            polls = 0
            while (self._completed != number).any():
                os.sched_yield()
                polls += 1
                if polls % SPINS_PER_CHECK == 0:
                    self._check_workers()
        else:
            for worker in self._workers:
                self._communicate(worker, lambda w: w.connection.send_bytes(b""))
            for worker in self._workers:
                self._communicate(worker, self._await_reply)
        if self._failed.any():
            worker = self._workers[int(np.flatnonzero(self._failed)[0])]
            raise self._communicate(worker, lambda w: w.connection.recv())

    def _await_reply(self, worker: Worker) -> None:
        while not self._pollers[worker.name].poll(CHECK_SECONDS * 1000):
            self._check_workers()
        worker.connection.recv_bytes()

    def _check_workers(self) -> None:
        """Raise if a time step under way cannot end, or was abandoned a while ago."""
        for worker, timer in zip(self._workers, self._timers, strict=True):
            if not worker.process.is_alive():
                raise self._death(worker)
            if timer.is_overdue():
                raise timer.fault(worker.name)
        if time.monotonic() > self._give_up_at:
            raise AbandonTask

    def _communicate(self, worker: Worker, what: Callable[[Worker], Any]) -> Any:
        try:
            return what(worker)
        except (EOFError, OSError):
            raise self._death(worker) from None

    def _death(self, worker: Worker) -> EnvironmentFault:
        place = self._timers[self._workers.index(worker)].place
        return worker_death(worker, f"busy with {place if place.position else 'a time step'}")

    def abandon(self) -> None:
        self._give_up_at = time.monotonic() + ABANDON_SECONDS

    def close(self) -> None:
        self._end()


class Mailbox:
    """A process's side of the protocol."""

    def __init__(self, mailbox: NDArray[np.void], connection: Connection, *, spins: bool) -> None:
        self._requested, self._completed = mailbox["requested"], mailbox["completed"]
        self._command, self._failed = mailbox["command"], mailbox["failed"]
        self._connection = connection
        self._spins = spins

    def receive(self) -> int:
        """Wait for a command; raise EOFError if the learner has ended."""
        if not self._spins:
            self._connection.recv_bytes()
            return int(self._command[0])
        completed = self._completed[0]
        begin = time.monotonic()
        while self._requested[0] == completed:
            os.sched_yield()
            if time.monotonic() - begin > SPIN_SECONDS and self._connection.poll(REST_SECONDS):
                raise EOFError  # the learner sends nothing here, so this is the pipe's end
        return int(self._command[0])

    def reply(self, fault: Exception | None) -> None:
        if fault is not None:
            self._failed[0] = 1
        self._completed[0] = self._requested[0]
        if not self._spins:
            self._connection.send_bytes(b"")
        if fault is not None:  # last: a long one fills the pipe until the learner reads it
            self._connection.send(fault)


def _serve_members(
    connection: Connection,
    task: Task,
    seeds: Sequence[int],
    current: Sequence[EpisodeState],
    share: slice,
    index: int,
    buffers: SharedBuffers,
    script: Script,
    spins: bool,
) -> None:
    """Step the members `share` in a process of their own until the learner ends."""
    Environment.current_place = buffers.places[index]
    register_in_worker(task, script)
    members = buffers.members()[share]
    mailbox = Mailbox(buffers.mailboxes()[index : index + 1], connection, spins=spins)
    environments: SerialVectorEnvironment | None = None
    try:
        while True:
            command = mailbox.receive()
            fault: Exception | None = None
            try:
                environments = environments or SerialVectorEnvironment(
                    task, seeds, current, members
                )
                environments.execute(command)
            except (RunError, InputError) as error:
                fault = error
            except KeyboardInterrupt:  # no signal reaches this process
                fault = interrupt_fault(f"seeds {', '.join(map(str, seeds))}")
            mailbox.reply(fault)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        if environments is not None:
            environments.close()


def make_vector_environment(
    task: Task,
    seeds: Sequence[int],
    current: Sequence[EpisodeState],
    spec: TaskSpec,
    processes: int,
    *,
    spins: bool = False,
    step_timeout: float = 0.0,
) -> VectorEnvironment:
    """Return the members' environments, for 0 processes in this one.

    With `spins`, processes may keep their cores busy while they wait. A process whose environment
    does not return for `step_timeout` seconds is a fault; 0: it may take for ever.
    """
    if processes:
        count = min(processes, len(seeds))
        return ParallelVectorEnvironment(
            task, seeds, current, spec, count, spins=spins, step_timeout=step_timeout
        )
    members = np.zeros(len(seeds), member_dtype(spec))
    return SerialVectorEnvironment(task, seeds, current, members)


def can_spin(processes: int) -> bool:
    """Whether these processes and the learner have a core each, and see writes in order."""
    return len(available_cores()) > processes and platform.machine() == "x86_64"

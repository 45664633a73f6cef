"""Tiny Gymnasium tasks, which worker processes import as `toys:Name-v0`."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Point(gymnasium.Env[Array, Array]):
    """Hold a point on a line at 0; an episode terminates where |x| > 2."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(np.array([-1.0, -2.0]), np.array([3.0, 2.0]), dtype=np.float64)

    def __init__(self, fault: str = "", at: int = 3) -> None:
        # "raise", "long", "exit", "state", "reward" or "kill"; or the path of a file: while it
        # exists, an episode that begins far to the right raises.
        self._fault = fault
        self._at = at  # the step at which it happens
        self._x = np.zeros(2)
        self._begin, self._steps = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._x = self.np_random.uniform(-1.0, 1.0, 2)
        self._begin, self._steps = float(self._x[0]), 0
        return self._x.copy(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        reward = 1.0 - float(np.abs(self._x[0]))
        if self._begin > 0.9 and self._steps == self._at and Path(self._fault).is_file():
            raise ValueError("the motor is cold")
        if self._fault and self._steps == self._at:
            if self._fault == "raise":
                raise ValueError("the motor\nis on fire")
            if self._fault == "long":
                raise ValueError("fire! " * 200_000)
            if self._fault == "exit":
                sys.exit(3)
            if self._fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._fault == "state":
                self._x[1] = np.nan
            if self._fault == "reward":
                reward = float("inf")
        self._x = np.array([self._x[0] + 0.1 * self._x[1], 0.9 * self._x[1]])
        self._x[1] += 0.2 * (action[0] - 1.0) + 0.05 * action[1]
        return self._x.copy(), reward, bool(np.abs(self._x[0]) > 2.0), False, {}


class Helped(Point):
    """The point with a program and a process, like a simulator's; `close` ends both."""

    def __init__(self) -> None:
        super().__init__()
        self._program = subprocess.Popen(["sleep", "600"])
        self._process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        self._process.start()

    def close(self) -> None:
        self._program.terminate()
        self._process.terminate()
        self._program.wait(timeout=10)
        self._process.join(timeout=10)
        if self._process.exitcode is None:
            raise TimeoutError("the process does not end")


gymnasium.register("Point-v0", entry_point="toys:Point", max_episode_steps=20)
gymnasium.register("Helped-v0", entry_point="toys:Helped", max_episode_steps=20)
gymnasium.register("Faulty-v0", entry_point="toys:Point", kwargs={"fault": "raise"})


class Count(gymnasium.Env[Array, Array]):
    """Observes the number of steps, each worth 1; terminates at step `ends_at`, if positive."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self, ends_at: int = 0) -> None:
        self._ends_at = ends_at
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return np.array([float(self._steps)]), 1.0, self._steps == self._ends_at, False, {}


gymnasium.register("Count-v0", entry_point="toys:Count", max_episode_steps=5)
gymnasium.register("Endless-v0", entry_point="toys:Count")  # no end and no time limit


class Drawn(Point):
    """The point with frames, each a single grey that is brighter at every step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        size: tuple[int, int] = (48, 64),
        draws: str = "",
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        self.render_mode = render_mode
        self._size = size
        self._draws = draws  # from frame 3 on: "none", "raise", "slow" or "small"

    def render(self) -> Any:
        frame = np.full((*self._size, 3), 60 + 5 * self._steps, np.uint8)
        if self._draws and self._steps >= 3:
            if self._draws == "none":
                return None
            if self._draws == "raise":
                raise ValueError("the pencil\nis broken")
            if self._draws == "slow":
                print("drawing", file=sys.stderr, flush=True)
                time.sleep(60)  # until a signal interrupts it
            if self._draws == "small":
                return frame[:-2]
        return frame


gymnasium.register("Drawn-v0", entry_point="toys:Drawn", max_episode_steps=20)


class Configurable(Point):
    """The point, which takes any keyword arguments and ignores them."""

    def __init__(self, **_: Any) -> None:
        super().__init__()


gymnasium.register("Configurable-v0", entry_point="toys:Configurable", max_episode_steps=20)


class Hanging(Point):
    """The point, in which a step of an episode that begins far to the right does not return.

    It does while there is no file `gate`. A file `gate`.reached says that a step hangs.
    """

    def __init__(self, gate: str, how: str = "wait") -> None:
        # "once": it removes `gate`, so that it hangs no more. "deaf": it holds Python's lock, and
        # no signal reaches it.
        super().__init__()
        self._gate = Path(gate)
        self._how = how

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._begin > 0.9 and self._steps == 2 and self._gate.is_file():
            self._hang()
        return super().step(action)

    def _hang(self) -> None:
        if self._how == "once":
            self._gate.unlink()
        if self._how == "deaf":  # before the file invites a signal
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._gate.with_suffix(".reached").touch()
        if self._how == "deaf":
            ctypes.PyDLL(None).sleep(60)
        threading.Event().wait(60)


gymnasium.register("Hanging-v0", entry_point="toys:Hanging", max_episode_steps=20)


class Wanderer(Drawn):
    """The point, which changes its process's working folder when it is made, begins and ends."""

    def __init__(self, to: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self._to = to
        os.chdir(self._to)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        os.chdir(self._to)
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        os.chdir(self._to)


gymnasium.register("Wanderer-v0", entry_point="toys:Wanderer", max_episode_steps=20)


class Legacy(Drawn):
    """The point, whose reset takes seeds of so many bits, like those of tasks with old generators.

    A file `log` gets a line per reset: the seed.
    """

    def __init__(self, bits: int = 32, log: str = "", render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self._most = 2**bits - 1
        self._log = log

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if seed is None or seed > self._most:
            raise ValueError(f"Seed must be between 0 and {self._most}")
        if self._log:
            with Path(self._log).open("a") as file:
                file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


gymnasium.register("Legacy-v0", entry_point="toys:Legacy", max_episode_steps=20)


class Sensors(gymnasium.Env[dict[str, Any], Array]):
    """The point, which observes its velocity and, nested, its place, a number without a shape."""

    observation_space = Dict(
        OrderedDict(
            velocity=Box(-np.inf, np.inf, (1,), np.float64),
            place=Tuple([Dict(x=Box(-np.inf, np.inf, (), np.float64))]),
        )
    )
    action_space = Point.action_space

    def __init__(self, without: str = "") -> None:
        self._point = Point()
        self._without = without  # an entry that is missing

    def _split(self, state: Array) -> dict[str, Any]:
        observation = {"velocity": state[1:], "place": ({"x": state[0]},)}
        observation.pop(self._without, None)
        return observation

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        state, info = self._point.reset(seed=seed, options=options)
        return self._split(state), info

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self._point.step(action)
        return self._split(state), reward, terminated, truncated, info


gymnasium.register("Sensors-v0", entry_point="toys:Sensors", max_episode_steps=20)

"""A Gymnasium environment with flat states, actions in [-1, 1], and terminated ≠ truncated."""

import math
import os
import sys
import traceback
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar, final

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from td7.errors import (
    NOT_FAULTS,
    ActionFault,
    EnvironmentFault,
    InputError,
    RunError,
    describe_raised,
    one_line,
    warn_once,
)
from td7.rollouts.observations import boxes, flatten
from td7.rollouts.watch import EPISODE_BYTES, Place
from td7.seeding import SEED_BITS, reset_seed
from td7.types import AnyFloat, Float64, Task, TaskSpec

RESET = ("observation", "info")  # what an environment's methods return
STEP = ("observation", "reward", "terminated", "truncated", "info")
LARGEST = np.float64(np.finfo(np.float32).max)  # in the replay, everything is float32
Result = TypeVar("Result")


class Step(NamedTuple):
    """The result of one action. Both flags are set if the task ends exactly at its time limit."""

    state: AnyFloat
    reward: float
    terminated: bool  # the task really ended
    truncated: bool  # the episode was cut, by the time limit or by the task


@final
@dataclass(frozen=True)
class ActionMap:
    """One affine map per dimension between [-1, 1] and the task's own bounds [low, high]."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def to_task(self, action: ArrayLike) -> Float64:
        """Map an action in [-1, 1] to the task's bounds; both are [..., dimensions]."""
        task_action = self._middle + self._half_width * np.asarray(action, np.float64)
        return np.minimum(np.maximum(task_action, self._low), self._high)

    def to_unit(self, action: ArrayLike) -> Float64:
        """Map the task's action to [-1, 1]; both are [..., dimensions]."""
        unit_action = (np.asarray(action, np.float64) - self._middle) / self._half_width
        return np.minimum(np.maximum(unit_action, -1.0), 1.0)

    @cached_property
    def _low(self) -> Float64:
        return np.array(self.low, np.float64)

    @cached_property
    def _high(self) -> Float64:
        return np.array(self.high, np.float64)

    @cached_property
    def _middle(self) -> Float64:
        return self._low / 2 + self._high / 2

    @cached_property
    def _half_width(self) -> Float64:
        return self._high / 2 - self._low / 2


class ForeignCode:
    """Calls a task's code, which may raise anything, and change how Python and NumPy behave."""

    def __init__(self) -> None:
        self._context = copy_context()  # in which np.seterr has effect

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        limit = sys.getrecursionlimit()
        try:
            return self._context.run(function, *arguments)
        finally:
            if sys.getrecursionlimit() < limit:
                sys.setrecursionlimit(limit)


@final
class Environment:
    """A task to act in. An episode is a pure function of its reset seed and its actions.

    Whatever the task's code raises or returns wrongly becomes an EnvironmentFault, whose message
    begins with the place: the name of the episode and the step.
    """

    # Of this process, in which one environment acts at a time; workers share theirs.
    current_place: ClassVar[Place] = Place()
    _named: ClassVar[str] = ""  # the episode that it names

    def __init__(
        self, task: Task, env: gymnasium.Env[Any, Any], foreign: ForeignCode | None = None
    ) -> None:
        observed = boxes(getattr(env, "observation_space", None), f"task {task.id!r}")
        entries = tuple(entry for entry, _ in observed)
        is_box = not entries[0].path
        actions = _action_box(task, env)
        low, high = (tuple(map(float, bound.ravel())) for bound in (actions.low, actions.high))
        _check_bounds(task, low, high)
        self.env = env
        self.action_map = ActionMap(low, high)
        self.spec = TaskSpec(
            task=task,
            state_shape=entries[0].shape if is_box else (sum(entry.size for entry in entries),),
            action_shape=actions.shape,
            action_low=low,
            action_high=high,
            time_limit=env.spec.max_episode_steps if env.spec else None,
            action_dtype=str(actions.dtype),
            entries=() if is_box else entries,
        )
        self._foreign = foreign or ForeignCode()
        self._episode, self._steps = task.id, 0
        self._action: AnyFloat | None = None  # the last one
        is_double = any(box.dtype == np.float64 for _, box in observed)
        self._state_dtype: type[np.floating[Any]] = np.float64 if is_double else np.float32
        self._action_dtype = np.dtype(actions.dtype)

    def reset(self, seed: int, episode: str = "") -> AnyFloat:
        """Begin the episode of this seed of 63 bits and return its first state, [state_dim].

        Messages call it `episode`.
        """
        task = self.spec.task
        self._episode, self._steps = episode or task.id, 0
        self._action = None
        return self._call(self._reset, reset_seed(int(seed), task.seed_bits or SEED_BITS[0]))

    def _reset(self, seed: int) -> AnyFloat:
        result = self._foreign.call(lambda: self.env.reset(seed=seed))
        observation, _ = _parts("reset", result, RESET)
        return self._state(observation)

    def step(self, action: AnyFloat) -> Step:
        """Take an action in [-1, 1], [action_dim]."""
        if np.shape(action) != (self.spec.action_dim,):
            raise RunError(
                f"{self.spec.task.id}: an action must have the shape ({self.spec.action_dim},), "
                f"not {np.shape(action)}"
            )
        self._action = action
        task_action = self.action_map.to_task(action)
        if self._action_dtype.kind != "f":
            task_action = np.rint(task_action)
        self._steps += 1
        return self._call(
            self._step, task_action.astype(self._action_dtype).reshape(self.spec.action_shape)
        )

    def _step(self, action: NDArray[Any]) -> Step:
        result = self._foreign.call(self.env.step, action)
        observation, reward, terminated, truncated, _ = _parts("step", result, STEP)
        return Step(
            self._state(observation),
            _reward(reward),
            bool(_scalar("terminated", terminated)),
            bool(_scalar("truncated", truncated)),
        )

    def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call what contains the task's code; an EnvironmentFault says what is wrong with it."""
        place = Environment.current_place
        if Environment._named is not self._episode:  # equal ones need not be compared
            place.episode = self._episode.encode()[:EPISODE_BYTES]
            Environment._named = self._episode
        place.position = self._steps + 1
        try:
            return function(*arguments)
        except NOT_FAULTS:
            raise
        except _WrongResultError as error:
            fault = self._fault
            problem = "received an action that is not finite" if fault is ActionFault else error
            raise fault(f"{self._where}: the environment {problem}") from None
        except BaseException as error:
            raise self._fault(
                f"{self._where}: the environment raised {describe_raised(error)}",
                "".join(traceback.format_exception(error)),
            ) from error
        finally:
            place.position = 0

    @property
    def _fault(self) -> type[EnvironmentFault]:
        """What a fault of the environment now is; an action that is not finite explains any."""
        is_finite = self._action is None or np.isfinite(self._action).all()
        return EnvironmentFault if is_finite else ActionFault

    @property
    def _where(self) -> str:
        return f"{self._episode}, {f'step {self._steps}' if self._steps else 'reset'}"

    def render(self) -> NDArray[np.uint8]:
        """Return the current frame, [height, width, 3]."""
        if self.env.render_mode != "rgb_array":
            raise RunError(
                f"{self.spec.task.id}: it was made without render=True, so it has no frames"
            )
        try:
            image: Any = self._foreign.call(self.env.render)
            frame = np.asarray(() if image is None else image, np.uint8)
        except NOT_FAULTS:
            raise
        except BaseException as error:  # a graphics library may raise anything
            problem = f"its render() raised {describe_raised(error)}"
            if _is_from_mujoco(error):
                backend = f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}"
                remedy = "without a screen, set MUJOCO_GL=egl or MUJOCO_GL=osmesa"
                problem = f"no frame with {backend} ({remedy}): {one_line(error)}"
            raise RunError(f"{self.spec.task.id}: {problem}") from error
        if frame.ndim != 3 or not frame.size:
            raise RunError(
                f"{self.spec.task.id}: its render() returned no frame [height, width, 3]"
            )
        return frame

    def close(self) -> None:
        """Close the task. What its code raises is only shown: the results are complete by now."""
        try:
            self._foreign.call(self.env.close)
        except NOT_FAULTS:
            raise
        except BaseException as error:  # the task's
            warn_once(f"task {self.spec.task.id}: its close() raised {describe_raised(error)}")

    def _state(self, observation: Any) -> AnyFloat:
        if self.spec.entries:
            try:
                observation = flatten(self.spec.entries, observation)
            except ValueError as error:
                raise _WrongResultError(f"returned a wrong observation: {error}") from None
        array = np.asarray(observation)
        if array.shape != self.spec.state_shape:
            raise _WrongResultError(
                f"returned an observation of the shape {array.shape}, "
                f"but its observation space has the shape {self.spec.state_shape}"
            )
        if array.dtype.kind not in "biufO":
            problem = f"returned an observation of type {array.dtype}"
            raise _WrongResultError(f"{problem}; allowed: numbers")
        if not (fits := np.abs(array) <= LARGEST).all():  # false for NaN
            dimension = int(np.flatnonzero(~fits)[0])
            problem = _problem("observation", float(array.flat[dimension]))
            raise _WrongResultError(f"{problem} (dimension {dimension})")
        # Always a copy: a task may reuse the array that it returned.
        return array.astype(self._state_dtype).reshape(-1)


class _WrongResultError(Exception):
    """What an environment returned is not what it should be."""


def _parts(method: str, result: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what a method of an environment returned, if it has these parts."""
    if isinstance(result, tuple | list) and len(result) == len(names):
        return tuple(result)
    size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
    returned = f"{type(result).__name__}{size} from {method}()"
    raise _WrongResultError(f"returned {returned}; allowed: ({', '.join(names)})")


def _scalar(name: str, value: Any) -> float | bool:
    """Return a number or a flag, which may also be an array of one."""
    if isinstance(value, float | int):
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        shape = f" of the shape {array.shape}" if array.ndim else ""
        returned = f"{type(value).__name__}{shape} as {name}"
        raise _WrongResultError(f"returned {returned}; allowed: a number")
    number: float | bool = array.item()
    return number


def _reward(value: Any) -> float:
    try:
        reward = float(_scalar("reward", value))
    except OverflowError:  # a whole number
        reward = math.inf
    if not abs(reward) <= LARGEST:  # false for NaN
        raise _WrongResultError(f"{_problem('reward', reward)} ({reward})")
    return reward


def _problem(kind: str, number: float) -> str:
    """Say what is wrong with a number that the replay cannot hold."""
    if math.isfinite(number):
        return f"returned {number:.1e} as {kind}, which float32 cannot hold"
    return f"returned a non-finite {kind}"


def _action_box(task: Task, env: gymnasium.Env[Any, Any]) -> Box:
    """Return the environment's action space, which must be a Box."""
    space = getattr(env, "action_space", None)
    if not isinstance(space, Box):
        name = type(space).__name__
        raise InputError(f"task {task.id!r} has a {name} action space; allowed: a Box")
    if 0 in space.shape:
        raise InputError(f"task {task.id!r} has an empty action space, of shape {space.shape}")
    return space


def _check_bounds(task: Task, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    for dimension, bounds in enumerate(zip(low, high, strict=True)):
        if not np.isfinite(bounds).all():
            problem = "not finite"
        elif bounds[0] == bounds[1]:
            problem = "equal"
        else:
            continue
        raise InputError(
            f"task {task.id!r}: the bounds of action dimension {dimension} are {problem}: "
            f"[{bounds[0]}, {bounds[1]}]; allowed: finite, low < high"
        )


def _is_from_mujoco(error: BaseException) -> bool:
    """Whether the code that raised is MuJoCo's, where MUJOCO_GL matters."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = (str(frame.f_globals.get("__name__")).split(".") for frame in frames)
    return any({"mujoco", "dm_control"} & set(module) for module in modules)

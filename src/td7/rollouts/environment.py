"""A Gymnasium environment with flat states, actions in [-1, 1], and terminated ≠ truncated."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, final

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from td7.errors import EnvironmentFault, InputError, RunError, one_line
from td7.rollouts.watch import Place
from td7.types import AnyFloat, Float64, Task, TaskSpec


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


@final
class Environment:
    """A task to act in. An episode is a pure function of its reset seed and its actions."""

    # Of this process, in which one environment acts at a time; workers share theirs.
    current_place: ClassVar[Place] = Place()

    def __init__(self, task: Task, env: gymnasium.Env[Any, Any]) -> None:
        states = _box(task, "observation", env)
        actions = _box(task, "action", env)
        low, high = (tuple(map(float, bound.ravel())) for bound in (actions.low, actions.high))
        _check_bounds(task, low, high)
        self.env = env
        self.action_map = ActionMap(low, high)
        self.spec = TaskSpec(
            task=task,
            state_shape=states.shape,
            action_shape=actions.shape,
            action_low=low,
            action_high=high,
            time_limit=env.spec.max_episode_steps if env.spec else None,
            action_dtype=str(actions.dtype),
        )
        self._state_dtype: type[np.floating[Any]] = (
            np.float64 if states.dtype == np.float64 else np.float32
        )
        self._action_dtype = np.dtype(actions.dtype)
        self._episode, self._steps = "", 0

    def reset(self, seed: int, episode: str = "") -> AnyFloat:
        """Begin the episode of this seed and return its first state, [state_dim].

        Messages call it `episode`.
        """
        self._episode, self._steps = episode, 0
        Environment.current_place.enter(self._episode, self._steps)
        try:
            observation, _ = self.env.reset(seed=int(seed))
        finally:
            Environment.current_place.leave()
        return self._state(observation)

    def step(self, action: AnyFloat) -> Step:
        """Take an action in [-1, 1], [action_dim]."""
        if np.shape(action) != (self.spec.action_dim,):
            raise RunError(
                f"{self.spec.task.id}: an action must have the shape ({self.spec.action_dim},), "
                f"not {np.shape(action)}"
            )
        task_action = self.action_map.to_task(action)
        if self._action_dtype.kind != "f":
            task_action = np.rint(task_action)
        shaped = task_action.astype(self._action_dtype).reshape(self.spec.action_shape)
        self._steps += 1
        Environment.current_place.enter(self._episode, self._steps)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(shaped)
        finally:
            Environment.current_place.leave()
        return Step(self._state(observation), float(reward), bool(terminated), bool(truncated))

    def render(self) -> NDArray[np.uint8]:
        """Return the current frame, [height, width, 3]."""
        if self.env.render_mode != "rgb_array":
            raise RunError(
                f"{self.spec.task.id}: it was made without render=True, so it has no frames"
            )
        try:
            image: Any = self.env.render()
            frame = np.asarray(() if image is None else image, np.uint8)
        except Exception as error:  # a graphics library may raise anything
            problem = f"its render() raised {type(error).__name__}"
            if _is_from_mujoco(error):
                backend = f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}"
                remedy = "without a screen, set MUJOCO_GL=egl or MUJOCO_GL=osmesa"
                problem = f"no frame with {backend} ({remedy})"
            raise RunError(f"{self.spec.task.id}: {problem}: {one_line(error)}") from error
        if frame.ndim != 3 or not frame.size:
            raise RunError(f"{self.spec.task.id}: its render() gave no frame [height, width, 3]")
        return frame

    def close(self) -> None:
        self.env.close()

    def _state(self, observation: Any) -> AnyFloat:
        array = np.asarray(observation)
        if array.shape != self.spec.state_shape:
            raise EnvironmentFault(
                f"{self.spec.task.id}: an observation has the shape {array.shape}, "
                f"not the shape of the observation space {self.spec.state_shape}"
            )
        # Always a copy: a task may reuse the array that it returned.
        return array.astype(self._state_dtype).reshape(-1)


def _box(task: Task, kind: str, env: gymnasium.Env[Any, Any]) -> Box:
    """Return the environment's observation or action space, which must be a Box."""
    space = getattr(env, f"{kind}_space", None)
    if not isinstance(space, Box):
        name = type(space).__name__
        hint = (
            " (gymnasium.wrappers.FlattenObservation makes one)"
            if (name, kind) == ("Dict", "observation")
            else ""
        )
        raise InputError(f"task {task.id!r} has a {name} {kind} space; allowed: a Box{hint}")
    if 0 in space.shape:
        raise InputError(f"task {task.id!r} has an empty {kind} space, of shape {space.shape}")
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


def _is_from_mujoco(error: Exception) -> bool:
    """Whether the code that raised is MuJoCo's, where MUJOCO_GL matters."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = (str(frame.f_globals.get("__name__")).split(".") for frame in frames)
    return any({"mujoco", "dm_control"} & set(module) for module in modules)


@contextmanager
def environment_faults(where: str) -> Iterator[None]:
    """Turn what an environment raises into an EnvironmentFault with the place and the traceback.

    That includes `sys.exit`. Only KeyboardInterrupt and `AbandonTask` are not the
    environment's.
    """
    try:
        yield
    except (RunError, InputError):
        raise
    except (Exception, SystemExit) as error:
        message = f"{where}: the environment raised {type(error).__name__}: {one_line(error)}"
        raise EnvironmentFault(message, "".join(traceback.format_exception(error))) from error

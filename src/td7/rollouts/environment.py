"""Task id → environment, with flat states, actions in [-1, 1], and terminated ≠ truncated.

No torch here: worker processes import this module.
"""

import importlib
import importlib.metadata
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from td7.errors import (
    EnvironmentFault,
    InputError,
    RunError,
    UnknownTask,
    nearest,
    one_line,
    told,
    unknown,
)
from td7.types import AnyFloat, Float64, Task, TaskSpec, without_version

PAPER_TASKS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4", "Humanoid-v4")
_NOT_INSTALLED = (ImportError, gymnasium.error.DependencyNotInstalled)


class Step(NamedTuple):
    """What one action led to. An end on the last step of the time limit is both flags at once."""

    state: AnyFloat
    reward: float
    terminated: bool  # the task really ended
    truncated: bool  # the episode was cut, by the time limit or by the task


@final
@dataclass(frozen=True)
class ActionMap:
    """One affine map per dimension between [-1, 1] and a task's own bounds [low, high]."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def to_task(self, action: ArrayLike) -> Float64:
        """The task's action, within its bounds, for one in [-1, 1]; [..., dimensions] both."""
        task_action = self._middle + self._half_width * np.asarray(action, np.float64)
        return np.minimum(np.maximum(task_action, self._low), self._high)

    def to_unit(self, action: ArrayLike) -> Float64:
        """The action in [-1, 1] for the task's own; [..., dimensions] both."""
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

    def reset(self, seed: int) -> AnyFloat:
        """The first state, [state_dim], of the episode that belongs to this seed."""
        observation, _ = self.env.reset(seed=int(seed))
        return self._state(observation)

    def step(self, action: AnyFloat) -> Step:
        """What follows an action in [-1, 1], [action_dim]."""
        if np.shape(action) != (self.spec.action_dim,):
            raise RunError(
                f"{self.spec.task.id}: an action has {self.spec.action_dim} numbers, "
                f"not the shape {np.shape(action)}"
            )
        task_action = self.action_map.to_task(action)
        if self._action_dtype.kind != "f":
            task_action = np.rint(task_action)
        observation, reward, terminated, truncated, _ = self.env.step(
            task_action.astype(self._action_dtype).reshape(self.spec.action_shape)
        )
        return Step(self._state(observation), float(reward), bool(terminated), bool(truncated))

    def render(self) -> NDArray[np.uint8]:
        """The current frame, [height, width, 3]."""
        if self.env.render_mode != "rgb_array":
            raise RunError(f"{self.spec.task.id}: made without render=True, so it has no frames")
        try:
            drawn: Any = self.env.render()
            frame = np.asarray(() if drawn is None else drawn, np.uint8)
        except Exception as error:  # whatever the task's graphics library raises
            problem = f"its render() raised {type(error).__name__}"
            if _from_mujoco(error):
                given = f"with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}"
                problem = f"no frame {given} (without a screen, MUJOCO_GL=egl or MUJOCO_GL=osmesa)"
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
                f"its observation space {self.spec.state_shape}"
            )
        # A copy, always: a task may go on writing to the array it gave.
        return array.astype(self._state_dtype).reshape(-1)


def make(task: Task, *, render: bool = False) -> Environment:
    """A new environment; with `render`, one that draws frames."""
    spec = _registered(task)
    # Gymnasium's checker costs time at every step; what matters of it is checked in Environment.
    options: dict[str, Any] = {"disable_env_checker": True, **task.kwargs}
    if render:
        options["render_mode"] = "rgb_array"
    try:
        with warnings.catch_warnings():
            if render:  # Gymnasium warns of a task that draws no frames; the error below is enough
                warnings.simplefilter("ignore")
            # Given the spec instead of the id, Gymnasium does not warn that v4 has a successor.
            env = gymnasium.make(spec, **options)
    except _NOT_INSTALLED as error:
        message = f"task {task.id!r} needs what is not installed: {one_line(error)}"
        raise InputError(message) from error
    # A task's constructor is foreign code: it may raise anything, or mean to exit.
    except (Exception, SystemExit) as error:
        if render:
            make(task).close()  # a task that cannot be made at all says so itself
            raise InputError(f"task {task.id!r} draws no frames: {_told(error)}") from error
        given = f" with {one_line(task.kwargs)}" if task.kwargs else ""
        message = f"task {task.id!r} cannot be made{given}: {_told(error)}"
        raise InputError(message) from error
    try:
        # A task may also ignore the mode that it is asked for.
        if render and not (_draws(env) and env.render_mode == "rgb_array"):
            raise InputError(f"task {task.id!r} draws no frames: it has no 'rgb_array' render mode")
        if render:
            _draw_without_screen()
        _restore_margins(spec, env)
        return Environment(task, env)
    except InputError:
        env.close()
        raise


def _draw_without_screen() -> None:
    """Has MuJoCo draw by EGL, or by OSMesa if only that is here, where its own way cannot work."""
    said = any(os.environ.get(name) for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform == "linux" and not said:
        only_osmesa = find_library("OSMesa") and not find_library("EGL")
        os.environ["MUJOCO_GL"] = "osmesa" if only_osmesa else "egl"


def can_draw(task: Task) -> bool:
    """Whether it has frames to film."""
    environment = make(task)
    environment.close()
    return _draws(environment.env)


def _draws(env: gymnasium.Env[Any, Any]) -> bool:
    return "rgb_array" in (env.metadata.get("render_modes") or ())


def describe(task: Task) -> TaskSpec:
    """What a learner must know of a task."""
    environment = make(task)
    environment.close()
    return environment.spec


def tasks() -> list[str]:
    """The ids of Gymnasium's MuJoCo tasks, v4 and v5, that can be made here."""
    return sorted(
        id
        for id, spec in gymnasium.registry.items()
        # Gymnasium still lists Pusher-v4, but makes it only with MuJoCo 2.
        if _mujoco_version(spec) in (4, 5) and id != "Pusher-v4"
    )


def register_from(module: str, named_by: str) -> None:
    """Imports a user's module, which registers tasks; `named_by` begins the error's line."""
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:  # foreign code again
        message = f"{named_by}: module {module!r} cannot be imported: {told(error)}"
        # Not what the module itself imports, which is the user's to find.
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            message += " (it is looked for in the current folder, too)"
        raise InputError(message) from error


def _registered(task: Task) -> EnvSpec:
    """Gymnasium's entry for a task, after importing the module its id may name."""
    module, colon, id = task.id.rpartition(":")
    if colon:
        register_from(module, f"task {task.id!r}")
    if id in gymnasium.registry:
        return gymnasium.registry[id]
    # Gymnasium also lists MuJoCo tasks that it cannot make any more (v2, v3): never suggest those.
    current = tasks()
    families = {without_version(other) for other in current}
    others = (
        other
        for other in gymnasium.registry
        if other not in PAPER_TASKS and (other in current or without_version(other) not in families)
    )
    known = [*PAPER_TASKS, *others]
    siblings = sorted(other for other in known if without_version(other) == without_version(id))
    if siblings:
        what = unknown("task version", id, siblings)
    else:
        # Nor what cannot be trained, which only making it tells: the nearest one is made.
        while (near := nearest(id, known)) and not _may_be_trained(near):
            known.remove(near)
        what = unknown("task", id, known, shown=len(PAPER_TASKS))
    raise what if colon else UnknownTask(str(what))


def _may_be_trained(id: str) -> bool:
    """As far as can be told: what lacks a package may be."""
    try:
        make(Task(id)).close()
    except InputError as error:
        return isinstance(error.__cause__, _NOT_INSTALLED)
    return True


def _mujoco_version(spec: EnvSpec) -> int | None:
    """4 or 5 for Gymnasium's own MuJoCo tasks, None for all others."""
    match = re.match(r"gymnasium\.envs\.mujoco\.\w+_v(\d+):", str(spec.entry_point))
    return int(match[1]) if match else None


def _restore_margins(spec: EnvSpec, env: gymnasium.Env[Any, Any]) -> None:
    """Give a v4 task the contact margins it had under the paper's MuJoCo."""
    # Two geoms touch within a margin: the larger of theirs up to MuJoCo 3.4, the sum from 3.5 on,
    # which makes Ant, Hopper and Humanoid other tasks under the same id. All geoms of a v4 model
    # have the same margin, so the sum of halves is the old maximum.
    if _mujoco_version(spec) != 4:
        return
    major, minor = map(int, importlib.metadata.version("mujoco").split(".")[:2])
    if (major, minor) >= (3, 5):
        base: Any = env.unwrapped  # a MujocoEnv, which has no types
        base.model.geom_margin[:] *= 0.5


def _box(task: Task, kind: str, env: gymnasium.Env[Any, Any]) -> Box:
    """The environment's space of this kind, which must be a Box."""
    space = getattr(env, f"{kind}_space", None)
    if not isinstance(space, Box):
        given = type(space).__name__
        hint = (
            " (gymnasium.wrappers.FlattenObservation makes one)"
            if (given, kind) == ("Dict", "observation")
            else ""
        )
        raise InputError(f"task {task.id!r} has a {given} {kind} space; allowed: a Box{hint}")
    if 0 in space.shape:
        raise InputError(f"task {task.id!r} has an {kind} of no numbers, {space.shape}")
    return space


def _check_bounds(task: Task, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    for dimension, bounds in enumerate(zip(low, high, strict=True)):
        if not np.isfinite(bounds).all():
            problem = "not finite"
        elif bounds[0] == bounds[1]:
            problem = "one point"
        else:
            continue
        raise InputError(
            f"task {task.id!r}: the bounds of action dimension {dimension} are {problem}: "
            f"[{bounds[0]}, {bounds[1]}]; allowed: finite, low < high"
        )


def _told(error: BaseException) -> str:
    """What kept Gymnasium from making a task, in one line."""
    # Gymnasium wraps a constructor's TypeError and appends every option it has to the message.
    if isinstance(error, TypeError) and isinstance(error.__context__, TypeError):
        error = error.__context__
    return told(error)


def _from_mujoco(error: Exception) -> bool:
    """Whether it was raised where MuJoCo draws, which is where MUJOCO_GL matters."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = (str(frame.f_globals.get("__name__")).split(".") for frame in frames)
    return any({"mujoco", "dm_control"} & set(module) for module in modules)


@contextmanager
def own_words(where: str) -> Iterator[None]:
    """Whatever an environment raises, as one line that says where, with the traceback beside it.

    `sys.exit` is no better a way to end someone else's run; only KeyboardInterrupt and
    `collection.Abandoned` are not the environment's.
    """
    try:
        yield
    except (RunError, InputError):
        raise
    except (Exception, SystemExit) as error:
        message = f"{where}: the environment raised {type(error).__name__}: {one_line(error)}"
        raise EnvironmentFault(message, "".join(traceback.format_exception(error))) from error

"""From a task id to an environment, and the modules and scripts that register tasks."""

import importlib.metadata
import os
import pickle
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from ctypes.util import find_library
from dataclasses import replace
from io import StringIO
from traceback import format_exception
from typing import Any
from weakref import ReferenceType, ref

import gymnasium
from gymnasium.envs.registration import EnvSpec

from td7.errors import (
    NOT_FAULTS,
    EnvironmentFault,
    InputError,
    MissingModule,
    UnknownTask,
    describe_error,
    nearest,
    needs_extra,
    one_line,
    unknown,
)
from td7.files import working_folder_kept
from td7.modules import StopScriptImport, import_named, script_import
from td7.processes import Script
from td7.rollouts.environment import Environment, ForeignCode
from td7.seeding import SEED_BITS
from td7.types import PAPER_TASKS, Task, TaskSpec, Wrapper, without_version

_NOT_INSTALLED = (ImportError, gymnasium.error.DependencyNotInstalled)


def make(task: Task, *, render: bool = False) -> Environment:
    """Return a new environment; with `render`, one that draws frames."""
    spec = _registered(task)
    foreign = ForeignCode()
    env = _make_with_gymnasium(task, spec, foreign, render=render)
    try:
        _check_new(task, env)
        _restore_margins(spec, env)
        for wrapper in task.wrappers:
            env = _wrapped(env, wrapper, foreign)
        # A task may also ignore the render mode.
        if render and not (_draws(env) and env.render_mode == "rgb_array"):
            raise InputError(f"task {task.id!r} draws no frames: it has no 'rgb_array' render mode")
        if render:
            _draw_without_screen()
        return Environment(task, env, foreign)
    except BaseException as error:
        with suppress(Exception):
            env.close()
        if isinstance(error, (InputError, *NOT_FAULTS)):
            raise
        raise InputError(f"task {task.id!r} cannot be used: {_describe(error)}") from error


def make_again(task: Task) -> Environment:
    """Return a new environment of a task that could be made before, so that an error is a fault."""
    try:
        return make(task)
    except (UnknownTask, MissingModule):  # a command's first environment: the user can help it
        raise
    except InputError as error:
        raise EnvironmentFault(str(error), "".join(format_exception(error))) from error


def _make_with_gymnasium(
    task: Task, spec: EnvSpec, foreign: ForeignCode, *, render: bool
) -> gymnasium.Env[Any, Any]:
    # Gymnasium's checker costs time at every step; Environment checks what matters.
    options: dict[str, Any] = {"disable_env_checker": True, **task.kwargs}
    if render or "render_mode" in {**spec.kwargs, **options}:
        # Drawing on a screen ends the process where there is none.
        options["render_mode"] = "rgb_array" if render else None
    try:
        with warnings.catch_warnings():
            if render:  # Gymnasium warns of a task that draws no frames; `make` raises for it
                warnings.simplefilter("ignore")
            # With the spec instead of the id, Gymnasium does not warn that v4 has a successor.
            return foreign.call(lambda: gymnasium.make(spec, **options))
    except _NOT_INSTALLED as error:
        message = f"task {task.id!r} needs a package that is not installed: {one_line(error)}"
        raise InputError(message) from error
    except NOT_FAULTS:
        raise
    except BaseException as error:  # a task's constructor is foreign code: it may raise anything
        if render:
            make(task).close()  # raises if the task cannot be made at all
            raise InputError(f"task {task.id!r} draws no frames: {_describe(error)}") from error
        arguments = f" with {one_line(task.kwargs)}" if task.kwargs else ""
        message = f"task {task.id!r} cannot be made{arguments}: {_describe(error)}"
        raise InputError(message) from error


_last: ReferenceType[gymnasium.Env[Any, Any]] | None = None  # that was made


def _check_new(task: Task, env: gymnasium.Env[Any, Any]) -> None:
    """Raise if the environment was there before: training and evaluations would share its state."""
    global _last  # noqa: PLW0603  # it sees all environments of this process
    if _last is not None and _last() is env.unwrapped:
        raise InputError(f"task {task.id!r} must be a new environment whenever td7 makes it")
    _last = ref(env.unwrapped)


def _wrapped(
    env: gymnasium.Env[Any, Any], wrapper: Wrapper, foreign: ForeignCode
) -> gymnasium.Env[Any, Any]:
    """Return the environment within a wrapper."""
    cls = _wrapper_class(wrapper.name)
    try:
        return foreign.call(lambda: cls(env, **wrapper.kwargs))
    except NOT_FAULTS:
        raise
    except BaseException as error:  # foreign code may raise anything
        message = f"wrapper {str(wrapper)!r} cannot be made: {_describe(error)}"
        raise InputError(message) from error


def _wrapper_class(name: str) -> Any:
    """Return the class `module:Class`, which must be a gymnasium.Wrapper."""
    path, _, qualified_name = name.partition(":")
    import_named(path, f"wrapper {name!r}")
    module = sys.modules[path]
    found: Any = module
    for part in qualified_name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, gymnasium.Wrapper):
        return found
    wrappers = [
        n
        for n, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, gymnasium.Wrapper)
    ]
    if found is None and wrappers:
        raise unknown(f"wrapper of the module {path!r},", qualified_name, sorted(wrappers))
    what = f"{path!r} has no class {qualified_name!r}" if found is None else "it is not"
    raise InputError(f"wrapper {name!r} must be a subclass of gymnasium.Wrapper; {what}")


def _draw_without_screen() -> None:
    """Without a screen, let MuJoCo draw with EGL, or with OSMesa if only that is installed."""
    is_chosen = any(os.environ.get(name) for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform == "linux" and not is_chosen:
        only_osmesa = find_library("OSMesa") and not find_library("EGL")
        os.environ["MUJOCO_GL"] = "osmesa" if only_osmesa else "egl"


def can_draw(task: Task) -> bool:
    """Whether the task can render frames."""
    with working_folder_kept():
        environment = make(task)
        environment.close()
        return _draws(environment.env)


def _draws(env: gymnasium.Env[Any, Any]) -> bool:
    return "rgb_array" in (env.metadata.get("render_modes") or ())


def describe(task: Task) -> TaskSpec:
    """Return what a learner needs to know about a task, whose `seed_bits` are known from now on."""
    with described(task) as environment:
        return environment.spec


@contextmanager
def described(task: Task) -> Iterator[Environment]:
    """A block with a new environment, whose spec has the task's `seed_bits`."""
    with working_folder_kept(), closing(make(task)) as environment:
        bits = task.seed_bits or _seed_bits(environment)
        environment.spec = replace(environment.spec, task=replace(task, seed_bits=bits))
        yield environment


def _seed_bits(environment: Environment) -> int:
    """Return how many bits the task's reset seeds may have."""
    for bits in SEED_BITS:
        with suppress(EnvironmentFault):
            environment.reset(2**bits - 1)
            return bits
    return SEED_BITS[0]  # its reset fails with any seed, which the run will report


def mujoco_tasks() -> list[str]:
    """Return the ids of Gymnasium's MuJoCo tasks, v4 and v5."""
    return sorted(
        id
        for id, spec in gymnasium.registry.items()
        # Gymnasium still lists Pusher-v4, but makes it only with MuJoCo 2.
        if _mujoco_version(spec) in (4, 5) and id != "Pusher-v4"
    )


def _registered(task: Task) -> EnvSpec:
    """Return Gymnasium's entry for a task, after importing the module that its id may name."""
    _, colon, id = task.id.rpartition(":")
    if colon:
        import_named(task.module, f"task {task.id!r}")
    elif task.module and id not in gymnasium.registry:
        _register_namespace(task)
    if id in gymnasium.registry:
        return gymnasium.registry[id]
    if task.is_callable:
        raise InputError(
            f"task {id!r} was made by a function in Python; give it again: "
            "td7.resume(RUN, env=…), td7.evaluate(RUN, env=…)"
        )
    # Gymnasium also lists MuJoCo tasks that it can no longer make (v2, v3): never suggest those.
    current = mujoco_tasks()
    families = {without_version(other) for other in current}
    others = (
        other
        for other in gymnasium.registry
        if other not in PAPER_TASKS and (other in current or without_version(other) not in families)
    )
    known = [*PAPER_TASKS, *others]
    siblings = sorted(other for other in known if without_version(other) == without_version(id))
    if siblings:
        error = unknown("task version", id, siblings)
    else:
        # Nor suggest a task that cannot be trained, which shows only when it is made.
        while (near := nearest(id, known)) and not _may_be_trained(near):
            known.remove(near)
        error = unknown("task", id, known, shown=len(PAPER_TASKS))
    raise error if colon else UnknownTask(str(error))


def _register_namespace(task: Task) -> None:
    """Import the package that registers the tasks of this one's namespace."""
    namespace = task.id.partition("/")[0]
    extra = namespace.replace("_", "-")
    # They print notices about optional packages.
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        # Without a screen, GLFW only warns, and dm_control would fail to draw with it. After an
        # error it takes EGL or OSMesa; naming one (MUJOCO_GL) would make it a must.
        warnings.filterwarnings("error", module="glfw")
        try:
            for package in (namespace, task.module):
                importlib.import_module(package)
        except ImportError as error:
            raise InputError(
                f"{needs_extra(f'task {task.id!r}', extra)} ({one_line(error)})"
            ) from error


def _may_be_trained(id: str) -> bool:
    """Whether a task can be made, or only lacks a package."""
    try:
        make(Task(id)).close()
    except InputError as error:
        return isinstance(error.__cause__, _NOT_INSTALLED)
    return True


def _mujoco_version(spec: EnvSpec) -> int | None:
    """Return the version of one of Gymnasium's own MuJoCo tasks, None for all others."""
    match = re.match(r"gymnasium\.envs\.mujoco\.\w+_v(\d+):", str(spec.entry_point))
    return int(match[1]) if match else None


def is_mujoco(environment: Environment) -> bool:
    """Whether the task is one of Gymnasium's MuJoCo tasks or derived from their class."""
    classes = type(environment.env.unwrapped).__mro__
    return any(c.__module__.startswith("gymnasium.envs.mujoco.") for c in classes)


def _restore_margins(spec: EnvSpec, env: gymnasium.Env[Any, Any]) -> None:
    """Give a v4 task the contact margins it had under the paper's MuJoCo."""
    # Two geoms touch within a margin: the larger of theirs up to MuJoCo 3.4, their sum from 3.5 on,
    # which changes Ant, Hopper and Humanoid under the same id. All geoms of a v4 model have the
    # same margin, so the sum of halves is the old maximum.
    if _mujoco_version(spec) != 4:
        return
    major, minor = map(int, importlib.metadata.version("mujoco").split(".")[:2])
    if (major, minor) >= (3, 5):
        base: Any = env.unwrapped  # a MujocoEnv, which has no types
        base.model.geom_margin[:] *= 0.5


def _describe(error: BaseException) -> str:
    """Describe on one line what kept Gymnasium from making a task."""
    # Gymnasium wraps a constructor's TypeError and appends every option it has to the message.
    if isinstance(error, TypeError) and isinstance(error.__context__, TypeError):
        error = error.__context__
    return describe_error(error)


def register_in_worker(task: Task, script: Script) -> None:
    """Register the task in a worker process as the parent process registered it."""
    try:
        make(task).close()
        is_registered = True
    except InputError:
        is_registered = False
    if script.entry is not None:
        entry = pickle.loads(script.entry)
        gymnasium.registry[entry.id] = entry
    elif script.path is not None and (script.must_run or not is_registered):
        # As multiprocessing does it: `if __name__ == "__main__"` is false in there.
        with suppress(StopScriptImport), script_import():
            runpy.run_path(script.path, run_name="__mp_main__")

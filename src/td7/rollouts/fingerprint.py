"""Take the fingerprint of a task: the source of its code, and a short probe, which acts in it.

Gymnasium's own tasks have a probe only, as config.json has the version of Gymnasium.
"""

import hashlib
import importlib.metadata
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from td7.errors import EnvironmentFault, is_users
from td7.rollouts.environment import Environment
from td7.types import NAMESPACES, AnyFloat, Fingerprint, ModuleSource, Probe, Task

DIGITS = 16  # of a module's SHA-256
SEED = 2**62 + 2**40  # of the probe's reset; not 0 for tasks with short seeds either
ACTIONS = 5  # of the probe
NUMBERS = 8  # of an observation, at most
SECONDS = 1.0  # a probe that takes longer is given up


def take(environment: Environment, more_modules: Iterable[str] = ()) -> Fingerprint:
    """The fingerprint of an environment's task, without a probe; `more_modules` belong to it."""
    names = list(dict.fromkeys([*_modules(environment), *more_modules]))
    modules = {name: source for name in names if (source := _source(name)) is not None}
    installed = dict.fromkeys(map(_package, names))
    packages = {name: version for name in installed if name and (version := _version(name))}
    return Fingerprint(modules, packages, None)


def _modules(environment: Environment) -> Iterator[str]:
    """The modules of the classes of the task, of its wrappers, and of what makes it."""
    yield from _named(environment.spec.task)
    env = environment.env
    spec = env.unwrapped.spec
    if spec is not None:
        yield _module_of(spec.entry_point)
    while True:
        yield from (cls.__module__ for cls in type(env).__mro__)
        if not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _named(task: Task) -> Iterator[str]:
    yield task.module
    yield task.id.partition("/")[0] if task.module in NAMESPACES.values() else ""
    yield from (wrapper.name.partition(":")[0] for wrapper in task.wrappers)


def _module_of(entry_point: Any) -> str:
    while hasattr(entry_point, "func"):  # of functools.partial
        entry_point = entry_point.func
    if isinstance(entry_point, str):
        return entry_point.partition(":")[0]
    return getattr(entry_point, "__module__", "") or type(entry_point).__module__


# -- where code comes from -------------------------------------------------------------------------


def _file(name: str) -> Path | None:
    """The file of a module that was imported; of a program, which also says what to train, none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file and name not in ("__main__", "__mp_main__") else None


def _source(name: str) -> ModuleSource | None:
    """The source of a module unless it is of Python, of an installed package or of this one."""
    file = _file(name)
    if file is None or not is_users(file):
        return None
    levels = name.count(".") + (file.name == "__init__.py")
    return ModuleSource(
        hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS], str(file.resolve().parents[levels])
    )


def _package(name: str) -> str:
    """The package of an installed module, unless config.json has its version anyway."""
    top = name.partition(".")[0]
    file = _file(name)
    is_installed = file is not None and {"site-packages", "dist-packages"} & set(file.parts)
    return top if is_installed and top not in ("gymnasium", "td7") else ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except PackageNotFoundError:  # its distribution has another name
        return ""


# -- the probe -------------------------------------------------------------------------------------


def probe(environment: Environment) -> Probe | None:
    """What the task does; None if it does not do the same twice, is slow, or fails."""
    with suppress(EnvironmentFault, TimeoutError):  # an episode will report the fault
        first, second = _play(environment), _play(environment)
        return first if first == second else None
    return None


def _play(environment: Environment) -> Probe:
    begin = time.monotonic()
    observations = [_summary(environment.reset(SEED))]
    rewards = []
    for number in range(ACTIONS):
        if time.monotonic() - begin > SECONDS:
            raise TimeoutError
        dimensions = np.arange(environment.spec.action_dim, dtype=np.float32)
        state, reward, terminated, truncated = environment.step(np.cos(dimensions + number))
        observations.append(_summary(state))
        rewards.append(reward)
        if terminated or truncated:
            break
    return Probe(tuple(observations), tuple(rewards))


def _summary(state: AnyFloat) -> tuple[float, ...]:
    groups = np.array_split(state.astype(np.float64), min(NUMBERS, len(state)))
    return tuple(float(group.mean()) for group in groups)

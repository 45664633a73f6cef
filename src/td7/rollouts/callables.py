"""Tasks that a Python program makes itself: `td7.train(env=function)`."""

import re
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from td7.errors import InputError
from td7.types import CALLABLES, AnyPath, Task

MakeTask = Callable[..., gymnasium.Env[Any, Any]]  # called with the task's keyword arguments


def register_callable(function: MakeTask) -> str:
    """Register a class or function that makes a task; the id is its module and name.

    It replaces one of the same name, as when a cell of a notebook runs again.
    """
    named: Any = function
    while hasattr(named, "func"):  # of functools.partial
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    name = re.sub(r"[^\w.-]", "", f"{named.__module__}.{named.__qualname__}")
    return _register(CALLABLES + name, function)


def register_again(function: object, run: AnyPath, task: Task) -> None:
    """Register the function that makes the task of an existing run."""
    if not callable(function):
        kind = type(function).__name__
        raise InputError(f"env takes a function that makes the task, given a {kind}")
    if not task.is_callable:
        raise InputError(f"env has no effect: the task of {run} is {task.id}, which its id names")
    _register(task.id, function)


def _register(id: str, function: MakeTask) -> str:
    # Gymnasium's own function warns of what it replaces.
    gymnasium.registry[id] = EnvSpec(id, entry_point=function)
    return id

"""Tasks that raise, return and change what no task should; `hostile_tasks:Hostile-v0` is all."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np

import toys


class CustomExit(BaseException):
    """Not an Exception."""


class MuteError(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


class UnpicklableError(Exception):
    """It stays in its process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be pickled")


class Opaque:
    """Fails whatever is asked of it."""

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("no array")

    __repr__ = __bool__ = __float__ = __len__ = __iter__ = __array__


def recurse() -> None:
    recurse()


def throw(error: BaseException) -> Callable[[], NoReturn]:
    def throw() -> NoReturn:
        raise error

    return throw


RAISES: dict[str, tuple[Callable[[], object], str]] = {
    "StopIteration": (lambda: next(iter(())), "StopIteration"),
    "StopAsyncIteration": (throw(StopAsyncIteration()), "StopAsyncIteration"),
    "GeneratorExit": (throw(GeneratorExit()), "GeneratorExit"),
    "cancelled": (throw(asyncio.CancelledError()), "CancelledError"),
    "custom": (throw(CustomExit("enough")), "CustomExit: enough"),
    "ValueError": (throw(ValueError("the motor is cold")), "ValueError: the motor is cold"),
    "exit": (lambda: sys.exit(3), "SystemExit: 3"),
    "memory": (throw(MemoryError()), "MemoryError"),
    "recursion": (recurse, "RecursionError: maximum recursion depth exceeded"),
    "mute": (throw(MuteError()), "MuteError"),
    "unpicklable": (throw(UnpicklableError("x")), "UnpicklableError: x"),
    "long": (throw(ValueError("fire\x1b! " * 20_000)), "ValueError: fire\\x1b! fire"),
}

GOOD: tuple[Any, ...] = (np.zeros(2), 0.0, False, False, {})
PARTS = "allowed: (observation, reward, terminated, truncated, info)"
STEPS: dict[str, tuple[Any, str]] = {
    "None": (None, f"returned NoneType from step(); {PARTS}"),
    "four": (GOOD[:4], f"returned tuple of 4 from step(); {PARTS}"),
    "text": ("abcde", f"returned str from step(); {PARTS}"),
    "opaque": (Opaque(), f"returned Opaque from step(); {PARTS}"),
    "shape": (
        (np.zeros(3), *GOOD[1:]),
        "returned an observation of the shape (3,), but its observation space has the shape (2,)",
    ),
    "words": ((np.array(["1", "2"]), *GOOD[1:]), "returned an observation of type <U1"),
    "objects": ((np.array([None, None]), *GOOD[1:]), "raised TypeError: bad operand type"),
    "opaque state": ((Opaque(), *GOOD[1:]), "raised ValueError: no array"),
    "large state": (
        (np.array([0.0, 1e300]), *GOOD[1:]),
        "returned 1.0e+300 as observation, which float32 cannot hold (dimension 1)",
    ),
    "NaN": (([0.0, np.nan], *GOOD[1:]), "returned a non-finite observation (dimension 1)"),
    "reward None": ((GOOD[0], None, *GOOD[2:]), "returned NoneType as reward; allowed: a number"),
    "reward text": ((GOOD[0], "1", *GOOD[2:]), "returned str as reward; allowed: a number"),
    "reward complex": ((GOOD[0], 1j, *GOOD[2:]), "returned complex as reward; allowed: a number"),
    "rewards": (
        (GOOD[0], np.ones(2), *GOOD[2:]),
        "returned ndarray of the shape (2,) as reward; allowed: a number",
    ),
    "large reward": (
        (GOOD[0], -1e300, *GOOD[2:]),
        "returned -1.0e+300 as reward, which float32 cannot hold",
    ),
    "huge reward": ((GOOD[0], 10**400, *GOOD[2:]), "returned a non-finite reward (inf)"),
    "flag": ((*GOOD[:2], "no", *GOOD[3:]), "returned str as terminated; allowed: a number"),
    "flags": ((*GOOD[:3], [True, False], {}), "returned list of the shape (2,) as truncated"),
}


class Hostile(toys.Point):
    """The point, which in its third step or elsewhere does what `what` names."""

    def __init__(self, what: str = "", where: str = "step", first: str = "") -> None:
        super().__init__()
        self._what = what
        self._where = where
        if Path(first).is_file():  # one environment may be made; it removes the file
            Path(first).unlink()
        else:
            self._act("init")

    def _act(self, where: str) -> None:
        if where == self._where and self._what in RAISES:
            RAISES[self._what][0]()
        if where == self._where and self._what == "interrupt":
            raise KeyboardInterrupt
        if self._what == "settings":
            np.seterr(all="raise")
            sys.setrecursionlimit(len(list(_frames())) + 40)

    def reset(self, **options: Any) -> Any:
        self._act("reset")
        return None if (self._what, self._where) == ("None", "reset") else super().reset(**options)

    def step(self, action: Any) -> Any:
        *parts, _, info = super().step(action)
        if self._steps == 3:
            self._act("step")
            if self._what in STEPS:
                return STEPS[self._what][0]
        return (*parts, self._steps == 20, info)

    def close(self) -> None:
        self._act("close")


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


# Without a time limit, whose wrapper would be the first to unpack what a step returns.
gymnasium.register("Hostile-v0", entry_point="hostile_tasks:Hostile")

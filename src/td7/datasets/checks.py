"""Checks that all formats of datasets share; each failure is one line that says where."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from td7.errors import InputError, one_line
from td7.rollouts.environment import ActionMap
from td7.types import Float32, Float64, RowLayout

Flags = NDArray[np.bool_]  # [N]
ROUNDING = 1e-4  # actions may exceed their bounds by this much; they are clipped


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever a library raises over damaged data into one line that names `what`."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except Exception as error:
        raise InputError(f"{what} cannot be read: {one_line(error)}") from error


def finite_float32(where: str, name: str, values: ArrayLike) -> Float32:
    """Return `values` as float32; raise if float32 cannot hold one of them as a finite number."""
    with np.errstate(over="ignore"):  # too large numbers become infinite and raise below
        array = np.asarray(values, np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        first = np.unravel_index(np.argmin(finite), array.shape)
        raise InputError(
            f"{where}: {name} holds {array[first]} in row {first[0]}; allowed: finite float32"
        )
    return array


def boolean_flags(where: str, name: str, array: NDArray[Any]) -> Flags:
    """Return [N] flags from [N] or [N, 1] zeros and ones."""
    flags = array.reshape(-1)
    wrong = np.flatnonzero((flags != 0) & (flags != 1))
    if len(wrong):
        raise InputError(
            f"{where}: {name} holds {flags[wrong[0]]} in row {wrong[0]}; allowed: 0 and 1"
        )
    return flags.astype(bool)


def action_bounds(
    where: str, of_task: ActionMap | None, stated: ActionMap, layout: RowLayout
) -> ActionMap:
    """Return the task's bounds, or those the data state; raise if they do not fit the actions."""
    bounds = stated if of_task is None else of_task
    if not len(bounds.low) == len(bounds.high) == layout.action_dim:
        whose = "its bounds" if of_task is None else "the task's"
        raise InputError(
            f"{where}: actions has {layout.action_dim} dimensions, {whose} {len(bounds.low)}"
        )
    for dimension, (low, high) in enumerate(zip(bounds.low, bounds.high, strict=True)):
        if not -np.inf < low < high < np.inf:
            raise InputError(
                f"{where}: the bounds of actions are [{low}, {high}] in dimension {dimension}; "
                "allowed: finite, low < high"
            )
    return bounds


def unit_actions(where: str, actions: Float32, bounds: ActionMap) -> tuple[Float64, list[str]]:
    """Return the actions in [-1, 1], and a warning if rounding took some past their bounds."""
    low, high = np.array(bounds.low, np.float32), np.array(bounds.high, np.float32)
    excess = np.maximum(low - actions, actions - high)
    row, dimension = np.unravel_index(np.argmax(excess), excess.shape)
    largest = excess[row, dimension]
    if largest > ROUNDING:
        allowed = (bounds.low[dimension], bounds.high[dimension])
        hint = "" if allowed != (-1.0, 1.0) else ", unless --env names a task of other bounds"
        raise InputError(
            f"{where}: actions holds {actions[row, dimension]} in row {row}, dimension {dimension};"
            f" allowed: {allowed[0]} to {allowed[1]}{hint}"
        )
    warnings = []
    if largest > 0:
        n = np.count_nonzero((excess > 0).any(axis=1))
        warnings = [f"{n} actions were outside their bounds by up to {largest:.1e}: clipped"]
    return bounds.to_unit(actions), warnings

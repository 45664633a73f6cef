"""A dataset in memory: transitions as the replay keeps them, checked, with their episodes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from td7.datasets.scores import score, task_of_file
from td7.errors import InputError, one_line
from td7.rollouts.environment import ActionMap
from td7.types import Float32, Float64, RowLayout, Task

Flags = NDArray[np.bool_]  # [N]
ROUNDING = 1e-4  # actions may leave their bounds by so much; they are clipped


@final
@dataclass(frozen=True)
class Dataset:
    """Transitions as the replay keeps them, and the episodes they come from.

    `returns` and `lengths` are those of complete episodes, rows that were left out included. What
    is no complete one, as the last of a file may be, is in `rows` alone: where neither the task
    nor a time limit ended it, or where the file says that only its recording did.
    """

    source: str  # as given
    name: str  # of the file without its suffix, or Minari's id
    task_id: str  # Gymnasium's; empty if unknown
    task_kwargs: Mapping[str, Any] | None  # what it was made with; None if unknown
    layout: RowLayout
    bounds: ActionMap  # of the actions in the data
    rows: Float32  # [N, layout.width], actions in [-1, 1]
    returns: Float64  # [episodes], undiscounted
    lengths: NDArray[np.int64]  # [episodes], environment steps
    self_collected: bool  # written by this package, not D4RL's or Minari's own data
    warnings: tuple[str, ...]
    d4rl: str = ""  # D4RL's name of the file, if its SHA-256 says that it is D4RL's
    left_out: int = 0  # rows of the source that are not learned from


def task_mismatch(dataset: Dataset, task: Task) -> str | None:
    """A warning, if the data say that they are of another task than this one."""
    own = Task(dataset.task_id, dict(dataset.task_kwargs or {}))
    # A name of D4RL's tells no version, nor how its task was made.
    by_name = not dataset.self_collected and task_of_file(dataset.name) == own.id
    same = own.family == task.family if by_name else own.name == task.name
    if (same or not own.id) and dataset.task_kwargs in (None, task.kwargs):
        return None
    return f"its data are of {_words(own)}, but it is evaluated on {_words(task)}"


def _words(task: Task) -> str:
    given = " ".join(f"{name}={json.dumps(value)}" for name, value in task.kwargs.items())
    return f"{task.id} with {given}" if given else task.id


def summary(dataset: Dataset) -> dict[str, Any]:
    """A dataset in plain values; None where there is nothing to take a statistic of."""
    scores = score(dataset.task_id, dataset.returns)
    return {
        "source": dataset.source,
        "name": dataset.name,
        "task": dataset.task_id,
        "task_kwargs": dataset.task_kwargs,
        "self_collected": dataset.self_collected,
        "d4rl": dataset.d4rl,
        "rows": len(dataset.rows),
        "left_out": dataset.left_out,
        "episodes": len(dataset.returns),
        "state_dim": dataset.layout.state_dim,
        "action_dim": dataset.layout.action_dim,
        "returns": _statistics(dataset.returns),
        "lengths": _statistics(dataset.lengths),
        "scores": None if scores is None else _statistics(scores),
        "terminal_share": float(np.mean(dataset.layout.split(dataset.rows).not_terminated == 0)),
        "warnings": list(dataset.warnings),
    }


def _statistics(values: NDArray[Any]) -> dict[str, float | None] | None:
    if not len(values):
        return None
    return {
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "min": float(values.min()),
        "median": float(np.median(values)),
        "max": float(values.max()),
    }


# -- what both share -----------------------------------------------------------------------------


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever a library raises over damaged data, as one line that says where."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except Exception as error:
        raise InputError(f"{what} cannot be read: {one_line(error)}") from error


def finite_float32(where: str, name: str, given: ArrayLike) -> Float32:
    """Finite numbers."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite: told below
        array = np.asarray(given, np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        first = np.unravel_index(np.argmin(finite), array.shape)
        raise InputError(
            f"{where}: {name} holds {array[first]} in row {first[0]}; allowed: finite float32"
        )
    return array


def booleans(where: str, name: str, array: NDArray[Any]) -> Flags:
    """[N] from [N] or [N, 1]."""
    flags = array.reshape(-1)
    wrong = np.flatnonzero((flags != 0) & (flags != 1))
    if len(wrong):
        raise InputError(
            f"{where}: {name} holds {flags[wrong[0]]} in row {wrong[0]}; allowed: 0 and 1"
        )
    return flags.astype(bool)


def chosen_bounds(
    where: str, given: ActionMap | None, stated: ActionMap, layout: RowLayout
) -> ActionMap:
    """The bounds given, or else those stated by the data, if they are any for its actions."""
    bounds = stated if given is None else given
    if not len(bounds.low) == len(bounds.high) == layout.action_dim:
        whose = "its bounds" if given is None else "the task's"
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
    """The actions in [-1, 1], and a warning where rounding had carried some over the bounds."""
    low, high = np.array(bounds.low, np.float32), np.array(bounds.high, np.float32)
    beyond = np.maximum(low - actions, actions - high)
    row, dimension = np.unravel_index(np.argmax(beyond), beyond.shape)
    furthest = beyond[row, dimension]
    if furthest > ROUNDING:
        allowed = (bounds.low[dimension], bounds.high[dimension])
        hint = "" if allowed != (-1.0, 1.0) else ", unless --env names a task of other bounds"
        raise InputError(
            f"{where}: actions holds {actions[row, dimension]} in row {row}, dimension {dimension};"
            f" allowed: {allowed[0]} to {allowed[1]}{hint}"
        )
    clipped = []
    if furthest > 0:
        n = np.count_nonzero((beyond > 0).any(axis=1))
        clipped = [f"{n} actions were outside their bounds by up to {furthest:.1e}: clipped"]
    return bounds.to_unit(actions), clipped

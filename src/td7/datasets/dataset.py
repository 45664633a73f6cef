"""A dataset in memory: transitions as the replay keeps them, with their episodes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from td7.datasets.scores import score, task_of_file
from td7.rollouts.environment import ActionMap
from td7.types import Float32, Float64, RowLayout, Task, Wrapper


@final
@dataclass(frozen=True)
class Dataset:
    """Transitions as the replay keeps them, and the episodes they come from.

    `returns` and `lengths` describe complete episodes and count rows that are left out of `rows`.
    An episode is incomplete if neither the task nor a time limit ended it, as the last one of a
    file may be, or if the file says that only the recording did; its transitions are in `rows`.
    """

    source: str  # a path or an id, as the user gave it
    name: str  # the file's name without suffix, or Minari's id
    task_id: str  # Gymnasium's; empty if unknown
    task_kwargs: Mapping[str, Any] | None  # gymnasium.make's; None if unknown
    layout: RowLayout
    bounds: ActionMap  # of the actions in the source
    rows: Float32  # [N, layout.width], actions in [-1, 1]
    returns: Float64  # [episodes], undiscounted
    lengths: NDArray[np.int64]  # [episodes], environment steps
    self_collected: bool  # recorded by this package, not D4RL's or Minari's data
    warnings: tuple[str, ...]
    d4rl: str = ""  # D4RL's name of the file, if the SHA-256 is D4RL's
    left_out: int = 0  # rows of the source that are not in `rows`
    task_wrappers: tuple[Wrapper, ...] = ()

    @property
    def task(self) -> Task:
        """The task that the source states."""
        return Task(self.task_id, dict(self.task_kwargs or {}), self.task_wrappers)


def task_mismatch(dataset: Dataset, task: Task) -> str | None:
    """Return a warning if the dataset states another task than `task`, else None."""
    stated = dataset.task
    # D4RL's file names give neither the task's version nor its kwargs.
    by_name = not dataset.self_collected and task_of_file(dataset.name) == stated.id
    same = stated.family == task.family if by_name else stated.name == task.name
    kwargs_fit = dataset.task_kwargs in (None, task.kwargs)
    if (same or not stated.id) and kwargs_fit and stated.wrappers == task.wrappers:
        return None
    return f"its data are of {_describe(stated)}, but it is evaluated on {_describe(task)}"


def _describe(task: Task) -> str:
    words = [f"{name}={json.dumps(value)}" for name, value in task.kwargs.items()]
    words += [str(wrapper) for wrapper in task.wrappers]
    return f"{task.id} with {' '.join(words)}" if words else task.id


def summary(dataset: Dataset) -> dict[str, Any]:
    """Return what `td7 dataset info` shows, ready for JSON; a statistic of no values is None."""
    scores = score(dataset.task_id, dataset.returns)
    return {
        "source": dataset.source,
        "name": dataset.name,
        "task": dataset.task_id,
        "task_kwargs": dataset.task_kwargs,
        "task_wrappers": list(map(str, dataset.task_wrappers)),
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

"""Rows of a run's tables as scalars with the tags of Stable-Baselines3, which all loggers share."""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import TracebackType
from typing import NamedTuple, Protocol

from td7.runs.members import Members

WINDOW = 100  # training episodes in a rolling mean, as in Stable-Baselines3
EVALUATION = {"return": "mean_reward", "length": "mean_ep_length", "score": "mean_score"}
GROUPS = ("eval", "rollout", "time", "train")  # the first parts of tags

Row = Mapping[str, float]


class Point(NamedTuple):
    """What a member logs at a step: one evaluation, one training episode or one row of metrics."""

    id: int  # of the member, as tables have it in their first column
    step: int
    scalars: Mapping[str, float]
    rows: int  # of the member's tables with this point's: repeated points have the same number


class Logger(Protocol):
    """Receives the points of a run between its start and its end, and never ends it by an error."""

    def __enter__(self) -> "Logger": ...

    def log(self, point: Point) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The run has ended, after an error if there is one."""
        ...


class Scalars:
    """Makes points of a run's rows, all of them: rolling means need those before a resume."""

    def __init__(self, steps: Mapping[int, int], members: Members | None = None) -> None:
        """`steps` holds the steps that each member has made so far.

        `members` names the columns that are not logged at every step, as they never change.
        """
        self._steps_before = dict(steps)
        self._not_logged = () if members is None else members.columns
        self._begin = time.monotonic()
        self._rows: Counter[int] = Counter()
        self._episodes: dict[int, deque[Row]] = {id: deque(maxlen=WINDOW) for id in steps}

    def points(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> Iterator[Point]:
        """Yield a point per evaluation, training episode or row of metrics."""
        scalars_of = {
            "evaluations": _evaluation_scalars,
            "episodes": self._episode_scalars,
            "metrics": _metric_scalars,
        }[table]
        key = 2 if table == "evaluations" else 3  # of the first columns, which rows are sorted by
        names = ("id", *columns[1:])
        for _, own in groupby(rows, key=lambda row: [str(value) for value in row[:key]]):
            # A column that is newer than a row has no value in it.
            named = [
                {
                    name: float(str(value))
                    for name, value in zip(names, row, strict=True)
                    if value != "" and name not in self._not_logged
                }
                for row in own
            ]
            id = int(named[0]["id"])
            self._rows[id] += len(named)
            yield Point(id, int(named[0]["step"]), scalars_of(named), self._rows[id])

    def _episode_scalars(self, rows: Sequence[Row]) -> dict[str, float]:
        (row,) = rows
        id = int(row["id"])
        recent = self._episodes[id]
        recent.append(row)
        scalars = {
            "rollout/ep_rew_mean": _mean([episode["return"] for episode in recent]),
            "rollout/ep_len_mean": _mean([episode["length"] for episode in recent]),
        }
        if (steps := row["step"] - self._steps_before[id]) > 0:
            scalars["time/fps"] = steps / max(1e-9, time.monotonic() - self._begin)
        return scalars


def _evaluation_scalars(rows: Sequence[Row]) -> dict[str, float]:
    return {
        f"eval/{tag}": _mean([row[name] for row in rows])
        for name, tag in EVALUATION.items()
        if name in rows[0]
    }


def _metric_scalars(rows: Sequence[Row]) -> dict[str, float]:
    (row,) = rows
    names = {"update": "n_updates"}
    return {
        f"train/{names.get(name, name)}": value
        for name, value in row.items()
        if name not in ("id", "step")
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

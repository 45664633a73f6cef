"""How often an evaluation is followed by a much lower one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from td7.reports.result import Result
from td7.reports.tables.table import Column, Record, Table, new_table, result_fields
from td7.statistics import drops
from td7.studies.rows import Study

DROP_PERCENTS = (10, 25, 50)
DROP_WINDOWS = (1, 5, 10)  # evaluations, the paper's


def drops_table(study: Study, results: Sequence[Result]) -> Table:
    """A line per result and window, a column per size of a drop."""
    notes: list[str] = []
    lines = [line for result in results for line in _lines(study, result, notes)]
    columns: list[Column[Sequence[Record]]] = [
        Column("row", lambda line: line[0]["row"]),
        Column("task", lambda line: line[0]["place"]),
        Column("steps", lambda line: f"{line[0]['step']:,}"),
        Column("within", lambda line: str(line[0]["within_evaluations"])),
        Column("evaluations", lambda line: str(line[0]["evaluations"])),
        *(_share_column(i, percent) for i, percent in enumerate(DROP_PERCENTS)),
    ]
    return new_table(
        study,
        "drops",
        heading="Drops",
        caption=(
            "Percentage of evaluations that are followed by an evaluation of the same seed that is "
            "lower by more than 10%, 25% or 50%, within the next 1, 5 or 10 evaluations. Only "
            "positive evaluations in the last fifth of the steps count (the paper: in the last 1M "
            "of TD3's 5M steps)."
        ),
        records=[record for line in lines for record in line],
        columns=columns,
        lines=lines,
        notes=notes,
    )


def _share_column(index: int, percent: int) -> Column[Sequence[Record]]:
    return Column(f"> {percent}%", lambda line: f"{line[index]['percent_of_evaluations']:.1f}")


def _lines(study: Study, result: Result, notes: list[str]) -> list[list[Record]]:
    """Per window the records of all drops."""
    late = late_evaluations(result)
    shares = drop_shares(late, DROP_PERCENTS)
    if not shares and late.shape[1] > 1:
        notes.append(f"{result.name}: no drops: a drop is a percentage of positive evaluations")
    return [
        [
            {
                **result_fields(study, result, result.last_step),
                "within_evaluations": window,
                "evaluations": _positive_count(late, window),
                "drop_percent": percent,
                "percent_of_evaluations": share,
            }
            for percent, share in zip(DROP_PERCENTS, own, strict=True)
        ]
        for window, own in shares.items()
    ]


def late_evaluations(result: Result) -> NDArray[np.float64]:
    """[seeds, evaluations] of the last fifth of the steps."""
    if result.curves is None:
        return np.empty((0, 0))
    steps = np.array(result.curves.steps)
    return np.asarray(result.curves.values[:, steps > 0.8 * steps[-1]])


def drop_shares(
    evaluations: NDArray[np.float64], percents: Sequence[float]
) -> dict[int, list[float]]:
    """window: for every drop the percentage of evaluations that it follows.

    Windows that are longer than the evaluations are left out; {} if none are positive.
    """
    windows = [window for window in DROP_WINDOWS if window < evaluations.shape[1]]
    if any(_positive_count(evaluations, window) == 0 for window in windows):
        return {}
    return {
        window: [100 * drops(evaluations, percent, window) for percent in percents]
        for window in windows
    }


def _positive_count(evaluations: NDArray[np.float64], window: int) -> int:
    """The evaluations that are positive and have a whole window after them."""
    return int((evaluations[:, :-window] > 0).sum())

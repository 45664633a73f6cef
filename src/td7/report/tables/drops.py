"""How often an evaluation is followed by a much lower one."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from td7.report.result import Result
from td7.report.tables.table import Cell, Table, Value, group_of, made_table
from td7.statistics import drops
from td7.studies.rows import Study

DROP_PERCENTS = (10, 25, 50)
DROP_WINDOWS = (1, 5, 10)  # evaluations, the paper's


def falls(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """How often an evaluation is followed by a much lower one."""
    records: list[Mapping[str, Value]] = []
    lines = []
    for result in results:
        shares = drop_shares(result, DROP_PERCENTS, notes)
        if shares is None:
            continue
        for within, own in shares.items():
            for percent, share in zip(DROP_PERCENTS, own, strict=True):
                records.append(
                    {
                        "study": study.name,
                        "group": group_of(study, result.label),
                        "row": result.label,
                        "place": result.place,
                        "step": result.last,
                        "within_evaluations": within,
                        "evaluations": _counted(result, within),
                        "drop_percent": percent,
                        "percent_of_evaluations": share,
                    }
                )
            words = [result.label, result.place, f"{result.last:,}", str(within)]
            words += [str(_counted(result, within)), *(f"{share:.1f}" for share in own)]
            lines.append(tuple(Cell(word) for word in words))
    caption = (
        "Percent of a seed's evaluations after which one of the next 1, 5 or 10 is lower by more "
        "than so many percent, in the last fifth of the steps (the paper: the last 1M of TD3's "
        "5M). Evaluations that are not positive do not count."
    )
    shares_of = (f"> {percent}%" for percent in DROP_PERCENTS)
    header = ("row", "task", "steps", "within", "evaluations", *shares_of)
    return made_table(study, "drops", f"Drops: {study.title}", caption, header, lines, records)


def drop_shares(
    result: Result, percents: Sequence[float], notes: list[str]
) -> dict[int, list[float]] | None:
    """within: percent of evaluations, for each of the drops; None where there is nothing to say."""
    if result.curves is None or result.last is None:
        return None
    late = _late(result)
    found = {}
    for within in DROP_WINDOWS:
        if within >= late.shape[1]:
            continue
        try:
            found[within] = [100 * drops(late, percent, within) for percent in percents]
        except ValueError as error:
            notes.append(f"{result.name}: no drops: {error}")
            return None
    return found


def _late(result: Result) -> NDArray[np.float64]:
    """[seeds, evaluations] of the last fifth of the steps."""
    if result.curves is None:
        return np.empty((0, 0))
    steps = np.array(result.curves.steps)
    return np.asarray(result.curves.values[:, steps > 0.8 * steps[-1]])


def _counted(result: Result, within: int) -> int:
    return int((_late(result)[:, :-within] > 0).sum())

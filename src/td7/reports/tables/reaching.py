"""Steps until the scores of a baseline are reached."""

from collections.abc import Sequence

import numpy as np

from td7.reports import paper
from td7.reports.result import Result
from td7.reports.tables.table import BASELINE, Column, Record, Table, new_table, value_column
from td7.statistics import times_to_reach
from td7.studies.rows import Study


def reaching(study: Study, results: Sequence[Result]) -> Table:
    """When seeds first have the score of the paper's TD3 at each of its steps."""
    records = [record for result in results for record in _records(study, result)]
    last_steps = {(result.label, result.place): result.last_step for result in results}

    def steps_text(record: Record) -> str:
        if record["median_steps"] is None:
            return f"> {last_steps[record['row'], record['place']]:,}"
        return f"{record['median_steps']:,.0f}"

    columns = [
        value_column("row", "row"),
        value_column("task", "place"),
        Column(f"{BASELINE}'s score", lambda r: f"{r['score']:.0f}, at {r['paper_step']:,}"),
        Column("seeds that reach it", lambda r: f"{r['seeds_reaching']} of {r['seeds']}"),
        Column("steps", steps_text),
        value_column("minutes", "minutes", ".1f"),
    ]
    return new_table(
        study,
        "reaching",
        heading=f"Steps to {BASELINE}'s scores",
        caption=(
            f"Step of the first evaluation in which a seed has at least the score that the paper's "
            f"{BASELINE} has after the given number of steps: the median over seeds, where seeds "
            "that never reach it count as later than all others. Minutes: at the run's "
            "milliseconds per step, for all seeds together."
        ),
        records=records,
        columns=columns,
        lines=records,
    )


def _records(study: Study, result: Result) -> list[Record]:
    """One record per step at which the paper has a score of the baseline."""
    assert result.curves is not None  # views get results with evaluations
    records: list[Record] = []
    for step in paper.steps(study.table):
        printed = paper.printed(study.table, step).get((BASELINE, result.place))
        if printed is None:
            continue
        times = times_to_reach(result.curves.steps, result.curves.values, printed.mean)
        middle = float(np.median([np.inf if time is None else time for time in times]))
        median = middle if np.isfinite(middle) else None
        minutes = None
        if median is not None and result.seconds_per_step is not None:
            minutes = median * result.seconds_per_step / 60
        records.append(
            {
                "study": study.name,
                "row": result.label,
                "place": result.place,
                "score": printed.mean,
                "paper_step": step,
                "seeds": len(result.seeds),
                "seeds_reaching": sum(time is not None for time in times),
                "median_steps": median,
                "minutes": minutes,
            }
        )
    return records

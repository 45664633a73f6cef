"""Returns and value estimates."""

from collections.abc import Sequence

import numpy as np

from td7.reports.result import Result, seed_list
from td7.reports.tables.table import (
    THREE_DIGITS,
    Column,
    Record,
    Table,
    finite_or_none,
    mean_column,
    mean_text,
    new_table,
    result_fields,
    shown_steps,
    value_column,
)
from td7.statistics import Sample
from td7.studies.rows import Study


def estimates(study: Study, results: Sequence[Result]) -> Table:
    """Return and value estimate of every row, which shows where values diverge."""
    notes: list[str] = []
    records = [
        record
        for step in shown_steps(study, results)
        for result in results
        for record in _records(study, result, step, notes)
    ]
    columns = [
        value_column("steps", "step", ","),
        value_column("group", "group"),
        value_column("row", "row"),
        value_column("task", "place"),
        mean_column("return", "return_mean", "return_interval", THREE_DIGITS),
        mean_column("value estimate", "value_mean", "value_interval", THREE_DIGITS),
        Column("highest", lambda r: mean_text(r["value_highest"], None, THREE_DIGITS)),
    ]
    return new_table(
        study,
        "values",
        heading="Value estimates",
        caption=(
            "Return, and the critics' value of the policy's actions as last recorded before the "
            "evaluation: mean over seeds ± the paper's interval. Highest: the largest estimate of "
            "a seed. The paper shows curves and prints no numbers."
        ),
        records=records,
        columns=columns,
        lines=records,
        notes=notes,
    )


def _records(study: Study, result: Result, step: int, notes: list[str]) -> list[Record]:
    """The record of a result at a step; none if it has no evaluation or no estimates."""
    returns = result.at(step)
    if returns is None:
        return []
    if result.values is None or result.curves is None:
        notes.append(f"{result.name}: no value estimates: no policy_value in metrics.csv")
        return []
    values = result.values[:, result.curves.steps.index(step)]
    finite = np.isfinite(values)
    if not finite.all():
        missing = [seed for seed, ok in zip(result.seeds, finite, strict=True) if not ok]
        notes.append(f"{result.name}: no value estimate at {step:,} of {seed_list(missing)}")
    mean_return = Sample.of(returns)
    value = Sample.of(values[finite]) if finite.any() else None
    return [
        {
            **result_fields(study, result, step),
            "seeds": mean_return.n,
            "return_mean": mean_return.mean,
            "return_interval": finite_or_none(mean_return.interval),
            "value_mean": value.mean if value else None,
            "value_interval": finite_or_none(value.interval) if value else None,
            "value_highest": float(values[finite].max()) if value else None,
        }
    ]

"""Returns and value estimates."""

from collections.abc import Mapping, Sequence

import numpy as np

from td7.report.result import Result
from td7.report.tables.table import (
    Cell,
    Table,
    Value,
    group_of,
    made_table,
    number_or_none,
    sample_text,
    steps_shown,
)
from td7.statistics import Sample
from td7.studies.rows import Study

# -- value estimates, drops, run time ------------------------------------------------------------


def estimates(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Return and value estimate of every row: where values run away."""
    records: list[Mapping[str, Value]] = []
    lines = []
    for step in steps_shown(study, results):
        for result in results:
            numbers = result.at(step)
            if numbers is None:
                continue
            if result.values is None or result.curves is None:
                notes.append(f"{result.name}: no value estimates: no policy_value in metrics.csv")
                continue
            values = result.values[:, result.curves.steps.index(step)]
            told = np.isfinite(values)
            if not told.all():
                lacking = [str(s) for s, ok in zip(result.seeds, told, strict=True) if not ok]
                notes.append(f"{result.name}: no value at {step:,} of seed {', '.join(lacking)}")
            score = Sample.of(numbers)
            value = Sample.of(values[told]) if told.any() else None
            group = group_of(study, result.label)
            records.append(
                {
                    "study": study.name,
                    "group": group,
                    "row": result.label,
                    "place": result.place,
                    "step": step,
                    "seeds": score.n,
                    "return_mean": score.mean,
                    "return_interval": number_or_none(score.interval),
                    "value_mean": value.mean if value else None,
                    "value_interval": number_or_none(value.interval) if value else None,
                    "value_highest": float(values[told].max()) if value else None,
                }
            )
            highest = f"{values[told].max():.0f}" if value else "–"
            words = (f"{step:,}", group, result.label, result.place)
            numbers_said = (sample_text(score, ".0f"), sample_text(value, ".0f"), highest)
            lines.append(tuple(Cell(word) for word in (*words, *numbers_said)))
    caption = (
        "Return, and the critics' value of the policy's actions as last recorded before the "
        "evaluation, mean over seeds ± the paper's interval; highest: of the seeds. The paper "
        "draws curves and prints no numbers."
    )
    header = ("steps", "group", "row", "task", "return", "value estimate", "highest")
    title = f"Value estimates: {study.title}"
    return made_table(study, "values", title, caption, header, lines, records)

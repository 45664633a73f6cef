"""Percent losses against the reference row."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from td7.report import paper
from td7.report.result import Result, suites
from td7.report.tables.table import (
    Cell,
    Table,
    Value,
    beside,
    group_of,
    made_table,
    matrix,
    number_or_none,
    sample_text,
    steps_shown,
    values_by_row,
)
from td7.statistics import Sample, percent_loss, rank_correlation
from td7.studies.rows import Study
from td7.studies.rows.design import PERCENT_LOSS_LABELS

FEWEST_RANKED = 3  # rows whose order can be compared


# -- percent losses ------------------------------------------------------------------------------


def losses(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Every row's mean percent loss against the first, over the tasks of a suite both have."""
    reference = next(iter(study.rows), "")
    records: list[Mapping[str, Value]] = []
    lines = []
    theirs = paper.steps(study.table)
    steps = [step for step in steps_shown(study, results) if step]  # at 0 nobody has learned
    for step, (suite, own_results) in product(steps, suites(results).items()):
        by_row = values_by_row(own_results, step)
        if reference not in by_row:
            if by_row:
                what = f"at {step:,} over {suite}: {reference} is missing"
                notes.append(f"{study.name}: no percent losses {what}")
            continue
        for label, own in by_row.items():
            if label == reference:
                continue
            tasks = [task for task in by_row[reference] if task in own]
            if not tasks:
                what = f"{label} at {step:,} over {suite}: no task that {reference} has"
                notes.append(f"{study.name}: {what}")
                continue
            y = matrix(by_row[reference], tasks, f"{study.name}: {reference}", notes)
            x = matrix(own, tasks, f"{study.name}: {label}", notes)
            try:
                overall = percent_loss(y, x)  # refuses an empty one
            except ValueError as error:
                notes.append(f"{study.name}: {label} at {step:,}: no percent loss: {error}")
                continue
            paper_step = step if step in theirs else max(theirs, default=0)
            there = _printed_loss(study, label, tasks, paper_step)
            records.append(
                {
                    **beside(study, label, reference, step, suite, tasks),
                    "seeds": overall.n,
                    "percent_loss": overall.mean,
                    "interval": number_or_none(overall.interval),
                    "paper_step": paper_step if there else None,
                    "paper_percent_loss": there.mean if there else None,
                    "paper_interval": number_or_none(there.interval) if there else None,
                }
            )
            words = (f"{step:,}", group_of(study, label), label, f"{len(tasks)} {suite}")
            when = f" at {paper_step:,}" if there and paper_step != step else ""
            numbers = (sample_text(overall, ".1f"), sample_text(there, ".1f") + when)
            lines.append(tuple(Cell(word) for word in (*words, *numbers)))
    caption = (
        f"Percent of {reference}'s return that a row loses, averaged over the tasks that both have "
        "(negative: the row is better), ± the interval of the seeds' means over tasks. The "
        "paper's: as printed; where it prints none, from its means over the same tasks; of its "
        f"last step, where it has none at ours.{_same_order(records)}"
    )
    header = ("steps", "group", "row", "tasks", "loss in %, here", "paper")
    title = f"Mean percent loss: {study.title}"
    return made_table(study, "losses", title, caption, header, lines, records)


def _same_order(records: Sequence[Mapping[str, Value]]) -> str:
    """How far rows lose here in the order in which they lose in the paper."""
    said = []
    for step in dict.fromkeys(record["step"] for record in records):
        both = [
            (record["percent_loss"], record["paper_percent_loss"])
            for record in records
            if record["step"] == step and record["paper_percent_loss"] is not None
        ]
        if len(both) >= FEWEST_RANKED:
            found = rank_correlation(*zip(*both, strict=True))
            said.append(f"{found:.2f} at {step:,} steps, over {len(both)} rows")
    if not said:
        return ""
    return f" Spearman's rank correlation of the losses here and there: {'; '.join(said)}."


def _printed_loss(study: Study, label: str, tasks: Sequence[str], step: int) -> Sample | None:
    names = {ours: theirs for theirs, ours in PERCENT_LOSS_LABELS.items()}
    if study.name == "design" and label in names and step == study.steps:
        if set(tasks) != set(study.tasks):
            return _loss_of_means(study, label, tasks, step)
        return paper.percent_losses()[names[label]]
    return _loss_of_means(study, label, tasks, step)


def _loss_of_means(study: Study, label: str, tasks: Sequence[str], step: int) -> Sample | None:
    there = paper.printed(study.table, step)
    reference = next(iter(study.rows))
    if any((name, task) not in there for name in (label, reference) for task in tasks):
        return None
    ratios = [there[label, task].mean / there[reference, task].mean for task in tasks]
    return Sample(float(100 * (1 - np.mean(ratios))), float("nan"), paper.SEEDS)

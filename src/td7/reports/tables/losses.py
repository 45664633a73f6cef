"""Percent losses against the reference row."""

from collections.abc import Sequence

import numpy as np

from td7.reports import paper
from td7.reports.result import Result
from td7.reports.tables.suites import (
    SuiteScores,
    left_out_sentence,
    suite_scores,
    tasks_text,
)
from td7.reports.tables.table import (
    Column,
    Record,
    Table,
    finite_or_none,
    mean_column,
    mean_text,
    new_table,
    value_column,
)
from td7.statistics import Sample, percent_loss, rank_correlation
from td7.studies.rows import Study
from td7.studies.rows.design import PERCENT_LOSS_LABELS

PAPER_SENTENCE = (
    " Paper: the printed loss or, if there is none, the loss computed from the printed means on "
    "the same tasks; if the paper has no numbers at this step, those at its last step."
)
FEWEST_RANKED = 3  # rows in a rank correlation


def losses(study: Study, results: Sequence[Result]) -> Table:
    """Every row's mean percent loss against the first, over the tasks of a suite that both have."""
    reference = next(iter(study.rows), "")
    notes: list[str] = []
    records: list[Record] = []
    for scores in suite_scores(study, results):
        at = f"at {scores.step:,} over {scores.suite}"
        if reference not in scores.rows:
            if scores.rows:
                notes.append(f"{study.name}: no percent losses {at}: {reference} is missing")
            continue
        for label in scores.rows:
            if label == reference:
                continue
            try:
                records.append(_record(scores, label, reference, notes))
            except ValueError as error:
                notes.append(f"{study.name}: no percent loss of {label} {at}: {error}")
    is_compared = any(record["paper_percent_loss"] is not None for record in records)
    columns = [
        value_column("steps", "step", ","),
        value_column("group", "group"),
        value_column("row", "row"),
        Column("tasks", tasks_text),
        mean_column("loss in %, here", "percent_loss", "interval", ".1f"),
        *([Column("paper", _paper_text)] if is_compared else []),
    ]
    return new_table(
        study,
        "losses",
        heading="Mean percent loss",
        caption=(
            f"Percentage of {reference}'s return that a row loses, averaged over the tasks that "
            "both have (negative: the row is better), ± the interval over seeds of that average."
            f"{PAPER_SENTENCE if is_compared else ''}{_rank_correlations(records)}"
            f"{left_out_sentence(records)}"
        ),
        records=records,
        columns=columns,
        lines=records,
        notes=notes,
    )


def _record(scores: SuiteScores, label: str, reference: str, notes: list[str]) -> Record:
    tasks = [task for task in scores.rows[reference] if task in scores.rows[label]]
    if not tasks:
        raise ValueError(f"no task that {reference} has")
    y = scores.matrix(reference, tasks, notes)
    x = scores.matrix(label, tasks, notes)
    loss = percent_loss(y, x)  # raises for an empty matrix
    paper_steps = paper.steps(scores.study.table)
    paper_step = scores.step if scores.step in paper_steps else max(paper_steps, default=0)
    printed = _paper_loss(scores.study, label, tasks, paper_step)
    return {
        **scores.fields(label, reference, tasks),
        "seeds": loss.n,
        "percent_loss": loss.mean,
        "interval": finite_or_none(loss.interval),
        "paper_step": paper_step if printed else None,
        "paper_percent_loss": printed.mean if printed else None,
        "paper_interval": finite_or_none(printed.interval) if printed else None,
    }


def _paper_text(record: Record) -> str:
    text = mean_text(record["paper_percent_loss"], record["paper_interval"], ".1f")
    step = record["paper_step"]
    return text if step in (None, record["step"]) else f"{text} at {step:,}"


def _rank_correlations(records: Sequence[Record]) -> str:
    """How well the order of the losses agrees with the paper's, at every step."""
    texts = []
    for step in dict.fromkeys(record["step"] for record in records):
        pairs = [
            (record["percent_loss"], record["paper_percent_loss"])
            for record in records
            if record["step"] == step and record["paper_percent_loss"] is not None
        ]
        if len(pairs) >= FEWEST_RANKED:
            correlation = rank_correlation(*zip(*pairs, strict=True))
            texts.append(f"{correlation:.2f} at {step:,} steps ({len(pairs)} rows)")
    if not texts:
        return ""
    return f" Spearman's rank correlation with the paper's losses: {', '.join(texts)}."


def _paper_loss(study: Study, label: str, tasks: Sequence[str], step: int) -> Sample | None:
    """The printed loss, which is over all tasks; on some of them, that of the printed means."""
    names = {ours: theirs for theirs, ours in PERCENT_LOSS_LABELS.items()}
    is_printed = study.name == "design" and label in names and step == study.steps
    if is_printed and set(tasks) == set(study.tasks):
        return paper.percent_losses()[names[label]]
    means = paper.printed(study.table, step)
    reference = next(iter(study.rows))
    if any((name, task) not in means for name in (label, reference) for task in tasks):
        return None
    ratios = [means[label, task].mean / means[reference, task].mean for task in tasks]
    return Sample(float(100 * (1 - np.mean(ratios))), float("nan"), paper.SEEDS)

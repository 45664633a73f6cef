"""Means over all tasks of a suite."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.reports import paper
from td7.reports.result import D4RL_SCORE, Result
from td7.reports.tables.suites import SuiteScores, suite_scores
from td7.reports.tables.table import (
    BASELINE,
    Column,
    Record,
    Table,
    finite_or_none,
    interval_text,
    mean_column,
    mean_text,
    new_table,
    value_column,
    value_text,
)
from td7.statistics import (
    Sample,
    iqm,
    iqm_interval,
    normalised,
    probability_of_improvement,
    probability_of_improvement_interval,
)
from td7.studies.rows import Study


def aggregates(study: Study, results: Sequence[Result]) -> Table:
    """Means over the tasks of a suite, and how often a row beats the reference."""
    notes: list[str] = []
    records = [
        record
        for scores in suite_scores(study, results)
        for label in scores.rows
        for record in _records(scores, label, notes)
    ]
    reference = _reference(study)
    has_baseline = BASELINE in study.rows
    columns = [
        value_column(study.step_unit, "step", ","),
        value_column("row", "row"),
        Column("tasks", lambda r: f"{r['tasks']} {r['suite']}"),
        value_column("seeds", "seeds"),
        Column("IQM", lambda r: interval_text(r["iqm"], r["iqm_low"], r["iqm_high"], ".3f")),
        mean_column("mean", "mean", "interval", ".3f"),
        Column("Student", _student_text),
        *([Column(f"of {BASELINE}", _baseline_text)] if has_baseline else []),
        Column("P", _improvement_text),
    ]
    return new_table(
        study,
        "aggregates",
        title=f"Over all tasks: {study.title}",
        caption=_caption(study, reference, has_baseline),
        records=records,
        columns=columns,
        lines=records,
        notes=notes,
    )


def _caption(study: Study, reference: str, has_baseline: bool) -> str:
    unit = "100, D4RL's score of an expert," if study.datasets else f"the paper's {reference} mean"
    multiple = f"Of {BASELINE}: the mean as a multiple of {BASELINE}'s, computed the same way. "
    return (
        f"Scores are divided by {unit} on the same task at the same step (by the {reference} "
        "mean here if the paper has none). IQM: the interquartile mean over all seeds and tasks, "
        "with a 95% bootstrap interval that resamples the seeds of every task. Mean: ± the paper's "
        "interval; Student: ± Student's t interval. "
        f"{multiple if has_baseline else ''}"
        f"P: the probability that a seed of the row beats a seed of {reference} here, over the "
        "tasks that both have, with a 95% bootstrap interval. Tasks of different versions are "
        "never averaged."
    )


def _student_text(record: Record) -> str:
    interval = value_text(record["student_interval"], ".3f")
    return interval if record["student_interval"] is None else f"± {interval}"


def _baseline_text(record: Record) -> str:
    text = mean_text(record["baseline_mean"], record["baseline_interval"], ".2f")
    tasks = record["baseline_tasks"]
    return f"{text} on {tasks}" if 0 < tasks < record["tasks"] else text


def _improvement_text(record: Record) -> str:
    ends = record["probability_low"], record["probability_high"]
    return interval_text(record["probability_of_improvement"], *ends, ".2f")


def _reference(study: Study) -> str:
    """TD7 as the study has it."""
    return "TD7" if "TD7" in study.rows else next(iter(study.rows), "")


def _records(scores: SuiteScores, label: str, notes: list[str]) -> list[Record]:
    """The record of a row; none if its tasks share no unit or no seed."""
    study, reference = scores.study, _reference(scores.study)
    units = _units(scores)
    tasks = [task for task in scores.rows[label] if task in units]
    if not tasks:
        return []
    x = scores.matrix(label, tasks, notes)
    if not x.size:
        where = f"{label} at {scores.step:,} over {scores.suite}"
        notes.append(f"{study.name}: {where}: no seed that all tasks have")
        return []
    shares = x / np.array([units[task] for task in tasks])
    random = np.random.default_rng(0)  # reports of the same runs are the same
    ends = iqm_interval(shares, random) if len(x) > 1 else None
    mean = Sample.of(shares.mean(axis=1))
    return [
        {
            **scores.fields(label, reference, tasks),
            "seeds": len(x),
            "iqm": iqm(shares),
            "iqm_low": ends.low if ends else None,
            "iqm_high": ends.high if ends else None,
            "mean": mean.mean,
            "interval": finite_or_none(mean.interval),
            "student_interval": finite_or_none(mean.student),
            **_multiple(x, tasks, _means(BASELINE, scores)),
            **_improvement(scores, label, tasks, random, notes),
        }
    ]


def _units(scores: SuiteScores) -> dict[str, float]:
    """place: what its scores are divided by. D4RL's scores are percentages already."""
    percent = {r.place: 100.0 for r in scores.results if r.quantity == D4RL_SCORE}
    return _means(_reference(scores.study), scores) | percent


def _means(label: str, scores: SuiteScores) -> dict[str, float]:
    """place: the paper's mean of a row; if it has none, the mean here, where that is positive."""
    printed = {
        place: sample.mean
        for (name, place), sample in paper.printed(scores.study.table, scores.step).items()
        if name == label
    }
    here = {
        place: float(np.mean(list(seeds.values())))
        for place, seeds in scores.rows.get(label, {}).items()
    }
    return {place: mean for place, mean in here.items() if mean > 0} | printed


def _multiple(
    x: NDArray[np.float64], tasks: Sequence[str], means: Mapping[str, float]
) -> dict[str, Any]:
    """The columns on the mean as a multiple of the baseline's, over the tasks that it has."""
    shared = [task for task in tasks if task in means]
    columns = [tasks.index(task) for task in shared]
    multiple = normalised(x[:, columns], [means[task] for task in shared]) if shared else None
    return {
        "baseline": BASELINE if multiple else None,
        "baseline_tasks": len(shared),
        "baseline_mean": multiple.mean if multiple else None,
        "baseline_interval": finite_or_none(multiple.interval) if multiple else None,
    }


def _improvement(
    scores: SuiteScores,
    label: str,
    tasks: Sequence[str],
    random: np.random.Generator,
    notes: list[str],
) -> dict[str, Any]:
    """The columns on how often a row beats the reference, over the tasks that both have."""
    reference = _reference(scores.study)
    shared = [task for task in tasks if task in scores.rows.get(reference, {})]
    probability = ends = None
    if shared and label != reference:
        a = scores.matrix(label, shared, notes)
        b = scores.matrix(reference, shared, notes)
        if a.size and b.size:
            has_interval = min(len(a), len(b)) > 1
            ends = probability_of_improvement_interval(a, b, random) if has_interval else None
            probability = probability_of_improvement(a, b)
    return {
        "probability_of_improvement": probability,
        "probability_low": ends.low if ends else None,
        "probability_high": ends.high if ends else None,
    }

"""Means over all tasks of a suite."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.reports import paper
from td7.reports.result import D4RL_SCORE, Result, step_unit
from td7.reports.tables.suites import (
    SuiteScores,
    left_out_sentence,
    suite_scores,
    tasks_text,
)
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
    shown_steps,
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
    reference = _reference(study, results)
    records = [
        record
        for scores in suite_scores(study, results)
        for label in scores.rows
        for record in _records(scores, label, reference, notes)
    ]
    has_baseline = any(record["baseline_mean"] is not None for record in records)
    has_others = any(record["probability_of_improvement"] is not None for record in records)
    columns = [
        value_column(step_unit(results), "step", ","),
        value_column("row", "row"),
        Column("tasks", tasks_text),
        value_column("seeds", "seeds"),
        Column("IQM", lambda r: interval_text(r["iqm"], r["iqm_low"], r["iqm_high"], ".3f")),
        mean_column("mean", "mean", "interval", ".3f"),
        Column("Student", _student_text),
        *([Column(f"of {BASELINE}", _baseline_text)] if has_baseline else []),
        *([Column("P", _improvement_text)] if has_others else []),
    ]
    sentences = [
        _unit_sentence(study, reference, records),
        "IQM: the interquartile mean over all seeds and tasks, with a 95% bootstrap interval that "
        "resamples the seeds of every task. Mean: ± the paper's interval; Student: ± Student's t "
        "interval.",
        *([_baseline_sentence()] if has_baseline else []),
        *([_improvement_sentence(reference)] if has_others else []),
        "Tasks of different versions are never averaged.",
    ]
    return new_table(
        study,
        "aggregates",
        heading="Over all tasks",
        caption=" ".join(sentences) + left_out_sentence(records),
        records=records,
        columns=columns,
        lines=records,
        notes=notes,
    )


def _reference(study: Study, results: Sequence[Result]) -> str:
    """TD7 as the study has it; if there is no such number, the first row with the most tasks."""
    reference = "TD7" if "TD7" in study.rows else next(iter(study.rows), "")
    steps = shown_steps(study, results)
    printed = {key for step in steps for key in paper.printed(study.table, step)}
    labels = [result.label for result in results]
    has_number = any((reference, result.place) in printed for result in results)
    if reference in labels or has_number:
        return reference
    return max(dict.fromkeys(labels), key=labels.count, default=reference)


# -- caption -------------------------------------------------------------------------------------


def _unit_sentence(study: Study, reference: str, records: Sequence[Record]) -> str:
    here = f"the mean of {reference} here"
    if study.datasets:
        return (
            "Scores are divided by 100, D4RL's score of an expert; returns of a task without such "
            f"scores by {here} at the same step."
        )
    if any(record["paper_units"] for record in records):
        return (
            f"Scores are divided by the paper's {reference} mean on the same task at the same "
            f"step (by {here} if the paper has none)."
        )
    return f"Returns are divided by {here} on the same task at the same step."


def _baseline_sentence() -> str:
    return f"Of {BASELINE}: the mean as a multiple of {BASELINE}'s, computed the same way."


def _improvement_sentence(reference: str) -> str:
    return (
        f"P: the probability that a seed of the row beats a seed of {reference} here, over the "
        "tasks that both have, with a 95% bootstrap interval."
    )


# -- cells and records ---------------------------------------------------------------------------


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


def _records(scores: SuiteScores, label: str, reference: str, notes: list[str]) -> list[Record]:
    """The record of a row; none if its tasks have no unit or share no seed."""
    units, where = _units(scores, reference), f"{label} at {scores.step:,} over {scores.suite}"
    tasks = [task for task in scores.rows[label] if task in units]
    if not tasks:
        reason = f"no task with a positive mean of {reference}"
        notes.append(f"{scores.study.name}: no mean over tasks of {where}: {reason}")
        return []
    x = scores.matrix(label, tasks, notes)
    if not x.size:
        notes.append(f"{scores.study.name}: {where}: no seed that all tasks have")
        return []
    shares = x / np.array([units[task] for task in tasks])
    random = np.random.default_rng(0)  # reports of the same runs are the same
    ends = iqm_interval(shares, random) if len(x) > 1 else None
    mean = Sample.of(shares.mean(axis=1))
    return [
        {
            **scores.fields(label, reference, tasks),
            "paper_units": len(set(tasks) & set(_printed(scores, reference))) or None,
            "seeds": len(x),
            "iqm": iqm(shares),
            "iqm_low": ends.low if ends else None,
            "iqm_high": ends.high if ends else None,
            "mean": mean.mean,
            "interval": finite_or_none(mean.interval),
            "student_interval": finite_or_none(mean.student),
            **_multiple(x, tasks, _means(BASELINE, scores)),
            **_improvement(scores, label, reference, tasks, random, notes),
        }
    ]


def _units(scores: SuiteScores, reference: str) -> dict[str, float]:
    """place: what its scores are divided by. D4RL's scores are percentages already."""
    percent = {r.place: 100.0 for r in scores.results if r.quantity == D4RL_SCORE}
    return _means(reference, scores) | percent


def _means(label: str, scores: SuiteScores) -> dict[str, float]:
    """place: the paper's mean of a row; if it has none, the mean here, where that is positive."""
    here = {
        place: float(np.mean(list(seeds.values())))
        for place, seeds in scores.rows.get(label, {}).items()
    }
    return {place: mean for place, mean in here.items() if mean > 0} | _printed(scores, label)


def _printed(scores: SuiteScores, label: str) -> dict[str, float]:
    """place: the paper's mean of a row at this step."""
    return {
        place: sample.mean
        for (name, place), sample in paper.printed(scores.study.table, scores.step).items()
        if name == label
    }


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
    reference: str,
    tasks: Sequence[str],
    random: np.random.Generator,
    notes: list[str],
) -> dict[str, Any]:
    """The columns on how often a row beats the reference, over the tasks that both have."""
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

"""Means over all tasks of a suite."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from td7.report import paper
from td7.report.result import D4RL_SCORE, Result, suites
from td7.report.tables.table import (
    BASELINE,
    Cell,
    Table,
    Value,
    beside,
    made_table,
    matrix,
    number_or_none,
    range_text,
    sample_text,
    steps_shown,
    values_by_row,
)
from td7.statistics import (
    Interval,
    Sample,
    iqm,
    iqm_interval,
    normalised,
    probability_of_improvement,
    probability_of_improvement_interval,
)
from td7.studies.rows import Study

# -- over all tasks ------------------------------------------------------------------------------


def aggregates(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Means over the tasks of a suite, and how often a row beats the reference."""
    reference = _reference(study)
    has_baseline = BASELINE in study.rows
    records: list[Mapping[str, Value]] = []
    lines = []
    steps = [step for step in steps_shown(study, results) if step]  # at 0 nobody has learned
    for step, (suite, own_results) in product(steps, suites(results).items()):
        there = paper.printed(study.table, step)
        by_row = values_by_row(own_results, step)
        # D4RL's scores are shares already.
        scored = {r.place: 100.0 for r in own_results if r.quantity == D4RL_SCORE}
        unit = _means(reference, by_row, there) | scored
        baseline = _means(BASELINE, by_row, there)
        for label, own in by_row.items():
            tasks = [task for task in own if task in unit]
            if not tasks:
                continue
            x = matrix(own, tasks, f"{study.name}: {label}", notes)
            if not x.size:
                what = f"{label} at {step:,} over {suite}: no seed that all tasks have"
                notes.append(f"{study.name}: {what}")
                continue
            shares = x / np.array([unit[task] for task in tasks])
            random = np.random.default_rng(0)  # the same report again
            middle = iqm(shares)
            ends = iqm_interval(shares, random) if len(x) > 1 else None
            mean = Sample.of(shares.mean(axis=1))
            based = [task for task in tasks if task in baseline]
            columns = [tasks.index(task) for task in based]
            ratio = normalised(x[:, columns], [baseline[t] for t in based]) if based else None
            better, better_ends = _improvement(study, by_row, label, tasks, random, notes)
            records.append(
                {
                    **beside(study, label, reference, step, suite, tasks),
                    "seeds": len(x),
                    "iqm": middle,
                    "iqm_low": ends.low if ends else None,
                    "iqm_high": ends.high if ends else None,
                    "mean": mean.mean,
                    "interval": number_or_none(mean.interval),
                    "student_interval": number_or_none(mean.student),
                    "baseline": BASELINE if ratio else None,
                    "baseline_tasks": len(based),
                    "baseline_mean": ratio.mean if ratio else None,
                    "baseline_interval": number_or_none(ratio.interval) if ratio else None,
                    "probability_of_improvement": better,
                    "probability_low": better_ends.low if better_ends else None,
                    "probability_high": better_ends.high if better_ends else None,
                }
            )
            fewer = f" on {len(based)}" if ratio and len(based) < len(tasks) else ""
            words = (
                *(f"{step:,}", label, f"{len(tasks)} {suite}", str(len(x))),
                *(range_text(middle, ends, ".3f"), sample_text(mean, ".3f")),
                f"± {mean.student:.3f}" if np.isfinite(mean.student) else "–",
                *([sample_text(ratio, ".2f") + fewer] if has_baseline else []),
                range_text(better, better_ends, ".2f"),
            )
            lines.append(tuple(Cell(word) for word in words))
    share = "100 points of D4RL's score" if study.datasets else f"the paper's {reference}"
    multiples = f" Of {BASELINE}: the mean in multiples of {BASELINE}'s, likewise."
    caption = (
        f"In shares of {share} on the same task at the same step (where there is none, of "
        f"{reference}'s mean here): the interquartile mean over all "
        "seeds and tasks with 95% of a bootstrap that draws each task's seeds anew; the mean "
        f"± the paper's interval; ± Student's.{multiples if has_baseline else ''} P: how often a "
        f"seed of the row beats one of {reference}'s here, over the tasks that both have, with 95% "
        "of such a bootstrap. Tasks of different versions are never averaged."
    )
    of_baseline = [f"of {BASELINE}"] if has_baseline else []
    means = ("IQM", "mean", "Student", *of_baseline)
    header = (study.step_unit, "row", "tasks", "seeds", *means, "P")
    title = f"Over all tasks: {study.title}"
    return made_table(study, "aggregates", title, caption, header, lines, records)


def _reference(study: Study) -> str:
    """TD7 as the study has it."""
    return "TD7" if "TD7" in study.rows else next(iter(study.rows), "")


def _means(
    label: str,
    by_row: Mapping[str, Mapping[str, Mapping[int, float]]],
    there: Mapping[tuple[str, str], Sample],
) -> dict[str, float]:
    """place: the paper's mean of a row; where it has none, that of here, if it is positive."""
    own = {place: float(np.mean(list(s.values()))) for place, s in by_row.get(label, {}).items()}
    printed = {place: sample.mean for (name, place), sample in there.items() if name == label}
    return {place: mean for place, mean in own.items() if mean > 0} | printed


def _improvement(
    study: Study,
    by_row: Mapping[str, Mapping[str, Mapping[int, float]]],
    label: str,
    tasks: Sequence[str],
    random: np.random.Generator,
    notes: list[str],
) -> tuple[float | None, Interval | None]:
    """Of a row over the reference, and its interval, where there is something to draw."""
    reference = _reference(study)
    both = [task for task in tasks if task in by_row.get(reference, {})]
    if not both or label == reference:
        return None, None
    a = matrix(by_row[label], both, f"{study.name}: {label}", notes)
    b = matrix(by_row[reference], both, f"{study.name}: {reference}", notes)
    if not a.size or not b.size:
        return None, None
    several = min(len(a), len(b)) > 1
    ends = probability_of_improvement_interval(a, b, random) if several else None
    return probability_of_improvement(a, b), ends

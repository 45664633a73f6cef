"""Results → tables beside the paper's: numbers for programs, and cells for people.

What a study's tables are is in VIEWS; every view is the same function for all studies.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from td7.report import paper
from td7.report.read import D4RL_SCORE, Result, known, machine_of, places, suites
from td7.statistics import (
    Interval,
    Sample,
    drops,
    highlighted,
    iqm,
    iqm_interval,
    normalised,
    percent_loss,
    probability_of_improvement,
    probability_of_improvement_interval,
    rank_correlation,
    times_to_reach,
    welch,
)
from td7.studies.rows import Study
from td7.studies.rows.design import PERCENT_LOSS_LABELS

DROP_PERCENTS = (10, 25, 50)
DROP_WINDOWS = (1, 5, 10)  # evaluations, the paper's
FEWEST_RANKED = 3  # rows whose order can be compared
BASELINE = "TD3"  # the row whose scores others are timed to, and measured by

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Cell:
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table twice: `records` has every number in full, `lines` what is printed of them."""

    name: str  # of its files
    study: str
    kind: str  # of VIEWS
    title: str
    caption: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    records: tuple[Mapping[str, Value], ...]


def tables(studies: Mapping[str, Sequence[Result]]) -> tuple[list[Table], list[str]]:
    """Every table that the results allow, and what could not be told."""
    found: list[Table] = []
    notes: list[str] = []
    for name, results in studies.items():
        known_results = [result for result in results if result.curves]
        for view in VIEWS.get(name, DEFAULT_VIEWS):
            table = view(known(name), known_results, notes)
            if table is not None and table.records:
                found.append(table)
    return found, notes


# -- scores --------------------------------------------------------------------------------------


def headline(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """The paper's numbers and ours, at the step where the most of them can be compared."""
    del notes
    both: dict[int, dict[tuple[str, str], tuple[Sample, Sample]]] = {}
    for step in steps_shown(study, results):
        here, there = _samples(results, step), paper.printed(study.table, step)
        both[step] = {key: (there[key], s) for key, s in here.items() if key in there}
    step = max(both, key=lambda step: (len(both[step]), step), default=0)
    found = both.get(step, {})
    if not found:
        return None
    columns = [p for p in places(results) if any(p == place for _, place in found)]
    spec = ".1f" if study.datasets else ".0f"
    lines = []
    for label in dict.fromkeys(label for label, _ in found):
        cells = []
        for place in columns:
            pair = found.get((label, place))
            said = [_said(sample, spec) for sample in pair or (None,)]
            cells.append(Cell(f"{said[1]} ({said[0]})" if pair else said[0]))
        lines.append(_line((label,), cells))
    records = [
        {
            "study": study.name,
            "row": label,
            "place": place,
            "step": step,
            "seeds": here.n,
            "mean": here.mean,
            "interval": _number(here.interval),
            "paper_mean": there.mean,
            "paper_interval": there.interval,
        }
        for (label, place), (there, here) in found.items()
    ]
    counts = sorted({here.n for _, here in found.values()})
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    caption = (
        "Mean ± 1.96 / sqrt(n) * sd over seeds, the paper's interval; in brackets the paper's."
    )
    each = f"{seeds} seed{'s' * (counts[-1] > 1)}"
    header = (f"{step:,} {study.counted}, {each} (paper)", *columns)
    title = f"Beside the paper's: {study.title}"
    return _table(study, "headline", title, caption, header, lines, records)


def scores(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Mean ± interval of every row and place, the paper's beside, at the paper's steps."""
    del notes
    at = {place: next(r for r in results if r.place == place) for place in places(results)}
    has_total = bool(study.datasets) and _has_total(study, results)
    columns = [*at, *([paper.TOTAL] if has_total else [])]
    spec = ".1f" if study.datasets else ".0f"
    records: list[Mapping[str, Value]] = []
    of_data = {place: result.of_data for place, result in at.items()}
    told = [of_data.get(column) for column in columns]
    tells_data = any(mean is not None for mean in told)
    lines: list[tuple[Cell, ...]] = []
    if tells_data:
        means = [Cell("–" if mean is None else f"{mean:{spec}}") for mean in told]
        lines.append(_line(("", "the data", ""), means))
    for step in steps_shown(study, results):
        here = _samples(results, step)
        there = paper.printed(study.table, step)
        if has_total:
            here |= _totals(study, here)
        best = {column: _best(here, column) for column in columns}
        there_best = {column: _best(there, column) for column in columns}
        labels = [label for label in _labels(results) if any(k[0] == label for k in here)]
        for label in labels:
            row = {c: _compared(here.get((label, c)), there.get((label, c))) for c in columns}
            for column, found in row.items():
                if found.here is None:
                    continue
                records.append(
                    {
                        "study": study.name,
                        "group": _group(study, label),
                        "row": label,
                        "place": column,
                        "data": at[column].data if column in at else "",
                        "data_mean": of_data.get(column),
                        "step": step,
                        "quantity": at[column].quantity if column in at else D4RL_SCORE,
                        "seeds": found.here.n,
                        "mean": found.here.mean,
                        "interval": _number(found.here.interval),
                        "student_interval": _number(found.here.student),
                        "highlighted": label in best[column],
                        "paper_mean": found.there.mean if found.there else None,
                        "paper_interval": _number(found.there.interval) if found.there else None,
                        "paper_highlighted": label in there_best[column],
                        "difference_percent": found.difference,
                        "p": found.p,
                    }
                )
            head = (f"{step:,}", label)
            lines.append(
                _line(
                    (*head, "here"),
                    [
                        Cell(_said(found.here, spec), label in best[column])
                        for column, found in row.items()
                    ],
                )
            )
            if any(found.there and found.here for found in row.values()):
                lines += [
                    _line(
                        (*head, "paper"),
                        [
                            Cell(_said(found.there, spec), label in there_best[column])
                            for column, found in row.items()
                        ],
                    ),
                    _line((*head, "difference"), [Cell(found.words) for found in row.values()]),
                ]
    returns = [place for place, result in at.items() if result.quantity == "return"]
    quantity = "return" if returns == list(at) else "D4RL's score"
    caption = (
        f"Mean {quantity} of the evaluation at a step ± the paper's interval (1.96 / sqrt(n) * sd "
        "over seeds). Bold: not significantly worse than the column's best (Welch's test, "
        "one-sided, 0.05), among the rows that are there. Difference: from the paper's mean, and "
        "the p-value of Welch's test, two-sided." + _student(records)
    )
    if tells_data:
        caption += " The data: the mean over their own episodes."
    collected = [result.title for result in at.values() if result.title != result.place]
    if collected:
        caption += f" Not D4RL's data: {', '.join(collected)}."
    if returns and returns != list(at):
        caption += f" Returns, since their tasks have no score: {', '.join(returns)}."
    titles = [at[column].title if column in at else column for column in columns]
    header = (study.counted, "row", "", *titles)
    return _table(study, "scores", study.title, caption, header, lines, records)


def _student(records: Sequence[Mapping[str, Value]]) -> str:
    """How much wider Student's interval is than the paper's: a number of the seeds alone."""
    counts = sorted({int(str(record["seeds"])) for record in records} - {1}, reverse=True)
    samples = [Sample(0.0, 1.0, n) for n in counts]
    wider = [f"{s.student / s.interval:.2f} times as wide with {s.n} seeds" for s in samples]
    return f" Student's (in the CSV file) is {', '.join(wider)}." if wider else ""


@dataclass(frozen=True)
class Compared:
    here: Sample | None
    there: Sample | None
    difference: float | None  # percent
    p: float | None

    @property
    def words(self) -> str:
        if self.difference is None:
            return "–"
        if self.p is None:
            return f"{self.difference:+.1f}%"
        test = f"p {self.p:.2f}" if self.p >= 0.005 else "p < 0.005"
        return f"{self.difference:+.1f}%, {test}"


def _compared(here: Sample | None, there: Sample | None) -> Compared:
    if here is None or there is None:
        return Compared(here, there, None, None)
    p = welch(here, there) if np.isfinite(here.sd) and here.sd + there.sd > 0 else None
    return Compared(here, there, 100 * (here.mean / there.mean - 1), p)


def _samples(results: Sequence[Result], step: int) -> dict[tuple[str, str], Sample]:
    found = {(r.label, r.place): r.at(step) for r in results}
    return {key: Sample.of(numbers) for key, numbers in found.items() if numbers is not None}


def _has_total(study: Study, results: Sequence[Result]) -> bool:
    return any(
        {r.place for r in results if r.label == label} >= set(study.datasets)
        for label in _labels(results)
    )


def _totals(study: Study, here: Mapping[tuple[str, str], Sample]) -> dict[tuple[str, str], Sample]:
    """Sums over the paper's datasets; intervals add as those of independent numbers, as its do."""
    found = {}
    for label in dict.fromkeys(label for label, _ in here):
        parts = [here[label, d] for d in study.datasets if (label, d) in here]
        if len(parts) == len(study.datasets):
            sd = float(np.sqrt(sum(part.sd**2 for part in parts)))
            n = min(part.n for part in parts)
            found[label, paper.TOTAL] = Sample(sum(part.mean for part in parts), sd, n)
    return found


def _best(samples: Mapping[tuple[str, str], Sample], column: str) -> set[str]:
    """Of rows with two seeds or more; nothing to compare is nothing to highlight."""
    own = {label: s for (label, place), s in samples.items() if place == column}
    tested = {label: s for label, s in own.items() if np.isfinite(s.sd)}
    return highlighted(tested) if len(tested) > 1 else set()


def steps_shown(study: Study, results: Sequence[Result]) -> list[int]:
    """The paper's steps that a run has, the last of finished runs, and one that the others have."""
    evaluated = [set(r.curves.steps) for r in results if r.curves]
    wanted = {
        step for step in paper.steps(study.table) if any(step in steps for steps in evaluated)
    }
    wanted |= {r.last for r in results if r.finished and r.last is not None}
    others = [steps for steps in evaluated if not steps & wanted]
    if others:
        shared = set.intersection(*others)
        wanted |= {max(shared)} if shared - {0} else {max(steps) for steps in others}
    return sorted(wanted)


# -- percent losses ------------------------------------------------------------------------------


def losses(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Every row's mean percent loss against the first, over the tasks of a suite both have."""
    reference = next(iter(study.rows), "")
    records: list[Mapping[str, Value]] = []
    lines = []
    theirs = paper.steps(study.table)
    steps = [step for step in steps_shown(study, results) if step]  # at 0 nobody has learned
    for step, (suite, own_results) in product(steps, suites(results).items()):
        by_row = _by_row(own_results, step)
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
            y = _matrix(by_row[reference], tasks, f"{study.name}: {reference}", notes)
            x = _matrix(own, tasks, f"{study.name}: {label}", notes)
            try:
                overall = percent_loss(y, x)  # refuses an empty one
            except ValueError as error:
                notes.append(f"{study.name}: {label} at {step:,}: no percent loss: {error}")
                continue
            paper_step = step if step in theirs else max(theirs, default=0)
            there = _printed_loss(study, label, tasks, paper_step)
            records.append(
                {
                    **_beside(study, label, reference, step, suite, tasks),
                    "seeds": overall.n,
                    "percent_loss": overall.mean,
                    "interval": _number(overall.interval),
                    "paper_step": paper_step if there else None,
                    "paper_percent_loss": there.mean if there else None,
                    "paper_interval": _number(there.interval) if there else None,
                }
            )
            words = (f"{step:,}", _group(study, label), label, f"{len(tasks)} {suite}")
            when = f" at {paper_step:,}" if there and paper_step != step else ""
            numbers = (_said(overall, ".1f"), _said(there, ".1f") + when)
            lines.append(tuple(Cell(word) for word in (*words, *numbers)))
    caption = (
        f"Percent of {reference}'s return that a row loses, averaged over the tasks that both have "
        "(negative: the row is better), ± the interval of the seeds' means over tasks. The "
        "paper's: as printed; where it prints none, from its means over the same tasks; of its "
        f"last step, where it has none at ours.{_same_order(records)}"
    )
    header = ("steps", "group", "row", "tasks", "loss in %, here", "paper")
    title = f"Mean percent loss: {study.title}"
    return _table(study, "losses", title, caption, header, lines, records)


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


def _by_row(results: Sequence[Result], step: int) -> dict[str, dict[str, dict[int, float]]]:
    """label: place: seed: number."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        numbers = result.at(step)
        if numbers is not None:
            own = found.setdefault(result.label, {})
            own[result.place] = dict(zip(result.seeds, numbers.tolist(), strict=True))
    return found


def _matrix(
    own: Mapping[str, Mapping[int, float]], tasks: Sequence[str], what: str, notes: list[str]
) -> NDArray[np.float64]:
    """[seeds, tasks], of the seeds that every task has."""
    shared = [seed for seed in own[tasks[0]] if all(seed in own[task] for task in tasks)]
    everything = {seed for task in tasks for seed in own[task]}
    if len(shared) < len(everything):
        out = ", ".join(str(seed) for seed in sorted(everything - set(shared)))
        notes.append(f"{what}: without seed {out} over tasks, since a task lacks it")
    return np.array([[own[task][seed] for task in tasks] for seed in shared])


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
        by_row = _by_row(own_results, step)
        # D4RL's scores are shares already.
        scored = {r.place: 100.0 for r in own_results if r.quantity == D4RL_SCORE}
        unit = _means(reference, by_row, there) | scored
        baseline = _means(BASELINE, by_row, there)
        for label, own in by_row.items():
            tasks = [task for task in own if task in unit]
            if not tasks:
                continue
            x = _matrix(own, tasks, f"{study.name}: {label}", notes)
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
                    **_beside(study, label, reference, step, suite, tasks),
                    "seeds": len(x),
                    "iqm": middle,
                    "iqm_low": ends.low if ends else None,
                    "iqm_high": ends.high if ends else None,
                    "mean": mean.mean,
                    "interval": _number(mean.interval),
                    "student_interval": _number(mean.student),
                    "baseline": BASELINE if ratio else None,
                    "baseline_tasks": len(based),
                    "baseline_mean": ratio.mean if ratio else None,
                    "baseline_interval": _number(ratio.interval) if ratio else None,
                    "probability_of_improvement": better,
                    "probability_low": better_ends.low if better_ends else None,
                    "probability_high": better_ends.high if better_ends else None,
                }
            )
            fewer = f" on {len(based)}" if ratio and len(based) < len(tasks) else ""
            words = (
                *(f"{step:,}", label, f"{len(tasks)} {suite}", str(len(x))),
                *(_between(middle, ends, ".3f"), _said(mean, ".3f")),
                f"± {mean.student:.3f}" if np.isfinite(mean.student) else "–",
                *([_said(ratio, ".2f") + fewer] if has_baseline else []),
                _between(better, better_ends, ".2f"),
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
    header = (study.counted, "row", "tasks", "seeds", *means, "P")
    title = f"Over all tasks: {study.title}"
    return _table(study, "aggregates", title, caption, header, lines, records)


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
    a = _matrix(by_row[label], both, f"{study.name}: {label}", notes)
    b = _matrix(by_row[reference], both, f"{study.name}: {reference}", notes)
    if not a.size or not b.size:
        return None, None
    several = min(len(a), len(b)) > 1
    ends = probability_of_improvement_interval(a, b, random) if several else None
    return probability_of_improvement(a, b), ends


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
            group = _group(study, result.label)
            records.append(
                {
                    "study": study.name,
                    "group": group,
                    "row": result.label,
                    "place": result.place,
                    "step": step,
                    "seeds": score.n,
                    "return_mean": score.mean,
                    "return_interval": _number(score.interval),
                    "value_mean": value.mean if value else None,
                    "value_interval": _number(value.interval) if value else None,
                    "value_highest": float(values[told].max()) if value else None,
                }
            )
            highest = f"{values[told].max():.0f}" if value else "–"
            words = (f"{step:,}", group, result.label, result.place)
            numbers_said = (_said(score, ".0f"), _said(value, ".0f"), highest)
            lines.append(tuple(Cell(word) for word in (*words, *numbers_said)))
    caption = (
        "Return, and the critics' value of the policy's actions as last recorded before the "
        "evaluation, mean over seeds ± the paper's interval; highest: of the seeds. The paper "
        "draws curves and prints no numbers."
    )
    header = ("steps", "group", "row", "task", "return", "value estimate", "highest")
    title = f"Value estimates: {study.title}"
    return _table(study, "values", title, caption, header, lines, records)


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
                        "group": _group(study, result.label),
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
    return _table(study, "drops", f"Drops: {study.title}", caption, header, lines, records)


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


def speed(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """Minutes of every finished run, and for 1M steps beside the paper's."""
    del notes
    there = paper.minutes()
    records: list[Mapping[str, Value]] = []
    lines = []
    for result in results:
        if result.seconds is None or result.seconds_a_step is None:
            continue
        seeds = len(result.seeds)
        minutes, million = result.seconds / 60, result.seconds_a_step * 1_000_000 / 60
        printed_minutes = there.get((result.label, result.where))
        under_way = result.learning_seconds is not None
        machine = machine_of(result.config)
        records.append(
            {
                "study": study.name,
                "row": result.label,
                "place": result.place,
                "steps": result.steps,
                "seeds": seeds,
                "minutes": minutes,
                "milliseconds_a_step": 1e3 * result.seconds_a_step,
                "timed_under_way": under_way,
                "minutes_a_million_steps": million,
                "minutes_a_million_steps_and_seed": million / seeds,
                "paper_minutes": printed_minutes,
                "machine": machine,
            }
        )
        words = (result.label, result.where, f"{result.steps:,}", str(seeds), f"{minutes:.1f}")
        step = f"{1e3 * result.seconds_a_step:.2f}"
        by = "under way" if under_way else "whole run"
        numbers = (f"{million:.1f}", f"{million / seeds:.1f}")
        said = "–" if printed_minutes is None else f"{printed_minutes:.0f}"
        lines.append(tuple(Cell(word) for word in (*words, step, by, *numbers, said, machine)))
    caption = (
        "Minutes: of the whole run by the clock, all seeds together, with evaluation and "
        "compiling. Then milliseconds of a step of all seeds, and the minutes that 1M steps take "
        "at that rate, for all seeds and for each of them. Under way: timed in the second half of "
        "the steps, without set-up, exploring at random, compiling and snapshots, and without "
        "evaluation unless worker processes evaluate beside; whole run: of the minutes, in runs "
        "that did not time it. The paper's: one seed, 1M steps, without evaluation, on "
        f"{paper.machine()}."
    )
    header = (
        *("row", "task", "steps", "seeds", "minutes", "ms a step", "timed"),
        *("1M steps", "a seed", "paper", "on"),
    )
    title = study.title if study.times_machines else f"Run time: {study.title}"
    return _table(study, "speed", title, caption, header, lines, records)


def reaching(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """When seeds first get to where the paper's TD3 is after its steps."""
    del notes
    records: list[Mapping[str, Value]] = []
    lines = []
    for result in results:
        assert result.curves is not None  # as for every view
        for paper_step in paper.steps(study.table):
            there = paper.printed(study.table, paper_step).get((BASELINE, result.place))
            if there is None:
                continue
            times = times_to_reach(result.curves.steps, result.curves.values, there.mean)
            got_there = sum(time is not None for time in times)
            median = float(np.median([np.inf if time is None else time for time in times]))
            known_median = median if np.isfinite(median) else None
            minutes = None
            if known_median is not None and result.seconds_a_step is not None:
                minutes = known_median * result.seconds_a_step / 60
            records.append(
                {
                    "study": study.name,
                    "row": result.label,
                    "place": result.place,
                    "score": there.mean,
                    "paper_step": paper_step,
                    "seeds": len(result.seeds),
                    "seeds_reaching": got_there,
                    "median_steps": known_median,
                    "minutes": minutes,
                }
            )
            score = f"{there.mean:.0f}, at {paper_step:,}"
            share = f"{got_there} of {len(result.seeds)}"
            steps = f"> {result.last:,}" if known_median is None else f"{known_median:,.0f}"
            said = "–" if minutes is None else f"{minutes:.1f}"
            words = (result.label, result.where, score, share, steps, said)
            lines.append(tuple(Cell(word) for word in words))
    caption = (
        f"Steps before the first evaluation that has a seed where the paper's {BASELINE} is after "
        "its steps: the median over seeds, where those that never get there count as later than "
        "all. Minutes: at the run's milliseconds a step, all seeds together."
    )
    header = ("row", "task", f"{BASELINE}'s score", "seeds that reach it", "steps", "minutes")
    title = f"Steps to {BASELINE}'s scores: {study.title}"
    return _table(study, "reaching", title, caption, header, lines, records)


View = Callable[[Study, Sequence[Result], list[str]], Table | None]
DEFAULT_VIEWS: tuple[View, ...] = (scores, speed)
VIEWS: Mapping[str, tuple[View, ...]] = {
    "online": (headline, scores, aggregates, reaching, falls, speed),
    "offline": (headline, scores, aggregates, speed),
    "design": (scores, losses, aggregates, speed),
    "extrapolation": (scores, estimates, speed),
    "checkpoints": (scores, losses, aggregates, falls, speed),
    "ablation-main": (scores, losses, aggregates, speed),
    "ablation": (scores, losses, aggregates, speed),
    "runtime": (speed, scores),
}


# -- parts ---------------------------------------------------------------------------------------


def _table(
    study: Study,
    kind: str,
    title: str,
    caption: str,
    header: Sequence[str],
    lines: Sequence[tuple[Cell, ...]],
    records: Sequence[Mapping[str, Value]],
) -> Table:
    name = re.sub(r"[^\w.+-]+", "_", f"{study.name}-{kind}")
    found = f"{title} ({study.where})"
    return Table(
        name, study.name, kind, found, caption, tuple(header), tuple(lines), tuple(records)
    )


def _line(head: Iterable[str], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    return (*(Cell(word) for word in head), *cells)


def _said(sample: Sample | None, spec: str) -> str:
    if sample is None:
        return "–"
    return f"{sample:{spec}}" if np.isfinite(sample.interval) else f"{sample.mean:{spec}}"


def _between(value: float | None, ends: Interval | None, spec: str) -> str:
    if value is None:
        return "–"
    return f"{value:{spec}}" + (f" [{ends.low:{spec}}, {ends.high:{spec}}]" if ends else "")


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _labels(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.label for result in results))


def _beside(
    study: Study, label: str, reference: str, step: int, suite: str, tasks: Sequence[str]
) -> dict[str, Value]:
    """Which row a record compares with which, at what step, over how many tasks."""
    return {
        "study": study.name,
        "group": _group(study, label),
        "row": label,
        "reference": reference,
        "step": step,
        "suite": suite,
        "tasks": len(tasks),
    }


def _group(study: Study, label: str) -> str:
    return study.rows[label].group if label in study.rows else ""

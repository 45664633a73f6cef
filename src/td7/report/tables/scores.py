"""Mean returns or scores of every row and task, with the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from td7.report import paper
from td7.report.result import D4RL_SCORE, Result, places
from td7.report.tables.table import (
    Cell,
    Table,
    Value,
    group_of,
    labels_of,
    made_table,
    number_or_none,
    sample_text,
    samples,
    steps_shown,
    table_line,
)
from td7.statistics import Sample, highlighted, welch
from td7.studies.rows import Study


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
        lines.append(table_line(("", "the data", ""), means))
    for step in steps_shown(study, results):
        here = samples(results, step)
        there = paper.printed(study.table, step)
        if has_total:
            here |= _totals(study, here)
        best = {column: _best(here, column) for column in columns}
        there_best = {column: _best(there, column) for column in columns}
        labels = [label for label in labels_of(results) if any(k[0] == label for k in here)]
        for label in labels:
            row = {c: _compared(here.get((label, c)), there.get((label, c))) for c in columns}
            for column, found in row.items():
                if found.here is None:
                    continue
                records.append(
                    {
                        "study": study.name,
                        "group": group_of(study, label),
                        "row": label,
                        "place": column,
                        "data": at[column].data if column in at else "",
                        "data_mean": of_data.get(column),
                        "step": step,
                        "quantity": at[column].quantity if column in at else D4RL_SCORE,
                        "seeds": found.here.n,
                        "mean": found.here.mean,
                        "interval": number_or_none(found.here.interval),
                        "student_interval": number_or_none(found.here.student),
                        "highlighted": label in best[column],
                        "paper_mean": found.there.mean if found.there else None,
                        "paper_interval": number_or_none(found.there.interval)
                        if found.there
                        else None,
                        "paper_highlighted": label in there_best[column],
                        "difference_percent": found.difference,
                        "p": found.p,
                    }
                )
            head = (f"{step:,}", label)
            lines.append(
                table_line(
                    (*head, "here"),
                    [
                        Cell(sample_text(found.here, spec), label in best[column])
                        for column, found in row.items()
                    ],
                )
            )
            if any(found.there and found.here for found in row.values()):
                lines += [
                    table_line(
                        (*head, "paper"),
                        [
                            Cell(sample_text(found.there, spec), label in there_best[column])
                            for column, found in row.items()
                        ],
                    ),
                    table_line(
                        (*head, "difference"), [Cell(found.words) for found in row.values()]
                    ),
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
    header = (study.step_unit, "row", "", *titles)
    return made_table(study, "scores", study.title, caption, header, lines, records)


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


def _has_total(study: Study, results: Sequence[Result]) -> bool:
    return any(
        {r.place for r in results if r.label == label} >= set(study.datasets)
        for label in labels_of(results)
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

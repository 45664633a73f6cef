"""Mean returns or scores of every row and task, and the paper's."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from td7.reports import paper
from td7.reports.result import D4RL_SCORE, Result, places, step_unit
from td7.reports.tables.table import (
    NOTHING,
    THREE_DIGITS,
    Cell,
    Column,
    Record,
    Table,
    finite_or_none,
    mean_text,
    new_table,
    row_group,
    samples_at,
    shown_steps,
)
from td7.statistics import Sample, highlighted, welch
from td7.studies.rows import Study

Samples = Mapping[tuple[str, str], Sample]  # (label, place)


class ScoreLine(NamedTuple):
    step: str
    name: str  # of the row, and what of it the cells have
    cells: Mapping[str, Cell]  # by place


def scores(study: Study, results: Sequence[Result]) -> Table:
    """Mean ± interval of every row and place; below it the paper's, and the difference."""
    # Results of the same place have the same task, data and quantity.
    by_place = {place: next(r for r in results if r.place == place) for place in places(results)}
    has_total = bool(study.datasets) and any(
        {r.place for r in results if r.label == label} >= set(study.datasets)
        for label in dict.fromkeys(result.label for result in results)
    )
    columns = [*by_place, *([paper.TOTAL] if has_total else [])]
    rows: list[tuple[int, str, list[Record]]] = []
    for step in shown_steps(study, results):
        here, printed = samples_at(results, step), paper.printed(study.table, step)
        if has_total:
            here |= _totals(study, here)
        by_label = _records(study, step, here, printed, by_place, columns)
        rows += [(step, label, own) for label, own in by_label.items()]
    records = [record for _, _, own in rows for record in own if record["mean"] is not None]
    spec = ".1f" if study.datasets else THREE_DIGITS
    lines = _dataset_lines(by_place, columns, spec)
    shows_data = bool(lines)
    for step, label, own in rows:
        lines += _row_lines(step, label, own, spec)
    return new_table(
        study,
        "scores",
        heading="D4RL scores" if _quantity(by_place) == D4RL_SCORE else "Returns",
        caption=" ".join([_caption(by_place, records, shows_data), *_shared_sentences(results)]),
        records=records,
        columns=[
            Column(step_unit(results), lambda line: line.step),
            Column("row", lambda line: line.name),
            *(_place_column(place, by_place) for place in columns),
        ],
        lines=lines,
    )


# -- records -------------------------------------------------------------------------------------


def _records(
    study: Study,
    step: int,
    here: Samples,
    printed: Samples,
    by_place: Mapping[str, Result],
    columns: Sequence[str],
) -> dict[str, list[Record]]:
    """label: a record per place, also where only the paper has a number."""
    best = {place: _best(here, place) for place in columns}
    paper_best = {place: _best(printed, place) for place in columns}
    return {
        label: [
            {
                "study": study.name,
                "group": row_group(study, label),
                "row": label,
                "place": place,
                "data": by_place[place].data if place in by_place else "",
                "data_mean": by_place[place].dataset_mean if place in by_place else None,
                "step": step,
                "quantity": by_place[place].quantity if place in by_place else D4RL_SCORE,
                **_sample_fields(here.get((label, place))),
                "highlighted": label in best[place],
                **_paper_fields(printed.get((label, place))),
                "paper_highlighted": label in paper_best[place],
                **_difference_fields(here.get((label, place)), printed.get((label, place))),
            }
            for place in columns
        ]
        for label in dict.fromkeys(label for label, _ in here)
    }


def _sample_fields(here: Sample | None) -> Record:
    return {
        "seeds": here.n if here else None,
        "mean": here.mean if here else None,
        "interval": finite_or_none(here.interval) if here else None,
        "student_interval": finite_or_none(here.student) if here else None,
    }


def _paper_fields(printed: Sample | None) -> Record:
    return {
        "paper_mean": printed.mean if printed else None,
        "paper_interval": finite_or_none(printed.interval) if printed else None,
    }


def _difference_fields(here: Sample | None, printed: Sample | None) -> Record:
    if here is None or printed is None:
        return {"difference_percent": None, "p": None}
    can_test = np.isfinite(here.sd) and here.sd + printed.sd > 0
    return {
        "difference_percent": 100 * (here.mean / printed.mean - 1),
        "p": welch(here, printed) if can_test else None,
    }


def _totals(study: Study, here: Samples) -> dict[tuple[str, str], Sample]:
    """Sums over the paper's datasets, with the interval of a sum of independent means."""
    totals = {}
    for label in dict.fromkeys(label for label, _ in here):
        parts = [here[label, d] for d in study.datasets if (label, d) in here]
        if len(parts) == len(study.datasets):
            sd = float(np.sqrt(sum(part.sd**2 for part in parts)))
            n = min(part.n for part in parts)
            totals[label, paper.TOTAL] = Sample(sum(part.mean for part in parts), sd, n)
    return totals


def _best(samples: Samples, place: str) -> set[str]:
    """The highlighted labels, of those with two seeds or more; none if there is one such label."""
    own = {label: s for (label, where), s in samples.items() if where == place}
    tested = {label: s for label, s in own.items() if np.isfinite(s.sd)}
    return highlighted(tested) if len(tested) > 1 else set()


# -- lines ---------------------------------------------------------------------------------------


def _here_cell(record: Record, spec: str) -> Cell:
    return Cell(mean_text(record["mean"], record["interval"], spec), record["highlighted"])


def _paper_cell(record: Record, spec: str) -> Cell:
    text = mean_text(record["paper_mean"], record["paper_interval"], spec)
    return Cell(text, record["paper_highlighted"])


def _difference_cell(record: Record, spec: str) -> Cell:
    del spec  # of scores; this is a percentage
    difference, p = record["difference_percent"], record["p"]
    if difference is None:
        return Cell(NOTHING)
    if p is None:
        return Cell(f"{difference:+.1f}%")
    return Cell(f"{difference:+.1f}%, {f'p {p:.2f}' if p >= 0.005 else 'p < 0.005'}")


# What follows the row's label: the cells of that line. A row that has nothing to be compared with
# has the first line only.
CELLS: Mapping[str, Callable[[Record, str], Cell]] = {
    "": _here_cell,
    ", paper": _paper_cell,
    ", difference": _difference_cell,
}


def _row_lines(step: int, label: str, records: Sequence[Record], spec: str) -> list[ScoreLine]:
    """The row's numbers; the paper's and the difference, where there is one to compare with."""
    is_compared = any(record["difference_percent"] is not None for record in records)
    return [
        ScoreLine(f"{step:,}", f"{label}{kind}", {r["place"]: cell(r, spec) for r in records})
        for kind, cell in CELLS.items()
        if is_compared or not kind
    ]


def _dataset_lines(
    by_place: Mapping[str, Result], columns: Sequence[str], spec: str
) -> list[ScoreLine]:
    """The means of the datasets, if one is known."""
    means = {p: by_place[p].dataset_mean if p in by_place else None for p in columns}
    if all(mean is None for mean in means.values()):
        return []
    cells = {place: Cell(mean_text(mean, None, spec)) for place, mean in means.items()}
    return [ScoreLine("", "the data", cells)]


def _place_column(place: str, by_place: Mapping[str, Result]) -> Column[ScoreLine]:
    title = by_place[place].title if place in by_place else place
    return Column(title, lambda line: line.cells[place])


# -- caption -------------------------------------------------------------------------------------


def _quantity(by_place: Mapping[str, Result]) -> str:
    is_scored = any(result.quantity == D4RL_SCORE for result in by_place.values())
    return D4RL_SCORE if is_scored else "return"


def _caption(by_place: Mapping[str, Result], records: Sequence[Record], shows_data: bool) -> str:
    returns = [place for place, result in by_place.items() if result.quantity == "return"]
    sentences = [
        f"Mean {_quantity(by_place)} of the evaluation at a step ± the paper's interval "
        "(1.96 / sqrt(n) * sd over seeds)."
    ]
    if any(record["highlighted"] or record["paper_highlighted"] for record in records):
        sentences.append(
            "Bold: not significantly worse than the best row shown in the column (one-sided "
            "Welch's t-test, 0.05)."
        )
    if any(record["difference_percent"] is not None for record in records):
        sentences.append(
            "Difference: from the paper's mean, with the p-value of a two-sided Welch's t-test, "
            "not corrected for the number of comparisons."
        )
    counts = sorted({record["seeds"] for record in records} - {1}, reverse=True)
    if counts:
        samples = [Sample(0.0, 1.0, n) for n in counts]  # the ratio depends on the number alone
        ratios = [f"{s.student / s.interval:.2f} times as wide with {s.n} seeds" for s in samples]
        sentences.append(f"Student's interval (in the CSV file) is {', '.join(ratios)}.")
    if shows_data:
        sentences.append("The data: the mean over the dataset's own episodes.")
    others = [result.title for result in by_place.values() if result.title != result.place]
    if others:
        sentences.append(f"Not D4RL's data: {', '.join(others)}.")
    if returns and len(returns) < len(by_place):
        sentences.append(f"Returns, because the task has no D4RL score: {', '.join(returns)}.")
    return " ".join(sentences)


def _shared_sentences(results: Sequence[Result]) -> list[str]:
    """What is in no row's name, because all rows of an algorithm have it."""
    shared = {r.algorithm_label: ", ".join(r.shared) for r in results if r.shared}
    return [f"All rows of {label}: {text}." for label, text in shared.items()]

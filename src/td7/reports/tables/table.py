"""A table: records with every number in full, and columns that print them for readers."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from td7.reports import paper
from td7.reports.result import Result, plain
from td7.statistics import Sample
from td7.studies.rows import Study

BASELINE = "TD3"  # the row whose scores are to be reached, and that others are multiples of
NOTHING = "–"  # a cell without a number
THREE_DIGITS = "three digits"  # a format of `mean_text`
MOST_DECIMALS = 6

Record = Mapping[str, Any]  # a row of the CSV file: str, int, float, bool or None by column
Line = TypeVar("Line")  # what a printed line shows: a record, or several


@dataclass(frozen=True)
class Cell:
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Column(Generic[Line]):
    heading: str
    cell: Callable[[Line], str | Cell]


@dataclass(frozen=True)
class Table:
    """A table as data (`records`, written as CSV) and as text (`header` and `lines`)."""

    name: str  # of its files
    study: str
    kind: str  # the name without the study's
    heading: str  # within its study's section
    title: str  # outside its section
    caption: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]  # what it leaves out

    @property
    def uses_paper(self) -> bool:
        """Whether it shows a number of the paper, or one that depends on such a number."""
        values = [
            value
            for record in self.records
            for key, value in record.items()
            if key.startswith("paper_") and key != "paper_highlighted"
        ]
        return any(value is not None for value in values)


def new_table(
    study: Study,
    kind: str,
    *,
    heading: str,
    caption: str,
    records: Sequence[Record],
    columns: Sequence[Column[Line]],
    lines: Sequence[Line],
    notes: Sequence[str] = (),
) -> Table:
    """A table that prints every line by every column."""
    return Table(
        name=re.sub(r"[^\w.+-]+", "_", f"{study.name}-{kind}"),
        study=study.name,
        kind=kind,
        heading=heading,
        title=full_title(heading, study),
        caption=plain(caption),
        header=tuple(plain(column.heading) for column in columns),
        lines=tuple(tuple(_as_cell(c.cell(line)) for c in columns) for line in lines),
        records=tuple(map(_plain_record, records)),
        notes=tuple(notes),
    )


def full_title(heading: str, study: Study) -> str:
    """`HEADING: STUDY (section)`."""
    parts = dict.fromkeys((heading, study.title))  # which may be the same
    return plain(": ".join(parts) + (f" ({study.where})" if study.where else ""))


def _as_cell(content: str | Cell) -> Cell:
    cell = content if isinstance(content, Cell) else Cell(content)
    return replace(cell, text=plain(cell.text))


def _plain_record(record: Record) -> Record:
    return {k: plain(value) if isinstance(value, str) else value for k, value in record.items()}


# -- columns of records --------------------------------------------------------------------------


def value_column(heading: str, key: str, spec: str = "") -> Column[Record]:
    return Column(heading, lambda record: value_text(record[key], spec))


def mean_column(heading: str, mean: str, interval: str, spec: str) -> Column[Record]:
    return Column(heading, lambda record: mean_text(record[mean], record[interval], spec))


def value_text(value: Any, spec: str) -> str:
    return NOTHING if value is None else f"{value:{spec}}"


def mean_text(mean: float | None, interval: float | None, spec: str) -> str:
    """`mean ± interval`; the mean alone where there is no interval.

    With THREE_DIGITS, the larger of the two has three digits, or all before the point.
    """
    if spec == THREE_DIGITS and mean is not None:
        spec = f".{decimals(max(abs(mean), interval or 0.0))}f"
    text = value_text(mean, spec)
    return text if interval is None else f"{text} ± {interval:{spec}}"


def interval_text(value: float | None, low: float | None, high: float | None, spec: str) -> str:
    """`value [low, high]`; the value alone where there is no interval."""
    text = value_text(value, spec)
    return text if low is None or high is None else f"{text} [{low:{spec}}, {high:{spec}}]"


def decimals(largest: float) -> int:
    """How many give a number of this size three digits or more."""
    return min(MOST_DECIMALS, max(0, 2 - math.floor(math.log10(largest)))) if largest else 0


# -- what records are made of --------------------------------------------------------------------


def result_fields(study: Study, result: Result, step: int | None) -> dict[str, Any]:
    """The columns that identify a result at a step."""
    return {
        "study": study.name,
        "group": row_group(study, result.label),
        "row": result.label,
        "place": result.place,
        "step": step,
    }


def row_group(study: Study, label: str) -> str:
    return study.rows[label].group if label in study.rows else ""


def finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def samples_at(results: Sequence[Result], step: int) -> dict[tuple[str, str], Sample]:
    """(label, place): the seeds' scores at a step."""
    scores = {(r.label, r.place): r.at(step) for r in results}
    return {key: Sample.of(numbers) for key, numbers in scores.items() if numbers is not None}


def shown_steps(study: Study, results: Sequence[Result]) -> list[int]:
    """The steps that tables show.

    These are the steps of the paper's tables at which a run was evaluated, the last step of every
    finished run and, if some runs have none of these, the latest step that those have in common.
    """
    evaluated = [set(r.curves.steps) for r in results if r.curves]
    shown = {step for step in paper.steps(study.table) if any(step in own for own in evaluated)}
    shown |= {r.last_step for r in results if r.finished and r.last_step is not None}
    others = [steps for steps in evaluated if not steps & shown]
    if others:
        common = set.intersection(*others)
        shown |= {max(common)} if common - {0} else {max(steps) for steps in others}
    return sorted(shown)

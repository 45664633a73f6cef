"""Means here and in the paper, a cell per row and place."""

from collections.abc import Sequence

from td7.reports import paper
from td7.reports.result import Result, places, step_unit
from td7.reports.tables.table import (
    NOTHING,
    Column,
    Record,
    Table,
    finite_or_none,
    mean_text,
    new_table,
    samples_at,
    shown_steps,
)
from td7.statistics import Sample
from td7.studies.rows import Study

Pair = tuple[Sample, Sample]  # here and in the paper


def headline(study: Study, results: Sequence[Result]) -> Table:
    """The numbers here and in the paper, at the step that has most of both."""
    step, pairs = _most_pairs(study, results)
    records: list[Record] = [
        {
            "study": study.name,
            "row": label,
            "place": place,
            "step": step,
            "seeds": here.n,
            "mean": here.mean,
            "interval": finite_or_none(here.interval),
            "paper_mean": printed.mean,
            "paper_interval": printed.interval,
        }
        for (label, place), (here, printed) in pairs.items()
    ]
    lines = [
        {record["place"]: record for record in records if record["row"] == label}
        for label in dict.fromkeys(record["row"] for record in records)
    ]
    spec = ".1f" if study.datasets else ".0f"
    heading = f"{step:,} {step_unit(results)}, {_seed_counts(records)} (paper)"
    columns: list[Column[dict[str, Record]]] = [
        Column(heading, lambda line: str(next(iter(line.values()))["row"])),
        *(
            _place_column(place, spec)
            for place in places(results)
            if any(record["place"] == place for record in records)
        ),
    ]
    return new_table(
        study,
        "headline",
        heading="Compared with the paper",
        caption=(
            "Mean ± 1.96 / sqrt(n) * sd over seeds, which is the paper's interval; the paper's "
            "numbers are in parentheses."
        ),
        records=records,
        columns=columns,
        lines=lines,
    )


def _most_pairs(study: Study, results: Sequence[Result]) -> tuple[int, dict[tuple[str, str], Pair]]:
    """The step at which most numbers have a counterpart in the paper, and these pairs."""
    by_step = {}
    for step in shown_steps(study, results):
        printed = paper.printed(study.table, step)
        here = samples_at(results, step)
        by_step[step] = {key: (here[key], printed[key]) for key in here if key in printed}
    step = max(by_step, key=lambda step: (len(by_step[step]), step), default=0)
    return step, by_step.get(step, {})


def _seed_counts(records: Sequence[Record]) -> str:
    counts = sorted({record["seeds"] for record in records}) or [0]
    text = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{text} seed{'s' * (counts[-1] > 1)}"


def _place_column(place: str, spec: str) -> Column[dict[str, Record]]:
    def cell(line: dict[str, Record]) -> str:
        if place not in line:
            return NOTHING
        record = line[place]
        here = mean_text(record["mean"], record["interval"], spec)
        return f"{here} ({mean_text(record['paper_mean'], record['paper_interval'], spec)})"

    return Column(place, cell)

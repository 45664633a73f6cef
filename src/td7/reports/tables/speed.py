"""Run times."""

from collections.abc import Sequence

from td7.reports import paper
from td7.reports.result import Result, machine_name, step_unit
from td7.reports.tables.table import Column, Record, Table, new_table, value_column
from td7.studies.rows import Study


def speed(study: Study, results: Sequence[Result]) -> Table:
    """Minutes of every finished run, and for 1M steps, or updates, here and in the paper."""
    paper_minutes, unit = paper.minutes(), step_unit(results)
    records = [
        _record(study, result, unit, paper_minutes.get((result.label, result.task_label)))
        for result in results
        if result.seconds is not None
    ]
    task_labels = {result.place: result.task_label for result in results}
    is_compared = any(record["paper_minutes"] is not None for record in records)
    columns = [
        value_column("row", "row"),
        Column("task", lambda r: task_labels[r["place"]]),
        value_column(unit, "steps", ","),
        value_column("seeds", "seeds"),
        value_column("minutes", "minutes", ".1f"),
        value_column(f"ms per {unit[:-1]}", "milliseconds_per_step", ".2f"),
        Column("timed", lambda r: "under way" if r["timed_under_way"] else "whole run"),
        value_column(f"1M {unit}", "minutes_per_million_steps", ".1f"),
        value_column("per seed", "minutes_per_million_steps_and_seed", ".1f"),
        *([value_column("paper", "paper_minutes", ".0f")] if is_compared else []),
        value_column("on", "machine"),
    ]
    return new_table(
        study,
        "speed",
        heading="Run time",
        caption=(
            "Minutes: wall-clock time of the whole run, all seeds together, with evaluation and "
            f"compilation. The next columns are the milliseconds per {unit[:-1]} of all seeds, and "
            f"the minutes for 1M {unit} at that rate, for all seeds and per seed. Under way: timed "
            f"in the second half of the {unit}, without set-up, random exploration, compilation "
            "and snapshots; without evaluation unless worker processes evaluate at the same time. "
            "Whole run: averaged over the whole run, where the second half was not timed."
            f"{_paper_sentence() if is_compared else ''}"
        ),
        records=records,
        columns=columns,
        lines=records,
    )


def _paper_sentence() -> str:
    return f" Paper: one seed, 1M steps, without evaluation, on {paper.machine()}."


def _record(study: Study, result: Result, unit: str, paper_minutes: float | None) -> Record:
    """The record of a finished run."""
    assert result.seconds is not None
    assert result.seconds_per_step is not None
    million = result.seconds_per_step * 1_000_000 / 60
    return {
        "study": study.name,
        "row": result.label,
        "place": result.place,
        "steps": result.steps,
        "step_unit": unit,
        "seeds": len(result.seeds),
        "minutes": result.seconds / 60,
        "milliseconds_per_step": 1e3 * result.seconds_per_step,
        "timed_under_way": result.learning_seconds is not None,
        "minutes_per_million_steps": million,
        "minutes_per_million_steps_and_seed": million / len(result.seeds),
        "paper_minutes": paper_minutes,
        "machine": machine_name(result.record),
    }

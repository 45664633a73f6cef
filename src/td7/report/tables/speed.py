"""Run times."""

from collections.abc import Mapping, Sequence

from td7.report import paper
from td7.report.result import Result, machine_of
from td7.report.tables.table import Cell, Table, Value, made_table
from td7.studies.rows import Study


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
    return made_table(study, "speed", title, caption, header, lines, records)

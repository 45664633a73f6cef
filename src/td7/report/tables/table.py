"""A table as data: numbers for programs, and cells for people."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from td7.report import paper
from td7.report.result import Result
from td7.statistics import Interval, Sample
from td7.studies.rows import Study

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


def samples(results: Sequence[Result], step: int) -> dict[tuple[str, str], Sample]:
    found = {(r.label, r.place): r.at(step) for r in results}
    return {key: Sample.of(numbers) for key, numbers in found.items() if numbers is not None}


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


def values_by_row(results: Sequence[Result], step: int) -> dict[str, dict[str, dict[int, float]]]:
    """label: place: seed: number."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        numbers = result.at(step)
        if numbers is not None:
            own = found.setdefault(result.label, {})
            own[result.place] = dict(zip(result.seeds, numbers.tolist(), strict=True))
    return found


def matrix(
    own: Mapping[str, Mapping[int, float]], tasks: Sequence[str], what: str, notes: list[str]
) -> NDArray[np.float64]:
    """[seeds, tasks], of the seeds that every task has."""
    shared = [seed for seed in own[tasks[0]] if all(seed in own[task] for task in tasks)]
    everything = {seed for task in tasks for seed in own[task]}
    if len(shared) < len(everything):
        out = ", ".join(str(seed) for seed in sorted(everything - set(shared)))
        notes.append(f"{what}: without seed {out} over tasks, since a task lacks it")
    return np.array([[own[task][seed] for task in tasks] for seed in shared])


# -- parts ---------------------------------------------------------------------------------------


def made_table(
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


def table_line(head: Iterable[str], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    return (*(Cell(word) for word in head), *cells)


def sample_text(sample: Sample | None, spec: str) -> str:
    if sample is None:
        return "–"
    return f"{sample:{spec}}" if np.isfinite(sample.interval) else f"{sample.mean:{spec}}"


def range_text(value: float | None, ends: Interval | None, spec: str) -> str:
    if value is None:
        return "–"
    return f"{value:{spec}}" + (f" [{ends.low:{spec}}, {ends.high:{spec}}]" if ends else "")


def number_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def labels_of(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.label for result in results))


def beside(
    study: Study, label: str, reference: str, step: int, suite: str, tasks: Sequence[str]
) -> dict[str, Value]:
    """Which row a record compares with which, at what step, over how many tasks."""
    return {
        "study": study.name,
        "group": group_of(study, label),
        "row": label,
        "reference": reference,
        "step": step,
        "suite": suite,
        "tasks": len(tasks),
    }


def group_of(study: Study, label: str) -> str:
    return study.rows[label].group if label in study.rows else ""

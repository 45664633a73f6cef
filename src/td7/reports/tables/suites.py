"""Scores of a suite's tasks at one step, to be averaged over tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.reports.result import Result, places, suites
from td7.reports.tables.table import Record, row_group, shown_steps
from td7.studies.rows import Study

MOST_NAMED = 4  # rows that leave out the same tasks; of more, the table shows which

Scores = Mapping[str, Mapping[int, float]]  # place: seed: score


@dataclass(frozen=True)
class SuiteScores:
    study: Study
    suite: str
    step: int
    results: Sequence[Result]
    rows: Mapping[str, Scores]  # by label

    def matrix(self, label: str, tasks: Sequence[str], notes: list[str]) -> NDArray[np.float64]:
        """[seeds, tasks] of the seeds that all tasks have; notes the others."""
        scores = self.rows[label]
        shared = [seed for seed in scores[tasks[0]] if all(seed in scores[t] for t in tasks)]
        others = sorted({seed for task in tasks for seed in scores[task]} - set(shared))
        if others:
            seeds = ", ".join(str(seed) for seed in others)
            notes.append(
                f"{self.study.name}: {label}: means over tasks leave out seeds "
                f"that not all tasks have: {seeds}"
            )
        return np.array([[scores[task][seed] for task in tasks] for seed in shared])

    def fields(self, label: str, reference: str, tasks: Sequence[str]) -> dict[str, Any]:
        """The columns that identify a comparison of a row with the reference."""
        left_out = [task for task in self.tasks if task not in tasks]
        return {
            "study": self.study.name,
            "group": row_group(self.study, label),
            "row": label,
            "reference": reference,
            "step": self.step,
            "suite": self.suite,
            "tasks": len(tasks),
            "suite_tasks": len(self.tasks),
            "averaged": ", ".join(tasks),
            "left_out": ", ".join(left_out),
        }

    @property
    def tasks(self) -> list[str]:
        """Every task of the suite that a row was trained on."""
        return places(self.results)


def suite_scores(study: Study, results: Sequence[Result]) -> Iterator[SuiteScores]:
    """For every step that tables show but 0, where nothing is learned yet, and every suite."""
    for step in shown_steps(study, results):
        for suite, own in suites(results).items():
            if step:
                yield SuiteScores(study, suite, step, own, _rows_at(own, step))


def _rows_at(results: Sequence[Result], step: int) -> dict[str, Scores]:
    rows: dict[str, dict[str, Mapping[int, float]]] = {}
    for result in results:
        scores = result.at(step)
        if scores is not None:
            by_seed = dict(zip(result.seeds, scores.tolist(), strict=True))
            rows.setdefault(result.label, {})[result.place] = by_seed
    return dict(rows)


# -- what means over tasks leave out --------------------------------------------------------------


def tasks_text(record: Record) -> str:
    """`2 v4`, or `2 of 5 v4`."""
    number, total = record["tasks"], record["suite_tasks"]
    return f"{number}{f' of {total}' if number < total else ''} {record['suite']}"


def left_out_sentence(records: Sequence[Record]) -> str:
    """The tasks that means leave out, by row and step; "" if there are none."""
    rows: dict[str, dict[int, list[str]]] = {}  # by tasks and step
    for record in records:
        if record["left_out"]:
            is_most = 2 * record["tasks"] < record["suite_tasks"]
            tasks = f"all but {record['averaged']}" if is_most else record["left_out"]
            rows.setdefault(tasks, {}).setdefault(record["step"], []).append(record["row"])
    texts = [f"{tasks} ({_rows_text(by_step)})" for tasks, by_step in rows.items()]
    return f" Left out of the means: {'; '.join(texts)}." if texts else ""


def _rows_text(by_step: Mapping[int, Sequence[str]]) -> str:
    """Which rows leave tasks out, or how many, at every step."""
    return ", ".join(
        f"{', '.join(rows) if len(rows) <= MOST_NAMED else f'{len(rows)} rows'} at {step:,}"
        for step, rows in by_step.items()
    )

"""Scores of a suite's tasks at one step, to be averaged over tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.reports.result import Result, suites
from td7.reports.tables.table import row_group, shown_steps
from td7.studies.rows import Study

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
        return {
            "study": self.study.name,
            "group": row_group(self.study, label),
            "row": label,
            "reference": reference,
            "step": self.step,
            "suite": self.suite,
            "tasks": len(tasks),
        }


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

"""Runs of the same row and place as one result."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.errors import one_line
from td7.reports.labels import hyperparameters
from td7.reports.result import ONE_SEED, Result, paper_places, rank, seed_list, study_or_empty
from td7.runs.fingerprint import differences
from td7.runs.record import uses_tf32
from td7.statistics import Aligned, common
from td7.studies.rows import STUDIES

# Differences in how returns were measured: such runs are pooled, with a note.
MEASUREMENT = ("evaluation_episodes", "precision", "tf32", "gymnasium", "mujoco")


NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[-+]\d+)?)")


def pooling_order(result: Result) -> tuple[Any, ...]:
    """The paper's order; for a row and place first the run without changes, then the longest."""
    return (
        rank(result.study, list(STUDIES)),
        rank(result.label, list(study_or_empty(result.study).rows)),
        result.position,
        rank(result.place, paper_places(result.study)),
        _by_number(result.label),
        _by_number(result.place),
        result.curves is None,
        len(result.changed),
        -(result.last_step or 0),
    )


def _by_number(text: str) -> list[tuple[float, str]]:
    """A key that orders `batch_size 32` before `batch_size 256`."""
    parts = NUMBER.split(text)
    return [(float(part), "") if i % 2 else (-np.inf, part) for i, part in enumerate(parts)]


def pool(results: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """One result per row and place, and notes on what was pooled or left out.

    A seed in several runs counts in the first of them. A run that was trained in another way
    than the first is left out; one that differs only in how returns were measured is pooled.
    """
    pooled: dict[tuple[str, str, str], Result] = {}
    notes: list[str] = []
    for result in results:
        key = (result.study, result.label, result.place)
        if key not in pooled:
            pooled[key] = result
            continue
        try:
            pooled[key], note = _add(pooled[key], result)
        except ValueError as error:
            note = f"left out: {one_line(error)}"
        if note:
            notes.append(f"{result.name}: {result.folder} {note}")
    return list(pooled.values()), notes


def _add(first: Result, other: Result) -> tuple[Result, str]:
    """The first run with the other's new seeds, and a note on those that it already has."""
    difference = experiment_difference(first, other)
    if difference:
        raise ValueError(f"it differs from {first.folder}: {difference}")
    shared = [seed for seed in other.seeds if seed in first.seeds]
    new = [seed for seed in other.seeds if seed not in first.seeds]
    reason = f"{first.folder} has {seed_list(shared)}" if shared else "nothing to pool"
    if not new or not first.curves:
        raise ValueError(reason)
    if not shared:
        return _merge(first, other), ""
    note = f"adds {seed_list(new)} only, and no run time: {reason}"
    return _merge(first, _select_seeds(other, new)), note


def experiment_difference(a: Result, b: Result) -> str:
    """How the training of two runs of an algorithm on a task differs; "" if it does not."""
    return _difference(_experiment(a), _experiment(b))


def measurement_difference(a: Result, b: Result) -> str:
    """How the measurements of two runs' returns differ; "" if they do not."""
    return _difference(_measurement(a), _measurement(b))


def _experiment(result: Result) -> dict[str, Any]:
    """Two runs with different values here are different experiments."""
    dataset = result.record.dataset
    data = {"sha256": dataset.sha256} if dataset else {}
    record = result.record
    options = {
        "normalise_observations": record.normalise_observations,
        "start_from": record.start_from.sha256[:12] if record.start_from else "",
    }
    return {"task": result.task.id, **data, **options, **hyperparameters(record)}


def _measurement(result: Result) -> dict[str, Any]:
    record = result.record
    recorded = {**record.data, **record.versions, "tf32": uses_tf32(record.data)}
    return {name: recorded[name] for name in MEASUREMENT if name in recorded}


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The values that differ, among the names that both have; "" if none does."""
    names = [name for name in a if name in b and a[name] != b[name]]
    return ", ".join(f"{name} {a[name]} and {b[name]}" for name in names)


def _select_seeds(result: Result, seeds: Sequence[int]) -> Result:
    """Some seeds of a run; their share of its time is unknown."""
    if result.curves is None:
        raise ValueError("a run without evaluations has no seeds")
    rows = [result.curves.seeds.index(seed) for seed in seeds]
    return replace(
        result,
        seeds=tuple(seeds),
        curves=replace(result.curves, seeds=tuple(seeds), values=result.curves.values[rows]),
        values=None if result.values is None else result.values[rows],
        seconds=None,
        learning_seconds=None,
        run_seconds=None,
    )


def _merge(a: Result, b: Result) -> Result:
    """The seeds of both on the steps that both have; times add up, as one run follows the other."""
    if a.curves is None or b.curves is None:
        raise ValueError("runs without evaluations cannot be pooled")
    curves = common(
        {
            seed: list(zip(part.steps, row, strict=True))
            for part in (a.curves, b.curves)
            for seed, row in zip(part.seeds, part.values.tolist(), strict=True)
        }
    )
    measured = measurement_difference(a, b)
    changed = differences(a.record.fingerprint, b.record.fingerprint)
    difference = ", ".join([*([measured] if measured else []), *changed])
    note = f"pools the seeds of {a.folder} and of {b.folder}"
    note += f", which differ: {difference}" if difference else ""
    return replace(
        a,
        seeds=curves.seeds,
        steps=min(a.steps, b.steps),
        curves=curves,
        values=_merged_values(a, b, curves),
        seconds=_sum(a.seconds, b.seconds),
        learning_seconds=_sum(a.learning_seconds, b.learning_seconds),
        run_seconds=_sum(a.run_seconds, b.run_seconds),
        finished=a.finished and b.finished,
        notes=(*(n for n in (*a.notes, *b.notes) if n != ONE_SEED), *curves.left_out, note),
    )


def _merged_values(a: Result, b: Result, curves: Aligned) -> NDArray[np.float64] | None:
    parts = [
        part.values[:, [part.curves.steps.index(step) for step in curves.steps]]
        for part in (a, b)
        if part.curves is not None and part.values is not None
    ]
    return np.concatenate(parts) if len(parts) == 2 else None


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b

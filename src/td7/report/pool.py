"""Runs of the same row and place as one result."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from td7.errors import one_line
from td7.report.result import Result, known, named_seeds, paper_places, rank
from td7.statistics import common
from td7.studies.rows import STUDIES

# What a mean over seeds should not depend on: said of runs that are pooled all the same.
MEASURED_BY = ("evaluation_episodes", "precision", "gymnasium", "mujoco")


def place_in_paper(result: Result) -> tuple[int, int, int, str, bool, int, int]:
    """Of runs of the same row and place, the first is as its row says, and of those the longest."""
    return (
        rank(result.study, list(STUDIES)),
        rank(result.label, list(known(result.study).rows)),
        rank(result.place, paper_places(result.study)),
        f"{result.label} {result.place}",
        result.curves is None,
        len(result.changed),
        -(result.last or 0),
    )


def pooled(results: Sequence[Result], notes: list[str]) -> list[Result]:
    """Runs of the same row and place as one; of a seed that several have the first, and a note.

    A run that learned something else is left out, and that is said. One that was only measured
    otherwise is pooled, and that is said.
    """
    found: dict[tuple[str, str, str], Result] = {}
    for result in results:
        key = (result.study, result.label, result.place)
        first = found.get(key)
        if first is None:
            found[key] = result
            continue
        other = _unlike(_learned(first), _learned(result))
        if other:
            notes.append(f"{result.name}: {result.folder} left out: unlike {first.folder}: {other}")
            continue
        same = [str(seed) for seed in result.seeds if seed in first.seeds]
        new = [seed for seed in result.seeds if seed not in first.seeds]
        why = f"{named_seeds(same)} in {first.folder}, too" if same else "nothing to pool"
        if not new or not first.curves:
            notes.append(f"{result.name}: {result.folder} left out: {why}")
            continue
        try:
            found[key] = _pool(first, _of_seeds(result, new) if same else result)
            if same:
                told = f"only {', '.join(map(str, new))} of its seeds, and no run time"
                notes.append(f"{result.name}: {result.folder}: {told}: {why}")
        except ValueError as error:
            notes.append(f"{result.name}: {result.folder} left out: {one_line(error)}")
    return list(found.values())


def _learned(result: Result) -> dict[str, Any]:
    """What makes two runs two experiments."""
    given = result.config.get("dataset") or {}
    data = {"sha256": given["sha256"]} if "sha256" in given else {}
    return {"task": result.task.id, **data, **result.config.get("hyperparameters", {})}


def _measured(result: Result) -> dict[str, Any]:
    known_ = {**result.config, **(result.config.get("versions") or {})}
    return {name: known_[name] for name in MEASURED_BY if name in known_}


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """What differs, of what both know of; "" if nothing."""
    other = [name for name in a if name in b and a[name] != b[name]]
    return ", ".join(f"{name} {a[name]} and {b[name]}" for name in other)


def _of_seeds(result: Result, seeds: Sequence[int]) -> Result:
    """Some seeds of a run; how long these took cannot be told."""
    if result.curves is None:
        raise ValueError("a run without evaluations has no seeds")
    own = [result.curves.seeds.index(seed) for seed in seeds]
    return replace(
        result,
        seeds=tuple(seeds),
        curves=replace(result.curves, seeds=tuple(seeds), values=result.curves.values[own]),
        values=None if result.values is None else result.values[own],
        seconds=None,
        learning_seconds=None,
    )


def _pool(a: Result, b: Result) -> Result:
    if a.curves is None or b.curves is None:
        raise ValueError("runs without evaluations cannot be pooled")
    curves = {
        seed: list(zip(part.steps, row, strict=True))
        for part in (a.curves, b.curves)
        for seed, row in zip(part.seeds, part.values.tolist(), strict=True)
    }
    pooled = common(curves)
    values = None
    if a.values is not None and b.values is not None:
        parts = [
            part.values[:, [part.curves.steps.index(step) for step in pooled.steps]]
            for part in (a, b)
            if part.curves is not None and part.values is not None
        ]
        values = np.concatenate(parts)
    other = _unlike(_measured(a), _measured(b))
    told = f"seeds of {a.folder} and of {b.folder} are pooled"
    told += f", though they differ: {other}" if other else ""
    seconds = None if a.seconds is None or b.seconds is None else a.seconds + b.seconds
    pair = (a.learning_seconds, b.learning_seconds)  # one run after the other
    slower = None if pair[0] is None or pair[1] is None else pair[0] + pair[1]
    return replace(
        a,
        seeds=pooled.seeds,
        steps=min(a.steps, b.steps),
        curves=pooled,
        values=values,
        seconds=seconds,
        learning_seconds=slower,
        finished=a.finished and b.finished,
        notes=(*a.notes, *b.notes, *pooled.left_out, told),
    )

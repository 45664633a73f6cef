"""Rows compared with a baseline: difference, test and probability of improvement, per task."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from td7.configs import parse_number
from td7.errors import InputError, Option, say
from td7.reports.collect import find, notes_of_runs, read_runs
from td7.reports.labels import name_rows
from td7.reports.pool import experiment_difference, measurement_difference, pool, pooling_order
from td7.reports.result import D4RL, Result, plain, seed_list
from td7.runs.fingerprint import differences
from td7.statistics import (
    Sample,
    difference_interval,
    has_welch,
    improvement_over_tasks,
    improvement_over_tasks_interval,
    welch,
)
from td7.types import AnyPath


@dataclass(frozen=True)
class Comparison:
    """A row and the baseline on one task; numbers that the seeds do not give are None.

    Differences are row minus baseline, and the probability is that of a row's seed being better.
    """

    task: str  # with its arguments and wrappers; offline, the dataset
    step: int
    baseline: str
    row: str
    baseline_mean: float
    baseline_interval: float | None  # the paper's, 1.96 / sqrt(n) * sd
    baseline_seeds: int
    mean: float
    interval: float | None
    seeds: int
    difference: float
    difference_low: float | None  # of its 95% interval
    difference_high: float | None
    p: float | None  # of Welch's test
    probability: float
    probability_low: float | None  # of its 95% interval
    probability_high: float | None
    quantity: str  # return, or D4RL score
    step_unit: str
    baseline_folder: str  # if seeds of several are pooled, the first
    folder: str


@dataclass(frozen=True)
class Average:
    """A row's probability of improvement over the baseline, averaged over tasks."""

    baseline: str
    row: str
    tasks: tuple[str, ...]
    probability: float
    probability_low: float | None
    probability_high: float | None


@dataclass(frozen=True)
class Compared:
    comparisons: tuple[Comparison, ...]  # by task
    averages: tuple[Average, ...]  # of rows that share several tasks with the baseline
    notes: tuple[str, ...]  # a line per thing that is not comparable, or not as it seems


class Side(NamedTuple):
    """What is compared: a label with one result per task."""

    label: str
    results: dict[str, Result]
    name: str = ""  # the label, with a folder if several sides have it


class Pair(NamedTuple):
    baseline: str
    row: str
    task: str
    a: Result  # of the baseline
    b: Result
    step: int


def compare(*runs: AnyPath, step: int | None = None) -> pd.DataFrame:
    """Compare runs with the first one, per task, at the last step that both have evaluated.

    A run may be a folder, a `td7.Run`, a study folder or a folder of runs. There is one row per
    task and pair; docs/guides/comparing.md explains the columns. Notes on what is not comparable
    are printed. The table's `attrs` hold them as "notes", and the probability of improvement
    averaged over tasks as "averages".
    """
    if step is not None:
        step = parse_number(Option("step"), step, int, at_least=0)
    compared = compare_folders([Path(run) for run in runs], step)
    for note in compared.notes:
        say(f"note: {note}")
    table = pd.DataFrame(map(asdict, compared.comparisons))
    numbers = [f.name for f in fields(Comparison) if f.type in (float, float | None)]
    table[numbers] = table[numbers].astype(float)  # also where all are None
    averages = [asdict(average) for average in compared.averages]
    table.attrs.update(notes=list(compared.notes), averages=averages)
    return table


def compare_folders(folders: Sequence[Path], step: int | None) -> Compared:
    """Compare what is in the folders with the first row in the first of them."""
    if not folders:
        raise InputError("nothing to compare: give at least two runs")
    arguments, problems = _read(folders)
    sides = _named(_merged(s for results in arguments for s in _merged(_parts(results))))
    notes = notes_of_runs(
        (f"{side.name} on {task}", result, (*result.notes, *_shared_settings(result)))
        for side in sides
        for task, result in side.results.items()
    )
    reasons = _unpaired(sides)
    pairs: list[Pair] = []
    for task, a, b in _shared_tasks(sides):
        try:
            pairs.append(_pair(task, a, b, step))
        except ValueError as error:
            reasons.append(f"{task}: {error}")
    if not pairs:
        raise InputError(f"nothing to compare: {'; '.join(map(plain, [*reasons, *problems]))}")
    notes = [*problems, *notes, *reasons]
    notes += [note for pair in pairs for note in _notes(pair, is_last=step is None)]
    return Compared(
        comparisons=tuple(_comparison(pair) for pair in pairs),
        averages=tuple(_averages(pairs)),
        notes=tuple(dict.fromkeys(map(plain, notes))),
    )


# -- folders → sides -----------------------------------------------------------------------------


def _read(folders: Sequence[Path]) -> tuple[list[list[Result]], list[str]]:
    """Every folder's results with evaluations, and a note per problem.

    Seeds are pooled within a folder: two folders are compared, also if they hold the same row.
    """
    arguments: list[list[Result]] = []
    notes: list[str] = []
    seen: set[Path] = set()
    for folder in folders:
        found = find(folder).runs
        runs = [path for path in found if path.resolve() not in seen]
        seen |= {path.resolve() for path in runs}
        results, problems = read_runs(runs)
        problems += [f"{r.folder}: {note}" for r in results if not r.curves for note in r.notes]
        if not runs:
            problems.append(f"{folder} {'is given twice; it counts once' if found else 'is empty'}")
        evaluated = [result for result in results if result.curves]
        if not arguments and not evaluated:
            raise InputError(f"{folder} is the baseline, but has no evaluations: {problems[0]}")
        arguments.append(evaluated)
        notes += problems
    named = iter(name_rows([result for results in arguments for result in results]))
    for i, results in enumerate(arguments):
        own = sorted(islice(named, len(results)), key=pooling_order)
        arguments[i], pool_notes = pool(own)
        notes += pool_notes
    return arguments, notes


def _shared_settings(result: Result) -> list[str]:
    """What its label does not show, as no other row of its algorithm differs in it."""
    return [f"with {', '.join(result.shared)}"] if result.shared else []


def _parts(results: Iterable[Result]) -> Iterator[Side]:
    for result in results:
        data = "" if result.data in ("", D4RL) else f" ({result.data})"
        yield Side(result.label, {f"{result.task_label}{data}": result})


def _merged(parts: Iterable[Side]) -> list[Side]:
    """Parts of the same label on different tasks are one side; those on the same task are not."""
    sides: list[Side] = []
    for part in parts:
        same = [s for s in sides if s.label == part.label and not s.results.keys() & part.results]
        if same:
            same[0].results.update(part.results)
        else:
            sides.append(part)
    return sides


def _named(sides: Sequence[Side]) -> list[Side]:
    """Sides of the same label are named by their folders, from where these part."""
    by_label: dict[str, list[Side]] = {}
    for side in sides:
        by_label.setdefault(side.label, []).append(side)
    names = {
        id(side): side.label if len(same) == 1 else f"{side.label} ({folder})"
        for same in by_label.values()
        for side, folder in zip(same, _folders(same), strict=True)
    }
    return [side._replace(name=plain(names[id(side)])) for side in sides]


def _folders(sides: Sequence[Side]) -> list[Path]:
    """A folder per side, without the folders that all are in."""
    runs = [[result.folder for result in side.results.values()] for side in sides]
    folders = [_shared(own) for own in runs]
    if len(set(folders)) < len(folders):
        folders = [own[0] for own in runs]
    parent = _shared([folder.parent for folder in folders])
    return [f.relative_to(parent) if f.is_relative_to(parent) else f for f in folders]


def _shared(folders: Sequence[Path]) -> Path:
    """The folder that all are in, as far as their spelling tells."""
    if len({folder.is_absolute() for folder in folders}) > 1:
        return Path()
    return Path(os.path.commonpath(folders))


# -- sides → pairs -------------------------------------------------------------------------------


def _shared_tasks(sides: Sequence[Side]) -> Iterator[tuple[str, Side, Side]]:
    baseline, *others = sides
    for task in baseline.results:
        for side in others:
            if task in side.results:
                yield task, baseline, side


def _unpaired(sides: Sequence[Side]) -> list[str]:
    """A line per side and the tasks on which it is not compared."""
    baseline, *others = sides
    if not others:
        tasks = ", ".join(baseline.results)
        if len(baseline.results) > 1:
            return [f"the runs of {baseline.name} are on different tasks: {tasks}"]
        return [f"{baseline.name} on {tasks} is alone; a comparison needs two runs"]
    lines = []
    compared = {task for task, _, _ in _shared_tasks(sides)}
    if alone := [task for task in baseline.results if task not in compared]:
        lines.append(f"{', '.join(alone)}: only {baseline.name}, the baseline, has a run")
    ids = {result.task.id for result in baseline.results.values()}
    for side in others:
        missing = {t: r for t, r in side.results.items() if t not in baseline.results}
        if missing:
            line = f"{', '.join(missing)}: {side.name} has a run, but not {baseline.name}, "
            is_similar = any(result.task.id in ids for result in missing.values())
            hint = "; other arguments, wrappers or data make another task" if is_similar else ""
            lines.append(f"{line}the baseline{hint}")
    return lines


def _pair(task: str, baseline: Side, row: Side, step: int | None) -> Pair:
    """The results of both on a task, at a step; a ValueError explains why there is none."""
    a, b = baseline.results[task], row.results[task]
    steps = sorted(set(_steps(a)) & set(_steps(b)))
    both = f"{row.name} and {baseline.name}"
    if step is None:
        if steps in ([], [0]):
            shared = "only step 0, before training," if steps else "no step"
            raise ValueError(f"{both} share {shared} at which they were evaluated")
        step = steps[-1]
    if step not in steps:
        near = sorted(steps, key=partial(_distance, step))[:1]
        hint = f"the nearest step is {near[0]:,}" if near else "they share no step"
        raise ValueError(f"{both} were not both evaluated at step {step:,}; {hint}")
    return Pair(baseline.name, row.name, task, a, b, step)


def _distance(a: int, b: int) -> int:
    return abs(a - b)


def _steps(result: Result) -> tuple[int, ...]:
    return result.curves.steps if result.curves else ()


def _notes(pair: Pair, *, is_last: bool) -> Iterator[str]:
    """What a reader of the numbers must know; `is_last`: they are of the last shared step."""
    baseline, row, task, a, b, step = pair
    both = f"{task}: {row} and {baseline}"
    if is_last and {a.last_step, b.last_step} != {step}:
        yield (
            f"{both} are compared at step {step:,}, the last that both have; "
            f"they end at {b.last_step:,} and {a.last_step:,}"
        )
    if difference := measurement_difference(b, a):
        yield f"{both} were not measured in the same way: {difference}"
    if changes := differences(a.record.fingerprint, b.record.fingerprint):
        yield f"{task}: {row} has another version of the task than {baseline}: {', '.join(changes)}"
    if _digest(a) != _digest(b):
        yield f"{both} learned from different data of this name"
    if (likeness := _likeness(a, b)) is not None:
        yield f"{both} {likeness}"
    if min(len(a.seeds), len(b.seeds)) > 1 and not has_welch(*_samples(pair)):
        yield f"{both}: the returns of their seeds do not vary, so that there is no test"


def _digest(result: Result) -> str:
    return result.record.dataset.sha256 if result.record.dataset else ""


def _likeness(a: Result, b: Result) -> str | None:
    """How results that seem to be the same, or are, relate; None if both is not so."""
    if a.record.algorithm != b.record.algorithm:
        return None
    if difference := experiment_difference(b, a):
        return f"differ: {difference}" if a.label == b.label else None
    if shared := [seed for seed in a.seeds if seed in b.seeds]:
        return f"are the same experiment, with {seed_list(shared)} in both"
    return "are the same experiment with other seeds; in one folder, their seeds are pooled"


# -- pairs → numbers -----------------------------------------------------------------------------


def _returns(pair: Pair) -> tuple[list[float], list[float]]:
    """Of every seed of the row, and of the baseline."""
    at = [result.at(pair.step) for result in (pair.b, pair.a)]
    b, a = ([] if values is None else values.tolist() for values in at)
    return b, a


def _samples(pair: Pair) -> tuple[Sample, Sample]:
    b, a = map(Sample.of, _returns(pair))
    return b, a


def _comparison(pair: Pair) -> Comparison:
    b, a = _samples(pair)
    low, high = difference_interval(b, a) if has_welch(b, a) else (None, None)
    probability, probability_low, probability_high = _improvement([pair])
    return Comparison(
        task=pair.task,
        step=pair.step,
        baseline=pair.baseline,
        row=pair.row,
        baseline_mean=a.mean,
        baseline_interval=a.interval if a.n > 1 else None,
        baseline_seeds=a.n,
        mean=b.mean,
        interval=b.interval if b.n > 1 else None,
        seeds=b.n,
        difference=b.mean - a.mean,
        difference_low=low,
        difference_high=high,
        p=welch(b, a) if has_welch(b, a) else None,
        probability=probability,
        probability_low=probability_low,
        probability_high=probability_high,
        quantity=pair.b.quantity,
        step_unit=pair.b.step_unit,
        baseline_folder=str(pair.a.folder),
        folder=str(pair.b.folder),
    )


def _improvement(pairs: Sequence[Pair]) -> tuple[float, float | None, float | None]:
    """The probability of improvement and its interval, averaged over tasks; repeatable."""
    returns = [_returns(pair) for pair in pairs]
    probability = improvement_over_tasks(returns)
    if any(len(seeds) < 2 for task in returns for seeds in task):
        return probability, None, None
    return probability, *improvement_over_tasks_interval(returns, np.random.default_rng(0))


def _averages(pairs: Sequence[Pair]) -> Iterator[Average]:
    for baseline, row in dict.fromkeys((pair.baseline, pair.row) for pair in pairs):
        own = [pair for pair in pairs if pair.row == row]
        if len(own) > 1:
            yield Average(baseline, row, tuple(pair.task for pair in own), *_improvement(own))

"""Run folders as results: what was run, what came of it, and what is missing."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from td7.datasets.download import DATASETS
from td7.datasets.scores import score
from td7.errors import InputError, one_line
from td7.report.pool import place_in_paper, pooled
from td7.report.result import (
    ALL_VIDEOS,
    LARGEST_VIDEO,
    OFFLINE,
    ONLINE,
    VIDEOS,
    Findings,
    Result,
    data_origin,
    known,
    machine_of,
    named_seeds,
    paper_name,
    with_kwargs,
)
from td7.runs.folder import EVALUATIONS
from td7.runs.record import finished_steps, read_config
from td7.statistics import Aligned, common
from td7.studies.folder import StudyRequest, read_failures, read_request
from td7.studies.rows import Study
from td7.types import Task


def read(folders: Sequence[Path]) -> Findings:
    """Run folders, study folders, and folders of either."""
    results: list[Result] = []
    notes: list[str] = []
    for folder in folders:
        if not folder.exists():
            raise InputError(f"{folder} does not exist")
        found, studies = _folders(folder)
        if not found and not studies:
            raise InputError(
                f"{folder} holds no runs: it has neither a config.json nor folders that have one"
            )
        for path in found:
            try:
                results.append(read_run(path))
            except (InputError, ValueError) as error:
                notes.append(f"{path}: left out: {one_line(error)}")
        for path in studies:
            notes += missing(path, results)
    results = _with_videos(pooled(sorted(results, key=place_in_paper), notes), notes)
    results = _numbered(results)
    notes += [f"{result.name}: {note}" for result in results for note in result.notes]
    if not any(result.curves for result in results):
        what = f": {notes[0]}" if notes else ""
        raise InputError(f"{', '.join(map(str, folders))}: no run has an evaluation yet{what}")
    return Findings(tuple(results), tuple(dict.fromkeys(notes)))


def _numbered(results: Sequence[Result]) -> list[Result]:
    """Labels that are none of their study's rows, from 0 on in each study."""
    others: dict[str, list[str]] = {}
    for result in results:
        labels = others.setdefault(result.study, [])
        if result.label not in labels and result.label not in known(result.study).rows:
            labels.append(result.label)
    return [
        replace(r, number=others[r.study].index(r.label)) if r.label in others[r.study] else r
        for r in results
    ]


def _folders(folder: Path) -> tuple[list[Path], list[Path]]:
    """Of runs and of studies, by name; what is inside of a run folder is not looked at."""
    found: tuple[list[Path], list[Path]] = [], []
    for path, names, files in os.walk(folder):
        names.sort()
        if "config.json" in files:
            names.clear()
            found[0].append(Path(path))
        elif "study.json" in files:
            found[1].append(Path(path))
    return found


def missing(out: Path, results: Sequence[Result]) -> list[str]:
    """A line a run that a study folder was meant to hold and does not, or that failed."""
    request = read_request(out)
    if request is None:
        return []
    begun = {(r.label, r.asked): r for r in results if out in r.folder.parents}
    failed = read_failures(out)
    lines = [f"{request.name}: {name} failed: {error}" for name, error in failed.items()]
    chosen = known(request.name)
    for label, row in chosen.rows.items():
        if request.rows and label not in request.rows:
            continue
        for place in _asked(request, chosen):
            result = begun.get((row.label, place))
            if result is None:
                lines.append(f"{request.name}: {label} on {place}: not begun")
                continue
            steps = request.steps or chosen.steps
            if result.finished and result.steps < steps:
                done = f"{result.steps:,} of the {steps:,} {chosen.step_unit} asked for"
                lines.append(f"{result.name}: {done}")
            lacking = sorted(set(request.options.seeds) - set(result.seeds))
            unsaid = sorted(set(lacking) - set(result.config["seeds"]))  # those are told of it
            if unsaid:
                lines.append(f"{result.name}: seeds {', '.join(map(str, unsaid))} are missing")
    return lines


def _asked(request: StudyRequest, chosen: Study) -> list[str]:
    given = request.tasks or chosen.datasets or chosen.tasks
    own = chosen.datasets and request.tasks
    return [Path(name).stem if own and name not in DATASETS else name for name in given]


# -- one run -------------------------------------------------------------------------------------


def read_run(folder: Path) -> Result:
    """A run folder; what is not as it should be is among its notes."""
    config = read_config(folder)
    try:
        given = config.get("dataset")
        task = Task(str(config["task"]["id"]), dict(config["task"].get("kwargs", {})))
        seeds, steps = tuple(int(seed) for seed in config["seeds"]), int(config["steps"])
        every = int(config["evaluate_every"])
        if min(steps, every) < 1:
            raise ValueError(f"steps {steps}, evaluate_every {every}")
        study, label, changed = _row(config)
        asked, data = data_origin(given) if given else (task.id, "")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'config.json'} is damaged: {error!r}") from None
    notes = [f"differs from its row: {', '.join(changed)}"] if changed else []
    if config.get("variant") and label not in known(study).rows:
        notes.append(f"{study} has no row {label!r}")
    where = _where(asked, data, task)
    curves = _curves(folder, config, task.id if data else "", notes)
    finished, counted = False, "updates" if data else "steps"
    if curves is None:
        notes.append(f"no evaluation yet, of {steps:,} {counted}")
    else:
        lost = [str(seed) for seed in seeds if seed not in curves.seeds]
        if lost:
            notes.append(f"{named_seeds(lost)} missing: there are no evaluations")
        notes += curves.left_out
        has_last = curves.steps[-1] >= steps // every * every
        has_ended = (finished_steps(folder) or 0) >= steps
        finished = not lost and has_last and has_ended
        if not (has_last and has_ended):
            notes.append(f"unfinished: at {curves.steps[-1]:,} of {steps:,} {counted}")
        if len(curves.seeds) == 1:
            notes.append("one seed: no interval and no test")
    if data and score(task.id, 0.0) is None:
        notes.append(f"returns, since {task.id} has no D4RL score")
    return Result(
        folder,
        study,
        label,
        asked,
        where,
        _setting(where, config) if known(study).times_machines else where,
        task,
        data,
        curves.seeds if curves else (),
        steps,
        curves,
        _values(folder, curves, notes) if curves else None,
        *(_seconds(folder, config, notes) if finished else (None, None)),
        finished,
        config,
        changed,
        tuple(notes),
    )


def _where(asked: str, data: str, task: Task) -> str:
    """With the task where a dataset's name does not tell it, and with what the task is made with.

    D4RL's names stand for v4: its tasks are Gymnasium's v2, of which v4 is the one still made.
    """
    names = (task.id.lower(), task.id.lower().removesuffix("-v4"))
    told = not data or asked.lower().startswith(names)
    return with_kwargs(asked if told else f"{asked} on {task.id}", task)


def _row(config: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """A run's study and label, and what it changes beyond them."""
    study, _, label = (config.get("variant") or "").partition("/")
    offline = bool(config.get("dataset"))
    algorithm = str(config["algorithm"])
    row = known(study).rows.get(label)
    if study:
        return study, label, tuple(_changed(config, row.settings, offline) if row else ())
    study = OFFLINE if offline else ONLINE
    label = ", ".join([paper_name(study, algorithm), *_changed(config, {}, offline)])
    return study, label, ()


def _changed(config: Mapping[str, Any], own: Mapping[str, Any], offline: bool) -> list[str]:
    """name=value of the hyperparameters that are neither the algorithm's nor the row's."""
    from td7.algorithms import ALGORITHMS

    given, algorithm = config.get("hyperparameters", {}), str(config["algorithm"])
    if algorithm not in ALGORITHMS:  # someone's own: there is nothing to compare with
        return []
    wanted = _defaults(algorithm, tuple(own.items()), offline, str(config["task"]["id"]))
    return [
        f"{name}={value}"
        for name, value in given.items()
        if name in wanted and _plain(wanted[name]) != _plain(value)
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@cache
def _defaults(
    name: str, own: tuple[tuple[str, Any], ...], offline: bool, task: str
) -> dict[str, Any]:
    from td7.algorithms import algorithm
    from td7.configs import build_config

    chosen = algorithm(name)
    extra = dict(chosen.offline or {}) if offline else {}
    return vars(build_config(chosen.config, {**extra, **dict(own)}).for_task(Task(task)))


def _curves(
    folder: Path, config: Mapping[str, Any], scored: str, notes: list[str]
) -> Aligned | None:
    """Every seed's evaluations on the steps that all have; what is left out is noted."""
    rows = _table(folder / "evaluations.csv", EVALUATIONS, notes)
    if rows is None or rows.empty:
        return None
    found = rows.groupby(["seed", "step"], sort=True)["return"].agg(["mean", "size"])
    wanted = int(config.get("evaluation_episodes", 1))
    whole = found["size"] >= wanted
    if not whole.all():
        notes.append(f"{int((~whole).sum())} evaluations of fewer than {wanted} episodes left out")
        found = found[whole]
    if found.empty:
        return None
    finite = np.isfinite(found["mean"])
    if not finite.all():
        notes.append(f"{int((~finite).sum())} evaluations that are not finite left out")
        found = found[finite]
    numbers = found["mean"].to_numpy(np.float64)
    scores = score(scored, numbers) if scored else None
    numbers = numbers if scores is None else scores
    curves: dict[int, list[tuple[int, float]]] = {}
    for (seed, step), value in zip(found.index, numbers, strict=True):
        curves.setdefault(int(seed), []).append((int(step), float(value)))
    try:
        return common(curves)
    except ValueError as error:
        notes.append(f"left out: {one_line(error)}")
        return None


def _values(folder: Path, curves: Aligned, notes: list[str]) -> NDArray[np.float64] | None:
    """[seeds, evaluations]: the last `policy_value` that was recorded up to each evaluation."""
    rows = _table(folder / "metrics.csv", ("seed", "step", "policy_value"), notes)
    if rows is None:
        return None
    found = np.full(curves.values.shape, np.nan)
    for i, seed in enumerate(curves.seeds):
        own = rows[rows["seed"] == seed].sort_values("step")
        where = np.searchsorted(own["step"], curves.steps, side="right")
        numbers = np.concatenate([[np.nan], own["policy_value"].to_numpy(np.float64)])
        found[i] = numbers[where]
    return found


def _table(file: Path, columns: Sequence[str], notes: list[str]) -> pd.DataFrame | None:
    """These columns of a CSV file; None if there is none, or not with them."""
    try:
        rows = pd.read_csv(file, usecols=lambda name: name in columns)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return None
    except (OSError, ValueError) as error:  # ParserError is a ValueError
        raise InputError(f"{file} is damaged: {one_line(error)}") from None
    if set(rows.columns) != set(columns):
        return None
    for name in columns:
        numbers = pd.to_numeric(rows[name], errors="coerce")
        if name != "policy_value" and numbers.isna().any():
            cut = numbers.isna()
            notes.append(f"{file.name}: {int(cut.sum())} rows that are cut short left out")
            rows = rows[~cut]
            numbers = numbers[~cut]
        rows = rows.assign(**{name: numbers})
    return rows


def _seconds(
    folder: Path, config: Mapping[str, Any], notes: list[str]
) -> tuple[float | None, float | None]:
    """Of the whole run, and of a step of all seeds once under way: there is one update a step."""
    try:
        phases = pd.read_csv(folder / "timings.csv").set_index("phase")
        total = float(phases["seconds"]["total"])
        learn = phases.reindex(["learn"]).fillna(0.0).iloc[0]
        updates = float(learn["times"]) / len(config["seeds"])
        return total, float(learn["seconds"]) / updates if updates else None
    except (OSError, ValueError, KeyError):
        notes.append("no total in timings.csv")
        return None, None


def _setting(where: str, config: Mapping[str, Any]) -> str:
    count = len(config["seeds"])
    return f"{where}, {count} seed{'s' * (count > 1)} on {machine_of(config)}"


def _with_videos(results: Sequence[Result], notes: list[str]) -> list[Result]:
    """What lies beside a run's tables as a video; what would make a page too large is noted."""
    found, left = [], ALL_VIDEOS
    for result in results:
        kept = []
        for file in sorted(f for kind in VIDEOS for f in result.folder.glob(f"[!.]*{kind}")):
            size = file.stat().st_size
            room = min(LARGEST_VIDEO, left)
            if size > room:
                said = f"{size / 1e6:.1f} MB, of which a page has room for {room / 1e6:.1f}"
                notes.append(f"{result.name}: {file.name} is not on the page: {said}")
                continue
            kept.append(file)
            left -= size
        found.append(replace(result, videos=tuple(kept)))
    return found

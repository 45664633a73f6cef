"""Run folders, study folders, and folders of either → results."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from td7.datasets.download import DATASETS
from td7.errors import InputError, one_line
from td7.reports.labels import name_rows
from td7.reports.pool import pool, pooling_order
from td7.reports.read import read_run
from td7.reports.result import Result, plain, seed_list, step_unit, study_or_empty
from td7.reports.videos import with_videos
from td7.studies.folder import StudyRequest, read_failures, read_request
from td7.studies.rows import Study

MOST_RUNS = 10_000  # that are looked for; a study.json may list any number


class Folders(NamedTuple):
    runs: list[Path]
    studies: list[Path]
    searches: list[Path]  # whose runs are trials, which end at different steps


def collect(folders: Sequence[Path]) -> tuple[list[Result], list[str]]:
    """One result per row and place, in the paper's order, and a note per problem."""
    results: list[Result] = []
    notes: list[str] = []
    for folder in folders:
        runs, studies, searches = find(folder)
        read, problems = read_runs(runs)
        results += read
        notes += problems
        notes += [
            f"{path} left out: a search; `td7 report {path}` is about it" for path in searches
        ]
        for path in studies:
            notes += _missing_runs(path, results)
    results, pool_notes = pool(sorted(name_rows(results), key=pooling_order))
    results, video_notes = with_videos(results)
    results = _number_unlisted(results)
    notes += [*pool_notes, *video_notes]
    notes += notes_of_runs((result.name, result, result.notes) for result in results)
    if not any(result.curves for result in results):
        reason = f": {notes[0]}" if notes else ""
        raise InputError(f"{', '.join(map(str, folders))}: no run has an evaluation yet{reason}")
    return results, notes


def read_runs(paths: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """The results of run folders, and a note per folder that cannot be read."""
    results: list[Result] = []
    notes: list[str] = []
    for path in paths:
        try:
            results += read_run(path)
        except (InputError, ValueError) as error:
            notes.append(f"{path} left out: {one_line(error)}")
    return results, notes


def notes_of_runs(named: Iterable[tuple[str, Result, Sequence[str]]]) -> list[str]:
    """The notes of results by name; one that all configurations of a run have comes once."""
    by_folder: dict[Path, list[tuple[str, Sequence[str]]]] = {}
    for name, result, notes in named:
        by_folder.setdefault(result.folder, []).append((name, notes))
    lines = []
    for folder, own in by_folder.items():
        shared = set.intersection(*(set(notes) for _, notes in own)) if len(own) > 1 else set()
        lines += [f"{folder}: {note}" for note in own[0][1] if note in shared]
        lines += [f"{name}: {note}" for name, notes in own for note in notes if note not in shared]
    return lines


def find(folder: Path) -> Folders:
    """The run, study and search folders in a folder, by name; no folders in runs or searches."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist")
    folders = Folders([], [], [])
    for path, names, files in os.walk(folder):
        names.sort()
        if "config.json" in files:
            names.clear()
            folders.runs.append(Path(path))
        elif "search.json" in files:
            names.clear()
            folders.searches.append(Path(path))
        elif "study.json" in files:
            folders.studies.append(Path(path))
    if not folders.runs and not folders.studies:
        reason = "neither it nor a folder in it has a config.json"
        if folders.searches:
            reason = f"{folders.searches[0]} is a search; give td7 report its folder"
        raise InputError(f"{folder} holds no runs: {reason}")
    return folders


def _number_unlisted(results: Sequence[Result]) -> list[Result]:
    """Number the labels that are not among their study's rows, from 0 in each study."""
    unlisted: dict[str, list[str]] = {}
    for result in results:
        labels = unlisted.setdefault(result.study, [])
        if result.label not in (*labels, *study_or_empty(result.study).rows):
            labels.append(result.label)
    return [
        replace(r, unlisted=unlisted[r.study].index(r.label)) if r.label in unlisted[r.study] else r
        for r in results
    ]


# -- study folders -------------------------------------------------------------------------------


def _missing_runs(out: Path, results: Sequence[Result]) -> list[str]:
    """A note per run of a study that failed, has not started or is shorter than requested."""
    request = read_request(out)
    if request is None:
        return []
    study = study_or_empty(request.name.rpartition(":")[2])
    notes = [f"{study.name}: {run} failed: {error}" for run, error in read_failures(out).items()]
    started = {(r.label, r.requested): r for r in results if out in r.folder.parents}
    runs = product(request.rows or study.rows, _requested(request, study))
    for label, name in islice(runs, MOST_RUNS):
        result = started.get((plain(label), name))
        if result is None:
            notes.append(f"{study.name}: {label} on {name}: not started")
        else:
            notes += _shortfall(request, study, result)
    return notes


def _requested(request: StudyRequest, study: Study) -> list[str]:
    """The tasks' ids or the datasets' names that a study folder was made for."""
    names = request.tasks or study.datasets or study.tasks
    may_be_files = study.datasets and request.tasks
    return [Path(n).stem if may_be_files and n not in DATASETS else n for n in names]


def _shortfall(request: StudyRequest, study: Study, result: Result) -> list[str]:
    """The steps and seeds that a run does not have and its config.json does not mention."""
    notes = []
    steps = request.steps or study.steps
    if result.finished and result.steps < steps:
        count = f"{result.steps:,} of the {steps:,} {step_unit([result])} requested"
        notes.append(f"{result.name}: {count}")
    configured = {*result.seeds, *result.record.seeds}
    missing = sorted(set(request.options.seeds) - configured)
    if missing:
        notes.append(f"{result.name}: {seed_list(missing)} missing")
    return notes

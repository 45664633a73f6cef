"""A run folder → a `Result`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from td7.datasets.scores import score
from td7.errors import InputError, one_line
from td7.reports.labels import changes, changes_text, setting_text
from td7.reports.result import (
    ONE_SEED,
    Result,
    data_origin,
    machine_name,
    paper_name,
    plain,
    seed_list,
    study_or_empty,
    with_kwargs,
)
from td7.runs.folder import EVALUATIONS
from td7.runs.record import RunRecord, changes_since_finish, finished_steps
from td7.runs.tables import read_columns
from td7.statistics import Aligned, common
from td7.types import Task

ONLINE, OFFLINE = "online", "offline"  # the studies of runs that name none


def read_run(folder: Path) -> list[Result]:
    """The result of a run, or one per configuration if hyperparameters vary.

    A problem that leaves a result is one of its notes.
    """
    run = RunRecord.read(folder)
    tables = _Tables(run)
    changed_files = changes_since_finish(folder)
    return [_read(record, tables, changed_files) for record in run.configurations()]


def _read(record: RunRecord, tables: "_Tables", changed_files: Sequence[str]) -> Result:
    name, label, changed = _row(record, tables.run.members.varied)
    study, task = study_or_empty(name), record.task
    requested, data = data_origin(record.dataset) if record.dataset else (task.id, "")
    notes = list(changed_files)
    if changed:
        notes.append(f"differs from its row: {', '.join(changed)}")
    row = plain(record.variant).partition("/")[2]
    if record.variant and study.rows and row not in study.rows:
        notes.append(f"{name} has no row {row!r}")
    curves = _curves(record, tables, task.id if data else "", notes)
    finished = _is_finished(record, curves, notes)
    if data and score(task.id, 0.0) is None:
        notes.append(f"{task.id} has no D4RL score: its returns are shown")
    task_label = place = plain(_task_label(task, requested, data))
    if study.times_machines:
        count = len(record.seeds)
        place += f", {count} seed{'s' * (count > 1)} on {machine_name(record)}"
    values = _value_estimates(record, tables, curves, notes) if curves else None
    run_seconds, learning_seconds = _run_times(tables.run, notes) if finished else (None, None)
    is_whole = len(record.members) == len(tables.run.members)  # else its share of them is unknown
    return Result(
        record=record,
        study=name,
        label=label,
        requested=requested,
        task_label=task_label,
        place=place,
        data=data,
        seeds=curves.seeds if curves else (),
        steps=record.steps,
        curves=curves,
        values=values,
        seconds=run_seconds if is_whole else None,
        learning_seconds=learning_seconds if is_whole else None,
        run_seconds=run_seconds,
        finished=finished,
        changed=changed,
        notes=tuple(notes),
        position=0 if study.rows else _position(record.folder),
    )


# -- config.json ---------------------------------------------------------------------------------


def _task_label(task: Task, requested: str, data: str) -> str:
    """`requested` with the task's arguments; after a dataset that does not name it, the task.

    D4RL's names stand for v4: its tasks are Gymnasium's v2, of which v4 is the one still made.
    """
    names = (task.id.lower(), task.id.lower().removesuffix("-v4"))
    names_task = not data or requested.lower().startswith(names)
    return with_kwargs(requested if names_task else f"{requested} on {task.id}", task)


def _row(record: RunRecord, varied: Iterable[str]) -> tuple[str, str, tuple[str, ...]]:
    """A run's study, its label, and what differs from its row.

    The label of a run that names no row is its algorithm's; `labels.name_rows` extends it. Where
    hyperparameters vary, a configuration that has others than its row is a row of its own.
    """
    name, _, label = plain(record.variant).partition("/")  # which also names files
    if study := name.rpartition(":")[2]:  # without its module
        row = study_or_empty(study).rows.get(label)
        changed = changes(record, row.settings) if row else {}
        own = [name for name in varied if row is None or changed.pop(name, None) is not None]
        texts = [setting_text(name, record.hyperparameters[name]) for name in own]
        return study, plain(", ".join([label, *texts])), changes_text(changed)
    study = ONLINE if record.dataset is None else OFFLINE
    return study, plain(paper_name(study, record.algorithm)), ()


def _position(folder: Path) -> int:
    """The number of a run's row, with which `td7 study` begins the name of the row's folder."""
    match = re.match(r"(\d{2,4})-", folder.resolve().parent.name)
    return int(match[1]) if match else 0


# -- the run's CSV files -------------------------------------------------------------------------


class _Tables:
    """The tables of a run, each read once for all of its configurations."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self._tables: dict[str, tuple[pd.DataFrame | None, list[str]]] = {}

    def rows(
        self, record: RunRecord, name: str, columns: Sequence[str], notes: list[str]
    ) -> pd.DataFrame | None:
        """The rows of a configuration, with the column `seed` and these; None without a table."""
        members = record.members
        if name not in self._tables:
            problems: list[str] = []
            table = _read_columns(record.folder / name, (members.kind, *columns), problems)
            self._tables[name] = table, problems
        rows, problems = self._tables[name]
        notes += problems
        if rows is None or not members.numbers:
            return rows
        own = rows[rows["member"].isin(members.ids)]
        return own.assign(
            seed=own["member"].map(dict(zip(members.ids, members.seeds, strict=True)))
        )


def _curves(
    record: RunRecord, tables: _Tables, scored_task: str, notes: list[str]
) -> Aligned | None:
    """Every seed's evaluations at the steps that all seeds have."""
    rows = tables.rows(record, "evaluations.csv", EVALUATIONS, notes)
    if rows is None or rows.empty:
        return None
    means = rows.groupby(["seed", "step"], sort=True)["return"].agg(["mean", "size"])
    episodes = record.evaluation_episodes
    complete = means["size"] >= episodes
    if not complete.all():
        count = int((~complete).sum())
        notes.append(f"evaluations with fewer than {episodes} episodes left out: {count}")
        means = means[complete]
    if means.empty:
        return None
    finite = np.isfinite(means["mean"])
    if not finite.all():
        notes.append(f"evaluations that are not finite left out: {int((~finite).sum())}")
        means = means[finite]
    numbers = means["mean"].to_numpy(np.float64)
    scores = score(scored_task, numbers) if scored_task else None
    numbers = numbers if scores is None else scores
    curves: dict[int, list[tuple[int, float]]] = {}
    for (seed, step), value in zip(means.index, numbers, strict=True):
        curves.setdefault(int(seed), []).append((int(step), float(value)))
    try:
        return common(curves)
    except ValueError as error:
        notes.append(f"evaluations left out: {one_line(error)}")
        return None


def _is_finished(record: RunRecord, curves: Aligned | None, notes: list[str]) -> bool:
    """Whether the run has ended with an evaluation of every seed; notes what is missing."""
    total = f"{record.steps:,} {'steps' if record.dataset is None else 'updates'}"
    if curves is None:
        notes.append(f"no evaluation yet of a run of {total}")
        return False
    missing = [seed for seed in record.seeds if seed not in curves.seeds]
    if missing:
        notes.append(f"no evaluations of {seed_list(missing)}")
    notes += curves.left_out
    last = curves.steps[-1]
    has_last = last >= record.steps // record.evaluate_every * record.evaluate_every
    has_ended = (finished_steps(record.folder) or 0) >= record.steps
    if not (has_last and has_ended):
        notes.append(f"unfinished: at {last:,} of {total}")
    if len(curves.seeds) == 1:
        notes.append(ONE_SEED)
    return not missing and has_last and has_ended


def _value_estimates(
    record: RunRecord, tables: _Tables, curves: Aligned, notes: list[str]
) -> NDArray[np.float64] | None:
    """[seeds, evaluations]: the last `policy_value` recorded up to each evaluation."""
    rows = tables.rows(record, "metrics.csv", ("step", "policy_value"), notes)
    if rows is None:
        return None
    values = np.full(curves.values.shape, np.nan)
    for i, seed in enumerate(curves.seeds):
        own = rows[rows["seed"] == seed].sort_values("step")
        latest = np.searchsorted(own["step"], curves.steps, side="right")
        numbers = np.concatenate([[np.nan], own["policy_value"].to_numpy(np.float64)])
        values[i] = numbers[latest]
    return values


def _read_columns(file: Path, columns: Sequence[str], notes: list[str]) -> pd.DataFrame | None:
    """These columns of a CSV file, without incomplete rows; None if one does not exist."""
    try:
        rows = read_columns(file, columns.__contains__)
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return None
    except (OSError, ValueError) as error:  # ParserError is a ValueError
        raise InputError(f"{file} is damaged: {one_line(error)}") from None
    if set(rows.columns) != set(columns):
        return None
    for name in columns:
        numbers = pd.to_numeric(rows[name], errors="coerce")
        if name != "policy_value" and numbers.isna().any():
            incomplete = numbers.isna()
            notes.append(f"{file.name}: incomplete rows left out: {int(incomplete.sum())}")
            rows = rows[~incomplete]
            numbers = numbers[~incomplete]
        rows = rows.assign(**{name: numbers})
    return rows


def _run_times(record: RunRecord, notes: list[str]) -> tuple[float | None, float | None]:
    """Seconds of the whole run, and of a step of all seeds: there is one update per step."""
    file = record.folder / "timings.csv"
    try:
        phases = read_columns(file).set_index("phase")
        if not phases.index.is_unique:
            raise ValueError("a phase is listed twice")
        numbers = {name: phases[name].astype(float).to_dict() for name in ("seconds", "times")}
        total = numbers["seconds"]["total"]
        learn, times = (numbers[name].get("learn", 0.0) for name in ("seconds", "times"))
        if not all(0 <= number < np.inf for number in (total, learn, times)):
            raise ValueError("a time is negative or infinite")
        updates = times / len(record.members)
        return total, learn / updates if updates else None
    except (OSError, ValueError, KeyError):
        notes.append("timings.csv does not have the times of the run")
        return None, None

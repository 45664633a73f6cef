"""A study as runs: which runs there are, and how long they take."""

import csv
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from td7.algorithms import algorithm, registered_name
from td7.algorithms.config import without_effect
from td7.datasets.download import DATASETS
from td7.errors import InputError, unknown
from td7.runs.record import total_seconds
from td7.studies.folder import PlannedRun, StudyRequest, completed_fraction, read_request
from td7.studies.rows import Row, Study, study


def plan_runs(request: StudyRequest, out: Path, datasets: Path) -> list[PlannedRun]:
    """Return every run of the study, row by row; raise for any mistake in the request."""
    chosen = study(request.name)
    previous = read_request(out)
    if previous is not None and previous.name != request.name:
        raise InputError(f"{out} holds the study {previous.name}; use another folder (--out)")
    _check_labels(chosen)
    runs = []
    for number, row in enumerate(chosen.rows.values()):
        if request.rows and row.label not in request.rows:
            continue
        name = registered_name(row.algorithm)
        row_folder = _row_folder(out, number, row.label)
        useless = _without_effect(chosen, row, request.options.set)
        settings = {n: v for n, v in request.options.set.items() if n not in useless}
        for task, where in _tasks(chosen, request.tasks, datasets):
            options = replace(
                request.options,
                **where,
                variant=f"{chosen.name}/{row.label}",
                steps=request.steps or chosen.steps,
                set=settings,
            )
            for suffix, seeds in _divide_seeds(options.seeds, request.seeds_each):
                folder = row_folder / f"{_slug(task)}{suffix}"
                seeded = replace(options, seeds=seeds)
                runs.append(PlannedRun(row.label, name, task, folder, seeded))
    _check_hyperparameters(request.options.set, {run.algorithm for run in runs})
    for label in request.rows:
        chosen.label(label)  # raises for one that the study does not have
    _check_folders(runs)
    return runs


def _tasks(chosen: Study, tasks: Sequence[str], datasets: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of each task or dataset, and the option that selects it."""
    if not chosen.datasets:
        return [(task, {"env": task}) for task in tasks or chosen.tasks]
    selected = []
    for name in tasks or chosen.datasets:
        path = datasets / DATASETS[name].file if name in DATASETS else Path(name)
        task = name if name in DATASETS else path.stem
        selected.append((task, {"dataset": str(path.resolve())}))
    return selected


def _without_effect(chosen: Study, row: Row, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return why some of the hyperparameters change nothing in a row, by name."""
    of_row = algorithm(row.algorithm)
    fields = of_row.config.__dataclass_fields__
    known = {name: value for name, value in settings.items() if name in fields}
    why = without_effect(
        of_row.config,
        {**known, **row.settings},
        [name for name in known if name not in row.settings],
        offline=of_row.offline if chosen.datasets else None,
    )
    absent = {name: f"in {row.algorithm}" for name in settings if name not in fields}
    return {**absent, **why}


def settings_left_out(request: StudyRequest) -> list[str]:
    """Return a line per hyperparameter and reason, with the rows that it does not change."""
    rows: dict[str, list[str]] = {}
    chosen = study(request.name)
    for row in chosen.rows.values():
        if request.rows and row.label not in request.rows:
            continue
        for name, why in _without_effect(chosen, row, request.options.set).items():
            line = f"{name}={request.options.set[name]} has no effect {why}"
            rows.setdefault(line, []).append(row.label)
    return [f"{line}: left out of {', '.join(labels)}" for line, labels in rows.items()]


def _divide_seeds(seeds: tuple[int, ...], each: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return the seeds of each run, `each` at a time, and what its folder's name ends with."""
    if not 0 < each < len(seeds):
        return [("", seeds)]
    groups = [seeds[i : i + each] for i in range(0, len(seeds), each)]
    return [(f"--seeds-{group[0]}-{group[-1]}", group) for group in groups]


def _row_folder(out: Path, number: int, label: str) -> Path:
    """Return the row's folder: the existing one, or one that begins with the row's number."""
    name = re.compile(rf"\d\d-{re.escape(_slug(label))}")
    existing = sorted(path for path in out.glob("*-*") if name.fullmatch(path.name))
    return existing[0] if existing else out / f"{number:02d}-{_slug(label)}"


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")


def _check_labels(chosen: Study) -> None:
    """Raise if two rows would be in the same folder."""
    first: dict[str, str] = {}
    for label in chosen.rows:
        if (other := first.setdefault(_slug(label), label)) != label:
            raise InputError(
                f"the rows {other!r} and {label!r} of {chosen.name} would share a folder: "
                "rename one of them"
            )


def _check_hyperparameters(settings: Mapping[str, Any], algorithms: Iterable[str]) -> None:
    """Raise for a hyperparameter that no algorithm has."""
    names = {n: None for a in sorted(algorithms) for n in algorithm(a).config.__dataclass_fields__}
    for name in settings:
        if names and name not in names:
            raise unknown("hyperparameter", name, names, shown=len(names))


def _check_folders(runs: Iterable[PlannedRun]) -> None:
    """Raise if two runs would write to the same folder."""
    first: dict[Path, PlannedRun] = {}
    for run in runs:
        other = first.setdefault(run.folder, run)
        if other is run:
            continue
        a, b = (one.options.dataset or one.task for one in (other, run))
        if a == b:
            raise InputError(f"{a} is given twice")
        raise InputError(f"{a} and {b} would share the folder {run.folder}: rename one of them")


def missing_datasets(runs: Iterable[PlannedRun]) -> list[str]:
    """Return a line for each dataset file that does not exist."""
    lines: dict[str, None] = {}
    for run in runs:
        path = Path(run.options.dataset or ".")
        if not path.exists():
            fetch = f"td7 dataset fetch {run.task} --out {shlex.quote(str(path.parent))}"
            hint = f"; download it with `{fetch}`" if run.task in DATASETS else ""
            lines[f"there is no dataset {path}{hint}"] = None
    return list(lines)


# -- how long ------------------------------------------------------------------------------------


def measured_rates(runs: Iterable[PlannedRun], at_once: int) -> dict[str, float]:
    """Return each algorithm's seed-steps per second on the whole machine, from finished runs.

    Each run is assumed to have had one of `at_once` equal parts of the machine.
    """
    seconds: dict[str, float] = {}
    steps: dict[str, float] = {}
    for run in runs:
        if (total := total_seconds(run.folder)) is not None:
            seconds[run.algorithm] = seconds.get(run.algorithm, 0.0) + total
            steps[run.algorithm] = steps.get(run.algorithm, 0.0) + run.seed_steps
    return {name: at_once * steps[name] / seconds[name] for name in steps if seconds[name] > 0}


def usual_rates(device: str) -> dict[str, float]:
    """Return such rates as measured on one H200 (cuda) and on two CPU cores (cpu)."""
    with (files("td7.studies") / "throughput.csv").open() as file:
        return {
            row["algorithm"]: float(row["seed_steps_per_second"])
            for row in csv.DictReader(file)
            if row["device"] == device
        }


def seconds_left(remaining: Mapping[PlannedRun, float], rates: Mapping[str, float]) -> float | None:
    """Return the time for the remaining fraction of each run; None if a rate is unknown."""
    if any(run.algorithm not in rates for run in remaining):
        return None
    return sum(part * run.seed_steps / rates[run.algorithm] for run, part in remaining.items())


@dataclass
class StudyStatus:
    """How far a study is: its `runs`, those that are `done` or `running`, errors of `failed`."""

    runs: Sequence[PlannedRun]
    done: list[PlannedRun]
    failed: dict[str, str] = field(default_factory=dict)  # name: error
    running: list[PlannedRun] = field(default_factory=list)

    def remaining(self) -> dict[PlannedRun, float]:
        """Return the fraction of each run that is still to be trained."""
        ended = {run.name for run in self.done} | set(self.failed)
        return {run: 1 - completed_fraction(run) for run in self.runs if run.name not in ended}

    def seconds_left(self, usual: Mapping[str, float], at_once: int) -> float | None:
        """Return the time for the rest, at the rates of the finished runs, or else `usual` ones."""
        return seconds_left(self.remaining(), {**usual, **measured_rates(self.done, at_once)})

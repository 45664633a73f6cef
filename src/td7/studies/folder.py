"""What a study folder holds on disk.

OUT/study.json           the request: what the study was asked to run
OUT/ROW/TASK/            a run folder: one row on one task, its seeds stacked
OUT/ROW/TASK--seeds-A-B/ likewise, where --seeds-each divides the seeds among several runs
OUT/failed.json          runs that failed, with their errors; the next `td7 study` tries them again
OUT/logs/ROW--TASK.log   the output of a run

No torch here: `td7 report` imports this module.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from td7.configs import parse_number
from td7.errors import InputError, one_line
from td7.files import check_no_links, make_folder, read_sealed, typed, write_sealed, writing_to
from td7.options import RUN_OPTIONS, TrainOptions, options_from
from td7.runs.record import RunRecord, finished_steps
from td7.studies.rows import variant
from td7.types import Task


@dataclass(frozen=True)
class StudyRequest:
    """What `td7 study` was asked to run; an empty field stands for what the study lists."""

    name: str  # perhaps MODULE:NAME
    rows: tuple[str, ...] = ()  # labels
    tasks: tuple[str, ...] = ()  # ids of tasks; offline, ids or paths of datasets
    steps: int = 0
    options: TrainOptions = TrainOptions()  # what all runs share: the fields in RUN_OPTIONS
    seeds_each: int = 0  # seeds per run; 0: all


class RunState(Enum):
    TO_DO = "to do"
    INTERRUPTED = "to resume"
    DONE = "done"


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One row of a study on one task, and the folder of its run."""

    label: str
    algorithm: str
    task: str  # a task's id, or a dataset's name
    folder: Path
    options: TrainOptions

    @property
    def name(self) -> str:
        """ROW--TASK, for messages and file names."""
        return f"{self.folder.parent.name}--{self.folder.name}"

    @property
    def seed_steps(self) -> int:
        return len(self.options.seeds) * self.options.steps


def write_request(request: StudyRequest, out: Path) -> None:
    """Write study.json."""
    options = {name: getattr(request.options, name) for name in RUN_OPTIONS}
    options["wrapper"] = list(map(str, options["wrapper"]))
    for name in ("env_kwargs", "wrapper", "wandb", "mlflow"):
        if not options[name]:
            del options[name]
    make_folder(out)
    with writing_to(out):
        write_sealed(out / "study.json", {**asdict(request), "options": options})


def read_request(out: Path) -> StudyRequest | None:
    """Read study.json; None if the folder holds no study."""
    check_no_links(out)
    file = out / "study.json"
    try:
        data = read_sealed(file)
    except FileNotFoundError:
        return None
    try:
        options = typed("options", data.get("options", {}), dict)
        return StudyRequest(
            name=typed("name", data["name"], str),
            rows=tuple(typed("row", row, str) for row in typed("rows", data["rows"], list)),
            tasks=tuple(typed("task", task, str) for task in typed("tasks", data["tasks"], list)),
            steps=parse_number("steps", data["steps"], int, at_least=0),
            options=options_from(TrainOptions, options),
            seeds_each=parse_number("seeds_each", data.get("seeds_each", 0), int, at_least=0),
        )
    except (InputError, KeyError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else one_line(error)
        raise InputError(f"{file} is damaged: {reason}") from None


def run_state(run: PlannedRun) -> RunState:
    """Return how far a run is; raise if its folder holds a run with other settings."""
    if not (run.folder / "config.json").exists():
        return RunState.TO_DO
    record = RunRecord.read(run.folder)
    wrappers = list(map(str, record.task.wrappers))
    task = {"env": record.task.id, "env_kwargs": record.task.kwargs, "wrapper": wrappers}
    saved = {**record.hyperparameters, **record.data, **task}
    for name, value in _settings(run).items():
        text, wanted = json.dumps(saved.get(name)), json.dumps(value)
        if name in saved and text != wanted:
            raise InputError(
                f"{run.folder} holds a run with {name}={text}, but this study needs {wanted}; "
                "use another folder (--out)"
            )
    finished = finished_steps(run.folder)
    is_done = finished is not None and finished >= run.options.steps
    return RunState.DONE if is_done else RunState.INTERRUPTED


def _settings(run: PlannedRun) -> dict[str, Any]:
    """Return what must be equal in the run's config.json, by the names there."""
    from td7.algorithms import algorithm
    from td7.configs import build_config

    names = ["variant", "seeds", "evaluate_every", "evaluation_episodes"]
    if run.options.env:  # a dataset may bring keyword arguments of its own
        names += ["env", "env_kwargs"]
    chosen = algorithm(run.algorithm)
    offline = chosen.offline if run.options.dataset else {}
    changes = {**(offline or {}), **run.options.set, **variant(run.options.variant).settings}
    config = build_config(chosen.config, changes)
    if run.options.env:
        config = config.for_task(Task(run.options.env))
    own = {name: getattr(run.options, name) for name in names}
    if run.options.env:
        own["wrapper"] = list(map(str, run.options.wrapper))
    return {"algorithm": run.algorithm, **own, **asdict(config)}


def completed_fraction(run: PlannedRun) -> float:
    """Return the fraction of a run's steps that its evaluations cover."""
    try:
        with (run.folder / "evaluations.csv").open() as file:
            last: dict[str, int] = {}
            for row in csv.reader(file):
                if len(row) > 1 and row[1].isdecimal():
                    last[row[0]] = max(last.get(row[0], 0), int(row[1]))
    except OSError:
        return 0.0
    return min(1.0, sum(last.values()) / max(1, run.seed_steps))


def log_path(run: PlannedRun, folder: Path) -> Path:
    return folder / f"{run.name}.log"


def write_failures(out: Path, failed: Mapping[str, str]) -> None:
    """Write failed.json, or remove it if no run failed."""
    if failed:
        write_sealed(out / "failed.json", failed)
    else:
        (out / "failed.json").unlink(missing_ok=True)


def read_failures(out: Path) -> dict[str, str]:
    """Return the errors of the runs that failed the last time, by the names of the runs."""
    try:
        failures = read_sealed(out / "failed.json")
    except FileNotFoundError:
        return {}
    return {name: one_line(error) for name, error in failures.items()}

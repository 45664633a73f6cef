"""What a study folder holds: what was asked for, its runs, those that failed.

OUT/study.json           what was asked for
OUT/ROW/TASK/            a run folder: one row on one task, its seeds stacked
OUT/ROW/TASK--seeds-A-B/ the same of some of the seeds, where they are divided among runs
OUT/failed.json          runs that failed, with their errors; they are tried again
OUT/logs/ROW--TASK.log   what a run said
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from td7.errors import InputError
from td7.files import write_json, writing_to
from td7.runs.record import RunRecord, finished_steps
from td7.studies.rows import variant
from td7.types import Task


@dataclass(frozen=True)
class StudyRequest:
    """What `td7 study` is asked for. Empty: what the paper did."""

    name: str
    rows: tuple[str, ...] = ()  # labels
    tasks: tuple[str, ...] = ()  # ids of tasks, or with given data ids and paths of datasets
    steps: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)  # others of `td7.train`
    seeds_each: int = 0  # of a run; 0: all


class RunState(Enum):
    TO_DO = "to do"
    INTERRUPTED = "to resume"
    DONE = "done"


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One row of a study on one task."""

    label: str
    algorithm: str
    where: str  # a task's id, or a dataset's name
    folder: Path
    options: Mapping[str, Any]  # of `td7.train`

    @property
    def name(self) -> str:
        """For people and for file names."""
        return f"{self.folder.parent.name}--{self.folder.name}"

    @property
    def seed_steps(self) -> int:
        return len(self.options["seeds"]) * int(self.options["steps"])


def write_request(request: StudyRequest, out: Path) -> None:
    """Notes what a folder is for."""
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "study.json", asdict(request))


def read_request(out: Path) -> StudyRequest | None:
    """What a folder is for, if it holds a study."""
    file = out / "study.json"
    if not file.exists():
        return None
    try:
        data = json.loads(file.read_text())
        return StudyRequest(**{**data, "rows": tuple(data["rows"]), "tasks": tuple(data["tasks"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged: {error}") from None


def state(run: PlannedRun) -> RunState:
    """Where a run stands; raises if its folder holds another one."""
    if not (run.folder / "config.json").exists():
        return RunState.TO_DO
    record = RunRecord.read(run.folder)
    same = ("variant", "seeds", "evaluate_every", "evaluation_episodes")
    wanted = {name: run.options[name] for name in same if name in run.options}
    found = {**record.hyperparameters, **record.data}
    if "env" in run.options:
        wanted["env_kwargs"] = run.options.get("env_kwargs", {})
        found["env_kwargs"] = record.task.kwargs
    for name, value in {**wanted, **_hyperparameters(run)}.items():
        text = json.dumps(found.get(name))
        if name in found and text != json.dumps(value):
            raise InputError(
                f"{run.folder} holds a run with {name}={text}, wanted is {json.dumps(value)}: "
                "give --out another folder"
            )
    finished = finished_steps(run.folder)
    enough = finished is not None and finished >= int(run.options["steps"])
    return RunState.DONE if enough else RunState.INTERRUPTED


def _hyperparameters(run: PlannedRun) -> dict[str, Any]:
    """All of a run's."""
    from td7.algorithms import algorithm
    from td7.configs import build_config

    chosen = algorithm(run.algorithm)
    given = chosen.offline if "dataset" in run.options else {}
    own = {**(given or {}), **run.options["set"], **variant(run.options["variant"]).settings}
    config = build_config(chosen.config, own)
    if "env" in run.options:
        config = config.for_task(Task(run.options["env"]))
    return asdict(config)


def fraction(run: PlannedRun) -> float:
    """How much of a run its evaluations show to be done."""
    try:
        with (run.folder / "evaluations.csv").open() as file:
            last: dict[str, int] = {}
            for row in csv.reader(file):
                if len(row) > 1 and row[1].isdecimal():
                    last[row[0]] = max(last.get(row[0], 0), int(row[1]))
    except OSError:
        return 0.0
    return min(1.0, sum(last.values()) / max(1, run.seed_steps))


def log_of(run: PlannedRun, folder: Path) -> Path:
    return folder / f"{run.name}.log"


def write_failures(out: Path, failed: Mapping[str, str]) -> None:
    """For the next time; where nothing failed there is no file."""
    if failed:
        write_json(out / "failed.json", failed)
    else:
        (out / "failed.json").unlink(missing_ok=True)


def read_failures(out: Path) -> dict[str, str]:
    """Runs that failed the last time, and their errors."""
    file = out / "failed.json"
    if not file.exists():
        return {}
    try:
        found: dict[str, str] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is damaged: {error}") from None
    return found

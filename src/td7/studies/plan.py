"""A study as runs: which there are, which are done, how long the others will take.

OUT/study.json           what was asked for
OUT/ROW/TASK/            a run folder: one row on one task, its seeds stacked
OUT/ROW/TASK--seeds-A-B/ the same of some of the seeds, where they are divided among runs
OUT/failed.json          runs that failed, with their errors; they are tried again
OUT/logs/ROW--TASK.log   what a run said
"""

import csv
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any

from td7.datasets.download import DATASETS
from td7.errors import InputError, unknown
from td7.files import write_json, writing_to
from td7.runs import folder as runs
from td7.studies.rows import Row, Study, study, variant
from td7.types import Task


@dataclass(frozen=True)
class Request:
    """What `td7 study` is asked for. Empty: what the paper did."""

    name: str
    rows: tuple[str, ...] = ()  # labels
    tasks: tuple[str, ...] = ()  # ids of tasks, or with given data ids and paths of datasets
    steps: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)  # others of `td7.train`
    seeds_each: int = 0  # of a run; 0: all


class State(Enum):
    TO_DO = "to do"
    INTERRUPTED = "to resume"
    DONE = "done"


@dataclass(frozen=True, eq=False)
class Planned:
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


def plan(request: Request, out: Path, datasets: Path) -> list[Planned]:
    """Every run of the study, a row after the other, all checked."""
    chosen = study(request.name)
    before = read_request(out)
    if before is not None and before.name != request.name:  # one folder holds one study
        raise InputError(f"{out} holds the study {before.name}; give --out another folder")
    steps = request.steps or chosen.steps
    found = []
    for number, row in enumerate(chosen.rows.values()):
        if request.rows and row.label not in request.rows:
            continue
        for where, options in _places(chosen, request.tasks, datasets):
            given = {
                **request.options,
                **options,
                "variant": f"{chosen.name}/{row.label}",
                "steps": steps,
                "set": _settings(row, request.options.get("set", {})),
            }
            for which, seeds in _shares(request):
                folder = _row_folder(out, number, row.label) / f"{_slug(where)}{which}"
                own = {**given, **seeds}
                found.append(Planned(row.label, row.algorithm, where, folder, own))
    _check_names(request.options.get("set", {}), {run.algorithm for run in found})
    unknown_rows = [label for label in request.rows if label not in chosen.rows]
    if unknown_rows:
        names = list(chosen.rows)
        raise unknown(f"row of {chosen.name}", unknown_rows[0], names, shown=len(names))
    _check_folders(found)
    return found


def _shares(request: Request) -> list[tuple[str, dict[str, Any]]]:
    """Which seeds each run of a row on a task has: what its folder's name says, and the option."""
    seeds, each = request.options.get("seeds", ()), request.seeds_each
    if not 0 < each < len(seeds):
        return [("", {})]
    shares = (seeds[i : i + each] for i in range(0, len(seeds), each))
    return [(f"--seeds-{own[0]}-{own[-1]}", {"seeds": own}) for own in shares]


def _row_folder(out: Path, number: int, label: str) -> Path:
    """Named by the row's place among the others; one that is there stays as it was named."""
    own = re.compile(rf"\d\d-{re.escape(_slug(label))}")
    known = sorted(path for path in out.glob("*-*") if own.fullmatch(path.name))
    return known[0] if known else out / f"{number:02d}-{_slug(label)}"


def _check_folders(found: Iterable[Planned]) -> None:
    """Two runs in one folder would be one."""
    first: dict[Path, Planned] = {}
    for run in found:
        other = first.setdefault(run.folder, run)
        if other is run:
            continue
        a, b = (one.options.get("dataset", one.where) for one in (other, run))
        if a == b:
            raise InputError(f"{a} is given twice")
        raise InputError(f"{a} and {b} would share the folder {run.folder}: rename one of them")


def _places(
    chosen: Study, tasks: Sequence[str], datasets: Path
) -> list[tuple[str, dict[str, str]]]:
    """What a run's task is called, and the options that choose it."""
    if not chosen.datasets:
        return [(task, {"env": task}) for task in tasks or chosen.tasks]
    found = []
    for name in tasks or chosen.datasets:
        path = datasets / DATASETS[name].file if name in DATASETS else Path(name)
        found.append((name if name in DATASETS else path.stem, {"dataset": str(path.resolve())}))
    return found


def missing_data(found: Iterable[Planned]) -> list[str]:
    """A line for each dataset that is not there."""
    lines: dict[str, None] = {}
    for run in found:
        path = Path(run.options.get("dataset", "."))
        if not path.exists():
            fetch = f"td7 dataset fetch {run.where} --out {shlex.quote(str(path.parent))}"
            advice = f"; `{fetch}` gets it" if run.where in DATASETS else ""
            lines[f"there is no dataset {path}{advice}"] = None
    return list(lines)


def _settings(row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given hyperparameters that the row's algorithm has."""
    from td7.algorithms import algorithm

    names = algorithm(row.algorithm).config.__dataclass_fields__
    return {name: value for name, value in given.items() if name in names}


def _check_names(given: Mapping[str, Any], algorithms: Iterable[str]) -> None:
    """A hyperparameter that no row has is a mistake."""
    from td7.algorithms import algorithm

    names = {n: None for a in sorted(algorithms) for n in algorithm(a).config.__dataclass_fields__}
    for name in given:
        if names and name not in names:
            raise unknown("hyperparameter", name, names, shown=len(names))


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")


def write_request(request: Request, out: Path) -> None:
    """Notes what a folder is for."""
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "study.json", asdict(request))


def read_request(out: Path) -> Request | None:
    """What a folder is for, if it holds a study."""
    file = out / "study.json"
    if not file.exists():
        return None
    try:
        data = json.loads(file.read_text())
        return Request(**{**data, "rows": tuple(data["rows"]), "tasks": tuple(data["tasks"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged: {error}") from None


def state(run: Planned) -> State:
    """Where a run stands; raises if its folder holds another one."""
    if not (run.folder / "config.json").exists():
        return State.TO_DO
    record = runs.read_config(run.folder)
    same = ("variant", "seeds", "evaluate_every", "evaluation_episodes")
    wanted = {name: run.options[name] for name in same if name in run.options}
    found = {**record.get("hyperparameters", {}), **record}
    if "env" in run.options:
        wanted["env_kwargs"] = run.options.get("env_kwargs", {})
        found["env_kwargs"] = record.get("task", {}).get("kwargs", {})
    for name, value in {**wanted, **_hyperparameters(run)}.items():
        text = json.dumps(found.get(name))
        if name in found and text != json.dumps(value):
            raise InputError(
                f"{run.folder} holds a run with {name}={text}, wanted is {json.dumps(value)}: "
                "give --out another folder"
            )
    finished = runs.finished_steps(run.folder)
    enough = finished is not None and finished >= int(run.options["steps"])
    return State.DONE if enough else State.INTERRUPTED


def _hyperparameters(run: Planned) -> dict[str, Any]:
    """All of a run's."""
    from td7.algorithms import algorithm
    from td7.configs import with_values

    chosen = algorithm(run.algorithm)
    given = chosen.offline if "dataset" in run.options else {}
    own = {**(given or {}), **run.options["set"], **variant(run.options["variant"]).settings}
    config = with_values(chosen.config, own)
    if "env" in run.options:
        config = config.for_task(Task(run.options["env"]))
    return asdict(config)


def fraction(run: Planned) -> float:
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


# -- how long ------------------------------------------------------------------------------------


def measured_rates(found: Iterable[Planned], at_once: int) -> dict[str, float]:
    """Seed-steps a second of each algorithm on the whole machine, by the finished runs among these.

    So many runs were made at a time, each with its share of the machine.
    """
    seconds: dict[str, float] = {}
    steps: dict[str, float] = {}
    for run in found:
        if (total := runs.total_seconds(run.folder)) is not None:
            seconds[run.algorithm] = seconds.get(run.algorithm, 0.0) + total
            steps[run.algorithm] = steps.get(run.algorithm, 0.0) + run.seed_steps
    return {name: at_once * steps[name] / seconds[name] for name in steps if seconds[name] > 0}


def usual_rates(device: str) -> dict[str, float]:
    """The same as measured elsewhere, on one H200 and on two CPU cores; the file says how."""
    with (files("td7.studies") / "throughput.csv").open() as file:
        return {
            row["algorithm"]: float(row["seed_steps_per_second"])
            for row in csv.DictReader(file)
            if row["device"] == device
        }


def seconds_left(left: Mapping[Planned, float], rates: Mapping[str, float]) -> float | None:
    """Of runs with so much of each to do, at a machine's rates; None: nobody knows."""
    if any(run.algorithm not in rates for run in left):
        return None
    return sum(part * run.seed_steps / rates[run.algorithm] for run, part in left.items())

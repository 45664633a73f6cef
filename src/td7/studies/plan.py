"""A study as runs: which there are and how long they will take."""

import csv
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from td7.datasets.download import DATASETS
from td7.errors import InputError, unknown
from td7.runs.record import total_seconds
from td7.studies.folder import PlannedRun, StudyRequest, fraction, read_request
from td7.studies.rows import Row, Study, study


def plan(request: StudyRequest, out: Path, datasets: Path) -> list[PlannedRun]:
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
                found.append(PlannedRun(row.label, row.algorithm, where, folder, own))
    _check_names(request.options.get("set", {}), {run.algorithm for run in found})
    unknown_rows = [label for label in request.rows if label not in chosen.rows]
    if unknown_rows:
        names = list(chosen.rows)
        raise unknown(f"row of {chosen.name}", unknown_rows[0], names, shown=len(names))
    _check_folders(found)
    return found


def _shares(request: StudyRequest) -> list[tuple[str, dict[str, Any]]]:
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


def _check_folders(found: Iterable[PlannedRun]) -> None:
    """Two runs in one folder would be one."""
    first: dict[Path, PlannedRun] = {}
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


def missing_data(found: Iterable[PlannedRun]) -> list[str]:
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


# -- how long ------------------------------------------------------------------------------------


def measured_rates(found: Iterable[PlannedRun], at_once: int) -> dict[str, float]:
    """Seed-steps a second of each algorithm on the whole machine, by the finished runs among these.

    So many runs were made at a time, each with its share of the machine.
    """
    seconds: dict[str, float] = {}
    steps: dict[str, float] = {}
    for run in found:
        if (total := total_seconds(run.folder)) is not None:
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


def seconds_left(left: Mapping[PlannedRun, float], rates: Mapping[str, float]) -> float | None:
    """Of runs with so much of each to do, at a machine's rates; None: nobody knows."""
    if any(run.algorithm not in rates for run in left):
        return None
    return sum(part * run.seed_steps / rates[run.algorithm] for run, part in left.items())


@dataclass
class StudyStatus:
    """Where a study stands."""

    runs: Sequence[PlannedRun]
    done: list[PlannedRun]
    failed: dict[str, str] = field(default_factory=dict)  # name: error
    running: list[PlannedRun] = field(default_factory=list)

    def parts(self) -> dict[PlannedRun, float]:
        """How much of each run is still to be done."""
        ended = {run.name for run in self.done} | set(self.failed)
        left = [run for run in self.runs if run.name not in ended]
        return {run: 1 - fraction(run) for run in left}

    def seconds(self, usual: Mapping[str, float], at_once: int) -> float | None:
        return seconds_left(self.parts(), {**usual, **measured_rates(self.done, at_once)})

"""Run folders as results: what was run, what came of it, and what is missing."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from td7.datasets.dataset import score
from td7.datasets.download import DATASETS
from td7.errors import InputError, one_line
from td7.runs import folder as runs
from td7.statistics import Aligned, common
from td7.studies.local import failures
from td7.studies.plan import Request, read_request
from td7.studies.rows import STUDIES, Row, Study
from td7.types import Task

VIDEOS = {".mp4": "video/mp4", ".gif": "image/gif"}  # their media types
LARGEST_VIDEO, ALL_VIDEOS = 4_000_000, 40_000_000  # bytes
ONLINE, OFFLINE = "online", "offline"  # the studies of runs that name none
D4RL, MINARI, SELF_COLLECTED, OTHER = "D4RL", "Minari", "self-collected", "of other origin"
D4RL_SCORE = "D4RL score"
# What a mean over seeds should not depend on: said of runs that are pooled all the same.
MEASURED_BY = ("evaluation_episodes", "precision", "gymnasium", "mujoco")
D4RL_NAME = re.compile(r"[a-z0-9]+_[a-z_]+-v\d+")  # of its files


@dataclass(frozen=True, eq=False)
class Result:
    """One run: a row of a study on one task or dataset."""

    folder: Path
    study: str
    label: str  # of the row, as the paper prints it
    asked: str  # a task's id, or a dataset's name
    where: str  # the same, with how the task was made; what runs share that can be compared
    place: str  # the same; with machine and number of seeds, where a study is about those
    task: Task
    data: str  # where given data come from; "" if the run collected its own
    seeds: tuple[int, ...]  # that have evaluations
    steps: int  # that were asked for
    curves: Aligned | None  # mean return (offline: D4RL's score) of an evaluation
    values: NDArray[np.float64] | None  # the value estimate at each of them; nan before the first
    seconds: float | None  # of all seeds together, if the run is finished
    learning_seconds: float | None  # of a step, all seeds together, once under way; as timed
    finished: bool  # the run came to its end, and every seed has its last evaluation
    config: Mapping[str, Any]
    changed: tuple[str, ...]  # name=value of hyperparameters that are not its row's
    notes: tuple[str, ...]  # what is not as it should be
    videos: tuple[Path, ...] = ()  # of its policies, small enough for a page
    number: int = 0  # of its label among those of its study that are none of the study's rows

    @property
    def name(self) -> str:
        return f"{self.study}: {self.label} on {self.place}"

    @property
    def title(self) -> str:
        """The place for people, who must not take data for D4RL's."""
        return self.place if self.data in ("", D4RL) else f"{self.place} ({self.data})"

    @property
    def suite(self) -> str:
        """What it is averaged with: tasks of one version that are made alike, data of one origin.

        v4 and v5 of a task have other returns under nearly the same name.
        """
        number = self.task.name.partition("-v")[2]
        made = _with_kwargs(f"v{number}" if number else "unversioned", self.task)
        return made if self.data in ("", D4RL) else f"{made}, {self.data}"

    @property
    def quantity(self) -> str:
        return D4RL_SCORE if self.data and score(self.task.id, 0.0) is not None else "return"

    @property
    def of_data(self) -> float | None:
        """What the given data reach themselves, in the same quantity; None if nothing tells it."""
        mean = (self.config.get("dataset") or {}).get("mean_return")
        if not isinstance(mean, int | float):
            return None
        scored = score(self.task.id, mean)
        return float(mean if scored is None else scored)

    @property
    def counted(self) -> str:
        """What a step is."""
        return "updates" if self.data else "time steps"

    def at(self, step: int) -> NDArray[np.float64] | None:
        """A number a seed."""
        if self.curves is None or step not in self.curves.steps:
            return None
        return np.asarray(self.curves.values[:, self.curves.steps.index(step)])

    @property
    def estimates(self) -> Aligned | None:
        """Every seed's value estimate at the evaluations before which all have one."""
        if self.curves is None or self.values is None:
            return None
        told = np.asarray(np.isfinite(self.values).all(axis=0))
        steps = tuple(s for s, ok in zip(self.curves.steps, told, strict=True) if ok)
        return Aligned(self.seeds, steps, self.values[:, told], ()) if steps else None

    @property
    def seconds_a_step(self) -> float | None:
        """All seeds together: once under way, or where that was not timed, of the whole run."""
        if self.learning_seconds is not None:
            return self.learning_seconds
        return None if self.seconds is None else self.seconds / self.steps

    @property
    def last(self) -> int | None:
        """The last step that all seeds were evaluated at."""
        return self.curves.steps[-1] if self.curves else None


@dataclass(frozen=True)
class Findings:
    """All that some folders hold."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]  # a line a thing that is missing, cut, failed or left out

    @property
    def studies(self) -> dict[str, list[Result]]:
        """By study, in the order of `td7 list studies`."""
        names = dict.fromkeys(result.study for result in self.results)
        return {name: [r for r in self.results if r.study == name] for name in names}


def known(name: str) -> Study:
    """The study of this name; of one that is none, an empty one."""
    empty = Study(name, name, "not among the studies", steps=0, table="", rows={}, tasks=())
    return STUDIES.get(name, empty)


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
    results = _with_videos(_pooled(sorted(results, key=_place_in_paper), notes), notes)
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
    failed = failures(out)
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
                done = f"{result.steps:,} of the {steps:,} {chosen.counted} asked for"
                lines.append(f"{result.name}: {done}")
            lacking = sorted(set(request.options.get("seeds", ())) - set(result.seeds))
            unsaid = sorted(set(lacking) - set(result.config["seeds"]))  # those are told of it
            if unsaid:
                lines.append(f"{result.name}: seeds {', '.join(map(str, unsaid))} are missing")
    return lines


def _asked(request: Request, chosen: Study) -> list[str]:
    given = request.tasks or chosen.datasets or chosen.tasks
    own = chosen.datasets and request.tasks
    return [Path(name).stem if own and name not in DATASETS else name for name in given]


# -- one run -------------------------------------------------------------------------------------


def read_run(folder: Path) -> Result:
    """A run folder; what is not as it should be is among its notes."""
    config = runs.read_config(folder)
    try:
        given = config.get("dataset")
        task = Task(str(config["task"]["id"]), dict(config["task"].get("kwargs", {})))
        seeds, steps = tuple(int(seed) for seed in config["seeds"]), int(config["steps"])
        every = int(config["evaluate_every"])
        if min(steps, every) < 1:
            raise ValueError(f"steps {steps}, evaluate_every {every}")
        study, label, changed = _row(config)
        asked, data = origin(given) if given else (task.id, "")
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
            notes.append(f"{_seeds(lost)} missing: there are no evaluations")
        notes += curves.left_out
        has_last = curves.steps[-1] >= steps // every * every
        has_ended = (runs.finished_steps(folder) or 0) >= steps
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
    return _with_kwargs(asked if told else f"{asked} on {task.id}", task)


def _with_kwargs(name: str, task: Task) -> str:
    """As `--env-kwargs` takes them, in the order of their names."""
    given = (f"{key}={json.dumps(task.kwargs[key], sort_keys=True)}" for key in sorted(task.kwargs))
    return f"{name} ({', '.join(given)})" if task.kwargs else name


def _seeds(numbers: Sequence[str]) -> str:
    return f"seed {numbers[0]} is" if len(numbers) == 1 else f"seeds {', '.join(numbers)} are"


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


def paper_name(study: str, algorithm: str) -> str:
    """An algorithm as the paper prints it."""
    rows: Iterable[Row] = STUDIES[study].rows.values()
    names = {row.algorithm: row.label for row in rows}
    own = algorithm.rpartition(":")[2]  # someone's own comes with its module
    return names.get(own, own.upper())


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
    from td7.configs import with_values

    chosen = algorithm(name)
    extra = dict(chosen.offline or {}) if offline else {}
    return vars(with_values(chosen.config, {**extra, **dict(own)}).for_task(Task(task)))


def origin(given: Mapping[str, Any]) -> tuple[str, str]:
    """A dataset's name, and where it comes from: as the run says, and by the name of its file."""
    if given.get("d4rl"):
        return str(given["d4rl"]), D4RL
    source = str(given["source"])
    path = Path(source)
    if given.get("self_collected"):
        return path.stem, SELF_COLLECTED
    for name, dataset in DATASETS.items():
        if path.name in (dataset.file, name):
            nobody_looked = given.get("d4rl") is None
            return (name, D4RL) if nobody_looked else (path.stem, OTHER)
    if path.suffix.lower() in (".hdf5", ".h5"):
        return path.stem, D4RL if D4RL_NAME.fullmatch(path.stem) else OTHER
    return source if not path.is_absolute() else path.name, MINARI


def _curves(
    folder: Path, config: Mapping[str, Any], scored: str, notes: list[str]
) -> Aligned | None:
    """Every seed's evaluations on the steps that all have; what is left out is noted."""
    rows = _table(folder / "evaluations.csv", runs.EVALUATIONS, notes)
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


def per_seed(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The mean return of every evaluation: a row a step, a column a seed."""
    return evaluations.groupby(["step", "seed"])["return"].mean().unstack("seed")


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


def machine_of(config: Mapping[str, Any]) -> str:
    hardware = config.get("hardware")
    if not isinstance(hardware, Mapping):
        return "unknown"
    parts = [str(hardware["gpu"])] if hardware.get("gpu") else []
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} cores")
    return ", ".join(parts) or "unknown"


def _setting(where: str, config: Mapping[str, Any]) -> str:
    count = len(config["seeds"])
    return f"{where}, {count} seed{'s' * (count > 1)} on {machine_of(config)}"


# -- several runs --------------------------------------------------------------------------------


def places(results: Sequence[Result]) -> list[str]:
    """Of one study's results: in the paper's order, then as they come."""
    found = dict.fromkeys(result.place for result in results)
    order = _paper_places(results[0].study) if results else ()
    return sorted(found, key=lambda place: _rank(place, order))


def suites(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Those that may be averaged, as they come."""
    names = dict.fromkeys(result.suite for result in results)
    return {name: [r for r in results if r.suite == name] for name in names}


def _paper_places(study: str) -> Sequence[str]:
    return known(study).datasets or known(study).tasks


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _place_in_paper(result: Result) -> tuple[int, int, int, str, bool, int, int]:
    """Of runs of the same row and place, the first is as its row says, and of those the longest."""
    return (
        _rank(result.study, list(STUDIES)),
        _rank(result.label, list(known(result.study).rows)),
        _rank(result.place, _paper_places(result.study)),
        f"{result.label} {result.place}",
        result.curves is None,
        len(result.changed),
        -(result.last or 0),
    )


def _pooled(results: Sequence[Result], notes: list[str]) -> list[Result]:
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
        why = f"{_seeds(same)} in {first.folder}, too" if same else "nothing to pool"
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

"""One run as a result, and what is known of a study that it belongs to."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from td7.datasets.download import DATASETS
from td7.datasets.scores import score
from td7.runs.record import DatasetRecord
from td7.statistics import Aligned
from td7.studies.rows import STUDIES, Row, Study
from td7.types import Task

VIDEOS = {".mp4": "video/mp4", ".gif": "image/gif"}  # their media types
LARGEST_VIDEO, ALL_VIDEOS = 4_000_000, 40_000_000  # bytes
ONLINE, OFFLINE = "online", "offline"  # the studies of runs that name none
D4RL, MINARI, SELF_COLLECTED, OTHER = "D4RL", "Minari", "self-collected", "of other origin"
D4RL_SCORE = "D4RL score"
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
        made = with_kwargs(f"v{number}" if number else "unversioned", self.task)
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
    def step_unit(self) -> str:
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


def with_kwargs(name: str, task: Task) -> str:
    """As `--env-kwargs` takes them, in the order of their names."""
    given = (f"{key}={json.dumps(task.kwargs[key], sort_keys=True)}" for key in sorted(task.kwargs))
    return f"{name} ({', '.join(given)})" if task.kwargs else name


def named_seeds(numbers: Sequence[str]) -> str:
    return f"seed {numbers[0]} is" if len(numbers) == 1 else f"seeds {', '.join(numbers)} are"


def paper_name(study: str, algorithm: str) -> str:
    """An algorithm as the paper prints it."""
    rows: Iterable[Row] = STUDIES[study].rows.values()
    names = {row.algorithm: row.label for row in rows}
    own = algorithm.rpartition(":")[2]  # someone's own comes with its module
    return names.get(own, own.upper())


def data_origin(given: DatasetRecord) -> tuple[str, str]:
    """A dataset's name, and where it comes from: as the run says, and by the name of its file."""
    if given.d4rl:
        return given.d4rl, D4RL
    source, path = given.source, Path(given.source)
    if given.self_collected:
        return path.stem, SELF_COLLECTED
    for name, dataset in DATASETS.items():
        if path.name in (dataset.file, name):
            nobody_looked = given.d4rl is None
            return (name, D4RL) if nobody_looked else (path.stem, OTHER)
    if path.suffix.lower() in (".hdf5", ".h5"):
        return path.stem, D4RL if D4RL_NAME.fullmatch(path.stem) else OTHER
    return source if not path.is_absolute() else path.name, MINARI


def seed_means(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The mean return of every evaluation: a row a step, a column a seed."""
    return evaluations.groupby(["step", "seed"])["return"].mean().unstack("seed")


def machine_of(config: Mapping[str, Any]) -> str:
    hardware = config.get("hardware")
    if not isinstance(hardware, Mapping):
        return "unknown"
    parts = [str(hardware["gpu"])] if hardware.get("gpu") else []
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} cores")
    return ", ".join(parts) or "unknown"


# -- several runs --------------------------------------------------------------------------------


def places(results: Sequence[Result]) -> list[str]:
    """Of one study's results: in the paper's order, then as they come."""
    found = dict.fromkeys(result.place for result in results)
    order = paper_places(results[0].study) if results else ()
    return sorted(found, key=lambda place: rank(place, order))


def suites(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Those that may be averaged, as they come."""
    names = dict.fromkeys(result.suite for result in results)
    return {name: [r for r in results if r.suite == name] for name in names}


def paper_places(study: str) -> Sequence[str]:
    return known(study).datasets or known(study).tasks


def rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)

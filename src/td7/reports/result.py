"""One run as a report sees it: a row of a study on a task or a dataset."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from td7.datasets.download import DATASETS
from td7.datasets.scores import score
from td7.errors import one_line
from td7.runs.record import DatasetRecord, RunRecord
from td7.statistics import Aligned
from td7.studies.rows import STUDIES, Study
from td7.types import Task

D4RL, MINARI, SELF_COLLECTED, OTHER = "D4RL", "Minari", "self-collected", "of other origin"
D4RL_SCORE = "D4RL score"
D4RL_FILE = re.compile(r"[a-z0-9]+_[a-z_]+-v\d+")  # the stem of a file as D4RL names it
ONE_SEED = "one seed: no interval and no test"  # a note
LONGEST_TEXT = 10_000  # characters of a caption


@dataclass(frozen=True, eq=False)
class Result:
    """One run, or several runs of the same row and place whose seeds were pooled."""

    record: RunRecord  # of the first run, if several are pooled
    study: str
    label: str  # of the row, as the paper prints it
    requested: str  # the id of the task, or the name of the dataset, as a study lists it
    task_label: str  # `requested` with the arguments of the task; equal labels are comparable
    place: str  # `task_label`; for a study of run times, with machine and number of seeds
    data: str  # the origin of the dataset; "" if the run collected its own data
    seeds: tuple[int, ...]  # those with evaluations
    steps: int  # as configured; the run may have stopped earlier
    curves: Aligned | None  # mean return (offline: D4RL score) of every evaluation
    values: NDArray[np.float64] | None  # value estimate at every evaluation; nan before the first
    seconds: float | None  # of the whole run, all seeds together; None if it has not finished
    learning_seconds: float | None  # per step of all seeds, timed in the second half of the steps
    run_seconds: float | None  # likewise, with the other configurations if hyperparameters vary
    finished: bool  # the run has ended, and every seed has its last evaluation
    changed: tuple[str, ...]  # name=value of hyperparameters that differ from the row's
    notes: tuple[str, ...]  # a sentence per problem
    videos: tuple[Path, ...] = ()  # of its policies, small enough for a page
    position: int = 0  # of its row, if the study is a module's that is not imported here
    unlisted: int = 0  # index among the labels that the study does not list; sets the colour
    shared: tuple[str, ...] = ()  # what all rows of the algorithm have, unlike its defaults

    @property
    def folder(self) -> Path:
        return self.record.folder

    @property
    def task(self) -> Task:
        return self.record.task

    @property
    def name(self) -> str:
        return f"{self.study}: {self.label} on {self.place}"

    @property
    def algorithm_label(self) -> str:
        return plain(paper_name(self.study, self.record.algorithm))

    @property
    def title(self) -> str:
        """The place, with the origin of the data unless that is D4RL."""
        return self.place if self.data in ("", D4RL) else f"{self.place} ({self.data})"

    @property
    def suite(self) -> str:
        """The results that this one may be averaged with.

        They share the version of the task, its arguments and the origin of the data: v4 and v5 of
        a task have different returns.
        """
        number = self.task.name.partition("-v")[2]
        version = with_kwargs(f"v{number}" if number else "unversioned", self.task)
        return version if self.data in ("", D4RL) else f"{version}, {self.data}"

    @property
    def quantity(self) -> str:
        return D4RL_SCORE if self.data and score(self.task.id, 0.0) is not None else "return"

    @property
    def dataset_mean(self) -> float | None:
        """The mean over the dataset's own episodes, in `quantity`; None if it is unknown."""
        mean = self.record.dataset.mean_return if self.record.dataset else None
        if mean is None:
            return None
        scored = score(self.task.id, mean)
        return float(mean if scored is None else scored)

    @property
    def step_unit(self) -> str:
        return "updates" if self.data else "time steps"

    def at(self, step: int) -> NDArray[np.float64] | None:
        """The evaluation of every seed at a step; None if there is none."""
        if self.curves is None or step not in self.curves.steps:
            return None
        return np.asarray(self.curves.values[:, self.curves.steps.index(step)])

    @property
    def estimates(self) -> Aligned | None:
        """Value estimates, at the evaluations where every seed has one."""
        if self.curves is None or self.values is None:
            return None
        complete = np.asarray(np.isfinite(self.values).all(axis=0))
        steps = tuple(s for s, ok in zip(self.curves.steps, complete, strict=True) if ok)
        return Aligned(self.seeds, steps, self.values[:, complete], ()) if steps else None

    @property
    def seconds_per_step(self) -> float | None:
        """For all seeds: as timed in the second half of the steps, else over the whole run."""
        if self.learning_seconds is not None:
            return self.learning_seconds
        return None if self.seconds is None else self.seconds / self.steps

    @property
    def last_step(self) -> int | None:
        """The last step at which all seeds were evaluated."""
        return self.curves.steps[-1] if self.curves else None


def study_or_empty(name: str) -> Study:
    """The study of this name; a study without rows if it is one of a module, not imported here."""
    empty = Study(name, name, where="", steps=0, table="", rows={}, tasks=())
    return STUDIES.get(name, empty)


def plain(text: str) -> str:
    """The text, printable and on one line: a name in a run folder may be several paragraphs."""
    return one_line(text, LONGEST_TEXT) if text.strip() else ""


def with_kwargs(name: str, task: Task) -> str:
    """The name with the arguments of the task, as `--env-kwargs` takes them, and its wrappers."""
    parts = [f"{key}={json.dumps(task.kwargs[key], sort_keys=True)}" for key in sorted(task.kwargs)]
    parts += map(str, task.wrappers)
    return f"{name} ({', '.join(parts)})" if parts else name


def seed_list(seeds: Sequence[int]) -> str:
    """`seed 3`, or `seeds 0, 3`."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def paper_name(study: str, algorithm: str) -> str:
    """An algorithm's name in the paper; of one that it does not have, its own in capitals."""
    names = {row.algorithm: row.label for row in study_or_empty(study).rows.values()}
    own_name = algorithm.rpartition(":")[2]  # without its module
    return names.get(own_name, own_name.upper())


def data_origin(dataset: DatasetRecord) -> tuple[str, str]:
    """A dataset's name and origin, as recorded, else from the file's name."""
    if dataset.d4rl:
        return dataset.d4rl, D4RL
    path = Path(dataset.source)
    if dataset.self_collected:
        return path.stem, SELF_COLLECTED
    for name, published in DATASETS.items():
        if path.name in (published.file, name):
            is_unchecked = dataset.d4rl is None  # the run compared no hash
            return (name, D4RL) if is_unchecked else (path.stem, OTHER)
    if path.suffix.lower() in (".hdf5", ".h5"):
        return path.stem, D4RL if D4RL_FILE.fullmatch(path.stem) else OTHER
    return dataset.source if not path.is_absolute() else path.name, MINARI


def _id_column(table: pd.DataFrame) -> str:
    """The column of a table that tells members apart."""
    return "member" if "member" in table else "seed"


def member_means(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The mean return of every evaluation: a row per step, a column per member."""
    member = _id_column(evaluations)
    return evaluations.groupby(["step", member])["return"].mean().unstack(member)


def member_returns(episodes: pd.DataFrame) -> pd.DataFrame:
    """What every member's episodes have come to: a row per member."""
    member = _id_column(episodes)
    names = list(map(str, episodes))
    values = names[names.index("seed") :] if member == "member" else []
    columns: dict[str, tuple[str, str]] = {
        **{name: (name, "first") for name in values},
        "episodes": ("return", "size"),
        **{name: ("return", name) for name in ("mean", "std", "min", "max")},
        "mean_length": ("length", "mean"),
        **({"score": ("score", "mean")} if "score" in episodes else {}),
    }
    table: pd.DataFrame = episodes.groupby(member).agg(**columns)
    return table.rename(columns={"std": "sd"}).reset_index()


def machine_name(record: RunRecord) -> str:
    hardware = record.hardware
    parts = [str(hardware["gpu"])] if hardware.get("gpu") else []
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} cores")
    return ", ".join(parts) or "unknown"


# -- several results -----------------------------------------------------------------------------


def places(results: Sequence[Result]) -> list[str]:
    """The places of one study: in the paper's order, then in that of the results."""
    names = dict.fromkeys(result.place for result in results)
    order = paper_places(results[0].study) if results else ()
    return sorted(names, key=lambda place: rank(place, order))


def suites(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results that may be averaged, by the name of their suite."""
    names = dict.fromkeys(result.suite for result in results)
    return {name: [r for r in results if r.suite == name] for name in names}


def step_unit(results: Sequence[Result]) -> str:
    """What the steps of a table are called: `updates` if all results learned from datasets."""
    return "updates" if all(result.data for result in results) else "steps"


def paper_places(study: str) -> Sequence[str]:
    listed = study_or_empty(study)
    return listed.datasets or listed.tasks


def rank(name: str, order: Sequence[str]) -> int:
    """The index of a name; of one that is not listed, that after the last."""
    return order.index(name) if name in order else len(order)

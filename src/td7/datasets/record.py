"""Datasets of one's own: what a run's policies do, or what it did, in D4RL's layout."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from td7.configs import parse_number
from td7.datasets.hdf5 import write
from td7.errors import InputError, one_line, unknown
from td7.files import check_writable
from td7.rollouts.environment import ActionMap
from td7.rollouts.episodes import EpisodeResult, EpisodeTask
from td7.rollouts.pool import make_executor
from td7.runs import policies
from td7.runs.record import read_config
from td7.runs.snapshots import ROWS, Snapshots, process_folders
from td7.types import Episode, Float32, RowLayout

FIRST_EPISODE = 1_000_000  # a run has fewer: what is recorded begins where no training did
MEDIUM = 1 / 3  # of the way from random to the run's best, as D4RL's medium policies are

Report = Callable[[int, int], None]  # rows so far, and in all


class Origin(NamedTuple):
    """What a run's config says of where its data come from."""

    task_id: str
    algorithm: str
    first_seed: int


def origin(run: Path) -> Origin:
    config = read_config(run)
    try:
        task_id, algorithm = str(config["task"]["id"]), str(config["algorithm"])
        return Origin(task_id, algorithm, int(config["seeds"][0]))
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{run / 'config.json'} is damaged: {error!r}") from None


@dataclass(frozen=True)
class Recorded:
    """Rows in time's order, and which of them are the last of an episode."""

    rows: Float32  # [N, width]
    ends: tuple[int, ...]  # where the task ended it, or its time limit
    cuts: tuple[int, ...]  # where only the recording did

    def __add__(self, other: "Recorded") -> "Recorded":
        n = len(self.rows)
        return Recorded(
            np.concatenate([self.rows, other.rows]),
            (*self.ends, *(n + row for row in other.ends)),
            (*self.cuts, *(n + row for row in other.cuts)),
        )


def record(
    run: Path,
    kind: str,
    rows: int,
    out: Path,
    *,
    seed: int | None,
    workers: int,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """Writes a dataset of `rows` transitions, see KINDS, and says whose they are."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    parse_number("rows", rows, int, at_least=2)
    if out.exists():
        raise InputError(f"{out} exists already")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder")
    check_writable(out)
    known = origin(run)
    seed = known.first_seed if seed is None else seed
    source = Source(run, seed, workers, report, say)
    found, steps = KINDS[kind](source, rows)
    spec = source.policy.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    parts = layout.split(found.rows)
    terminals = parts.not_terminated[:, 0] == 0
    last = np.zeros(rows, np.bool_)
    last[[*found.ends, *found.cuts]] = True
    write(
        out,
        observations=parts.state,
        actions=ActionMap(spec.action_low, spec.action_high).to_task(parts.action),
        next_observations=parts.next_state,
        rewards=parts.reward[:, 0],
        terminals=terminals,
        timeouts=last & ~terminals,
        attributes={
            "task": spec.task.id,
            "task_kwargs": json.dumps(spec.task.kwargs),
            "kind": kind,
            "algorithm": known.algorithm,
            "seed": seed,
            "policy_steps": steps,
            "policies": "; ".join(source.told),
            "action_low": spec.action_low,
            "action_high": spec.action_high,
            "cut_rows": np.array(found.cuts, np.int64),
        },
    )


class Source:
    """A run's seed as a source of transitions."""

    def __init__(
        self, run: Path, seed: int, workers: int, report: Report, say: Callable[[str], None]
    ) -> None:
        self.run, self.seed, self.workers, self.report = run, seed, workers, report
        self._say = say
        self.told: list[str] = []  # whose transitions they are
        self.policy = policies.load(run, seed)
        self.steps = self._policy_steps()

    def _policy_steps(self) -> int:
        """Those that its policy has seen, which are fewer than planned if the run was stopped."""
        file = self.run / "policy" / "policy.json"
        data = json.loads(file.read_text())
        try:
            return int(data["steps"][data["seeds"].index(self.seed)])
        except (LookupError, TypeError) as error:
            raise InputError(f"{file} is damaged: {error!r}") from None

    def _table(self, name: str) -> pd.DataFrame:
        """Its own rows of one of the run's tables."""
        file = self.run / name
        try:
            table = pd.read_csv(file, usecols=["seed", "step", "return"])
        except (OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read: {one_line(error)}") from None
        return table[table["seed"] == self.seed]

    def played(
        self, policy: policies.Policy, rows: int, first: int, before: int = 0, after: int = 0
    ) -> Recorded:
        """What the policy does, exploring as it did in training; the last episode is cut.

        `before` and `after` are rows of another policy, for the report.
        """
        players = make_executor(policy.spec.task, policy.network, self.workers, self._say)
        try:
            process_folders: list[Float32] = []
            ends: list[int] = []
            cuts: list[int] = []
            total, number = 0, first
            while total < rows:
                batch = range(number, number + max(1, self.workers))
                for i in batch:
                    task = EpisodeTask(self.seed, i, rows, policy.flat, policy.exploration)
                    players.submit(task)
                finished: dict[int, Episode] = {}
                while players.pending:
                    for result in players.completed(block=True):
                        if not isinstance(result, EpisodeResult):
                            raise TypeError(f"{result} is not an episode")
                        finished[result.task.episode] = result.episode
                for i in batch:  # in their order, whoever was first
                    part = finished[i].rows[: rows - total]
                    if len(part):
                        total += len(part)
                        process_folders.append(part)
                        is_whole = finished[i].finished and len(part) == finished[i].length
                        (ends if is_whole else cuts).append(total - 1)
                number = batch[-1] + 1
                self.report(before + total, before + rows + after)
        finally:
            players.close()
        return Recorded(np.concatenate(process_folders), tuple(ends), tuple(cuts))

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self._say(text)

    def expert(self) -> tuple[policies.Policy, int]:
        """The last policy."""
        self._tell(f"expert: the policy of step {self.steps:,}, the run's last")
        return self.policy, self.steps

    def medium(self) -> tuple[policies.Policy, int]:
        """The kept policy whose evaluation is nearest to a third of the way to the run's best.

        One that never learned, or is no better for it, is the last resort.
        """
        kept = {int(p.name): p for p in (self.run / "policies").glob("*") if p.name.isdigit()}
        scores = self._table("evaluations.csv").groupby("step")["return"].mean()
        known = sorted(step for step in kept if step in scores.index)
        if not known:
            raise InputError(
                f"{self.run} kept no policies of its middle: train it with --keep-policies"
            )
        first, best = scores.iloc[0], scores.max()
        wanted = first + MEDIUM * (best - first)
        found = {step: policies.load(kept[step], self.seed) for step in known}
        untrained = found[known[0]].flat
        step = min(
            known,
            key=lambda s: (
                np.array_equal(found[s].flat, untrained),  # a checkpoint may stay the first one
                scores[s] <= first,
                abs(scores[s] - wanted),
            ),
        )
        self._tell(
            f"medium: the policy of step {step:,}, return {scores[step]:,.1f} "
            f"(untrained {first:,.1f}, best {best:,.1f})"
        )
        return found[step], step

    def replayed(self, rows: int) -> Recorded:
        """What the run did, from its first step on, as its last snapshot holds it."""
        if read_config(self.run).get("dataset"):
            raise InputError(f"{self.run} learned from given data and collected none")
        for folder in process_folders(self.run):
            snapshots = Snapshots(folder / "snapshot", lambda _: None, ROWS)
            snapshot = snapshots.load()
            if snapshot is not None and self.seed in snapshot.members["seeds"]:
                break
        else:
            raise InputError(f"{self.run} has no snapshot, which holds its transitions")
        shards = snapshots.rows(snapshot, self.seed)
        have = sum(map(len, shards))
        member = snapshot.members["seeds"].index(self.seed)
        added = snapshot.members["rows_added"][member]
        if have < rows or have < added:
            raise InputError(
                f"{self.run} holds the last {have:,} transitions of seed {self.seed}, which made "
                f"{added:,}; asked for are the first {rows:,}"
            )
        self._tell(f"replay: the run's first {rows:,} steps")
        found = np.concatenate(shards)[:rows]
        ends = [step - 1 for step in self._table("episodes.csv")["step"].tolist() if step <= rows]
        return Recorded(found, tuple(ends), () if rows - 1 in ends else (rows - 1,))


def _expert(source: Source, rows: int) -> tuple[Recorded, list[int]]:
    policy, step = source.expert()
    return source.played(policy, rows, FIRST_EPISODE), [step]


def _medium(source: Source, rows: int) -> tuple[Recorded, list[int]]:
    policy, step = source.medium()
    return source.played(policy, rows, FIRST_EPISODE), [step]


def _replay(source: Source, rows: int) -> tuple[Recorded, list[int]]:
    return source.replayed(rows), [0, rows]


def _medium_expert(source: Source, rows: int) -> tuple[Recorded, list[int]]:
    half = parse_number("rows", rows, int, at_least=4) // 2  # two of either policy
    (middling, middle), (last, end) = source.medium(), source.expert()
    medium = source.played(middling, half, FIRST_EPISODE, after=rows - half)
    expert = source.played(last, rows - half, 2 * FIRST_EPISODE, before=half)
    return medium + expert, [middle, end]


# What a kind of dataset holds, and the steps of the policies in it.
KINDS: dict[str, Callable[[Source, int], tuple[Recorded, list[int]]]] = {
    "medium": _medium,
    "replay": _replay,
    "expert": _expert,
    "medium-expert": _medium_expert,
}

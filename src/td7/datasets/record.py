"""Record datasets in D4RL's layout: what a run's policies do, or what the run did."""

import json
import reprlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from td7.configs import parse_number
from td7.datasets.hdf5 import write_hdf5
from td7.errors import InputError, Option, one_line, unknown
from td7.files import check_writable, working_folder_kept
from td7.rollouts.environment import ActionMap
from td7.rollouts.episodes import EpisodeResult, EpisodeTask
from td7.rollouts.pool import Executor, make_executor
from td7.runs import policies
from td7.runs.fingerprint import folders_named
from td7.runs.manifest import MEMBERS, SnapshotError
from td7.runs.members import Members
from td7.runs.policies import Policy
from td7.runs.record import RunRecord
from td7.runs.snapshots import ROWS, Snapshot, Snapshots, process_folders
from td7.runs.tables import read_columns
from td7.runs.trust import check_task
from td7.types import Episode, Float32, RowLayout

FIRST_EPISODE = 1_000_000  # recorded episodes begin here, past all that a run trains on
MEDIUM = 1 / 3  # of the way from the random to the best return, as D4RL's medium policies are

ReportProgress = Callable[[int, int], None]  # receives the rows so far and the total


@dataclass(frozen=True)
class Recording:
    """Rows in the order of time, and which of them are the last of an episode."""

    rows: Float32  # [N, width]
    ends: tuple[int, ...]  # where the task or its time limit ended the episode
    cuts: tuple[int, ...]  # where only the recording did

    def __add__(self, other: "Recording") -> "Recording":
        n = len(self.rows)
        return Recording(
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
    member: int | None = None,
    workers: int,
    report: ReportProgress,
    say: Callable[[str], None],
    trust: bool = False,
) -> None:
    """Write a dataset of `rows` transitions, see KINDS; its attributes say where they come from.

    They are those of one seed, by default the first, or of one member if hyperparameters vary.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    parse_number(Option("rows"), rows, int, at_least=2)
    if out.exists():
        raise InputError(f"{out} exists already")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder")
    check_writable(out)
    run_record = RunRecord.read(run)
    members = run_record.members
    if seed is None and member is None and not members.numbers:
        seed = members.seeds[0]
    own = members.take([members.ids.index(members.chosen(run, seed, member))])
    recorder = Recorder(run_record, own, rows, workers, report, say, trust)
    with folders_named(run_record.fingerprint):
        recording, policy_steps = KINDS[kind](recorder)
    spec = recorder.policy.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    parts = layout.split(recording.rows)
    terminals = parts.not_terminated[:, 0] == 0
    is_last = np.zeros(rows, np.bool_)
    is_last[[*recording.ends, *recording.cuts]] = True
    write_hdf5(
        out,
        observations=parts.state,
        actions=ActionMap(spec.action_low, spec.action_high).to_task(parts.action),
        next_observations=parts.next_state,
        rewards=parts.reward[:, 0],
        terminals=terminals,
        timeouts=is_last & ~terminals,
        attributes={
            "task": spec.task.id,
            "task_kwargs": json.dumps(spec.task.kwargs),
            "task_wrappers": json.dumps(asdict(spec.task)["wrappers"]),
            "kind": kind,
            "algorithm": run_record.algorithm,
            **({"member": own.ids[0]} if own.numbers else {}),
            **{"seed": own.seeds[0], **own.values(0)},
            "policy_steps": policy_steps,
            "policies": "; ".join(recorder.provenance),
            "action_low": spec.action_low,
            "action_high": spec.action_high,
            "cut_rows": np.array(recording.cuts, np.int64),
            "entries": json.dumps([asdict(entry) for entry in spec.entries]),
        },
    )


class Recorder:
    """Plays or reads back `rows` transitions of one member of a run."""

    def __init__(
        self,
        record: RunRecord,
        member: Members,
        rows: int,
        workers: int,
        report: ReportProgress,
        say: Callable[[str], None],
        trust: bool = False,
    ) -> None:
        self.run, self.rows = record.folder, rows
        (self.id,), (self.seed,), self.kind = member.ids, member.seeds, member.kind
        self._choice = {"seed": self.seed, "member": member.number(0)}
        self.policy = policies.load(self.run, **self._choice)
        self._record, self._trust = record, trust
        policies.note_unverified(self.run, [self.policy], say)
        if self.policy.steps is None:
            raise InputError(f"{self.run / 'policy' / 'policy.json'} is damaged: it has no 'steps'")
        self.steps = self.policy.steps
        self.provenance: list[str] = []  # a line per policy
        self._workers, self._report, self._say = workers, report, say
        self._recorded = 0  # rows so far

    def _table(self, name: str) -> pd.DataFrame:
        """Return this member's rows of one of the run's tables."""
        file = self.run / name
        try:
            table = read_columns(file, [self.kind, "step", "return"])
        except (OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read: {one_line(error)}") from None
        return table[table[self.kind] == self.id]

    def _note(self, source: str) -> None:
        self.provenance.append(source)
        self._say(source)

    def expert(self) -> tuple[Policy, int]:
        """Return the last policy and its step."""
        self._note(f"expert: the policy of step {self.steps:,}, the run's last")
        return self.policy, self.steps

    def medium(self) -> tuple[Policy, int]:
        """Return the kept policy whose return is nearest to a third of the way up, and its step.

        A policy that is still the untrained one, or no better, is chosen only if all others are.
        """
        folders = {int(p.name): p for p in (self.run / "policies").glob("*") if p.name.isdecimal()}
        returns = self._table("evaluations.csv").groupby("step")["return"].mean()
        steps = sorted(step for step in folders if step in returns.index)
        if not steps:
            raise InputError(
                f"{self.run} kept no policies of its middle: train it with --keep-policies"
            )
        first, best = returns.iloc[0], returns.max()
        target = first + MEDIUM * (best - first)
        kept = {step: policies.load(folders[step], **self._choice) for step in steps}
        untrained = kept[steps[0]].flat
        step = min(
            steps,
            key=lambda s: (
                np.array_equal(kept[s].flat, untrained),  # a checkpoint may stay the first one
                returns[s] <= first,
                abs(returns[s] - target),
            ),
        )
        self._note(
            f"medium: the policy of step {step:,}, return {returns[step]:,.1f} "
            f"(untrained {first:,.1f}, best {best:,.1f})"
        )
        return kept[step], step

    def play(self, policy: Policy, rows: int, first_episode: int) -> Recording:
        """Record the policy with its exploration in training; the last episode is cut."""
        check_task(self._record, policy.spec.task, trust=self._trust)
        executor = make_executor(policy.spec.task, policy.network, self._workers, self._say)
        parts: list[Float32] = []
        ends: list[int] = []
        cuts: list[int] = []
        total, number = 0, first_episode
        with working_folder_kept(), closing(executor):
            while total < rows:
                batch = range(number, number + max(1, self._workers))
                tasks = [
                    EpisodeTask(self.seed, i, rows, policy.flat, policy.exploration) for i in batch
                ]
                episodes = _play_all(executor, tasks)
                for episode in (episodes[i] for i in batch):  # in order, whichever ended first
                    part = episode.rows[: rows - total]
                    if len(part):
                        total += len(part)
                        parts.append(part)
                        is_whole = episode.finished and len(part) == episode.length
                        (ends if is_whole else cuts).append(total - 1)
                number = batch[-1] + 1
                self._report(self._recorded + total, self.rows)
        self._recorded += total
        return Recording(np.concatenate(parts), tuple(ends), tuple(cuts))

    def replay(self) -> Recording:
        """Read back what the run did, from its first step on, from its last snapshot."""
        if self._record.dataset:
            raise InputError(f"{self.run} learned from a dataset and collected no transitions")
        for folder in process_folders(self.run):
            snapshots = Snapshots(folder / "snapshot", lambda _: None, ROWS)
            snapshot = snapshots.load(_check_rows)
            if snapshot is not None and self.id in snapshot.members["seeds"]:
                break
        else:
            raise InputError(f"{self.run} has no snapshot, which holds its transitions")
        shards = snapshots.rows(snapshot, self.id)
        available = sum(map(len, shards))
        member = snapshot.members["seeds"].index(self.id)
        added = snapshot.members["rows_added"][member]
        if available < self.rows or available < added:
            raise InputError(
                f"{self.run} holds the last {available:,} transitions of {self.kind} "
                f"{self.id}, which made {added:,}; asked for are the first {self.rows:,}"
            )
        self._note(f"replay: the run's first {self.rows:,} steps")
        rows = np.concatenate(shards)[: self.rows]
        steps = self._table("episodes.csv")["step"].tolist()
        ends = [step - 1 for step in steps if step <= self.rows]
        return Recording(rows, tuple(ends), () if self.rows - 1 in ends else (self.rows - 1,))


def _check_rows(snapshot: Snapshot) -> None:
    added = snapshot.members.get("rows_added")
    if added != [rows.end for rows in snapshot.rows.values()]:
        raise SnapshotError(f"{MEMBERS}: 'rows_added' is {reprlib.repr(added)}")


def _play_all(executor: Executor, tasks: list[EpisodeTask]) -> dict[int, Episode]:
    """Return the episodes by their numbers."""
    for task in tasks:
        executor.submit(task)
    episodes: dict[int, Episode] = {}
    while executor.pending:
        for result in executor.completed(block=True):
            if not isinstance(result, EpisodeResult):
                raise TypeError(f"{result} is not an episode")
            episodes[result.task.episode] = result.episode
    return episodes


def _expert(recorder: Recorder) -> tuple[Recording, list[int]]:
    policy, step = recorder.expert()
    return recorder.play(policy, recorder.rows, FIRST_EPISODE), [step]


def _medium(recorder: Recorder) -> tuple[Recording, list[int]]:
    policy, step = recorder.medium()
    return recorder.play(policy, recorder.rows, FIRST_EPISODE), [step]


def _replay(recorder: Recorder) -> tuple[Recording, list[int]]:
    return recorder.replay(), [0, recorder.rows]


def _medium_expert(recorder: Recorder) -> tuple[Recording, list[int]]:
    rows = parse_number(Option("rows"), recorder.rows, int, at_least=4)  # two of either policy
    (medium, medium_step), (expert, expert_step) = recorder.medium(), recorder.expert()
    first_half = recorder.play(medium, rows // 2, FIRST_EPISODE)
    second_half = recorder.play(expert, rows - rows // 2, 2 * FIRST_EPISODE)
    return first_half + second_half, [medium_step, expert_step]


# What a kind of dataset holds, and the steps of the policies in it.
KINDS: dict[str, Callable[[Recorder], tuple[Recording, list[int]]]] = {
    "medium": _medium,
    "replay": _replay,
    "expert": _expert,
    "medium-expert": _medium_expert,
}

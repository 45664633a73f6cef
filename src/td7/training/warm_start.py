"""A run that begins with the learner of another: weights, targets, optimisers and statistics.

The learner's state comes from the other run's newest snapshot, and what it has to fit is checked
before anything is written. Nothing else carries over: see docs/guides/warm-start.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from td7.algorithms.config import LearnerConfig, OnlineConfig
from td7.algorithms.learner import Learner
from td7.configs import build_config, complete
from td7.errors import InputError, Option
from td7.networks.optimiser import step_size_after
from td7.option_values import to_word
from td7.runs import policies
from td7.runs.manifest import MEMBERS, STATE, SnapshotError
from td7.runs.record import RunRecord, StartRecord
from td7.runs.snapshots import Snapshot, Snapshots, process_folders
from td7.training.config import RunConfig
from td7.types import AnyFloat, TaskSpec

PREFIX = "learner."  # of the state's names in a snapshot
NORMALISE = Option("normalise_observations")
NUMBERS = (torch.float32, torch.float64, torch.int64, torch.bool)  # that a state may hold


@dataclass(frozen=True)
class SeedState:
    """What a seed of a run has learned. Arrays, which processes can send to each other."""

    steps: int
    learner: Mapping[str, NDArray[Any]]  # its state, by name
    checkpoint: AnyFloat | None  # flat weights of the policy that was evaluated, if it was one


@dataclass(frozen=True)
class WarmStart:
    """What a run begins with."""

    record: StartRecord
    states: Mapping[int, SeedState]  # by the seeds of the run that begins

    def of(self, seeds: Sequence[int]) -> "WarmStart":
        """What some of the seeds begin with."""
        return replace(self, states={seed: self.states[seed] for seed in seeds})

    def fill(self, learner: Learner, seeds: Sequence[int]) -> None:
        """Give a new learner the state; its learning rates stay its own."""
        state = learner.state()

        def saved(name: str) -> torch.Tensor:
            return torch.from_numpy(np.stack([self.states[s].learner[name] for s in seeds]))

        for name, tensor in state.items():
            steps = name.removesuffix("step_size") + "steps"
            if name in learner.begins_anew:
                continue
            if name.endswith(".step_size") and steps in state:
                # It was computed by the learning rate of the other run.
                tensor.copy_(step_size_after(saved(steps), tensor.cpu()))
            else:
                tensor.copy_(saved(name))

    def checkpoints(self, learner: Learner, seeds: Sequence[int]) -> list[AnyFloat]:
        """The policies that the seeds had last: checkpoints, or else those of the learner."""
        current: AnyFloat = learner.policies().to("cpu", copy=True).numpy()
        earlier = [self.states[seed].checkpoint for seed in seeds]
        return [
            now if checkpoint is None else checkpoint.astype(now.dtype)
            for now, checkpoint in zip(current, earlier, strict=True)
        ]


def read_start(
    folder: Path,
    config: RunConfig,
    spec: TaskSpec,
    learner: Learner,
    warn: Callable[[str], None],
) -> WarmStart:
    """Read what a run with this config begins with; raise unless it fits.

    `learner` is a new one with one member.
    """
    record = RunRecord.read(folder)
    if varied := record.members.varied:
        raise InputError(
            f"{folder} has several values of {', '.join(varied)}; a run starts from one in which "
            f"nothing varies: train the values that you want alone, with {Option('set')}"
        )
    theirs = _checked_hyperparameters(record, config)
    _check_sizes(record, spec)
    reader = _Reader(record, theirs, learner)
    found: dict[int, SeedState] = {}

    def warn_of(text: str) -> None:
        warn(f"{folder}: {text}")

    for each in process_folders(folder):
        snapshot = Snapshots(each / "snapshot", warn_of, reads_rows=False).load(reader.check)
        if snapshot is None:
            raise InputError(
                f"{folder} has no snapshot, which holds the learner: it was exported, or its "
                "snapshots were deleted; a run can only start from one that can be resumed"
            )
        found.update(reader.states(snapshot))
    origins = _origins(folder, config.seeds, found)
    start = StartRecord(
        source=str(folder.resolve()),
        sha256=_digest(found),
        config_sha256=sha256((folder / "config.json").read_bytes()).hexdigest(),
        commit=_commit(record),
        seeds=tuple(origins),
        steps=tuple(found[seed].steps for seed in origins),
    )
    states = {new: found[seed] for new, seed in zip(config.seeds, origins, strict=True)}
    return WarmStart(start, states)


def read_again(
    record: RunRecord,
    config: RunConfig,
    spec: TaskSpec,
    learner: Learner,
    warn: Callable[[str], None],
    *,
    is_vouched: bool,
) -> WarmStart | None:
    """Read what a run begins with that was stopped before its first snapshot."""
    start = config.start_from
    if start is None:
        return None
    problem = f"{record.folder} has no snapshot yet and begins with the learner of {start.source}"
    if not is_vouched:
        raise InputError(
            f"{problem}, but it is not signed with your key: add --trust if you trust its author"
        )
    try:
        again = read_start(Path(start.source), config, spec, learner, warn)
    except InputError as error:
        raise InputError(f"{problem}: {error}") from error
    if again.record.sha256 != start.sha256:
        raise InputError(f"{problem}, which has been trained further since: start a new run")
    return again


# -- what has to fit -------------------------------------------------------------------------------


def _checked_hyperparameters(record: RunRecord, config: RunConfig) -> LearnerConfig:
    """Return those of the other run, whose algorithm and networks must be those of this one."""
    folder = record.folder
    # Compared by name: a stranger's folder may name a module, which is not imported.
    theirs, ours = (name.rpartition(":")[2] for name in (record.algorithm, config.algorithm))
    if theirs != ours:
        raise InputError(
            f"{folder} trained {theirs!r}, given {ours!r}: a run starts from one of the same "
            "algorithm"
        )
    if record.normalise_observations != config.normalise_observations:
        problem = (
            f"normalises observations, and its networks fit only a run with {NORMALISE}"
            if record.normalise_observations
            else f"does not normalise observations, and its networks fit no run with {NORMALISE}"
        )
        raise InputError(f"{folder} {problem}")
    kind = type(config.hyperparameters)
    before = build_config(kind, complete(kind, record.hyperparameters))
    names = [f.name for f in fields(kind) if f.metadata.get("structural")]
    values = [
        (name, getattr(before, name), getattr(config.hyperparameters, name)) for name in names
    ]
    different = [value for value in values if value[1] != value[2]]
    if different:
        then = " ".join(f"{name}={to_word(value)}" for name, value, _ in different)
        now = " ".join(f"{name}={to_word(value)}" for name, _, value in different)
        raise InputError(
            f"{folder} was trained with {then}, given {now}: its networks do not fit others"
        )
    return before


def _check_sizes(record: RunRecord, spec: TaskSpec) -> None:
    theirs = policies.load(record.folder, record.seeds[0]).spec
    for name in ("state_dim", "action_dim"):
        then, now = getattr(theirs, name), getattr(spec, name)
        if then != now:
            what = name.replace("_dim", "s")
            raise InputError(
                f"{record.folder} has {what} of {then} numbers, but {spec.task.id} has {what} of "
                f"{now}: a run starts from one with the same sizes"
            )


def _origins(folder: Path, seeds: Sequence[int], found: Mapping[int, SeedState]) -> list[int]:
    """The seed that each one begins with: the same one, or the only one."""
    if len(found) == 1:
        return [next(iter(found))] * len(seeds)
    for seed in seeds:
        if seed not in found:
            raise InputError(
                f"{folder} has no seed {seed} to start from; allowed: "
                f"{', '.join(map(str, found))} (a run with one seed starts all)"
            )
    return list(seeds)


# -- a snapshot ------------------------------------------------------------------------------------


class _Reader:
    """Reads learners from the snapshots of a run."""

    def __init__(self, record: RunRecord, config: LearnerConfig, learner: Learner) -> None:
        """`config` has the run's hyperparameters."""
        self._folder = record.folder
        self._seeds = set(record.seeds)
        self._state = learner.state()
        self._policy_size = learner.policies().shape[1]
        self._has_checkpoints = (
            record.dataset is None
            and isinstance(config, OnlineConfig)
            and config.checkpoint_rule is not None
            and config.test_policy == "checkpoint"
        )

    def check(self, snapshot: Snapshot) -> None:
        """Raise a SnapshotError for damaged content, an InputError for another learner."""
        members, seeds = snapshot.members.get("members"), snapshot.members.get("seeds")
        if not isinstance(seeds, list) or not all(
            type(s) is int and s in self._seeds for s in seeds
        ):
            raise SnapshotError(f"{MEMBERS}: 'seeds' are not those of the run")
        if not isinstance(members, list) or len(members) != len(seeds) or not seeds:
            raise SnapshotError(f"{MEMBERS}: 'members' does not have the seeds")
        if not all(map(_has_steps, members)):
            raise SnapshotError(f"{MEMBERS}: 'members' does not have the steps")
        for name, tensor in self._state.items():
            self._check_tensor(snapshot, PREFIX + name, [len(seeds), *tensor.shape[1:]])
        for seed in seeds if self._has_checkpoints else ():
            self._check_tensor(snapshot, f"checkpoint.{seed}", [self._policy_size])

    def _check_tensor(self, snapshot: Snapshot, name: str, shape: list[int]) -> None:
        tensor = snapshot.tensors.get(name)
        if tensor is None:
            raise InputError(f"{self._folder} has no {name!r}, which its algorithm needs now")
        if list(tensor.shape) != shape:
            raise InputError(
                f"{self._folder}: {name!r} has the shape {list(tensor.shape)}, which must be "
                f"{shape}: its networks have other sizes"
            )
        if tensor.dtype not in NUMBERS or tensor.isnan().any():
            raise SnapshotError(f"{STATE}: {name!r} does not hold numbers")

    def states(self, snapshot: Snapshot) -> dict[int, SeedState]:
        states = {}
        for m, seed in enumerate(snapshot.members["seeds"]):
            arrays = {name: snapshot.tensors[PREFIX + name][m].numpy() for name in self._state}
            checkpoint = (
                snapshot.tensors.get(f"checkpoint.{seed}") if self._has_checkpoints else None
            )
            states[seed] = SeedState(
                snapshot.members["members"][m]["steps"],
                arrays,
                None if checkpoint is None else checkpoint.numpy(),
            )
        return states


def _has_steps(member: object) -> bool:
    steps = member.get("steps") if isinstance(member, dict) else None
    return type(steps) is int and steps >= 0


def _commit(record: RunRecord) -> str | None:
    recorded = record.data.get("commit")
    commit = recorded.get("id") if isinstance(recorded, dict) else None
    return commit if isinstance(commit, str) else None


def _digest(states: Mapping[int, SeedState]) -> str:
    digest = sha256()
    for seed in sorted(states):
        for name, array in sorted(states[seed].learner.items()):
            digest.update(f"{seed} {name}\0".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

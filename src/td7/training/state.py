"""What a snapshot holds of a run, and how a run is restored from it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from td7.rollouts.episodes import EvaluationTask
from td7.runs.folder import Keep
from td7.runs.record import versions
from td7.runs.snapshots import Snapshot
from td7.training.config import RunConfig
from td7.training.member import Member
from td7.training.parts import RunParts
from td7.types import Float32


def state_tensors(parts: RunParts) -> dict[str, Tensor]:
    """Every tensor that decides how the run continues, but for the replay's rows, by name."""
    tensors = stacked_tensors(parts)
    for m, member in enumerate(parts.members):
        tensors[f"checkpoint.{member.id}"] = torch.from_numpy(parts.checkpoints[m])
        priorities = parts.replay.leaves[m, : parts.replay.size(m)]
        tensors[f"replay.priorities.{member.id}"] = priorities
        tensors[f"replay.max_priority.{member.id}"] = parts.replay.max_priority[m]
    return tensors


def policy_tensors(evaluations: Sequence[EvaluationTask]) -> dict[str, Tensor]:
    """The policies of evaluations that have no result yet."""
    return {
        f"pending_evaluation.{i}": torch.from_numpy(task.policy)
        for i, task in enumerate(evaluations)
    }


def state_record(
    config: RunConfig, parts: RunParts, evaluations: Sequence[EvaluationTask]
) -> dict[str, Any]:
    """Everything else that a snapshot holds, for its members.json."""
    return {
        "config": config.to_json(),
        "versions": versions(),
        "seeds": list(config.members.ids),  # numbers, where hyperparameters vary
        "members": [member.to_json() for member in parts.members],
        "updates": parts.engine.updates,
        "rows_added": parts.replay.added[: len(config.seeds)],
        "pending_evaluations": [
            {"seed": t.member, "step": t.step, "episodes": t.episodes} for t in evaluations
        ],
        "table_rows": parts.folder.counts(),
        "seconds": parts.clock.seconds,
        "times": parts.clock.times,
    }


def warn_of_versions(saved: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Warn if the run began with other versions of the software."""
    for name, version in versions().items():
        before = saved["versions"].get(name, version)  # older snapshots lack some versions
        if before != version:
            what = "td7's source" if name == "source" else name
            warn(
                f"this run began with {what} {before} and continues with {version}; its results "
                "may differ in the last bits"
            )


def restore_state(
    parts: RunParts, snapshot: Snapshot, rows: Callable[[int], Sequence[Float32]]
) -> None:
    """Members, checkpoints, replay, learner and engine as they were.

    `rows` returns the replay rows of a member, by its id, in parts.
    """
    saved, tensors = snapshot.members, snapshot.tensors
    parts.members[:] = [Member.from_json(member) for member in saved["members"]]
    for m, member in enumerate(parts.members):
        parts.checkpoints[m] = tensors[f"checkpoint.{member.id}"].numpy()
        parts.replay.restore(
            m,
            rows(member.id),
            saved["rows_added"][m],
            tensors[f"replay.priorities.{member.id}"],
            tensors[f"replay.max_priority.{member.id}"],
        )
    for name, tensor in stacked_tensors(parts).items():
        tensor.copy_(tensors[name])
    parts.engine.restore(saved["updates"])
    for m, member in enumerate(parts.members):
        if member.fault:
            parts.engine.retire(m)


def restore_outputs(config: RunConfig, parts: RunParts, snapshot: Snapshot) -> None:
    """Tables and clock as they were, after `restore_state`; evaluations are submitted again."""
    saved, members = snapshot.members, config.members
    parts.folder.cut_back(rows_to_keep(parts.members, saved), saved["table_rows"])
    parts.clock.restore(saved["seconds"], saved["times"])
    for i, task in enumerate(saved["pending_evaluations"]):
        policy = snapshot.tensors[f"pending_evaluation.{i}"].numpy()
        m = members.ids.index(task["seed"])
        step, episodes = task["step"], task["episodes"]
        again = EvaluationTask(members.seeds[m], step, episodes, policy, members.number(m))
        parts.executor.submit(again)


def stacked_tensors(parts: RunParts) -> dict[str, Tensor]:
    """Tensors [S, ...] that are filled in place on resume."""
    states = {"learner": parts.learner.state(), "engine": parts.engine.state()}
    return {
        f"{part}.{name}": tensor for part, state in states.items() for name, tensor in state.items()
    }


def rows_to_keep(members: Sequence[Member], saved: Mapping[str, Any]) -> dict[str, Keep]:
    """Which rows of each table are older than the snapshot; their order in the file is open."""
    by_id = {member.id: member for member in members}
    updates = dict(zip(saved["seeds"], saved["updates"], strict=True))
    pending = {(task["seed"], task["step"]) for task in saved["pending_evaluations"]}
    return {
        "evaluations": lambda id, step, _: (
            step < by_id[id].next_evaluation and (id, step) not in pending
        ),
        "episodes": lambda id, step, _: step <= by_id[id].steps,
        "metrics": lambda id, _, update: update <= updates[id],
    }

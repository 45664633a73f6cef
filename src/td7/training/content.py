"""Whether a run can continue from what a snapshot holds, before any of it is restored.

Checksums show that files are as they were written, but not that their content fits the run.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import Tensor

from td7.algorithms.checkpoints import Assessment
from td7.errors import InputError
from td7.runs.manifest import MEMBERS, STATE, SnapshotError
from td7.runs.snapshots import Snapshot
from td7.training.config import RunConfig, check_same
from td7.training.member import OPTIONAL, SAVED_AS, UNSAVED, Member
from td7.training.parts import RunParts
from td7.training.state import rows_to_keep, state_tensors

LARGEST = 2**53  # of counts


def check_content(
    config: RunConfig, parts: RunParts, own: Mapping[str, Tensor], snapshot: Snapshot
) -> None:
    """Raise a SnapshotError for content that does not fit, an InputError for another config.

    `own`: the tensors of the run's loop alone, which have at most one entry per step.
    """
    saved = snapshot.members
    record = _typed(saved, "config", dict)
    _require(_is_count(record.get("steps")), "config.steps", record.get("steps"))
    check_same(config.to_json(), record)
    _check_counters(config, saved)
    members = _checked_members(config, saved)
    _check_evaluations(config, saved)
    _check_tables(parts, members, saved)
    _check_rows(parts, members, snapshot)
    lengths = {name: max(member.steps for member in members) for name in own}
    _check_tensors({**state_tensors(parts), **own}, lengths, parts, snapshot)


# -- members.json ----------------------------------------------------------------------------------


def _check_counters(config: RunConfig, saved: Mapping[str, Any]) -> None:
    _typed(saved, "versions", dict)
    _require(saved["seeds"] == list(config.members.ids), "seeds", saved["seeds"])
    for name in ("updates", "rows_added"):
        counts = _typed(saved, name, list)
        fits = len(counts) == len(config.seeds) and all(map(_is_count, counts))
        _require(fits, name, counts)
    seconds, times = _typed(saved, "seconds", dict), _typed(saved, "times", dict)
    _require(all(_is_number(n) and n >= 0 for n in seconds.values()), "seconds", seconds)
    _require(all(map(_is_count, times.values())), "times", times)
    _require(seconds.keys() == times.keys(), "times", times)


def _checked_members(config: RunConfig, saved: Mapping[str, Any]) -> list[Member]:
    members = []
    for data in _typed(saved, "members", list):
        _check_fields("members", data, Member)
        _check_fields("assessment", data["assessment"], Assessment)
        members.append(Member.from_json(data))
    ids = [member.id for member in members]
    _require(ids == list(config.members.ids), "members", ids)
    for member in members:
        _require(member.steps <= config.steps, "steps", member.steps)
    return members


def _check_fields(name: str, data: object, kind: type) -> None:
    """Check the fields that a dataclass has in JSON, of which only a few may be missing."""
    declared = {SAVED_AS.get(f.name, f.name): f for f in fields(kind) if f.name not in UNSAVED}
    required = declared.keys() - set(OPTIONAL)
    if not isinstance(data, dict) or not required <= data.keys() <= declared.keys():
        raise _unfit(name, data)
    for saved_as, value in data.items():
        f = declared[saved_as]
        is_unset = f.type is int and value == f.default  # which may be below 0
        _require(_FITS[f.type](value) or is_unset, saved_as, value)


def _check_evaluations(config: RunConfig, saved: Mapping[str, Any]) -> None:
    for evaluation in _typed(saved, "pending_evaluations", list):
        fits = (
            isinstance(evaluation, dict)
            and evaluation.keys() == {"seed", "step", "episodes"}
            and evaluation["seed"] in config.members.ids
            and _is_count(evaluation["step"])
            and evaluation["episodes"] == config.evaluation_episodes
        )
        _require(fits, "pending_evaluations", evaluation)


def _check_tables(parts: RunParts, members: Sequence[Member], saved: Mapping[str, Any]) -> None:
    """Check that the tables can be cut back to the rows that the snapshot counts."""
    counts = _typed(saved, "table_rows", dict)
    seeds = set(map(str, saved["seeds"]))
    for table in counts.values():
        fits = isinstance(table, dict) and table.keys() <= seeds
        _require(fits and all(map(_is_count, table.values())), "table_rows", table)
    try:
        parts.folder.check(rows_to_keep(members, saved), counts)
    except InputError as error:
        raise SnapshotError(str(error)) from error


# -- the replay and the tensors --------------------------------------------------------------------


def _check_rows(parts: RunParts, members: Sequence[Member], snapshot: Snapshot) -> None:
    """Check that there are rows from the oldest one in the replay to the newest."""
    replay, saved = parts.replay, snapshot.members
    for m, (seed, rows) in enumerate(snapshot.rows.items()):
        added = saved["rows_added"][m]
        expected = replay.added[m] if replay.is_shared else members[m].steps
        _require(added == expected, "rows_added", saved["rows_added"])
        if replay.is_shared:
            _require(saved["updates"][m] == members[m].steps, "updates", saved["updates"])
        if replay.is_shared or not added:
            fits = not rows.shards
        else:
            is_whole = rows.begin <= max(0, added - replay.capacity) and rows.end == added
            fits = is_whole and rows.width == replay.layout.width
        if not fits:
            raise SnapshotError(f"the replay rows of seed {seed} do not fit")


def _check_tensors(
    now: Mapping[str, Tensor], longest: Mapping[str, int], parts: RunParts, snapshot: Snapshot
) -> None:
    """Check for tensors like those of the run now; `longest` names those of another length."""
    saved, tensors = snapshot.members, snapshot.tensors
    expected = {name: (tensor.dtype, list(tensor.shape)) for name, tensor in now.items()}
    for seed, added in zip(saved["seeds"], saved["rows_added"], strict=True):
        expected[f"replay.priorities.{seed}"][1][0] = min(added, parts.replay.capacity)
    for i in range(len(saved["pending_evaluations"])):
        expected[f"pending_evaluation.{i}"] = expected[f"checkpoint.{saved['seeds'][0]}"]
    for name, (dtype, shape) in expected.items():
        if name not in tensors:
            raise SnapshotError(f"{STATE} does not have {name!r}")
        tensor = tensors[name]
        if name in longest and tensor.dim():
            shape[0] = min(len(tensor), longest[name])
        if (tensor.dtype, list(tensor.shape)) != (dtype, shape):
            raise SnapshotError(
                f"{STATE}: {name!r} is {tensor.dtype} {list(tensor.shape)}, not {dtype} {shape}"
            )
        must_count = name.startswith("replay.") or not tensor.is_floating_point()
        if must_count and not bool(((tensor >= 0) & tensor.isfinite()).all()):
            raise SnapshotError(f"{STATE}: {name!r} has numbers that are not positive and finite")


# -- values ----------------------------------------------------------------------------------------


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) <= LARGEST)


_FITS: Mapping[Any, Callable[[Any], bool]] = {  # by the type of a field
    int: _is_count,
    float: _is_number,
    float | None: lambda value: value is None or _is_number(value),
    bool: lambda value: type(value) is bool,
    str: lambda value: type(value) is str,
    Assessment: lambda value: isinstance(value, dict),
}


def _typed(saved: Mapping[str, Any], name: str, kind: type) -> Any:
    _require(isinstance(saved.get(name), kind), name, saved.get(name))
    return saved[name]


def _require(fits: bool, name: str, value: object) -> None:
    if not fits:
        raise _unfit(name, value)


def _unfit(name: str, value: object) -> SnapshotError:
    return SnapshotError(f"{MEMBERS}: {name!r} is {reprlib.repr(value)}")

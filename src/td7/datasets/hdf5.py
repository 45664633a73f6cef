"""Datasets in HDF5 files of D4RL's layout, read as replay rows and written.

A file's rows are D4RL's q-learning view of it: the last row of an episode that its time limit cut
is left out, a terminal row stays. A row's next state is the file's `next_observations`; without
them it is the next row's observation, which after a terminal row belongs to another episode and
counts for nothing in a value, and a file's last row, which has none, is left out.

D4RL itself takes the next row's observation in any case, leaves the file's last row out in any
case, and also a terminal row on the last step of the time limit, which here is an end.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from td7 import files
from td7.datasets import download as fetching
from td7.datasets.dataset import (
    Dataset,
    Flags,
    booleans,
    chosen_bounds,
    finite_float32,
    reading,
    unit_actions,
)
from td7.datasets.scores import task_of_file
from td7.errors import InputError
from td7.rollouts.environment import ActionMap
from td7.types import Float32, Float64, RowLayout

ATTRIBUTE = "td7."  # how the attributes of our own files begin
TIME_LIMIT = 1000  # environment steps, of every task of D4RL's MuJoCo files

NUMBERS = ("observations", "actions", "next_observations", "rewards")
FLAGS = ("terminals", "timeouts")
OPTIONAL = ("next_observations", "timeouts")
COLUMNS = ("rewards", *FLAGS)  # one number a row; the other fields have several


def write(
    path: Path,
    *,
    observations: ArrayLike,
    actions: ArrayLike,
    next_observations: ArrayLike,
    rewards: ArrayLike,
    terminals: ArrayLike,
    timeouts: ArrayLike,
    attributes: Mapping[str, Any],
) -> None:
    """A self-collected dataset in D4RL's layout: [N, dimensions] and [N], in time's order.

    `attributes` has `task` and `kind`, and whatever else HDF5 can hold, `task_kwargs` as JSON; in
    the file their names begin with `td7.`. Actions are the task's own: bounds other than [-1, 1]
    belong in there too, as `action_low` and `action_high`. `cut_rows` are the timeouts that only
    the recording made.
    """
    if missing := {"task", "kind"} - attributes.keys():
        raise ValueError(f"{path}: attributes without {', '.join(sorted(missing))}")
    numbers = zip(NUMBERS, (observations, actions, next_observations, rewards), strict=True)
    flags = zip(FLAGS, (terminals, timeouts), strict=True)
    fields: dict[str, NDArray[Any]] = {
        **{name: finite_float32(str(path), name, given) for name, given in numbers},
        **{name: booleans(str(path), name, np.asarray(given)) for name, given in flags},
    }
    _check_fields(str(path), fields)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, compression="gzip")
        for name, value in {**attributes, "self_collected": True}.items():
            file.attrs[ATTRIBUTE + name] = value
    files.write(path, lambda out: out.write(buffer.getbuffer()))


# -- D4RL's files --------------------------------------------------------------------------------


def read_hdf5(path: Path, where: str, bounds: ActionMap | None, time_limit: int) -> Dataset:
    if not h5py.is_hdf5(path):
        raise InputError(f"{where} is not an HDF5 file")
    with reading(where):
        file = h5py.File(path, "r")
    with file:
        fields = _fields(where, file)
        layout = RowLayout(fields["observations"].shape[1], fields["actions"].shape[1])
        with reading(f"{where}: attributes"):
            attributes = dict(file.attrs)
            task_id = _text(attributes.get(f"{ATTRIBUTE}task", "")) or task_of_file(path.stem)
            stamp = attributes.get(f"{ATTRIBUTE}task_kwargs")
            kwargs = None if stamp is None else dict(json.loads(stamp))
            cut = np.asarray(attributes.get(f"{ATTRIBUTE}cut_rows", ()), np.int64)
            self_collected = bool(attributes.get(f"{ATTRIBUTE}self_collected", False))
            stated = _stated_bounds(attributes, layout)
        bounds = chosen_bounds(where, bounds, stated, layout)
        terminals, timeouts, derived = _ends(where, fields, time_limit)
        rewards = _numbers(where, fields["rewards"])
        rows, clipped = _rows(where, fields, layout, bounds, terminals, timeouts, rewards)
    d4rl = fetching.identified(path)
    returns, lengths = _episodes(rewards, terminals | timeouts)
    is_whole = ~np.isin(np.cumsum(lengths) - 1, cut)
    return Dataset(
        source=where,
        name=path.stem,
        task_id=task_id,
        task_kwargs=kwargs,
        layout=layout,
        bounds=bounds,
        rows=rows,
        returns=returns[is_whole],
        lengths=lengths[is_whole],
        self_collected=self_collected,
        warnings=(*derived, *clipped, *_impostor(path, d4rl)),
        d4rl=d4rl,
        left_out=len(rewards) - len(rows),
    )


def _text(value: Any) -> str:
    """Of an attribute, which HDF5 may hold as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _impostor(path: Path, d4rl: str) -> list[str]:
    """A warning of a file with the name of one of D4RL's, which it is not."""
    names = {dataset.file: name for name, dataset in fetching.DATASETS.items()}
    if d4rl or path.name not in names:
        return []
    return [f"it has the name of D4RL's {names[path.name]}, but not its SHA-256"]


def _rows(
    where: str,
    fields: Mapping[str, Any],
    layout: RowLayout,
    bounds: ActionMap,
    terminals: Flags,
    timeouts: Flags,
    rewards: Float32,
) -> tuple[Float32, list[str]]:
    """The rows that are kept, and warnings. One field at a time: some hold gigabytes."""
    keep = terminals | ~timeouts
    if "next_observations" not in fields:
        keep[-1] = False
    if not keep.any():
        raise InputError(f"{where}: none of the {len(keep)} rows in observations has a next state")
    rows = np.empty((np.count_nonzero(keep), layout.width), np.float32)
    parts = layout.split(rows)
    observations = _numbers(where, fields["observations"])
    parts.state[:] = observations[keep]
    if "next_observations" in fields:
        del observations
        parts.next_state[:] = _numbers(where, fields["next_observations"])[keep]
    else:
        parts.next_state[:] = observations[1:][keep[:-1]]
        del observations
    actions, clipped = unit_actions(where, _numbers(where, fields["actions"]), bounds)
    parts.action[:] = actions[keep]
    parts.reward[:, 0] = rewards[keep]
    parts.not_terminated[:, 0] = ~terminals[keep]
    return rows, clipped


def _fields(where: str, file: Any) -> dict[str, Any]:
    """The file's fields by their names, unread, with shapes that fit together."""
    fields = {}
    for name in (*NUMBERS, *FLAGS):
        if name not in file:
            if name in OPTIONAL:
                continue
            has = ", ".join(list(file)[:12]) or "nothing"
            raise InputError(f"{where}: no field {name!r}; it has {has}")
        with reading(f"{where}: {name}"):
            fields[name] = file[name]
        if not isinstance(fields[name], h5py.Dataset):
            raise InputError(f"{where}: {name} is a group; allowed: an array")
    _check_fields(where, fields)
    return fields


def _check_fields(where: str, fields: Mapping[str, Any]) -> None:
    """Numbers, as many rows in every field, shapes [N, dimensions]; of columns [N] or [N, 1]."""
    for name, field in fields.items():
        # HDF5 has arrays without a shape, too: they hold nothing.
        shape: tuple[int, ...] = field.shape or ()
        states: tuple[int, ...] = fields["observations"].shape or (0,)
        fits = shape[1:] in ((), (1,)) if name in COLUMNS else len(shape) == 2
        if field.dtype.kind not in "fiub":
            raise InputError(f"{where}: {name} holds {field.dtype}; allowed: numbers")
        if not shape or not fits or 0 in shape:
            allowed = "[rows]" if name in COLUMNS else "[rows, dimensions]"
            raise InputError(f"{where}: {name} has the shape {shape}; allowed: {allowed}, not 0")
        if shape[0] != states[0]:
            raise InputError(f"{where}: {name} has {shape[0]} rows, observations {states[0]}")
        if name == "next_observations" and shape != states:
            raise InputError(f"{where}: {name} has the shape {shape}, observations {states}")


def _numbers(where: str, field: Any) -> Float32:
    """All of a field, flat where it has one column; HDF5 converts on the way."""
    name = field.name.strip("/")
    with reading(f"{where}: {name}"):
        array = field.astype(np.float32)[...]
    return finite_float32(where, name, array.reshape(-1) if name in COLUMNS else array)


def _ends(where: str, fields: Mapping[str, Any], time_limit: int) -> tuple[Flags, Flags, list[str]]:
    """Where the task ended, where the time limit cut (both at once is an end), and warnings."""
    flags = {}
    for name in FLAGS:
        if name in fields:
            with reading(f"{where}: {name}"):
                flags[name] = booleans(where, name, fields[name][...])
    terminals = flags["terminals"]
    if "timeouts" in flags:
        return terminals, flags["timeouts"], []
    # D4RL counts the same, but after a terminal row its count runs one step ahead.
    steps = np.arange(len(terminals))
    starts = np.zeros_like(steps)
    starts[1:][terminals[:-1]] = steps[1:][terminals[:-1]]
    timeouts = (steps - np.maximum.accumulate(starts)) % time_limit == time_limit - 1
    derived = f"no field timeouts: every {time_limit}th step of an episode is taken for one"
    return terminals, timeouts, [derived]


def _episodes(rewards: Float32, ends: Flags) -> tuple[Float64, NDArray[np.int64]]:
    """Returns and lengths of the complete episodes."""
    lasts = np.flatnonzero(ends)
    lengths = np.diff(lasts, prepend=-1)
    if not len(lasts):
        return np.empty(0), lengths
    firsts = lasts - lengths + 1
    return np.add.reduceat(rewards[: lasts[-1] + 1], firsts, dtype=np.float64), lengths


def _stated_bounds(attributes: Mapping[str, Any], layout: RowLayout) -> ActionMap:
    """The bounds of the actions that a file states; [-1, 1] if it states none."""
    low, high = (
        np.atleast_1d(attributes.get(f"{ATTRIBUTE}action_{side}", [default] * layout.action_dim))
        for side, default in (("low", -1.0), ("high", 1.0))
    )
    return ActionMap(tuple(map(float, low)), tuple(map(float, high)))

"""Datasets in HDF5 files of D4RL's layout: the reader and the writer.

The reader gives D4RL's q-learning view of a file. It leaves out the last row of an episode that the
time limit cut, and keeps a terminal row. A row's next state is the file's `next_observations`. In a
file without them it is the next row's observation; after a terminal row this belongs to another
episode, which no target sees, and the file's last row, which has none, is left out.

D4RL differs: it always takes the next row's observation, always leaves the file's last row out, and
leaves out a terminal row on the last step of the time limit, which counts as an end here.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from td7.datasets import download
from td7.datasets.checks import (
    Flags,
    action_bounds,
    boolean_flags,
    finite_float32,
    reading,
    unit_actions,
)
from td7.datasets.contained import check_memory, check_strings, member, open_hdf5
from td7.datasets.dataset import Dataset
from td7.datasets.scores import task_of_file
from td7.errors import InputError
from td7.files import write
from td7.rollouts.environment import ActionMap
from td7.runs.record import read_wrappers
from td7.types import Float32, Float64, RowLayout

ATTRIBUTE = "td7."  # prefix of the attributes that `write_hdf5` adds to D4RL's layout
TIME_LIMIT = 1000  # environment steps, of every task of D4RL's MuJoCo files

NUMBERS = ("observations", "actions", "next_observations", "rewards")
FLAGS = ("terminals", "timeouts")
OPTIONAL = ("next_observations", "timeouts")
COLUMNS = ("rewards", *FLAGS)  # one number per row; the other fields have several


def read_hdf5(path: Path, where: str, bounds: ActionMap | None, time_limit: int) -> Dataset:
    """Read a file; `where` names it in errors, and the task's `bounds` replace the file's own."""
    with open_hdf5(path, where) as file:
        fields = _fields(where, file)
        check_memory(where, list(fields.values()))
        layout = RowLayout(fields["observations"].shape[1], fields["actions"].shape[1])
        with reading(f"{where}: attributes"):
            names = [name for name in file.attrs if name.startswith(ATTRIBUTE)]
            if names:
                check_strings(path, where)
            attributes = {name: file.attrs[name] for name in names}
            task_id = _text(attributes.get(f"{ATTRIBUTE}task", "")) or task_of_file(path.stem)
            kwargs_text = attributes.get(f"{ATTRIBUTE}task_kwargs")
            task_kwargs = None if kwargs_text is None else dict(json.loads(kwargs_text))
            wrappers = read_wrappers(
                json.loads(_text(attributes.get(f"{ATTRIBUTE}task_wrappers", "[]")))
            )
            cut_rows = np.asarray(attributes.get(f"{ATTRIBUTE}cut_rows", ()), np.int64)
            self_collected = bool(attributes.get(f"{ATTRIBUTE}self_collected", False))
            stated_bounds = _stated_bounds(where, attributes, layout)
        bounds = action_bounds(where, bounds, stated_bounds, layout)
        terminals, timeouts, timeout_warnings = _ends(where, fields, time_limit)
        rewards = _read_numbers(where, fields["rewards"])
        rows, action_warnings = _rows(where, fields, layout, bounds, terminals, timeouts, rewards)
    d4rl = download.identify(path)
    returns, lengths = _episodes(rewards, terminals | timeouts)
    is_complete = ~np.isin(np.cumsum(lengths) - 1, cut_rows)
    return Dataset(
        source=where,
        name=path.stem,
        task_id=task_id,
        task_kwargs=task_kwargs,
        task_wrappers=wrappers,
        layout=layout,
        bounds=bounds,
        rows=rows,
        returns=returns[is_complete],
        lengths=lengths[is_complete],
        self_collected=self_collected,
        warnings=(*timeout_warnings, *action_warnings, *_name_warnings(path, d4rl)),
        d4rl=d4rl,
        left_out=len(rewards) - len(rows),
    )


def write_hdf5(
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
    """Write a self-collected dataset: arrays [N, dimensions] and [N], in the order of time.

    `attributes` needs `task` and `kind` and may hold whatever HDF5 can; the file's names for them
    begin with `td7.`. The reader knows `task_kwargs` and `task_wrappers` (JSON), `action_low` and
    `action_high` (the bounds of the actions, where they are not [-1, 1]) and `cut_rows` (the
    timeouts that are only the recording's).
    """
    if missing := {"task", "kind"} - attributes.keys():
        raise ValueError(f"{path}: attributes without {', '.join(sorted(missing))}")
    numbers = zip(NUMBERS, (observations, actions, next_observations, rewards), strict=True)
    flags = zip(FLAGS, (terminals, timeouts), strict=True)
    where = str(path)
    fields: dict[str, NDArray[Any]] = {
        **{name: finite_float32(where, name, values) for name, values in numbers},
        **{name: boolean_flags(where, name, np.asarray(values)) for name, values in flags},
    }
    _check_fields(where, fields)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, compression="gzip")
        for name, value in {**attributes, "self_collected": True}.items():
            file.attrs[ATTRIBUTE + name] = value
    write(path, lambda out: out.write(buffer.getbuffer()))


def _fields(where: str, file: Any) -> dict[str, Any]:
    """Return the file's fields by name, not yet read, with shapes that fit together."""
    fields = {}
    for name in (*NUMBERS, *FLAGS):
        if name not in file:
            if name in OPTIONAL:
                continue
            names = ", ".join(list(file)[:12]) or "nothing"
            raise InputError(f"{where}: no field {name!r}; it has {names}")
        with reading(f"{where}: {name}"):
            fields[name] = member(where, file, name)
        if not isinstance(fields[name], h5py.Dataset):
            raise InputError(f"{where}: {name} is a group; allowed: an array")
    _check_fields(where, fields)
    return fields


def _check_fields(where: str, fields: Mapping[str, Any]) -> None:
    """Raise unless all fields are numeric, of equally many rows: [N, dimensions], [N] or [N, 1]."""
    for name, field in fields.items():
        # HDF5 also has arrays without a shape, which hold nothing.
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


def _text(value: Any) -> str:
    """Return an attribute as text; HDF5 may hold it as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _stated_bounds(where: str, attributes: Mapping[str, Any], layout: RowLayout) -> ActionMap:
    """Return the action bounds that the file states; [-1, 1] if it states none.

    Bounds that are none are refused even where the task's replace them: such a file is damaged.
    """
    low, high = (
        np.atleast_1d(attributes.get(f"{ATTRIBUTE}action_{side}", [default] * layout.action_dim))
        for side, default in (("low", -1.0), ("high", 1.0))
    )
    bounds = ActionMap(tuple(map(float, low)), tuple(map(float, high)))
    return action_bounds(where, None, bounds, layout)


def _read_numbers(where: str, field: Any) -> Float32:
    """Read a whole field, [N] where it is a column; HDF5 converts while reading."""
    name = field.name.strip("/")
    with reading(f"{where}: {name}"):
        array = field.astype(np.float32)[...]
    return finite_float32(where, name, array.reshape(-1) if name in COLUMNS else array)


def _ends(where: str, fields: Mapping[str, Any], time_limit: int) -> tuple[Flags, Flags, list[str]]:
    """Return terminals (the task ended), timeouts (the time limit cut), and warnings."""
    flags = {}
    for name in FLAGS:
        if name in fields:
            with reading(f"{where}: {name}"):
                flags[name] = boolean_flags(where, name, fields[name][...])
    terminals = flags["terminals"]
    if "timeouts" in flags:
        return terminals, flags["timeouts"], []
    # D4RL counts steps likewise, but after a terminal row its count is one step ahead.
    steps = np.arange(len(terminals))
    starts = np.zeros_like(steps)
    starts[1:][terminals[:-1]] = steps[1:][terminals[:-1]]
    timeouts = (steps - np.maximum.accumulate(starts)) % time_limit == time_limit - 1
    warning = f"no field timeouts: every {time_limit}th step of an episode is taken for one"
    return terminals, timeouts, [warning]


def _rows(
    where: str,
    fields: Mapping[str, Any],
    layout: RowLayout,
    bounds: ActionMap,
    terminals: Flags,
    timeouts: Flags,
    rewards: Float32,
) -> tuple[Float32, list[str]]:
    """Return the rows to learn from, and warnings; only one field is in memory at a time."""
    keep = terminals | ~timeouts
    if "next_observations" not in fields:
        keep[-1] = False
    if not keep.any():
        raise InputError(f"{where}: none of the {len(keep)} rows in observations has a next state")
    rows = np.empty((np.count_nonzero(keep), layout.width), np.float32)
    parts = layout.split(rows)
    observations = _read_numbers(where, fields["observations"])
    parts.state[:] = observations[keep]
    if "next_observations" in fields:
        del observations
        parts.next_state[:] = _read_numbers(where, fields["next_observations"])[keep]
    else:
        parts.next_state[:] = observations[1:][keep[:-1]]
        del observations
    actions, warnings = unit_actions(where, _read_numbers(where, fields["actions"]), bounds)
    parts.action[:] = actions[keep]
    parts.reward[:, 0] = rewards[keep]
    parts.not_terminated[:, 0] = ~terminals[keep]
    return rows, warnings


def _episodes(rewards: Float32, ends: Flags) -> tuple[Float64, NDArray[np.int64]]:
    """Return the returns and lengths of the episodes that end."""
    lasts = np.flatnonzero(ends)
    lengths = np.diff(lasts, prepend=-1)
    if not len(lasts):
        return np.empty(0), lengths
    firsts = lasts - lengths + 1
    return np.add.reduceat(rewards[: lasts[-1] + 1], firsts, dtype=np.float64), lengths


def _name_warnings(path: Path, d4rl: str) -> list[str]:
    """Warn about a file that has the name of one of D4RL's but another content."""
    names = {dataset.file: name for name, dataset in download.DATASETS.items()}
    if d4rl or path.name not in names:
        return []
    return [f"it has the name of D4RL's {names[path.name]}, but not its SHA-256"]

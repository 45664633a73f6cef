"""Minari's datasets, read as replay rows."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from td7.datasets.checks import (
    action_bounds,
    boolean_flags,
    finite_float32,
    reading,
    unit_actions,
)
from td7.datasets.contained import all_datasets, check_memory, check_strings, open_hdf5
from td7.datasets.dataset import Dataset
from td7.errors import InputError, needs_extra
from td7.files import check_no_links
from td7.rollouts.environment import ActionMap
from td7.rollouts.observations import ALLOWED, boxes, flatten
from td7.types import Entry, Float32, RowLayout


def minari_root() -> Path:
    """Return the folder in which Minari keeps its local datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH", "~/.minari/datasets")).expanduser()


def local_datasets() -> dict[str, Path]:
    """Return the folders of the datasets on this machine, by id."""
    root = minari_root()
    folders = sorted(file.parents[1] for file in root.glob("**/data/metadata.json"))
    return {folder.relative_to(root).as_posix(): folder for folder in folders}


def minari_folder(path: Path) -> Path | None:
    """Return the data folder of the Minari dataset with this path or id; None if there is none."""
    candidates = (path, path / "data", minari_root() / path / "data")
    return next((folder for folder in candidates if (folder / "metadata.json").is_file()), None)


def read_minari(folder: Path, where: str, bounds: ActionMap | None) -> Dataset:
    """Read all rows: a Minari episode has a next observation even where it was cut."""
    _check_folder(folder, where)
    try:
        import minari

        with reading(where):
            data = minari.MinariDataset(folder)
    except ImportError as error:
        raise needs_extra(f"Minari's dataset {where}", "minari") from error
    actions = data.action_space
    entries = [entry for entry, _ in boxes(data.observation_space, where)]
    layout = RowLayout(sum(entry.size for entry in entries), *actions.shape)
    stated_bounds = ActionMap(tuple(map(float, actions.low)), tuple(map(float, actions.high)))
    bounds = action_bounds(where, bounds, stated_bounds, layout)
    rows, returns, lengths = _read_episodes(where, data, layout, entries)
    action = layout.split(rows).action
    action[:], warnings = unit_actions(where, action, bounds)
    return Dataset(
        source=where,
        name=data.id,
        task_id=data.env_spec.id if data.env_spec else "",
        task_kwargs=_task_kwargs(data.env_spec) if data.env_spec else None,
        layout=layout,
        bounds=bounds,
        rows=rows,
        returns=np.array(returns, np.float64),
        lengths=np.array(lengths, np.int64),
        self_collected=False,
        warnings=tuple(warnings),
    )


def _check_folder(folder: Path, where: str) -> None:
    """Raise for what Minari would read elsewhere, or for the size of, or make to find out."""
    check_no_links(folder)
    with reading(f"{where}: metadata.json"):
        metadata = json.loads((folder / "metadata.json").read_text())
        # Minari makes the task itself, by any name that the file gives, where one is missing.
        _check_space(where, "observation", metadata["observation_space"], ALLOWED)
        _check_space(where, "action", metadata["action_space"], FLAT)
    main = folder / "main_data.hdf5"
    if metadata.get("data_format") == "hdf5" and main.exists():
        with open_hdf5(main, where) as file:
            datasets = all_datasets(where, file)
            check_memory(where, datasets)
            if any(dataset.dtype.kind == "O" for dataset in datasets):
                check_strings(main, where)


FLAT = "a flat Box"


def _check_space(where: str, kind: str, text: str, allowed: str) -> None:
    """Raise for a space that is not allowed, or larger than the text that states its bounds."""
    spaces = [json.loads(text)]
    while spaces:
        space = spaces.pop()
        if space["type"] in ("Dict", "Tuple") and allowed != FLAT:
            parts = space["subspaces"]
            spaces += parts.values() if isinstance(parts, dict) else parts
            continue
        if space["type"] != "Box":
            shown = space["type"]
        else:
            sizes = space["shape"]
            shown = f"Box of shape {tuple(sizes)}"
            is_flat = len(sizes) == 1 or allowed != FLAT
            if is_flat and all(size > 0 for size in sizes) and math.prod(sizes) <= len(text):
                continue
        raise InputError(f"{where}: the {kind} space is a {shown}; allowed: {allowed}")


def _task_kwargs(spec: EnvSpec) -> dict[str, Any]:
    """Return the kwargs that differ from the registered task's, but for the render mode."""
    registered = gymnasium.registry.get(spec.id, EnvSpec(spec.id))
    kwargs, steps = {**spec.kwargs, "render_mode": None}, spec.max_episode_steps
    if steps not in (None, registered.max_episode_steps):
        kwargs["max_episode_steps"] = steps
    defaults = {**registered.kwargs, "render_mode": None}
    return {name: value for name, value in kwargs.items() if (name, value) not in defaults.items()}


def _read_episodes(
    where: str, data: Any, layout: RowLayout, entries: Sequence[Entry]
) -> tuple[Float32, list[float], list[int]]:
    """Return all rows with the task's own actions; complete episodes' returns and lengths."""
    parts, returns, lengths = [np.empty((0, layout.width), np.float32)], [], []
    with reading(where):
        episodes = iter(data.iterate_episodes())
    for number in range(data.total_episodes):
        episode = f"{where}: episode {number}"
        with reading(episode):
            rows, is_complete = _episode_rows(episode, next(episodes), layout, entries)
        parts.append(rows)
        if is_complete:
            returns.append(float(layout.split(rows).reward[:, 0].sum(dtype=np.float64)))
            lengths.append(len(rows))
    rows = np.concatenate(parts)
    if not len(rows):
        raise InputError(f"{where}: observations has no rows; allowed: some")
    if len(rows) != data.total_steps:  # Minari skips the rest of an episode that is read in parts
        raise InputError(f"{where}: its episodes have {len(rows)} rows, not {data.total_steps}")
    return rows, returns, lengths


def _episode_rows(
    where: str, episode: Any, layout: RowLayout, entries: Sequence[Entry]
) -> tuple[Float32, bool]:
    """Return an episode's rows with the task's own actions, and whether it is complete."""
    numbers, flags = {}, {}
    with reading(f"{where}: observations"):
        states = flatten(entries, episode.observations)
        numbers["observations"] = finite_float32(where, "observations", states)
    for name in ("actions", "rewards"):
        with reading(f"{where}: {name}"):
            numbers[name] = finite_float32(where, name, getattr(episode, name))
    for name in ("terminations", "truncations"):
        with reading(f"{where}: {name}"):
            flags[name] = boolean_flags(where, name, np.asarray(getattr(episode, name)))
    observations, actions, rewards = numbers.values()
    terminations, truncations = flags.values()
    n = len(actions)
    for name, array, shape in (
        ("observations", observations, (n + 1, layout.state_dim)),
        ("actions", actions, (n, layout.action_dim)),
        ("rewards", rewards, (n,)),
        ("terminations", terminations, (n,)),
        ("truncations", truncations, (n,)),
    ):
        if array.shape != shape:
            raise InputError(f"{where}: {name} has the shape {array.shape}; allowed: {shape}")
    parts = (observations[:-1], actions, observations[1:], rewards, ~terminations)
    return np.column_stack(parts), bool((terminations | truncations)[-1:].any())

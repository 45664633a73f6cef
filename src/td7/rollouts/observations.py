"""Observations as flat arrays: the Boxes of a Dict or a Tuple one after the other."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple
from numpy.typing import NDArray

from td7.errors import InputError
from td7.types import Entry

ALLOWED = "a Box, or a Dict or Tuple of Boxes"


def boxes(space: Space[Any] | None, owner: str) -> list[tuple[Entry, Box]]:
    """Return every Box within an observation space: of a Dict by name, of a Tuple in its order.

    A space that is a Box itself is an entry of an empty path. An error message begins with `owner`.
    """
    result = list(_boxes(space, (), owner))
    if not result:
        raise InputError(f"{owner} has an empty observation space, {space}")
    return result


def _boxes(
    space: Space[Any] | None, path: tuple[str | int, ...], owner: str
) -> Iterator[tuple[Entry, Box]]:
    entry = f" (entry {_name(path)!r})" if path else ""
    if isinstance(space, Dict):
        # By name, since two versions of a task, or its dataset, may list them in another order.
        for key in sorted(space.spaces, key=str):
            if not isinstance(key, str | int):
                raise InputError(f"{owner} has an observation with the key {key!r}; allowed: text")
            yield from _boxes(space.spaces[key], (*path, key), owner)
    elif isinstance(space, Tuple):
        for position, part in enumerate(space.spaces):
            yield from _boxes(part, (*path, position), owner)
    elif not isinstance(space, Box):
        name = type(space).__name__
        raise InputError(
            f"{owner} has a {name} observation space{entry}; allowed: {ALLOWED} "
            "(the wrapper gymnasium.wrappers:FlattenObservation makes a Box of others)"
        )
    elif space.dtype == np.uint8 and len(space.shape) > 1:
        raise InputError(
            f"{owner} observes pixels{entry}, uint8 of shape {space.shape}; td7's networks take "
            "vectors of numbers, not images"
        )
    elif 0 in space.shape:
        raise InputError(f"{owner} has an empty observation space{entry}, of shape {space.shape}")
    else:
        yield Entry(path, space.shape), space


def flatten(entries: Sequence[Entry], observation: Any) -> NDArray[Any]:
    """Return the entries of an observation as [size], or of a batch of n as [n, size].

    A ValueError says what is missing or has another shape.
    """
    parts = []
    for entry in entries:
        part = np.asarray(_entry_of(observation, entry.path))
        batch = part.shape[: part.ndim - len(entry.shape)]
        if part.shape != (*batch, *entry.shape) or len(batch) > 1:
            entry_name = f"its entry {_name(entry.path)!r}" if entry.path else "it"
            raise ValueError(f"{entry_name} has the shape {part.shape}, not {entry.shape}")
        parts.append(part.reshape((*batch, entry.size)))
    if len(batches := {part.shape[:-1] for part in parts}) > 1:
        raise ValueError(f"its entries are batches of the shapes {sorted(batches)}")
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _entry_of(observation: Any, path: tuple[str | int, ...]) -> Any:
    for depth, key in enumerate(path, 1):
        try:
            observation = observation[key]
        except (LookupError, TypeError):
            raise ValueError(f"it has no entry {_name(path[:depth])!r}") from None
    return observation


def _name(path: tuple[str | int, ...]) -> str:
    return "/".join(map(str, path))

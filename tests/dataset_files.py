"""Dataset files to read: rows with known ends, and what a refused one must say.

One letter per row tells its end: T for a terminal, C for a cut by the time limit, B for both at
once, and a dot for neither.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from td7.datasets.read import read
from td7.errors import InputError
from td7.rollouts.environment import ActionMap

Fields = dict[str, NDArray[Any]]
Edit = Callable[[Any], Any]

STATES, ACTIONS = 3, 2


def fields_of(ends: str, *, next_observations: bool = True, seed: int = 0) -> Fields:
    """Random rows with these ends; observations go on where an episode does."""
    random = np.random.default_rng(seed)
    n = len(ends)
    observations = random.normal(size=(n, STATES)).astype(np.float32)
    following = np.roll(observations, -1, axis=0)
    for i, end in enumerate(ends):
        if end != "." or i == n - 1:
            following[i] = random.normal(size=STATES)
    fields = {
        "observations": observations,
        "actions": random.uniform(-1, 1, (n, ACTIONS)).astype(np.float32),
        "rewards": random.normal(size=n).astype(np.float32),
        "terminals": np.array([end in "TB" for end in ends]),
        "timeouts": np.array([end in "CB" for end in ends]),
    }
    return fields | ({"next_observations": following} if next_observations else {})


def save(path: Path, fields: Fields, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, **options)
    return path


def refused(source: str | Path, *words: str, bounds: ActionMap | None = None) -> None:
    """Reading gives one line that names the source and says these words."""
    with pytest.raises(InputError) as error:
        read(source, bounds=bounds)
    message = str(error.value)
    assert "\n" not in message
    for word in (str(source), *words):
        assert word in message, message


def with_value(index: Any, value: Any) -> Edit:
    def edit(array: NDArray[Any]) -> NDArray[Any]:
        changed = array.astype(np.float64)
        changed[index] = value
        return changed

    return edit

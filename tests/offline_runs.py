"""A dataset of the point, its transitions as columns, and short runs that learn from it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import td7
import toys
from td7.datasets.hdf5 import write_hdf5

assert toys  # registers the tasks
POINT = "toys:Point-v0"
BOUNDS = {"action_low": [-1.0, -2.0], "action_high": [3.0, 2.0]}
CPU = torch.device("cpu")
STEPS = 60
TINY: Mapping[str, Mapping[str, Any]] = {
    "td7": {"hidden_dim": 8, "embedding_dim": 6, "batch_size": 16, "target_every": 7},
    "td3+bc": {"hidden_dim": 8, "batch_size": 16},
    "cql": {"hidden_dim": 8, "batch_size": 16, "sampled_actions": 3, "cloning_updates": 20},
    "iql": {"hidden_dim": 8, "batch_size": 16},
    "xql": {"hidden_dim": 8, "batch_size": 16},
}
Fields = dict[str, Any]


@cache
def point_fields() -> Fields:
    """Twelve episodes of the point under random actions; pushed in one direction, some end."""
    environment = gymnasium.make(POINT)
    environment.action_space.seed(0)
    columns: dict[str, list[Any]] = {}
    for episode in range(12):
        state, _ = environment.reset(seed=episode)
        ended = False
        while not ended:
            action = environment.action_space.sample()
            if episode % 3 == 0:
                action[0] = 3.0
            next_state, reward, terminated, truncated, _ = environment.step(action)
            row = (state, action, next_state, reward, terminated, truncated)
            names = ("observations", "actions", "next_observations")
            for name, value in zip((*names, "rewards", "terminals", "timeouts"), row, strict=True):
                columns.setdefault(name, []).append(value)
            state, ended = next_state, terminated or truncated
    environment.close()
    assert any(columns["terminals"])
    assert any(columns["timeouts"])
    assert np.max(columns["actions"]) > 2.5  # the task's own, beyond [-1, 1]
    return {name: np.array(column) for name, column in columns.items()}


def save(path: Path, fields: Fields, **attributes: Any) -> Path:
    values = {"task": POINT, "kind": "random", **attributes}
    write_hdf5(path, **fields, attributes=values)
    return path


def train(name: str, path: Path, data: Path, **options: Any) -> td7.Run:
    defaults: dict[str, Any] = {
        "dataset": str(data),
        "steps": STEPS,
        "evaluate_every": 20,
        "evaluation_episodes": 2,
        "metrics_every": 15,
        "keep_policies": 40,
        "set": TINY[name],
        "seeds": "0-1",
        "precision": "float64",
        "quiet": True,
    }
    return td7.train(name, out=str(path), **{**defaults, **options})

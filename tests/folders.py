"""Small runs of the toy tasks, and the contents of their folders for comparisons."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import td7
from td7.runs import policy_files
from td7.runs.snapshots import process_folders

SMALL: Mapping[str, int] = {
    "random_steps": 30,
    "hidden_dim": 16,
    "embedding_dim": 8,
    "batch_size": 16,
    "target_every": 25,
}
TABLES = ("evaluations.csv", "episodes.csv", "metrics.csv")


def words(values: Mapping[str, object]) -> list[str]:
    """The words of --set."""
    return [f"{name}={value}" for name, value in values.items()]


def two_policies(out: Path) -> td7.Run:
    """A run of the seeds 2 and 5 over 80 steps that keeps the policies of steps 0, 40 and 80."""
    return td7.train(
        env="toys:Point-v0",
        seeds=[2, 5],
        steps=80,
        evaluate_every=40,
        evaluation_episodes=2,
        keep_policies=40,
        set=SMALL,
        quiet=True,
        out=str(out),
    )


def newest(run: Path) -> Path:
    """The folder of the newest snapshot."""
    return max(path for path in (run / "snapshot").iterdir() if path.name.isdigit())


def change_policy(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change policy.json, and its checksum with it."""
    data = policy_files.read_description(folder)
    change(data)
    policy_files.write_policies(folder, {n: v for n, v in data.items() if n != "weights"}, {})


def rows(run: Path, seed: int) -> Any:
    """A seed's replay rows in the newest snapshot, oldest first; none if it has a dataset."""
    members = json.loads((newest(run) / "members.json").read_text())
    if members["config"]["dataset"]:
        assert not (run / "snapshot" / "replay").exists()
        return np.empty(0)
    parts = [
        np.load(run / "snapshot" / name, allow_pickle=False)
        for name in members["shards"][str(seed)]
    ]
    added = members["rows_added"][members["seeds"].index(seed)]
    capacity = min(
        members["config"]["hyperparameters"]["replay_capacity"], members["config"]["steps"]
    )
    return np.concatenate(parts)[-min(added, capacity) :]


def results(run: Path) -> dict[str, bytes]:
    """The tables and the policies, byte for byte."""
    files = [*(run / name for name in TABLES), *(run / "policy").iterdir()]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def contents(run: Path) -> dict[str, Any]:
    """The results and the newest snapshot, without times and file names."""
    members = json.loads((newest(run) / "members.json").read_text())
    for name in ("seconds", "times", "versions", "shards"):
        del members[name]
    return {
        **results(run),
        "state": (newest(run) / "state.safetensors").read_bytes(),
        "members": members,
        "rows": {seed: rows(run, seed).tobytes() for seed in members["seeds"]},
    }


def all_contents(run: Path) -> dict[str, Any]:
    """The contents of a run, or the results of one with several processes and theirs."""
    folders = process_folders(run)
    if folders == [run]:
        return contents(run)
    return {**results(run), **{folder.name: contents(folder) for folder in folders}}


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The names of the contents that differ; a diff of the bytes would be long."""
    return [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]

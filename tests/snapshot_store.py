"""A small replay with snapshots, and ways to damage their files."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from td7.engine.replay import Replay
from td7.files import write_json
from td7.runs.snapshots import Snapshots
from td7.types import Float32, RowLayout

SEEDS = (3, 8)
CAPACITY = 10
LAYOUT = RowLayout(state_dim=2, action_dim=1)


class Store:
    """A replay of two seeds whose rows are numbered, and its snapshots."""

    def __init__(self, folder: Path, capacity: int = CAPACITY) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self.snapshots = Snapshots(folder, self.warnings.append)
        cpu = torch.device("cpu")
        self.replay = Replay(LAYOUT, capacity, len(SEEDS), cpu, torch.float32)

    def add(self, *counts: int) -> None:
        for member, count in enumerate(counts):
            begin = self.replay.added[member]
            self.replay.append(member, numbered(member, begin, begin + count))

    def save(self, value: float = 0.0) -> Path:
        tensors = {"float": torch.full((2, 3), value), "count": torch.tensor([1], dtype=torch.int8)}
        members = {"seeds": list(SEEDS), "value": value, "added": self.replay.added}
        return self.snapshots.save(tensors, members, self.replay)

    def again(self) -> "Store":
        """As another process finds it."""
        return Store(self.folder, self.replay.capacity)

    def resumed(self) -> "Store":
        """As another process continues it; its replay must have the rows of the snapshot."""
        other = self.again()
        loaded = other.snapshots.load()
        assert loaded is not None
        for member, seed in enumerate(SEEDS):
            added = loaded.members["added"][member]
            size = min(added, self.replay.capacity)
            parts = other.snapshots.rows(loaded, seed)
            ones = torch.ones(size, dtype=torch.float64)
            other.replay.restore(member, parts, added, ones, torch.tensor(1.0))
            expected = numbered(member, added - size, added)
            rows = other.replay.numbered_rows(member, added - size, added)
            np.testing.assert_array_equal(rows, expected)
        return other

    def value(self) -> float:
        loaded = self.snapshots.load()
        assert loaded is not None
        assert loaded.members["value"] == float(loaded.tensors["float"][0, 0])
        return float(loaded.members["value"])

    def files(self, pattern: str = "*/*") -> list[str]:
        """The files of the replay."""
        found = (self.folder / "replay").glob(pattern)
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def shards(self) -> list[str]:
        return self.files("*/*.npy")

    def groups(self) -> list[list[str]]:
        """The files that were written together, as the newest snapshot names them."""
        newest = max(path for path in self.folder.iterdir() if path.name.isdigit())
        manifest = json.loads((newest / "manifest.json").read_text())
        return [[parity, *shards] for parity, shards in manifest["parity"].items()]


def numbered(member: int, begin: int, end: int) -> Float32:
    numbers = np.arange(begin, end) + 1_000 * member
    return np.repeat(numbers[:, None], LAYOUT.width, axis=1).astype(np.float32)


# -- damage ----------------------------------------------------------------------------------------


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def clear(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "mine").write_text("mine\n")


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": empty,
    "truncated": cut,
    "one bit flipped": flip,
    "all zeros": clear,
    "longer": lengthen,
    "a folder": replace_by_folder,
}


def edit_manifest(snapshot: Path, change: Callable[[Any], object]) -> None:
    manifest = json.loads((snapshot / "manifest.json").read_text())
    changed = change(manifest)
    write_json(snapshot / "manifest.json", manifest if changed is None else changed)


def edit_members(snapshot: Path, change: Callable[[Any], object]) -> None:
    """Change members.json, and its checksum with it."""
    members = json.loads((snapshot / "members.json").read_text())
    change(members)
    digest = write_json(snapshot / "members.json", members)
    name = f"{snapshot.name}/members.json"
    edit_manifest(snapshot, lambda m: m["files"].update({name: digest._asdict()}))


def without_parity(folder: Path) -> None:
    """Make the snapshots what td7 wrote before it had parity."""
    for manifest in folder.glob("*/manifest.json"):
        data = json.loads(manifest.read_text())
        for parity in data.pop("parity"):
            del data["files"][parity]
        write_json(manifest, data)
    shutil.rmtree(folder / "replay" / "parity")

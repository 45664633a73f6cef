"""What parity costs: ten seeds' replay of Humanoid is saved with and without it, in turns.

python -m faults.parity_cost FOLDER [ROWS_PER_SEED]
"""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
import torch

from td7.engine.replay import Replay
from td7.runs.shards import ReplayWriter, _cut
from td7.runs.snapshots import Snapshots
from td7.types import RowLayout

SEEDS = list(range(10))
ROUNDS = 5
HUMANOID = RowLayout(state_dim=376, action_dim=17)

Append = Callable[[ReplayWriter], None]


def filled_replay(rows: int) -> Replay:
    replay = Replay(HUMANOID, rows, len(SEEDS), torch.device("cpu"), torch.float32)
    random = np.random.default_rng(0)
    for member in range(len(SEEDS)):
        replay.append(member, random.standard_normal((rows, HUMANOID.width), np.float32))
    return replay


def without_parity(writer: ReplayWriter) -> None:
    for shard in _cut([gap for seed in map(str, SEEDS) for gap in writer._gaps(seed)]):
        writer._write_shard(shard)


def save(folder: Path, replay: Replay, append: Append) -> tuple[float, float]:
    """Return the seconds of a first snapshot: elapsed, and of the processor."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    members = {"seeds": SEEDS, "added": replay.added}
    begin, used = time.perf_counter(), time.process_time()
    with patch.object(ReplayWriter, "_append", append):
        Snapshots(folder, print).save({"none": torch.zeros(1)}, members, replay)
    return time.perf_counter() - begin, time.process_time() - used


def load(folder: Path) -> float:
    """Return the seconds in which a snapshot is verified and its rows are read."""
    begin = time.perf_counter()
    snapshots = Snapshots(folder, print)
    loaded = snapshots.load()
    assert loaded is not None
    for seed in SEEDS:
        for _ in snapshots.rows(loaded, seed):
            pass
    return time.perf_counter() - begin


def main(folder: Path, rows: int = 40_000) -> None:
    replay = filled_replay(rows)
    size = replay.rows.nbytes / 1e9
    ways = {"with parity": ReplayWriter._append, "without": without_parity}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, append in ways.items():
            seconds[name].append(save(folder / name, replay, append))
    for name, pairs in seconds.items():
        elapsed, used = (median(each) / size for each in zip(*pairs, strict=True))
        total = sum(file.stat().st_size for file in (folder / name).rglob("*.*")) / 1e9
        print(f"{name}: {total:.3f} GB, {elapsed:.1f} s per GB, {used:.2f} s of the processor")
    whole = load(folder / "with parity")
    damaged = sorted((folder / "with parity" / "replay").rglob("*.npy"))[0]
    damaged.write_bytes(b"spoilt" + damaged.read_bytes()[6:])
    print(f"resume reads it in {whole:.1f} s; with {damaged.name} damaged ", end="")
    print(f"in {load(folder / 'with parity'):.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

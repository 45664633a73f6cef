"""Exact resume: what is saved, how, and how a damaged snapshot is found out.

    snapshot/000007/               one snapshot: state.safetensors, members.json, manifest.json
    snapshot/replay/seed-0/*.npy   replay rows by absolute number, written once, shared by snapshots
    snapshot/process-0/snapshot/   both, of one process, where a run has several

A snapshot is written under a temporary name, flushed, its manifest (with the SHA-256 of every file
it needs) last, then renamed to a new number. Older ones go only after the new one has been read
back and verified, so a kill at any moment leaves a good one.
"""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from torch import Tensor

from td7.engine.replay import Replay
from td7.errors import InputError, RunError
from td7.files import FileDigest, sync_folder, write, write_json
from td7.types import Float32

FORMAT = 3
EARLIER = {1, 2}
ROWS = (2, 3)  # formats whose rows are this one's: the weights lie otherwise in 2
KEPT = 2  # snapshots: the newest, and one to fall back on
UNREADABLE = (OSError, ValueError, KeyError, TypeError)  # what a damaged manifest may raise


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot holds besides the replay's rows."""

    tensors: dict[str, Tensor]
    members: dict[str, Any]  # host state: counters, row counts, everything that is not a tensor
    shards: dict[str, list[str]]  # seed: the files of its replay rows, oldest first


def process_folder(run: Path, number: int) -> Path:
    """Of a run in several processes, the folder of one."""
    return run / "snapshot" / f"process-{number}"


def process_folders(run: Path) -> list[Path]:
    """The folders that a run's snapshots are of: the run's own, or one a process."""
    return sorted(run.glob("snapshot/process-*")) or [run]


def has_snapshot(run: Path) -> bool:
    """Whether a run can go on from where it was."""
    return any(
        Snapshots(each / "snapshot", lambda _: None).exist() for each in process_folders(run)
    )


class Snapshots:
    """The snapshots of one run folder."""

    def __init__(
        self, folder: Path, warn: Callable[[str], None], formats: Collection[int] = (FORMAT,)
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._formats = formats  # that are good enough
        self._shards: dict[str, FileDigest] = {}  # those that the next snapshot builds on
        self._damaged: list[int] = []  # newer than the one that was loaded

    def save(
        self, tensors: Mapping[str, Tensor], members: Mapping[str, Any], replay: Replay
    ) -> Path:
        """Writes a new snapshot, verifies it, and removes what it makes superfluous."""
        self.folder.mkdir(exist_ok=True)
        for damaged in self._damaged:  # the run goes on without them
            self._set_aside(damaged)
        self._damaged = []
        trusted = set(self._shards)
        shards = {
            # Rows that all members share are the dataset's, which is there to be read again.
            str(seed): [] if replay.is_shared else self._append_shard(str(seed), member, replay)
            for member, seed in enumerate(members["seeds"])
        }
        number = max(self._numbers(), default=0) + 1
        final = self.folder / f"{number:06d}"
        aside = self.folder / f".{final.name}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        # Copies: safetensors refuses two names for one tensor, as of a checkpoint to be evaluated.
        own = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }
        seals = {
            f"{final.name}/state.safetensors": write(
                aside / "state.safetensors", safetensors.torch.save(own)
            ),
            f"{final.name}/members.json": write_json(
                aside / "members.json", {**members, "shards": shards}
            ),
            **{name: self._shards[name] for names in shards.values() for name in names},
        }
        files = {name: seal._asdict() for name, seal in seals.items()}
        write_json(aside / "manifest.json", {"format": FORMAT, "files": files})
        aside.rename(final)
        sync_folder(self.folder)
        if fault := self._fault(final, trusted):
            raise RunError(f"the snapshot just written to {final} does not read back: {fault}")
        self._prune()
        return final

    def exist(self) -> bool:
        """Whether one was ever finished."""
        return bool(self._numbers())

    def load(self) -> Snapshot | None:
        """The newest good snapshot, or nothing if none was ever finished; it changes no file."""
        formats = {_format(self.folder / f"{number:06d}") for number in self._numbers()}
        if formats and formats <= EARLIER - set(self._formats):
            raise InputError(
                f"{self.folder.parent} is of an earlier version of td7: its policies can be used, "
                f"but it cannot be gone on with (snapshots of format {max(formats)}, not {FORMAT})"
            )
        faults = []
        self._damaged = []
        for number in sorted(self._numbers(), reverse=True):
            folder = self.folder / f"{number:06d}"
            if fault := self._fault(folder):
                faults.append(f"{folder.name}: {fault}")
                self._warn(f"snapshot {folder.name} is damaged ({fault}); trying the one before")
                self._damaged.append(number)
                continue
            members = json.loads((folder / "members.json").read_text())
            tensors = safetensors.torch.load_file(folder / "state.safetensors")
            shards: dict[str, list[str]] = members.pop("shards")
            needed = {name for names in shards.values() for name in names}
            seals = _manifest(folder)
            self._shards = {name: seals[name] for name in needed}
            return Snapshot(tensors, members, shards)
        if faults:
            raise RunError(f"no usable snapshot in {self.folder}: {'; '.join(faults)}")
        return None

    def _set_aside(self, number: int) -> None:
        damaged = self.folder / f"{number:06d}"
        aside = self.folder / f"damaged-{damaged.name}"
        shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
        damaged.rename(aside)

    def rows(self, snapshot: Snapshot, seed: int) -> list[Float32]:
        """The replay's rows of a seed in parts, oldest first; the last ends at the newest row."""
        names = snapshot.shards[str(seed)]
        return [np.load(self.folder / name, allow_pickle=False) for name in names]

    def _numbers(self) -> list[int]:
        if not self.folder.exists():
            return []
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdigit()]

    def _append_shard(self, seed: str, member: int, replay: Replay) -> list[str]:
        """Writes the rows that came since the last shard; gives back all shards still needed."""
        added = replay.added[member]
        oldest = max(0, added - replay.capacity)
        mine = sorted(name for name in self._shards if name.startswith(f"replay/seed-{seed}/"))
        begin = max(oldest, *(_last_row(name) for name in mine), 0)
        if begin < added:
            name = f"replay/seed-{seed}/{begin:012d}-{added:012d}.npy"
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            rows = replay.rows[member, np.arange(begin, added) % replay.capacity].cpu().numpy()
            self._shards[name] = write(
                self.folder / name, lambda file: np.save(file, rows, allow_pickle=False)
            )
            mine.append(name)
        for name in [name for name in mine if _last_row(name) <= oldest]:
            mine.remove(name)
            del self._shards[name]
        return mine

    def _fault(self, folder: Path, trusted: Collection[str] = ()) -> str:
        """What is wrong with a snapshot, or nothing; `trusted` files are not read again."""
        try:
            seals = _manifest(folder)
        except UNREADABLE as error:
            return f"manifest.json: {type(error).__name__}: {error}"
        if (found := _format(folder)) not in self._formats:
            return f"manifest.json: format {found}"
        faults = (
            seal.mismatch(self.folder / name) for name, seal in seals.items() if name not in trusted
        )
        return next((fault for fault in faults if fault), "")

    def _prune(self) -> None:
        """Removes all but the newest snapshots, and files that none of them names."""
        keep = sorted(self._numbers())[-KEPT:]
        named: set[Path] = set()
        for number in keep:
            try:
                named.update(
                    self.folder / name for name in _manifest(self.folder / f"{number:06d}")
                )
            except UNREADABLE:  # the older one: that just written was read back
                self._set_aside(number)
        for path in self.folder.iterdir():
            obsolete = path.name.isdigit() and int(path.name) not in keep
            if obsolete or path.suffix == ".tmp":
                shutil.rmtree(path)
        for path in (self.folder / "replay").glob("*/*"):
            if path not in named:
                path.unlink()


def _manifest(folder: Path) -> dict[str, FileDigest]:
    manifest = json.loads((folder / "manifest.json").read_text())
    return {name: FileDigest(**seal) for name, seal in manifest["files"].items()}


def _format(folder: Path) -> int:
    """What its manifest says; 0 where that cannot be read."""
    try:
        found = json.loads((folder / "manifest.json").read_text())["format"]
    except UNREADABLE:
        return 0
    return found if isinstance(found, int) else 0


def _last_row(shard: str) -> int:
    """One past the last absolute row number, from the name."""
    return int(Path(shard).stem.partition("-")[2])

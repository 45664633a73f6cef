"""Snapshots of a run for an exact resume: how they are written, verified and read.

    snapshot/000007/               one snapshot: state.safetensors, members.json, manifest.json
    snapshot/replay/seed-0/*.npy   replay rows by absolute number, written once, shared by snapshots
    snapshot/process-0/snapshot/   both, per process, if a run has several

A snapshot is written under a temporary name, ending with the manifest (the SHA-256 of every file it
needs), flushed, and renamed to a new number. Older snapshots are deleted after the new one has been
read back and verified, so a good one survives a kill at any moment.
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
ROWS = (2, 3)  # formats whose replay rows can be read; 2 has another layout of the weights
KEPT = 2  # snapshots: the newest, and one in case it is damaged
UNREADABLE = (OSError, ValueError, KeyError, TypeError)  # what reading a damaged manifest raises


@dataclass(frozen=True)
class Snapshot:
    """The contents of a snapshot but for the replay's rows."""

    tensors: dict[str, Tensor]
    members: dict[str, Any]  # everything that is not a tensor, such as counters
    shards: dict[str, list[str]]  # the files of a seed's replay rows, oldest first


def process_folder(run: Path, number: int) -> Path:
    """Return the folder of one process of a run that has several."""
    return run / "snapshot" / f"process-{number}"


def process_folders(run: Path) -> list[Path]:
    """Return the folders whose snapshots make up the run's: the run folder, or one per process."""
    return sorted(run.glob("snapshot/process-*")) or [run]


def has_snapshot(run: Path) -> bool:
    """Whether a run can continue from a snapshot."""
    return any(
        Snapshots(folder / "snapshot", lambda _: None).exist() for folder in process_folders(run)
    )


class Snapshots:
    """The snapshots of one run, or of one of its processes."""

    def __init__(
        self, folder: Path, warn: Callable[[str], None], formats: Collection[int] = (FORMAT,)
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._formats = formats  # that `load` accepts
        self._shards: dict[str, FileDigest] = {}  # files that the next snapshot shares
        self._damaged: list[int] = []  # newer than the one that was loaded

    def save(
        self, tensors: Mapping[str, Tensor], members: Mapping[str, Any], replay: Replay
    ) -> Path:
        """Write a new snapshot, verify it, and delete the files that it supersedes."""
        self.folder.mkdir(exist_ok=True)
        for damaged in self._damaged:  # the run has continued from an older one
            self._set_aside(damaged)
        self._damaged = []
        trusted = set(self._shards)
        shards = {
            # Rows that all members share are the dataset's, which a resumed run reads again.
            str(seed): [] if replay.is_shared else self._append_shard(str(seed), member, replay)
            for member, seed in enumerate(members["seeds"])
        }
        number = max(self._numbers(), default=0) + 1
        final = self.folder / f"{number:06d}"
        aside = self.folder / f".{final.name}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        # safetensors refuses two names for one tensor, such as a checkpoint's that is evaluated.
        copies = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }
        digests = {
            f"{final.name}/state.safetensors": write(
                aside / "state.safetensors", safetensors.torch.save(copies)
            ),
            f"{final.name}/members.json": write_json(
                aside / "members.json", {**members, "shards": shards}
            ),
            **{name: self._shards[name] for names in shards.values() for name in names},
        }
        files = {name: digest._asdict() for name, digest in digests.items()}
        write_json(aside / "manifest.json", {"format": FORMAT, "files": files})
        aside.rename(final)
        sync_folder(self.folder)
        if fault := self._fault(final, trusted):
            raise RunError(f"the snapshot just written to {final} does not read back: {fault}")
        self._prune()
        return final

    def exist(self) -> bool:
        """Whether there is one, be it damaged."""
        return bool(self._numbers())

    def load(self) -> Snapshot | None:
        """Return the newest good snapshot, or None if there is none at all; change no file."""
        formats = {_format(self.folder / f"{number:06d}") for number in self._numbers()}
        if formats and formats <= EARLIER - set(self._formats):
            raise InputError(
                f"{self.folder.parent} is from an earlier version of td7: its policies can be "
                f"used, but it cannot be resumed (snapshots of format {max(formats)}, not {FORMAT})"
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
            digests = _manifest(folder)
            self._shards = {name: digests[name] for name in needed}
            return Snapshot(tensors, members, shards)
        if faults:
            raise RunError(f"no usable snapshot in {self.folder}: {'; '.join(faults)}")
        return None

    def _set_aside(self, number: int) -> None:
        damaged = self.folder / f"{number:06d}"
        aside = self.folder / f"damaged-{damaged.name}"
        shutil.rmtree(aside, ignore_errors=True)  # from an earlier resume
        damaged.rename(aside)

    def rows(self, snapshot: Snapshot, seed: int) -> list[Float32]:
        """Return a seed's replay rows in parts, from the oldest to the newest."""
        names = snapshot.shards[str(seed)]
        return [np.load(self.folder / name, allow_pickle=False) for name in names]

    def _numbers(self) -> list[int]:
        if not self.folder.exists():
            return []
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdigit()]

    def _append_shard(self, seed: str, member: int, replay: Replay) -> list[str]:
        """Write the rows that are newer than the last shard; return all shards still needed."""
        added = replay.added[member]
        oldest = max(0, added - replay.capacity)
        shards = sorted(name for name in self._shards if name.startswith(f"replay/seed-{seed}/"))
        begin = max(oldest, *(_last_row(name) for name in shards), 0)
        if begin < added:
            name = f"replay/seed-{seed}/{begin:012d}-{added:012d}.npy"
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            rows = replay.rows[member, np.arange(begin, added) % replay.capacity].cpu().numpy()
            self._shards[name] = write(
                self.folder / name, lambda file: np.save(file, rows, allow_pickle=False)
            )
            shards.append(name)
        for name in [name for name in shards if _last_row(name) <= oldest]:
            shards.remove(name)
            del self._shards[name]
        return shards

    def _fault(self, folder: Path, trusted: Collection[str] = ()) -> str:
        """Return what is wrong with a snapshot, or ""; `trusted` files are not read again."""
        try:
            digests = _manifest(folder)
        except UNREADABLE as error:
            return f"manifest.json: {type(error).__name__}: {error}"
        if (format := _format(folder)) not in self._formats:
            return f"manifest.json: format {format}"
        mismatches = (
            digest.mismatch(self.folder / name)
            for name, digest in digests.items()
            if name not in trusted
        )
        return next((mismatch for mismatch in mismatches if mismatch), "")

    def _prune(self) -> None:
        """Delete all but the newest snapshots, and the shards that none of them needs."""
        keep = sorted(self._numbers())[-KEPT:]
        needed: set[Path] = set()
        for number in keep:
            try:
                needed.update(
                    self.folder / name for name in _manifest(self.folder / f"{number:06d}")
                )
            except UNREADABLE:  # the older one: the newest has just been verified
                self._set_aside(number)
        for path in self.folder.iterdir():
            obsolete = path.name.isdigit() and int(path.name) not in keep
            if obsolete or path.suffix == ".tmp":
                shutil.rmtree(path)
        for path in (self.folder / "replay").glob("*/*"):
            if path not in needed:
                path.unlink()


def _manifest(folder: Path) -> dict[str, FileDigest]:
    manifest = json.loads((folder / "manifest.json").read_text())
    return {name: FileDigest(**digest) for name, digest in manifest["files"].items()}


def _format(folder: Path) -> int:
    """Return the format that the manifest states; 0 if it cannot be read."""
    try:
        format = json.loads((folder / "manifest.json").read_text())["format"]
    except UNREADABLE:
        return 0
    return format if isinstance(format, int) else 0


def _last_row(shard: str) -> int:
    """Return the absolute number after the shard's last row, from its name."""
    return int(Path(shard).stem.partition("-")[2])

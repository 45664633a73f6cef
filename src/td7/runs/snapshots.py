"""Snapshots of a run for an exact resume: how they are written, verified and read.

    snapshot/000007/               one snapshot: state.safetensors, members.json, manifest.json
    snapshot/replay/seed-0/*.npy   replay rows by absolute number, written once, shared by snapshots
    snapshot/replay/parity/*.xor   from which one damaged file per save is recovered (shards.py)
    snapshot/process-0/snapshot/   all of these, per process, if a run has several

A snapshot is written under a temporary name, ending with the manifest (the SHA-256 of every file it
needs), flushed, and renamed to a new number. Older snapshots are deleted after the new one has been
read back and verified, so a good one survives a kill at any moment. Files that it shares with older
ones must be there with the right size; what is missing is written again. On resume the newest
snapshot counts whose files are whole or can be recovered, and whose content fits the run.
"""

import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from td7.engine.replay import Replay
from td7.errors import InputError, RunError, one_line
from td7.files import FileDigest, sync_folder, write, write_json
from td7.runs.manifest import (
    FORMAT,
    MEMBERS,
    STATE,
    Manifest,
    Shard,
    SnapshotError,
    UnreadableError,
    read_format,
    read_object,
)
from td7.runs.shards import ReplayFiles, ReplayWriter
from td7.types import Float32

EARLIER = {1, 2}
ROWS = (2, 3)  # formats whose replay rows can be read; 2 has another layout of the weights
KEPT = 2  # snapshots: the newest, and one in case it is damaged


@dataclass(frozen=True)
class SeedRows:
    """Where the replay rows of a seed are: in consecutive shards, oldest first."""

    shards: list[Shard]
    width: int  # of a row; 0 if there is none

    @property
    def begin(self) -> int:
        """The absolute number of the first row."""
        return self.shards[0].begin if self.shards else 0

    @property
    def end(self) -> int:
        return self.shards[-1].end if self.shards else 0


@dataclass(frozen=True)
class Snapshot:
    """The contents of a snapshot but for the replay's rows."""

    tensors: dict[str, Tensor]
    members: dict[str, Any]  # everything that is not a tensor, such as counters
    rows: dict[int, SeedRows]  # by seed


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


def lacks_snapshot(run: Path, processes: int) -> bool:
    """Whether some of a run's processes, or the run if it has one, begins anew."""
    folders = [process_folder(run, i) for i in range(processes)] if processes > 1 else [run]
    return not all(map(has_snapshot, folders))


def check_processes(run: Path, processes: int) -> None:
    """Raise if the run's snapshots are those of another number of processes."""
    found = sum(folder != run for folder in process_folders(run)) or 1
    if found != processes and has_snapshot(run):
        raise InputError(
            f"{run / 'config.json'} says that {processes} processes train the run, but there are "
            f"snapshots of {found}; put back what is missing"
        )


class Snapshots:
    """The snapshots of one run, or of one of its processes."""

    def __init__(
        self,
        folder: Path,
        warn: Callable[[str], None],
        formats: Collection[int] = (FORMAT,),
        *,
        reads_rows: bool = True,
    ) -> None:
        self.folder = folder
        self._warn = warn
        self._formats = formats  # that `load` accepts
        self._reads_rows = reads_rows  # or else `load` needs no files of replay rows
        self._replay = ReplayFiles(folder)  # of the newest snapshot, which the next one shares
        self._damaged: list[int] = []  # newer than the one that was loaded

    def save(
        self, tensors: Mapping[str, Tensor], members: Mapping[str, Any], replay: Replay
    ) -> Path:
        """Write a new snapshot, verify it, and delete the files that it supersedes."""
        self.folder.mkdir(exist_ok=True)
        for damaged in self._damaged:  # the run has continued from an older one
            self._set_aside(damaged)
        self._damaged = []
        number = max(self._numbers(), default=0) + 1
        # Rows that all members share are the dataset's, which a resumed run reads again.
        seeds = [] if replay.is_shared else members["seeds"]
        writer = ReplayWriter(self._replay, replay, seeds, number)
        writer.update()
        shards = {str(seed): writer.shards(str(seed)) if seeds else [] for seed in members["seeds"]}
        final = self.folder / f"{number:06d}"
        aside = self.folder / f".{final.name}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        # safetensors refuses two names for one tensor, such as a checkpoint's that is evaluated.
        copies = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }
        own = {
            STATE: write(aside / STATE, safetensors.torch.save(copies)),
            MEMBERS: write_json(aside / MEMBERS, {**members, "shards": shards}),
        }
        Manifest(own, writer.files.digests, writer.files.groups).write(aside, final.name)
        aside.rename(final)
        sync_folder(self.folder)
        if fault := self._written_fault(final, writer.written):
            raise RunError(f"the snapshot just written to {final} cannot be read back: {fault}")
        self._replay = writer.files
        self._prune(number)
        return final

    def exist(self) -> bool:
        """Whether there is one, be it damaged."""
        return bool(self._numbers())

    def load(self, check: Callable[[Snapshot], None] = lambda _: None) -> Snapshot | None:
        """Return the newest good snapshot, or None if there is none at all; change no file.

        `check` raises SnapshotError for one whose content does not fit, caused by an InputError if
        a file of the user is to blame.
        """
        numbers = sorted(self._numbers(), reverse=True)
        formats = {read_format(self._path(number)) for number in numbers}
        if formats and formats <= EARLIER - set(self._formats):
            raise InputError(
                f"{self.folder.parent} is from an earlier version of td7: its policies can be "
                f"used, but it cannot be resumed (snapshots of format {max(formats)}, not {FORMAT})"
            )
        faults = []
        kind: type[Exception] = RunError
        verified: dict[tuple[str, FileDigest], str] = {}  # most files belong to several snapshots
        for i, number in enumerate(numbers):
            path = self._path(number)
            try:
                snapshot, self._replay = self._open(path, verified)
                check(snapshot)
            except SnapshotError as error:
                faults.append(f"{path.name}: {error}")
                kind = InputError if isinstance(error.__cause__, InputError) else RunError
                if i + 1 < len(numbers):
                    self._warn(f"snapshot {path.name} is damaged ({error}); trying the one before")
                continue
            self._damaged = numbers[:i]
            self._report_recovery(snapshot)
            return snapshot
        if faults:
            raise kind(f"no usable snapshot in {self.folder}: {'; '.join(faults)}")
        return None

    def rows(self, snapshot: Snapshot, seed: int) -> list[Float32]:
        """Return a seed's replay rows in parts, from the oldest to the newest."""
        rows = snapshot.rows[seed]
        return [self._replay.read(shard, rows.width) for shard in rows.shards]

    def _open(
        self, path: Path, verified: dict[tuple[str, FileDigest], str]
    ) -> tuple[Snapshot, ReplayFiles]:
        manifest = Manifest.read(path)
        if (format := read_format(path)) not in self._formats:
            raise SnapshotError(f"manifest.json: format {format}")
        for name, digest in manifest.own.items():
            if fault := digest.mismatch(path / name):
                raise SnapshotError(fault)
        files = ReplayFiles(self.folder, manifest.replay, manifest.groups)
        if self._reads_rows:
            files.verify(verified)
        members = read_object(path / MEMBERS)
        try:
            tensors = safetensors.torch.load_file(path / STATE)
        except (SafetensorError, ValueError, KeyError) as error:
            raise SnapshotError(f"{STATE}: {one_line(error)}") from None
        if not self._reads_rows:
            return Snapshot(tensors, members, {}), files
        rows = _seed_rows(files, members.get("seeds"), members.pop("shards", None))
        return Snapshot(tensors, members, rows), files

    def _report_recovery(self, snapshot: Snapshot) -> None:
        """Say which files were damaged; the next snapshot has them again."""
        needed = {shard.name for rows in snapshot.rows.values() for shard in rows.shards}
        for name, fault in self._replay.faults.items():
            outcome = "its rows were recovered" if name in needed else "no row is lost"
            self._warn(f"{fault}; {outcome}, and the next snapshot replaces it")

    def _numbers(self) -> list[int]:
        if not self.folder.exists():
            return []
        names = [path.name for path in self.folder.iterdir()]
        numbers = [int(name) for name in names if re.fullmatch("[0-9]{6,18}", name)]
        return [number for number in numbers if self._path(number).name in names]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _set_aside(self, number: int) -> None:
        aside = self.folder / f"damaged-{number:06d}"
        shutil.rmtree(aside, ignore_errors=True)  # from an earlier resume
        self._path(number).rename(aside)

    def _written_fault(self, path: Path, written: Collection[str]) -> str:
        """Return what is wrong with a snapshot just written, or ""; shared files are not read."""
        try:
            manifest = Manifest.read(path)
        except SnapshotError as error:
            return str(error)
        own = {path / name: digest for name, digest in manifest.own.items()}
        new = {self.folder / name: manifest.replay[name] for name in written}
        faults = (digest.mismatch(file) for file, digest in {**own, **new}.items())
        return next((fault for fault in faults if fault), "")

    def _prune(self, newest: int) -> None:
        """Delete all but the newest snapshots, and the shards that none of them needs.

        Nothing is deleted while the disk does not return what the older ones need.
        """
        keep = sorted(self._numbers())[-KEPT:]
        needed = {self.folder / name for name in self._replay.digests}
        for number in keep:
            if number == newest:  # it has just been verified
                continue
            try:
                manifest = Manifest.read(self._path(number))
            except UnreadableError:
                return
            except SnapshotError:
                self._set_aside(number)
            else:
                needed.update(self.folder / name for name in manifest.replay)
        for number in self._numbers():
            if number not in keep:
                shutil.rmtree(self._path(number))
        for path in (*self.folder.glob(".*.tmp"), *(self.folder / "replay").glob("*/*")):
            if path not in needed:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _seed_rows(files: ReplayFiles, seeds: object, listed: object) -> dict[int, SeedRows]:
    """Return where each seed's rows are, as `listed` in members.json."""
    if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        raise SnapshotError(f"{MEMBERS}: 'seeds' is not a list of numbers")
    if not isinstance(listed, dict) or listed.keys() != {str(seed) for seed in seeds}:
        raise SnapshotError(f"{MEMBERS}: 'shards' does not have the seeds")
    names = files.digests.keys() - files.groups.keys()
    if others := {Shard.named(name).seed for name in names} - listed.keys():
        raise SnapshotError(f"manifest.json has rows of seed {min(others)}")
    return {seed: _rows_of(files, str(seed), listed[str(seed)]) for seed in seeds}


def _rows_of(files: ReplayFiles, seed: str, listed: object) -> SeedRows:
    there = files.shards(seed)
    if not isinstance(listed, list) or len(listed) > len(there):
        raise SnapshotError(f"manifest.json lacks files of seed {seed}'s rows")
    # Older ones are kept for the sake of their groups.
    shards = there[len(there) - len(listed) :]
    if [shard.name for shard in shards] != listed:
        raise SnapshotError(f"manifest.json lacks files of seed {seed}'s rows")
    if any(a.end > b.begin for a, b in pairwise(there)):
        raise SnapshotError(f"manifest.json: rows of seed {seed} are in several files")
    if any(a.end < b.begin for a, b in pairwise(shards)):
        raise SnapshotError(f"{MEMBERS}: rows of seed {seed} are missing")
    widths = {files.check(shard) for shard in shards}
    if len(widths) > 1:
        raise SnapshotError(f"rows of seed {seed} have several widths")
    return SeedRows(shards, max(widths, default=0))

"""The replay's rows on disk, with enough redundancy to rebuild one damaged file of a group.

A save writes the rows that are new since the last one, of all seeds, as shards of about the same
size: PIECES of them, or one per seed if there are more seeds. These shards are a group, and the
XOR of their bytes is its parity file. Any file of a group can be rebuilt from all others, so a
shard is kept until the replay needs no row of its group.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td7.engine.replay import Replay
from td7.errors import RunError
from td7.files import FileDigest, sync_folder, write
from td7.runs.manifest import Shard, SnapshotError, parity_name
from td7.runs.parity import Parity, ParityWriter, rebuild
from td7.types import Float32

PIECES = 16  # the parity file has about 1 / PIECES of a group's bytes
LONGEST_HEADER = 256  # bytes
# What `np.save` writes before rows [n, width].
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f4', 'fortran_order': False, "
    rb"'shape': \(([0-9]{1,18}), ([0-9]{1,9})\), \} *\n",
    re.DOTALL,
)


class ReplayFiles:
    """The shards and parity files that a snapshot needs, and what is wrong with some of them."""

    def __init__(
        self,
        folder: Path,
        digests: Mapping[str, FileDigest] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.folder = folder
        self.digests = dict(digests or {})  # by path below the folder
        self.groups = dict(groups or {})  # the shards of a parity file
        self.faults: dict[str, str] = {}  # of damaged files

    def shards(self, seed: str) -> list[Shard]:
        """Return a seed's shards from the oldest to the newest."""
        names = self.digests.keys() - self.groups.keys()
        return sorted(shard for shard in map(Shard.named, names) if shard.seed == seed)

    def verify(self, known: MutableMapping[tuple[str, FileDigest], str]) -> None:
        """Read all files and note what is wrong with them; `known` has the faults of some."""
        for item in self.digests.items():
            name, digest = item
            if item not in known:
                fault = digest.mismatch(self.folder / name)
                known[item] = fault and f"{Path(name).parent}/{fault}"
            if known[item]:
                self.faults[name] = known[item]

    def check(self, shard: Shard) -> int:
        """Raise SnapshotError if a shard's rows cannot be read; return the width of a row."""
        if shard.name in self.faults:
            start = bytes(self._recovered(shard.name)[:LONGEST_HEADER])
        else:
            with (self.folder / shard.name).open("rb") as file:
                start = file.read(LONGEST_HEADER)
        header = HEADER.match(start)
        rows, width = (int(header[1]), int(header[2])) if header else (0, 0)
        size = header.end() + 4 * rows * width if header else 0
        if rows != shard.end - shard.begin or size != self.digests[shard.name].bytes:
            raise SnapshotError(f"{shard.name} does not hold the rows that its name states")
        return width

    def read(self, shard: Shard, width: int) -> Float32:
        """Return a shard's rows, which are recovered if its file is damaged."""
        size = 4 * width * (shard.end - shard.begin)
        begin = self.digests[shard.name].bytes - size
        if shard.name in self.faults:
            rows = np.frombuffer(self._recovered(shard.name), np.float32, offset=begin)
        else:
            rows = np.fromfile(self.folder / shard.name, np.float32, offset=begin)
        if rows.nbytes != size:
            raise RunError(f"{self.folder / shard.name} changed while it was read")
        return rows.reshape(-1, width)

    def _recovered(self, name: str) -> bytearray:
        """Return the content of a damaged shard, from all other files of its group."""
        files = next(((p, *group) for p, group in self.groups.items() if name in group), None)
        if files is None:
            raise SnapshotError(self.faults[name])
        others = [other for other in files if other != name]
        if damaged := [self.faults[other] for other in others if other in self.faults]:
            raise SnapshotError(f"{self.faults[name]}, and {damaged[0]}")
        content = rebuild([self.folder / other for other in others], self.digests[name].bytes)
        if not self.digests[name].fits(content):
            raise SnapshotError(f"{self.faults[name]}, and its parity file does not fit")
        return content


class _Ring(NamedTuple):
    """The rows in a member's replay, by absolute number."""

    member: int
    begin: int
    end: int


class ReplayWriter:
    """Makes the files of one snapshot into those of the next."""

    def __init__(
        self, before: ReplayFiles, replay: Replay, seeds: Iterable[int], number: int
    ) -> None:
        """`number`: of the next snapshot."""
        self.files = ReplayFiles(before.folder, before.digests, before.groups)
        self.written: set[str] = set()
        self._replay = replay
        self._number = number
        self._parity_files = 0  # written so far
        self._rings = {
            str(seed): _Ring(m, max(0, replay.added[m] - replay.capacity), replay.added[m])
            for m, seed in enumerate(seeds)
        }
        self._missing = {
            name
            for name, digest in before.digests.items()
            if name in before.faults or not digest.may_fit(before.folder / name)
        }

    def update(self) -> None:
        self._drop_obsolete()
        for group in self._rewrite_missing():
            self._write_group_again(group)
        self._append()

    def shards(self, seed: str) -> list[str]:
        """Return the files of the rows in a seed's replay, from the oldest to the newest."""
        return [shard.name for shard in self.files.shards(seed) if self._is_needed(shard)]

    def _is_needed(self, shard: Shard) -> bool:
        return shard.seed in self._rings and shard.end > self._rings[shard.seed].begin

    def _drop_obsolete(self) -> None:
        """Drop groups, and shards of none, that the replay needs no row of."""
        digests, groups = self.files.digests, self.files.groups
        alone = (
            digests.keys() - groups.keys() - {name for group in groups.values() for name in group}
        )
        for parity, group in [*groups.items(), *(("", [name]) for name in alone)]:
            if not any(self._is_needed(Shard.named(name)) for name in group):
                groups.pop(parity, None)
                for name in (parity, *group):
                    digests.pop(name, None)

    def _rewrite_missing(self) -> list[str]:
        """Write missing shards as they were; return the parity files that no longer fit.

        A shard whose rows are not all in the replay any more is dropped.
        """
        digests, groups = self.files.digests, self.files.groups
        changed = self._missing & digests.keys()
        for name in sorted(changed - groups.keys()):
            shard, before = Shard.named(name), digests.pop(name)
            if self._is_needed(shard) and shard.begin >= self._rings[shard.seed].begin:
                self._write_shard(shard)
                if digests[name] == before:
                    changed.remove(name)
        return [name for name, group in groups.items() if not changed.isdisjoint((name, *group))]

    def _write_group_again(self, parity: str) -> None:
        """Replace a parity file by one of the shards that are left, if any of them is needed.

        The new one has another name, as the snapshot before may need the old one.
        """
        digests = self.files.digests
        digests.pop(parity)
        left = [name for name in self.files.groups.pop(parity) if name in digests]
        if any(self._is_needed(Shard.named(name)) for name in left):
            total = Parity()
            for name in left:
                total.add_file(self.files.folder / name)
            self._write_parity(total, left)
        else:
            for name in left:
                del digests[name]

    def _append(self) -> None:
        """Write the rows that no shard holds, in one group."""
        total = Parity()
        shards = list(_cut([gap for seed in self._rings for gap in self._gaps(seed)]))
        for shard in shards:
            self._write_shard(shard, total)
        if shards:
            self._write_parity(total, [shard.name for shard in shards])

    def _gaps(self, seed: str) -> Iterator[Shard]:
        """Yield the ranges of a seed's rows that no shard holds."""
        _, row, end = self._rings[seed]
        for shard in self.files.shards(seed):
            if shard.begin > row:
                yield Shard(seed, row, shard.begin)
            row = max(row, shard.end)
        if row < end:
            yield Shard(seed, row, end)

    def _write_shard(self, shard: Shard, total: Parity | None = None) -> None:
        member = self._rings[shard.seed].member
        rows = self._replay.numbered_rows(member, shard.begin, shard.end)
        self._write(
            shard.name,
            lambda file: np.save(file if total is None else ParityWriter(file, total), rows),
        )

    def _write_parity(self, total: Parity, shards: Sequence[str]) -> None:
        name = parity_name(self._number, self._parity_files)
        self._parity_files += 1
        self._write(name, lambda file: file.write(total.content))
        self.files.groups[name] = shards

    def _write(self, name: str, content: Callable[[Any], object]) -> None:
        path = self.files.folder / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            sync_folder(path.parent.parent)
        if path.is_dir():  # in the place of a file
            shutil.rmtree(path)
        self.files.digests[name] = write(path, content)
        self.written.add(name)


def _cut(ranges: Sequence[Shard]) -> Iterator[Shard]:
    """Yield parts of about the same size: PIECES, or more if there are many ranges."""
    largest = -(-sum(end - begin for _, begin, end in ranges) // PIECES)
    for seed, begin, end in ranges:
        parts = -(-(end - begin) // largest)
        bounds = [begin + (end - begin) * i // parts for i in range(parts + 1)]
        for part in pairwise(bounds):
            yield Shard(seed, *part)

"""A snapshot's manifest: every file that it needs, with its checksum, and what parity protects."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from td7.errors import InputError
from td7.files import FileDigest, read_json, write_json

FORMAT = 3
MANIFEST, MEMBERS, STATE = "manifest.json", "members.json", "state.safetensors"
_SHARD = re.compile(r"replay/seed-([0-9]{1,99})/([0-9]{12,99})-([0-9]{12,99})\.npy")
_PARITY = re.compile(r"replay/parity/[0-9]{6,}-[0-9]+\.xor")


class SnapshotError(Exception):
    """What is wrong with one snapshot, on one line; the one before it may be good."""


class UnreadableError(SnapshotError):
    """The disk does not return a file, which may be good."""


class Shard(NamedTuple):
    """A file of a seed's replay rows, from one absolute number to another."""

    seed: str
    begin: int
    end: int

    @property
    def name(self) -> str:
        """Its path below the folder of the snapshots."""
        return f"replay/seed-{self.seed}/{self.begin:012d}-{self.end:012d}.npy"

    @classmethod
    def named(cls, name: object) -> "Shard":
        match = _SHARD.fullmatch(name) if isinstance(name, str) else None
        shard = match and cls(match[1], int(match[2]), int(match[3]))
        if not shard or shard.name != name or shard.begin >= shard.end:
            raise SnapshotError(f"{name!r:.99} is not the name of a file of replay rows")
        return shard


def parity_name(number: int, group: int) -> str:
    """The path of a parity file that snapshot `number` was the first to need."""
    return f"replay/parity/{number:06d}-{group}.xor"


@dataclass(frozen=True)
class Manifest:
    """Paths are below the folder of the snapshots."""

    own: Mapping[str, FileDigest]  # members.json and state.safetensors, by name
    replay: Mapping[str, FileDigest]  # shards and parity files, by path
    groups: Mapping[str, Sequence[str]]  # the shards whose XOR a parity file is, by its path

    def write(self, folder: Path, number: str) -> None:
        """Write it to a snapshot's folder, which will have the name `number`."""
        own = {f"{number}/{name}": digest for name, digest in self.own.items()}
        files = {name: digest._asdict() for name, digest in {**own, **self.replay}.items()}
        data = {"format": FORMAT, "files": files, "parity": self.groups}
        write_json(folder / MANIFEST, data)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read that of the snapshot in `folder`; raise SnapshotError for anything unexpected."""
        data = read_object(folder / MANIFEST)
        files = {
            name: _digest(name, entry) for name, entry in _mapping(data, "files", dict).items()
        }
        own = {}
        for name in (MEMBERS, STATE):
            if (path := f"{folder.name}/{name}") not in files:
                raise SnapshotError(f"{MANIFEST} does not name {path}")
            own[name] = files.pop(path)
        groups = _mapping(data, "parity", list)
        shards = [Shard.named(name).name for group in groups.values() for name in group]
        if len(set(shards)) < len(shards):
            raise SnapshotError(f"{MANIFEST} names a file of replay rows in several groups")
        for name in groups:
            if not _PARITY.fullmatch(name):
                raise SnapshotError(f"{MANIFEST}: {name!r:.99} is not the name of a parity file")
        for name in (*groups, *shards):
            if name not in files:
                raise SnapshotError(f"{MANIFEST} does not name {name}")
        for name in files.keys() - groups.keys():
            Shard.named(name)
        return cls(own, files, groups)


def read_format(folder: Path) -> int:
    """Return the format that the manifest states; 0 if it cannot be read."""
    try:
        format = read_object(folder / MANIFEST).get("format")
    except SnapshotError:
        return 0
    return format if type(format) is int else 0


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file of a snapshot holds."""
    try:
        data: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise SnapshotError(f"{path.name} is missing") from None
    except InputError as error:
        kind = UnreadableError if isinstance(error.__cause__, OSError) else SnapshotError
        raise kind(str(error).replace(str(path), path.name)) from None
    return data


def _mapping(data: Mapping[str, Any], key: str, kind: type) -> dict[str, Any]:
    """Return an object of the manifest whose values are all of a type; {} if there is none."""
    value = data.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(v, kind) for v in value.values()):
        raise SnapshotError(f"{MANIFEST}: {key!r} is not as td7 writes it")
    return value


def _digest(name: str, entry: Mapping[str, Any]) -> FileDigest:
    sha256, size = entry.get("sha256"), entry.get("bytes")
    if len(entry) != 2 or not isinstance(sha256, str) or type(size) is not int:
        raise SnapshotError(f"{MANIFEST}: the checksum of {name!r:.99} is not as td7 writes it")
    return FileDigest(sha256, size)

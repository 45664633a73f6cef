"""Files that survive a crash: written under another name, flushed to disk, renamed into place."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple

from td7.errors import InputError


class FileDigest(NamedTuple):
    """What a file should hold, computed from the data in memory and not from the disk."""

    sha256: str
    bytes: int

    def mismatch(self, path: Path) -> str:
        """Return how the file differs from this, or an empty string."""
        try:
            if path.stat().st_size != self.bytes:
                return f"{path.name} has {path.stat().st_size} bytes, not {self.bytes}"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return f"{path.name} does not have the SHA-256 of its manifest"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:  # a failing disk
            return f"{path.name} cannot be read: {error.strerror}"
        return ""


class _HashingWriter:
    """Writes to a file and hashes what it writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def digest(self) -> FileDigest:
        return FileDigest(self._hash.hexdigest(), self._bytes)


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn an OSError into an InputError that names `path` and not a temporary file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Raise an InputError if the folder of `path` is not writable: before hours of work."""
    with writing_to(path), TemporaryFile(dir=path.parent):
        pass


def write(path: Path, content: bytes | Callable[[Any], None]) -> FileDigest:
    """Write a file atomically: after a crash it holds either its old or its new content.

    A callable `content` receives an object with a method `write` for bytes.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            writer = _HashingWriter(file)
            if isinstance(content, bytes):
                writer.write(content)
            else:
                content(writer)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # the error of a full disk names no file
        raise
    sync_folder(path.parent)
    return writer.digest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def write_json(path: Path, data: Any) -> FileDigest:
    return write(path, as_json(data))


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

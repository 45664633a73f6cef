"""Files that survive a crash: written aside, flushed to the disk, then renamed into place."""

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
    """What a file should hold, taken from what was meant to be written and not from the disk."""

    sha256: str
    bytes: int

    def mismatch(self, path: Path) -> str:
        """What is wrong with the file, or nothing."""
        try:
            if path.stat().st_size != self.bytes:
                return f"{path.name} has {path.stat().st_size} bytes, not {self.bytes}"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                    return f"{path.name} does not have the SHA-256 of its manifest"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:  # a disk that does not give back what it took
            return f"{path.name} cannot be read: {error.strerror}"
        return ""


class _HashingWriter:
    """Writes through to a file and hashes what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def seal(self) -> FileDigest:
        return FileDigest(self._hash.hexdigest(), self._bytes)


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """What a disk refuses, by the name that was given and not by one written aside."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """Before hours are spent on what shall be written there."""
    with writing_to(path), TemporaryFile(dir=path.parent):
        pass


def write(path: Path, content: bytes | Callable[[Any], None]) -> FileDigest:
    """`path` holds either what it held before or all of `content`, whatever happens meanwhile.

    A callable is given an object to `write` bytes to.
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        with aside.open("wb") as file:
            sealing = _HashingWriter(file)
            if isinstance(content, bytes):
                sealing.write(content)
            else:
                content(sealing)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say for which file
        raise
    sync_folder(path.parent)
    return sealing.seal()


def write_json(path: Path, data: Any) -> FileDigest:
    return write(path, (json.dumps(data, indent=2) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files that survive a crash: written under another name, flushed to disk, renamed into place.

A folder may come from a stranger: nothing is read or written through a link in it.
"""

import errno
import hashlib
import json
import os
import reprlib
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, chdir, contextmanager, suppress
from errno import ENAMETOOLONG
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar

from td7.errors import InputError, one_line

SEAL = "sha256"  # in a JSON object, of everything else in it
IN_USE = "is in use by another td7 process"  # the error of a process that finds a folder locked
T = TypeVar("T")
JSON_NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}

LONGEST_NAME = 255  # bytes; of nearly all file systems


class FileDigest(NamedTuple):
    """What a file should hold, computed from the data in memory and not from the disk."""

    sha256: str
    bytes: int

    @classmethod
    def of(cls, path: Path) -> "FileDigest":
        """Return what a file holds now."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return cls(sha256, os.fstat(file.fileno()).st_size)

    def fits(self, content: bytearray) -> bool:
        """Whether a file with this content would be right."""
        return self == FileDigest(hashlib.sha256(content).hexdigest(), len(content))

    def may_fit(self, path: Path) -> bool:
        """Whether a file is there and has the right size; its content is not read."""
        try:
            status = path.lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == self.bytes

    def mismatch(self, path: Path) -> str:
        """Return how the file differs from this, or an empty string."""
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                return f"{path.name} is not a file"
            if status.st_size != self.bytes:
                return f"{path.name} has {status.st_size} bytes, not {self.bytes}"
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


def shown(path: Path) -> Path:
    """Return a path as messages name it: from the working folder, if it is in it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def make_folder(path: Path) -> None:
    """Create a folder that the user named, with its parents; if it cannot be, create nothing."""
    with writing_to(path):
        if any(len(os.fsencode(name)) > LONGEST_NAME for name in path.parts):
            raise OSError(ENAMETOOLONG, os.strerror(ENAMETOOLONG))
        path.mkdir(parents=True, exist_ok=True)


def working_folder_kept() -> AbstractContextManager[None]:
    """A block that calls a task's code, which may change the working folder: it is as before after.

    Within, only absolute paths mean what the user meant.
    """
    return chdir(".")


def check_writable(path: Path) -> None:
    """Raise an InputError if the folder of `path` is not writable: before hours of work."""
    with writing_to(path), TemporaryFile(dir=path.parent):
        pass


@contextmanager
def temporary_file(path: Path, suffix: str = ".tmp") -> Iterator[Path]:
    """Give a new, empty file beside `path`; rename it to `path` unless an error is raised.

    A link of either name is replaced, and what it refers to stays as it is.
    """
    temporary = path.with_name(f".{path.name}{suffix}")
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed
        temporary.open("xb").close()
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        # The error of a full disk names no file, and nobody knows the temporary one.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def write(path: Path, content: bytes | Callable[[Any], object]) -> FileDigest:
    """Write a file atomically: after a crash it holds either its old or its new content.

    A callable `content` receives an object with a method `write` for bytes.
    """
    with temporary_file(path) as temporary, temporary.open("r+b") as file:
        writer = _HashingWriter(file)
        if isinstance(content, bytes):
            writer.write(content)
        else:
            content(writer)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return writer.digest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def write_json(path: Path, data: Any) -> FileDigest:
    return write(path, as_json(data))


def write_sealed(path: Path, data: Mapping[str, Any]) -> FileDigest:
    """Write a JSON object with its own SHA-256, which `read_sealed` checks."""
    return write_json(path, {**data, SEAL: _digest(data)})


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable, where folders can be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_for_appending(path: Path) -> FileIO:
    """Open a file that has no other name, neither a link nor a hard link."""
    file = open(path, "ab", buffering=0, opener=_without_links)  # noqa: SIM115  # its user closes it
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise OSError(errno.EMLINK, "it has hard links", str(path))
    return file


def _without_links(path: str, flags: int) -> int:
    """Open a file for `open`: not through a link, and without waiting at a FIFO."""
    if os.name == "nt":  # has neither flag
        return os.open(path, flags, 0o666)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file without waiting; False: another one holds the lock.

    The operating system releases it when the file is closed, and when the process ends.
    """
    from filelock import lock_descriptor  # late: workers import this module

    return lock_descriptor(file.fileno(), blocking=False)


class FolderLock:
    """Keeps other td7 processes from writing to a folder until it is closed."""

    def __init__(self, folder: Path) -> None:
        with writing_to(folder):
            file = folder / ".lock"
            self._file = open(file, "a+", opener=_without_links)  # noqa: SIM115  # see `close`
            if not try_lock(self._file):
                self._file.close()
                raise InputError(f"{folder} {IN_USE}")

    def close(self) -> None:
        self._file.close()


# -- what is read ----------------------------------------------------------------------------------


def read_json(path: Path, kind: type = dict) -> Any:
    """Return what a JSON file holds: an object or, if `kind` is list, a list.

    An InputError says in one line what is wrong with it. FileNotFoundError: there is no such file.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(data, ensure_ascii=False).encode()  # raises for text that no file can hold
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged: {one_line(error)}") from None
    except RecursionError:
        raise InputError(f"{path} is damaged: it is nested too deeply") from None
    if not isinstance(data, kind):
        given, wanted = JSON_NAMES[type(data)], JSON_NAMES[kind]
        raise InputError(f"{path} is damaged: it holds {given}, not {wanted}")
    return data


def read_sealed(path: Path, newest: str = "") -> dict[str, Any]:
    """Like `read_json` of an object, whose SHA-256 must be right if it states one.

    Objects from before there were seals state none; one with the field `newest` is not from then.
    """
    data: dict[str, Any] = read_json(path)
    stated = data.pop(SEAL, None)
    if stated is None and newest in data:
        raise InputError(f"{path} is damaged: it has no {SEAL!r}")
    if stated not in (None, _digest(data)):
        raise InputError(f"{path} is damaged: it does not have the SHA-256 that it states")
    return data


def typed(name: str, value: Any, kind: type[T]) -> T:
    """Return a value of a JSON file, which must be of a type."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {JSON_NAMES[kind]}, given {reprlib.repr(value)}")
    return value


def check_no_links(folder: Path) -> None:
    """Raise for a link or a special file anywhere below a folder, which itself may be a link."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                modes = {Path(e.path): e.stat(follow_symlinks=False).st_mode for e in entries}
        except OSError:  # not a folder, or a run that is under way has just changed it
            continue
        for path, mode in modes.items():
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif not stat.S_ISREG(mode):
                raise _special_file(path, mode)


def check_no_link(path: Path) -> None:
    """Likewise for a path itself, if there is such a file."""
    if path.is_symlink():
        raise _special_file(path, path.lstat().st_mode)


def _special_file(path: Path, mode: int) -> InputError:
    kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
    return InputError(f"{path} is {kind}, which td7 does not follow, read or replace")

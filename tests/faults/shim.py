"""The preloaded library that makes chosen file operations of a process fail: shim.c."""

import ctypes
import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

FILE_SIZE = "FAULT_FILE_SIZE"  # the variable of the size that no file may exceed, in bytes
SOURCE = Path(__file__).with_name("shim.c")
_FOLDER = TemporaryDirectory(prefix="td7-shim-")  # for as long as processes may load it


@dataclass(frozen=True)
class Fault:
    """The operation that fails, counted from 1 in each process."""

    operation: str  # open, mkdir, write, read, fsync, close, rename, unlink, or "*" for all
    at: int  # its number; 0: none fails, but all are reported
    action: str  # the name of an errno such as ENOSPC, "short" or "kill"
    below: Path  # only files below this folder count
    always: bool = False  # whether later ones fail as well; after a short write, with ENOSPC

    def environment(self, report: Path) -> Mapping[str, str]:
        """The variables that shim.c reads; it appends a line to `report` for each fault."""
        is_errno = self.action not in ("short", "kill")
        return {
            "FAULT_OPERATION": self.operation,
            "FAULT_AT": str(self.at),
            "FAULT_ACTION": str(getattr(errno, self.action)) if is_errno else self.action,
            "FAULT_ALWAYS": str(int(self.always)),
            "FAULT_BELOW": str(self.below.resolve()),
            "FAULT_REPORT": str(report),
        }

    def __str__(self) -> str:
        return f"{self.action} at {self.operation} {self.at}{' and later' if self.always else ''}"


@cache
def library() -> Path | None:
    """The compiled library, or None without a C compiler or outside Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/proc/self/fd").exists():
        return None
    file = Path(_FOLDER.name) / "shim.so"
    command: list[str | Path] = [
        compiler,
        "-O1",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        file,
        SOURCE,
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return file


@contextmanager
def preloaded() -> Iterator[None]:
    """Programs that start within the block load the library, as do those that they start."""
    file, before = library(), os.environ.get("LD_PRELOAD")
    if file is not None:
        os.environ["LD_PRELOAD"] = " ".join(filter(None, [str(file), before]))
    try:
        yield
    finally:
        os.environ.pop("LD_PRELOAD", None)
        if before is not None:
            os.environ["LD_PRELOAD"] = before


def configure(environment: Mapping[str, str]) -> None:
    """In a forked process: set the variables, and let them take effect."""
    os.environ.update(environment)
    if "FAULT_OPERATION" in environment:
        ctypes.CDLL(None).fault_configure()
    if FILE_SIZE in environment:
        size = int(environment[FILE_SIZE])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

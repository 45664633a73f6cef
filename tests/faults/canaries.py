"""Files outside a sandbox that nothing may read, change or add to."""

import os
from collections.abc import Mapping
from pathlib import Path

from faults.forks import Result
from faults.verdicts import changed, tree

LONG_AGO = 1_000_000_000  # the time at which each was last read; a read makes it now
EXECUTED = "executed"  # what a module that must not be imported writes here


class Canaries:
    """A folder as it is now; `check` finds what a command did to it."""

    def __init__(self, folder: Path, *, reads: bool = True) -> None:
        """With `reads`, a file that was read counts as well."""
        self._folder = folder
        self._before: Mapping[str, str] = tree(folder)
        self._files = [path for path in sorted(folder.rglob("*")) if path.is_file() and reads]
        for file in self._files:
            os.utime(file, (LONG_AGO, file.stat().st_mtime))

    def check(self, result: Result) -> None:
        read = [file.name for file in self._files if file.exists() and _was_read(file)]
        after = changed(self._before, tree(self._folder))
        said = f"exit status {result.status}: {result.text[-200:]!r}"
        assert EXECUTED not in after, f"it imported a module that a file names; {said}"
        assert not after, f"it changed {', '.join(after)} outside the folder; {said}"
        assert not read, f"it read {', '.join(read)} outside the folder; {said}"


def _was_read(file: Path) -> bool:
    return file.stat().st_atime != LONG_AGO


def times_of_reading_are_kept(folder: Path) -> bool:
    """Whether this file system notes when a file was last read: some are mounted without."""
    probe = folder / "probe"
    probe.write_text("x")
    os.utime(probe, (LONG_AGO, probe.stat().st_mtime))
    probe.read_text()
    was_read = _was_read(probe)
    probe.unlink()
    return was_read

"""What a command may do with bad input: refuse it in one line, or do as it would without."""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from faults.forks import Result

LONGEST_LINE = 4_100  # characters; messages are cut at 4,000
REFUSALS = (1, 2)  # exit statuses
PYTHONS_WARNING = re.compile(r"\b[A-Z]\w*Warning: ")


def check_ended(result: Result) -> None:
    """Raise an AssertionError for what no command may do, whatever its input is."""
    shown = f"exit status {result.status}: {result.err[-200:]!r}"
    assert not result.is_late, f"hangs: {shown}"
    assert result.status >= 0, f"was killed by signal {-result.status}: {shown}"
    for sign in ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error"):
        assert sign not in result.text, f"prints a traceback: {_last_call(result.err)}"
    assert result.status in (0, *REFUSALS), f"ends with another status: {shown}"
    assert not result.left_children, f"leaves processes behind: {shown}"


def _last_call(text: str) -> str:
    """The end of a traceback: what was raised, and the package's last line."""
    calls = re.findall(r'File "[^"]*/(td7/[^"]*)", line (\d+)', text)
    place = ":".join(calls[-1]) if calls else "elsewhere"
    return f"{text.rstrip().splitlines()[-1][:150]} at {place}"


def check_refused(result: Result, *, warnings: bool = False) -> str:
    """Raise unless the command printed one line; `warnings` may precede it. Return the line."""
    lines = result.err.splitlines()
    assert lines, f"exit status {result.status} without a message"
    assert lines[-1].startswith("td7: "), f"the last line lacks `td7:`: {result.err[-300:]!r}"
    assert warnings or len(lines) == 1, f"more than one line: {result.err[:300]!r}"
    assert not result.out, f"prints to standard output: {result.out[:200]!r}"
    for line in lines:
        assert len(line) <= LONGEST_LINE, f"a line of {len(line):,} characters: {line[:200]!r}"
        assert not PYTHONS_WARNING.search(line), f"a warning of Python: {line[:300]!r}"
    return lines[-1]


def tree(folder: Path) -> Mapping[str, str]:
    """Every path below a folder, with a digest of a file's content or its kind; follows no link."""
    contents = {}
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            file = Path(path, name)
            mode = file.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = f"link to {file.readlink()}"
            elif stat.S_ISREG(mode):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
            else:
                content = stat.filemode(mode)
            contents[str(file.relative_to(folder))] = content
    return contents


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The paths that were made, changed or deleted."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )

"""Output of the commands: a console for tables, and the line that ends a command that failed."""

import json
import math
import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.errors import one_line, say

if TYPE_CHECKING:  # it takes time to load, and most commands print no table
    from rich.console import Console


def new_console() -> "Console":
    """Return standard output, wide enough for every table where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140)


def failed(message: object, status: int) -> int:
    """Print why a command failed; return its exit status."""
    say(f"td7: {one_line(message, most=4_000)}")
    return status


def prepare_outputs() -> None:
    """Show characters that the terminal's encoding lacks as escapes; replace closed outputs."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flushed(status: int) -> int:
    """Flush standard output; return the exit status of a command that ended with `status`."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at exit, which would fail again.
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `td7 list tasks | head`
            return failed(f"standard output cannot be written: {error.strerror}", status or 1)
    return status


def print_json(data: Any) -> None:
    """Print JSON, in which numbers that are not finite, which it lacks, are null."""
    print(json.dumps(_finite(data), indent=2))


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data

"""Output of the commands: a console for tables, and the line that ends a command that failed."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it takes time to load, and most commands print no table
    from rich.console import Console


def new_console() -> "Console":
    """Return standard output, wide enough for every table where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140)


def say(text: str) -> None:
    """Print progress to standard error, so that standard output can be piped."""
    print(text, file=sys.stderr, flush=True)


def failed(message: object, status: int) -> int:
    """Print why a command failed; return its exit status."""
    print(f"td7: {message}", file=sys.stderr)
    return status

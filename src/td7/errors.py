"""What can go wrong, in one line each: a user's mistake, or a fault while running."""

import signal
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path


class InputError(ValueError):
    """A mistake in what the user gave; the message is one line, the exit status 2."""


class RunError(RuntimeError):
    """A fault while running; the message says which seed, where and what; the exit status is 1.

    `details` is what one line cannot hold: the traceback of an environment that raised.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class EnvironmentFault(RunError):  # noqa: N818  # its base says that it is an error
    """What an environment did, or the process it ran in; all that was learned so far is whole."""


class Stopped(KeyboardInterrupt):
    """A signal asked a run, or a study, to stop; what was done is saved, in `path`.

    As Python's own for Ctrl-C it is no `Exception`: `except Exception` does not go on after it.
    """

    def __init__(self, signum: int, path: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.path = path


def unknown(kind: str, given: str, allowed: Iterable[str], *, shown: int = 12) -> InputError:
    """The error for a name that is not among those allowed, with the nearest match."""
    names = list(allowed)
    close = get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f" did you mean {close[0]!r}?" if close else ""
    quoted = [repr(n) for n in names] if any("," in n for n in names) else names
    more = f", … ({len(names)} in all)" if len(names) > shown else ""
    listed = ", ".join(quoted[:shown]) + more
    return InputError(f"unknown {kind} {given!r};{hint} allowed: {listed}")


def one_of(kind: str, given: str, allowed: Sequence[str]) -> str:
    """What was given, if it is allowed."""
    if given not in allowed:
        raise unknown(kind, given, allowed)
    return given


def one_line(thing: object) -> str:
    """What a thing says, in one line; an error without a message says its type."""
    return " ".join(str(thing).split()) or type(thing).__name__

"""What can go wrong, in one line each: a user's mistake, or a fault while running."""

import signal
import sysconfig
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from traceback import walk_tb


class InputError(ValueError):
    """A mistake in what the user gave; the message is one line, the exit status 2."""


class UnknownTask(InputError):  # noqa: N818  # its base says that it is an error
    """A task that nothing has registered so far; `remedy` is what would."""

    remedy = "one's own: MODULE:ID, which imports MODULE"

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.remedy}"


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
    close = nearest(given, names)
    hint = f" did you mean {close!r}?" if close else ""
    quoted = [repr(n) for n in names] if any("," in n for n in names) else names
    more = f", … ({len(names)} in all)" if len(names) > shown else ""
    listed = ", ".join(quoted[:shown]) + more
    return InputError(f"unknown {kind} {given!r};{hint} allowed: {listed}")


def nearest(given: str, names: Iterable[str]) -> str | None:
    """The name that may be meant, if one is near enough."""

    def nearness(name: str) -> float:
        a, b = name.lstrip("-"), given.lstrip("-")  # all options have those: they tell nothing
        # Slips seldom take the first letter: td8 may be meant to be td7, but gpu is not cpu.
        return SequenceMatcher(None, a, b).ratio() + 0.1 * (a[:1] == b[:1])

    best, name = max(((nearness(name), name) for name in names), default=(0.0, ""))
    return name if best >= 0.7 else None


def one_of(kind: str, given: str, allowed: Sequence[str]) -> str:
    """What was given, if it is allowed."""
    if given not in allowed:
        raise unknown(kind, given, allowed)
    return given


def one_line(thing: object) -> str:
    """What a thing says, in one line; an error without a message says its type."""
    return " ".join(str(thing).split()) or type(thing).__name__


def describe_error(error: BaseException) -> str:
    """What a user's code raised, in one line: its type, the last line of theirs, its message."""
    lines = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
    own = [f" at {Path(file).name}:{line}" for file, line in lines if _is_users(Path(file))]
    message = " ".join(str(error).split())
    return type(error).__name__ + "".join(own[-1:]) + (f": {message}" if message else "")


def _is_users(file: Path) -> bool:
    """Whether it is neither Python's, nor an installed package's, nor ours."""
    if {"site-packages", "dist-packages"} & set(file.parts) or not file.is_file():
        return False
    others = (sysconfig.get_path("stdlib"), Path(__file__).parent)
    return not any(file.is_relative_to(folder) for folder in others)

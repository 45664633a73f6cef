"""Errors with one-line messages: a user's mistake, or a fault while running."""

import re
import signal
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import IO

from td7.aliases import known_as


class InputError(ValueError):
    """A mistake in the input, such as an option, a file or a task.

    The message is one line that names what was given, what is allowed and, if there is one, the
    nearest match. The commands end with exit status 2.
    """


class MissingModule(InputError):  # noqa: N818  # its base class is named an error
    """A user's module that Python does not find."""

    def __init__(self, message: str, module: str = "") -> None:
        super().__init__(message)
        self.module = module


class UnknownTask(InputError):  # noqa: N818  # its base class is named an error
    """A task that is not registered; `remedy` tells how to register it."""

    remedy = "for your own task, use MODULE:ID, which imports MODULE"

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.remedy}"


class RunError(RuntimeError):
    """A fault while running, such as an environment that raised. The commands exit with status 1.

    The message names the seed, the place and the fault.
    `details` holds what does not fit on one line: the traceback of an environment that raised.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class EnvironmentFault(RunError):  # noqa: N818  # its base class is named an error
    """A fault of an environment or of its process; the learner's state is intact."""


class ActionFault(EnvironmentFault):
    """A fault of an environment that received an action that is not finite."""


class NotFiniteError(RunError):
    """A loss, a value or an action of a member is not finite."""

    def __init__(self, message: str, details: str = "", *, member: int = 0, what: str = "") -> None:
        """`member`: its position. `what` is not finite, such as `critic_loss`."""
        super().__init__(message, details)
        self.member = member
        self.what = what


class NoMemberLeftError(RunError):
    """All members of a run have ended, each because something of it is not finite."""


class Stopped(KeyboardInterrupt):
    """A signal, such as that of Ctrl-C, stopped a run or a study; its progress is saved in `path`.

    Like KeyboardInterrupt it is not an `Exception`, so `except Exception` does not catch it.
    """

    def __init__(self, signum: int, path: Path) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.path = path


class ControlFlow(BaseException):
    """Ends work without anybody's fault; handlers of faults, even of user's code, let it pass."""


_NO_MEMORY = "out of memory|allocate memory"  # PyTorch's errors on a GPU and on a CPU

# The extras of pyproject.toml that users need, and their packages as words of a shell.
EXTRAS = {
    "dm-control": ("shimmy", "dm-control"),
    "minari": ("minari", "pyarrow"),
    "mlflow": ("mlflow-skinny",),
    "onnx": ("onnx",),
    "ray": ("ray",),
    "tensorboard": ("tensorboard",),
    "tune": ("optuna",),
    "video": ("'imageio[ffmpeg]'",),
    "wandb": ("wandb",),
}

NOT_FAULTS = (KeyboardInterrupt, ControlFlow)  # the rest of BaseException is


_ON_COMMAND_LINE = ContextVar("on_command_line", default=False)


@contextmanager
def on_command_line() -> Iterator[None]:
    """Within the block, messages spell options as words of the command line."""
    token = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


class Option(str):
    """An option's name, which messages spell as the user does: `--env-kwargs` or `env_kwargs`."""

    __slots__ = ()

    @property
    def flag(self) -> str:
        return f"--{self.replace('_', '-')}"

    def __str__(self) -> str:
        return self.flag if _ON_COMMAND_LINE.get() else str.__str__(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def assigned(name: str, value: object) -> str:
    """Return `name=value`, or `--name value` for an option on the command line."""
    separator = " " if isinstance(name, Option) and _ON_COMMAND_LINE.get() else "="
    return f"{name}{separator}{value}"


def unknown(
    kind: str, name: str, allowed: Iterable[str], *, shown: int = 12, suggestion: str | None = None
) -> InputError:
    """Return the error for a name that is not allowed.

    Its message suggests the nearest match, or else the `suggestion`.
    """
    names = list(allowed)
    close = suggestion or nearest(name, names)
    hint = f" did you mean {close!r}?" if close else ""
    quoted = [repr(n) for n in names] if any("," in n for n in names) else names
    more = f", … ({len(names)} in all)" if len(names) > shown else ""
    listed = ", ".join(quoted[:shown]) + more
    return InputError(f"unknown {kind} {name!r};{hint} allowed: {listed}")


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return what the word is called here, or the most similar name, or None if none is similar."""
    names = list(names)
    if (name := known_as(word, names)) is not None:
        return name

    def similarity(name: str) -> float:
        # Every option begins with dashes.
        a, b = (text.lstrip("-").lower() for text in (name, word))
        # Typing errors seldom affect the first letter: td8 may mean td7, but gpu does not mean cpu.
        return SequenceMatcher(None, a, b).ratio() + 0.1 * (a[:1] == b[:1])

    best, name = max(((similarity(name), name) for name in names), default=(0.0, ""))
    return name if best >= 0.7 else None


def matched(kind: str, name: str, allowed: Iterable[str], *, shown: int = 12) -> str:
    """Return the allowed name that this is, whatever its case; raise an InputError without one."""
    names = list(allowed)
    same = [one for one in names if one.casefold() == name.casefold()]
    if name in names or len(same) == 1:
        return name if name in names else same[0]
    raise unknown(kind, name, names, shown=shown)


def needs_extra(what: str, extra: str) -> InputError:
    """Return the error for packages that are not installed, with what installs them."""
    packages = EXTRAS[extra]
    named = " and ".join(packages).replace("'", "")
    return InputError(
        f"{what} needs {named}, which the extra {extra!r} installs: pip install -e '.[{extra}]' in "
        f"a clone, or pip install {' '.join(packages)}"
    )


def one_of(kind: str, name: str, allowed: Sequence[str]) -> str:
    """Return `name`, or raise an InputError if it is not allowed."""
    if name not in allowed:
        raise unknown(kind, name, allowed)
    return name


def one_line(value: object, most: int = 1_000) -> str:
    """Return the value as printable text on one line, with at most about `most` characters.

    An error without a message becomes its type's name.
    """
    try:
        text = " ".join(str(value).split())
    except BaseException:  # an error of a user's code may have a faulty __str__
        text = ""
    if len(text) > most:  # the end of a message is as useful as its beginning
        text = f"{text[: most // 2]} … {text[-(most // 2) :]}"
    return "".join(map(_printable, text)) or type(value).__name__


def is_missing(error: BaseException, module: str) -> bool:
    """Whether an import failed as there is no such module, and not for what it imports."""
    named = error.name if isinstance(error, ModuleNotFoundError) else None
    return named is not None and f"{module}.".startswith(f"{named}.")


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def describe_error(error: BaseException) -> str:
    """Describe on one line what a user's code raised: type, last line of that code, message."""
    lines = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
    places = [f" at {Path(file).name}:{line}" for file, line in lines if is_users(Path(file))]
    return describe_raised(error, "".join(places[-1:]))


def describe_raised(error: BaseException, place: str = "") -> str:
    """Describe on one line what was raised: type, place, message."""
    name, message = type(error).__name__, one_line(error)
    return name + place + ("" if message == name else f": {message}")


def out_of_memory(error: BaseException) -> str | None:
    """Return a message with advice if memory was too short, else None."""
    is_pytorchs = isinstance(error, RuntimeError) and re.search(_NO_MEMORY, str(error))
    if not (is_pytorchs or isinstance(error, MemoryError)):
        return None
    advice = "try fewer seeds at once, smaller networks or a smaller replay"
    if "CUDA" in str(error):
        remedy = assigned(Option("replay_device"), "cpu")
        advice += f", or {remedy} to keep the replay in the host's memory"
    return f"out of memory ({one_line(error, 120)}); {advice}"


def say(text: str, file: IO[str] | None = None) -> None:
    """Print a line to standard error or another file; a reader that has left ends nothing."""
    with suppress(OSError):
        print(text, file=file or sys.stderr, flush=True)


@cache
def warn_once(message: str) -> None:
    """Say it once in this process."""
    say(message)


def is_users(file: Path) -> bool:
    """Whether a file belongs neither to Python nor to an installed package nor to this one."""
    if {"site-packages", "dist-packages"} & set(file.parts) or not file.is_file():
        return False
    others = (sysconfig.get_path("stdlib"), Path(__file__).parent)
    return not any(file.is_relative_to(folder) for folder in others)

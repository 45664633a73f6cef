"""The command line. A mistake in the words gets a one-line message and exit status 2."""

import os
import re
import signal
import sys
import threading
from argparse import SUPPRESS, Action, Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from td7 import __version__
from td7.cli import (
    bench,
    compare,
    completion,
    dataset,
    evaluate,
    export,
    report,
    resume,
    study,
    train,
    tune,
)
from td7.cli import list as listing
from td7.cli.console import failed, flushed, prepare_outputs
from td7.cli.parser import Parser
from td7.errors import InputError, RunError, UnknownTask, on_command_line, out_of_memory, unknown
from td7.modules import import_named


class Command(Protocol):
    """A module per command."""

    HELP: str

    def add_options(self, parser: Parser, words: Sequence[str]) -> None:
        """Add the command's options; `words` are those after the command."""

    def run(self, options: Namespace) -> int:
        """Run the command and return its exit status."""


COMMANDS: Mapping[str, Command] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "export": export,
    "list": listing,
    "study": study,
    "tune": tune,
    "report": report,
    "compare": compare,
    "dataset": dataset,
    "bench": bench,
    "completion": completion,
}
LOADS_PYTORCH = ("train", "resume", "tune", "bench")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    # PyTorch's threads spin while they wait for each other. On a core that another program uses
    # they spin indefinitely: updates then take forty times as long; with this, a tenth of that.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    prepare_outputs()
    with on_command_line():
        return flushed(_status(sys.argv[1:] if argv is None else list(argv)))


def _status(words: Sequence[str]) -> int:
    """Run one command; errors of the user and of the machine become one line."""
    try:
        return _run(words)
    except InputError as error:
        return failed(error, 2)
    except RunError as error:
        return failed(error, 1)
    except KeyboardInterrupt:
        return failed("interrupted", 130)
    except (OSError, MemoryError, RuntimeError) as error:
        return _machine_fault(error)


# Errors of files that the user named, where a command did not explain them better.
_FAULTS_OF_NAMES = (ENAMETOOLONG, ELOOP, ENOTDIR, EISDIR, ENOENT, EACCES, EPERM)


def _machine_fault(error: Exception) -> int:
    """Say what the machine lacks, such as disk space; raise errors with another cause."""
    if isinstance(error, BrokenPipeError):  # `td7 list tasks | head`
        return 0
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or error
        return failed(f"{name}{reason}", 2 if error.errno in _FAULTS_OF_NAMES else 1)
    problem = out_of_memory(error)
    if problem is None:
        raise error
    return failed(problem, 1)


def _run(words: Sequence[str]) -> int:
    """Parse the words, run the command and return its exit status."""
    _check_words(words)
    # As with `python -m td7`, so that a task can be in a module in the working folder.
    here = _working_folder()
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
    with _interrupts_end_the_process():
        parser, commands = build_parser(words)
        if words and words[0] in LOADS_PYTORCH:
            import_module("td7.training.loop")
    if not words:
        parser.print_help()
        return 0
    if words[0] not in commands and not words[0].startswith("-"):
        raise unknown("command", words[0], commands)
    try:
        options, rest = parser.parse_known_args(words)
    except SystemExit:  # --help and --version print and exit
        return 0
    if rest:
        raise (options.parser if words[0] in commands else parser).unexpected(rest[0])
    if not hasattr(options, "command"):
        raise unknown("command", words[0], commands)
    return _run_command(COMMANDS[options.command], options)


def _check_words(words: Sequence[str]) -> None:
    """Refuse arguments that no option can mean: empty ones, and those that are not text."""
    for before, word in pairwise(("td7", *words)):
        if not word:
            raise InputError(f"an empty argument follows {before}")
        if re.fullmatch("--[^=]+=(--)?", word):  # argparse would take -- for no value
            raise InputError(f"{word} has no value")
        if "\0" in word or not _is_unicode(word):
            raise InputError(f"{word!r} contains a character that is not valid text")


def _is_unicode(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8 become half characters
        return False
    return True


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise InputError("the working folder was deleted; change to another one") from None


def build_parser(
    words: Sequence[str], with_options_of: Collection[str] = ()
) -> tuple[Parser, Mapping[str, Parser]]:
    """Return the parser of all commands, and theirs; only some have options.

    They are those of the command that `words` name, and of these others. Options take time to
    import.
    """
    parser = Parser(
        prog="td7",
        description="Train TD7 and its baselines with stacked seeds, stop, resume exactly, "
        "evaluate and report.",
        epilog="`td7 COMMAND --help` lists every option of a command, with defaults and units.",
    )
    parser.add_argument(
        "--version",
        action=_ShowVersions,
        nargs=0,
        default=SUPPRESS,
        help="show the versions of td7, Python, PyTorch, NumPy, Gymnasium and MuJoCo",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, command in COMMANDS.items():
        description = f"{command.HELP[0].upper()}{command.HELP[1:]}."
        own = commands.add_parser(name, help=command.HELP, description=description)
        own.set_defaults(command=name, parser=own, whole_parser=whole_parser)
        if name in (*words[:1], *with_options_of):
            command.add_options(own, words[1:])
    return parser, commands.choices


class _ShowVersions(Action):
    """Prints what a report of a bug should name, and ends the process."""

    def __call__(self, parser: Any, namespace: Namespace, *_: Any) -> None:
        from td7.runs.record import versions  # late, as it takes time

        del namespace
        others = ", ".join(f"{k} {v}" for k, v in versions().items() if k != "td7")
        print(f"td7 {__version__}\n{others}")
        parser.exit()


def whole_parser() -> Parser:
    """Return the parser of all commands with all their options."""
    return build_parser((), with_options_of=COMMANDS)[0]


def _run_command(command: Command, options: Namespace) -> int:
    """Run the command, after importing the modules that --import names."""
    if not hasattr(options, "modules"):
        return command.run(options)
    for module in options.modules:
        import_named(module, "--import")
    try:
        return command.run(options)
    except UnknownTask as error:
        if "trust" not in options:
            raise
        # The run names the task, so the user cannot add a module to it.
        error.remedy = "for your own task, use --import MODULE, which registers it"
        raise


@contextmanager
def _interrupts_end_the_process() -> Iterator[None]:
    """Let Ctrl-C end the process at once: libraries that are being loaded may misreport it.

    No work has begun, so nothing is lost.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is not signal.default_int_handler:  # a script's own, or ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

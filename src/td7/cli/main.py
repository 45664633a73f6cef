"""The command line: words → the Python interface. Bad words get one line and exit status 2."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from td7 import __version__
from td7.cli import bench, dataset, evaluate, export, report, resume, study, train
from td7.cli import list as listing
from td7.cli.parser import Parser, option_names
from td7.cli.resume import KEEPS_SETTINGS
from td7.cli.terminal import failed
from td7.cli.train import hyperparameters
from td7.errors import InputError, RunError, UnknownTask, one_line, unknown

LOADS_PYTORCH = ("train", "resume", "bench")  # commands; it takes a second or more


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives back the exit status."""
    # PyTorch's threads spin while they wait for each other. On a core that another program uses
    # they spin for ever: updates then take forty times as long, and ten times less so with this.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except InputError as error:
        return failed(error, 2)
    except RunError as error:
        return failed(error, 1)
    except KeyboardInterrupt:
        return failed("interrupted", 130)
    except BrokenPipeError:  # `td7 list tasks | head`
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, RuntimeError) as error:  # a full disk, say
        return failed(_of_the_machine(error), 1)


_NO_MEMORY = "out of memory|allocate memory"  # what PyTorch says of a GPU, and of a CPU


def _of_the_machine(error: Exception) -> str:
    """What the machine lacks, in one line; raises what has another cause."""
    if isinstance(error, OSError):
        return str(error)
    if isinstance(error, RuntimeError) and not re.search(_NO_MEMORY, str(error)):
        raise error
    less = "fewer seeds at once, smaller networks or a smaller replay take less"
    if "CUDA" in str(error):
        less += ", and --replay-device cpu has a GPU's replay in the host's memory"
    return f"out of memory ({one_line(error)[:120]}); {less}"


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process at once: libraries that are loading make anything of it.

    Nothing has begun yet, so nothing is lost.
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


def _run(words: Sequence[str]) -> int:
    # A task in a module beside the user is found, as with `python -m td7`.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    with _ended_by_interrupts():
        parser, commands = _parser(words)
        if words and words[0] in LOADS_PYTORCH:
            import_module("td7.training.loop")
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        raise unknown("command", words[0], commands)
    try:
        options, rest = parser.parse_known_args(words)
    except SystemExit:  # --help or --version, which has been answered
        return 0
    own = getattr(options, "own_parser", commands.get(words[0], parser))
    if rest and rest[0].startswith("-"):
        name = rest[0].partition("=")[0]
        allowed, fixed = option_names(own), getattr(options, "fixed", ())
        field = name.removeprefix("--").replace("-", "_")
        is_hyperparameter = "--set" in allowed and field in hyperparameters(words)
        if name in fixed or (fixed and is_hyperparameter):
            raise InputError(f"{name}: {KEEPS_SETTINGS}")
        if is_hyperparameter:
            raise InputError(f"{name} is a hyperparameter: --set {field}=…")
        raise unknown("option", name, sorted(allowed))
    if rest:
        raise InputError(f"{own.prog} does not know what to do with {rest[0]!r}")
    if not hasattr(options, "command"):
        raise unknown("command", words[0], commands)
    status = _carried_out(options)
    sys.stdout.flush()
    return status


def _carried_out(options: argparse.Namespace) -> int:
    """The command's exit status; the modules that --import names come before it."""
    command: Callable[[argparse.Namespace], int] = options.command
    if not hasattr(options, "modules"):
        return command(options)
    from td7.processes import StopScriptImport, script_import
    from td7.rollouts.registration import register_from

    for module in options.modules:
        try:
            with script_import():
                register_from(module, "--import")
        except StopScriptImport:
            problem = "uses td7 when it is imported: put that under `if __name__ == '__main__':`"
            raise InputError(f"--import: module {module!r} {problem}") from None
    try:
        return command(options)
    except UnknownTask as error:  # its name is the run's, so MODULE:ID is no help
        error.remedy = "one's own: --import MODULE, which registers it"
        raise


def _parser(words: Sequence[str]) -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """All commands, and the options of the one chosen: those of `train` take seconds to import."""
    chosen = words[0] if words else ""
    parser = Parser(
        prog="td7",
        description="TD7 and SALE, stacked over seeds: train, stop, resume exactly, evaluate.",
        epilog="`td7 COMMAND --help` has every option, with defaults and units.",
    )
    parser.add_argument("--version", action="version", version=f"td7 {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)

    for name, (run, add, text) in _COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=run)
        if name == chosen:
            add(sub, words[1:])

    return parser, commands.choices  # type: ignore[return-value]  # name: parser


_COMMANDS: dict[
    str,
    tuple[Callable[[argparse.Namespace], int], Callable[..., None], str],
] = {
    "train": (train.run, train.add_options, "train an algorithm on a task, all seeds side by side"),
    "resume": (resume.run, resume.add_options, "go on, exactly, with a run that was stopped"),
    "evaluate": (evaluate.run, evaluate.add_options, "play a trained policy and tell its returns"),
    "export": (export.run, export.add_options, "a trained policy as a file for other programs"),
    "list": (
        listing.run,
        listing.add_options,
        "what there is: algorithms, hyperparameters, studies, tasks",
    ),
    "study": (
        study.run,
        study.add_options,
        "all runs of a table of the paper; given again, it goes on",
    ),
    "report": (
        report.run,
        report.add_options,
        "tables, figures and a page of runs, beside the paper's",
    ),
    "dataset": (dataset.run, dataset.add_options, "look at, fetch or record data to learn from"),
    "bench": (
        bench.run,
        bench.add_options,
        "measure updates and steps a second, beside other programs",
    ),
}

"""`td7 completion`: everything here is free of PyTorch, as shells run it when they start."""

import argparse
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from td7.cli.parser import Parser
from td7.errors import one_of

Value = TypeVar("Value")

HELP = "print a script with which a shell completes the words of td7"
SHELLS = ("bash", "zsh", "tcsh")
KINDS = ("medium", "replay", "expert", "medium-expert")  # of `td7.datasets.record`
DIRECTORY, FILE = "directory", "file"  # shtab's names

# What stands for a path, by its name, or by its command and name.
PATHS = {
    "dir": DIRECTORY,
    "dirs": DIRECTORY,
    "datasets": DIRECTORY,
    "run": DIRECTORY,
    "start_from": DIRECTORY,
    "out": DIRECTORY,
    "export out": FILE,
    "dataset record out": FILE,
    "dataset": FILE,
    "path": FILE,
    "markdown": FILE,
    "video": FILE,
}


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("shell", metavar="|".join(SHELLS), help="the shell to complete in")
    parser.epilog = (
        "bash: add this line to ~/.bashrc:\n"
        '  eval "$(td7 completion bash)"\n'
        "zsh: add this line to ~/.zshrc, after compinit:\n"
        '  eval "$(td7 completion zsh)"\n'
        "tcsh: add these lines to ~/.tcshrc:\n"
        "  td7 completion tcsh >! ~/.td7-completion.tcsh\n"
        "  source ~/.td7-completion.tcsh"
    )


def run(options: Namespace) -> int:
    import shtab

    shell = one_of("shell", options.shell, SHELLS)
    parser = options.whole_parser()
    _describe(parser, _words())
    print(shtab.complete(parser, shell))
    return 0


def _words() -> Mapping[str, Collection[str]]:
    """Return the words that arguments and options take, by name, or by command and name."""
    from td7.datasets.download import DATASETS
    from td7.options import ALGORITHM_NAMES, BACKENDS, DEVICES, ENGINES, PRECISIONS
    from td7.rollouts.registration import mujoco_tasks
    from td7.runs.export import FORMATS
    from td7.studies.rows import STUDIES

    return {
        "algorithm": ALGORITHM_NAMES,
        "algorithms": ALGORITHM_NAMES,
        "backend": BACKENDS,
        "device": DEVICES,
        "engine": ("auto", *ENGINES),
        "engines": ("auto", *ENGINES),
        "env": mujoco_tasks(),
        "format": tuple(FORMATS),
        "gpus": ("auto",),
        "id": tuple(DATASETS),
        "kind": KINDS,
        "list name": (*ALGORITHM_NAMES, *STUDIES),
        "precision": ("auto", *PRECISIONS),
        "processes": ("auto",),
        "replay_device": DEVICES,
        "study name": tuple(STUDIES),
        "threads": ("auto",),
        "workers": ("auto",),
    }


def _describe(parser: argparse.ArgumentParser, words: Mapping[str, Collection[str]]) -> None:
    """Add to the actions of a parser, and of its commands, what they take."""
    command = parser.prog.partition(" ")[2]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                _describe(own, words)
            continue
        if path := _entry(PATHS, command, action):
            action.complete = path  # type: ignore[attr-defined]  # shtab's
        elif "|" in str(action.metavar):
            action.choices = str(action.metavar).split("|")
        else:
            action.choices = _entry(words, command, action)


def _entry(table: Mapping[str, Value], command: str, action: argparse.Action) -> Value | None:
    return table.get(f"{command} {action.dest}", table.get(action.dest))

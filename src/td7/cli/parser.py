"""Parsers with one-line errors, and command-line options from a dataclass of options."""

import argparse
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NoReturn

from td7.errors import InputError, unknown
from td7.option_values import to_word
from td7.options import flag


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what was given, what is allowed, the nearest match."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.hyperparameters: Callable[[], Collection[str]] = tuple  # those that --set takes
        self.refused: Mapping[str, str] = {}  # option of other commands: why not of this one

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see `{self.prog} --help`)")

    def option_names(self) -> list[str]:
        return [name for name in self._option_string_actions if name.startswith("--")]

    def unexpected(self, word: str) -> InputError:
        """Return the error for a word that the parser did not recognise."""
        if not word.startswith("-"):
            return InputError(f"{self.prog}: unexpected argument {word!r}")
        name = word.partition("=")[0]
        field = name.removeprefix("--").replace("-", "_")
        if flag(field) in self.refused:
            return InputError(f"{name}: {self.refused[flag(field)]}")
        if field in self.hyperparameters():
            return InputError(f"{name} is a hyperparameter: --set {field}=…")
        return unknown("option", name, sorted(self.option_names()))


def add_from_options(
    parser: argparse.ArgumentParser,
    options: type,
    names: Sequence[str],
    default: str | None = None,
) -> None:
    """Add options for these fields of a dataclass of options, in their groups.

    With `default`, which says what happens then, options that are not given are None.
    """
    selected = [f for f in dataclasses.fields(options) if f.name in names]
    for title, members in groupby(selected, key=lambda f: f.metadata["group"]):
        group = parser.add_argument_group(title)
        for f in members:
            doc = f.metadata["doc"].replace("%", "%%")
            if f.type is bool:
                group.add_argument(flag(f.name), action="store_true", help=doc)
            elif f.default == ():
                add_values(group, flag(f.name), doc, f.metadata["metavar"])
            else:
                value, word = (
                    (f.default, to_word(f.default)) if default is None else (None, default)
                )
                group.add_argument(
                    flag(f.name),
                    metavar="N" if f.type in (int, float) else f.name.upper(),
                    default=value,
                    help=f"{doc} (default: {word})" if word else doc,
                )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --import and --trust, for commands that make the task of a run: see `td7.cli.main`."""
    parser.add_argument(
        "--import",
        metavar="MODULE",
        dest="modules",
        action="append",
        default=[],
        help="import a module that registers the run's task, if the task's id names none or the "
        "run is another user's; may be repeated",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="make and import what the run folder names although another user made it: only if you "
        "trust its author",
    )


def add_values(
    parser: argparse._ActionsContainer, name: str, doc: str, metavar: str = "NAME=VALUE"
) -> None:
    """Add an option that takes any number of values and may be repeated."""
    parser.add_argument(name, metavar=metavar, nargs="+", action="extend", default=[], help=doc)

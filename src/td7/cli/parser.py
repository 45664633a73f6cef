"""Parsers with one-line errors, and options from a dataclass of them."""

import argparse
import dataclasses
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

from td7.errors import InputError


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what was given, what is allowed, the nearest match."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (`{self.prog} --help` tells more)")


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    return [name for name in parser._option_string_actions if name.startswith("--")]


def add_from_options(
    parser: argparse.ArgumentParser,
    options: type,
    names: Sequence[str],
    default: str | None = None,
) -> None:
    """Options from these fields of a dataclass of them, in their groups.

    `default`: what becomes of those that are not given, if not the field's own; they are None.
    """
    fields = [f for f in dataclasses.fields(options) if f.name in names]
    for title, members in groupby(fields, key=lambda f: f.metadata["group"]):
        group = parser.add_argument_group(title)
        for f in members:
            flag = f"--{f.name.replace('_', '-')}"
            doc = f.metadata["doc"].replace("%", "%%")
            if f.type is bool:
                group.add_argument(flag, action="store_true", help=doc)
            elif f.default == ():
                add_values(group, flag, doc)
            else:
                value = f.default if default is None else None
                told = as_word(f.default) if default is None else default
                shown = f" (default: {told})" if told else ""
                metavar = "N" if f.type in (int, float) else f.name.upper()
                group.add_argument(flag, metavar=metavar, default=value, help=doc + shown)


def add_import(parser: argparse.ArgumentParser) -> None:
    """For commands that make a run's task: see `_carried_out`."""
    parser.add_argument(
        "--import",
        metavar="MODULE",
        dest="modules",
        action="append",
        default=[],
        help="a module that registers the run's task, if its name has none; may be given again",
    )


def add_values(parser: argparse._ActionsContainer, flag: str, doc: str) -> None:
    """An option with any number of NAME=VALUE, which may be given again."""
    parser.add_argument(
        flag, metavar="NAME=VALUE", nargs="+", action="extend", default=[], help=doc
    )


def as_word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"

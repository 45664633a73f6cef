"""Parsers with one-line errors, and command-line options from a dataclass of options."""

import argparse
import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from td7.errors import InputError, nearest, unknown
from td7.option_values import COMMA_SEPARATED, IS_FURTHER_VALUE, to_word
from td7.options import flag, kind_of_values


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what was given, what is allowed, the nearest match."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.hyperparameters: Callable[[], Collection[str]] = tuple  # those that --set takes
        # Of an option of other commands: why it is not one of this command, if it is one.
        self.refusal: Callable[[str], str | None] = lambda _: None
        self.explanation: Callable[[], str] | None = None  # the help's end, made only for the help
        # Option that takes several words: whether a word that follows its first is one of them.
        self.is_further: dict[str, Callable[[str], bool]] = {}
        self.comma_separated: set[str] = set()  # of these, those whose words become one

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see `{self.prog} --help`)")

    def format_help(self) -> str:
        if self.explanation is not None:
            self.epilog = self.explanation()
        return super().format_help()

    def option_names(self) -> list[str]:
        return [name for name in self._option_string_actions if name.startswith("--")]

    def takes(self, option: str, kind: str) -> None:
        """Let an option take several words, if this kind of values in `option_values` does."""
        if kind in IS_FURTHER_VALUE:
            self.is_further[option] = IS_FURTHER_VALUE[kind]
        if kind in COMMA_SEPARATED:
            self.comma_separated.add(option)

    def parse_known_args(  # type: ignore[override]  # argparse's has overloads for other classes
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.arguments(args)
        return super().parse_known_args(self._with_one_value_each(args), namespace)

    def arguments(self, words: Sequence[str]) -> list[str]:
        """Return the words that are no option and no option's value."""
        found, is_value = [], False
        for word in self._with_one_value_each(words):
            if word.startswith("-") and not is_value:
                action = self._option_string_actions.get(word)
                is_value = "=" not in word and (action is None or action.nargs != 0)
                continue
            if not is_value:
                found.append(word)
            is_value = False
        for word in found:
            if self._is_setting(word):
                raise self.unexpected(word)
        return found

    def _with_one_value_each(self, words: Sequence[str]) -> list[str]:
        """Return the words with as many options as values: --set a=1 --set b=2 for --set a=1 b=2.

        An option then never takes the command's argument, as in `td7 train --set a=1 td7`.
        """
        result, rest = [], list(words)
        while rest:
            name, equals, value = rest[0].partition("=")
            has_value = bool(equals) or (len(rest) > 1 and not _is_option(rest[1]))
            if not (name in self.is_further and has_value):
                result.append(rest.pop(0))
                continue
            values = [value] if equals else [rest[1]]
            del rest[: 1 if equals else 2]
            while rest and not _is_option(rest[0]) and self.is_further[name](rest[0]):
                values.append(rest.pop(0))
            values = [",".join(values)] if name in self.comma_separated else values
            result += [f"{name}={one}" for one in values]
        return result

    def _is_setting(self, word: str) -> bool:
        """Whether a word looks like one of --set, and is no folder."""
        is_setting = "--set" in self._option_string_actions and re.match(r"[^\W\d]\w*=", word)
        return bool(is_setting) and not Path(word).exists()

    def unexpected(self, word: str) -> InputError:
        """Return the error for a word that the parser did not recognise."""
        if not word.startswith("-"):
            hint = f"; did you mean '--set {word}'?" if self._is_setting(word) else ""
            return InputError(f"{self.prog}: unexpected argument {word!r}{hint}")
        name = word.partition("=")[0]
        field = name.removeprefix("--").replace("-", "_")
        if (reason := self.refusal(flag(field))) is not None:
            return InputError(f"{name}: {reason}")
        settings, options = self.hyperparameters(), sorted(self.option_names())
        if field in settings:
            return InputError(f"{name} is a hyperparameter: --set {field}=…")
        arguments = {a.dest: a.metavar for a in self._actions if not a.option_strings}
        near = nearest(name, [*options, *settings, *arguments])
        if near in arguments:
            argument = arguments[near]
            return InputError(
                f"{name} is no option: give {argument} without one, {self.prog} {argument}"
            )
        suggestion = f"--set {near}=…" if near in settings else near
        return unknown("option", name, options, suggestion=suggestion)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.match(r"-[\d.]", word)


def add_from_options(
    parser: Parser,
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
            doc, kind = f.metadata["doc"].replace("%", "%%"), kind_of_values(f)
            parser.takes(flag(f.name), kind)
            if f.type is bool:
                group.add_argument(flag(f.name), action="store_true", help=doc)
            elif f.default == ():
                metavar = f.metadata["metavar"]
                group.add_argument(
                    flag(f.name), metavar=metavar, action="append", default=[], help=doc
                )
            else:
                value, word = (
                    (f.default, to_word(f.default)) if default is None else (None, default)
                )
                group.add_argument(
                    flag(f.name),
                    metavar="N" if f.type in (int, float) else f.name.upper(),
                    default=value,
                    help=with_default(doc, word),
                )


def with_default(doc: str, default: str) -> str:
    """Return an option's help with its default, in the parentheses at its end if it has some."""
    if not default or "default" in doc:
        return doc
    return (
        f"{doc[:-1]}; default: {default})" if doc.endswith(")") else f"{doc} (default: {default})"
    )


def add_import(parser: argparse.ArgumentParser, when: str) -> None:
    """Add --import, which `td7.cli.main` carries out."""
    parser.add_argument(
        "--import",
        metavar="MODULE",
        dest="modules",
        action="append",
        default=[],
        help=f"import a module that registers the task, if {when}; may be repeated",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --import and --trust, for commands that make the task of a run."""
    add_import(parser, "the run's task names none or the run is another user's")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="make and import what the run folder names although another user made it: only if you "
        "trust its author",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")

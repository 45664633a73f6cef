"""Directives whose content comes from the program: hyperparameters, commands, options, studies."""

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from td7 import option_types
from td7.algorithms import algorithm as registered
from td7.cli.list import DETAILS, LISTINGS
from td7.cli.main import build_parser
from td7.cli.parser import Parser, with_default
from td7.cli.train import hyperparameters
from td7.option_values import to_word
from td7.options import StudyOptions, TrainOptions, in_python
from td7.tuning.options import TuneOptions

# Within the help of an option: `code`, an option, or name=value.
CODE = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*)|\b([a-z_]+=[\w.]+)")
FUNCTIONS = {
    "train": (TrainOptions, option_types.TrainKeywords),
    "study": (StudyOptions, option_types.StudyKeywords),
    "tune": (TuneOptions, option_types.TuneKeywords),
}


class Generated(SphinxDirective):
    """A directive with a name as its only argument."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # the program may have changed since the last build
        try:
            return list(self.made(self.arguments[0] if self.arguments else ""))
        except (KeyError, ValueError) as error:
            raise self.error(f"{self.name}: {error}") from error

    def made(self, name: str) -> Iterable[nodes.Node]:
        raise NotImplementedError


class Hyperparameters(Generated):
    """Name, default and meaning of each, in the groups of `td7 list algorithms NAME`."""

    def made(self, name: str) -> Iterator[nodes.Node]:
        algorithm = registered(name)
        offline = algorithm.offline or {}
        comments = sources(algorithm.config)
        sections = []
        for group, fields in hyperparameters(name).items():
            rows = []
            for field, default, doc in fields:
                defaults = [literal(to_word(default))]
                if field in offline and algorithm.online:
                    defaults += [nodes.Text(" (offline: "), literal(to_word(offline[field]))]
                    defaults += [nodes.Text(")")]
                meaning = [paragraph(doc)]
                if field in comments:
                    comment = comments[field]
                    label = "" if comment.startswith("Differs from") else "Source: "
                    meaning.append(paragraph(label + comment, "source"))
                rows.append([literal(field), defaults, meaning])
            sections.append((group, rows))
        yield table(("name", "default", "meaning"), sections, widths=(4, 2, 6))


class Command(Generated):
    """Arguments and options of a command, or of an action: `dataset record`."""

    def made(self, name: str) -> Iterator[nodes.Node]:
        parser = named_parser(name)
        if parser.description:
            yield paragraph(parser.description)
        actions = subparsers(parser)
        yield nodes.literal_block(text=usage(parser), language="text")
        sections = [(g.title, rows_of(g)) for g in parser._action_groups]
        sections = [(title, rows) for title, rows in sections if rows]
        if sections:
            names = {"positional arguments": "Arguments", "options": "Options"}
            sections = [(names.get(title or "", title or ""), rows) for title, rows in sections]
            yield table(("option", "meaning"), sections, widths=(4, 7))
        if parser.epilog and not actions:
            yield epilog(parser.epilog)
        for action in actions:
            yield nodes.rubric(text=action.prog)
            yield from self.made(action.prog.removeprefix("td7 "))


class Options(Generated):
    """Keyword arguments of a function of td7: name, type, default and meaning."""

    def made(self, name: str) -> Iterator[nodes.Node]:
        options, keywords = FUNCTIONS[name]
        first, *fields = dataclasses.fields(options)
        del first  # a parameter of its own
        groups: dict[str, list[Any]] = {}
        for field in fields:
            kind = keywords.__annotations__[field.name]
            head = [
                nodes.paragraph("", "", literal(field.name)),
                paragraph(type_name(kind), "source"),
            ]
            doc = in_python(field.metadata["doc"])
            if field.default not in ("", ()) and field.default is not False:
                doc = with_default(doc, to_word(field.default))
            groups.setdefault(field.metadata["group"], []).append([head, [paragraph(doc)]])
        yield table(("option", "meaning"), list(groups.items()), widths=(3, 5))


class Study(Generated):
    """The rows of a study: label, and what it changes. Without a name: all studies."""

    required_arguments = 0
    optional_arguments = 1

    def made(self, name: str) -> Iterator[nodes.Node]:
        if not name:
            rows = [
                [
                    literal(study["name"]),
                    [paragraph(f"{study['title']} ({study['where']})")],
                    nodes.Text(str(study["rows"])),
                ]
                for study in LISTINGS["studies"].records()
            ]
            yield table(("study", "what it compares", "rows"), [("", rows)], widths=(3, 7, 1))
            return
        study = DETAILS["studies"].records(name)
        groups: dict[str, list[Any]] = {}
        for row in study["rows"]:
            changes = [literal(f"{k}={to_word(v)}") for k, v in row["changes"].items()]
            change = paragraph(row["summary"])
            if changes:
                change += [nodes.Text(": "), *separated(changes)]
            cells = [literal(row["label"]), literal(row["algorithm"]), [change]]
            groups.setdefault(row["group"], []).append(cells)
        yield table(("row", "algorithm", "what it changes"), list(groups.items()), widths=(4, 2, 6))


# -- the program ---------------------------------------------------------------------------------


@cache
def sources(config: type) -> dict[str, str]:
    """Return the comment above each field of a config: where its value comes from."""
    comments: dict[str, str] = {}
    for cls in reversed(config.__mro__[:-1]):
        before = ""
        lines = inspect.getsource(cls).splitlines()
        for number, line in enumerate(lines):
            field = re.match(r"    (\w+): .* = (?:setting|of_sale|new_default)\(", line)
            if not field:
                continue
            start = number
            while lines[start - 1].startswith("    # "):
                start -= 1
            comment = " ".join(text.strip().removeprefix("# ") for text in lines[start:number])
            if not comment:
                comments.pop(field[1], None)  # that of the field that it replaces
                continue
            comment = re.sub("^the same$", before, comment)
            comment = re.sub("^the same(?=, )", before.rpartition(", ")[0], comment)
            comments[field[1]] = before = comment
    return comments


def named_parser(name: str) -> Parser:
    """Return the parser of `train`, `dataset record` and so on."""
    words = name.split()
    found, commands = build_parser(words[:1], with_options_of=words[:1])
    for word in words:
        found = commands[word]
        commands = {parser.prog.split()[-1]: parser for parser in subparsers(found)}
    return found


def subparsers(parser: argparse.ArgumentParser) -> list[Parser]:
    return [
        choice
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action.choices.values()
    ]


def usage(parser: Parser) -> str:
    """Return the words of a command, its optional ones in brackets."""
    words = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words.append(str(action.metavar))
        elif not action.option_strings:
            word = str(action.metavar)
            word += " …" if action.nargs == "+" else ""
            words.append(f"[{word}]" if action.nargs == "?" else word)
        elif action.required:
            words.append(f"{action.option_strings[-1]} {action.metavar}")
    has_options = any(a.option_strings and a.dest != "help" for a in parser._actions)
    return " ".join([parser.prog, *words, *(["[OPTION …]"] if has_options else [])])


def rows_of(group: argparse._ArgumentGroup) -> list[list[Any]]:
    rows = []
    for action in group._group_actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        words = [*action.option_strings[-1:], *([action.metavar] if action.metavar else [])]
        help_text = (action.help or "").replace("%%", "%")
        rows.append([literal(" ".join(map(str, words))), [paragraph(help_text)]])
    return rows


def epilog(text: str) -> nodes.Node:
    """Return a paragraph, or the text as it stands if it has lines of code."""
    if "\n  " in text:
        return nodes.literal_block(text=text, language="text")
    sentence = " ".join(text.split())
    if not re.match(r"\w+:", sentence):  # that begins with a word to type
        sentence = sentence[0].upper() + sentence[1:]
    return paragraph(f"{sentence.removesuffix('.')}.")


def type_name(kind: Any) -> str:
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return re.sub(r"(?:\w+\.)+(\w+)", r"\1", name)


# -- nodes ---------------------------------------------------------------------------------------


def literal(text: str) -> nodes.literal:
    return nodes.literal(text=text)


def paragraph(text: str, *classes: str) -> nodes.paragraph:
    """Return a paragraph in which options and what stands in backticks are code."""
    made = nodes.paragraph(classes=list(classes))
    end = 0
    for match in CODE.finditer(text):
        made += [nodes.Text(text[end : match.start()]), literal(next(filter(None, match.groups())))]
        end = match.end()
    made += nodes.Text(text[end:])
    return made


def separated(parts: Sequence[nodes.Node]) -> Iterator[nodes.Node]:
    for number, part in enumerate(parts):
        if number:
            yield nodes.Text(", ")
        yield part


def table(
    head: Sequence[str], sections: Sequence[tuple[str, Sequence[Any]]], widths: Sequence[int]
) -> nodes.table:
    """Return a table whose sections have titles; a narrow screen shows its cells as a list."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", row([[paragraph(word)] for word in head]))
    body = nodes.tbody()
    for title, rows in sections:
        if title:
            cell = nodes.entry("", paragraph(title), morecols=len(head) - 1)
            body += nodes.row("", cell, classes=["section"])
        body += [row(cells) for cells in rows]
    group += body
    made = nodes.table(classes=["generated", "colwidths-given"])
    made += group
    return made


def row(cells: Iterable[Any]) -> nodes.row:
    made = nodes.row()
    for cell in cells:
        content = cell if isinstance(cell, list) else [cell]
        if not isinstance(content[0], nodes.paragraph):
            content = [nodes.paragraph("", "", *content)]
        made += nodes.entry("", *content)
    return made


DIRECTIVES: Mapping[str, type[Generated]] = {
    "hyperparameters": Hyperparameters,
    "command": Command,
    "options": Options,
    "study": Study,
}


def setup(app: Sphinx) -> dict[str, Any]:
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

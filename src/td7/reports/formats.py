"""Tables as CSV, Markdown and LaTeX."""

import csv
import io
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from td7.reports.tables.table import Cell, Table

NUMBER = re.compile(
    r"(> )?[-+]?(± )?[\d.,]+( [±\[].*|%.*|,? at [\d,]+| of \d+)?|–"
)  # a cell of numbers
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula may begin with


def text_columns(lines: Sequence[Sequence[Cell]]) -> list[bool]:
    """Whether each column has no number in it; such columns are aligned left, others right."""
    return [
        not any(NUMBER.fullmatch(cell.text) for cell in column)
        for column in zip(*lines, strict=True)
    ]


def as_csv(table: Table) -> str:
    """The records in full: reading a float back gives the same number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.records[0])
    for record in table.records:
        writer.writerow(map(csv_cell, record.values()))
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """The value; text that a spreadsheet would run as a formula has an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_markdown(table: Table) -> str:
    rows = [
        "| " + " | ".join(markdown(word) for word in table.header) + " |",
        "|" + "---|" * len(table.header),
    ]
    for line in table.lines:
        cells = [f"**{markdown(c.text)}**" if c.bold else markdown(c.text) for c in line]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def markdown(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\dots{}",
}


def latex(text: str) -> str:
    """The text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(character, character) for character in text)


def as_latex(table: Table) -> str:
    """A tabular with booktabs' rules; a rule separates lines whose first cells differ."""
    rows = [" & ".join(latex(word) for word in table.header) + r" \\"]
    for _, part in groupby(table.lines, key=lambda line: line[0].text):
        rows.append(r"\midrule")
        for line in part:
            cells = [rf"\textbf{{{latex(c.text)}}}" if c.bold else latex(c.text) for c in line]
            rows.append(" & ".join(cells) + r" \\")
    columns = "".join("l" if is_text else "r" for is_text in text_columns(table.lines))
    body = "\n".join(rows)
    return (
        "% needs the package booktabs\n"
        f"\\begin{{table}}\n\\caption{{{latex(table.title)}. {latex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )

"""Tables as CSV, Markdown and LaTeX."""

import csv
import io
import re
from itertools import groupby

from td7.report.tables.table import Table


def as_csv(table: Table) -> str:
    """The records in full: a float is written so that it is read back the same."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.records[0])
    for record in table.records:
        writer.writerow(["" if value is None else value for value in record.values()])
    return text.getvalue()


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
    return "".join(LATEX.get(character, character) for character in text)


def as_latex(table: Table) -> str:
    """A tabular with booktabs' rules, one between parts of the table."""
    words = [" & ".join(latex(word) for word in table.header) + r" \\", r"\midrule"]
    first = True
    for _, part in groupby(table.lines, key=lambda line: line[0].text):
        words += [] if first else [r"\midrule"]
        first = False
        for line in part:
            cells = [rf"\textbf{{{latex(c.text)}}}" if c.bold else latex(c.text) for c in line]
            words.append(" & ".join(cells) + r" \\")
    columns = "l" * 2 + "r" * (len(table.header) - 2)
    body = "\n".join(words)
    return (
        "% needs the package booktabs\n"
        f"\\begin{{table}}\n\\caption{{{latex(table.title)}. {latex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )

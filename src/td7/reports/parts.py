"""What the page's sections consist of: tables, videos, lists of runs and of notes."""

import html
from base64 import b64encode
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from td7.reports.formats import as_csv, text_columns
from td7.reports.report import Report
from td7.reports.result import Result, plain
from td7.reports.tables.table import Cell, Table
from td7.reports.videos import MEDIA_TYPES

MOST_NOTES = 20  # that are shown without a click
MOST_LINES = 30  # of a table that is shown without a click
LONGEST_TEXT = 36  # characters of a cell in one line


# -- a study's tables and videos -----------------------------------------------------------------


def table_part(table: Table) -> str:
    """A table below its caption."""
    name = html.escape(table.name)
    body = scrollable(
        table.header,
        table.lines,
        f'id="table-{name}" aria-labelledby="{name}-title" aria-describedby="{name}-caption"',
        f'aria-labelledby="{name}-title"',
    )
    if len(table.lines) > MOST_LINES and table.kind != "scores":
        body = f"<details><summary>The table ({len(table.lines)} lines)</summary>{body}</details>"
    return (
        f'<h3 id="{name}-title">{html.escape(table.heading)}</h3>\n'
        f'<p id="{name}-caption" class="faint">{html.escape(table.caption)}</p>\n' + body
    )


def scrollable(
    header: Sequence[str], lines: Iterable[Sequence[Cell]], attributes: str, label: str
) -> str:
    """A table that scrolls sideways in a narrow window, except for its first column.

    Columns of text are aligned left, columns of numbers right.
    """
    lines = list(lines)
    first, *_ = columns = column_order(header)
    has_text = text_columns(lines)
    head = "".join(
        f'<th scope="col"{" class=words" if has_text[i] else ""}>{html.escape(header[i])}</th>'
        for i in columns
    )
    rows = []
    for line in lines:
        cells = [_cell(line[i], has_text[i], "th" if i == first else "td") for i in columns]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" {label}><table {attributes}>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def column_order(header: Sequence[str]) -> list[int]:
    """The columns of a table as the page shows them: the one that names the rows comes first."""
    first = header.index("row") if "row" in header else 0
    return sorted(range(len(header)), key=lambda i: i != first)


def _cell(cell: Cell, is_text: bool, tag: str) -> str:
    """A highlighted cell is bold; a long text is wrapped, to leave room for other columns."""
    text = html.escape(cell.text)
    text = f"<strong>{text}</strong>" if cell.bold else text
    scope = ' scope="row"' if tag == "th" else ""
    css = f' class="words{" long" * (len(cell.text) > LONGEST_TEXT)}"' if is_text else ""
    return f"<{tag}{scope}{css}>{text}</{tag}>"


def download(table: Table) -> str:
    address = f"data:text/csv;charset=utf-8,{quote(as_csv(table))}"
    name = html.escape(table.name)
    return f'<p class="downloads"><a download="{name}.csv" href="{address}">{name}.csv</a></p>'


def videos(results: Sequence[Result]) -> str:
    """Videos of policies, embedded in the page."""
    shown = []
    for result in results:
        for file in result.videos:
            kind = MEDIA_TYPES[file.suffix]
            # Which member it shows is not known, if hyperparameters vary.
            label = result.algorithm_label if result.record.members.numbers else result.label
            caption = html.escape(f"{label} on {result.title} ({file.name})")
            address = f"data:{kind};base64,{b64encode(file.read_bytes()).decode()}"
            video = (
                f'<img alt="{caption}" src="{address}">'
                if kind.startswith("image/")
                else f'<video controls muted loop playsinline preload="metadata" '
                f'aria-label="{caption}" src="{address}"></video>'
            )
            text = f'<figcaption class="faint">{caption}</figcaption>'
            shown.append(f"<figure>{video}{text}</figure>")
    return f'<h3>Videos</h3>\n<div class="videos">{"".join(shown)}</div>' if shown else ""


# -- all runs ------------------------------------------------------------------------------------


def every_run(report: Report) -> str:
    """A line per run, or per configuration of one, with its command."""
    columns = ("row", "study", "task or data", "seeds", "steps", "state", "hours", "started")
    lines = [[Cell(plain(text)) for text in _run_texts(result)] for result in report.results]
    varies = any(result.record.members.numbers for result in report.results)
    whole = ", with all of its configurations" if varies else ""
    every = report.runs if varies else f"{len(report.results)} runs"
    table = scrollable((*columns, "command"), lines, "", 'aria-labelledby="every-run-title"')
    return (
        '<section id="every-run" aria-labelledby="every-run-title">'
        '<h2 id="every-run-title">Every run</h2>\n'
        '<p class="faint">Steps: as configured, for every seed. Hours: wall-clock time of the '
        f"whole run, all seeds together{whole}.</p>\n"
        f"<details><summary>{every} and their commands</summary>"
        f"{table}</details></section>"
    )


def _run_texts(result: Result) -> list[str]:
    return [
        result.label,
        result.study,
        result.title,
        str(len(result.seeds)),
        f"{result.steps:,}",
        "finished" if result.finished else f"at {result.last_step or 0:,}",
        "–" if result.run_seconds is None else f"{result.run_seconds / 3600:.2f}",
        str(result.record.data.get("started", "–")),
        str(result.record.data.get("command", "–")),
    ]


def missing(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    opened = " open" if len(notes) <= MOST_NOTES else ""
    return (
        '<section id="missing" aria-labelledby="missing-title">'
        '<h2 id="missing-title">What is missing</h2>\n'
        f"<details{opened}><summary>{len(notes)} notes on what is missing, incomplete, failed or "
        f'left out</summary><ul class="notes">{items}</ul></details></section>'
    )


def machines(report: Report) -> str:
    """The hardware and the versions."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in report.machines)
    return (
        '<section id="machines" aria-labelledby="machines-title">'
        '<h2 id="machines-title">Machines and versions</h2>\n'
        f'<ul class="notes">{items}</ul></section>'
    )

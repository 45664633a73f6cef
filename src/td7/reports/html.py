"""One HTML page that needs nothing else: tables, charts, videos, the data as JSON."""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from td7.reports.bars import MOST_BARS
from td7.reports.chart_data import chart_data
from td7.reports.formats import as_csv
from td7.reports.report import Report
from td7.reports.result import Result, plain, study_or_empty
from td7.reports.tables.table import Table
from td7.reports.videos import MEDIA_TYPES

TITLE = "TD7: results compared with the paper's"
MOST_NOTES = 20  # that are shown without a click
MOST_LINES = 30  # of a table that is shown without a click
LONGEST_TEXT = 36  # characters of a cell in one line


def page(report: Report) -> str:
    """The whole page."""
    sections = [_section(name, own, report.tables) for name, own in report.studies.items()]
    links = {
        "runs": "What was run",
        **{name: study_or_empty(name).title for name in report.studies},
        "every-run": "Every run",
    }
    if report.notes:
        links["missing"] = "What is missing"
    parts = {
        "title": html.escape(TITLE),
        "summary": html.escape(report.summary),
        "navigation": "\n".join(
            f'<a href="#{html.escape(name)}">{html.escape(text)}</a>'
            for name, text in links.items()
        ),
        "body": "\n".join(
            [_runs(report), *sections, _every_run(report.results), _notes(report.notes)]
        ),
        "data": _as_json(chart_data(report)),
        "style": _file("style.css"),
        "script": _file("script.js"),
    }
    # In one pass: braces in what is inserted stay as they are.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page.html"))


def _file(name: str) -> str:
    return (files("td7.reports") / "page" / name).read_text(encoding="utf-8").strip()


def _as_json(data: Any) -> str:
    """JSON in which no text can close the script element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -- a study -------------------------------------------------------------------------------------


def _section(name: str, results: Sequence[Result], tables: Sequence[Table]) -> str:
    study = study_or_empty(name)
    identifier = html.escape(name)
    parts = [
        f'<section id="{identifier}" aria-labelledby="{identifier}-title">',
        f'<h2 id="{identifier}-title">{html.escape(study.title)}</h2>',
        f'<p class="faint">{html.escape(study.where)}</p>',
    ]
    for table in (table for table in tables if table.study == name):
        parts += [_table(table), _download(table)]
        if table.kind == "scores":
            parts += [
                "<h3>Learning curves</h3>",
                f'<div data-curves="{identifier}"><p class="faint">They need JavaScript.</p></div>',
            ]
        elif table.kind in ("losses", "speed") and len(table.records) <= MOST_BARS:
            parts.append(f'<div class="bars" data-bars="{html.escape(table.name)}"></div>')
    return "\n".join([*parts, _videos(results), "</section>"])


def _table(table: Table) -> str:
    """Columns of text are aligned left, columns of numbers right; highlighted cells are bold."""
    columns = range(len(table.header))
    has_text = [all(not _is_number(line[i].text) for line in table.lines) for i in columns]
    name = html.escape(table.name)
    rows = []
    for line in table.lines:
        cells = []
        for i, cell in enumerate(line):
            text = html.escape(cell.text)
            text = f"<strong>{text}</strong>" if cell.bold else text
            css = _text_class(cell.text) if has_text[i] else ""
            is_name = table.header[i] == "row"
            cells.append(
                f'<th scope="row"{css}>{text}</th>' if is_name else f"<td{css}>{text}</td>"
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col"{" class=words" if has_text[i] else ""}>{html.escape(heading)}</th>'
        for i, heading in enumerate(table.header)
    )
    body = _scrollable(
        f'aria-labelledby="{name}-title"',
        f'<table id="table-{name}" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-caption">',
        head,
        rows,
    )
    if len(rows) > MOST_LINES and table.kind != "scores":
        body = f"<details><summary>The table ({len(rows)} lines)</summary>{body}</details>"
    return (
        f'<h3 id="{name}-title">{html.escape(table.title)}</h3>\n'
        f'<p id="{name}-caption" class="faint">{html.escape(table.caption)}</p>\n' + body
    )


def _scrollable(label: str, table: str, head: str, rows: Iterable[str]) -> str:
    """A table that scrolls sideways where the window is narrow."""
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" {label}>{table}\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _text_class(text: str) -> str:
    """The class of a cell of text: a long one is wrapped, to leave room for other columns."""
    return f' class="words{" long" * (len(text) > LONGEST_TEXT)}"'


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?(± )?[\d.,]+( [±\[].*|%.*)?|–", text))


def _download(table: Table) -> str:
    address = f"data:text/csv;charset=utf-8,{quote(as_csv(table))}"
    name = html.escape(table.name)
    return f'<p class="downloads"><a download="{name}.csv" href="{address}">{name}.csv</a></p>'


def _videos(results: Sequence[Result]) -> str:
    """Videos of policies, embedded in the page."""
    shown = []
    for result in results:
        for file in result.videos:
            kind = MEDIA_TYPES[file.suffix]
            caption = html.escape(f"{result.label} on {result.title} ({file.name})")
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


def _runs(report: Report) -> str:
    """Versions, hardware and hours."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in report.machines)
    return (
        '<section id="runs" aria-labelledby="runs-title"><h2 id="runs-title">What was run</h2>\n'
        f"<p>{html.escape(report.summary)}</p><ul>{items}</ul></section>"
    )


def _every_run(results: Sequence[Result]) -> str:
    """A line per run."""
    columns = ("study", "row", "place", "seeds", "steps", "state", "hours", "started", "command")
    head = "".join(f'<th scope="col" class="words">{heading}</th>' for heading in columns)
    rows = []
    for result in results:
        cells = (f"<td{_text_class(t)}>{html.escape(t)}</td>" for t in _run_texts(result))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = _scrollable('aria-label="Every run"', "<table>", head, rows)
    return (
        '<section id="every-run" aria-labelledby="every-run-title">'
        '<h2 id="every-run-title">Every run</h2>\n'
        f"<details><summary>{len(results)} runs and their commands</summary>"
        f"{table}</details></section>"
    )


def _run_texts(result: Result) -> list[str]:
    hours = "–" if result.seconds is None else f"{result.seconds / 3600:.2f}"
    state = "finished" if result.finished else f"at {result.last_step or 0:,}"
    texts = [
        result.study,
        result.label,
        result.title,
        str(len(result.seeds)),
        f"{result.steps:,}",
        state,
        hours,
        str(result.record.data.get("started", "–")),
        str(result.record.data.get("command", "–")),
    ]
    return list(map(plain, texts))


def _notes(notes: Sequence[str]) -> str:
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

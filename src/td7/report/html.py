"""One HTML page that needs nothing else: tables, charts, downloads, the data as JSON."""

import html
import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from itertools import product
from typing import Any
from urllib.parse import quote

import numpy as np

from td7.report.bars import DROPS, MOST_BARS
from td7.report.curves import window_of
from td7.report.figures import DRAWN
from td7.report.formats import as_csv
from td7.report.result import VIDEOS, Findings, Result, known, machine_of
from td7.report.style import look_of, within_words
from td7.report.tables.drops import DROP_WINDOWS, drop_shares
from td7.report.tables.table import Table
from td7.statistics import Aligned

TITLE = "TD7: results beside the paper's"
MANY_NOTES = 20
MANY_LINES = 30
LONGEST_WORDS = 36  # characters of a cell in one line


def page(findings: Findings, tables: Sequence[Table]) -> str:
    """The whole page."""
    sections = [_section(name, own, tables) for name, own in findings.studies.items()]
    links = {
        "runs": "What was run",
        **{name: known(name).title for name in findings.studies},
        "every-run": "Every run",
    }
    if findings.notes:
        links["missing"] = "What is missing"
    parts = {
        "title": html.escape(TITLE),
        "summary": html.escape(summary_line(findings)),
        "navigation": "\n".join(
            f'<a href="#{html.escape(name)}">{html.escape(text)}</a>'
            for name, text in links.items()
        ),
        "body": "\n".join(
            [_runs(findings), *sections, _every_run(findings), _notes(findings.notes)]
        ),
        "data": _embedded(data(findings, tables)),
        "style": _file("style.css"),
        "script": _file("script.js"),
    }
    # One pass, so that what is put in is not searched.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page.html"))


def _file(name: str) -> str:
    return (files("td7.report") / "page" / name).read_text(encoding="utf-8").strip()


def _embedded(found: Any) -> str:
    """JSON that no text in it can end."""
    text = json.dumps(found, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def data(findings: Findings, tables: Sequence[Table]) -> dict[str, Any]:
    """What the charts are drawn from, and the tables' numbers in full."""
    falling = {table.study for table in tables if table.kind == "drops"}
    studies = [
        {
            "name": name,
            "timed": "time-curves" in DRAWN.get(name, {}),
            "window": window_of(results),
            "curves": [_curve(result) for result in results if result.curves],
            "estimates": [_estimates(result) for result in results if result.estimates],
            "drops": _drops(results) if name in falling else [],
        }
        for name, results in findings.studies.items()
    ]
    listed = [{"name": t.name, "kind": t.kind, "records": list(t.records)} for t in tables]
    return {"studies": studies, "tables": listed, "notes": list(findings.notes)}


def _curve(result: Result) -> dict[str, Any]:
    if result.curves is None:
        raise ValueError(f"{result.name} has no evaluations")
    seconds = result.seconds_a_step
    return {
        **_line(result, result.curves),
        "minutes_a_step": None if seconds is None else float(f"{seconds / 60:.6g}"),
    }


def _line(result: Result, curves: Aligned) -> dict[str, Any]:
    look = look_of(result)
    return {
        "row": result.label,
        "place": result.place,
        "title": result.title,
        "quantity": result.quantity,
        "counted": result.step_unit,
        "colour": look.colour,
        "dashes": look.dashes,
        "seeds": curves.seeds,
        "steps": curves.steps,
        "values": [[float(f"{value:.6g}") for value in row] for row in curves.values.tolist()],
    }


def _estimates(result: Result) -> dict[str, Any]:
    if result.estimates is None:
        raise ValueError(f"{result.name} has no value estimates")
    return {**_line(result, result.estimates), "quantity": "value estimate", "raw": True}


def _drops(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A line a run and window: percent of evaluations, by how much lower one is that follows."""
    shares = {result: drop_shares(result, DROPS, []) or {} for result in results}
    words = {"quantity": "% of evaluations", "counted": "% lower or more", "raw": True}
    ends = {"lowest": 0, "highest": 100}  # of the axis: panels side by side can be compared
    found = []
    for within, result in product(DROP_WINDOWS, results):
        if within in shares[result]:
            place = f"{result.title}, {within_words(within)}"
            curves = Aligned((0,), DROPS, np.array([shares[result][within]]), ())
            named = {"place": place, "title": place}
            found.append({**_line(result, curves), **words, **ends, **named})
    return found


def summary_line(findings: Findings) -> str:
    """How much there is, in one line."""
    results = findings.results
    finished = sum(result.finished for result in results)
    seconds = sum(result.seconds or 0.0 for result in results)
    took = f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.1f} minutes"
    seeds = sum(len(result.seeds) for result in results)
    return (
        f"{_counted(len(results), 'run')} with {_counted(seeds, 'seed')} in all, {finished} of "
        f"them finished, in {took} by the clock."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _section(name: str, results: Sequence[Result], tables: Sequence[Table]) -> str:
    chosen = known(name)
    named = html.escape(name)
    parts = [
        f'<section id="{named}" aria-labelledby="{named}-title">',
        f'<h2 id="{named}-title">{html.escape(chosen.title)}</h2>',
        f'<p class="faint">{html.escape(chosen.where)}</p>',
    ]
    for table in (table for table in tables if table.study == name):
        parts += [_table(table), _download(table)]
        if table.kind == "scores":
            parts += [
                "<h3>Learning curves</h3>",
                f'<div data-curves="{named}"><p class="faint">They need JavaScript.</p></div>',
            ]
        elif table.kind in ("losses", "speed") and len(table.records) <= MOST_BARS:
            parts.append(f'<div class="bars" data-bars="{html.escape(table.name)}"></div>')
    return "\n".join([*parts, _videos(results), "</section>"])


def _videos(results: Sequence[Result]) -> str:
    """Of policies, each within the page."""
    shown = []
    for result in results:
        for file in result.videos:
            kind = VIDEOS[file.suffix]
            words = html.escape(f"{result.label} on {result.title} ({file.name})")
            address = f"data:{kind};base64,{b64encode(file.read_bytes()).decode()}"
            film = (
                f'<img alt="{words}" src="{address}">'
                if kind.startswith("image/")
                else f'<video controls muted loop playsinline preload="metadata" '
                f'aria-label="{words}" src="{address}"></video>'
            )
            shown.append(f'<figure>{film}<figcaption class="faint">{words}</figcaption></figure>')
    return f'<h3>Videos</h3>\n<div class="videos">{"".join(shown)}</div>' if shown else ""


def _table(table: Table) -> str:
    """Columns of words to the left, of numbers to the right; `strong` is what is highlighted."""
    count = len(table.header)
    wordy = [all(not _is_number(line[i].text) for line in table.lines) for i in range(count)]
    name = html.escape(table.name)
    rows = []
    for line in table.lines:
        cells = []
        for i, cell in enumerate(line):
            text = html.escape(cell.text)
            text = f"<strong>{text}</strong>" if cell.bold else text
            kind = _class(cell.text) if wordy[i] else ""
            is_name = table.header[i] == "row"
            cells.append(
                f'<th scope="row"{kind}>{text}</th>' if is_name else f"<td{kind}>{text}</td>"
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = "".join(
        f'<th scope="col"{" class=words" if wordy[i] else ""}>{html.escape(word)}</th>'
        for i, word in enumerate(table.header)
    )
    body = (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}-title">'
        f'<table id="table-{name}" aria-labelledby="{name}-title" '
        f'aria-describedby="{name}-caption">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )
    if len(rows) > MANY_LINES and table.kind != "scores":
        body = f"<details><summary>The table ({len(rows)} lines)</summary>{body}</details>"
    return (
        f'<h3 id="{name}-title">{html.escape(table.title)}</h3>\n'
        f'<p id="{name}-caption" class="faint">{html.escape(table.caption)}</p>\n' + body
    )


def _class(text: str) -> str:
    """Of a cell of words: long ones are wrapped, so that there is room for other columns."""
    return f' class="words{" long" * (len(text) > LONGEST_WORDS)}"'


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[-+]?(± )?[\d.,]+( [±\[].*|%.*)?|–", text))


def _download(table: Table) -> str:
    address = f"data:text/csv;charset=utf-8,{quote(as_csv(table))}"
    name = html.escape(table.name)
    return f'<p class="downloads"><a download="{name}.csv" href="{address}">{name}.csv</a></p>'


def _runs(findings: Findings) -> str:
    """Versions, hardware and hours."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in machines(findings))
    return (
        '<section id="runs" aria-labelledby="runs-title"><h2 id="runs-title">What was run</h2>\n'
        f"<p>{html.escape(summary_line(findings))}</p><ul>{items}</ul></section>"
    )


def _every_run(findings: Findings) -> str:
    """A line a run."""
    columns = ("study", "row", "place", "seeds", "steps", "state", "hours", "started", "command")
    heads = "".join(f'<th scope="col" class="words">{word}</th>' for word in columns)
    rows = "\n".join(
        "<tr>" + "".join(f"<td{_class(w)}>{html.escape(w)}</td>" for w in _run(r)) + "</tr>"
        for r in findings.results
    )
    return (
        '<section id="every-run" aria-labelledby="every-run-title">'
        '<h2 id="every-run-title">Every run</h2>\n'
        f"<details><summary>{len(findings.results)} runs and the command of each</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Every run"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div></details></section>"
    )


def machines(findings: Findings) -> list[str]:
    """A line a machine and set of versions."""
    kinds = Counter((machine_of(r.config), _versions(r)) for r in findings.results)
    return [
        f"{count} {'run' if count == 1 else 'runs'} on {machine}: {versions}"
        for (machine, versions), count in kinds.items()
    ]


def _versions(result: Result) -> str:
    versions = result.config.get("versions", {})
    said = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    return said or "unknown versions"


def _run(result: Result) -> list[str]:
    hours = "–" if result.seconds is None else f"{result.seconds / 3600:.2f}"
    state = "finished" if result.finished else f"at {result.last or 0:,}"
    return [
        result.study,
        result.label,
        result.title,
        str(len(result.seeds)),
        f"{result.steps:,}",
        state,
        hours,
        str(result.config.get("started", "–")),
        str(result.config.get("command", "–")),
    ]


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    opened = " open" if len(notes) <= MANY_NOTES else ""
    return (
        '<section id="missing" aria-labelledby="missing-title">'
        '<h2 id="missing-title">What is missing</h2>\n'
        f"<details{opened}><summary>{len(notes)} things are missing, cut, failed or left out"
        f'</summary><ul class="notes">{items}</ul></details></section>'
    )

"""One HTML page that needs nothing else: tables, charts, videos, the data as JSON."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from td7.reports.bars import MOST_BARS
from td7.reports.chart_data import chart_data
from td7.reports.parts import download, every_run, machines, missing, table_part, videos
from td7.reports.report import Report
from td7.reports.result import Result
from td7.reports.tables.table import Table
from td7.reports.tables.views import titled
from td7.studies.rows import Study

TITLE, NEUTRAL_TITLE = "TD7: results compared with the paper's", "TD7: results"


def page(report: Report) -> str:
    """The whole page: the studies' results first, the versions that made them last."""
    studies = {name: titled(name, own, report.tables) for name, own in report.studies.items()}
    sections = [_section(studies[name], own, report.tables) for name, own in report.studies.items()]
    links = {
        **{name: study.title for name, study in studies.items()},
        "every-run": "Every run",
        **({"missing": "What is missing"} if report.notes else {}),
        "machines": "Machines and versions",
    }
    return whole_page(
        title=TITLE if report.uses_paper else NEUTRAL_TITLE,
        summary=report.summary,
        links=links,
        sections=[*sections, every_run(report), missing(report.notes), machines(report)],
        data=chart_data(report),
    )


def whole_page(
    *,
    title: str,
    summary: str,
    links: Mapping[str, str],
    sections: Sequence[str],
    data: Mapping[str, Any],
) -> str:
    """A page of sections in HTML; `links` has the texts of the navigation by the sections' ids.

    `data` is what the script draws, as `chart_data` makes it.
    """
    parts = {
        "title": html.escape(title),
        "summary": html.escape(summary),
        "navigation": "\n".join(
            f'<a href="#{html.escape(name)}">{html.escape(text)}</a>'
            for name, text in links.items()
        ),
        "body": "\n".join(sections),
        "data": _as_json(data),
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


def _section(study: Study, results: Sequence[Result], tables: Sequence[Table]) -> str:
    """A study: its tables with their charts, and the videos of its policies."""
    identifier = html.escape(study.name)
    parts = [
        f'<section id="{identifier}" aria-labelledby="{identifier}-title">',
        f'<h2 id="{identifier}-title">{html.escape(study.title)}</h2>',
        *([f'<p class="faint">{html.escape(study.where)}</p>'] if study.where else []),
    ]
    for table in (table for table in tables if table.study == study.name):
        parts += [table_part(table), download(table)]
        if table.kind == "scores":
            parts.append(
                f'<div data-curves="{identifier}"><p class="faint">Learning curves need '
                "JavaScript.</p></div>"
            )
        elif table.kind in ("losses", "speed") and len(table.records) <= MOST_BARS:
            parts.append(f'<div class="bars" data-bars="{html.escape(table.name)}"></div>')
    return "\n".join([*parts, videos(results), "</section>"])

"""A report as one Markdown page, and its tables within other Markdown files."""

import re

from td7.errors import InputError, unknown
from td7.reports.formats import as_markdown, markdown
from td7.reports.report import Report

TITLE, NEUTRAL_TITLE = "# Results compared with the paper's", "# Results of the runs"
MARKED = re.compile(
    r"(<!-- td7 report: (\S+)( with caption)? -->)\n.*?(<!-- td7 report -->)", re.DOTALL
)


def markdown_page(report: Report) -> str:
    """Every table on one page, then what is missing, and the versions last."""
    origin = "`td7 report` writes this page; every number comes from the run folders."
    title = TITLE if report.uses_paper else NEUTRAL_TITLE
    parts = [title, f"{report.summary} {origin}"]
    for table in report.tables:
        parts += [f"## {markdown(table.title)}", markdown(table.caption), as_markdown(table)]
    if report.notes:
        notes = "\n".join(f"- {markdown(note)}" for note in report.notes)
        parts += ["## What is missing", notes]
    machines = "\n".join(f"- {markdown(line)}" for line in report.machines)
    parts += ["## Machines and versions", machines]
    return "\n\n".join(parts) + "\n"


def with_tables(text: str, report: Report) -> str:
    """The text with the tables that its marks name; the whole page for "" or an earlier report.

    The table NAME comes between `<!-- td7 report: NAME -->` and `<!-- td7 report -->`, after its
    caption if the mark is `NAME with caption`.
    """
    by_name = {table.name: table for table in report.tables}

    def table(match: re.Match[str]) -> str:
        if match[2] not in by_name:
            raise unknown("table of the report", match[2], by_name)
        named = by_name[match[2]]
        caption = f"{markdown(named.caption)}\n\n" if match[3] else ""
        return f"{match[1]}\n{caption}{as_markdown(named)}\n{match[4]}"

    if not text or text.startswith((f"{TITLE}\n", f"{NEUTRAL_TITLE}\n")):
        return markdown_page(report)
    filled, count = MARKED.subn(table, text)
    if count == 0 or count != text.count("<!-- td7 report: "):
        raise InputError(
            "it is not a report, and it has no complete marks "
            "<!-- td7 report: TABLE --> … <!-- td7 report -->"
        )
    return filled

"""Run folders → tables, figures and a page. Reads only; never trains."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from td7.errors import InputError, unknown
from td7.files import write_json, writing_to
from td7.report import figures as figures_module
from td7.report import formats
from td7.report import read as read_module
from td7.report.figures import save
from td7.report.html import machines, page, summary_line
from td7.report.result import Findings
from td7.report.tables import views as views_module
from td7.report.tables.table import Table

TITLE = "# Results beside the paper's"
MARKED = re.compile(
    r"(<!-- td7 report: (\S+)( with caption)? -->)\n.*?(<!-- td7 report -->)", re.DOTALL
)


# -- the whole report ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What folders hold, as tables."""

    findings: Findings
    tables: tuple[Table, ...]

    @property
    def summary(self) -> str:
        return summary_line(self.findings)

    @property
    def markdown(self) -> str:
        """Every table on one page, and what is missing."""
        written = "`td7 report` writes this page; every number is that of the run folders."
        ran = "\n".join(f"- {formats.markdown(line)}" for line in machines(self.findings))
        parts = [TITLE, f"{self.summary} {written}", ran]
        for table in self.tables:
            title = formats.markdown(table.title)
            parts += [f"## {title}", formats.markdown(table.caption), formats.as_markdown(table)]
        if self.findings.notes:
            lines = "\n".join(f"- {formats.markdown(note)}" for note in self.findings.notes)
            parts += ["## What is missing", lines]
        return "\n\n".join(parts) + "\n"

    def within(self, text: str) -> str:
        """The text with the tables that it marks places for; of none, or a report, all tables.

        Between `<!-- td7 report: NAME -->` and `<!-- td7 report -->` comes the table of that name,
        after its caption if the mark says `NAME with caption`.
        """
        by_name = {table.name: table for table in self.tables}

        def table(match: re.Match[str]) -> str:
            if match[2] not in by_name:
                raise unknown("table of the report", match[2], by_name)
            found = by_name[match[2]]
            caption = f"{formats.markdown(found.caption)}\n\n" if match[3] else ""
            return f"{match[1]}\n{caption}{formats.as_markdown(found)}\n{match[4]}"

        if not text or text.startswith(TITLE):
            return self.markdown
        found, count = MARKED.subn(table, text)
        if count == 0 or count != text.count("<!-- td7 report: "):
            raise InputError("it is no report, and has no places marked for one, or not to the end")
        return found


def read(folders: Sequence[Path]) -> Report:
    """Of run folders, study folders, and folders of either."""
    found = read_module.read(folders)
    made, notes = views_module.tables(found.studies)
    everything = tuple(dict.fromkeys([*found.notes, *notes]))
    return Report(replace(found, notes=everything), tuple(made))


def write(report: Report, out: Path, *, with_figures: bool = True) -> list[Path]:
    """report.html, report.md, curves.csv, tables/ and figures/; gives back what was written.

    files.json lists it; of an earlier report, what is not written again is removed.
    """
    folders = [out / "tables", *([out / "figures"] if with_figures else [])]
    with writing_to(out):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    before = _written(out)
    texts = {
        out / "report.html": page(report.findings, report.tables),
        out / "report.md": report.markdown,
        out / "curves.csv": _curves_csv(report.findings),
    }
    for table in report.tables:
        texts |= {
            out / "tables" / f"{table.name}.csv": formats.as_csv(table),
            out / "tables" / f"{table.name}.md": formats.as_markdown(table) + "\n",
            out / "tables" / f"{table.name}.tex": formats.as_latex(table),
        }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    written = list(texts)
    if with_figures:
        for name, figure in figures_module.figures(report.findings.studies, report.tables):
            written += save(figure, out / "figures", name)
    for path in set(before) - set(written):
        path.unlink(missing_ok=True)
    write_json(out / "files.json", [str(path.relative_to(out)) for path in written])
    return written


def _written(out: Path) -> list[Path]:
    """The files of an earlier report in this folder, and none outside of it."""
    try:
        names = json.loads((out / "files.json").read_text())
        paths = [(out / name) for name in names]
    except (OSError, ValueError, TypeError):
        return []
    return [path for path in paths if out.resolve() in path.resolve().parents]


def _curves_csv(findings: Findings) -> str:
    """Every evaluation: a row a seed and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("study", "row", "place", "quantity", "seed", "step", "value"))
    for result in findings.results:
        if result.curves is None:
            continue
        head = (result.study, result.label, result.place, result.quantity)
        for seed, values in zip(result.curves.seeds, result.curves.values.tolist(), strict=True):
            for step, value in zip(result.curves.steps, values, strict=True):
                writer.writerow((*head, seed, step, value))
    return text.getvalue()

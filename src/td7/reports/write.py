"""A report as files: tables, figures, one page."""

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from td7.errors import InputError, one_line
from td7.files import (
    check_no_link,
    check_writable,
    make_folder,
    read_json,
    write_json,
    writing_to,
)
from td7.files import write as write_file
from td7.reports.figures import figures, save
from td7.reports.formats import as_csv, as_latex, as_markdown, csv_cell
from td7.reports.html import page
from td7.reports.markdown import markdown_page, with_tables
from td7.reports.report import Report, read_report
from td7.reports.result import plain


@dataclass(frozen=True)
class WrittenReport:
    """A report in a folder: its `page`, all `files`, a `summary` of the runs, and `notes`.

    The notes name what is missing, incomplete, failed or left out.
    """

    page: Path
    files: tuple[Path, ...]  # all that were written; `page` is the first
    summary: str  # the number of runs and seeds, and their time
    notes: tuple[str, ...]  # a line per thing that is missing, incomplete, failed or left out

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"note: {note}" for note in self.notes), str(self.page)])

    def _repr_html_(self) -> str:
        """What a notebook shows, with a link to the page."""
        *lines, page = map(html.escape, str(self).splitlines())
        link = html.escape(quote(self.page.as_posix()))
        return "<br>".join([*lines, f'<a href="{link}">{page}</a>'])


def write_report(
    folders: Sequence[Path], out: Path, *, with_figures: bool, markdown: Sequence[Path]
) -> WrittenReport:
    """Write the report of these folders, and its tables into these Markdown files."""
    report = read_report(folders)
    texts = {file: _with_tables(file, report) for file in markdown}
    files = write(report, out, with_figures=with_figures)
    for file, text in texts.items():
        with writing_to(file):
            file.write_text(text, encoding="utf-8")
    return WrittenReport(out / "report.html", tuple(files), report.summary, report.notes)


def _with_tables(file: Path, report: Report) -> str:
    """What the Markdown file will hold; raise before anything is written."""
    try:
        if not file.exists():
            check_writable(file)
            return with_tables("", report)
        if not file.is_file():
            raise InputError("it is not a file")
        return with_tables(file.read_text(encoding="utf-8"), report)
    except (OSError, UnicodeError, InputError) as error:
        raise InputError(f"cannot write to {file}: {one_line(error)}") from None


def write(report: Report, out: Path, *, with_figures: bool = True) -> list[Path]:
    """Write report.html, report.md, curves.csv, tables/ and figures/; return the paths.

    files.json lists them; files of an earlier report that are not written again are removed.
    """
    folders = [out / "tables", *([out / "figures"] if with_figures else [])]
    for folder in folders:
        check_no_link(folder)
        make_folder(folder)
    before = _earlier_files(out)
    texts = {
        out / "report.html": page(report),
        out / "report.md": markdown_page(report),
        out / "curves.csv": _curves_csv(report),
    }
    for table in report.tables:
        texts |= {
            out / "tables" / f"{table.name}.csv": as_csv(table),
            out / "tables" / f"{table.name}.md": as_markdown(table) + "\n",
            out / "tables" / f"{table.name}.tex": as_latex(table),
        }
    for path, text in texts.items():
        write_file(path, text.encode())
    written = list(texts)
    if with_figures:
        for name, figure in figures(report.studies, report.tables):
            written += save(figure, out / "figures", name)
    for path in set(before) - set(written):
        path.unlink(missing_ok=True)
    write_json(out / "files.json", [str(path.relative_to(out)) for path in written])
    return written


def _earlier_files(out: Path) -> list[Path]:
    """The tables and figures of an earlier report; files.json may name other files as well."""
    try:
        names = set(map(str, read_json(out / "files.json", list)))
    except (InputError, FileNotFoundError):
        return []
    files = [file for folder in ("tables", "figures") for file in (out / folder).glob("*")]
    return [file for file in files if str(file.relative_to(out)) in names]


def _curves_csv(report: Report) -> str:
    """Every evaluation: a row per seed and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("study", "row", "place", "quantity", "seed", "step", "value"))
    for result in report.results:
        if result.curves is None:
            continue
        names = (result.study, result.label, result.place, result.quantity)
        head = [csv_cell(plain(name)) for name in names]
        for seed, values in zip(result.curves.seeds, result.curves.values.tolist(), strict=True):
            for step, value in zip(result.curves.steps, values, strict=True):
                writer.writerow((*head, seed, step, value))
    return text.getvalue()

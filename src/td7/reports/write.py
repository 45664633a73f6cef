"""A report as files: tables, figures, one page."""

import csv
import io
from pathlib import Path

from td7.errors import InputError
from td7.files import check_no_link, make_folder, read_json, write_json
from td7.files import write as write_file
from td7.reports.figures import figures, save
from td7.reports.formats import as_csv, as_latex, as_markdown, csv_cell
from td7.reports.html import page
from td7.reports.markdown import markdown_page
from td7.reports.report import Report
from td7.reports.result import plain


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

"""A report as files: tables, figures, one page."""

import csv
import io
import json
from pathlib import Path

from td7.files import make_folder, write_json
from td7.report.figures import figures, save
from td7.report.formats import as_csv, as_latex, as_markdown, csv_cell
from td7.report.html import page
from td7.report.markdown import markdown_page
from td7.report.report import Report
from td7.report.result import plain


def write(report: Report, out: Path, *, with_figures: bool = True) -> list[Path]:
    """Write report.html, report.md, curves.csv, tables/ and figures/; return the paths.

    files.json lists them; files of an earlier report that are not written again are removed.
    """
    folders = [out / "tables", *([out / "figures"] if with_figures else [])]
    for folder in folders:
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
        path.write_text(text, encoding="utf-8")
    written = list(texts)
    if with_figures:
        for name, figure in figures(report.studies, report.tables):
            written += save(figure, out / "figures", name)
    for path in set(before) - set(written):
        path.unlink(missing_ok=True)
    write_json(out / "files.json", [str(path.relative_to(out)) for path in written])
    return written


def _earlier_files(out: Path) -> list[Path]:
    """The files of an earlier report, if they are inside the folder."""
    try:
        names = json.loads((out / "files.json").read_text())
        paths = [(out / name) for name in names]
    except (OSError, ValueError, TypeError):
        return []
    return [path for path in paths if out.resolve() in path.resolve().parents]


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

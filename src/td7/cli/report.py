"""`td7 report`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from td7.cli.parser import Parser
from td7.errors import InputError, one_line
from td7.files import check_writable, writing_to

if TYPE_CHECKING:  # it loads pandas
    from td7.reports.report import Report

HELP = "make tables, figures and a web page from runs, compared with the paper"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument(
        "dirs", metavar="DIR", nargs="+", help="run folders, study folders, or folders of these"
    )
    parser.add_argument(
        "--out", metavar="DIR", default="report", help="folder of the report (default: report)"
    )
    parser.add_argument(
        "--no-figures", action="store_true", help="write only the tables and the page"
    )
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="+",
        default=[],
        help="also write all tables to a Markdown file; if the file has sections marked "
        "<!-- td7 report: TABLE --> (or: TABLE with caption) … <!-- td7 report -->, update only "
        "the tables in them",
    )


def _with_tables(file: Path, report: "Report") -> str:
    """Return what the Markdown file will hold; raise before anything is written."""
    from td7.reports.markdown import with_tables

    try:
        if not file.exists():
            check_writable(file)
            return with_tables("", report)
        if not file.is_file():
            raise InputError("it is not a file")
        return with_tables(file.read_text(encoding="utf-8"), report)
    except (OSError, UnicodeError, InputError) as error:
        raise InputError(f"cannot write to {file}: {one_line(error)}") from None


def run(options: Namespace) -> int:
    from td7.reports.report import read_report
    from td7.reports.write import write

    report = read_report([Path(folder) for folder in options.dirs])
    out = Path(options.out)
    texts = {file: _with_tables(file, report) for file in map(Path, options.markdown)}
    files = write(report, out, with_figures=not options.no_figures)
    for file, text in texts.items():
        with writing_to(file):
            file.write_text(text, encoding="utf-8")
    print(report.summary)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"wrote {len(files)} files, among them {out / 'report.html'}")
    return 0

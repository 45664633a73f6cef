"""`td7 report`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from td7.errors import InputError, one_line


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument(
        "dirs", metavar="DIR", nargs="+", help="run folders, study folders, folders of either"
    )
    parser.add_argument(
        "--out", metavar="DIR", default="report", help="folder to write (default: report)"
    )
    parser.add_argument("--no-figures", action="store_true", help="tables and the page only")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="+",
        default=[],
        help="write all tables there, too, as one Markdown page; in a file that has places marked "
        "<!-- td7 report: TABLE --> (or: TABLE with caption) … <!-- td7 report -->, only those "
        "tables",
    )


def run(options: argparse.Namespace) -> int:
    from td7.report.markdown import with_tables
    from td7.report.report import read_report
    from td7.report.write import write

    report = read_report([Path(folder) for folder in options.dirs])
    out = Path(options.out)
    written = write(report, out, with_figures=not options.no_figures)
    for file in map(Path, options.markdown):
        try:
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(with_tables(before, report), encoding="utf-8")
        except (OSError, UnicodeError, InputError) as error:
            raise InputError(f"cannot write to {file}: {one_line(error)}") from None
    print(report.summary)
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{len(written)} files, among them {out / 'report.html'}")
    return 0

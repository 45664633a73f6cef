"""`td7 report`."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from td7.cli.parser import Parser

HELP = "make tables, figures and a web page from runs, compared with the paper"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument(
        "dirs",
        metavar="DIR",
        nargs="+",
        help="run folders, study folders, or folders of these; or the folder of one search",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the report (default: report; of a search, its own folder)",
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


def run(options: Namespace) -> int:
    from td7.api import report

    written = report(
        options.dirs, out=options.out, figures=not options.no_figures, markdown=options.markdown
    )
    print(written.summary)
    for note in written.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"wrote {len(written.files)} files, among them {written.page}")
    return 0

"""`td7 compare`."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from td7.cli.console import new_console, print_json
from td7.cli.parser import Parser, add_json
from td7.errors import Option, say

HELP = "compare runs with the first: differences, Welch's test, probability of improvement"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument(
        "dirs",
        metavar="DIR",
        nargs="+",
        help="run folders, study folders, or folders of these; the first is the baseline",
    )
    parser.add_argument(
        "--step",
        metavar="N",
        help="step of the evaluation (default: the last that both runs have)",
    )
    add_json(parser)


def run(options: Namespace) -> int:
    from td7.cli.terminal import comparison_tables
    from td7.configs import parse_number
    from td7.reports.compare import compare_folders

    step = options.step
    if step is not None:
        step = parse_number(Option("step"), step, int, at_least=0)
    compared = compare_folders([Path(folder) for folder in options.dirs], step)
    if options.json:
        print_json(asdict(compared))
    else:
        console = new_console()
        for table in comparison_tables(compared):
            console.print(table)
    for note in compared.notes:
        say(f"note: {note}")
    return 0

"""`td7 tune`."""

import dataclasses
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from td7.cli.console import failed, new_console
from td7.cli.parser import Parser, add_from_options, add_import
from td7.cli.train import (
    add_algorithm,
    hyperparameter_help,
    hyperparameter_names,
    selected_algorithm,
)
from td7.errors import Stopped

if TYPE_CHECKING:  # these load PyTorch
    from td7.tuning.plan import Plan
    from td7.tuning.result import Search

HELP = "search for good hyperparameters: many trials side by side, most of which end early"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    from td7.tuning.options import TuneOptions

    add_algorithm(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    names = [f.name for f in dataclasses.fields(TuneOptions) if f.name != "algorithm"]
    add_from_options(parser, TuneOptions, names)
    add_import(parser, "its id names none")
    parser.explanation = lambda: _explanation(selected_algorithm(parser, words))
    parser.hyperparameters = lambda: hyperparameter_names((selected_algorithm(parser, words),))


def _explanation(name: str) -> str:
    from td7.algorithms import ALGORITHMS

    fields = dataclasses.fields(ALGORITHMS[name].config)
    usual = {f.name: f.metadata["search"] for f in fields if f.metadata.get("search")}
    lines = [f"what a search of {name} varies, where it has an effect:"]
    lines += [f"    {field}={text}" for field, text in usual.items()]
    return "\n".join([*lines, "", hyperparameter_help(name)])


def run(options: Namespace) -> int:
    from td7.tuning.options import TuneOptions
    from td7.tuning.run import make_plan, run_search, tune_options

    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TuneOptions)}
    plan = make_plan(tune_options(values))
    if options.dry_run or not options.quiet:
        _show_plan(plan)
    if options.dry_run:
        return 0
    try:
        search = run_search(plan)
    except Stopped as stop:
        return failed(f"{stop}; run the same command again to continue", 128 + stop.signum)
    _show_result(search)
    return 0


def _show_plan(plan: "Plan") -> None:
    console = new_console()
    for line in plan.lines():
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _show_result(search: "Search") -> None:
    from td7.tuning.progress import trial_table

    console = new_console()
    console.print(trial_table(search.all))
    lines = {
        "best": search.command,
        "page": str(search.path / "report.html"),
        "all files": str(search.path),
    }
    for label, text in lines.items():
        console.print(f"{label:10} {text}", highlight=False, soft_wrap=True, markup=False)

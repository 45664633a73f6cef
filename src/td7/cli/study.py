"""`td7 study`."""

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from td7.cli.console import failed, new_console
from td7.cli.parser import Parser, add_from_options
from td7.cli.train import hyperparameter_names
from td7.errors import Stopped

if TYPE_CHECKING:  # it loads PyTorch
    from td7.studies.run import Plan

HELP = "train all runs of a table of the paper, or of your own study, or continue them"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    from td7.options import StudyOptions
    from td7.studies.rows import STUDIES

    parser.add_argument(
        "name", metavar="NAME", help=f"{', '.join(STUDIES)}, or MODULE:NAME for your own"
    )
    parser.add_argument(
        "--rows",
        metavar="LABEL",
        action="append",
        default=[],
        help=StudyOptions.__dataclass_fields__["rows"].metadata["doc"],
    )
    # A label may look like MODULE:NAME.
    has_name = bool(words) and not words[0].startswith("-")
    parser.is_further["--rows"] = lambda word: word not in STUDIES and (has_name or ":" not in word)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    names = [f.name for f in dataclasses.fields(StudyOptions) if f.name not in ("name", "rows")]
    add_from_options(parser, StudyOptions, names)
    parser.hyperparameters = hyperparameter_names


def run(options: Namespace) -> int:
    from td7.options import StudyOptions
    from td7.studies.run import make_plan, run_study, study_options

    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(StudyOptions)}
    plan = make_plan(study_options(values))
    if options.dry_run or not options.quiet:
        _show_plan(plan)
    if options.dry_run:
        return 0
    try:
        status = run_study(plan)
    except Stopped as stop:
        return failed(f"{stop}; run the same command again to continue", 128 + stop.signum)
    out = plan.options.folder
    for name, error in status.failed.items():
        print(f"failed: {name}: {error} ({out / 'logs' / name}.log)", file=sys.stderr)
    print(f"{len(status.done)} of {len(status.runs)} runs are done: {out}")
    return 1 if status.failed else 0


def _show_plan(plan: "Plan") -> None:
    from td7.cli.terminal import plan_table
    from td7.training.progress import duration

    console = new_console()
    console.print(plan_table(plan.states))
    for note in plan.notes:
        print(f"note: {note}")
    done, total = len(plan.status.done), len(plan.states)
    if done == total:
        print(f"all {total} runs are done")
        return
    source = "from the runs that are done" if done else "from measurements on another machine"
    estimate = (
        ""
        if plan.seconds_left is None  # of an algorithm that nobody has measured
        else f"; the others take about {duration(plan.seconds_left)} on {plan.device} "
        f"(estimated {source})"
    )
    console.print(f"{done} of {total} runs are done{estimate}", highlight=False)
    for line in plan.missing_datasets:
        print(line)

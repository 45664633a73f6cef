"""`td7 study`."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from td7.cli.parser import add_from_options
from td7.cli.terminal import failed, new_console

if TYPE_CHECKING:
    from td7.studies.run import Plan


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.options import StudyOptions
    from td7.studies.rows import STUDIES

    del words
    parser.add_argument("name", metavar="NAME", help=", ".join(STUDIES))
    parser.add_argument(
        "--rows", metavar="LABEL", nargs="+", default=[], help="some rows; `td7 list studies NAME`"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    names = [f.name for f in dataclasses.fields(StudyOptions)]
    own = [name for name in names if name not in ("name", "rows")]
    add_from_options(parser, StudyOptions, own)


def run(options: argparse.Namespace) -> int:
    from td7.errors import Stopped
    from td7.studies.run import make_plan, run_study, study_options

    values = {n: v for n, v in vars(options).items() if n not in ("command", "dry_run")}
    plan = make_plan(study_options(values))
    if options.dry_run or not options.quiet:
        _show_plan(plan)
    if options.dry_run:
        return 0
    try:
        standing = run_study(plan)
    except Stopped as stop:
        return failed(f"{stop}; the same command goes on", 128 + stop.signum)
    out = plan.options.folder
    for name, error in standing.failed.items():
        print(f"failed: {name}: {error} ({out / 'logs' / name}.log)", file=sys.stderr)
    print(f"{len(standing.done)} of {len(standing.runs)} runs are done: {out}")
    return 1 if standing.failed else 0


def _show_plan(plan: "Plan") -> None:
    from td7.cli.terminal import plan_table
    from td7.training.progress import duration

    console = new_console()
    console.print(plan_table(plan.states))
    if len(plan.done) == len(plan.states):
        print(f"all {len(plan.states)} runs are done")
        return
    console.print(
        f"{len(plan.done)} of {len(plan.states)} runs are done; the others take about "
        f"{duration(plan.seconds)} on {plan.device} "
        f"(by {'the runs that are done' if plan.done else 'what was measured elsewhere'})",
        highlight=False,
    )
    for line in plan.missing:
        print(line)

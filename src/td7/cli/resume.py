"""`td7 resume`."""

import argparse
import dataclasses
from collections.abc import Sequence

from td7.cli.parser import add_from_options, add_import, add_values, option_names
from td7.cli.train import finish_training

KEEPS_SETTINGS = (
    "a resumed run keeps its settings, only --steps may grow; `td7 train` starts one with others"
)


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.options import TrainOptions

    del words
    parser.epilog = KEEPS_SETTINGS
    parser.add_argument("dir", metavar="DIR", help="the run folder")
    parser.add_argument(
        "--steps", metavar="N", help="extend the run to so many steps (or updates) a seed"
    )
    parser.add_argument("--dataset", metavar="DATASET", help="where its data are now, if moved")
    add_values(
        parser, "--set", "hyperparameters to make sure of: if the run has others, it is not resumed"
    )
    add_import(parser)
    how = ("workers", "snapshot_every", "quiet")
    add_from_options(parser, TrainOptions, how, default="as before")
    names = {f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(TrainOptions)}
    parser.set_defaults(fixed=names.difference(option_names(parser)))


def run(options: argparse.Namespace) -> int:
    from td7.api import resume

    return finish_training(
        lambda: resume(
            options.dir,
            steps=options.steps,
            dataset=options.dataset,
            set=options.set,
            workers=options.workers,
            snapshot_every=options.snapshot_every,
            quiet=options.quiet,
        ),
        quiet=options.quiet,
    )

"""`td7 resume`."""

import dataclasses
from argparse import Namespace
from collections.abc import Sequence

from td7.aliases import known_as
from td7.cli.parser import Parser, add_from_options, add_trust
from td7.cli.train import finish_training, hyperparameter_names
from td7.options import TrainOptions, flag

HELP = "continue a stopped run exactly where it stopped"
FIXED = (
    "a resumed run keeps its settings, only --steps may grow; `td7 train` starts a run with others"
)


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.epilog = FIXED
    parser.add_argument("dir", metavar="DIR", help="run folder")
    parser.add_argument(
        "--steps", metavar="N", help="extend the run to this many steps (or updates) per seed"
    )
    parser.add_argument(
        "--dataset", metavar="DATASET", help="where the dataset is now, if it moved"
    )
    add_trust(parser)
    changeable = ("set", "workers", "snapshot_every", "step_timeout", "quiet")
    add_from_options(parser, TrainOptions, changeable, default="as before")
    own = parser.option_names()
    parser.refusal = lambda option: FIXED if _known(option, own) not in (None, *own) else None


def _known(option: str, own: Sequence[str]) -> str | None:
    """Return what an option of other commands, or of other programs, is called here."""
    names = [*(f.name for f in dataclasses.fields(TrainOptions)), *hyperparameter_names()]
    options = [*own, *map(flag, names)]
    return option if option in options else known_as(option, options)


def run(options: Namespace) -> int:
    from td7.api import resume

    return finish_training(
        lambda: resume(
            options.dir,
            steps=options.steps,
            dataset=options.dataset,
            set=options.set,
            workers=options.workers,
            snapshot_every=options.snapshot_every,
            step_timeout=options.step_timeout,
            quiet=options.quiet,
            trust=options.trust,
        ),
        quiet=options.quiet,
    )

"""`td7 evaluate`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from td7.cli.parser import add_import
from td7.cli.terminal import new_console


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("dir", metavar="DIR", help="the run folder")
    parser.add_argument("--seed", metavar="N", help="only this seed's policy (default: all)")
    parser.add_argument(
        "--episodes", metavar="N", default="10", help="episodes a seed (default: 10)"
    )
    parser.add_argument(
        "--video", metavar="FILE", help="film the first episode, as .mp4 or .gif (extra `video`)"
    )
    add_import(parser)


def run(options: argparse.Namespace) -> int:
    from td7.api import evaluate
    from td7.cli.terminal import returns
    from td7.configs import parse
    from td7.report.result import data_origin
    from td7.runs.record import RunRecord, run_and_step

    episodes = evaluate(
        options.dir,
        seed=None if options.seed is None else parse("seed", options.seed, int),
        episodes=parse("episodes", options.episodes, int),
        video=options.video,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    given = RunRecord.read(run_and_step(Path(options.dir))[0]).dataset
    new_console().print(returns(episodes, data_origin(given)[1] if given else ""))
    if options.video:
        print(f"video: {options.video}")
    return 0

"""`td7 train`."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from td7.cli.parser import add_from_options, as_word
from td7.cli.terminal import failed, new_console


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.algorithms import ALGORITHMS
    from td7.options import TrainOptions

    chosen = _chosen(words)  # a wrong one is told before anything else, help included
    others = ", ".join(f"`td7 train {name} --help`" for name in ALGORITHMS if name != chosen)
    parser.epilog = f"{hyperparameter_help(chosen)}\n\nof the others: {others}"

    parser.add_argument(
        "algorithm", metavar="ALGORITHM", nargs="?", default="", help="default: td7"
    )
    names = [f.name for f in dataclasses.fields(TrainOptions)]
    add_from_options(parser, TrainOptions, [name for name in names if name != "algorithm"])


def _chosen(words: Sequence[str]) -> str:
    """The algorithm that the words after `train` name."""
    from td7.algorithms import ALGORITHMS, algorithm

    if words and not words[0].startswith("-"):
        return algorithm(words[0]).name
    return next((word for word in words if word in ALGORITHMS), "td7")


def hyperparameters(words: Sequence[str]) -> set[str]:
    """Those of the algorithm that a command's words choose; all, where a row or a run does."""
    from td7.algorithms import ALGORITHMS

    is_chosen = words[0] == "train" and not any(word.startswith("--variant") for word in words)
    names = [_chosen(words[1:])] if is_chosen else ALGORITHMS
    return {f.name for name in names for f in dataclasses.fields(ALGORITHMS[name].config)}


def hyperparameter_help(name: str) -> str:
    """Every hyperparameter of an algorithm, grouped by where the idea comes from."""
    from td7.algorithms import ALGORITHMS
    from td7.algorithms.config import ONLINE_GROUPS
    from td7.configs import describe_fields

    chosen = ALGORITHMS[name]
    lines = [f"hyperparameters of {name}, for --set:"]
    for group, fields in describe_fields(chosen.config).items():
        if group in ONLINE_GROUPS and not chosen.online:
            continue  # they are refused
        lines.append(f"  {group}")
        lines += [f"    {f + '=' + as_word(default):36}{doc}" for f, default, doc in fields]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> int:
    from td7.api import Run
    from td7.training.resolve import train_options
    from td7.training.start import start

    values = {name: value for name, value in vars(options).items() if name != "command"}
    chosen = train_options(values)
    return finish_training(lambda: Run(start(chosen)), quiet=chosen.quiet)


def finish_training(run_it: Callable[[], Any], *, quiet: bool) -> int:
    """Trains, then shows what came of it: a table, a picture, where the files are."""
    from td7.cli.terminal import summary
    from td7.errors import Stopped
    from td7.report.curves import learning_curve
    from td7.report.result import data_origin
    from td7.rollouts.registration import can_draw
    from td7.runs.record import RunRecord

    try:
        run = run_it()
    except Stopped as stop:
        return failed(f"{stop}; `td7 resume {stop.path}` goes on exactly", 128 + stop.signum)
    picture = run.path / "learning_curve.png"
    record = RunRecord.read(run.path)
    task, given = record.task.id, record.dataset
    where = Path(given.source).stem if given else task
    title = f"{record.algorithm} on {where}"
    counted = "updates" if given else "environment steps"
    learning_curve(run.evaluations, title, counted).savefig(picture, dpi=150)
    if not quiet:
        console = new_console()
        names = {"scored": task, "data": data_origin(given)[1], "step": "update"} if given else {}
        console.print(summary(run.evaluations, **names))
        shown = {"learning curve": str(picture), "all files": str(run.path)}
        if can_draw(record.task):
            shown["watch it"] = f"td7 evaluate {run.path} --video {run.path / 'video.mp4'}"
        for label, path in shown.items():
            console.print(f"{label:15} {path}", highlight=False, soft_wrap=True, markup=False)
    return 0

"""`td7 train`."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from td7.cli.console import failed, new_console
from td7.cli.parser import Parser, add_from_options, add_import
from td7.errors import Stopped
from td7.option_values import to_word

if TYPE_CHECKING:  # it loads pandas
    from td7.api import Run

HELP = "train an algorithm on a task, all seeds side by side"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    from td7.options import TrainOptions

    add_algorithm(parser)
    names = [f.name for f in dataclasses.fields(TrainOptions) if f.name != "algorithm"]
    add_from_options(parser, TrainOptions, names)
    add_import(parser, "its id names none")
    is_of_variant = any(word.startswith("--variant") for word in words)
    parser.explanation = lambda: _explanation(selected_algorithm(parser, words))
    parser.hyperparameters = lambda: hyperparameter_names(
        () if is_of_variant else (selected_algorithm(parser, words),)
    )


def add_algorithm(parser: Parser) -> None:
    from td7.options import ALGORITHM_NAMES

    parser.add_argument(
        "algorithm",
        metavar="ALGORITHM",
        nargs="?",
        default="",
        help=f"{', '.join(ALGORITHM_NAMES)}, or MODULE:NAME for your own (default: td7)",
    )


def selected_algorithm(parser: Parser, words: Sequence[str]) -> str:
    """Return the algorithm that the words name, also where they ask for help."""
    from td7.algorithms import algorithm

    given = parser.arguments(words)
    return algorithm(given[0]).name if given else "td7"


def _explanation(selected: str) -> str:
    from td7.algorithms import ALGORITHMS

    others = ", ".join(f"`td7 train {name} --help`" for name in ALGORITHMS if name != selected)
    return f"{hyperparameter_help(selected)}\n\nother algorithms: {others}"


def hyperparameter_names(algorithms: Sequence[str] = ()) -> set[str]:
    """Return the names of the hyperparameters of these algorithms, or else of all."""
    from td7.algorithms import ALGORITHMS

    configs = [ALGORITHMS[name].config for name in algorithms or ALGORITHMS]
    return {f.name for config in configs for f in dataclasses.fields(config)}


def hyperparameter_help(name: str) -> str:
    """Return a line per hyperparameter of an algorithm, grouped by where the idea comes from."""
    lines = [f"hyperparameters of {name}, for --set:"]
    for group, fields in hyperparameters(name).items():
        lines.append(f"  {group}")
        lines += [f"    {f + '=' + to_word(default):36}{doc}" for f, default, doc in fields]
    return "\n".join(lines)


def hyperparameters(name: str) -> dict[str, list[tuple[str, Any, str]]]:
    """Return {group: [(name, default, doc), …]} of the hyperparameters that an algorithm takes."""
    from td7.algorithms import ALGORITHMS
    from td7.algorithms.config import ONLINE_GROUPS
    from td7.configs import describe_fields

    algorithm = ALGORITHMS[name]
    return {
        group: fields
        for group, fields in describe_fields(algorithm.config).items()
        if algorithm.online or group not in ONLINE_GROUPS  # offline algorithms refuse these
    }


def run(options: Namespace) -> int:
    from td7.api import train
    from td7.options import TrainOptions

    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TrainOptions)}
    return finish_training(lambda: train(**values), quiet=options.quiet)


def finish_training(train: "Callable[[], Run]", *, quiet: bool) -> int:
    """Train, and print the results and where they are."""
    from td7.cli.terminal import configuration_table, evaluation_table
    from td7.files import shown
    from td7.reports.configurations import configurations
    from td7.reports.result import data_origin
    from td7.reports.single_run import PICTURE
    from td7.rollouts.registration import can_draw
    from td7.runs.record import RunRecord

    try:
        run = train()
    except Stopped as stop:
        return failed(
            f"{stop}; continue it exactly with `td7 resume {shown(stop.path)}`", 128 + stop.signum
        )
    if quiet:
        return 0
    record = RunRecord.read(run.path)
    task, dataset = record.task, record.dataset
    options = (
        {"scored_task": task.id, "origin": data_origin(dataset)[1], "step": "update"}
        if dataset
        else {}
    )
    console = new_console()
    if record.members.numbers:
        console.print(configuration_table(configurations(record, run.evaluations), **options))
    else:
        console.print(evaluation_table(run.evaluations, **options))
    folder = shown(run.path)
    lines = {"learning curve": str(folder / PICTURE), "all files": str(folder)}
    if can_draw(task):
        lines["make a video"] = f"td7 evaluate {folder} --video {folder / 'video.mp4'}"
    for label, text in lines.items():
        console.print(f"{label:15} {text}", highlight=False, soft_wrap=True, markup=False)
    return 0

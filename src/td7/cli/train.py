"""`td7 train`."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.cli.console import failed, new_console
from td7.cli.parser import Parser, add_from_options, add_import
from td7.errors import Stopped
from td7.option_values import to_word

if TYPE_CHECKING:  # it loads pandas
    from td7.api import Run

HELP = "train an algorithm on a task, all seeds side by side"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    from td7.algorithms import ALGORITHMS, algorithm
    from td7.options import TrainOptions

    parser.add_argument(
        "algorithm",
        metavar="ALGORITHM",
        nargs="?",
        default="",
        help=f"{', '.join(ALGORITHMS)}, or MODULE:NAME for your own (default: td7)",
    )
    names = [f.name for f in dataclasses.fields(TrainOptions) if f.name != "algorithm"]
    add_from_options(parser, TrainOptions, names)
    add_import(parser, "its id names none")
    given = parser.arguments(words)
    selected = algorithm(given[0]).name if given else "td7"  # even with --help
    others = ", ".join(f"`td7 train {name} --help`" for name in ALGORITHMS if name != selected)
    parser.epilog = f"{hyperparameter_help(selected)}\n\nother algorithms: {others}"
    is_of_variant = any(word.startswith("--variant") for word in words)
    parser.hyperparameters = lambda: hyperparameter_names(() if is_of_variant else (selected,))


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
    from td7.api import Run
    from td7.options import TrainOptions
    from td7.training.resolve import train_options
    from td7.training.start import start

    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(TrainOptions)}
    chosen = train_options(values)
    return finish_training(lambda: Run(start(chosen)), quiet=chosen.quiet)


def finish_training(train: "Callable[[], Run]", *, quiet: bool) -> int:
    """Train, draw the learning curve, and print the results and where they are."""
    from td7.cli.terminal import evaluation_table
    from td7.files import temporary_file
    from td7.reports.curves import learning_curve
    from td7.reports.result import data_origin
    from td7.rollouts.registration import can_draw
    from td7.runs.record import RunRecord

    def shown(path: Path) -> Path:
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    try:
        run = train()
    except Stopped as stop:
        return failed(
            f"{stop}; continue it exactly with `td7 resume {shown(stop.path)}`", 128 + stop.signum
        )
    picture = run.path / "learning_curve.png"
    record = RunRecord.read(run.path)
    task, dataset = record.task, record.dataset
    title = f"{record.algorithm} on {Path(dataset.source).stem if dataset else task.id}"
    unit = "updates" if dataset else "environment steps"
    figure = learning_curve(run.evaluations, title, unit)
    with temporary_file(picture) as temporary:  # replaced, as its name may be a hard link
        figure.savefig(temporary, dpi=150, format="png")
    if quiet:
        return 0
    console = new_console()
    if dataset:
        origin = data_origin(dataset)[1]
        console.print(
            evaluation_table(run.evaluations, scored_task=task.id, origin=origin, step="update")
        )
    else:
        console.print(evaluation_table(run.evaluations))
    folder = shown(run.path)
    lines = {"learning curve": str(folder / picture.name), "all files": str(folder)}
    if can_draw(task):
        lines["make a video"] = f"td7 evaluate {folder} --video {folder / 'video.mp4'}"
    for label, text in lines.items():
        console.print(f"{label:15} {text}", highlight=False, soft_wrap=True, markup=False)
    return 0

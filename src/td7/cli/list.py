"""`td7 list`."""

from argparse import Namespace
from collections.abc import Callable, Sequence

from td7.cli.parser import Parser
from td7.cli.train import hyperparameter_help
from td7.errors import InputError, unknown
from td7.option_values import to_word

HELP = "list algorithms with their hyperparameters, studies, or tasks"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("what", metavar="algorithms|studies|tasks")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="show this algorithm or study in detail"
    )


def run(options: Namespace) -> int:
    listings: dict[str, Callable[[], None]] = {
        "algorithms": lambda: _list_algorithms(options.name),
        "studies": lambda: _list_study(options.name) if options.name else _list_studies(),
        "tasks": _list_tasks,
    }
    if options.what not in listings:
        raise unknown("list", options.what, listings)
    if options.name and options.what == "tasks":
        raise InputError(f"td7 list tasks: unexpected argument {options.name!r}")
    listings[options.what]()
    return 0


def _list_studies() -> None:
    from td7.studies.rows import STUDIES

    for study in STUDIES.values():
        print(f"{study.name:16}{len(study.rows):3} rows   {study.title} ({study.where})")
    print("\n`td7 list studies NAME` shows the rows of one study.")


def _list_study(name: str) -> None:
    from td7.datasets.download import DATASETS
    from td7.studies.rows import study

    chosen = study(name)
    where = ", ".join(chosen.datasets or chosen.tasks)
    print(f"{chosen.title} ({chosen.where}): {chosen.steps:,} {chosen.step_unit} of {where}")
    label_width = 2 + max(len(row.label) for row in chosen.rows.values())
    algorithm_width = 2 + max(len(row.algorithm) for row in chosen.rows.values())
    group = ""
    for row in chosen.rows.values():
        if row.group != group:
            group = row.group
            print(f"\n{group}")
        changes = " ".join(f"{k}={to_word(v)}" for k, v in row.changes.items()) or "nothing"
        print(f"  {row.label:{label_width}}{row.algorithm:{algorithm_width}}{row.summary}")
        print(f"  {'':{label_width + algorithm_width}}changes {changes}")
    example = f"--env {chosen.tasks[0]}"
    if chosen.datasets:
        first = chosen.datasets[0]
        example = f"--dataset datasets/{DATASETS[first].file}"
        print(f"\nDownload a dataset: td7 dataset fetch {first}", end="")
    print(f"\nTrain one row: td7 train --variant {chosen.names()[1]!r} {example}")


def _list_algorithms(name: str | None) -> None:
    from td7.algorithms import ALGORITHMS, algorithm

    if name is not None:
        chosen = algorithm(name)
        print(f"{chosen.name:12}{chosen.summary}\n\n{hyperparameter_help(chosen.name)}")
        return
    for chosen in ALGORITHMS.values():
        print(f"{chosen.name:12}{chosen.summary}")
    print("\n`td7 list algorithms NAME` shows the hyperparameters of one algorithm.")


def _list_tasks() -> None:
    from td7.rollouts.registration import mujoco_tasks
    from td7.types import PAPER_TASKS

    for task in mujoco_tasks():
        print(f"{task:28}{'in the paper' if task in PAPER_TASKS else ''}".rstrip())
    print(
        "and every Gymnasium task with Box observations and Box actions, as Id-v0 or module:Id-v0"
    )

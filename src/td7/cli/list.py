"""`td7 list`."""

import argparse
from collections.abc import Callable, Sequence

from td7.cli.parser import as_word
from td7.cli.train import hyperparameter_help
from td7.errors import InputError, unknown


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("what", metavar="algorithms|studies|tasks")
    parser.add_argument("name", metavar="NAME", nargs="?", help="this algorithm or study alone")


def run(options: argparse.Namespace) -> int:
    listings: dict[str, Callable[[], None]] = {
        "algorithms": lambda: _list_algorithms(options.name),
        "studies": lambda: _list_studies(options.name),
        "tasks": _list_tasks,
    }
    if options.what not in listings:
        raise unknown("list", options.what, listings)
    if options.name and options.what == "tasks":
        raise InputError(f"td7 list {options.what} does not know what to do with {options.name!r}")
    listings[options.what]()
    return 0


def _list_studies(name: str | None) -> None:
    from td7.datasets.download import DATASETS
    from td7.studies.rows import STUDIES, study

    if name is None:
        for s in STUDIES.values():
            print(f"{s.name:16}{len(s.rows):3} rows   {s.title} ({s.where})")
        print("\n`td7 list studies NAME` shows the rows of one.")
        return
    chosen = study(name)
    where = ", ".join(chosen.datasets or chosen.tasks)
    print(f"{chosen.title} ({chosen.where}): {chosen.steps:,} {chosen.step_unit} of {where}")
    labels, names = (
        2 + max(len(getattr(row, word)) for row in chosen.rows.values())
        for word in ("label", "algorithm")
    )
    group = ""
    for row in chosen.rows.values():
        if row.group != group:
            group = row.group
            print(f"\n{group}")
        changes = " ".join(f"{k}={as_word(v)}" for k, v in row.changes.items()) or "nothing"
        print(f"  {row.label:{labels}}{row.algorithm:{names}}{row.summary}")
        print(f"  {'':{labels + names}}changes {changes}")
    example = f"--env {chosen.tasks[0]}"
    if chosen.datasets:
        first = chosen.datasets[0]
        example = f"--dataset datasets/{DATASETS[first].file}"
        print(f"\nGet a dataset: td7 dataset fetch {first}", end="")
    print(f"\nTrain one: td7 train --variant {chosen.names()[1]!r} {example}")


def _list_algorithms(name: str | None) -> None:
    from td7.algorithms import ALGORITHMS, algorithm

    chosen = list(ALGORITHMS.values()) if name is None else [algorithm(name)]
    for a in chosen:
        print(f"{a.name:12}{a.summary}")
    if name is None:
        print("\n`td7 list algorithms NAME` shows the hyperparameters of one.")
    else:
        print(f"\n{hyperparameter_help(chosen[0].name)}")


def _list_tasks() -> None:
    from td7.rollouts.registration import mujoco_tasks
    from td7.types import PAPER_TASKS

    for task in mujoco_tasks():
        print(f"{task:28}{'in the paper' if task in PAPER_TASKS else ''}".rstrip())
    print("and any Gymnasium task with a Box state and a Box action, as Id-v0 or module:Id-v0")

"""`td7 list`."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from td7.cli.console import print_json
from td7.cli.parser import Parser, add_json
from td7.cli.train import hyperparameter_help, hyperparameters
from td7.errors import InputError, unknown
from td7.option_values import to_word

HELP = "list algorithms with their hyperparameters, studies, tasks, or datasets"


class Listing(NamedTuple):
    """What can be listed: as data, and as text that is made of the data."""

    records: Callable[..., Any]
    show: Callable[[Any], None]


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("what", metavar="|".join(LISTINGS))
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="show this algorithm or study in detail; MODULE:NAME for your own",
    )
    add_json(parser)


def run(options: Namespace) -> int:
    what, name = options.what, options.name
    if what not in LISTINGS:
        raise unknown("list", what, LISTINGS)
    if name and what not in DETAILS:
        raise InputError(f"td7 list {what}: unexpected argument {name!r}")
    listing = DETAILS[what] if name else LISTINGS[what]
    records = listing.records(name) if name else listing.records()
    if options.json:
        print_json(records)
    else:
        listing.show(records)
    return 0


# -- algorithms ----------------------------------------------------------------------------------


def _algorithms() -> list[dict[str, Any]]:
    from td7.algorithms import ALGORITHMS

    return [{"name": a.name, "summary": a.summary} for a in ALGORITHMS.values()]


def _show_algorithms(algorithms: Sequence[Mapping[str, Any]]) -> None:
    for algorithm in algorithms:
        print(f"{algorithm['name']:12}{algorithm['summary']}")
    print("\n`td7 list algorithms NAME` shows the hyperparameters of one algorithm.")


def _algorithm(name: str) -> dict[str, Any]:
    from td7.algorithms import algorithm

    chosen = algorithm(name)
    return {
        "name": chosen.name,
        "summary": chosen.summary,
        "hyperparameters": [
            {"name": field, "default": default, "group": group, "description": doc}
            for group, fields in hyperparameters(chosen.name).items()
            for field, default, doc in fields
        ],
    }


def _show_algorithm(algorithm: Mapping[str, Any]) -> None:
    name = algorithm["name"]
    print(f"{name:12}{algorithm['summary']}\n\n{hyperparameter_help(name)}")


# -- studies -------------------------------------------------------------------------------------


def _studies() -> list[dict[str, Any]]:
    from td7.studies.rows import STUDIES

    return [
        {"name": study.name, "title": study.title, "where": study.where, "rows": len(study.rows)}
        for study in STUDIES.values()
    ]


def _show_studies(studies: Sequence[Mapping[str, Any]]) -> None:
    for study in studies:
        print(f"{study['name']:16}{study['rows']:3} rows   {study['title']} ({study['where']})")
    print("\n`td7 list studies NAME` shows the rows of one study.")


def _study(name: str) -> dict[str, Any]:
    from td7.studies.rows import study

    chosen = study(name)
    return {
        "name": chosen.name,
        "title": chosen.title,
        "where": chosen.where,
        "steps": chosen.steps,
        "step_unit": chosen.step_unit,
        "tasks": chosen.tasks,
        "datasets": chosen.datasets,
        "rows": [
            {
                "label": row.label,
                "variant": variant,
                "group": row.group,
                "algorithm": row.algorithm,
                "summary": row.summary,
                "changes": dict(row.changes),
            }
            for variant, row in zip(chosen.names(), chosen.rows.values(), strict=True)
        ],
    }


def _show_study(study: Mapping[str, Any]) -> None:
    from td7.datasets.download import DATASETS

    rows, datasets = study["rows"], study["datasets"]
    where = ", ".join(datasets or study["tasks"])
    print(
        f"{study['title']} ({study['where']}): {study['steps']:,} {study['step_unit']} of {where}"
    )
    label_width = 2 + max(len(row["label"]) for row in rows)
    algorithm_width = 2 + max(len(row["algorithm"]) for row in rows)
    group = ""
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            print(f"\n{group}")
        changes = " ".join(f"{k}={to_word(v)}" for k, v in row["changes"].items()) or "nothing"
        print(f"  {row['label']:{label_width}}{row['algorithm']:{algorithm_width}}{row['summary']}")
        print(f"  {'':{label_width + algorithm_width}}changes {changes}")
    example = f"--dataset {datasets[0]}" if datasets else f"--env {study['tasks'][0]}"
    if datasets and datasets[0] in DATASETS:
        example = f"--dataset datasets/{DATASETS[datasets[0]].file}"
        print(f"\nDownload a dataset: td7 dataset fetch {datasets[0]}", end="")
    print(f"\nTrain one row: td7 train --variant {rows[:2][-1]['variant']!r} {example}")


# -- tasks and datasets --------------------------------------------------------------------------


def _tasks() -> list[dict[str, Any]]:
    from td7.rollouts.registration import mujoco_tasks
    from td7.types import PAPER_TASKS

    return [{"id": task, "in_paper": task in PAPER_TASKS} for task in mujoco_tasks()]


def _show_tasks(tasks: Sequence[Mapping[str, Any]]) -> None:
    for task in tasks:
        print(f"{task['id']:28}{'in the paper' if task['in_paper'] else ''}".rstrip())
    print(
        "and every Gymnasium task with Box observations and Box actions, as Id-v0 or module:Id-v0"
    )


def _datasets() -> list[dict[str, Any]]:
    from td7.datasets.listing import listed_datasets

    return [dataset._asdict() for dataset in listed_datasets(Path("datasets"))]


def _show_datasets(datasets: Sequence[Mapping[str, Any]]) -> None:
    width = 2 + max(len(dataset["name"]) for dataset in datasets)
    for dataset in datasets:
        where = dataset["path"] or f"td7 dataset fetch {dataset['name']}"
        size = f"{dataset['bytes'] / 1e6:,.1f} MB"
        print(f"{dataset['name']:{width}}{dataset['origin']:8}{size:>12}  {where}")
    print("\n`td7 dataset info PATH` shows what a dataset contains.")


LISTINGS: Mapping[str, Listing] = {
    "algorithms": Listing(_algorithms, _show_algorithms),
    "studies": Listing(_studies, _show_studies),
    "tasks": Listing(_tasks, _show_tasks),
    "datasets": Listing(_datasets, _show_datasets),
}
DETAILS: Mapping[str, Listing] = {  # with a name
    "algorithms": Listing(_algorithm, _show_algorithm),
    "studies": Listing(_study, _show_study),
}

"""`td7 dataset`."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from td7.cli.parser import Parser, add_import
from td7.cli.terminal import new_console
from td7.errors import unknown


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.datasets.download import DATASETS, URL_VARIABLE

    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", parser_class=Parser, dest="action", required=True
    )
    info = actions.add_parser("info", help="what is in a dataset")
    info.add_argument("path", metavar="DATASET", help="a D4RL file, a Minari id or folder")
    info.add_argument("--env", metavar="ENV", help="its task, if its actions are not in [-1, 1]")
    info.add_argument("--json", action="store_true", help="as JSON")

    fetch = actions.add_parser(
        "fetch",
        help="download a D4RL file and check it",
        epilog=f"datasets: {', '.join(DATASETS)}",
    )
    fetch.add_argument("id", metavar="ID", help="e.g. hopper-medium-v2")
    fetch.add_argument(
        "--out", metavar="DIR", default="datasets", help="folder (default: datasets)"
    )
    fetch.add_argument(
        "--url", metavar="URL", help=f"address of the folder with the files (or {URL_VARIABLE})"
    )
    fetch.add_argument("--replace", action="store_true", help="a file that is not the dataset's")

    record = actions.add_parser("record", help="make a dataset of one's own from a run")
    record.add_argument("--run", metavar="DIR", required=True, help="the run folder")
    record.add_argument(
        "--kind",
        metavar="KIND",
        required=True,
        help="expert: what its last policy does; medium: what a kept one does that is about a "
        "third as good (needs --keep-policies); medium-expert: half of each; replay: what the run "
        "did",
    )
    record.add_argument("--rows", metavar="N", required=True, help="transitions")
    record.add_argument("--seed", metavar="N", help="of the run (default: its first)")
    record.add_argument("--out", metavar="FILE", help="default: TASK-KIND.hdf5")
    record.add_argument(
        "--workers", metavar="N", default="0", help="processes that play episodes (default: 0)"
    )
    add_import(record)
    if words and not words[0].startswith("-") and words[0] not in actions.choices:
        raise unknown("action", words[0], actions.choices)
    for action in actions.choices.values():
        action.set_defaults(own_parser=action)


def run(options: argparse.Namespace) -> int:
    return {"info": _dataset_info, "fetch": _dataset_fetch, "record": _dataset_record}[
        options.action
    ](options)


def _dataset_info(options: argparse.Namespace) -> int:
    import json

    from td7.cli.terminal import dataset_table
    from td7.datasets.dataset import summary
    from td7.datasets.read import read
    from td7.training.resolve import read_dataset
    from td7.types import Task

    if options.env:
        dataset = read_dataset(options.path, Task(options.env))
        dataset = dataclasses.replace(dataset, task_id=dataset.task_id or options.env)
    else:
        dataset = read(options.path)
    found = summary(dataset)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        new_console().print(dataset_table(found))
        for warning in found["warnings"]:
            print(f"warning: {warning}")
    return 0


def _dataset_fetch(options: argparse.Namespace) -> int:
    from td7.datasets.download import fetch
    from td7.training.progress import progress_bar

    with progress_bar(options.id, "bytes") as report:
        path = fetch(
            options.id,
            Path(options.out),
            report=report,
            say=lambda text: print(text, file=sys.stderr, flush=True),
            base_url=options.url,
            replace=options.replace,
        )
    print(path)
    return 0


def _dataset_record(options: argparse.Namespace) -> int:
    from td7.configs import parse, parse_number
    from td7.datasets.record import record
    from td7.runs.record import RunRecord
    from td7.training.hardware import MOST_WORKERS
    from td7.training.progress import progress_bar

    run = Path(options.run)
    task = RunRecord.read(run).task.name
    out = Path(options.out or f"{task}-{options.kind}.hdf5")
    workers = parse_number("workers", options.workers, int, at_least=0, at_most=MOST_WORKERS)
    with progress_bar(out.name, "rows") as report:
        record(
            run,
            options.kind,
            parse("rows", options.rows, int),
            out,
            seed=None if options.seed is None else parse("seed", options.seed, int),
            workers=workers,
            report=report,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(out)
    return 0

"""`td7 dataset`."""

import dataclasses
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from td7.cli.console import new_console
from td7.cli.parser import Parser, add_trust
from td7.errors import Option, say, unknown

HELP = "show, download or record a dataset for offline learning"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    from td7.datasets.download import DATASETS

    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", parser_class=Parser, dest="action", required=True
    )
    listed = f"datasets: {', '.join(DATASETS)}"
    _add_info(actions.add_parser("info", help="show what a dataset contains"))
    _add_fetch(actions.add_parser("fetch", help="download and verify a D4RL file", epilog=listed))
    _add_record(actions.add_parser("record", help="record a dataset from a run"))
    if words and not words[0].startswith("-") and words[0] not in actions.choices:
        raise unknown("action", words[0], actions.choices)
    for action in actions.choices.values():
        action.set_defaults(parser=action)


def _add_info(info: Parser) -> None:
    info.add_argument("path", metavar="DATASET", help="a D4RL file, a Minari id or folder")
    info.add_argument(
        "--env", metavar="ENV", help="task of the dataset, if its actions are not in [-1, 1]"
    )
    info.add_argument("--json", action="store_true", help="print JSON")


def _add_fetch(fetch: Parser) -> None:
    from td7.datasets.download import URL_VARIABLE

    fetch.add_argument("id", metavar="ID", help="e.g. hopper-medium-v2")
    fetch.add_argument(
        "--out", metavar="DIR", default="datasets", help="folder (default: datasets)"
    )
    fetch.add_argument(
        "--url",
        metavar="URL",
        help=f"address of the folder with the files (default: {URL_VARIABLE}, or D4RL's own)",
    )
    fetch.add_argument(
        "--replace", action="store_true", help="overwrite an existing file that is not the dataset"
    )


def _add_record(record: Parser) -> None:
    record.add_argument("--run", metavar="DIR", required=True, help="run folder")
    record.add_argument(
        "--kind",
        metavar="KIND",
        required=True,
        help="expert: episodes of the last policy; medium: of the kept policy with about a third "
        "of its return (needs --keep-policies); medium-expert: half of each; replay: the "
        "transitions of the training itself",
    )
    record.add_argument("--rows", metavar="N", required=True, help="number of transitions")
    record.add_argument("--seed", metavar="N", help="seed of the run (default: its first)")
    record.add_argument("--member", metavar="N", help="member of a run whose hyperparameters vary")
    record.add_argument("--out", metavar="FILE", help="default: TASK-KIND.hdf5")
    record.add_argument(
        "--workers", metavar="N", default="0", help="processes that play episodes (default: 0)"
    )
    add_trust(record)


def run(options: Namespace) -> int:
    return {"info": _info, "fetch": _fetch, "record": _record}[options.action](options)


def _info(options: Namespace) -> int:
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
    facts = summary(dataset)
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        new_console().print(dataset_table(facts))
        for warning in facts["warnings"]:
            print(f"warning: {warning}")
    return 0


def _fetch(options: Namespace) -> int:
    from td7.datasets.download import fetch
    from td7.training.progress import progress_bar

    with progress_bar(options.id, "bytes") as report:
        path = fetch(
            options.id,
            Path(options.out),
            report=report,
            say=say,
            base_url=options.url,
            replace=options.replace,
        )
    print(path)
    return 0


def _record(options: Namespace) -> int:
    from td7.configs import parse, parse_number
    from td7.datasets.record import record
    from td7.runs.record import RunRecord
    from td7.training.hardware import MOST_WORKERS
    from td7.training.progress import progress_bar

    run = Path(options.run)
    task = RunRecord.read(run).task.name
    out = Path(options.out or f"{task}-{options.kind}.hdf5")
    workers = parse_number(
        Option("workers"), options.workers, int, at_least=0, at_most=MOST_WORKERS
    )
    with progress_bar(out.name, "rows") as report:
        record(
            run,
            options.kind,
            parse(Option("rows"), options.rows, int),
            out,
            seed=options.seed,
            member=options.member,
            workers=workers,
            report=report,
            say=say,
            trust=options.trust,
        )
    print(out)
    return 0

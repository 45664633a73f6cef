"""`td7 bench`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from td7.cli.console import failed, new_console
from td7.cli.parser import Parser, with_default
from td7.configs import parse_number
from td7.errors import Option, Stopped, say
from td7.option_values import MOST_SEEDS
from td7.options import MOST_STEPS

MOST_SECONDS = 86_400  # per candidate; more are probably a typing error
HELP = "measure updates and steps per second, compared with other programs"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    for name, default, text in (
        ("--algorithms", "td7", "as A,B; see `td7 list algorithms`"),
        ("--members", "1,10", "numbers of seeds to train side by side"),
        (
            "--engines",
            "auto",
            "any of eager, compiled and graph (auto: eager and the fastest); processes: compiled, "
            "with seeds in processes of their own; sampling: only LAP's sampling",
        ),
        ("--rows", "100_000", "replay sizes"),
        ("--env", "HalfCheetah-v4", "tasks, as A,B, that define the sizes of the networks"),
        ("--steps", "0", "also time whole runs of this many steps; 0: none"),
        ("--device", "auto", "cpu, cuda or both, as A,B (auto: cuda if available)"),
        ("--seconds", "10", "seconds per candidate; candidates are measured in turns"),
        ("--out", "results/bench", "folder for the JSON file with the results"),
    ):
        parser.add_argument(
            name, metavar=name[2:].upper(), default=default, help=with_default(text, default)
        )
    parser.refusal = {"--seeds": "give numbers of seeds, as --members 1,10"}.get


def run(options: Namespace) -> int:
    from td7.bench.run import measure

    try:
        file = measure(
            options.algorithms.split(","),
            options.env.split(","),
            options.device.split(","),
            () if options.engines == "auto" else options.engines.split(","),
            members=_counts("members", options.members, at_most=MOST_SEEDS),
            rows=_counts("rows", options.rows, at_most=MOST_STEPS),
            seconds=parse_number(
                Option("seconds"), options.seconds, float, above=0, at_most=MOST_SECONDS
            ),
            steps=parse_number(Option("steps"), options.steps, int, at_least=0, at_most=MOST_STEPS),
            out=Path(options.out),
            say=say,
            show=new_console().print,
        )
    except Stopped as stop:
        return failed(f"{stop}; the results so far are in {stop.path}", 128 + stop.signum)
    print(file)
    return 0


def _counts(name: str, words: str, *, at_most: float) -> list[int]:
    return [
        parse_number(Option(name), word, int, at_least=1, at_most=at_most)
        for word in words.split(",")
    ]

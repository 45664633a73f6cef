"""`td7 bench`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from td7.cli.terminal import failed, new_console


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    for flag, default, text in (
        ("--algorithms", "td7", "as A,B; `td7 list algorithms`"),
        ("--seeds", "1,10", "numbers of seeds, side by side"),
        (
            "--engines",
            "auto",
            "of eager, compiled, graph (auto: eager and the fast one); processes: compiled, seeds "
            "in processes of their own; sampling: LAP's part alone",
        ),
        ("--rows", "100_000", "replay sizes"),
        ("--env", "HalfCheetah-v4", "the tasks, as A,B, whose sizes are taken"),
        ("--steps", "0", "train for so many steps, too, with everything in it, and time that"),
        ("--device", "auto", "of cpu, cuda, as A,B (auto: cuda if there is one)"),
        ("--seconds", "10", "time for each candidate; all take turns"),
        ("--out", "results/bench", "folder for the figures, as JSON"),
    ):
        shown = f"{text} (default: {default})"
        parser.add_argument(flag, metavar=flag[2:].upper(), default=default, help=shown)


def run(options: argparse.Namespace) -> int:
    from td7.bench.run import measure
    from td7.configs import parse_number
    from td7.errors import Stopped

    try:
        file = measure(
            options.algorithms.split(","),
            options.env.split(","),
            options.device.split(","),
            () if options.engines == "auto" else options.engines.split(","),
            seeds=[
                parse_number("seeds", word, int, at_least=1) for word in options.seeds.split(",")
            ],
            rows=[parse_number("rows", word, int, at_least=1) for word in options.rows.split(",")],
            seconds=parse_number("seconds", options.seconds, float, above=0),
            steps=parse_number("steps", options.steps, int, at_least=0),
            out=Path(options.out),
            say=lambda text: print(text, file=sys.stderr, flush=True),
            show=new_console().print,
        )
    except Stopped as stop:
        return failed(f"{stop}; what was measured is in {stop.path}", 128 + stop.signum)
    print(file)
    return 0

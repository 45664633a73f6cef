"""Run the campaign and print its tables. Exit status 1 if anything failed."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from faults.campaign import PARTS, load, markdown, run_part
from usual_signals import restore_signals


def main(words: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(words)
    restore_signals()
    # As in the tests, for all subprocesses: one thread, and the modules of this folder.
    os.environ.update(OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    for name in {*(chosen.part or ()), *chosen.trials}:
        if name not in PARTS:
            raise SystemExit(f"no part {name!r}; there are {', '.join(PARTS)}")
    reports = []
    # In memory, where there is such a folder: what a killed process wrote is in neither case lost.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(prefix="td7-faults-", dir=memory) as folder:
        for name in chosen.part or PARTS:
            part = load(name)
            number = chosen.trials.get(name, part.QUICK if chosen.quick else part.FULL)
            trials = range(number) if chosen.trial is None else [chosen.trial]
            print(f"{name}: {len(trials):,} trials …", file=sys.stderr, flush=True)
            reports.append(run_part(part, trials, chosen.seed, Path(folder)))
            if chosen.out:  # after every part: the campaign takes long
                chosen.out.write_text(markdown(reports))
    print(markdown(reports), end="")
    return int(any(report.outcome.failures for report in reports))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few trials per part, in seconds")
    parser.add_argument("--part", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.add_argument(
        "--trials", nargs="+", default={}, action=Numbers, metavar="PART=N", help="trials of a part"
    )
    parser.add_argument("--trial", type=int, metavar="N", help="only the trial of this number")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables as Markdown")
    return parser


class Numbers(argparse.Action):
    """PART=N …, collected in a dictionary."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        assert isinstance(values, list)
        numbers = dict(getattr(namespace, self.dest))
        for word in values:
            part, _, number = word.partition("=")
            if not number.isdecimal():
                parser.error(f"{option} takes PART=N, given {word!r}")
            numbers[part] = int(number)
        setattr(namespace, self.dest, numbers)


if __name__ == "__main__":
    raise SystemExit(main())

"""Parts of the campaign, what their trials come to, and the tables of a run of it."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple, Protocol

import numpy as np

# Modules of this package with these NAMEs, in the order of the tables.
PARTS = (
    *("kills", "gpu_kills", "signals", "file_faults", "races"),
    *("mutations", "snapshot_mutations", "commands", "datasets", "hostile", "environments"),
)
LONGEST = 300  # characters of a failure's description


class Failure(NamedTuple):
    trial: int
    what: str  # one line


@dataclass
class Outcome:
    """What the trials of one part came to."""

    trials: int = 0  # that took place: a fault that never fired is none
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # figures such as latencies; what was skipped

    def add(self, outcome: str) -> None:
        """Count a trial that ended as it should."""
        self.trials += 1
        self.outcomes[outcome] += 1

    def fail(self, trial: int, what: str) -> None:
        """Count a trial that did not."""
        self.add("failure")
        self.failures.append(Failure(trial, " ".join(what.split())[:LONGEST]))


class Part(Protocol):
    """A module of this package."""

    NAME: str
    FULL: int  # trials
    QUICK: int  # trials in the quick form, of a few seconds

    def run(self, trials: Sequence[int], seed: int, folder: Path) -> Outcome:
        """Carry out these trials, each of which depends on its number and the seed only.

        `folder` is empty and the part's own.
        """


class Report(NamedTuple):
    """A part's outcome, and how it came about."""

    part: str
    seed: int
    minutes: float
    outcome: Outcome


def load(name: str) -> Part:
    part: Part = import_module(f"faults.{name}")
    return part


def each_trial(
    trials: Iterable[int],
    seed: int,
    folder: Path,
    carry_out: Callable[[int, np.random.Generator, Path], str],
) -> Outcome:
    """Call `carry_out(number, random, empty folder)` per trial.

    It returns the trial's outcome, or "" if there was none to count; it fails by raising.
    """
    outcome = Outcome()
    for number in trials:
        own = folder / f"trial-{number}"
        own.mkdir()
        try:
            if ended := carry_out(number, np.random.default_rng([seed, number]), own):
                outcome.add(ended)
        except AssertionError as error:
            outcome.fail(number, str(error) or "an assertion without a message")
        except Exception as error:  # such as a file that is missing in a comparison
            outcome.fail(number, f"{type(error).__name__}: {error}")
        rmtree(own, ignore_errors=True)
    return outcome


def run_part(part: Part, trials: Sequence[int], seed: int, folder: Path) -> Report:
    """Run a part in a folder of its own below `folder`."""
    begin = time.monotonic()
    own = folder / part.NAME
    own.mkdir(parents=True)
    outcome = part.run(trials, seed, own)
    return Report(part.NAME, seed, (time.monotonic() - begin) / 60, outcome)


def markdown(reports: Sequence[Report]) -> str:
    """The tables, the notes, and the failures with what repeats each of them."""
    totals = ("part", "trials", "distinct outcomes", "failures", "seed", "minutes")
    summary = [
        (
            r.part,
            f"{r.outcome.trials:,}",
            f"{len(r.outcome.outcomes):,}",
            f"{len(r.outcome.failures):,}",
            str(r.seed),
            f"{r.minutes:.1f}",
        )
        for r in reports
    ]
    each = [
        (r.part, outcome, f"{times:,}")
        for r in reports
        for outcome, times in r.outcome.outcomes.most_common()
    ]
    notes = [f"- {r.part}: {note}" for r in reports for note in r.outcome.notes]
    failures = [
        f"- `--part {r.part} --seed {r.seed} --trial {failure.trial}`: {failure.what}"
        for r in reports
        for failure in r.outcome.failures
    ]
    blocks = [
        table(totals, summary),
        table(("part", "outcome", "trials"), each),
        "\n".join(notes),
        "\n".join(["Failures:", "", *failures]) if failures else "",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that also reads well as text."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    header, *body = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([header, rule, *body])

"""What the commands print: tables for a terminal."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from td7.datasets.scores import score
from td7.report.result import D4RL, D4RL_SCORE, seed_means
from td7.statistics import Sample
from td7.studies.folder import PlannedRun, RunState


def score_heading(data: str) -> str:
    """D4RL's score is of D4RL's data, unless it says whose: `data` is where they come from."""
    return D4RL_SCORE if data == D4RL else f"{D4RL_SCORE} ({data})"


def summary(
    evaluations: pd.DataFrame, scored: str = "", data: str = "", step: str = "step"
) -> Table:
    """A row a seed (first, best and last evaluation), then the mean over seeds.

    `scored`: the task whose D4RL score is told, too, of data that come from `data`. `step`: what
    one is called.
    """
    curves = seed_means(evaluations)
    has_score = score(scored, 0.0) is not None
    table = Table(title="mean return of an evaluation", title_justify="left")
    table.add_column("seed", justify="right")
    columns = ["first", "best", f"at {step}", "last", f"at {step}"]
    for column in [*columns, *([score_heading(data)] if has_score else [])]:
        table.add_column(column, justify="right")

    def scores(last: Sequence[float]) -> list[str]:
        """Of the last evaluations: the mean, and of several the interval."""
        found = score(scored, last)
        if found is None:
            return []
        return [f"{found[0]:.1f}" if len(found) == 1 else f"{Sample.of(found):.1f}"]

    for seed, curve in curves.items():
        known = curve.dropna()
        table.add_row(
            str(seed),
            f"{known.iloc[0]:,.1f}",
            f"{known.max():,.1f}",
            f"{known.idxmax():,}",
            f"{known.iloc[-1]:,.1f}",
            f"{known.index[-1]:,}",
            *scores([known.iloc[-1]]),
        )
    if curves.shape[1] > 1:
        common = curves.dropna()
        if len(common):
            sample = Sample.of(common.iloc[-1])
            last = f"{sample.mean:,.1f} ± {sample.interval:,.1f}"
            table.add_section()
            row = ("all", "", "", "", last, f"{common.index[-1]:,}")
            table.add_row(*row, *scores(list(common.iloc[-1])))
    return table


def returns(episodes: pd.DataFrame, data: str = "") -> Table:
    """A row a seed: what its episodes returned, and D4RL's score of data that come from `data`."""
    table = Table(title="returns", title_justify="left")
    scored = (score_heading(data),) if "score" in episodes else ()
    for column in ("seed", "episodes", "mean", "sd", "min", "max", "mean length", *scored):
        table.add_column(column, justify="right")
    for seed, played in episodes.groupby("seed"):
        values = played["return"]
        spread = f"{values.std():,.1f}" if len(values) > 1 else "–"
        table.add_row(
            str(seed),
            str(len(values)),
            f"{values.mean():,.1f}",
            spread,
            f"{values.min():,.1f}",
            f"{values.max():,.1f}",
            f"{played['length'].mean():,.0f}",
            *(f"{played['score'].mean():.1f}" for _ in scored),
        )
    return table


def dataset_table(found: Mapping[str, Any]) -> Table:
    """A summary of `td7.datasets` for people."""
    collected = " (self-collected)" if found["self_collected"] else ""
    title = Text(f"{found['name']}{collected}")  # not markup: names may hold brackets
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name in ("source", "task", "rows", "episodes", "state_dim", "action_dim"):
        value = found[name]
        words = f"{value:,}" if isinstance(value, int) else value or "unknown"
        table.add_row(name.replace("_dim", " dimensions"), Text(words))
        if name == "rows" and found["left_out"]:
            table.add_row("rows left out (cut, without a next state)", f"{found['left_out']:,}")
    table.add_row("rows that end for good", f"{100 * found['terminal_share']:.2f}%")
    statistics = {"returns": "return", "lengths": "length", "scores": D4RL_SCORE}
    for name, label in statistics.items():
        if found[name] is not None:
            table.add_section()
            for statistic, value in found[name].items():
                table.add_row(f"{label}, {statistic}", "–" if value is None else f"{value:,.1f}")
    return table


def plan_table(states: Mapping[PlannedRun, RunState]) -> Table:
    """A study's rows, and on how many tasks each is done."""
    table = Table(title="the plan", title_justify="left")
    counted = "updates" if any("dataset" in run.options for run in states) else "steps"
    for column in ("row", "algorithm", counted, "seeds"):
        table.add_column(column, justify="right" if column in (counted, "seeds") else "left")
    for wanted in RunState:
        table.add_column(wanted.value)
    for label in dict.fromkeys(run.label for run in states):
        own = {run: found for run, found in states.items() if run.label == label}
        first = next(iter(own))
        places = [
            ", ".join(run.where for run, found in own.items() if found is wanted)
            for wanted in RunState
        ]
        sizes = (f"{first.options['steps']:,}", str(len(first.options["seeds"])))
        table.add_row(label, first.algorithm, *sizes, *places)
    return table


def new_console() -> "Console":
    """Standard output; where it is no terminal, wide enough for every table."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140)


def failed(message: object, status: int) -> int:
    print(f"td7: {message}", file=sys.stderr)
    return status

"""Tables that commands print."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from td7.datasets.scores import score
from td7.reports.result import D4RL, D4RL_SCORE, seed_means
from td7.statistics import Sample
from td7.studies.folder import PlannedRun, RunState


def evaluation_table(
    evaluations: pd.DataFrame, scored_task: str = "", origin: str = "", step: str = "step"
) -> Table:
    """Return a row per seed with its first, best and last evaluation, then the mean over seeds.

    A `scored_task` that has D4RL scores adds a column of them, for data of this `origin`. `step`
    is what the steps are called.
    """
    curves = seed_means(evaluations)
    has_score = score(scored_task, 0.0) is not None
    table = Table(title="mean return of an evaluation", title_justify="left")
    columns = ["seed", "first", "best", f"at {step}", "last", f"at {step}"]
    for column in [*columns, *([_score_heading(origin)] if has_score else [])]:
        table.add_column(column, justify="right")
    for seed, curve in curves.items():
        known = curve.dropna()
        last_score = score(scored_task, known.iloc[-1])
        table.add_row(
            str(seed),
            f"{known.iloc[0]:,.1f}",
            f"{known.max():,.1f}",
            f"{known.idxmax():,}",
            f"{known.iloc[-1]:,.1f}",
            f"{known.index[-1]:,}",
            *([] if last_score is None else [f"{last_score:.1f}"]),
        )
    common = curves.dropna()  # the evaluations that every seed has
    if curves.shape[1] > 1 and len(common):
        last, scores = common.iloc[-1], score(scored_task, common.iloc[-1])
        table.add_section()
        table.add_row(
            *("all", "", "", ""),
            f"{Sample.of(last):,.1f}",
            f"{common.index[-1]:,}",
            *([] if scores is None else [f"{Sample.of(scores):.1f}"]),
        )
    return table


def return_table(episodes: pd.DataFrame, origin: str = "") -> Table:
    """Return a row per seed with the returns of its episodes, and D4RL scores if it has them."""
    table = Table(title=Text(_returns_title(episodes.attrs)), title_justify="left")
    scored = (_score_heading(origin),) if "score" in episodes else ()
    for column in ("seed", "episodes", "mean", "sd", "min", "max", "mean length", *scored):
        table.add_column(column, justify="right")
    for seed, played in episodes.groupby("seed"):
        returns = played["return"]
        table.add_row(
            str(seed),
            str(len(returns)),
            f"{returns.mean():,.1f}",
            f"{returns.std():,.1f}" if len(returns) > 1 else "–",
            f"{returns.min():,.1f}",
            f"{returns.max():,.1f}",
            f"{played['length'].mean():,.0f}",
            *(f"{played['score'].mean():.1f}" for _ in scored),
        )
    return table


def _returns_title(conditions: Mapping[Any, Any]) -> str:
    """Return the title, which names how the episodes differ from those of the run."""
    changes = [f"{n}={json.dumps(value)}" for n, value in conditions["env_kwargs"].items()]
    changes += ["fresh seeds"] if conditions["fresh_seeds"] else []
    return f"returns ({', '.join(changes)})" if changes else "returns"


def _score_heading(origin: str) -> str:
    """Return the heading of D4RL scores, which names the data unless they are D4RL's."""
    return D4RL_SCORE if origin == D4RL else f"{D4RL_SCORE} ({origin})"


def dataset_table(summary: Mapping[str, Any]) -> Table:
    """Return a dataset's summary as rows of a name and a value."""
    recorded = " (self-collected)" if summary["self_collected"] else ""
    title = Text(f"{summary['name']}{recorded}")  # as text, for names may contain rich's markup
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    for name in ("source", "task", "rows", "episodes", "state_dim", "action_dim"):
        value = summary[name]
        shown = f"{value:,}" if isinstance(value, int) else value or "unknown"
        table.add_row(name.replace("_dim", " dimensions"), Text(shown))
        if name == "rows" and summary["left_out"]:
            table.add_row("rows left out (cut, without a next state)", f"{summary['left_out']:,}")
    table.add_row("rows that end for good", f"{100 * summary['terminal_share']:.2f}%")
    statistics = {"returns": "return", "lengths": "length", "scores": D4RL_SCORE}
    for name, label in statistics.items():
        if summary[name] is not None:
            table.add_section()
            for statistic, value in summary[name].items():
                table.add_row(f"{label}, {statistic}", "–" if value is None else f"{value:,.1f}")
    return table


def plan_table(states: Mapping[PlannedRun, RunState]) -> Table:
    """Return a row per row of a study, with the tasks on which it is to do or done."""
    table = Table(title="the plan", title_justify="left")
    unit = "updates" if any(run.options.dataset for run in states) else "steps"
    for column in ("row", "algorithm", unit, "seeds"):
        table.add_column(column, justify="right" if column in (unit, "seeds") else "left")
    for state in RunState:
        table.add_column(state.value)
    for label in dict.fromkeys(run.label for run in states):
        runs = [run for run in states if run.label == label]
        tasks = [_tasks(run for run in runs if states[run] is state) for state in RunState]
        options = runs[0].options
        sizes = (f"{options.steps:,}", str(len(options.seeds)))
        table.add_row(label, runs[0].algorithm, *sizes, *tasks)
    return table


def _tasks(runs: Iterable[PlannedRun]) -> str:
    return ", ".join(run.task for run in runs)

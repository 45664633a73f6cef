"""Tables that commands print."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from td7.datasets.scores import score
from td7.reports.compare import Average, Compared, Comparison
from td7.reports.configurations import Configuration, best_first
from td7.reports.labels import value_texts
from td7.reports.result import D4RL, D4RL_SCORE, member_means, member_returns
from td7.reports.tables.table import decimals, interval_text, mean_text, value_text
from td7.runs.members import listed
from td7.statistics import Sample
from td7.studies.folder import PlannedRun, RunState


def evaluation_table(
    evaluations: pd.DataFrame, scored_task: str = "", origin: str = "", step: str = "step"
) -> Table:
    """Return a row per seed with its first, best and last evaluation, then the mean over seeds.

    A `scored_task` that has D4RL scores adds a column of them, for data of this `origin`. `step`
    is what the steps are called.
    """
    curves = member_means(evaluations)
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


def configuration_table(
    configurations: Sequence[Configuration],
    scored_task: str = "",
    origin: str = "",
    step: str = "step",
) -> Table:
    """Return a row per configuration of a run whose hyperparameters vary, the best one first.

    It has the mean over seeds of the first, the best and the last evaluation. The other arguments
    are those of `evaluation_table`.
    """
    seeds = max(len(one.members) for one in configurations)
    over = f", mean over {seeds} seeds" if seeds > 1 else ""
    table = Table(title=f"mean return of an evaluation{over}", title_justify="left")
    scores = [_score_heading(origin)] if score(scored_task, 0.0) is not None else []
    names = list(configurations[0].texts)
    columns = ["members", *names, "first", "best", f"at {step}", "last", f"at {step}", *scores]
    for column in columns:
        table.add_column(column, justify="right")
    for one in best_first(configurations):
        curve, last = one.means.mean(axis=1), one.means.iloc[-1]
        samples = [
            (Sample.of(last), ",.1f"),
            *((Sample.of(score(scored_task, last)), ".1f") for _ in scores),
        ]
        last_text, *score_texts = (
            f"{sample:{spec}}" if sample.n > 1 else f"{sample.mean:{spec}}"
            for sample, spec in samples
        )
        table.add_row(
            listed(one.members.ids),
            *one.texts.values(),
            f"{curve.iloc[0]:,.1f}",
            f"{curve.max():,.1f}",
            f"{curve.idxmax():,}",
            last_text,
            f"{curve.index[-1]:,}",
            *score_texts,
        )
    return table


def return_table(episodes: pd.DataFrame, origin: str = "") -> Table:
    """Return a row per member with the returns of its episodes, and D4RL scores if it has them."""
    table = Table(title=Text(_returns_title(episodes.attrs)), title_justify="left")
    members = member_returns(episodes)
    own = list(members.columns[: list(members.columns).index("episodes")])  # its id, its values
    texts = {name: value_texts(members[name].tolist()) for name in own}
    scored = (_score_heading(origin),) if "score" in episodes else ()
    for column in (*own, "episodes", "mean", "sd", "min", "max", "mean length", *scored):
        table.add_column(column, justify="right")
    for i, member in enumerate(members.to_dict("records")):
        table.add_row(
            *(texts[name][i] for name in own),
            str(member["episodes"]),
            f"{member['mean']:,.1f}",
            f"{member['sd']:,.1f}" if member["episodes"] > 1 else "–",
            f"{member['min']:,.1f}",
            f"{member['max']:,.1f}",
            f"{member['mean_length']:,.0f}",
            *(f"{member['score']:.1f}" for _ in scored),
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


def comparison_tables(compared: Compared) -> Iterator[Table]:
    """Return a table per task and step, then one of the averages over tasks."""
    places = dict.fromkeys((row.task, row.step) for row in compared.comparisons)
    for task, step in places:
        yield _comparison_table(
            [row for row in compared.comparisons if (row.task, row.step) == (task, step)]
        )
    if compared.averages:
        table = _table_of_rows("averages over tasks", "P(better)", "tasks")
        for average in compared.averages:
            tasks = str(len(average.tasks))
            table.add_row(Text(average.row), _probability(average), tasks)
        yield table


def _comparison_table(rows: Sequence[Comparison]) -> Table:
    """Return a row for the baseline, then one per comparison with it."""
    first = rows[0]
    title = f"{first.task} at step {first.step:,}: {first.quantity} ± 1.96 sd / √seeds"
    table = _table_of_rows(title, "mean", "difference", "p", "P(better)", "seeds")
    largest = max(abs(mean) for mean in (first.baseline_mean, *(row.mean for row in rows)))
    spec = f",.{decimals(largest)}f"
    mean = mean_text(first.baseline_mean, first.baseline_interval, spec)
    table.add_row(Text(first.baseline), mean, "baseline", "", "", str(first.baseline_seeds))
    for row in rows:
        limits = row.difference_low, row.difference_high
        table.add_row(
            Text(row.row),
            mean_text(row.mean, row.interval, spec),
            Text(interval_text(row.difference, *limits, f"+{spec}")),
            _p(row.p),
            _probability(row),
            str(row.seeds),
        )
    return table


def _table_of_rows(title: str, *columns: str) -> Table:
    """Return a table with a column of names, which may contain rich's markup and be long."""
    table = Table(title=Text(title), title_justify="left")
    table.add_column("row", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=column in ("p", "seeds"))
    return table


def _p(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else value_text(p, ".3f")


def _probability(row: Comparison | Average) -> Text:
    limits = row.probability_low, row.probability_high
    return Text(interval_text(row.probability, *limits, ".2f"))


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

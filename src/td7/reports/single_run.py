"""What a single run shows: its learning curve, its evaluations in short, and both in a notebook."""

import html
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from td7.datasets.scores import score
from td7.errors import InputError
from td7.files import shown, temporary_file
from td7.reports.configurations import best_first, configurations
from td7.reports.curves import configuration_curves, learning_curve
from td7.reports.result import D4RL_SCORE, member_means, seed_list
from td7.runs.members import Members
from td7.runs.record import RunRecord, finished_steps
from td7.runs.tables import read_table
from td7.statistics import Sample

PICTURE = "learning_curve.png"
PICTURE_WIDTH = 480  # pixels, in a notebook


def draw(folder: Path) -> None:
    """Write the learning curve of a run into its folder."""
    record = RunRecord.read(folder)
    figure = plot(record, read_table(folder / "evaluations.csv"))
    with temporary_file(folder / PICTURE) as temporary:  # replaced: its name may be a hard link
        figure.savefig(temporary, dpi=150, format="png")


def plot(record: RunRecord, evaluations: pd.DataFrame) -> Any:
    """The learning curve as a figure; raise before the first evaluation."""
    if evaluations.empty:
        raise InputError(f"{record.folder} has no evaluation yet")
    unit = "updates" if record.dataset else "environment steps"
    if record.members.numbers:
        shown = configurations(record, evaluations)
        if not shown:
            raise InputError(f"{record.folder} has no evaluation of every seed yet")
        return configuration_curves(shown, title(record), unit)
    return learning_curve(evaluations, title(record), unit)


def title(record: RunRecord) -> str:
    """The algorithm, and the name of the task or the dataset."""
    where = Path(record.dataset.source).stem if record.dataset else record.task.title
    return f"{record.algorithm} on {where}"


def summary(record: RunRecord, evaluations: pd.DataFrame) -> pd.DataFrame:
    """A row per member, then the mean and its interval over the seeds of every configuration.

    `attrs` names the last step.
    """
    curves = member_means(evaluations).reindex(columns=list(record.members.ids)).dropna()
    if curves.empty:
        raise InputError(f"{record.folder} has no evaluation of every seed yet")
    last = curves.iloc[-1]
    table = pd.DataFrame({"first": curves.iloc[0], "best": curves.max(), "last": last})
    scores = score(record.task.id, last) if record.dataset else None
    if scores is not None:
        table["score"] = scores
    tables = [table]
    for one in record.configurations():
        own = {name: Sample.of(table[name].loc[list(one.members.ids)]) for name in table}
        rows = {
            "mean": {name: sample.mean for name, sample in own.items()},
            "interval": {name: sample.interval for name, sample in own.items()},
        }
        tables.append(pd.DataFrame.from_dict(rows, orient="index"))
    whole = pd.concat(tables)
    whole.index.name = record.members.kind
    whole.attrs["step"] = int(curves.index[-1])
    return _with_values(record.members, whole)


def _with_values(members: Members, table: pd.DataFrame) -> pd.DataFrame:
    """A summary with the seed and the values that vary in front, if hyperparameters vary."""
    if not members.numbers:
        return table
    positions = [*range(len(members)), *(p for p, *_ in members.configurations() for _ in range(2))]
    for i, (name, values) in enumerate(members.varied.items()):
        table.insert(i, name, [values[m] for m in positions])
    means = len(table) - len(members)
    seeds = [*members.seeds, *[pd.NA] * means]
    table.insert(0, "seed", pd.Series(seeds, table.index, dtype="Int64"))
    return table


# -- in a notebook -------------------------------------------------------------------------------


def as_html(record: RunRecord, evaluations: pd.DataFrame) -> str:
    """A few lines and the learning curve."""
    unit = "updates" if record.dataset else "steps"
    state = "finished" if finished_steps(record.folder) is not None else "not finished"
    folder = html.escape(str(shown(record.folder)))
    lines = [
        f"<b>{html.escape(title(record))}</b>",
        html.escape(_result(record, evaluations)),
        f"{record.steps:,} {unit}, {_who(record)}, {state}, <code>{folder}</code>",
    ]
    picture = ""
    with suppress(InputError):  # before the first evaluation
        data = b64encode(plot(record, evaluations)._repr_png_()).decode()
        picture = (
            f'<img width="{PICTURE_WIDTH}" alt="learning curve" src="data:image/png;base64,{data}">'
        )
    return f'<div style="line-height: 1.6">{"<br>".join(lines)}<br>{picture}</div>'


def _who(record: RunRecord) -> str:
    """Its seeds and, where hyperparameters vary, how many configurations."""
    number, seeds = len(record.configurations()), _seeds(record.seeds)
    return f"{number} configurations, {seeds}" if number > 1 else seeds


def _seeds(seeds: Sequence[int]) -> str:
    first, last = seeds[0], seeds[-1]
    is_range = len(seeds) > 2 and list(seeds) == list(range(first, last + 1))
    return f"seeds {first}–{last}" if is_range else seed_list(seeds)


def _result(record: RunRecord, evaluations: pd.DataFrame) -> str:
    """The last evaluation in words."""
    try:
        table = summary(record, evaluations)
    except InputError:
        return "no evaluation yet"
    column, quantity = ("score", D4RL_SCORE) if "score" in table else ("last", "return")
    unit = "updates" if record.dataset else "steps"
    after = f"after {table.attrs['step']:,} {unit}"
    members, about = record.members, ""
    if members.numbers:
        best, *others = best_first(configurations(record, evaluations))
        members = best.members
        about = f"best of {len(others) + 1} configurations, {best.label}: " if others else ""
    sample = Sample.of(table.loc[list(members.ids), column])
    if sample.n == 1:
        return f"{about}{quantity} {sample.mean:,.1f} {after}"
    return f"{about}{quantity} {sample:,.1f} {after} (mean ± 1.96 sd/√n of {sample.n} seeds)"

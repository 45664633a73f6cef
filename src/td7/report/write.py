"""Run folders → tables, figures and a page. Reads only; never trains."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from td7.datasets.dataset import score
from td7.errors import InputError, unknown
from td7.files import write_json, writing_to
from td7.report import figures, formats, tables
from td7.report import read as results
from td7.report.html import machines, page, summary_line
from td7.report.read import Findings
from td7.statistics import Sample
from td7.studies.plan import Planned, State

TITLE = "# Results beside the paper's"
MARKED = re.compile(
    r"(<!-- td7 report: (\S+)( with caption)? -->)\n.*?(<!-- td7 report -->)", re.DOTALL
)


def score_heading(data: str) -> str:
    """D4RL's score is of D4RL's data, unless it says whose: `data` is where they come from."""
    return results.D4RL_SCORE if data == results.D4RL else f"{results.D4RL_SCORE} ({data})"


def summary(
    evaluations: pd.DataFrame, scored: str = "", data: str = "", step: str = "step"
) -> Table:
    """A row a seed (first, best and last evaluation), then the mean over seeds.

    `scored`: the task whose D4RL score is told, too, of data that come from `data`. `step`: what
    one is called.
    """
    curves = results.per_seed(evaluations)
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
    statistics = {"returns": "return", "lengths": "length", "scores": results.D4RL_SCORE}
    for name, label in statistics.items():
        if found[name] is not None:
            table.add_section()
            for statistic, value in found[name].items():
                table.add_row(f"{label}, {statistic}", "–" if value is None else f"{value:,.1f}")
    return table


def plan_table(states: Mapping[Planned, State]) -> Table:
    """A study's rows, and on how many tasks each is done."""
    table = Table(title="the plan", title_justify="left")
    counted = "updates" if any("dataset" in run.options for run in states) else "steps"
    for column in ("row", "algorithm", counted, "seeds"):
        table.add_column(column, justify="right" if column in (counted, "seeds") else "left")
    for wanted in State:
        table.add_column(wanted.value)
    for label in dict.fromkeys(run.label for run in states):
        own = {run: found for run, found in states.items() if run.label == label}
        first = next(iter(own))
        places = [
            ", ".join(run.where for run, found in own.items() if found is wanted)
            for wanted in State
        ]
        sizes = (f"{first.options['steps']:,}", str(len(first.options["seeds"])))
        table.add_row(label, first.algorithm, *sizes, *places)
    return table


# -- the whole report ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What folders hold, as tables."""

    findings: Findings
    tables: tuple[tables.Table, ...]

    @property
    def summary(self) -> str:
        return summary_line(self.findings)

    @property
    def markdown(self) -> str:
        """Every table on one page, and what is missing."""
        written = "`td7 report` writes this page; every number is that of the run folders."
        ran = "\n".join(f"- {formats.markdown(line)}" for line in machines(self.findings))
        parts = [TITLE, f"{self.summary} {written}", ran]
        for table in self.tables:
            title = formats.markdown(table.title)
            parts += [f"## {title}", formats.markdown(table.caption), formats.as_markdown(table)]
        if self.findings.notes:
            lines = "\n".join(f"- {formats.markdown(note)}" for note in self.findings.notes)
            parts += ["## What is missing", lines]
        return "\n\n".join(parts) + "\n"

    def within(self, text: str) -> str:
        """The text with the tables that it marks places for; of none, or a report, all tables.

        Between `<!-- td7 report: NAME -->` and `<!-- td7 report -->` comes the table of that name,
        after its caption if the mark says `NAME with caption`.
        """
        by_name = {table.name: table for table in self.tables}

        def table(match: re.Match[str]) -> str:
            if match[2] not in by_name:
                raise unknown("table of the report", match[2], by_name)
            found = by_name[match[2]]
            caption = f"{formats.markdown(found.caption)}\n\n" if match[3] else ""
            return f"{match[1]}\n{caption}{formats.as_markdown(found)}\n{match[4]}"

        if not text or text.startswith(TITLE):
            return self.markdown
        found, count = MARKED.subn(table, text)
        if count == 0 or count != text.count("<!-- td7 report: "):
            raise InputError("it is no report, and has no places marked for one, or not to the end")
        return found


def read(folders: Sequence[Path]) -> Report:
    """Of run folders, study folders, and folders of either."""
    found = results.read(folders)
    made, notes = tables.tables(found.studies)
    everything = tuple(dict.fromkeys([*found.notes, *notes]))
    return Report(replace(found, notes=everything), tuple(made))


def write(report: Report, out: Path, *, with_figures: bool = True) -> list[Path]:
    """report.html, report.md, curves.csv, tables/ and figures/; gives back what was written.

    files.json lists it; of an earlier report, what is not written again is removed.
    """
    folders = [out / "tables", *([out / "figures"] if with_figures else [])]
    with writing_to(out):
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
    before = _written(out)
    texts = {
        out / "report.html": page(report.findings, report.tables),
        out / "report.md": report.markdown,
        out / "curves.csv": _curves_csv(report.findings),
    }
    for table in report.tables:
        texts |= {
            out / "tables" / f"{table.name}.csv": formats.as_csv(table),
            out / "tables" / f"{table.name}.md": formats.as_markdown(table) + "\n",
            out / "tables" / f"{table.name}.tex": formats.as_latex(table),
        }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    written = list(texts)
    if with_figures:
        for name, figure in figures.figures(report.findings.studies, report.tables):
            written += figures.save(figure, out / "figures", name)
    for path in set(before) - set(written):
        path.unlink(missing_ok=True)
    write_json(out / "files.json", [str(path.relative_to(out)) for path in written])
    return written


def _written(out: Path) -> list[Path]:
    """The files of an earlier report in this folder, and none outside of it."""
    try:
        names = json.loads((out / "files.json").read_text())
        paths = [(out / name) for name in names]
    except (OSError, ValueError, TypeError):
        return []
    return [path for path in paths if out.resolve() in path.resolve().parents]


def _curves_csv(findings: Findings) -> str:
    """Every evaluation: a row a seed and step."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("study", "row", "place", "quantity", "seed", "step", "value"))
    for result in findings.results:
        if result.curves is None:
            continue
        head = (result.study, result.label, result.place, result.quantity)
        for seed, values in zip(result.curves.seeds, result.curves.values.tolist(), strict=True):
            for step, value in zip(result.curves.steps, values, strict=True):
                writer.writerow((*head, seed, step, value))
    return text.getvalue()

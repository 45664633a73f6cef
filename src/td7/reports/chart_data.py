"""What the page's script draws, as JSON objects."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from td7.reports.bars import DROPS
from td7.reports.curves import window_of
from td7.reports.figures import STUDY_FIGURES
from td7.reports.report import Report
from td7.reports.result import Result
from td7.reports.style import COLOURS, MOST_LINES, run_length, style_of, window_text
from td7.reports.tables.drops import DROP_WINDOWS, drop_shares, late_evaluations
from td7.statistics import Aligned


def chart_data(report: Report) -> dict[str, Any]:
    """The curves of every study, and the tables' numbers in full."""
    have_drops = {table.study for table in report.tables if table.kind == "drops"}
    studies = [
        {
            "name": name,
            "timed": "time-curves" in STUDY_FIGURES.get(name, {}),
            "window": window_of(results),
            "curves": [_curve(r, r.curves) for r in results if r.curves],
            "estimates": [_estimates(r, r.estimates) for r in results if r.estimates],
            "drops": _drops(results) if name in have_drops else [],
        }
        for name, results in report.studies.items()
    ]
    tables = [{"name": t.name, "kind": t.kind, "records": list(t.records)} for t in report.tables]
    return {
        **{"studies": studies, "tables": tables, "notes": list(report.notes)},
        **{"colours": COLOURS, "most_lines": MOST_LINES},
    }


def _curve(result: Result, curves: Aligned) -> dict[str, Any]:
    seconds = result.seconds_per_step
    minutes = None if seconds is None else float(f"{seconds / 60:.6g}")
    return {**_line(result, curves), "minutes_per_step": minutes}


def _estimates(result: Result, estimates: Aligned) -> dict[str, Any]:
    return {**_line(result, estimates), "quantity": "value estimate", "raw": True}


def _drops(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A line per window and result: the percentage of evaluations before a drop, by its size."""
    shares = {result: drop_shares(late_evaluations(result), DROPS) for result in results}
    axes = {
        **{"quantity": "% of evaluations", "step_unit": "% lower or more", "raw": True},
        **{"lowest": 0, "highest": 100, "right": 100, "length": None},  # of all panels
    }
    lines = []
    for window, result in product(DROP_WINDOWS, results):
        if window in shares[result]:
            place = f"{result.title}, {window_text(window)}"
            curve = Aligned((0,), DROPS, np.array([shares[result][window]]), ())
            lines.append({**_line(result, curve), **axes, "place": place, "title": place})
    return lines


def _line(result: Result, curves: Aligned) -> dict[str, Any]:
    style = style_of(result)
    return {
        "row": result.label,
        "place": result.place,
        "title": result.title,
        "quantity": result.quantity,
        "step_unit": result.step_unit,
        "length": run_length(result),
        "colour": style.colour,
        "dashes": style.dashes,
        "seeds": curves.seeds,
        "steps": curves.steps,
        "values": [[float(f"{value:.6g}") for value in row] for row in curves.values.tolist()],
    }

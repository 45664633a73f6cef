"""The charts of a search's page: panels as SVG, and what the page's script draws as curves."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from td7.errors import InputError
from td7.reports.curves import WINDOW
from td7.reports.style import COLOURS, MOST_LINES
from td7.runs.tables import read_table
from td7.tuning.figures import (
    Points,
    Shown,
    draw_history,
    draw_importances,
    draw_slice,
    figure_settings,
    panel,
    rung_text,
)
from td7.tuning.folder import wave_folder
from td7.tuning.progress import ranked, score_text, value_text
from td7.tuning.result import Search
from td7.tuning.svg import inline, page_colours
from td7.tuning.trials import Trial


def panels(search: Search) -> str:
    """History, importance and slices, a panel each, below their legend."""
    shown, importances = search.shown(), search.importances
    drawn = [_panel(search, "Score by trial", lambda axes: draw_history(axes, shown))]
    if importances:
        texts = [f"{name} {share:.0%}" for name, share in importances.items()]

        def draw(axes: Any) -> Points:
            draw_importances(axes, importances)
            return {}

        drawn.append(_panel(search, "Importance", draw, ", ".join(texts)))
    for name in search.record.space:

        def draw_values(axes: Any, name: str = name) -> Points:
            return draw_slice(axes, shown, name)

        drawn.append(_panel(search, f"Score by {name}", draw_values))
    return f'{_legend(shown)}<div class="panels">{"".join(drawn)}</div>'


def _panel(search: Search, heading: str, draw: Callable[[Any], Points], text: str = "") -> str:
    with figure_settings():
        figure, axes = panel()
        drawn = draw(axes)
        axes.set_xlabel(axes.get_xlabel(), fontsize=11)
    svg = inline(
        figure,
        "".join(character if character.isalnum() else "-" for character in heading),
        label=f"{heading}: {text}" if text else heading,
        colours=page_colours(len(search.record.rungs)),
        titles={name: [_title(search, trial) for trial in own] for name, own in drawn.items()},
    )
    return f'<div class="panel"><h4>{html.escape(heading)}</h4>{svg}</div>'


def _title(search: Search, trial: Trial) -> str:
    """What is shown when the mouse is over a trial."""
    rung = rung_text(search.record, search.record.rungs.index(trial.steps))
    values = [f"{name} = {value_text(value)}" for name, value in trial.values.items()]
    return "\n".join([f"trial {trial.number}: {score_text(trial.sample)}", rung, *values])


LINE = "width: 1.6rem; height: 0; border-radius: 0; border-top: 2px dashed var(--ink)"


class _Mark(NamedTuple):
    """How the legend shows what points look like."""

    text: str
    css: str


def _legend(shown: Shown) -> str:
    colours = list(page_colours(len(shown.record.rungs)).values())
    rungs = range(len(shown.record.rungs))
    marks = [_Mark(rung_text(shown.record, i), f"background: {colours[i]}") for i in rungs]
    if any(trial.is_usual for trial in shown.trials):
        marks.append(
            _Mark("usual values", "border-color: var(--ink); border-radius: 0; rotate: 45deg")
        )
    if shown.best:
        marks.append(_Mark("best trial", "border-color: var(--best)"))
        marks.append(_Mark("best so far", LINE))
    items = [f'<li><span class="mark" style="{css}"></span>{text}</li>' for text, css in marks]
    return f'<ul class="legend">{"".join(items)}</ul>'


# -- learning curves -----------------------------------------------------------------------------


class Curve(NamedTuple):
    trial: Trial
    quantity: str
    values: pd.DataFrame  # a row per step, a column per seed


def curves(search: Search) -> list[Curve]:
    """Those of the best trials, and of the usual values: as many as a chart can show."""
    trials = ranked(search.all)
    usual = [trial for trial in trials[MOST_LINES:] if trial.is_usual]
    chosen = [*trials[: MOST_LINES - len(usual)], *usual]
    found = [_curve(search, trial) for trial in chosen]
    return [curve for curve in found if curve is not None and not curve.values.empty]


def _curve(search: Search, trial: Trial) -> Curve | None:
    """The evaluations of a trial: the last wave that it is in has those before as well."""
    waves = search.record.waves
    number = max((n for n, wave in enumerate(waves) if trial.number in wave.trials), default=None)
    if number is None:
        return None
    try:
        table = read_table(wave_folder(search.path, number) / "evaluations.csv")
    except InputError:  # the user has deleted or changed it
        return None
    column, count = "score" if "score" in table else "return", len(search.record.options.seeds)
    if not {"member", "step", column} <= set(table):
        return None
    first = waves[number].trials.index(trial.number) * count
    means = table.groupby(["step", "member"])[column].mean().unstack("member")
    own = means.reindex(columns=range(first, first + count)).dropna()
    return Curve(trial, "D4RL score" if column == "score" else "return", own)


def chart_data(search: Search, shown: Sequence[Curve]) -> Mapping[str, Any]:
    """As `reports.chart_data`: one study, whose rows are trials."""
    rows = [_row(search, curve, number) for number, curve in enumerate(shown)]
    evaluations = min((len(curve.values) for curve in shown), default=0)
    window = max(1, min(WINDOW, evaluations // 5))
    study = {"name": "trials", "timed": False, "window": window, "curves": rows}
    return {
        "studies": [{**study, "estimates": [], "drops": []}] if rows else [],
        **{"tables": [], "colours": COLOURS, "most_lines": MOST_LINES},
    }


def _row(search: Search, curve: Curve, number: int) -> dict[str, Any]:
    name = f"trial {curve.trial.number}" + ", usual values" * curve.trial.is_usual
    place = search.record.options.dataset or search.record.options.env
    unit = "updates" if search.record.options.dataset else "time steps"
    return {
        **{"row": name, "place": place, "title": place, "quantity": curve.quantity},
        **{"step_unit": unit, "length": None, "minutes_per_step": None},
        **{"colour": COLOURS[number % len(COLOURS)], "dashes": ()},
        "seeds": list(search.record.options.seeds),
        "steps": [int(step) for step in curve.values.index],
        "values": np.round(curve.values.to_numpy().T, 6).tolist(),
    }

"""Figures of a search: history, slices and importance, for notebooks and for the page.

Scores of different rungs are those of trainings of different length, so that every point has the
colour of the last rung that its trial has reached.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from td7.reports.style import (
    format_axes,
    legend_below,
    new_figure,
    new_panels,
    set_title,
    set_x_label,
)
from td7.tuning.folder import SearchRecord
from td7.tuning.space import RANGE
from td7.tuning.trials import Trial

FIRST_COLOUR, LAST_COLOUR = (0x9A, 0xA1, 0xAC), (0x00, 0x72, 0xB2)  # of rungs
BEST_COLOUR, LINE_COLOUR = "#d55e00", "#2a2a2a"
PANEL = (5.0, 3.2)  # inches
LONGEST_CHOICE, LONGEST_CHOICES = 12, 28  # characters of one, and of all in a line
MANY_DECADES = 2.2  # of a scale, whose labels are then powers of ten alone
EDGE = 0.05  # beside a range, as a share of it
GOLDEN = 0.618  # spreads trials with the same choice sideways


class Shown(NamedTuple):
    """What figures show of a search."""

    record: SearchRecord
    trials: Sequence[Trial]  # those with a score, by number
    best: Trial | None  # of those that have come to the last step

    @classmethod
    def of(cls, record: SearchRecord, trials: Sequence[Trial], best: Trial | None) -> "Shown":
        scored = [t for t in trials if t.scores and np.isfinite(t.mean)]
        return cls(record, sorted(scored, key=lambda trial: trial.number), best)

    @property
    def by_rung(self) -> dict[int, list[Trial]]:
        """The trials by the last rung that they have reached, its number from 0."""
        steps = self.record.rungs
        return {i: [t for t in self.trials if t.steps == end] for i, end in enumerate(steps)}


def figure_settings() -> AbstractContextManager[None]:
    """Settings of matplotlib for drawing and saving: dollar signs in names make no formulas."""
    import matplotlib as mpl

    return mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "td7"})


def blue_shares(count: int) -> list[float]:
    """How blue each rung is; the last one stands out."""
    return [(i / (count - 1)) ** 1.6 for i in range(count)] if count > 1 else [1.0]


def rung_colours(count: int) -> list[str]:
    """From grey to blue."""
    parts = [
        [round(a + share * (b - a)) for a, b in zip(FIRST_COLOUR, LAST_COLOUR, strict=True)]
        for share in blue_shares(count)
    ]
    return ["#" + "".join(f"{part:02x}" for part in colour) for colour in parts]


def overview(shown: Shown) -> Any:
    """The history and a slice per hyperparameter, as one figure."""
    with figure_settings():
        figure, (first, *others) = new_panels(1 + len(shown.record.space))
        draw_history(first, shown)
        for axes, name in zip(others, shown.record.space, strict=True):
            draw_slice(axes, shown, name)
            set_title(axes, name)
        set_title(first, "history")
        first.set_ylabel("score", fontsize=8)
        if shown.trials:
            legend_below(figure, [first])
    return figure


def panel() -> tuple[Any, Any]:
    """A figure of one panel for the page, and its axes."""
    figure = new_figure(*PANEL)
    axes = figure.add_subplot()
    format_axes(axes)
    axes.tick_params(labelsize=11)
    return figure, axes


# -- panels --------------------------------------------------------------------------------------


# Those with a point per trial return what they have drawn, by the id of its group in SVG.
Points = Mapping[str, Sequence[Trial]]


def draw_history(axes: Any, shown: Shown) -> Points:
    """The score of every trial against its number, and the best so far of the last rung."""
    positions = {trial.number: float(trial.number) for trial in shown.trials}
    points = _draw_trials(axes, shown, positions)
    finished = shown.by_rung[len(shown.record.rungs) - 1]
    if finished:
        numbers = [t.number for t in finished] + [shown.trials[-1].number]
        best = np.maximum.accumulate([trial.mean for trial in finished])
        style = {"color": LINE_COLOUR, "linewidth": 1, "linestyle": (0, (4, 2))}
        scores = [*best, best[-1]]
        axes.plot(numbers, scores, drawstyle="steps-post", label="best so far", zorder=1, **style)
    axes.xaxis.get_major_locator().set_params(integer=True)
    set_x_label(axes, "trial")
    return points


def draw_slice(axes: Any, shown: Shown, name: str) -> Points:
    """The score of every trial against its value of a hyperparameter."""
    text = shown.record.space[name]
    having = {trial.number: trial.values[name] for trial in shown.trials if name in trial.values}
    match = RANGE.fullmatch(text.strip())
    if match is None:
        return _draw_trials(axes, shown, _choices(axes, text, having))
    positions = {n: float(value) for n, value in having.items() if _is_number(value)}
    low, high = float(match["low"]), float(match["high"])
    if match["log"]:
        _log_scale(axes, decades=math.log10(high / low))
        axes.set_xlim(low * (low / high) ** EDGE, high * (high / low) ** EDGE)
    else:
        axes.set_xlim(low - EDGE * (high - low), high + EDGE * (high - low))
    return _draw_trials(axes, shown, positions)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _choices(axes: Any, text: str, having: Mapping[int, Any]) -> dict[int, float]:
    """Label the axis with the choices; return where the trials are, spread a little sideways."""
    words = [word.strip() for word in text.split(",")]
    order = {_word(value): i for i, value in enumerate(words)}
    for value in having.values():
        order.setdefault(_word(value), len(order))
    shown = [w if len(w) <= LONGEST_CHOICE else f"{w[: LONGEST_CHOICE - 1]}…" for w in order]
    turned = {"rotation": 30, "ha": "right"} if sum(map(len, shown)) > LONGEST_CHOICES else {}
    axes.set_xticks(range(len(order)), shown, **turned)
    axes.set_xlim(-0.5, len(order) - 0.5)
    return {n: order[_word(v)] + 0.4 * (n * GOLDEN % 1 - 0.5) for n, v in having.items()}


def _word(value: Any) -> str:
    """A choice as `--search` and Optuna's journal have it: 0.99, `0.990` and 1e3 as numbers."""
    try:
        return f"{float(value):g}" if not isinstance(value, bool) else str(value).lower()
    except (TypeError, ValueError):
        return str(value).lower() if str(value) in ("True", "False") else str(value)


def _log_scale(axes: Any, decades: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    subs = (1.0, 3.0) if decades < MANY_DECADES else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_trials(axes: Any, shown: Shown, positions: Mapping[int, float]) -> Points:
    """A point per trial that has a position."""
    colours = rung_colours(len(shown.record.rungs))
    points: dict[str, list[Trial]] = {}
    for i, trials in shown.by_rung.items():
        own = [trial for trial in trials if trial.number in positions]
        if not own:
            continue
        points[f"rung-{i}"] = own
        x, y = [positions[trial.number] for trial in own], [trial.mean for trial in own]
        style = {"color": colours[i], "markersize": 4.5 + 1.5 * i / len(colours)}
        label = rung_text(shown.record, i)
        axes.plot(x, y, "o", gid=f"rung-{i}", label=label, zorder=2 + i, **style)
    marked = {"usual values": ("D", LINE_COLOUR, 9, [t for t in shown.trials if t.is_usual])}
    if shown.best:
        marked["best"] = ("o", BEST_COLOUR, 11, [shown.best])
    for label, (marker, colour, size, trials) in marked.items():
        own = [trial for trial in trials if trial.number in positions]
        x, y = [positions[trial.number] for trial in own], [trial.mean for trial in own]
        style = {"markeredgecolor": colour, "markerfacecolor": "none", "markersize": size}
        if own:
            axes.plot(x, y, marker, label=label, markeredgewidth=1.5, zorder=99, **style)
    return points


def rung_text(record: SearchRecord, rung: int) -> str:
    unit = "updates" if record.options.dataset else "steps"
    return f"rung {rung + 1}, {record.rungs[rung]:,} {unit}"


def draw_importances(axes: Any, importances: Mapping[str, float]) -> None:
    """A bar per hyperparameter, the most important one above."""
    names, values = list(importances), list(importances.values())
    axes.barh(range(len(names)), values, height=0.6, color=rung_colours(1)[0])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(values) * 1.18)
    for i, value in enumerate(values):
        options = {"textcoords": "offset points", "va": "center", "fontsize": 11}
        axes.annotate(f"{value:.0%}", (value, i), (4, 0), **options)
    axes.xaxis.set_major_formatter("{x:.0%}")

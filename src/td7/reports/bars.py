"""Figures of tables: losses, run times, drops."""

from collections.abc import Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np

from td7.reports.result import Result
from td7.reports.style import (
    COLOURS,
    HATCHES,
    PAPER,
    column_count,
    figure_styles,
    format_axes,
    legend_below,
    line_options,
    new_figure,
    new_panels,
    set_title,
    window_text,
    wrap_label,
)
from td7.reports.tables.drops import DROP_WINDOWS, drop_shares, late_evaluations
from td7.reports.tables.table import Record, Table

DROPS = tuple(range(0, 100, 2))  # percent, along the axis
MOST_BARS = 60
PAPER_COLOUR = "#bdbdbd"


def _new_bar_chart(height: float) -> tuple[Any, Any]:
    """A figure of this height for its bars, and its axes."""
    figure = new_figure(7.2, height + 1.5)
    axes = figure.add_subplot()
    format_axes(axes)
    axes.grid(axis="y", visible=False)
    return figure, axes


def _add_legend(figure: Any) -> None:
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)


def loss_bars(table: Table) -> Any:
    """A bar per row at the last step, and the paper's below it."""
    step = max(record["step"] for record in table.records)
    records = [record for record in table.records if record["step"] == step]
    figure, axes = _new_bar_chart(0.34 * len(records))
    y = np.arange(len(records))[::-1]
    for offset, prefix, colour, label in (
        (0.19, "", COLOURS[0], "here"),
        (-0.19, "paper_", PAPER_COLOUR, _paper_label(records, step)),
    ):
        losses = [_float(record[f"{prefix}percent_loss"]) for record in records]
        intervals = [_float(record[f"{prefix}interval"], 0.0) for record in records]
        axes.barh(y + offset, losses, 0.36, color=colour, label=label, edgecolor="#444", lw=0.4)
        ends = [n if np.isfinite(n) else 0.0 for n in losses]
        errors = [w if np.isfinite(n) else 0.0 for n, w in zip(losses, intervals, strict=True)]
        axes.errorbar(ends, y + offset, xerr=errors, fmt="none", ecolor="#222", elinewidth=0.8)
    axes.axvline(0, color="#222", linewidth=0.8)
    has_suites = len({record["suite"] for record in records}) > 1
    names = [f"{r['row']}, {r['suite']}" if has_suites else r["row"] for r in records]
    axes.set_yticks(y, [wrap_label(name) for name in names], fontsize=8)
    axes.set_ylim(-0.6, len(records) - 0.4)
    reference = records[0]["reference"]
    axes.set_xlabel(f"mean percent loss against {reference}, {step:,} steps", fontsize=9)
    _add_legend(figure)
    return figure


def _paper_label(records: Sequence[Record], step: int) -> str:
    """`paper`, with its steps if they are others."""
    steps = {record["paper_step"] for record in records} - {None, step}
    return ", ".join(["paper", *(f"{other:,} steps" for other in steps)])


class Bar(NamedTuple):
    y: float
    minutes: float
    setting: str  # a place, or PAPER
    text: str


def speed_bars(table: Table) -> Any:
    """Minutes for 1M steps, or updates: a group of bars per row for all seeds, and the paper's."""
    bars, ticks, bottom = _speed_layout(table.records)
    figure, axes = _new_bar_chart(0.24 * -bottom)
    settings = dict.fromkeys(record["place"] for record in table.records)
    for i, setting in enumerate([*settings, PAPER]):
        own = [bar for bar in bars if bar.setting == setting]
        if not own:
            continue
        hatch = "" if setting == PAPER else HATCHES[i % len(HATCHES)]
        drawn = axes.barh(
            [bar.y for bar in own],
            [bar.minutes for bar in own],
            0.9,
            color=PAPER_COLOUR if setting == PAPER else COLOURS[i % len(COLOURS)],
            hatch=hatch,
            label=wrap_label(setting),
            edgecolor="#ffffff" if hatch else "#444444",
            lw=0.4,
        )
        axes.bar_label(drawn, [bar.text for bar in own], padding=3, fontsize=7)
    axes.set_yticks(list(ticks.values()), list(ticks), fontsize=8)
    axes.margins(x=0.25, y=0.02)
    minutes = [bar.minutes for bar in bars]
    if max(minutes) > 100 * min(minutes):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")  # matplotlib's own would be 10 to the power of x
        axes.xaxis.set_minor_formatter("")
    unit = table.records[0]["step_unit"]
    axes.set_xlabel(f"minutes for 1M {unit}, all seeds together", fontsize=9)
    _add_legend(figure)
    return figure


def _speed_layout(records: Sequence[Record]) -> tuple[list[Bar], dict[str, float], float]:
    """The bars from 0 downwards, the height of every row's name, and where they end."""
    bars: list[Bar] = []
    ticks: dict[str, float] = {}
    y = 0.0
    for row, group in groupby(records, key=lambda record: record["row"]):
        own, top = list(group), y
        for record in own:
            minutes, seeds = record["minutes_per_million_steps"], record["seeds"]
            per_seed = f", {minutes / seeds:.1f} per seed" if seeds > 1 else ""
            bars.append(Bar(y, minutes, record["place"], f"{minutes:.1f}{per_seed}"))
            y -= 1
        printed = [r["paper_minutes"] for r in own if r["paper_minutes"] is not None]
        if printed:
            bars.append(Bar(y, printed[0], PAPER, f"{printed[0]:.0f}"))
            y -= 1
        ticks[wrap_label(row)] = (top + y + 1) / 2
        y -= 0.6
    return bars, ticks, y


def results_with_drops(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if drop_shares(late_evaluations(result), DROPS)]


def drops_figure(results: Sequence[Result]) -> Any:
    """A panel per task and window: the share of evaluations before a drop, by its size."""
    shares = {result: drop_shares(late_evaluations(result), DROPS) for result in results}
    panels_shown = [
        (place, window)
        for window, place in product(DROP_WINDOWS, dict.fromkeys(r.place for r in results))
        if any(window in shares[r] for r in results if r.place == place)
    ]
    figure, panels = new_panels(len(panels_shown))
    styles = figure_styles(results)
    for axes, (place, window) in zip(panels, panels_shown, strict=True):
        own = [result for result in results if result.place == place]
        for result in own:
            if window in shares[result]:
                options = line_options(styles[result.label])
                axes.plot(DROPS, shares[result][window], label=result.label, **options)
        set_title(axes, own[0].title)
        axes.set_xlabel(f"drop of more than … %\n{window_text(window)}", fontsize=8)
        axes.set_ylim(-3, 103)
    for axes in panels[:: column_count(len(panels))]:
        axes.set_ylabel("% of evaluations", fontsize=9)
    legend_below(figure, panels)
    return figure


def _float(value: float | None, missing: float = float("nan")) -> float:
    return missing if value is None else value

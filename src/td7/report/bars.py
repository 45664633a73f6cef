"""Figures of tables: losses, run times, drops."""

from collections.abc import Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np

from td7.report.result import Result
from td7.report.style import (
    COLOURS,
    HATCHES,
    PAPER,
    columns_of,
    legend_below,
    line_look,
    look_of,
    new_figure,
    panels,
    plain_axes,
    set_title,
    within_words,
    wrapped,
)
from td7.report.tables.drops import DROP_WINDOWS, drop_shares
from td7.report.tables.table import Table, Value

DROPS = tuple(range(0, 100, 2))  # percent, along the axis
MOST_BARS = 60


def loss_bars(table: Table) -> Any:
    """A bar a row, the paper's beside it."""
    step = max(int(str(record["step"])) for record in table.records)
    records = [record for record in table.records if record["step"] == step]
    figure = new_figure(7.2, 0.34 * len(records) + 1.5)
    axes = figure.add_subplot()
    plain_axes(axes)
    axes.grid(axis="y", visible=False)
    y = np.arange(len(records))[::-1]
    for offset, prefix, colour, word in (
        (0.19, "", "#0072b2", "here"),
        (-0.19, "paper_", "#bdbdbd", _paper_at(records, step)),
    ):
        numbers = [_float(record[f"{prefix}percent_loss"]) for record in records]
        wide = [_float(record[f"{prefix}interval"], 0.0) for record in records]
        axes.barh(y + offset, numbers, 0.36, color=colour, label=word, edgecolor="#444", lw=0.4)
        known_wide = [w if np.isfinite(n) else 0.0 for n, w in zip(numbers, wide, strict=True)]
        drawn = [n if np.isfinite(n) else 0.0 for n in numbers]
        axes.errorbar(drawn, y + offset, xerr=known_wide, fmt="none", ecolor="#222", elinewidth=0.8)
    axes.axvline(0, color="#222", linewidth=0.8)
    several = len({record["suite"] for record in records}) > 1
    names = [f"{r['row']}, {r['suite']}" if several else str(r["row"]) for r in records]
    axes.set_yticks(y, [wrapped(name) for name in names], fontsize=8)
    axes.set_ylim(-0.6, len(records) - 0.4)
    reference = records[0]["reference"]
    axes.set_xlabel(f"mean percent loss against {reference}, {step:,} steps", fontsize=9)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return figure


def _paper_at(records: Sequence[Mapping[str, Value]], step: int) -> str:
    """What the paper's bars are of, if not of the same step."""
    steps = {record["paper_step"] for record in records} - {None, step}
    return ", ".join(["paper", *(f"{other:,} steps" for other in steps)])


class Bar(NamedTuple):
    y: float
    minutes: float
    whose: str
    words: str


def speed_bars(table: Table) -> Any:
    """Minutes for 1M steps, a group of bars a row: all seeds together, and the paper's for one."""
    settings = list(dict.fromkeys(str(record["place"]) for record in table.records))
    bars: list[Bar] = []
    ticks: dict[str, float] = {}
    y = 0.0
    for row, own in groupby(table.records, key=lambda record: str(record["row"])):
        records = list(own)
        begin = y
        for record in records:
            minutes, seeds = _float(record["minutes_a_million_steps"]), int(str(record["seeds"]))
            each = f", {minutes / seeds:.1f} a seed" if seeds > 1 else ""
            bars.append(Bar(y, minutes, str(record["place"]), f"{minutes:.1f}{each}"))
            y -= 1
        there = [r["paper_minutes"] for r in records if r["paper_minutes"] is not None]
        if there:
            bars.append(Bar(y, _float(there[0]), PAPER, f"{_float(there[0]):.0f}"))
            y -= 1
        ticks[wrapped(row)] = (begin + y + 1) / 2
        y -= 0.6
    figure = new_figure(7.2, 0.24 * -y + 1.5)
    axes = figure.add_subplot()
    plain_axes(axes)
    axes.grid(axis="y", visible=False)
    for i, place in enumerate([*settings, PAPER]):
        mine = [bar for bar in bars if bar.whose == place]
        if not mine:
            continue
        look = "#bdbdbd" if place == PAPER else COLOURS[i % len(COLOURS)]
        hatch = "" if place == PAPER else HATCHES[i % len(HATCHES)]
        drawn = axes.barh(
            [bar.y for bar in mine],
            [bar.minutes for bar in mine],
            0.9,
            color=look,
            hatch=hatch,
            label=wrapped(place),
            edgecolor="#ffffff" if hatch else "#444444",
            lw=0.4,
        )
        axes.bar_label(drawn, [bar.words for bar in mine], padding=3, fontsize=7)
    axes.set_yticks(list(ticks.values()), list(ticks), fontsize=8)
    axes.margins(x=0.25, y=0.02)
    numbers = [bar.minutes for bar in bars]
    if max(numbers) > 100 * min(numbers):
        axes.set_xscale("log")
    axes.set_xlabel("minutes for 1M steps, all seeds together", fontsize=9)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return figure


def drops_figure(study: str, results: Sequence[Result]) -> Any:
    """One panel a task and window: how many evaluations are followed by a drop, by its size."""
    by_place: dict[str, list[tuple[Result, Mapping[int, Sequence[float]]]]] = {}
    for result in results:
        found = drop_shares(result, DROPS, [])
        if found:
            by_place.setdefault(result.place, []).append((result, found))
    pairs = [
        (own, within)
        for within, own in product(DROP_WINDOWS, by_place.values())
        if any(within in shares for _, shares in own)
    ]
    figure, axes = panels(len(pairs))
    for one, (own, within) in zip(axes, pairs, strict=True):
        for result, shares in own:
            if within in shares:
                look = line_look(look_of(result))
                one.plot(DROPS, shares[within], label=result.label, **look)
        set_title(one, own[0][0].title)
        one.set_xlabel(f"drop of more than … %\n{within_words(within)}", fontsize=8)
        one.set_ylim(-3, 103)
    for one in axes[:: columns_of(len(axes))]:
        one.set_ylabel("% of evaluations", fontsize=9)
    legend_below(figure, axes)
    return figure


def _float(value: Any, missing: float = float("nan")) -> float:
    return missing if value is None else float(value)

"""Results → figures, by matplotlib's object interface: no global state, no screen needed.

A label has the same colour and line style in every figure; styles alone tell lines apart in grey.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from td7.report.read import Result, known, per_seed, places, suites
from td7.report.tables import DROP_WINDOWS, Table, Value, drop_shares
from td7.statistics import Aligned, Sample, normalised, smoothed

FORMATS = ("svg", "png", "pdf")
WINDOW = 10  # evaluations, the paper's
LONGEST_LINE = 40  # characters of a label
LONGEST_TITLE = 34  # characters of a panel's
DROPS = tuple(range(0, 100, 2))  # percent, along the axis
SEEDS_SHOWN = 5  # a line each, the paper's
PANELS = 5  # a row, as in the paper
MOST_BARS = 60
MOST_LINES = 7  # a panel; with more rows, a figure a group

# Colours that people with any colour vision can tell apart (Okabe and Ito's, darkened where pale).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8578c", "#946b00", "#2a2a2a", "#7a5cc2", "#5b8a00")
_HATCHES = ("", "///", "...", "xx", "\\\\\\")
PAPER = "paper, one seed"
_Dashes = tuple[float, ...]
_AGENT_DASHES: tuple[_Dashes, ...] = ((), (5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (9, 3))
_ROW_DASHES: tuple[_Dashes, ...] = (
    (3, 1.2),
    (1.2, 3),
    (9, 1.5, 3, 1.5),
    (6, 1.5, 1.2, 1.5, 1.2, 1.5),
    (12, 1.5),
    (2.2, 2.2),
    (6, 3, 2, 3),
    (3, 1, 1, 1, 1, 1),
)
# Those of data and those that collect it are never in one figure.
_AGENTS = {
    **{"TD7": 0, "TD7 (no checkpoints)": 0, "TD3": 1},
    **{"SAC": 2, "TQC": 3, "TD3+OFE": 4},
    **{"TD3+BC": 1, "CQL": 2, "IQL": 3, "X-QL": 4},
}


@dataclass(frozen=True)
class Style:
    colour: str
    dashes: _Dashes  # lengths of ink and gap; () is a solid line


def look_of(result: Result) -> Style:
    return style(result.study, result.label, result.number)


def style(study: str, label: str, more: int = 0) -> Style:
    """An agent's own; of a study's other rows, by their number, so that neighbours differ.

    `more`: the number of a label among those that are none of its rows.
    """
    rows = list(known(study).rows)
    own = {name for name in _AGENTS if name != "TD7 (no checkpoints)" or "TD7" not in rows}
    if label in own:
        number = _AGENTS[label]
        return Style(_COLOURS[number], _AGENT_DASHES[number])
    others = [row for row in rows if row not in own]
    number = others.index(label) if label in others else len(others) + more
    return Style(_COLOURS[2 + number % 6], _ROW_DASHES[number % 8])


def figures(
    studies: Mapping[str, Sequence[Result]], tables: Sequence[Table]
) -> Iterator[tuple[str, Any]]:
    """(name, figure), one after the other."""
    for name, results in studies.items():
        shown = [result for result in results if result.curves]
        if not shown:
            continue
        window = window_of(results)
        labels = list(dict.fromkeys(result.label for result in shown))
        for part, own in parts(name, labels).items():
            chosen = [result for result in shown if result.label in own]
            yield f"{name}-curves{part}", curves(name, chosen, window)
        for kind, draw_own in DRAWN.get(name, {}).items():
            figure = draw_own(name, shown, window)
            if figure is not None:
                yield f"{name}-{kind}", figure
    for table in tables:
        draw = {"losses": loss_bars, "speed": speed_bars}.get(table.kind)
        if draw and len(table.records) <= MOST_BARS:
            yield table.name, draw(table)
        if table.kind == "drops":
            yield table.name, drops_figure(table.study, studies[table.study])


def parts(study: str, labels: Sequence[str]) -> dict[str, list[str]]:
    """ "" : all rows, or where those are too many, -GROUP: its rows and the study's reference."""
    rows = known(study).rows
    if len(labels) <= MOST_LINES:
        return {"": list(labels)}
    first = next(iter(rows), "")
    reference = [first] if first in labels and rows[first].group == "Default" else []
    groups: dict[str, list[str]] = {}
    for number, label in enumerate(labels):
        group = rows[label].group if label in rows else f"others {number // MOST_LINES + 1}"
        groups.setdefault(group, []).append(label)
    return {
        f"-{group.lower().replace(' ', '-')}": list(dict.fromkeys([*reference, *own]))
        for group, own in groups.items()
    }


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """As SVG, PNG and PDF, the same bytes for the same figure."""
    import matplotlib as mpl

    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with mpl.rc_context({"svg.hashsalt": "td7", "svg.fonttype": "none", "pdf.fonttype": 42}):
        for path in paths:
            no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
            figure.savefig(path, dpi=160, metadata=no_date[path.suffix[1:]])
    return paths


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _columns(count: int) -> int:
    """How many panels are side by side: at most PANELS, as many in every line as can be."""
    return -(-count // -(-count // PANELS))


def _panels(count: int) -> tuple[Any, list[Any]]:
    """A figure and its axes."""
    columns = _columns(count)
    lines = -(-count // columns)
    figure = _figure(max(4.6, 2.9 * columns + 0.4), 2.5 * lines + 0.9)
    axes = [figure.add_subplot(lines, columns, i + 1) for i in range(count)]
    for one in axes:
        _plain(one)
    return figure, axes


def window_of(results: Sequence[Result]) -> int:
    """How many evaluations a study's curves are smoothed over: WINDOW, and a fifth of a curve at
    most: of the shortest, once it is finished.
    """
    lengths = [r.steps // int(r.config["evaluate_every"]) + 1 for r in results if r.curves]
    return max(1, min(WINDOW, min(lengths, default=0) // 5))


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _titled(axes: Any, text: str) -> None:
    axes.set_title(fill(text, LONGEST_TITLE, break_on_hyphens=False), fontsize=10)


def wrapped(label: str) -> str:
    """Of a run with many changed hyperparameters: several short lines."""
    return fill(label, LONGEST_LINE, break_long_words=False)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(wrapped(label), handle)
    widest = max(len(line) for label in found for line in label.split("\n"))
    columns = max(1, min(len(found), int(figure.get_figwidth() // (0.6 + 0.08 * widest))))
    # Else a high legend takes its height from the panels, which have room for two lines of it.
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, _high(list(found), columns) - 2))
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=3,
    )


def _high(labels: Sequence[str], columns: int) -> int:
    """Lines of a legend's longest column; the first columns have one label more."""
    columns_of = np.array_split([label.count("\n") + 1 for label in labels], columns)
    return max(int(lines.sum()) for lines in columns_of)


def _units(axes: Any, highest: float, counted: str) -> float:
    """Thousands or millions under the axis, whichever is short."""
    unit, word = (1e6, " (millions)") if highest >= 2e6 else (1e3, " (thousands)")
    unit, word = (1.0, "") if highest < 1e4 else (unit, word)
    axes.set_xlabel(f"{counted}{word}", fontsize=8)
    return unit


def _lines(style_: Style) -> dict[str, Any]:
    # matplotlib's own dashes scale with the line's width.
    pattern = {"linestyle": (0, style_.dashes)} if style_.dashes else {}
    return {"color": style_.colour, "linewidth": 1.5, **pattern}


def _dot(values: ArrayLike) -> dict[str, Any]:
    """A mark for a curve of a single point, of which a line shows nothing."""
    alone = np.isfinite(np.asarray(values)).sum() == 1
    return {"marker": "o", "markersize": 4, "clip_on": False} if alone else {}


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's interval of every evaluation, over seeds; of one seed none."""
    several = len(values) > 1
    spread = values.std(axis=0, ddof=1) if several else np.full(values.shape[1], np.nan)
    return np.asarray(1.96 / np.sqrt(len(values)) * spread)


def _band(
    axes: Any, x: ArrayLike, mean: ArrayLike, wide: ArrayLike, look: Style, label: str
) -> None:
    """A row's line, and what is as wide as its interval to both sides, where it has one."""
    middle, half = np.asarray(mean), np.asarray(wide)
    axes.plot(x, middle, label=label, **_lines(look), **_dot(middle))
    if np.isfinite(half).all():
        edge = 4 if middle.size == 1 else 0  # points: what has no width is its edge
        axes.fill_between(x, middle - half, middle + half, color=look.colour, alpha=0.15, lw=edge)


def curves(study: str, results: Sequence[Result], window: int, *, by_time: bool = False) -> Any:
    """One panel a task: smoothed means and intervals over evaluations, or over minutes."""
    shown = places(results)
    figure, axes = _panels(len(shown))
    for i, (one, place) in enumerate(zip(axes, shown, strict=True)):
        own = [r for r in results if r.place == place and r.curves]
        highest = max(r.last or 0 for r in own)
        unit = 1.0 if by_time else _units(one, highest, own[0].counted)
        if by_time:
            one.set_xlabel("minutes, all seeds together", fontsize=8)
        for result in own:
            if result.curves is None:
                continue
            values = smoothed(result.curves.values, window)
            x = np.array(result.curves.steps) / unit
            if by_time:
                x = x * (result.seconds_a_step or 0.0) / 60
            _band(one, x, values.mean(axis=0), _spread(values), look_of(result), result.label)
        _titled(one, own[0].title)
        one.margins(x=0.01)
        if i % _columns(len(shown)) == 0 or own[0].quantity != results[0].quantity:
            mean = f"\n(mean of {window} evaluations)" if window > 1 else ""
            one.set_ylabel(f"{own[0].quantity}{mean}", fontsize=8)
    _legend(figure, axes)
    return figure


def learning_curve(evaluations: pd.DataFrame, title: str, counted: str) -> Any:
    """Of a single run: every seed's evaluations, their mean and the paper's interval."""
    by_seed = per_seed(evaluations)
    figure = _figure(7, 4.2)
    axes = figure.add_subplot()
    _plain(axes)
    for seed, curve in by_seed.items():
        known_ = curve.dropna()
        look = {"linewidth": 1, "alpha": 0.55, **_dot(known_)}
        axes.plot(known_.index, known_, label=f"seed {seed}", **look)
    common = by_seed.dropna()
    if by_seed.shape[1] > 1 and len(common):
        mean, wide = common.mean(axis=1), _spread(common.to_numpy().T)
        axes.fill_between(common.index, mean - wide, mean + wide, color="black", alpha=0.12, lw=0)
        look = {"color": "black", "linewidth": 2, **_dot(mean)}
        axes.plot(common.index, mean, label="mean ± 1.96 sd/√n", **look)
    axes.set(title=title, xlabel=counted, ylabel="evaluation return")
    axes.margins(x=0.01)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def time_curves(study: str, results: Sequence[Result], window: int) -> Any | None:
    """The same over minutes, at each run's seconds a step."""
    timed = [result for result in results if result.seconds_a_step is not None]
    return curves(study, timed, window, by_time=True) if timed else None


def seed_curves(study: str, results: Sequence[Result], window: int) -> Any | None:
    """One panel a task: single seeds of the study's first rows, neither averaged nor smoothed."""
    rows = known(study).rows
    shown = [r for r in results if r.label in rows and rows[r.label].group == "Default"]
    if not shown:
        return None
    figure, axes = _panels(len(places(shown)))
    for one, place in zip(axes, places(shown), strict=True):
        own = [r for r in shown if r.place == place]
        unit = _units(one, max(r.last or 0 for r in own), own[0].counted)
        for result in own:
            if result.curves is None:
                continue
            look = {**_lines(look_of(result)), "linewidth": 0.8}
            x = np.array(result.curves.steps) / unit
            for i, values in enumerate(result.curves.values[:SEEDS_SHOWN]):
                label = result.label if i == 0 else None
                one.plot(x, values, label=label, **look, **_dot(values))
        _titled(one, own[0].title)
    for one in axes[:: _columns(len(axes))]:
        one.set_ylabel(f"{shown[0].quantity} of single seeds", fontsize=8)
    _legend(figure, axes)
    return figure


def normalised_curves(study: str, results: Sequence[Result], window: int) -> Any | None:
    """One panel a suite: means over tasks, in shares of what the first row comes to in the end."""
    first = next(iter(known(study).rows), "")
    found = {suite: _on_shared_tasks(own, first) for suite, own in suites(results).items()}
    shown = {suite: by_row for suite, by_row in found.items() if by_row}
    if not shown:
        return None
    looks = {result.label: look_of(result) for result in results}
    figure, axes = _panels(len(shown))
    for one, (suite, by_row) in zip(axes, shown.items(), strict=True):
        ends = [curve.values[:, -1].mean() for curve in by_row[first]]
        unit = _units(one, max(curve.steps[-1] for curve in by_row[first]), "time steps")
        for label, own in by_row.items():
            steps, shares = _shares(own, ends, window)
            if not shares:
                continue
            mean = [share.mean for share in shares]
            wide = [share.interval for share in shares]
            _band(one, np.array(steps) / unit, mean, wide, looks[label], label)
        _titled(one, f"mean of {len(ends)} task{'s' * (len(ends) > 1)}, {suite}")
    axes[0].set_ylabel(f"share of {first}'s last return", fontsize=8)
    _legend(figure, axes)
    return figure


def _on_shared_tasks(results: Sequence[Result], first: str) -> dict[str, list[Aligned]]:
    """label: curves, on the tasks that all rows have; {} where the first has no share to give."""
    by_row: dict[str, dict[str, Aligned]] = {}
    for result in results:
        if result.curves is not None:
            by_row.setdefault(result.label, {})[result.place] = result.curves
    tasks = [t for t in by_row.get(first, {}) if all(t in own for own in by_row.values())]
    positive = all(by_row[first][task].values[:, -1].mean() > 0 for task in tasks)
    if not tasks or not positive:
        return {}
    return {label: [own[task] for task in tasks] for label, own in by_row.items()}


def _shares(
    curves_: Sequence[Aligned], ends: Sequence[float], window: int
) -> tuple[list[int], list[Sample]]:
    """Steps that all tasks have; at each the mean over tasks, of the seeds that all have."""
    seeds = sorted(set.intersection(*(set(c.seeds) for c in curves_)))
    steps = sorted(set.intersection(*(set(c.steps) for c in curves_)))
    if not seeds:
        return [], []
    scores = [
        smoothed(c.values, window)[[c.seeds.index(seed) for seed in seeds]][
            :, [c.steps.index(step) for step in steps]
        ]
        for c in curves_
    ]
    return steps, [normalised(at.T, ends) for at in np.stack(scores).transpose(2, 0, 1)]


def extrapolation(study: str, results: Sequence[Result], window: int) -> Any | None:
    """A column a row of the study: returns above, value estimates below, a line a seed."""
    shown = [r for r in results if r.values is not None and r.curves]
    if not shown:
        return None
    columns = min(6, len(shown))
    bands = -(-len(shown) // 6)
    figure = _figure(2.4 * columns + 0.5, 3.9 * bands + 0.3)
    for i, result in enumerate(shown):
        if result.curves is None or result.values is None:
            continue
        band, column = divmod(i, 6)
        top = figure.add_subplot(2 * bands, columns, 2 * band * columns + column + 1)
        number = (2 * band + 1) * columns + column + 1
        low = figure.add_subplot(2 * bands, columns, number, sharex=top)
        look = {"color": look_of(result).colour, "lw": 0.8, "alpha": 0.7}
        for axes, values, word in (
            (top, smoothed(result.curves.values, window), "return"),
            (low, result.values, "value estimate"),
        ):
            _plain(axes)
            unit = _units(axes, float(result.last or 0), result.counted)
            for row in values:
                axes.plot(np.array(result.curves.steps) / unit, row, **look, **_dot(row))
            if column == 0:
                axes.set_ylabel(word, fontsize=9)
        top.set_xlabel("")
        top.set_title(result.label, fontsize=9)
    return figure


def loss_bars(table: Table) -> Any:
    """A bar a row, the paper's beside it."""
    step = max(int(str(record["step"])) for record in table.records)
    records = [record for record in table.records if record["step"] == step]
    figure = _figure(7.2, 0.34 * len(records) + 1.5)
    axes = figure.add_subplot()
    _plain(axes)
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
    figure = _figure(7.2, 0.24 * -y + 1.5)
    axes = figure.add_subplot()
    _plain(axes)
    axes.grid(axis="y", visible=False)
    for i, place in enumerate([*settings, PAPER]):
        mine = [bar for bar in bars if bar.whose == place]
        if not mine:
            continue
        look = "#bdbdbd" if place == PAPER else _COLOURS[i % len(_COLOURS)]
        hatch = "" if place == PAPER else _HATCHES[i % len(_HATCHES)]
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


def within_words(within: int) -> str:
    return f"within {within} evaluation{'s' * (within > 1)}"


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
    figure, axes = _panels(len(pairs))
    for one, (own, within) in zip(axes, pairs, strict=True):
        for result, shares in own:
            if within in shares:
                look = _lines(look_of(result))
                one.plot(DROPS, shares[within], label=result.label, **look)
        _titled(one, own[0][0].title)
        one.set_xlabel(f"drop of more than … %\n{within_words(within)}", fontsize=8)
        one.set_ylim(-3, 103)
    for one in axes[:: _columns(len(axes))]:
        one.set_ylabel("% of evaluations", fontsize=9)
    _legend(figure, axes)
    return figure


Draw = Callable[[str, Sequence[Result], int], Any | None]  # the last: of smoothing
# What a study has besides curves, and the bars of its tables.
DRAWN: Mapping[str, Mapping[str, Draw]] = {
    "online": {"time-curves": time_curves},
    "extrapolation": {"values": extrapolation},
    "checkpoints": {"seeds": seed_curves},
    "ablation-main": {"normalised": normalised_curves},
    "runtime": {"time-curves": time_curves},
}


def _float(value: Any, missing: float = float("nan")) -> float:
    return missing if value is None else float(value)

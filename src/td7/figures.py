"""Results → figures, by matplotlib's object interface: no global state, no screen needed.

A label has the same colour and line style in every figure; styles alone tell lines apart in grey.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.results import Result, known
from td7.statistics import smoothed
from td7.tables import DROP_WINDOWS, Table, drop_shares

FORMATS = ("svg", "png", "pdf")
WINDOW = 10  # evaluations, the paper's
LONGEST_LINE = 40  # characters of a label
PANELS = 5  # a row, as in the paper
MOST_BARS = 60
MOST_LINES = 7  # a panel; with more rows, a figure a group

# Colours that people with any colour vision can tell apart (Okabe and Ito's, darkened where pale).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8578c", "#946b00", "#2a2a2a", "#7a5cc2", "#5b8a00")
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


def style(study: str, label: str) -> Style:
    """An agent's own; of a study's other rows, by their number, so that neighbours differ."""
    rows = list(known(study).rows)
    own = {name for name in _AGENTS if name != "TD7 (no checkpoints)" or "TD7" not in rows}
    if label in own:
        number = _AGENTS[label]
        return Style(_COLOURS[number], _AGENT_DASHES[number])
    others = [row for row in rows if row not in own]
    number = others.index(label) if label in others else sum(map(ord, label))
    return Style(_COLOURS[2 + number % 6], _ROW_DASHES[number % 8])


def figures(
    studies: Mapping[str, Sequence[Result]], tables: Sequence[Table]
) -> Iterator[tuple[str, Any]]:
    """(name, figure), one after the other."""
    for name, results in studies.items():
        shown = [result for result in results if result.curves]
        if not shown:
            continue
        labels = list(dict.fromkeys(result.label for result in shown))
        for part, own in parts(name, labels).items():
            chosen = [result for result in shown if result.label in own]
            yield f"{name}-curves{part}", curves(name, chosen)
        if name == "extrapolation" and any(result.values is not None for result in shown):
            yield f"{name}-values", extrapolation(name, shown)
        if name == "online" and any(result.seconds for result in shown):
            timed = [result for result in shown if result.seconds]
            yield f"{name}-time-curves", curves(name, timed, by_time=True)
    for table in tables:
        draw = {"losses": loss_bars, "runtime": runtime_bars}.get(table.kind)
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


def _panels(count: int, rows: int = 1) -> tuple[Any, list[Any]]:
    """A figure and its axes, at most PANELS side by side."""
    columns = min(PANELS, count)
    lines = -(-count // PANELS) * rows
    figure = _figure(max(4.6, 2.9 * columns + 0.4), 2.5 * lines + 0.9)
    axes = [figure.add_subplot(lines, columns, i + 1) for i in range(count * rows)]
    for one in axes:
        _plain(one)
    return figure, axes


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


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
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=3,
    )


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


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's interval of every evaluation, over seeds."""
    return np.asarray(1.96 / np.sqrt(len(values)) * values.std(axis=0, ddof=1))


def curves(study: str, results: Sequence[Result], *, by_time: bool = False) -> Any:
    """One panel a task: smoothed means and intervals over evaluations, or over minutes."""
    chosen = known(study)
    found = dict.fromkeys(result.place for result in results)
    places = [p for p in chosen.datasets or chosen.tasks if p in found]
    places += [p for p in found if p not in places]
    figure, axes = _panels(len(places))
    for one, place in zip(axes, places, strict=True):
        own = [r for r in results if r.place == place and r.curves]
        highest = max(r.last or 0 for r in own)
        unit = 1.0 if by_time else _units(one, highest, own[0].counted)
        if by_time:
            one.set_xlabel("minutes, all seeds together", fontsize=8)
        for result in own:
            if result.curves is None:
                continue
            values = smoothed(result.curves.values, WINDOW)
            x = np.array(result.curves.steps) / unit
            if by_time:
                x = x / result.steps * (result.seconds or 0.0) / 60
            look = style(study, result.label)
            mean = values.mean(axis=0)
            one.plot(x, mean, label=result.label, **_lines(look))
            if len(values) > 1:
                wide = _spread(values)
                one.fill_between(x, mean - wide, mean + wide, color=look.colour, alpha=0.15, lw=0)
        data = "" if not own[0].data or own[0].data == "D4RL" else f"\n({own[0].data})"
        one.set_title(f"{place}{data}", fontsize=10)
        one.margins(x=0.01)
    for one in axes[::PANELS]:
        one.set_ylabel(f"{results[0].quantity}\n(mean of {WINDOW} evaluations)", fontsize=8)
    _legend(figure, axes)
    return figure


def extrapolation(study: str, results: Sequence[Result]) -> Any:
    """A column a row of the study: returns above, value estimates below, a line a seed."""
    shown = [r for r in results if r.values is not None and r.curves]
    columns = min(6, len(shown))
    bands = -(-len(shown) // 6)
    figure = _figure(2.4 * columns + 0.5, 3.9 * bands + 0.3)
    for i, result in enumerate(shown):
        if result.curves is None or result.values is None:
            continue
        band, column = divmod(i, 6)
        top = figure.add_subplot(2 * bands, columns, 2 * band * columns + column + 1)
        low = figure.add_subplot(2 * bands, columns, (2 * band + 1) * columns + column + 1)
        look = style(study, result.label)
        for axes, values, word in (
            (top, smoothed(result.curves.values, WINDOW), "return"),
            (low, result.values, "value estimate"),
        ):
            _plain(axes)
            unit = _units(axes, float(result.last or 0), result.counted)
            for row in values:
                axes.plot(
                    np.array(result.curves.steps) / unit, row, color=look.colour, lw=0.8, alpha=0.7
                )
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
        (-0.19, "paper_", "#bdbdbd", "paper"),
    ):
        numbers = [_float(record[f"{prefix}percent_loss"]) for record in records]
        wide = [_float(record[f"{prefix}interval"], 0.0) for record in records]
        axes.barh(y + offset, numbers, 0.36, color=colour, label=word, edgecolor="#444", lw=0.4)
        known_wide = [w if np.isfinite(n) else 0.0 for n, w in zip(numbers, wide, strict=True)]
        drawn = [n if np.isfinite(n) else 0.0 for n in numbers]
        axes.errorbar(drawn, y + offset, xerr=known_wide, fmt="none", ecolor="#222", elinewidth=0.8)
    axes.axvline(0, color="#222", linewidth=0.8)
    axes.set_yticks(y, [str(record["row"]) for record in records], fontsize=8)
    axes.set_ylim(-0.6, len(records) - 0.4)
    reference = records[0]["reference"]
    axes.set_xlabel(f"mean percent loss against {reference}, {step:,} steps", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="best")
    return figure


def runtime_bars(table: Table) -> Any:
    """Minutes for 1M steps: all seeds together, a seed, and the paper's."""
    records = table.records
    figure = _figure(7.2, 0.46 * len(records) + 1.4)
    axes = figure.add_subplot()
    _plain(axes)
    axes.grid(axis="y", visible=False)
    y = np.arange(len(records))[::-1]
    for offset, field, colour, word in (
        (0.26, "minutes_a_million_steps", "#0072b2", "here, all seeds together"),
        (0.0, "minutes_a_million_steps_and_seed", "#8ecae6", "here, divided by seeds"),
        (-0.26, "paper_minutes", "#bdbdbd", "paper, one seed"),
    ):
        numbers = [_float(record[field]) for record in records]
        bars = axes.barh(y + offset, numbers, 0.25, color=colour, label=word, edgecolor="#444")
        words = [f"{number:.1f}" if np.isfinite(number) else "" for number in numbers]
        axes.bar_label(bars, words, padding=3, fontsize=7)
    labels = [wrapped(f"{r['row']}, {r['place']}, {r['seeds']} seeds") for r in records]
    axes.set_yticks(y, labels, fontsize=8)
    axes.set_ylim(-0.6, len(records) - 0.4)
    axes.margins(x=0.12)
    axes.set_xlabel("minutes for 1M steps", fontsize=9)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure


def drops_figure(study: str, results: Sequence[Result]) -> Any:
    """One panel a task: how many evaluations are followed by a drop, by its size."""
    percents = np.arange(0, 100, 2)
    by_place: dict[str, list[tuple[Result, Mapping[int, Sequence[float]]]]] = {}
    for result in results:
        found = drop_shares(result, percents.tolist(), [])
        if found:
            by_place.setdefault(result.place, []).append((result, found))
    figure, axes = _panels(len(by_place))
    for one, (place, own) in zip(axes, by_place.items(), strict=True):
        within = max(w for w in DROP_WINDOWS if all(w in shares for _, shares in own))
        for result, shares in own:
            look = _lines(style(study, result.label))
            one.plot(percents, shares[within], label=result.label, **look)
        one.set_title(place, fontsize=10)
        one.set_xlabel(f"drop of more than … % within {within} evaluations", fontsize=8)
        one.set_ylim(-3, 103)
    for one in axes[::PANELS]:
        one.set_ylabel("% of evaluations", fontsize=9)
    _legend(figure, axes)
    return figure


def _float(value: Any, missing: float = float("nan")) -> float:
    return missing if value is None else float(value)

"""How figures look: colours, line styles, panels, legends.

A label has the same colour and line style in every figure; styles alone tell lines apart in grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from td7.report.result import Result, known

FORMATS = ("svg", "png", "pdf")
LONGEST_LINE = 40  # characters of a label
LONGEST_TITLE = 34  # characters of a panel's
PANELS = 5  # a row, as in the paper

# Colours that people with any colour vision can tell apart (Okabe and Ito's, darkened where pale).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8578c", "#946b00", "#2a2a2a", "#7a5cc2", "#5b8a00")
HATCHES = ("", "///", "...", "xx", "\\\\\\")
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
        return Style(COLOURS[number], _AGENT_DASHES[number])
    others = [row for row in rows if row not in own]
    number = others.index(label) if label in others else len(others) + more
    return Style(COLOURS[2 + number % 6], _ROW_DASHES[number % 8])


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def columns_of(count: int) -> int:
    """How many panels are side by side: at most PANELS, as many in every line as can be."""
    return -(-count // -(-count // PANELS))


def panels(count: int) -> tuple[Any, list[Any]]:
    """A figure and its axes."""
    columns = columns_of(count)
    lines = -(-count // columns)
    figure = new_figure(max(4.6, 2.9 * columns + 0.4), 2.5 * lines + 0.9)
    axes = [figure.add_subplot(lines, columns, i + 1) for i in range(count)]
    for one in axes:
        plain_axes(one)
    return figure, axes


def plain_axes(axes: Any) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def set_title(axes: Any, text: str) -> None:
    axes.set_title(fill(text, LONGEST_TITLE, break_on_hyphens=False), fontsize=10)


def wrapped(label: str) -> str:
    """Of a run with many changed hyperparameters: several short lines."""
    return fill(label, LONGEST_LINE, break_long_words=False)


def legend_below(figure: Any, axes: Sequence[Any]) -> None:
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


def step_unit(axes: Any, highest: float, counted: str) -> float:
    """Thousands or millions under the axis, whichever is short."""
    unit, word = (1e6, " (millions)") if highest >= 2e6 else (1e3, " (thousands)")
    unit, word = (1.0, "") if highest < 1e4 else (unit, word)
    axes.set_xlabel(f"{counted}{word}", fontsize=8)
    return unit


def line_look(style_: Style) -> dict[str, Any]:
    # matplotlib's own dashes scale with the line's width.
    pattern = {"linestyle": (0, style_.dashes)} if style_.dashes else {}
    return {"color": style_.colour, "linewidth": 1.5, **pattern}


def dot_look(values: ArrayLike) -> dict[str, Any]:
    """A mark for a curve of a single point, of which a line shows nothing."""
    alone = np.isfinite(np.asarray(values)).sum() == 1
    return {"marker": "o", "markersize": 4, "clip_on": False} if alone else {}


def within_words(within: int) -> str:
    return f"within {within} evaluation{'s' * (within > 1)}"

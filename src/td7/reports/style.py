"""How figures look: colours, line styles, panels, legends.

A label has the same colour and line style in every figure; line styles alone tell lines apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill, wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from td7.reports.result import Result, study_or_empty

FORMATS = ("svg", "png", "pdf")
LONGEST_LINE = 40  # characters per line of a label
LONGEST_TITLE = 34  # characters per line of a panel's title
MOST_LINES = 6  # rows per panel, each of a colour of its own
MOST_COLUMNS = 3  # panels side by side, so that their text can be read on a page

# Distinct under every kind of colour blindness (Okabe and Ito's, pale ones darkened).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8578c", "#946b00", "#2a2a2a", "#7a5cc2", "#5b8a00")
HATCHES = ("", "///", "...", "xx", "\\\\\\")
PAPER = "paper, one seed"
Dashes = tuple[float, ...]
_AGENT_DASHES: tuple[Dashes, ...] = ((), (5, 1.5), (1.2, 1.2), (6, 1.5, 1.2, 1.5), (9, 3))
_ROW_DASHES: tuple[Dashes, ...] = (
    (3, 1.2),
    (1.2, 3),
    (9, 1.5, 3, 1.5),
    (6, 1.5, 1.2, 1.5, 1.2, 1.5),
    (12, 1.5),
    (2.2, 2.2),
    (6, 3, 2, 3),
    (3, 1, 1, 1, 1, 1),
)
# Of the lines of a run whose hyperparameters vary, each of a colour of its own.
CONFIGURATION_DASHES: tuple[Dashes, ...] = (*_AGENT_DASHES, (3, 1.2, 1.2, 1.2, 1.2, 1.2))
# Online and offline agents share numbers, since no figure has both.
_AGENTS = {
    **{"TD7": 0, "TD7 (no checkpoints)": 0, "TD3": 1},
    **{"SAC": 2, "TQC": 3, "TD3+OFE": 4},
    **{"TD3+BC": 1, "CQL": 2, "IQL": 3, "X-QL": 4},
}


@dataclass(frozen=True)
class Style:
    colour: str
    dashes: Dashes  # lengths of ink and gap; () is a solid line


def style_of(result: Result) -> Style:
    return row_style(result.study, result.label, result.unlisted)


def figure_styles(results: Sequence[Result]) -> dict[str, Style]:
    """The style of every label in one figure, where no two lines have the same colour.

    A row whose colour another has already gets one that is free.
    """
    styles: dict[str, Style] = {}
    for result in results:
        if result.label not in styles:
            style, used = style_of(result), {other.colour for other in styles.values()}
            free = [colour for colour in (style.colour, *COLOURS) if colour not in used]
            styles[result.label] = replace(style, colour=next(iter(free), style.colour))
    return styles


def row_style(study: str, label: str, unlisted: int = 0) -> Style:
    """The style of an agent; that of another row goes by its number, so that neighbours differ.

    `unlisted` numbers the labels that are not among the study's rows.
    """
    rows = list(study_or_empty(study).rows)
    agents = {name for name in _AGENTS if name != "TD7 (no checkpoints)" or "TD7" not in rows}
    if label in agents:
        number = _AGENTS[label]
        return Style(COLOURS[number], _AGENT_DASHES[number])
    others = [row for row in rows if row not in agents]
    number = others.index(label) if label in others else len(others) + unlisted
    return Style(COLOURS[2 + number % 6], _ROW_DASHES[number % 8])


# -- figures and axes ----------------------------------------------------------------------------


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from td7.reports.figure import ShownFigure

    figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(count: int) -> tuple[Any, list[Any]]:
    """A figure and its axes."""
    columns = column_count(count)
    lines = -(-count // columns)
    figure = new_figure(max(4.6, 2.9 * columns + 0.4), 2.5 * lines + 0.9)
    panels = [figure.add_subplot(lines, columns, i + 1) for i in range(count)]
    for axes in panels:
        format_axes(axes)
    return figure, panels


def column_count(count: int) -> int:
    """The panels side by side: at most MOST_COLUMNS, and every line as full as possible."""
    return -(-count // -(-count // MOST_COLUMNS))


def format_axes(axes: Any) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def set_title(axes: Any, text: str) -> None:
    axes.set_title(fill(text, LONGEST_TITLE, break_on_hyphens=False), fontsize=10)


def scale_steps(axes: Any, highest: float, step_unit: str, note: str = "") -> float:
    """Label the x-axis in steps, thousands or millions of them; return what to divide by."""
    scale, word = (1e6, " (millions)") if highest >= 2e6 else (1e3, " (thousands)")
    scale, word = (1.0, "") if highest < 1e4 else (scale, word)
    set_x_label(axes, f"{step_unit}{word}", note)
    return scale


def set_x_label(axes: Any, text: str, note: str = "") -> None:
    """The axis's title, and below it a note on what the panel does not show."""
    axes.set_xlabel("\n".join([text, *wrap(note, LONGEST_LINE)]), fontsize=8)


def axis_end(results: Sequence[Result]) -> int:
    """The last step of a panel: at most twice the steps of the shortest run.

    So no curve is squeezed into less than half of the panel by one that is much longer.
    """
    longest = max(result.last_step or 0 for result in results)
    return min(longest, 2 * min(run_length(result) or longest for result in results))


def run_length(result: Result) -> int | None:
    """The steps of a run's curve when it is finished; None if that is a single point."""
    if result.steps < result.record.evaluate_every:
        return None
    return max(result.steps, result.last_step or 0)


def cut_text(results: Sequence[Result], end: int) -> str:
    """Which curves continue beyond the end of their panel; "" if none does."""
    labels: dict[int, list[str]] = {}
    for result in results:
        if result.last_step and result.last_step > end:
            labels.setdefault(result.last_step, []).append(result.label)
    texts = [f"to {last:,}: {', '.join(own)}" for last, own in sorted(labels.items())]
    return f"continued {'; '.join(texts)}" if texts else ""


# -- legends -------------------------------------------------------------------------------------


def wrap_label(label: str, longest: int = LONGEST_LINE) -> str:
    """Several short lines of a long label, such as one with many changed hyperparameters."""
    bound = re.sub(r"(?<!,) (?=[^ ,]+(,|$))", "\u00a0", label)  # `batch_size 256` stays together
    return fill(bound, longest, break_long_words=False).replace("\u00a0", " ")


def legend_below(
    figure: Any,
    panels: Sequence[Any],
    more: Mapping[str, Any] | None = None,
    longest: int = LONGEST_LINE,
) -> None:
    """One legend for all panels, and `more` entries; one of many lines makes the figure higher."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(wrap_label(label, longest), handle)
    handles |= more or {}
    widest = max(len(line) for label in handles for line in label.split("\n"))
    columns = max(1, min(len(handles), int(figure.get_figwidth() // (0.6 + 0.08 * widest))))
    # The layout takes the legend's height from the panels, which can spare two lines.
    extra = max(0, _legend_lines(list(handles), columns) - 2)
    figure.set_figheight(figure.get_figheight() + 0.2 * extra)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=3,
    )


def _legend_lines(labels: Sequence[str], columns: int) -> int:
    """Lines in a legend's longest column; the first columns have one label more."""
    by_column = np.array_split([label.count("\n") + 1 for label in labels], columns)
    return max(int(lines.sum()) for lines in by_column)


# -- options of matplotlib's plot ----------------------------------------------------------------


def line_options(style: Style) -> dict[str, Any]:
    # matplotlib's named dashes scale with the line's width.
    pattern = {"linestyle": (0, style.dashes)} if style.dashes else {}
    return {"color": style.colour, "linewidth": 1.5, **pattern}


def marker_options(values: ArrayLike) -> dict[str, Any]:
    """A marker for a curve of a single point, which a line would not show."""
    is_single = np.isfinite(np.asarray(values)).sum() == 1
    return {"marker": "o", "markersize": 4, "clip_on": False} if is_single else {}


def window_text(window: int) -> str:
    return f"within {window} evaluation{'s' * (window > 1)}"

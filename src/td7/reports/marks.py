"""The numbers that the paper prints, as marks in a panel of learning curves.

The paper's numbers are means of one evaluation, while a curve may be averaged over several. Next to
the paper's mark is therefore that of the run's own evaluation at the same step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from td7.reports import paper
from td7.reports.result import Result, study_or_empty
from td7.reports.style import Style
from td7.statistics import Sample

SHIFT = 0.025  # of the panel's width, to the right, so that the paper's intervals can be seen
SHIFTS = 3  # rows with marks side by side; the next row's are where the first row's are
HERE = {"marker": "o", "markersize": 4}
PAPER = {"marker": "D", "markersize": 5, "markerfacecolor": "white"}


class Mark(NamedTuple):
    label: str
    step: int
    here: Sample
    paper: Sample


def marks_of(results: Sequence[Result], end: int) -> list[Mark]:
    """Where the paper and a row of this panel both have a number, up to a step."""
    marks = []
    for result in results:
        table = study_or_empty(result.study).table
        for step in paper.steps(table):
            printed = paper.printed(table, step).get((result.label, result.place))
            values = result.at(step)
            if step <= end and printed and values is not None:
                marks.append(Mark(result.label, step, Sample.of(values), printed))
    return marks


def draw_marks(
    axes: Any,
    marks: Sequence[Mark],
    end: int,
    scale: float,
    styles: Mapping[str, Style],
    *,
    smooth: bool,
) -> dict[str, Any]:
    """Draw the marks with their intervals; return the legend's entries for them.

    `smooth`: curves do not go through single evaluations, which get a mark as well.
    """
    if not marks:
        return {}
    labels = list(dict.fromkeys(mark.label for mark in marks))
    for mark in marks:
        colour, x = styles[mark.label].colour, mark.step / scale
        shift = SHIFT * (1 + labels.index(mark.label) % SHIFTS) * end / scale
        if smooth:
            _draw(axes, x, mark.here, colour, HERE)
        _draw(axes, x + shift, mark.paper, colour, PAPER)
    here = {"here, at one step": _handle(HERE)} if smooth else {}
    return {**here, "paper, at one step": _handle(PAPER)}


def _draw(axes: Any, x: float, sample: Sample, colour: str, options: Mapping[str, Any]) -> None:
    half = sample.interval if sample.n > 1 else None
    lines = {"elinewidth": 1.1, "capsize": 2, "linestyle": "none", "zorder": 3}
    axes.errorbar([x], [sample.mean], yerr=half, color=colour, clip_on=False, **lines, **options)


def _handle(options: Mapping[str, Any]) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color="#444444", linestyle="none", **options)

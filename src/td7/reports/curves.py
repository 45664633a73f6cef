"""Learning curves.

The functions draw the results of one study; `window` is the number of evaluations that a curve is
smoothed over. Those that return None have nothing to draw.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from td7.reports.configurations import Configuration, best_first
from td7.reports.marks import draw_marks, marks_of
from td7.reports.result import Result, member_means, places, study_or_empty, suites
from td7.reports.style import (
    COLOURS,
    CONFIGURATION_DASHES,
    LONGEST_LINE,
    MOST_LINES,
    Style,
    axis_end,
    column_count,
    cut_text,
    figure_styles,
    format_axes,
    legend_below,
    line_options,
    marker_options,
    new_figure,
    new_panels,
    scale_steps,
    set_title,
    set_x_label,
    style_of,
)
from td7.statistics import Aligned, Sample, normalised, smoothed

WINDOW = 10  # evaluations, the paper's
SEEDS_SHOWN = 5  # curves of single seeds, the paper's


def window_of(results: Sequence[Result]) -> int:
    """The window of a study: WINDOW, but at most a fifth of its shortest curve when finished."""
    lengths = [r.steps // r.record.evaluate_every + 1 for r in results if r.curves]
    return max(1, min(WINDOW, min(lengths, default=0) // 5))


def _interval(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's interval over the seeds of every evaluation; nan for one seed."""
    has_interval = len(values) > 1
    sd = values.std(axis=0, ddof=1) if has_interval else np.full(values.shape[1], np.nan)
    return np.asarray(1.96 / np.sqrt(len(values)) * sd)


def _draw_mean(
    axes: Any, x: ArrayLike, mean: ArrayLike, interval: ArrayLike, style: Style, label: str
) -> None:
    """A row's line, and a band of its interval where it has one."""
    middle, half = np.asarray(mean), np.asarray(interval)
    axes.plot(x, middle, label=label, **line_options(style), **marker_options(middle))
    if np.isfinite(half).all():
        edge = 4 if middle.size == 1 else 0  # points; the band of a single step has no width
        axes.fill_between(x, middle - half, middle + half, color=style.colour, alpha=0.15, lw=edge)


def curves(results: Sequence[Result], window: int, *, by_time: bool = False) -> Any:
    """A panel per task: smoothed means and intervals over steps, or over minutes.

    Over steps, marks show the numbers that the paper prints.
    """
    shown, styles = places(results), figure_styles(results)
    figure, panels = new_panels(len(shown))
    entries: dict[str, Any] = {}  # of the legend, for marks
    for i, (axes, place) in enumerate(zip(panels, shown, strict=True)):
        own = [r for r in results if r.place == place and r.curves]
        end = axis_end(own)
        note = cut_text(own, end)
        scale = 1.0 if by_time else scale_steps(axes, end, own[0].step_unit, note)
        if by_time:
            set_x_label(axes, "minutes, all seeds together", note)
        for result in own:
            if result.curves is None:
                continue
            values = smoothed(result.curves.values, window)[:, : _count(result.curves, end)]
            x = np.array(result.curves.steps[: values.shape[1]]) / scale
            if by_time:
                x = x * (result.seconds_per_step or 0.0) / 60
            style = styles[result.label]
            _draw_mean(axes, x, values.mean(axis=0), _interval(values), style, result.label)
        if not by_time:
            entries |= draw_marks(axes, marks_of(own, end), end, scale, styles, smooth=window > 1)
        set_title(axes, own[0].title)
        axes.margins(x=0.01)
        if i % column_count(len(shown)) == 0 or own[0].quantity != results[0].quantity:
            smoothing = f"\n(mean of {window} evaluations)" if window > 1 else ""
            axes.set_ylabel(f"{own[0].quantity}{smoothing}", fontsize=8)
    legend_below(figure, panels, entries)
    return figure


def _count(curves: Aligned, end: int) -> int:
    """The evaluations up to a step."""
    return int(np.searchsorted(curves.steps, end, side="right"))


def learning_curve(evaluations: pd.DataFrame, title: str, step_unit: str) -> Any:
    """The curves of a single run: every seed's evaluations, their mean and its interval."""
    by_seed = member_means(evaluations)
    figure = new_figure(7, 4.2)
    axes = figure.add_subplot()
    format_axes(axes)
    for seed, column in by_seed.items():
        curve = column.dropna()
        options = {"linewidth": 1, "alpha": 0.55, **marker_options(curve)}
        axes.plot(curve.index, curve, label=f"seed {seed}", **options)
    common = by_seed.dropna()
    if by_seed.shape[1] > 1 and len(common):
        mean, half = common.mean(axis=1), _interval(common.to_numpy().T)
        axes.fill_between(common.index, mean - half, mean + half, color="black", alpha=0.12, lw=0)
        options = {"color": "black", "linewidth": 2, **marker_options(mean)}
        axes.plot(common.index, mean, label="mean ± 1.96 sd/√n", **options)
    axes.set(title=title, xlabel=step_unit, ylabel="evaluation return")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.01)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    return figure


def configuration_curves(
    configurations: Sequence[Configuration], title: str, step_unit: str
) -> Any:
    """The curves of a run whose hyperparameters vary: a mean per configuration, best first.

    The best by their last evaluation are shown, as many as a figure has lines.
    """
    shown = best_first(configurations)[:MOST_LINES]
    seeds = max(len(one.members) for one in shown)
    figure = new_figure(7, 4.2)
    axes = figure.add_subplot()
    format_axes(axes)
    for one, colour, dashes in zip(shown, COLOURS, CONFIGURATION_DASHES, strict=False):
        style, values = Style(colour, dashes), one.means.to_numpy(np.float64).T
        x, mean = one.means.index.to_numpy(), values.mean(axis=0)
        _draw_mean(axes, x, mean, _interval(values), style, one.label or "mean")
    if len(shown) < len(configurations):
        best = f"the best {len(shown)} of {len(configurations)} configurations"
        title += f"\n{best}, by the last evaluation"
    spread = f"\n(mean ± 1.96 sd/√n of {seeds} seeds)" if seeds > 1 else ""
    axes.set(title=title, xlabel=step_unit, ylabel=f"evaluation return{spread}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.01)
    legend_below(figure, [axes], longest=2 * LONGEST_LINE)
    return figure


def time_curves(results: Sequence[Result], window: int) -> Any | None:
    """The same over minutes, at each run's seconds per step."""
    timed = [result for result in results if result.seconds_per_step is not None]
    return curves(timed, window, by_time=True) if timed else None


def seed_curves(results: Sequence[Result], window: int) -> Any | None:
    """A panel per task: single seeds of the study's default rows, not smoothed."""
    del window
    rows = study_or_empty(results[0].study).rows
    shown = [r for r in results if r.label in rows and rows[r.label].group == "Default"]
    if not shown:
        return None
    figure, panels = new_panels(len(places(shown)))
    styles = figure_styles(shown)
    for axes, place in zip(panels, places(shown), strict=True):
        own = [r for r in shown if r.place == place]
        end = axis_end(own)
        scale = scale_steps(axes, end, own[0].step_unit, cut_text(own, end))
        for result in own:
            if result.curves is None:
                continue
            options = {**line_options(styles[result.label]), "linewidth": 0.8}
            count = _count(result.curves, end)
            x = np.array(result.curves.steps[:count]) / scale
            for i, values in enumerate(result.curves.values[:SEEDS_SHOWN, :count]):
                label = result.label if i == 0 else None
                axes.plot(x, values, label=label, **options, **marker_options(values))
        set_title(axes, own[0].title)
    for axes in panels[:: column_count(len(panels))]:
        axes.set_ylabel(f"{shown[0].quantity} of single seeds", fontsize=8)
    legend_below(figure, panels)
    return figure


# -- means over tasks ----------------------------------------------------------------------------


def normalised_curves(results: Sequence[Result], window: int) -> Any | None:
    """A panel per suite: means over tasks, as shares of the first row's last evaluation."""
    first = next(iter(study_or_empty(results[0].study).rows), "")
    by_suite = {suite: _on_shared_tasks(own, first) for suite, own in suites(results).items()}
    shown = {suite: rows for suite, rows in by_suite.items() if rows}
    if not shown:
        return None
    styles = figure_styles(results)
    figure, panels = new_panels(len(shown))
    for axes, (suite, rows) in zip(panels, shown.items(), strict=True):
        tasks = len(rows[first])
        left_out = _left_out([result for result in results if result.suite == suite])
        note = f"without {', '.join(left_out)}, which not all rows have" if left_out else ""
        _draw_shares(axes, rows, first, styles, window, note)
        set_title(axes, f"mean of {tasks} task{'s' * (tasks > 1)}, {suite}")
    panels[0].set_ylabel(f"share of {first}'s last return", fontsize=8)
    legend_below(figure, panels)
    return figure


def _draw_shares(
    axes: Any,
    rows: Mapping[str, Sequence[Aligned]],
    first: str,
    styles: Mapping[str, Style],
    window: int,
    note: str,
) -> None:
    ends = [curve.values[:, -1].mean() for curve in rows[first]]
    scale = scale_steps(axes, max(curve.steps[-1] for curve in rows[first]), "time steps", note)
    for label, own in rows.items():
        steps, shares = _shares(own, ends, window)
        if shares:
            mean = [share.mean for share in shares]
            interval = [share.interval for share in shares]
            _draw_mean(axes, np.array(steps) / scale, mean, interval, styles[label], label)


def _on_shared_tasks(results: Sequence[Result], first: str) -> dict[str, list[Aligned]]:
    """label: the curves on the tasks that all rows have; {} if the first row's are not positive."""
    by_row: dict[str, dict[str, Aligned]] = {}
    for result in results:
        if result.curves is not None:
            by_row.setdefault(result.label, {})[result.place] = result.curves
    tasks = [t for t in by_row.get(first, {}) if all(t in own for own in by_row.values())]
    positive = all(by_row[first][task].values[:, -1].mean() > 0 for task in tasks)
    if not tasks or not positive:
        return {}
    return {label: [own[task] for task in tasks] for label, own in by_row.items()}


def _left_out(results: Sequence[Result]) -> list[str]:
    """The tasks that not all rows have."""
    by_row: dict[str, set[str]] = {}
    for result in results:
        by_row.setdefault(result.label, set()).add(result.place)
    return [place for place in places(results) if not all(place in own for own in by_row.values())]


def _shares(
    tasks: Sequence[Aligned], ends: Sequence[float], window: int
) -> tuple[list[int], list[Sample]]:
    """The steps that all tasks have, and the means over tasks of the seeds that all have."""
    seeds = sorted(set.intersection(*(set(curve.seeds) for curve in tasks)))
    steps = sorted(set.intersection(*(set(curve.steps) for curve in tasks)))
    if not seeds:
        return [], []
    scores = []  # per task: [seeds, steps]
    for curve in tasks:
        rows = [curve.seeds.index(seed) for seed in seeds]
        columns = [curve.steps.index(step) for step in steps]
        scores.append(smoothed(curve.values, window)[rows][:, columns])
    return steps, [normalised(at.T, ends) for at in np.stack(scores).transpose(2, 0, 1)]


# -- returns and value estimates -----------------------------------------------------------------


def extrapolation(results: Sequence[Result], window: int) -> Any | None:
    """A column per row of the study: returns above, value estimates below, a line per seed."""
    shown = [r for r in results if r.values is not None and r.curves]
    if not shown:
        return None
    columns = min(6, len(shown))
    bands = -(-len(shown) // 6)
    figure = new_figure(2.4 * columns + 0.5, 3.9 * bands + 0.3)
    for i, result in enumerate(shown):
        if result.curves is None or result.values is None:
            continue
        band, column = divmod(i, 6)
        top = figure.add_subplot(2 * bands, columns, 2 * band * columns + column + 1)
        number = (2 * band + 1) * columns + column + 1
        bottom = figure.add_subplot(2 * bands, columns, number, sharex=top)
        options = {"color": style_of(result).colour, "lw": 0.8, "alpha": 0.7}
        for axes, values, quantity in (
            (top, smoothed(result.curves.values, window), "return"),
            (bottom, result.values, "value estimate"),
        ):
            format_axes(axes)
            scale = scale_steps(axes, float(result.last_step or 0), result.step_unit)
            for row in values:
                x = np.array(result.curves.steps) / scale
                axes.plot(x, row, **options, **marker_options(row))
            if column == 0:
                axes.set_ylabel(quantity, fontsize=9)
        top.set_xlabel("")
        top.set_title(result.label, fontsize=9)
    return figure

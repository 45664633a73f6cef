"""Learning curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from td7.report.result import Result, known, places, seed_means, suites
from td7.report.style import (
    Style,
    columns_of,
    dot_look,
    legend_below,
    line_look,
    look_of,
    new_figure,
    panels,
    plain_axes,
    set_title,
    step_unit,
)
from td7.statistics import Aligned, Sample, normalised, smoothed

WINDOW = 10  # evaluations, the paper's
SEEDS_SHOWN = 5  # a line each, the paper's


def window_of(results: Sequence[Result]) -> int:
    """How many evaluations a study's curves are smoothed over: WINDOW, and a fifth of a curve at
    most: of the shortest, once it is finished.
    """
    lengths = [r.steps // int(r.config["evaluate_every"]) + 1 for r in results if r.curves]
    return max(1, min(WINDOW, min(lengths, default=0) // 5))


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
    axes.plot(x, middle, label=label, **line_look(look), **dot_look(middle))
    if np.isfinite(half).all():
        edge = 4 if middle.size == 1 else 0  # points: what has no width is its edge
        axes.fill_between(x, middle - half, middle + half, color=look.colour, alpha=0.15, lw=edge)


def curves(study: str, results: Sequence[Result], window: int, *, by_time: bool = False) -> Any:
    """One panel a task: smoothed means and intervals over evaluations, or over minutes."""
    shown = places(results)
    figure, axes = panels(len(shown))
    for i, (one, place) in enumerate(zip(axes, shown, strict=True)):
        own = [r for r in results if r.place == place and r.curves]
        highest = max(r.last or 0 for r in own)
        unit = 1.0 if by_time else step_unit(one, highest, own[0].step_unit)
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
        set_title(one, own[0].title)
        one.margins(x=0.01)
        if i % columns_of(len(shown)) == 0 or own[0].quantity != results[0].quantity:
            mean = f"\n(mean of {window} evaluations)" if window > 1 else ""
            one.set_ylabel(f"{own[0].quantity}{mean}", fontsize=8)
    legend_below(figure, axes)
    return figure


def learning_curve(evaluations: pd.DataFrame, title: str, counted: str) -> Any:
    """Of a single run: every seed's evaluations, their mean and the paper's interval."""
    by_seed = seed_means(evaluations)
    figure = new_figure(7, 4.2)
    axes = figure.add_subplot()
    plain_axes(axes)
    for seed, curve in by_seed.items():
        known_ = curve.dropna()
        look = {"linewidth": 1, "alpha": 0.55, **dot_look(known_)}
        axes.plot(known_.index, known_, label=f"seed {seed}", **look)
    common = by_seed.dropna()
    if by_seed.shape[1] > 1 and len(common):
        mean, wide = common.mean(axis=1), _spread(common.to_numpy().T)
        axes.fill_between(common.index, mean - wide, mean + wide, color="black", alpha=0.12, lw=0)
        look = {"color": "black", "linewidth": 2, **dot_look(mean)}
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
    figure, axes = panels(len(places(shown)))
    for one, place in zip(axes, places(shown), strict=True):
        own = [r for r in shown if r.place == place]
        unit = step_unit(one, max(r.last or 0 for r in own), own[0].step_unit)
        for result in own:
            if result.curves is None:
                continue
            look = {**line_look(look_of(result)), "linewidth": 0.8}
            x = np.array(result.curves.steps) / unit
            for i, values in enumerate(result.curves.values[:SEEDS_SHOWN]):
                label = result.label if i == 0 else None
                one.plot(x, values, label=label, **look, **dot_look(values))
        set_title(one, own[0].title)
    for one in axes[:: columns_of(len(axes))]:
        one.set_ylabel(f"{shown[0].quantity} of single seeds", fontsize=8)
    legend_below(figure, axes)
    return figure


def normalised_curves(study: str, results: Sequence[Result], window: int) -> Any | None:
    """One panel a suite: means over tasks, in shares of what the first row comes to in the end."""
    first = next(iter(known(study).rows), "")
    found = {suite: _on_shared_tasks(own, first) for suite, own in suites(results).items()}
    shown = {suite: by_row for suite, by_row in found.items() if by_row}
    if not shown:
        return None
    looks = {result.label: look_of(result) for result in results}
    figure, axes = panels(len(shown))
    for one, (suite, by_row) in zip(axes, shown.items(), strict=True):
        ends = [curve.values[:, -1].mean() for curve in by_row[first]]
        unit = step_unit(one, max(curve.steps[-1] for curve in by_row[first]), "time steps")
        for label, own in by_row.items():
            steps, shares = _shares(own, ends, window)
            if not shares:
                continue
            mean = [share.mean for share in shares]
            wide = [share.interval for share in shares]
            _band(one, np.array(steps) / unit, mean, wide, looks[label], label)
        set_title(one, f"mean of {len(ends)} task{'s' * (len(ends) > 1)}, {suite}")
    axes[0].set_ylabel(f"share of {first}'s last return", fontsize=8)
    legend_below(figure, axes)
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
    figure = new_figure(2.4 * columns + 0.5, 3.9 * bands + 0.3)
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
            plain_axes(axes)
            unit = step_unit(axes, float(result.last or 0), result.step_unit)
            for row in values:
                axes.plot(np.array(result.curves.steps) / unit, row, **look, **dot_look(row))
            if column == 0:
                axes.set_ylabel(word, fontsize=9)
        top.set_xlabel("")
        top.set_title(result.label, fontsize=9)
    return figure

"""Run folders → tables and figures. Reads only; never trains."""

from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table


def mean_and_interval(values: pd.Series) -> tuple[float, float]:
    """The mean and the paper's interval, 1.96 / sqrt(n) * sd with Bessel's correction."""
    n = len(values)
    return float(values.mean()), float(1.96 / np.sqrt(n) * values.std()) if n > 1 else np.nan


def per_seed(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The mean return of every evaluation: a row a step, a column a seed."""
    return evaluations.groupby(["step", "seed"])["return"].mean().unstack("seed")


def summary(evaluations: pd.DataFrame) -> Table:
    """A row a seed (first, best and last evaluation), then the mean over seeds."""
    curves = per_seed(evaluations)
    table = Table(title="mean return of an evaluation", title_justify="left")
    table.add_column("seed", justify="right")
    for column in ("first", "best", "at step", "last", "at step"):
        table.add_column(column, justify="right")
    for seed, curve in curves.items():
        known = curve.dropna()
        table.add_row(
            str(seed),
            f"{known.iloc[0]:,.1f}",
            f"{known.max():,.1f}",
            f"{known.idxmax():,}",
            f"{known.iloc[-1]:,.1f}",
            f"{known.index[-1]:,}",
        )
    if curves.shape[1] > 1:
        common = curves.dropna()
        if len(common):
            mean, interval = mean_and_interval(common.iloc[-1])
            last = f"{mean:,.1f} ± {interval:,.1f}"
            table.add_section()
            table.add_row("all", "", "", "", last, f"{common.index[-1]:,}")
    return table


def returns(episodes: pd.DataFrame) -> Table:
    """A row a seed: what its episodes returned."""
    table = Table(title="returns", title_justify="left")
    for column in ("seed", "episodes", "mean", "sd", "min", "max", "mean length"):
        table.add_column(column, justify="right")
    for seed, played in episodes.groupby("seed"):
        values = played["return"]
        spread = f"{values.std():,.1f}" if len(values) > 1 else "–"
        table.add_row(
            str(seed),
            str(len(values)),
            f"{values.mean():,.1f}",
            spread,
            f"{values.min():,.1f}",
            f"{values.max():,.1f}",
            f"{played['length'].mean():,.0f}",
        )
    return table


def learning_curve(evaluations: pd.DataFrame, title: str, file: Path) -> None:
    """A picture: every seed's evaluations, their mean and the paper's interval."""
    # The object interface of matplotlib: no global state, no screen needed.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = per_seed(evaluations)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for seed, curve in curves.items():
        known = curve.dropna()
        axes.plot(known.index, known, linewidth=1, alpha=0.55, label=f"seed {seed}")
    common = curves.dropna()
    if curves.shape[1] > 1 and len(common):
        mean = common.mean(axis=1)
        interval = 1.96 / np.sqrt(curves.shape[1]) * common.std(axis=1)
        axes.fill_between(
            common.index, mean - interval, mean + interval, color="black", alpha=0.12, linewidth=0
        )
        axes.plot(common.index, mean, color="black", linewidth=2, label="mean ± 1.96 sd/√n")
    axes.set(title=title, xlabel="environment steps", ylabel="evaluation return")
    axes.grid(alpha=0.25)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", ncols=2)
    figure.savefig(file, dpi=150)

"""Results → figures, by matplotlib's object interface: no global state, no screen needed.

A label has the same colour and line style in every figure; styles alone tell lines apart in grey.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from td7.report.bars import MOST_BARS, drops_figure, loss_bars, speed_bars
from td7.report.curves import (
    curves,
    extrapolation,
    normalised_curves,
    seed_curves,
    time_curves,
    window_of,
)
from td7.report.result import Result, known
from td7.report.style import FORMATS
from td7.report.tables.table import Table

MOST_LINES = 7  # a panel; with more rows, a figure a group


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


Draw = Callable[[str, Sequence[Result], int], Any | None]  # the last: of smoothing
# What a study has besides curves, and the bars of its tables.
DRAWN: Mapping[str, Mapping[str, Draw]] = {
    "online": {"time-curves": time_curves},
    "extrapolation": {"values": extrapolation},
    "checkpoints": {"seeds": seed_curves},
    "ablation-main": {"normalised": normalised_curves},
    "runtime": {"time-curves": time_curves},
}

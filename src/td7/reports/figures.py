"""A report's figures, by matplotlib's object interface: no global state, no screen needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from td7.files import temporary_file
from td7.reports.bars import MOST_BARS, drops_figure, loss_bars, speed_bars
from td7.reports.curves import (
    curves,
    extrapolation,
    normalised_curves,
    seed_curves,
    time_curves,
    window_of,
)
from td7.reports.result import Result, study_or_empty
from td7.reports.style import FORMATS, MOST_LINES
from td7.reports.tables.table import Table

Draw = Callable[[Sequence[Result], int], Any | None]  # the results of a study, the window
# The figures of a study besides its learning curves and those of its tables.
STUDY_FIGURES: Mapping[str, Mapping[str, Draw]] = {
    "online": {"time-curves": time_curves},
    "extrapolation": {"values": extrapolation},
    "checkpoints": {"seeds": seed_curves},
    "ablation-main": {"normalised": normalised_curves},
    "runtime": {"time-curves": time_curves},
}


def figures(
    studies: Mapping[str, Sequence[Result]], tables: Sequence[Table]
) -> Iterator[tuple[str, Any]]:
    """(name, figure), one after the other."""
    import matplotlib as mpl

    # Otherwise matplotlib takes dollar signs in labels for formulas, and raises if they are wrong.
    with mpl.rc_context({"text.parse_math": False}):
        yield from _figures(studies, tables)


def _figures(
    studies: Mapping[str, Sequence[Result]], tables: Sequence[Table]
) -> Iterator[tuple[str, Any]]:
    for name, results in studies.items():
        shown = [result for result in results if result.curves]
        if not shown:
            continue
        window = window_of(results)
        labels = list(dict.fromkeys(result.label for result in shown))
        for suffix, own in split_rows(name, labels).items():
            yield f"{name}-curves{suffix}", curves([r for r in shown if r.label in own], window)
        for kind, draw in STUDY_FIGURES.get(name, {}).items():
            figure = draw(shown, window)
            if figure is not None:
                yield f"{name}-{kind}", figure
    for table in tables:
        draw_bars = {"losses": loss_bars, "speed": speed_bars}.get(table.kind)
        if draw_bars and len(table.records) <= MOST_BARS:
            yield table.name, draw_bars(table)
        if table.kind == "drops":
            yield table.name, drops_figure(studies[table.study])


def split_rows(study: str, labels: Sequence[str]) -> dict[str, list[str]]:
    """The labels by figure, which is named by the suffix of its file.

    All are in one figure, "", unless there are too many: then each group has one, -GROUP, with the
    study's reference in it.
    """
    rows = study_or_empty(study).rows
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
    """Write SVG, PNG and PDF, the same bytes for the same figure."""
    import matplotlib as mpl

    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with mpl.rc_context({"svg.hashsalt": "td7", "svg.fonttype": "none", "pdf.fonttype": 42}):
        for path in paths:
            no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
            kind = path.suffix[1:]
            with temporary_file(path) as temporary:
                figure.savefig(temporary, format=kind, dpi=160, metadata=no_date[kind])
    return paths

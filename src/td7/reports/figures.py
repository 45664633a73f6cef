"""A report's figures, by matplotlib's object interface: no global state, no screen needed."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from td7.files import temporary_file
from td7.reports.bars import MOST_BARS, drops_figure, loss_bars, results_with_drops, speed_bars
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
    "extrapolation": {"values": extrapolation},  # a column per row: no limit
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
        draws: dict[str, Draw] = {"curves": curves, **STUDY_FIGURES.get(name, {})}
        for kind, draw in draws.items():
            parts = {"": shown} if draw is extrapolation else _parts(name, shown)
            for suffix, own in parts.items():
                figure = draw(own, window)
                if figure is not None:
                    yield f"{name}-{kind}{suffix}", figure
    for table in tables:
        draw_bars = {"losses": loss_bars, "speed": speed_bars}.get(table.kind)
        if draw_bars and len(table.records) <= MOST_BARS:
            yield table.name, draw_bars(table)
        if table.kind == "drops":
            dropped = results_with_drops(studies[table.study])
            for suffix, own in _parts(table.study, dropped).items():
                yield f"{table.name}{suffix}", drops_figure(own)


def _parts(study: str, results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results by figure, as `split_rows` has their labels."""
    labels = list(dict.fromkeys(result.label for result in results))
    return {
        suffix: [result for result in results if result.label in own]
        for suffix, own in split_rows(study, labels).items()
    }


def split_rows(study: str, labels: Sequence[str]) -> dict[str, list[str]]:
    """The labels by figure, which is named by the suffix of its file.

    All are in one figure, "", unless there are too many: then each group has one, -GROUP, or
    several, -GROUP-1 and so on, with the study's reference in each.
    """
    rows = study_or_empty(study).rows
    if len(labels) <= MOST_LINES:
        return {"": list(labels)}
    first = next(iter(rows), "")
    reference = [first] if first in labels and rows[first].group == "Default" else []
    groups: dict[str, list[str]] = {}
    for label in labels:
        group = rows[label].group if label in rows else "others"
        groups.setdefault(group.lower().replace(" ", "-"), []).append(label)
    figures: dict[str, list[str]] = {}
    for group, members in groups.items():
        others = [label for label in members if label not in reference]
        size = MOST_LINES - len(reference)
        parts = [others[i : i + size] for i in range(0, len(others), size)] or [[]]
        for number, own in enumerate(parts, 1):
            suffix = f"-{group}-{number}" if len(parts) > 1 else f"-{group}"
            figures[suffix] = [*reference, *own]
    return figures


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write SVG, PNG and PDF, the same bytes for the same figure."""
    import matplotlib as mpl

    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with mpl.rc_context({"svg.hashsalt": "td7", "svg.fonttype": "none", "pdf.fonttype": 42}):
        for path in paths:
            with temporary_file(path) as temporary:
                if path.suffix == ".png":
                    _save_png(figure, temporary)
                else:
                    no_date = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None}
                    figure.savefig(temporary, format=path.suffix[1:], metadata=no_date)
    return paths


def _save_png(figure: Any, path: Path) -> None:
    """With a palette of 256 colours, which makes the file half as large."""
    from PIL import Image

    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=160)
    image = Image.open(picture).convert("RGB")
    few = image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(path, format="png", optimize=True)

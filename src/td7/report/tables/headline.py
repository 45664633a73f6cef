"""The paper's numbers and ours, side by side."""

from collections.abc import Sequence

from td7.report import paper
from td7.report.result import Result, places
from td7.report.tables.table import (
    Cell,
    Table,
    made_table,
    number_or_none,
    sample_text,
    samples,
    steps_shown,
    table_line,
)
from td7.statistics import Sample
from td7.studies.rows import Study

# -- scores --------------------------------------------------------------------------------------


def headline(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """The paper's numbers and ours, at the step where the most of them can be compared."""
    del notes
    both: dict[int, dict[tuple[str, str], tuple[Sample, Sample]]] = {}
    for step in steps_shown(study, results):
        here, there = samples(results, step), paper.printed(study.table, step)
        both[step] = {key: (there[key], s) for key, s in here.items() if key in there}
    step = max(both, key=lambda step: (len(both[step]), step), default=0)
    found = both.get(step, {})
    if not found:
        return None
    columns = [p for p in places(results) if any(p == place for _, place in found)]
    spec = ".1f" if study.datasets else ".0f"
    lines = []
    for label in dict.fromkeys(label for label, _ in found):
        cells = []
        for place in columns:
            pair = found.get((label, place))
            said = [sample_text(sample, spec) for sample in pair or (None,)]
            cells.append(Cell(f"{said[1]} ({said[0]})" if pair else said[0]))
        lines.append(table_line((label,), cells))
    records = [
        {
            "study": study.name,
            "row": label,
            "place": place,
            "step": step,
            "seeds": here.n,
            "mean": here.mean,
            "interval": number_or_none(here.interval),
            "paper_mean": there.mean,
            "paper_interval": there.interval,
        }
        for (label, place), (there, here) in found.items()
    ]
    counts = sorted({here.n for _, here in found.values()})
    seeds = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    caption = (
        "Mean ± 1.96 / sqrt(n) * sd over seeds, the paper's interval; in brackets the paper's."
    )
    each = f"{seeds} seed{'s' * (counts[-1] > 1)}"
    header = (f"{step:,} {study.step_unit}, {each} (paper)", *columns)
    title = f"Beside the paper's: {study.title}"
    return made_table(study, "headline", title, caption, header, lines, records)

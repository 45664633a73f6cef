"""Which tables a study has."""

from collections.abc import Callable, Mapping, Sequence

from td7.reports.result import Result, study_or_empty
from td7.reports.tables.aggregates import aggregates
from td7.reports.tables.drops import drops_table
from td7.reports.tables.estimates import estimates
from td7.reports.tables.headline import headline
from td7.reports.tables.losses import losses
from td7.reports.tables.reaching import reaching
from td7.reports.tables.scores import scores
from td7.reports.tables.speed import speed
from td7.reports.tables.table import Table
from td7.studies.rows import Study

View = Callable[[Study, Sequence[Result]], Table]
DEFAULT_VIEWS: tuple[View, ...] = (scores, speed)
VIEWS: Mapping[str, tuple[View, ...]] = {
    "online": (headline, scores, aggregates, reaching, drops_table, speed),
    "offline": (headline, scores, aggregates, speed),
    "design": (scores, losses, aggregates, speed),
    "extrapolation": (scores, estimates, speed),
    "checkpoints": (scores, losses, aggregates, drops_table, speed),
    "ablation-main": (scores, losses, aggregates, speed),
    "ablation": (scores, losses, aggregates, speed),
    "runtime": (speed, scores),
}


def make_tables(studies: Mapping[str, Sequence[Result]]) -> tuple[list[Table], list[str]]:
    """Every table that has records, and notes on what the tables leave out."""
    tables = []
    for name, results in studies.items():
        evaluated = [result for result in results if result.curves]
        for view in VIEWS.get(name, DEFAULT_VIEWS):
            tables.append(view(study_or_empty(name), evaluated))
    notes = [note for table in tables for note in table.notes]
    return [table for table in tables if table.records], notes

"""Which tables a study has."""

from collections.abc import Callable, Mapping, Sequence

from td7.report.result import Result, known
from td7.report.tables.aggregates import aggregates
from td7.report.tables.drops import falls
from td7.report.tables.estimates import estimates
from td7.report.tables.headline import headline
from td7.report.tables.losses import losses
from td7.report.tables.reaching import reaching
from td7.report.tables.scores import scores
from td7.report.tables.speed import speed
from td7.report.tables.table import Table
from td7.studies.rows import Study


def tables(studies: Mapping[str, Sequence[Result]]) -> tuple[list[Table], list[str]]:
    """Every table that the results allow, and what could not be told."""
    found: list[Table] = []
    notes: list[str] = []
    for name, results in studies.items():
        known_results = [result for result in results if result.curves]
        for view in VIEWS.get(name, DEFAULT_VIEWS):
            table = view(known(name), known_results, notes)
            if table is not None and table.records:
                found.append(table)
    return found, notes


View = Callable[[Study, Sequence[Result], list[str]], Table | None]
DEFAULT_VIEWS: tuple[View, ...] = (scores, speed)
VIEWS: Mapping[str, tuple[View, ...]] = {
    "online": (headline, scores, aggregates, reaching, falls, speed),
    "offline": (headline, scores, aggregates, speed),
    "design": (scores, losses, aggregates, speed),
    "extrapolation": (scores, estimates, speed),
    "checkpoints": (scores, losses, aggregates, falls, speed),
    "ablation-main": (scores, losses, aggregates, speed),
    "ablation": (scores, losses, aggregates, speed),
    "runtime": (speed, scores),
}

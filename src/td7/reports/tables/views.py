"""Which tables a study has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from td7.reports.result import Result, study_or_empty
from td7.reports.tables.aggregates import aggregates
from td7.reports.tables.drops import drops_table
from td7.reports.tables.estimates import estimates
from td7.reports.tables.headline import headline
from td7.reports.tables.losses import losses
from td7.reports.tables.reaching import reaching
from td7.reports.tables.scores import scores
from td7.reports.tables.speed import speed
from td7.reports.tables.table import Table, full_title
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


# Of runs that name no row of a study, where the paper has nothing to compare them with.
NEUTRAL_TITLES = {"online": "Online training", "offline": "Offline training"}


def make_tables(studies: Mapping[str, Sequence[Result]]) -> tuple[list[Table], list[str]]:
    """Every table that has records, and notes on what the tables leave out."""
    tables, notes = [], []
    for name, results in studies.items():
        evaluated = [result for result in results if result.curves]
        made = [view(study_or_empty(name), evaluated) for view in VIEWS.get(name, DEFAULT_VIEWS)]
        notes += [note for table in made for note in table.notes]
        shown = [table for table in made if table.records]
        study = titled(name, results, shown)
        tables += [replace(table, title=full_title(table.heading, study)) for table in shown]
    return tables, notes


def titled(name: str, results: Sequence[Result], tables: Sequence[Table]) -> Study:
    """The study, with a neutral title unless one of its tables uses a number of the paper."""
    study = study_or_empty(name)
    if not study.table or any(table.uses_paper for table in tables if table.study == name):
        return study
    lists_rows = any(result.record.variant for result in results)
    title = study.title if lists_rows else NEUTRAL_TITLES.get(name, study.title)
    return replace(study, title=title, where="")

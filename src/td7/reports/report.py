"""A report: results, their tables, and notes on what is missing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from td7.reports.collect import collect
from td7.reports.result import Result, machine_name, plain
from td7.reports.tables.table import Table
from td7.reports.tables.views import make_tables


@dataclass(frozen=True)
class Report:
    results: tuple[Result, ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]  # a line per thing that is missing, incomplete, failed or left out

    @property
    def studies(self) -> dict[str, list[Result]]:
        return by_study(self.results)

    @property
    def uses_paper(self) -> bool:
        """Whether a table shows a number of the paper."""
        return any(table.uses_paper for table in self.tables)

    @property
    def summary(self) -> str:
        """The number of runs and seeds, and their time, in one line."""
        runs = self.by_folder.values()
        finished = sum(all(result.finished for result in own) for own in runs)
        seconds = sum(max(result.run_seconds or 0.0 for result in own) for own in runs)
        time = f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{seconds / 60:.1f} minutes"
        seeds = _count(sum(len(result.seeds) for result in self.results), "seed")
        return f"{self.runs} ({finished} finished) with {seeds} in all, {time} of wall-clock time."

    @property
    def by_folder(self) -> dict[Path, list[Result]]:
        """The configurations of every run; of runs that are pooled, the first."""
        folders: dict[Path, list[Result]] = {}
        for result in self.results:
            folders.setdefault(result.folder, []).append(result)
        return folders

    @property
    def runs(self) -> str:
        """The number of runs and, where hyperparameters vary, of configurations."""
        runs, configurations = len(self.by_folder), len(self.results)
        more = f" of {configurations} configurations" if configurations > runs else ""
        return f"{_count(runs, 'run')}{more}"

    @property
    def machines(self) -> list[str]:
        """A line per machine and set of versions."""
        runs = [first for first, *_ in self.by_folder.values()]
        kinds = Counter((machine_name(run.record), _versions(run)) for run in runs)
        return [
            plain(f"{_count(count, 'run')} on {machine}: {versions}")
            for (machine, versions), count in kinds.items()
        ]


def read_report(folders: Sequence[Path]) -> Report:
    """The report of run folders, study folders, and folders of either."""
    results, notes = collect(folders)
    tables, table_notes = make_tables(by_study(results))
    lines = dict.fromkeys(map(plain, [*notes, *table_notes]))
    return Report(tuple(results), tuple(tables), tuple(lines))


def by_study(results: Sequence[Result]) -> dict[str, list[Result]]:
    """In the order of the results, which is that of `td7 list studies`."""
    names = dict.fromkeys(result.study for result in results)
    return {name: [r for r in results if r.study == name] for name in names}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _versions(result: Result) -> str:
    texts = [f"{name} {number}" for name, number in sorted(result.record.versions.items())]
    return ", ".join(texts) or "unknown versions"

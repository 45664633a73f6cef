"""What a study is: rows, each of which changes one thing of its reference."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from td7.errors import InputError, matched
from td7.types import PAPER_TASKS


@dataclass(frozen=True)
class Row:
    """One variant: an algorithm, and the one thing that it changes."""

    label: str  # as the paper's table prints it
    algorithm: str
    settings: Mapping[str, Any]  # everything that differs from the algorithm's defaults
    changes: Mapping[str, Any]  # the part of it that distinguishes the row in its study
    summary: str
    group: str = ""  # heading in the paper's table


@dataclass(frozen=True)
class Study:
    """A table of the paper."""

    name: str
    title: str
    where: str  # section or appendix of the paper
    steps: int  # as in the paper's table; offline, updates
    table: str  # name in td7.reports.paper; "" where the paper has only curves
    rows: Mapping[str, Row]  # label: row; percent losses are relative to the first
    tasks: tuple[str, ...] = PAPER_TASKS
    datasets: tuple[str, ...] = ()  # ids of D4RL; not empty: the study is offline
    times_machines: bool = False  # results depend on machine and number of seeds: never pooled

    @property
    def step_unit(self) -> str:
        """The unit of `steps`."""
        return "updates" if self.datasets else "steps"

    def label(self, name: str) -> str:
        """Return the label of the row by this name, whatever its case."""
        return matched(f"row of {self.name}", name, self.rows, shown=len(self.rows))

    def names(self) -> list[str]:
        """Return the names of the variants, STUDY/LABEL."""
        return [f"{self.name}/{label}" for label in self.rows]


def rows(
    groups: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any], str]]],
    common: Mapping[str, Mapping[str, Any]],
) -> dict[str, Row]:
    """Return rows from {group: {label: (algorithm, changes, summary)}}.

    `common` has settings that all rows of an algorithm share.
    """
    made: dict[str, Row] = {}
    for group, members in groups.items():
        for label, (algorithm, changes, text) in members.items():
            if label in made:
                raise InputError(
                    f"row {label!r} is in two groups: {made[label].group!r}, {group!r}"
                )
            settings = {**common.get(algorithm, {}), **changes}
            made[label] = Row(label, algorithm, settings, changes, text, group)
    return made

"""What a study is: rows, each of which changes one thing of its reference."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from td7.types import PAPER_TASKS


@dataclass(frozen=True)
class Row:
    """One variant: an algorithm and the one thing about it that is changed."""

    label: str  # as the paper's table prints it
    algorithm: str
    settings: Mapping[str, Any]  # all that differs from the algorithm's defaults
    changes: Mapping[str, Any]  # the part of it that the row is about
    summary: str
    group: str = ""  # the part of the paper's table


@dataclass(frozen=True)
class Study:
    """A table of the paper."""

    name: str
    title: str
    where: str  # in the paper
    steps: int  # of its table; where its agents learn from data, updates
    table: str  # of returns or scores, in td7.paper; "" where the paper has only curves
    rows: Mapping[str, Row]  # label: row; the first is what percent losses are against
    tasks: tuple[str, ...] = PAPER_TASKS
    datasets: tuple[str, ...] = ()  # of D4RL, where its agents learn from data
    times_machines: bool = False  # a result is a machine's with so many seeds, never pooled

    @property
    def step_unit(self) -> str:
        """What a step is."""
        return "updates" if self.datasets else "steps"

    def names(self) -> list[str]:
        """Of its variants: STUDY/LABEL."""
        return [f"{self.name}/{label}" for label in self.rows]


def rows(
    groups: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any], str]]],
    common: Mapping[str, Mapping[str, Any]],
) -> dict[str, Row]:
    """Rows from group: label: (algorithm, changes, summary), and what all of an algorithm have."""
    return {
        label: Row(label, algorithm, {**common.get(algorithm, {}), **changes}, changes, text, group)
        for group, members in groups.items()
        for label, (algorithm, changes, text) in members.items()
    }

"""The configurations of a run whose hyperparameters vary: what differs, and how well each does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from td7.reports.labels import value_texts
from td7.reports.result import member_means
from td7.runs.members import Members
from td7.runs.record import RunRecord
from td7.statistics import Sample


@dataclass(frozen=True, eq=False)
class Configuration:
    """The members of a run that differ in their seeds alone."""

    members: Members
    values: Mapping[str, float]  # of all hyperparameters that vary
    texts: Mapping[str, str]  # of those that differ between configurations
    means: pd.DataFrame  # of its evaluations: a row per step that all members have, a column each

    @property
    def label(self) -> str:
        """What tells it apart: `learning_rate 0.001, discount 0.9`."""
        return ", ".join(f"{name} {text}" for name, text in self.texts.items())

    @property
    def last(self) -> Sample:
        """The last evaluation of its seeds."""
        return Sample.of(self.means.iloc[-1])


def configurations(record: RunRecord, evaluations: pd.DataFrame) -> list[Configuration]:
    """The configurations of a run that have an evaluation, in order; [] if nothing varies."""
    members, means = record.members, member_means(evaluations)
    if not members.numbers:
        return []
    names = {name: values for name, values in members.varied.items() if len(set(values)) > 1}
    texts = {name: value_texts(values) for name, values in names.items()}
    made = []
    for positions in members.configurations():
        own = members.take(positions)
        first = positions[0]
        made.append(
            Configuration(
                own,
                members.values(first),
                {name: column[first] for name, column in texts.items()},
                means.reindex(columns=list(own.ids)).dropna(),
            )
        )
    return [one for one in made if len(one.means)]


def best_first(all_of_them: Sequence[Configuration]) -> list[Configuration]:
    """Sorted by their last evaluation; the order decides between equal ones."""
    return sorted(all_of_them, key=lambda one: -one.last.mean)

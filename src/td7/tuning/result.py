"""What a search has found: the best trial, and all trials as a table."""

import os
import shlex
from pathlib import Path

import pandas as pd

from td7.errors import InputError
from td7.options import to_words
from td7.tuning.folder import SearchRecord
from td7.tuning.progress import ranked, score_text, values_text
from td7.tuning.trials import Trial, Trials
from td7.types import AnyPath


class Search:
    """The folder of a search, which is opened for reading, while it runs or later.

    `path` is the folder.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        record = SearchRecord.read(self.path)
        if record is None:
            raise InputError(f"{self.path} holds no search: it has no search.json")
        self.record = record
        self._all = Trials(self.path, record.options, {}).all()

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def best(self) -> Trial:
        """The trial with the highest mean return over its seeds at the last rung."""
        finished = [t for t in ranked(self._all) if t.steps == self.record.rungs[-1]]
        if not finished:
            raise InputError(f"{self.path}: no trial has come to its last step yet")
        return finished[0]

    @property
    def command(self) -> str:
        """The `td7 train` line that trains with the best trial's hyperparameters."""
        chosen = self.record.options.run_options
        settings = {**chosen.set, **self.best.values}
        names = ("algorithm", "env", "env_kwargs", "wrapper", "dataset", "normalise_observations")
        options = {name: getattr(chosen, name) for name in names}
        words = to_words(type(chosen)(**options, set=settings, steps=chosen.steps))
        return shlex.join(["td7", "train", *words])

    @property
    def all(self) -> list[Trial]:
        return list(self._all)

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial: its values, steps, mean return over the seeds, interval and state."""
        rows = [
            {
                "trial": trial.number,
                **{name: trial.values[name] for name in self.record.space if name in trial.values},
                "steps": trial.steps,
                "mean": trial.mean if trial.scores else float("nan"),
                "interval": trial.sample.interval if trial.scores else float("nan"),
                "state": trial.state,
            }
            for trial in self._all
        ]
        columns = ["trial", *self.record.space, "steps", "mean", "interval", "state"]
        return pd.DataFrame(rows, columns=columns).set_index("trial")

    def __repr__(self) -> str:
        done = f"{len(self._all)} of {self.record.options.trials} trials"
        try:
            best = self.best
        except InputError:
            return f"<search in {self.path}: {done}>"
        return (
            f"<search in {self.path}: {done}, best {score_text(best.sample)} with "
            f"{values_text(best)}>"
        )


def write_table(search: Search) -> Path:
    """Write trials.csv."""
    file = search.path / "trials.csv"
    search.trials.to_csv(file)
    return file

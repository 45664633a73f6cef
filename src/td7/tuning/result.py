"""What a search has found: the best trial, and all trials as a table."""

import html
import os
import shlex
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from td7.errors import InputError
from td7.options import to_words
from td7.tuning.figures import Shown, overview
from td7.tuning.folder import SearchRecord
from td7.tuning.progress import ranked, score_text, values_text
from td7.tuning.trials import Trial, Trials
from td7.types import AnyPath

if TYPE_CHECKING:  # it takes a second to load
    from matplotlib.figure import Figure

# The options of a trial that its `td7 train` line has as well.
TRAINED_WITH = (
    *("algorithm", "env", "env_kwargs", "wrapper", "dataset", "normalise_observations"),
    *("steps", "evaluate_every", "evaluation_episodes"),
)


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
        self._journal = Trials(self.path, record.options, {})
        self._all = self._journal.all()

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def best(self) -> Trial:
        """The trial with the highest mean return over its seeds at the last rung."""
        best = self._best_or_none()
        if best is None:
            raise InputError(f"{self.path}: no trial has come to its last step yet")
        return best

    def _best_or_none(self) -> Trial | None:
        finished = [t for t in ranked(self._all) if t.steps == self.record.rungs[-1]]
        return next(iter(finished), None)

    @property
    def command(self) -> str:
        """The `td7 train` line that trains with the best trial's hyperparameters."""
        return self.train_line(self.best.values)

    def train_line(self, values: Mapping[str, Any]) -> str:
        """The `td7 train` line that trains as trials do, with these hyperparameters."""
        chosen = self.record.options.run_options
        options = {name: getattr(chosen, name) for name in TRAINED_WITH}
        words = to_words(type(chosen)(**options, set={**chosen.set, **values}))
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

    @property
    def importances(self) -> dict[str, float]:
        """How much each hyperparameter matters for the score at the first rung, in shares of 1.

        By Optuna's PED-ANOVA; empty while fewer than ten trials have come to that rung.
        """
        return self._journal.importances()

    def shown(self) -> Shown:
        """What figures show."""
        return Shown.of(self.record, self._all, self._best_or_none())

    def plot(self) -> "Figure":
        """The scores of all trials by number and by value of each hyperparameter, in one figure.

        A notebook shows it as the last value of a cell; elsewhere `search.plot().savefig(file)`.
        """
        figure: Figure = overview(self.shown())
        return figure

    def _repr_html_(self) -> str:
        """What a notebook shows: the best trial, its command, and the figure."""
        lines = [f"<b>{html.escape(self.title)}</b>", html.escape(self._result())]
        picture = ""
        if best := self._best_or_none():
            lines.append(f"<code>{html.escape(self.train_line(best.values))}</code>")
        if any(trial.scores for trial in self._all):
            data = b64encode(overview(self.shown())._repr_png_()).decode()
            picture = f'<img width="720" alt="trials" src="data:image/png;base64,{data}">'
        return f'<div style="line-height: 1.6">{"<br>".join(lines)}<br>{picture}</div>'

    @property
    def title(self) -> str:
        """`td7 on Hopper-v5`."""
        options = self.record.options
        return f"{options.algorithm or 'td7'} on {options.dataset or options.env}"

    def _result(self) -> str:
        """How many trials there are, and how good the best is."""
        text = f"{len(self._all)} of {self.record.options.trials} trials"
        if best := self._best_or_none():
            text += f", best {score_text(best.sample)} with {values_text(best)}"
        return text

    def __repr__(self) -> str:
        return f"<search in {self.path}: {self._result()}>"

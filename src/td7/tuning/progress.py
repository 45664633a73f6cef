"""Progress of a search: how far the present wave is, and the best trials so far."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from td7.statistics import Sample
from td7.training.progress import (
    LineProgress,
    LiveProgress,
    NotebookProgress,
    Progress,
    QuietProgress,
    Status,
    bar,
)
from td7.tuning.trials import Trial, Trials
from td7.tuning.waves import WaveJob

SHOWN = 8  # trials


def values_text(trial: Trial) -> str:
    """`learning_rate=0.000312 discount=0.99`."""
    return " ".join(f"{name}={value_text(value)}" for name, value in trial.values.items())


def value_text(value: Any) -> str:
    """Three digits of a number."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Trials with a score, the best first: those of later rungs before others."""
    scored = [trial for trial in trials if trial.scores and trial.mean == trial.mean]
    return sorted(scored, key=lambda trial: (-trial.steps, -trial.mean))


def trial_table(trials: Sequence[Trial], shown: int = SHOWN) -> Table:
    """The best trials."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("trial", "steps", "score"):
        table.add_column(column, justify="right")
    table.add_column("values")
    table.add_column("")
    for trial in ranked(trials)[:shown]:
        state = "" if trial.state == "finished" else trial.state
        score = score_text(trial.sample)
        table.add_row(str(trial.number), f"{trial.steps:,}", score, values_text(trial), state)
    return table


def score_text(sample: Sample) -> str:
    return f"{sample:,.1f}" if sample.n > 1 else f"{sample.mean:,.1f}"


class WaveView:
    """What the progress of a wave says besides its speed."""

    def __init__(self, job: WaveJob, known: Sequence[Trial]) -> None:
        """`known`: all trials so far."""
        self._trials = [trial.number for trial in job.trials]
        self._seeds = len(job.plan.options.seeds)
        self._known = known
        rung = job.waves[job.number].rung
        self.title = (
            f"wave {job.number + 1}, rung {rung + 1} of {len(job.plan.rungs)}: "
            f"{len(job.trials)} trials to {job.steps:,}"
        )

    def best_now(self, status: Status) -> tuple[int, float] | None:
        """The trial of the wave whose seeds were evaluated best, and their mean."""
        means = {}
        for i, trial in enumerate(self._trials):
            own = status.members[i * self._seeds : (i + 1) * self._seeds]
            values = [m.evaluation for m in own if m.evaluation is not None]
            if len(values) == self._seeds:
                means[trial] = sum(values) / len(values)
        if not means:
            return None
        best = max(means, key=lambda trial: means[trial])
        return best, means[best]

    def line(self, status: Status) -> str:
        best = self.best_now(status)
        now = f"; best now: trial {best[0]}, {best[1]:,.1f}" if best else ""
        return f"{self.title}{now}"

    def drawing(self, status: Status, speed: Sequence[str]) -> Group:
        return Group(bar(status, speed), self.line(status), trial_table(self._known))


class LiveWave(LiveProgress):
    def __init__(self, console: Console, view: WaveView) -> None:
        super().__init__(console)
        self._view = view

    def _drawing(self, status: Status, speed: Sequence[str]) -> Group:
        return self._view.drawing(status, speed)


class NotebookWave(NotebookProgress):
    def __init__(self, view: WaveView) -> None:
        super().__init__()
        self._view = view

    def _drawing(self, status: Status, speed: Sequence[str]) -> Group:
        return self._view.drawing(status, speed)


class WaveLines(LineProgress):
    def __init__(self, view: WaveView) -> None:
        super().__init__(sys.stderr)
        self._view = view

    def _details(self, status: Status) -> str:
        return self._view.line(status)


def progress_maker(trials: Trials, *, quiet: bool) -> Callable[[WaveJob], Progress]:
    """What makes the progress of a wave, as suits a terminal, a notebook or a log."""
    if quiet:
        return lambda _: QuietProgress()
    console = Console(stderr=True)

    def make(job: WaveJob) -> Progress:
        view = WaveView(job, trials.all())
        if console.is_jupyter:
            return NotebookWave(view)
        return LiveWave(console, view) if console.is_terminal else WaveLines(view)

    return make

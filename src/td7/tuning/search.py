"""A search from start to end: trials are asked for, trained in waves, scored, and ended or kept.

The trials of a wave are members of one run, a seed each. After a rung, the survivors of several
waves are stacked into the next one. All that decides what comes next is in the folder, so that a
search that was stopped continues where it was.
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from td7.runs.tables import read_table
from td7.tuning.folder import SearchRecord, Wave, wave_folder
from td7.tuning.plan import Plan
from td7.tuning.trials import Trial, Trials
from td7.tuning.waves import WaveJob


class Backend(Protocol):
    """Where waves train: on this machine, one after the other, or on a cluster."""

    @property
    def has_room(self) -> bool:
        """Whether another wave can be submitted."""
        ...

    def submit(self, job: WaveJob) -> None: ...

    def wait(self) -> int:
        """Wait for one of the submitted waves to end, and return its number."""
        ...

    def close(self) -> None: ...


class SearchRun:
    """A search that is being carried out."""

    def __init__(self, plan: Plan, record: SearchRecord, trials: Trials, folder: Path) -> None:
        self.plan = plan
        self.record = record
        self.trials = trials
        self.folder = folder
        self._training: set[int] = set()  # numbers of waves

    def run(self, backend: Backend, judged: Callable[[Wave], None]) -> None:
        """Train all waves; `judged` is called after each."""
        if self.plan.usual:
            self.trials.suggest(self.plan.usual)
        while True:
            while backend.has_room and (number := self._next_wave()) is not None:
                self._training.add(number)
                backend.submit(self._job(number))
            if not self._training:
                return
            number = backend.wait()
            self._training.remove(number)
            self._judge(number)
            self._tidy()
            judged(self.record.waves[number])

    def _job(self, number: int) -> WaveJob:
        waves = self.record.waves
        trials = [self.trials[n] for n in waves[number].trials]
        return WaveJob(self.plan, self.folder, number, waves[: number + 1], trials)

    # -- which trials train next ---------------------------------------------------------------

    def _next_wave(self) -> int | None:
        """The number of the next wave, or of one that was interrupted; None if there is none."""
        waves = self.record.waves
        for number, wave in enumerate(waves):
            if not wave.is_judged and number not in self._training:
                return number
        chosen = self._next_trials()
        if chosen is None:
            return None
        rung, trials = chosen
        waves.append(Wave(rung, [trial.number for trial in trials]))
        self.record.write(self.folder)
        return len(waves) - 1

    def _next_trials(self) -> tuple[int, list[Trial]] | None:
        """A rung, and trials that train up to it: as many as fill a wave, or all there are.

        Survivors wait until they fill a wave, while others train or can be asked for.
        """
        size, total = self.plan.size, self.plan.options.trials
        busy = {trial for number in self._training for trial in self.record.waves[number].trials}
        while True:
            groups: dict[tuple[int, tuple[Any, ...]], list[Trial]] = defaultdict(list)
            for trial in self.trials.running():
                if trial.number not in busy:
                    groups[len(trial.scores), self._structure(trial)].append(trial)
            full = [key for key, waiting in groups.items() if len(waiting) >= size]
            if full:
                key = max(full, key=lambda key: key[0])
                return key[0], groups[key][:size]
            new = sum(len(waiting) for (rung, _), waiting in groups.items() if rung == 0)
            missing = min(size - new, total - len(self.trials.all()))
            if missing > 0:
                for _ in range(missing):
                    self.trials.ask()
            elif groups and not self._training:
                lowest = min(rung for rung, _ in groups)
                of_rung = {key: waiting for key, waiting in groups.items() if key[0] == lowest}
                key = max(of_rung, key=lambda key: len(of_rung[key]))
                return lowest, of_rung[key]
            else:
                return None

    def _structure(self, trial: Trial) -> tuple[Any, ...]:
        """The values that all trials of a run must share."""
        space = self.plan.space
        return tuple(trial.values[name] for name in space if not space[name].per_member)

    # -- judging -------------------------------------------------------------------------------

    def _judge(self, number: int) -> None:
        """Score the trials of a wave, and end those that do not continue."""
        wave = self.record.waves[number]
        steps = self.plan.rungs[wave.rung]
        for trial, returns in self._returns(number).items():
            self.trials.score(trial, steps, returns)
        for trial in wave.trials:
            self.trials.judge(trial, is_last=wave.rung == len(self.plan.rungs) - 1)
        wave.is_judged = True
        self.record.write(self.folder)

    def _returns(self, number: int) -> dict[int, list[float]]:
        """The mean return of each seed of each trial, in the last evaluation of the wave.

        NaN for a seed without it, which has diverged.
        """
        wave, options = self.record.waves[number], self.plan.options
        steps = self.plan.rungs[wave.rung]
        table = read_table(wave_folder(self.folder, number) / "evaluations.csv")
        last = table[table["step"] == steps // options.evaluate_every * options.evaluate_every]
        column = "score" if "score" in table else "return"
        means = last.groupby("member")[column].mean().to_dict()
        count = len(options.seeds)
        return {
            trial: [float(means.get(i * count + s, math.nan)) for s in range(count)]
            for i, trial in enumerate(wave.trials)
        }

    def _tidy(self) -> None:
        """Delete the snapshots of waves that no trial continues from, but for the last rung's."""
        needed = {trial.number for trial in self.trials.running()}
        last = len(self.plan.rungs) - 1
        for number in range(len(self.record.waves) - 1, -1, -1):
            wave = self.record.waves[number]
            if wave.rung < last and wave.is_judged and needed.isdisjoint(wave.trials):
                with suppress(OSError):
                    shutil.rmtree(wave_folder(self.folder, number) / "snapshot")
            needed.difference_update(wave.trials)  # they continue from their newest wave

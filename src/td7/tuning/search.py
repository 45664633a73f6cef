"""A search from start to end: trials are asked for, trained in waves, scored, and ended or kept.

The trials of a wave are members of one run, a seed each. After a rung, the survivors of several
waves are stacked into the next one. All that decides what comes next is in the folder, so that a
search that was stopped continues where it was.
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from td7.runs.members import Members
from td7.runs.record import finished_steps
from td7.runs.snapshots import has_snapshot
from td7.runs.tables import read_table
from td7.studies.plan import usual_rates
from td7.training.member import Origin
from td7.training.progress import Progress, duration
from td7.training.start import ResumeOptions, Stack, continue_run, start
from td7.tuning.folder import SearchRecord, Wave, wave_folder
from td7.tuning.options import TuneOptions
from td7.tuning.space import Space
from td7.tuning.trials import Trial, Trials

# What `usual_rates` were measured on.
MACHINES = {"cuda": "an NVIDIA H200", "cpu": "two CPU cores"}


@dataclass(frozen=True)
class Plan:
    """What a search will do, all of it checked."""

    options: TuneOptions
    space: Space
    rungs: Sequence[int]  # steps
    size: int  # trials per wave
    device: str
    algorithm: str
    place: str  # the task or the dataset
    usual: dict[str, Any]  # the values at hand, if the space contains them: the first trial

    @property
    def folder(self) -> Path:
        name = f"{self.options.algorithm or 'td7'}-{self.place}".replace("/", "-").replace(":", "-")
        return Path(self.options.out or f"tune/{name}")

    def counts(self) -> list[int]:
        """About how many trials come to each rung."""
        counts = [self.options.trials]
        for _ in self.rungs[1:]:
            prunes = self.options.pruner != "none"
            counts.append(math.ceil(counts[-1] / self.options.reduction) if prunes else counts[-1])
        return counts

    def lines(self) -> list[str]:
        """The plan in words."""
        options, unit = self.options, "updates" if self.options.dataset else "steps"
        seeds = f"{len(options.seeds)} seed{'s' * (len(options.seeds) > 1)}"
        lines = [
            f"{options.trials} trials of {self.algorithm} on {self.place}, {seeds} each, "
            f"{self.size} trials side by side, on {self.device} → {self.folder}",
            "searching " + ", ".join(f"{n}={one.text}" for n, one in self.space.items()),
        ]
        for i, (steps, count) in enumerate(zip(self.rungs, self.counts(), strict=True)):
            waves = math.ceil(count / self.size)
            what = f"{count} trials in {waves} wave{'s' * (waves > 1)}"
            lines.append(f"  rung {i + 1}: {steps:,} {unit}, about {what}")
        rate = usual_rates(self.device).get(self.algorithm)
        if rate is not None:
            time = duration(self.seed_steps / rate)
            lines.append(f"about {time}, if it is like HalfCheetah on {MACHINES[self.device]}")
        return lines

    @property
    def seed_steps(self) -> int:
        """About how many steps all seeds of all trials make."""
        lengths = [end - begin for begin, end in zip((0, *self.rungs), self.rungs, strict=False)]
        trial_steps = sum(n * steps for n, steps in zip(self.counts(), lengths, strict=True))
        return trial_steps * len(self.options.seeds)


class SearchRun:
    """A search that is being carried out."""

    def __init__(self, plan: Plan, record: SearchRecord, trials: Trials, folder: Path) -> None:
        self.plan = plan
        self.record = record
        self.trials = trials
        self.folder = folder

    def run(
        self, progress: Callable[["SearchRun", int], Progress], judged: Callable[[Wave], None]
    ) -> None:
        """Train all waves; `progress` makes what shows one, `judged` is called after each."""
        if self.plan.usual:
            self.trials.suggest(self.plan.usual)
        while (number := self._next_wave()) is not None:
            self._train(number, progress(self, number))
            self._judge(number)
            self._tidy()
            judged(self.record.waves[number])

    # -- which trials train next ---------------------------------------------------------------

    def _next_wave(self) -> int | None:
        """The number of the next wave, or of one that was interrupted; None if there is none."""
        waves = self.record.waves
        if waves and not waves[-1].is_judged:
            return len(waves) - 1
        chosen = self._next_trials()
        if chosen is None:
            return None
        rung, trials = chosen
        waves.append(Wave(rung, [trial.number for trial in trials]))
        self.record.write(self.folder)
        return len(waves) - 1

    def _next_trials(self) -> tuple[int, list[Trial]] | None:
        """A rung, and trials that train up to it: as many as fill a wave, if there are so many.

        While there are trials to ask for, survivors wait until they fill a wave.
        """
        size, total = self.plan.size, self.plan.options.trials
        while True:
            groups: dict[tuple[int, tuple[Any, ...]], list[Trial]] = defaultdict(list)
            for trial in self.trials.running():
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
            elif groups:
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

    # -- training ------------------------------------------------------------------------------

    def _train(self, number: int, progress: Progress) -> None:
        """Train a wave up to its rung, or continue it."""
        wave, path = self.record.waves[number], wave_folder(self.folder, number)
        steps = self.plan.rungs[wave.rung]
        if (path / "config.json").exists():
            if finished_steps(path) == steps:
                return
            if has_snapshot(path):
                options = self.plan.options
                changes = ResumeOptions(
                    workers=options.workers,
                    snapshot_every=options.snapshot_every,
                    step_timeout=options.step_timeout,
                )
                continue_run(path, changes, progress=progress)
                return
        shutil.rmtree(path, ignore_errors=True)  # it has nothing to continue from
        trials = [self.trials[n] for n in wave.trials]
        space, chosen = self.plan.space, self.plan.options.run_options
        shared = {n: trials[0].values[n] for n in space if not space[n].per_member}
        run_options = replace(
            chosen, steps=steps, out=str(path), set={**chosen.set, **shared}, quiet=True
        )
        padding = (self.plan.size - len(trials)) * len(chosen.seeds)
        stack = Stack(self.members(trials), max(0, padding), self._origins(number))
        start(run_options, progress, stack=stack)

    def members(self, trials: Sequence[Trial]) -> Members:
        """Every trial with every seed."""
        seeds, space = self.plan.options.seeds, self.plan.space
        varied = {
            name: tuple(trial.values[name] for trial in trials for _ in seeds)
            for name in space
            if space[name].per_member
        }
        count = len(trials) * len(seeds)
        return Members(tuple(seeds) * len(trials), varied, tuple(range(count)))

    def _origins(self, number: int) -> list[Origin]:
        """Where the members of a wave have come to the rung before."""
        wave, seeds = self.record.waves[number], len(self.plan.options.seeds)
        if wave.rung == 0:
            return []
        origins = []
        for trial in wave.trials:
            before = max(n for n, w in enumerate(self.record.waves[:number]) if trial in w.trials)
            first = self.record.waves[before].trials.index(trial) * seeds
            run = wave_folder(self.folder, before)
            origins += [Origin(run, first + i) for i in range(seeds)]
        return origins

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

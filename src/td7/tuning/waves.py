"""A wave: the trials of a rung with all their seeds, as members of one run."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from td7.errors import NoMemberLeftError
from td7.runs.members import Members
from td7.runs.record import finished_steps
from td7.runs.snapshots import has_snapshot
from td7.training.member import Origin
from td7.training.progress import Progress
from td7.training.start import ResumeOptions, Stack, continue_run, start
from td7.tuning.folder import Wave, wave_folder
from td7.tuning.plan import Plan
from td7.tuning.trials import Trial


@dataclass(frozen=True)
class WaveJob:
    """All that it takes to train a wave, or to continue it, in any process."""

    plan: Plan
    folder: Path  # of the search, absolute
    number: int
    waves: Sequence[Wave]  # up to this one
    trials: Sequence[Trial]  # of this one

    @property
    def steps(self) -> int:
        return self.plan.rungs[self.waves[self.number].rung]

    def train(self, progress: Progress) -> None:
        """Train the wave up to its rung. What an earlier process did of it is kept."""
        with suppress(NoMemberLeftError):  # all of its trials have diverged
            self._train(progress)

    def _train(self, progress: Progress) -> None:
        path, options = wave_folder(self.folder, self.number), self.plan.options
        if (path / "config.json").exists():
            if finished_steps(path) == self.steps:
                return
            if has_snapshot(path):
                changes = ResumeOptions(
                    workers=options.workers,
                    snapshot_every=options.snapshot_every,
                    step_timeout=options.step_timeout,
                )
                continue_run(path, changes, progress=progress)
                return
        shutil.rmtree(path, ignore_errors=True)  # it has nothing to continue from
        space, chosen = self.plan.space, options.run_options
        shared = {n: self.trials[0].values[n] for n in space if not space[n].per_member}
        run_options = replace(
            chosen, steps=self.steps, out=str(path), set={**chosen.set, **shared}, quiet=True
        )
        padding = max(0, self.plan.size - len(self.trials)) * len(options.seeds)
        start(run_options, progress, stack=Stack(self.members(), padding, self.origins()))

    def members(self) -> Members:
        """Every trial with every seed."""
        seeds, space = self.plan.options.seeds, self.plan.space
        varied = {
            name: tuple(trial.values[name] for trial in self.trials for _ in seeds)
            for name in space
            if space[name].per_member
        }
        count = len(self.trials) * len(seeds)
        return Members(tuple(seeds) * len(self.trials), varied, tuple(range(count)))

    def origins(self) -> list[Origin]:
        """Where the members have come to the rung before; none at the first rung."""
        *earlier, wave = self.waves
        if wave.rung == 0:
            return []
        seeds, origins = len(self.plan.options.seeds), []
        for trial in wave.trials:
            before = max(n for n, w in enumerate(earlier) if trial in w.trials)
            first = earlier[before].trials.index(trial) * seeds
            run = wave_folder(self.folder, before)
            origins += [Origin(run, first + i) for i in range(seeds)]
        return origins


class LocalWaves:
    """Trains waves in this process, one after the other."""

    def __init__(self, progress: Callable[[WaveJob], Progress]) -> None:
        self._progress = progress
        self._job: WaveJob | None = None

    @property
    def has_room(self) -> bool:
        return self._job is None

    def submit(self, job: WaveJob) -> None:
        self._job = job

    def wait(self) -> int:
        assert self._job is not None
        job, self._job = self._job, None
        job.train(self._progress(job))
        return job.number

    def close(self) -> None:
        pass

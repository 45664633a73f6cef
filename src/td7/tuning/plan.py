"""What a search will do, all of it checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td7.studies.plan import usual_rates
from td7.training.progress import duration
from td7.tuning.options import TuneOptions
from td7.tuning.space import Space

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

"""What the folder of a run in several processes takes from those of its processes."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from td7.files import read_json, write_json


class MergedPolicies:
    """The policies of all processes, moved into the run folder."""

    def __init__(self, run: Path, seeds: Sequence[int]) -> None:
        self._run = run
        self._seeds = seeds
        self._steps: dict[int, int] = {}  # seed: steps of its last policy

    def add_kept(self, folder: Path) -> None:
        """Move the policies of earlier steps that a process kept."""
        for source in sorted(folder.glob("policies/*")):
            if any(source.glob("seed-*.safetensors")):
                self._move(source, self._run / source.relative_to(folder))

    def add_last(self, folder: Path) -> None:
        self._move(folder / "policy", self._run / "policy")

    def _move(self, source: Path, target: Path) -> None:
        """Weights move; policy.json, which a process writes after them, then covers all seeds."""
        if not (source / "policy.json").exists():
            return
        target.mkdir(parents=True, exist_ok=True)
        for file in source.glob("seed-*.safetensors"):
            file.replace(target / file.name)
        description = read_json(source / "policy.json")
        if isinstance(description["steps"], list):
            self._steps |= dict(zip(description["seeds"], description["steps"], strict=True))
            description["steps"] = [self._steps.get(seed, 0) for seed in self._seeds]
        description["seeds"] = list(self._seeds)
        write_json(target / "policy.json", description)


def merged_timings(files: Sequence[Path]) -> tuple[Mapping[str, float], Mapping[str, int]]:
    """Seconds and counts per phase: the longest, as processes run in parallel, and the sum."""
    seconds: dict[str, float] = {}
    times: dict[str, int] = {}
    for file in files:
        with file.open() as text:
            for row in csv.DictReader(text):
                phase = row["phase"]
                seconds[phase] = max(seconds.get(phase, 0.0), float(row["seconds"]))
                times[phase] = times.get(phase, 0) + int(row["times"])
    return seconds, times

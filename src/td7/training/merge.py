"""What a run in several processes takes from them: policies, times, and how far they are."""

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from td7.errors import InputError
from td7.runs.members import Members
from td7.runs.policies import kept_policies
from td7.runs.policy_files import (
    read_description,
    steps_of,
    weights_file,
    weights_files,
    write_policies,
)
from td7.training.progress import Status


class MergedPolicies:
    """The policies of all processes, moved into the run folder."""

    def __init__(self, run: Path, members: Members) -> None:
        self._run = run
        self._members = members
        self._steps: dict[int, int] = {}  # of the last policy of a member, by its id

    def add_evaluated(self, folder: Path, evaluations: Sequence[Sequence[Any]]) -> None:
        """Move the policies that a process kept before it reported these `evaluations`."""
        for step in {row[1] for row in evaluations}:
            self._add_kept(folder, step)

    def add_saved(self, folder: Path) -> None:
        """Move all policies of a process that has written a snapshot."""
        for source in sorted(folder.glob("policies/*")):
            self._add_kept(folder, int(source.name))
        self._move(folder / "policy", self._run / "policy")

    def _add_kept(self, folder: Path, step: int) -> None:
        source = kept_policies(folder, step)
        if any(weights_files(source)):
            self._move(source, kept_policies(self._run, step))

    def _move(self, source: Path, target: Path) -> None:
        """Move weights, while a process may be writing the next ones, with policy.json first."""
        for file in weights_files(source):
            file.replace(_moved(file))  # now the process cannot change it
        try:
            description = read_description(source)
        except (InputError, FileNotFoundError):  # the process will write it
            return
        steps = description.get("steps")
        weights = {}
        for id in Members.from_json(description).ids:
            file = weights_file(source, id, self._members.kind)
            with suppress(InputError, FileNotFoundError):  # it is newer: the next one is coming
                content = _moved(file).read_bytes()
                self._steps[id] = steps_of(description, file, id, content) or 0
                weights[id] = content
        if isinstance(steps, list):
            description["steps"] = [self._steps.get(id, 0) for id in self._members.ids]
        description.update(self._members.to_json())
        for name in ("weights", "before"):  # the target has its own
            description.pop(name, None)
        write_policies(target, description, weights)
        for id in weights:
            _moved(weights_file(source, id, self._members.kind)).unlink()


def _moved(file: Path) -> Path:
    return file.with_suffix(".moved")


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


def merged_status(statuses: Sequence[Status], ids: Sequence[int], seconds: float) -> Status:
    """How far the run is, after as many seconds."""
    learns = all(status.learns for status in statuses)
    begins = [s.compiling_since for s in statuses if s.compiling_since is not None]
    members = {m.id: m for status in statuses for m in status.members}
    return replace(
        statuses[0],
        seconds=seconds,
        learns=learns,
        # Once all processes learn, the others train while one compiles.
        compiling_since=None if learns else min(begins, default=None),
        compiled_seconds=0.0,
        members=[members[id] for id in ids],
    )

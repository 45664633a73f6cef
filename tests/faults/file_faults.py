"""Runs whose file operations fail, below the run folder; and runs on a disk that is full.

A trial lets the n-th operation of a kind fail, with an errno or a short count, once or from then
on, while a run trains from the beginning or from the middle. The command must get over it, or end
with one line. Then, on a disk that works, the run must resume from where it was and end like an
undisturbed one. In some trials the kernel refuses files beyond a size, or the folder is a disk of
a few hundred kilobytes, which needs root. Trials in which nothing failed are not counted.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from faults.campaign import Outcome, each_trial
from faults.runs import (
    ALWAYS,
    EAGER,
    Runs,
    Setting,
    faulty,
    fired,
    marked,
    nothing_left,
    one_line_error,
)
from faults.shim import FILE_SIZE, Fault, library
from interrupted_runs import Runner, ended

NAME = "file_faults"
FULL = 1_300
QUICK = 2
ACTIONS: Mapping[str, Sequence[str]] = {
    "open": ("ENOSPC", "EIO", "EDQUOT", "EMFILE", "EACCES"),
    "write": ("ENOSPC", "EIO", "EDQUOT", "short"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT"),
    "rename": ("ENOSPC", "EIO", "EDQUOT", "EACCES"),
    "mkdir": ("ENOSPC", "EIO", "EDQUOT", "EACCES"),
    "unlink": ("EIO", "EACCES"),
    "close": ("EIO", "EDQUOT"),
    "read": ("EIO", "short"),
}
# Mostly with one process, in which the n-th operation is always the same.
SETTINGS = (*[EAGER[0]] * 4, *[EAGER[2]] * 4, EAGER[3], EAGER[4], EAGER[6])


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    if library() is None:
        return Outcome(notes=["skipped: it needs Linux and a C compiler"])
    return each_trial(trials, seed, folder, Campaign(folder).trial)


class Campaign:
    def __init__(self, folder: Path) -> None:
        self._runs = Runs(folder)

    def trial(self, number: int, random: np.random.Generator, folder: Path) -> str:
        setting = SETTINGS[number % len(SETTINGS)]
        kind, resumes = random.random(), bool(random.random() < 0.5)
        if kind < 0.03 and os.geteuid() == 0:
            return self._small_disk(setting, int(random.integers(32, 400)), folder)
        if kind < 0.07:
            limit = int(random.integers(1_000, 30_000))
            return self._files_below(limit, setting, folder, resumes=resumes)
        return self._fault(random, setting, folder, resumes=resumes)

    # -- what fails ----------------------------------------------------------------------------

    def _fault(
        self, random: np.random.Generator, setting: Setting, folder: Path, *, resumes: bool
    ) -> str:
        counts = self._runs.rehearsal(setting, resumes=resumes)
        operation = str(random.choice([name for name in ACTIONS if counts[name]]))
        fault = Fault(
            operation,
            at=int(random.integers(1, counts[operation] + 1)),
            action=str(random.choice(ACTIONS[operation])),
            below=folder / "run",
            always=bool(random.random() < 0.5),
        )
        runner = self._runs.runner(setting, folder, resumes=resumes)
        before = runner.newest_number()
        with nothing_left(runner, folder):
            process = runner.start(*ALWAYS, environment=faulty(fault, folder))
            status = ended(process)
            if not (lines := fired(folder)):
                return ""
            try:
                ending = self._check_ending(runner, setting, status)
                self._check_resume(runner, setting, before)
            except AssertionError as error:
                file = lines[0].partition(f"{folder}/run")[2] or "/"
                raise AssertionError(f"{setting.name}, {fault} ({file}): {error}") from None
        always = " and later" if fault.always else ""
        return f"{operation} {fault.action}{always}: {ending}"

    def _files_below(self, limit: int, setting: Setting, folder: Path, *, resumes: bool) -> str:
        """The kernel lets no file become larger."""
        runner = self._runs.runner(setting, folder, resumes=resumes)
        before = runner.newest_number()
        with nothing_left(runner, folder):
            environment = {**marked(folder), FILE_SIZE: str(limit)}
            status = ended(runner.start(*ALWAYS, environment=environment))
            ending = self._check_ending(runner, setting, status)
            if status == 0:
                return ""
            self._check_resume(runner, setting, before)
        return f"files of limited size: {ending}"

    def _small_disk(self, setting: Setting, kilobytes: int, folder: Path) -> str:
        runner = self._runs.runner(setting, folder)
        runner.path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o"]
        disk = ["td7-faults", str(runner.path)]
        if subprocess.run([*mount, f"size={kilobytes}k", *disk], check=False).returncode:
            return ""  # root in a container may not mount
        try:
            with nothing_left(runner, folder):
                status = ended(runner.start(*ALWAYS, environment=marked(folder)))
                ending = self._check_ending(runner, setting, status)
                if status == 0:
                    return ""
                subprocess.run([*mount, "remount,size=64m", *disk], check=True)
                self._check_resume(runner, setting, 0)
        finally:
            subprocess.run(["umount", str(runner.path)], check=True)
        return f"small disk: {ending}"

    # -- what must be true ---------------------------------------------------------------------

    def _check_ending(self, runner: Runner, setting: Setting, status: int | None) -> str:
        """The command got over the fault, or ended with one line."""
        assert status is not None, "the command hangs"
        if status == 0:
            self._runs.check_same(runner, setting)
            return "continues"
        assert status in (1, 2), f"the command ends with {status}: {runner.output()}"
        one_line_error(runner)
        return "one line"

    def _check_resume(self, runner: Runner, setting: Setting, before: int) -> None:
        """The run continues from a snapshot, if there was one, and ends like an undisturbed one."""
        saved = runner.newest_number()
        assert saved >= before, f"snapshot {before} is lost, {saved} is the newest"
        self._runs.check_finished(runner, setting)
        if saved:
            assert "restarted" not in runner.output(), "the run starts anew, in spite of a snapshot"

"""Runs that are killed, wherever they are, and resumed until they are finished.

A trial is one run in one setting, killed once to three times: the first process, one of its
children, or all of them, after some progress and a random moment; or whichever process comes first
to the n-th operation of a kind on a file of the run. Within ten seconds no process may be left,
and the finished run must equal one that was never killed, byte for byte. In some trials a study or
a run of it is killed.
"""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from faults.campaign import Outcome, each_trial
from faults.runs import (
    OFTEN,
    SETTINGS,
    Runs,
    Setting,
    check_no_orphans,
    children,
    faulty,
    fired,
    marked,
    nothing_left,
    one_line_error,
)
from faults.shim import Fault, library
from faults.studies import Studies
from interrupted_runs import Runner, ended, wait_for_progress

NAME = "kills"
FULL = 330  # a run may finish before it is killed, and is not counted
QUICK = 1
OPERATIONS = ("open", "write", "fsync", "close", "rename", "mkdir", "unlink", "read")
STUDIES_EVERY = 25  # trials; their runs are programs, which take seconds to load
HOW = ("the first process", "a child", "all processes", "at a file operation")


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return kill_runs(SETTINGS, trials, seed, folder)


def kill_runs(
    settings: Sequence[Setting], trials: Sequence[int], seed: int, folder: Path
) -> Outcome:
    runs = Runs(folder)
    studies = Studies(folder)
    kills: Counter[str] = Counter()

    def trial(number: int, random: np.random.Generator, folder: Path) -> str:
        if settings is SETTINGS and number % STUDIES_EVERY == STUDIES_EVERY - 1:
            if how := studies.kill(random, folder):
                kills[how] += 1
            return "study: identical" if how else ""
        setting = settings[number % len(settings)]
        runs.undisturbed(setting)
        runner = runs.runner(setting, folder)
        before = kills.total()
        with nothing_left(runner, folder):
            for _ in range(random.integers(1, 4)):
                if how := _kill(runner, setting, random, folder):
                    kills[how] += 1
            runs.check_finished(runner, setting)
        return f"{setting.name}: identical" if kills.total() > before else ""

    outcome = each_trial(trials, seed, folder, trial)
    counts = ", ".join(f"{n} of {how}" for how, n in sorted(kills.items()))
    outcome.notes.append(f"{kills.total()} kills: {counts}")
    return outcome


def _kill(runner: Runner, setting: Setting, random: np.random.Generator, folder: Path) -> str:
    """Train or resume until a kill; return what was killed, or "" if the run ended before."""
    how = str(random.choice(HOW if library() else HOW[:-1]))
    if how == HOW[-1]:
        operation, at = str(random.choice(OPERATIONS)), int(random.integers(1, 50))
        fault = Fault(operation, at, "kill", runner.path)
        process = runner.start(*OFTEN, environment=faulty(fault, folder))
        status = ended(process)
        was_killed = bool(fired(folder))
    else:
        process = runner.start(*OFTEN, environment=marked(folder))
        was_killed = wait_for_progress(runner, process, random)
        if was_killed:
            how = _send(how, process, folder, random)
        status = ended(process)
    assert status is not None, f"the run hangs after a kill of {how}"
    if status > 0:  # a process that trains some of the seeds died
        one_line_error(runner)
    check_no_orphans(process, folder)
    return how if was_killed else ""


def _send(how: str, process: BaseProcess, folder: Path, random: np.random.Generator) -> str:
    """Send SIGKILL; return to what."""
    assert process.pid is not None
    if how == "a child" and (pids := children(process, folder)):
        os.kill(int(random.choice(pids)), signal.SIGKILL)
        return how
    if how == "all processes":
        os.killpg(process.pid, signal.SIGKILL)
        return how
    process.kill()
    return HOW[0]

"""Runs that are asked to stop at a random moment, and resumed.

A trial sends SIGTERM, SIGHUP or SIGINT to a run's first process, or to all of its processes, as a
terminal does. The run must end within ten seconds, with one line, the exit status of the signal
and a new snapshot, from which it resumes exactly. Before training begins there is nothing to save.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faults.campaign import Outcome, each_trial
from faults.runs import (
    EAGER,
    OFTEN,
    PATIENCE,
    Runs,
    check_no_orphans,
    marked,
    nothing_left,
    one_line_error,
)
from interrupted_runs import wait_for_progress, wait_until

NAME = "signals"
FULL = 160
QUICK = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GOAL = 2.0  # seconds that 99% of the runs may take to end


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    runs = Runs(folder)
    seconds: list[float] = []

    def trial(number: int, folder: Path) -> str:
        random = np.random.default_rng([seed, number])
        setting = EAGER[number % len(EAGER)]
        signum = SIGNALS[number % len(SIGNALS)]
        runs.undisturbed(setting)
        runner = runs.runner(setting, folder)
        with nothing_left(runner, folder):
            process = runner.start(*OFTEN[:1], "60", environment=marked(folder))
            if random.random() < 0.1:  # while it starts
                is_running = wait_until((runner.path / "config.json").exists, process)
            else:
                is_running = wait_for_progress(runner, process, random)
            if not is_running:
                return ""
            assert process.pid is not None
            had_begun, before = runner.rows() > 0, runner.newest_number()
            begin = time.monotonic()
            (os.killpg if random.random() < 0.5 else os.kill)(process.pid, signum)
            process.join(2 * PATIENCE)
            took = time.monotonic() - begin
            assert took < PATIENCE, f"{signum.name}: the run ends after {took:.1f} s"
            status = process.exitcode
            outcome = f"{signum.name} while it starts: identical"
            if status == 0:
                outcome = f"{signum.name} at the end: identical"
            elif had_begun:
                seconds.append(took)
                assert status == 128 + signum, f"{signum.name}: status {status}: {runner.output()}"
                assert f"stopped by {signum.name}" in one_line_error(runner)
                assert runner.newest_number() > before, f"{signum.name}: no new snapshot"
                outcome = f"{signum.name}: saved, identical"
            check_no_orphans(process, folder)
            runs.check_finished(runner, setting)
        return outcome

    outcome = each_trial(trials, folder, trial)
    if seconds:
        half, most = np.percentile(seconds, [50, 99])
        outcome.notes.append(
            f"{len(seconds)} runs ended {half:.2f} s (median) and {most:.2f} s (p99) after the "
            "signal, snapshot included"
        )
        if len(seconds) >= 100 and most > GOAL:
            outcome.fail(max(trials), f"p99 is {most:.2f} s, not below {GOAL}")
    return outcome

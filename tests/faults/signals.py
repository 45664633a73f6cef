"""Runs that are asked to stop at a random moment, and resumed.

A trial sends SIGTERM, SIGHUP or SIGINT to a run's first process, or to all of its processes, as a
terminal does. The run must end within ten seconds, with one line, the exit status of the signal
and a new snapshot, from which it resumes exactly. Before training begins there is nothing to save.
In every fourth trial the signal comes while a step of an environment does not return.
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from faults.campaign import Outcome, each_trial
from faults.edits import Random
from faults.runs import (
    EAGER,
    OFTEN,
    PATIENCE,
    Runs,
    Setting,
    check_no_orphans,
    marked,
    nothing_left,
    one_line_error,
)
from interrupted_runs import Runner, wait_for_progress, wait_until
from td7.runs.record import FINISHED
from td7.runs.snapshots import has_snapshot, process_folders

NAME = "signals"
FULL = 240
QUICK = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GOAL = 2.0  # seconds that 99% of the runs may take to end
HANGING_EVERY = 4  # trials
HANGING_SEEDS = "104,1"  # a step hangs in a training episode of the first
OFFLINE_HANGING_SEEDS = "0-7"  # in an evaluation of some


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    campaign = Campaign(folder)
    outcome = each_trial(trials, seed, folder, campaign.trial)
    outcome.notes += campaign.notes()
    if len(campaign.seconds) >= 100 and (most := np.percentile(campaign.seconds, 99)) > GOAL:
        outcome.fail(max(trials), f"p99 is {most:.2f} s, not below {GOAL}")
    return outcome


class Campaign:
    def __init__(self, folder: Path) -> None:
        self._runs = Runs(folder)
        self._gate = folder / "gate"  # steps hang while this file exists
        self.seconds: list[float] = []  # from a signal to the end of the run
        self._hanging_seconds: list[float] = []

    def notes(self) -> list[str]:
        each = {"": self.seconds, " with a step that hung": self._hanging_seconds}
        return [
            f"{len(seconds)} runs{which} ended {np.median(seconds):.2f} s (median), "
            f"{np.percentile(seconds, 99):.2f} s (p99), {max(seconds):.2f} s (at most) after the "
            "signal, snapshot included"
            for which, seconds in each.items()
            if seconds
        ]

    def trial(self, number: int, random: Random, folder: Path) -> str:
        round_, place = divmod(number, HANGING_EVERY)
        signum = SIGNALS[(round_ + place) % len(SIGNALS)]
        if place == 1:
            return self._hanging(EAGER[round_ % len(EAGER)], signum, random, folder)
        setting = EAGER[number % len(EAGER)]
        self._runs.undisturbed(setting)
        runner = self._runs.runner(setting, folder)
        with nothing_left(runner, folder):
            process = _start(runner, folder)
            if random.random() < 0.1:  # while it starts
                is_running = wait_until((runner.path / "config.json").exists, process)
            else:
                is_running = wait_for_progress(runner, process, random)
            if not is_running:
                return ""
            had_begun, before = runner.rows() > 0, runner.newest_number()
            took = _stop(process, signum, random)
            status = process.exitcode
            if (runner.path / FINISHED).exists():  # the signal came when all was done
                assert status in (0, 128 + signum, -signum), f"{signum.name}: status {status}"
                outcome = f"{signum.name} at the end: identical"
            elif had_begun:
                self.seconds.append(took)
                _check_stopped(runner, signum, status)
                assert runner.newest_number() > before, f"{signum.name}: no new snapshot"
                outcome = f"{signum.name}: saved, identical"
            else:
                outcome = f"{signum.name} while it starts: identical"
            check_no_orphans(process, folder)
            self._runs.check_finished(runner, setting)
        return outcome

    def _hanging(
        self, setting: Setting, signum: signal.Signals, random: Random, folder: Path
    ) -> str:
        """The signal comes while a step waits for the gate to be removed."""
        is_offline = setting.kind.startswith("offline")
        seeds = OFFLINE_HANGING_SEEDS if is_offline else HANGING_SEEDS
        task = ("--env", "toys:Hanging-v0", "--env-kwargs", f"gate={self._gate}")
        setting = replace(
            setting,
            name=f"{setting.name}, a step hangs",
            kind=f"{setting.kind}, a step hangs",
            options=(*setting.options, *task, "--seeds", seeds),
        )
        self._runs.undisturbed(setting)
        runner = self._runs.runner(setting, folder)
        reached = self._gate.with_suffix(".reached")
        reached.unlink(missing_ok=True)
        self._gate.touch()
        try:
            with nothing_left(runner, folder):
                process = _start(runner, folder)
                if not wait_until(reached.exists, process):
                    return ""
                self._hanging_seconds.append(_stop(process, signum, random))
                _check_stopped(runner, signum, process.exitcode)
                for each in process_folders(runner.path):
                    assert has_snapshot(each), f"{each.name} has no snapshot: {runner.output()}"
                check_no_orphans(process, folder)
                self._gate.unlink()
                self._runs.check_finished(runner, setting)
        finally:
            self._gate.unlink(missing_ok=True)
        return f"{signum.name} while a step hangs: saved, identical"


def _start(runner: Runner, folder: Path) -> BaseProcess:
    return runner.start(*OFTEN[:1], "60", environment=marked(folder))


def _stop(process: BaseProcess, signum: signal.Signals, random: Random) -> float:
    """Send a signal, to all processes or to the first one; return the seconds to the end."""
    assert process.pid is not None
    begin = time.monotonic()
    (os.killpg if random.random() < 0.5 else os.kill)(process.pid, signum)
    process.join(2 * PATIENCE)
    took = time.monotonic() - begin
    assert took < PATIENCE, f"{signum.name}: the run ends after {took:.1f} s"
    return took


def _check_stopped(runner: Runner, signum: signal.Signals, status: int | None) -> None:
    assert status == 128 + signum, f"{signum.name}: status {status}: {runner.output()}"
    line = one_line_error(runner)
    assert f"stopped by {signum.name}" in line, line

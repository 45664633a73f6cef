"""Hostile environments: a run ends in one line that blames the task, or trains all the same.

Each does something to its process: it raises or returns what it should not (`hostile_tasks`), or
changes what belongs to the program (`odd_tasks`); in every loop, in-process and in workers.
"""

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from faults.campaign import Outcome
from faults.forks import CRASHED, Result, in_child, in_lanes, in_loaded_process
from faults.odd_tasks import DEEDS
from faults.verdicts import check_ended, check_refused
from folders import SMALL, words
from hostile_tasks import RAISES, STEPS
from td7.cli.main import main

NAME = "environments"
QUICK = 6

HOSTILE, ODD = "hostile_tasks:Hostile-v0", "faults.odd_tasks:Odd-v0"
LOOPS = {"checkpointed": "minimum", "lockstep": "none"}
WORKERS = ("0", "2")
PLACES = ("init", "reset", "step", "close")


# In the program's own process nobody can keep a task from these; the process says nothing more.
ENDS_PROCESS: Mapping[tuple[str, ...], int] = {
    ("deed=ends the process",): 3,
    ("deed=is killed",): -signal.SIGKILL,
    ("deed=closes the output",): CRASHED,
}


class Case(NamedTuple):
    task: str
    arguments: tuple[str, ...]
    loop: str
    workers: str


_BEHAVIOURS: Sequence[tuple[str, tuple[str, ...]]] = [
    *((HOSTILE, (f"what={what}", f"where={where}")) for what in RAISES for where in PLACES),
    *((HOSTILE, (f"what={what}",)) for what in (*STEPS, "settings")),
    *((ODD, (f"deed={deed}",)) for deed in DEEDS),
]
CASES: Sequence[Case] = [
    Case(task, arguments, loop, workers)
    for task, arguments in _BEHAVIOURS
    for loop in LOOPS
    for workers in WORKERS
]
FULL = len(CASES)


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_loaded_process(_run, trials, seed, folder)


def _run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    order = np.random.default_rng(seed).permutation(len(CASES))
    return in_lanes(trials, folder, partial(_trial, [CASES[i] for i in order]))


def _trial(cases: Sequence[Case], number: int, folder: Path) -> str:
    case = cases[number % len(cases)]
    line = [
        *("train", "--env", case.task, "--env-kwargs", *case.arguments, "--seeds", "0-1"),
        *("--steps", "60", "--evaluate-every", "30", "--evaluation-episodes", "1", "--quiet"),
        *("--workers", case.workers, "--out", "run"),
        *("--set", *words({**SMALL, "checkpoints": LOOPS[case.loop]})),
    ]
    sandbox = folder / "here"
    sandbox.mkdir()
    result = in_child(partial(main, line), sandbox)
    try:
        ended = _judge(case, result, sandbox)
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from None
    return f"{case.loop}, {case.workers} workers: {ended}"


def _judge(case: Case, result: Result, sandbox: Path) -> str:
    if case.workers == "0" and result.status == ENDS_PROCESS.get(case.arguments):
        return "the task ended the process"
    check_ended(result)
    stray = [path.name for path in sandbox.iterdir() if path.name != "run"]
    assert not stray, f"it wrote {', '.join(stray)}"
    run = sandbox / "run"
    if result.status == 0:
        assert (run / "finished.json").exists(), "it is not finished"
        return "trained"
    line = check_refused(result, warnings=True)
    if result.status == 2:
        assert not run.exists(), f"it wrote a run, and said {line}"
        return "refused, and nothing written"
    is_first = "where=reset" in case.arguments  # before it nothing was learned
    assert is_first or (run / "snapshot").exists(), f"no snapshot, {line}"
    return "one line, before anything was learned" if is_first else "one line, and a snapshot"

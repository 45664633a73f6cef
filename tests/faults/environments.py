"""Hostile environments: a run ends in one line that blames the task, or trains all the same.

Each does something to its process: it raises or returns what it should not (`hostile_tasks`), or
changes what belongs to the program (`odd_tasks`); in every loop, in-process and in workers.
"""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from faults.campaign import Outcome
from faults.forks import in_child, in_lanes, in_loaded_process
from faults.odd_tasks import DEEDS, ENDS
from faults.verdicts import changed, check_ended, check_refused, tree
from folders import SMALL, words
from hostile_tasks import RAISES, STEPS
from td7.cli.main import main

NAME = "environments"
QUICK = 12

HOSTILE, ODD = "hostile_tasks:Hostile-v0", "faults.odd_tasks:Odd-v0"
LOOPS = {"checkpointed": "minimum", "lockstep": "none"}
WORKERS = ("0", "2")


class Case(NamedTuple):
    task: str
    arguments: tuple[str, ...]
    loop: str
    workers: str


_BEHAVIOURS: Sequence[tuple[str, tuple[str, ...]]] = [
    *((HOSTILE, (f"what={what}", f"where={w}")) for what in RAISES for w in ("init", "reset", "step", "close")),
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
    (folder / "here").mkdir()
    result = in_child(partial(main, line), folder / "here")

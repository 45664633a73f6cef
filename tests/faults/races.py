"""Two commands that start at the same moment on one folder.

Exactly one of them may write to it. The other one ends with status 2 and one line, or, where the
first one has finished already, finds nothing left to do. What is in the folder in the end is what
the winner makes of it alone, its config.json included. Of two studies, the other one names the run
that it could not begin, and ends with status 1.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from faults.campaign import Outcome, each_trial
from faults.runs import EAGER, Runs, end_all, error_line, marked
from faults.shim import library
from faults.studies import STUDY, Studies
from interrupted_runs import PROCESSES, ended, run_td7

NAME = "races"
FULL = 60
QUICK = 1
KINDS = (("train", "train"), ("resume", "resume"), ("train", "resume"))
STUDIES_EVERY = 10  # trials; their runs are programs, which take seconds to load
SETTINGS = EAGER[0], EAGER[4], EAGER[6]
READY = 0.2  # seconds that both processes have to get ready
GAP = 0.03  # seconds by which one of them may be later


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return each_trial(trials, seed, folder, Campaign(folder).trial)


class Campaign:
    def __init__(self, folder: Path) -> None:
        self._runs = Runs(folder)
        self._study = Studies(folder)

    def trial(self, number: int, random: np.random.Generator, folder: Path) -> str:
        late = float(random.uniform(-GAP, GAP))
        if number % STUDIES_EVERY == STUDIES_EVERY - 1:
            return self._studies(late, folder)
        kind = KINDS[number % len(KINDS)]
        setting = SETTINGS[number // len(KINDS) % len(SETTINGS)]
        self._runs.undisturbed(setting)
        resumes = kind == ("resume", "resume")
        if resumes and library() is None:
            return ""
        runner = self._runs.runner(setting, folder, resumes=resumes)
        resume = ["resume", str(runner.path)]
        commands = [runner.train if name == "train" else resume for name in kind]
        # The option tells whose config.json it is.
        options = [["--quiet", "--snapshot-every", every] for every in ("0.002", "0.003")]
        pair = [[*c, *o] for c, o in zip(commands, options, strict=True)]
        winners, outputs = race(pair, late, folder)
        name = "/".join(kind)
        assert winners, f"{name}: nobody wins: {outputs}"
        assert kind != ("train", "train") or len(winners) == 1, f"{name}: both win"
        if kind[winners[0]] == "train":
            record = json.loads((runner.path / "config.json").read_text())
            every = str(record["snapshot_every"])
            assert every in options[winners[0]], f"{name}: config.json is the loser's"
        self._runs.check_same(runner, setting)
        return f"{name}: {'one wins' if len(winners) == 1 else 'one after the other'}"

    def _studies(self, late: float, folder: Path) -> str:
        command = [*STUDY, "--out", str(folder / "study")]
        winners, outputs = race([command, command], late, folder, _check_losing_study)
        assert winners, f"study/study: nobody wins: {outputs}"
        self._study.check_same(folder / "study")
        return f"study/study: {'one wins' if len(winners) == 1 else 'one after the other'}"


def _check_losing_run(status: int | None, output: str) -> None:
    """It ends with a line and status 2."""
    assert status == 2, f"status {status}: {output}"
    error_line(output)


def _check_losing_study(status: int | None, output: str) -> None:
    """It names its run that the other study has begun, as it names any run that fails."""
    lines = output.splitlines()
    assert status == 1, f"status {status}: {output}"
    assert not any(line.startswith("Traceback") for line in lines), lines
    assert any(
        re.match("failed: .*(already holds a run|another process)", line) for line in lines
    ), lines


def race(
    commands: Sequence[Sequence[str]],
    late: float,
    folder: Path,
    check_loser: Callable[[int | None, str], None] = _check_losing_run,
) -> tuple[list[int], str]:
    """Run two commands at the same moment, the second one later by `late`.

    Return which of them succeed, and what both print.
    """
    outputs = [folder / f"output-{i}" for i in range(len(commands))]
    start = time.monotonic() + READY
    moments = start, start + late
    processes = [
        PROCESSES.Process(target=run_at, args=(moment, command, output, marked(folder)))
        for moment, command, output in zip(moments, commands, outputs, strict=False)
    ]
    try:
        for process in processes:
            process.start()
        statuses = [ended(process) for process in processes]
    finally:
        end_all(processes, folder)
    for status, output in zip(statuses, outputs, strict=True):
        if status != 0:
            check_loser(status, output.read_text())
    text = "; ".join(output.read_text() for output in outputs)
    return [i for i, status in enumerate(statuses) if status == 0], text


def run_at(
    moment: float, command: Sequence[str], output: Path, environment: Mapping[str, str]
) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
    run_td7(command, output, 0.0, environment)

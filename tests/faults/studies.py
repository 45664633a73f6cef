"""A small study that parts of the campaign disturb; its runs are programs of their own."""

import os
import re
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from faults.edits import Random
from faults.runs import check_no_orphans, end_all, marked, remaining
from folders import differences, results, words
from interrupted_runs import PROCESSES, ended, run_td7, wait_until
from offline_runs import TINY

STUDY = (
    *("study", "design", "--env", "toys:Point-v0", "--rows", "TD3", "--seeds", "0-1"),
    *("--steps", "60", "--evaluate-every", "20", "--evaluation-episodes", "1"),
    *("--engine", "eager", "--set", *words({**TINY["td7"], "random_steps": 30})),
)
KILLED = ("a study", "a run of a study", "a study with its runs")


class Studies:
    """Compares studies with one that was not disturbed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undisturbed: dict[str, bytes] = {}

    def check_same(self, out: Path) -> None:
        if not self._undisturbed:
            own = self._folder / "study"
            output = self._folder / "study.output"
            assert ended(start(own, output, self._folder)) == 0, output.read_text()
            self._undisturbed = study_results(own)
        different = differences(study_results(out), self._undisturbed)
        assert not different, f"the study differs: {', '.join(different)}"

    def kill(self, random: Random, folder: Path) -> str:
        """Kill a study or what it runs, and start it again; return what was killed, or ""."""
        out, output = folder / "study", folder / "output"
        process = start(out, output, folder)
        processes = [process]
        try:
            if not wait_until(lambda: list(out.glob("*/*/config.json")), process):
                return ""
            time.sleep(random.uniform(0.0, 1.0))
            how = _send(process, random, folder)
            status = ended(process)
            assert status is not None, f"the study hangs after a kill of {how}"
            if status > 0:
                check_failure_is_named(output.read_text())
            check_no_orphans(process, folder)
            processes.append(start(out, output, folder))
            assert ended(processes[-1]) == 0, output.read_text()
        finally:
            end_all(processes, folder)
        self.check_same(out)
        return how


def start(out: Path, output: Path, folder: Path) -> BaseProcess:
    command = [*STUDY, "--out", str(out)]
    process = PROCESSES.Process(target=run_td7, args=(command, output, 0.0, marked(folder)))
    process.start()
    return process


def check_failure_is_named(output: str) -> None:
    """A study whose run was killed names the run and the signal."""
    lines = output.splitlines()
    assert not any(line.startswith("Traceback") for line in lines), lines
    assert any(re.match("failed: .*: signal SIGKILL", line) for line in lines), lines


def _send(process: BaseProcess, random: Random, folder: Path) -> str:
    assert process.pid is not None
    how = KILLED[int(random.integers(len(KILLED)))]
    runs = [pid for pid in remaining(process, folder) if pid != process.pid]
    if how == KILLED[1] and runs:
        _kill(runs)
        return how
    _kill([process.pid, *(runs if how == KILLED[2] else [])])
    return how if how == KILLED[2] else KILLED[0]


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def study_results(out: Path) -> dict[str, bytes]:
    """The results of the runs of a study, by folder and file."""
    folders = [file.parent for file in out.rglob("config.json") if "snapshot" not in file.parts]
    return {
        f"{folder.relative_to(out)}/{name}": content
        for folder in folders
        for name, content in results(folder).items()
    }

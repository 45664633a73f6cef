"""Runs of `td7` in processes that are killed, stopped and resumed, and edits of their files."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from faults.shim import configure, preloaded
from folders import SMALL, TABLES, contents, differences, newest, words
from td7.cli.main import main
from td7.files import write_json
from td7.runs.snapshots import process_folders

assert toys  # registers the tasks
STEPS = 100
# Seconds that anything may take on a busy machine; capturing graphs takes half a minute. Asking
# PyTorch for the GPU would initialise CUDA, which processes forked from this one could not use.
TIMEOUT = 300.0 if Path("/dev/nvidiactl").exists() else 60.0


@cache
def start_server() -> None:
    """Start the process that all others are forked from, with the shim of file operations."""
    with preloaded():
        forkserver.ensure_running()


class LoadedProcess(ForkServerProcess):
    """A process that starts quickly because it is forked from one that has loaded PyTorch."""

    def start(self) -> None:
        start_server()
        super().start()


PROCESSES = ForkServerContext()
PROCESSES.Process = LoadedProcess  # type: ignore[misc]
PROCESSES.set_forkserver_preload(
    [
        *("torch._dynamo", "pandas", "matplotlib.figure", "pytest", "interrupted_runs"),
        *("td7.training.start", "td7.reports.curves", "td7.studies.run", "faults.loaded"),
    ]
)


def run_td7(
    arguments: Sequence[str], output: Path, disk: float, environment: Mapping[str, str]
) -> None:
    """Run the command line in a process of its own; an fsync takes `disk` seconds more."""
    os.setpgid(0, 0)
    configure(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if disk:
        sync = os.fsync

        def slow(descriptor: int) -> None:
            time.sleep(disk)
            sync(descriptor)

        os.fsync = slow  # type: ignore[assignment]
    raise SystemExit(main(arguments))


def run_on_terminal(arguments: Sequence[str], terminal: str) -> None:
    """Run the command line in a session of its own, on this terminal."""
    os.setsid()
    os.open(terminal, os.O_RDWR)  # it becomes the session's
    with Path(terminal).open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        os._exit(main(arguments))  # multiprocessing would flush, which fails


class Runner:
    """Starts `td7` on one run folder, again and again."""

    def __init__(
        self, folder: Path, algorithm: str = "td7", options: Sequence[str] = (), **settings: object
    ) -> None:
        self.path = folder / "run"
        self.train = [*train_words(self.path, algorithm, **settings), *options]
        self._output = folder / "output"
        self.processes: list[BaseProcess] = []

    def start(
        self,
        *options: str,
        disk: float = 0.0,
        environment: Mapping[str, str] | None = None,
        quiet: bool = True,
    ) -> BaseProcess:
        """`td7 train`, or `td7 resume` where the folder holds a run."""
        has_begun = (self.path / "config.json").exists()
        command = ["resume", str(self.path)] if has_begun else self.train
        arguments = (
            [*command, *["--quiet"] * quiet, *options],
            self._output,
            disk,
            environment or {},
        )
        process = PROCESSES.Process(target=run_td7, args=arguments)
        process.start()
        self.processes.append(process)
        return process

    def finish(self, *options: str) -> None:
        assert ended(self.start(*options)) == 0, self.output()

    def output(self) -> str:
        return self._output.read_text()

    def snapshots(self) -> list[str]:
        return folder_names(self.path / "snapshot")

    def newest_number(self) -> int:
        """The newest snapshot's number, or 0; of all processes together, if there are several."""
        folders = [folder / "snapshot" for folder in process_folders(self.path)]
        return sum(
            max([int(name) for name in folder_names(folder) if name.isdigit()], default=0)
            for folder in folders
        )

    def rows(self) -> int:
        """The number of rows in all tables, which shows how far the run is.

        Tables get their headers while a run starts, and rows once it trains.
        """
        tables = [folder / name for folder in process_folders(self.path) for name in TABLES]
        lines = [len(table.read_bytes().splitlines()) for table in tables if table.exists()]
        return sum(max(0, number - 1) for number in lines)


def train_words(path: Path, algorithm: str = "td7", **settings: object) -> list[str]:
    what = ["--env", "toys:Point-v0", "--steps", str(STEPS), "--seeds", "0-1", "--out", str(path)]
    often = ["--evaluate-every", "25", "--evaluation-episodes", "2", "--metrics-every", "20"]
    return ["train", algorithm, *what, *often, "--set", *words(settings or SMALL)]


def folder_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def ended(process: BaseProcess) -> int | None:
    process.join(TIMEOUT)
    return process.exitcode


def wait_until(condition: Callable[[], object], process: BaseProcess) -> bool:
    """Return whether the condition came true before the process ended."""
    deadline = time.monotonic() + TIMEOUT
    while process.is_alive():
        if condition():
            return True
        assert time.monotonic() < deadline, (
            "the condition did not come true, and the process did not end"
        )
        time.sleep(0.0005)
    return False


def wait_for_progress(runner: Runner, process: BaseProcess, random: np.random.Generator) -> bool:
    """Wait until the run is some rows further, and then a moment; False if it ends before."""
    enough = runner.rows() + int(random.integers(1, 8))
    if not wait_until(lambda: runner.rows() >= enough, process):
        return False
    process.join(random.uniform(0.0, 0.1))
    return process.is_alive()


def check_kills(runner: Runner, uninterrupted: dict[str, Any], most_workers: int) -> None:
    """Kill a run at random moments and resume it until it is finished, then compare."""
    random = np.random.default_rng(0)
    kills = 0
    process = runner.start("--snapshot-every", "0.002")
    for _ in range(6):
        if not wait_for_progress(runner, process, random):
            break
        process.kill()
        if ended(process) == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        workers = str(random.integers(most_workers + 1))
        process = runner.start("--snapshot-every", "0.002", "--workers", workers)
    assert ended(process) == 0, runner.output()
    assert kills >= 2
    assert differences(contents(runner.path), uninterrupted) == []


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line that a command prints when it refuses its input."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("td7: ")
    return line


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


def change_both(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a run's config in its snapshot as well, as if it had been so from the beginning."""
    edit(path, change)
    snapshot = newest(path)
    members = json.loads((snapshot / "members.json").read_text())
    change(members["config"])
    manifest = json.loads((snapshot / "manifest.json").read_text())
    digest = write_json(snapshot / "members.json", members)
    manifest["files"][f"{snapshot.name}/members.json"] = digest._asdict()
    write_json(snapshot / "manifest.json", manifest)

"""Runs that parts of the campaign disturb: their settings, and what they come to undisturbed."""

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from faults.shim import Fault
from folders import SMALL, all_contents, differences
from interrupted_runs import Runner, ended
from offline_runs import BOUNDS, TINY, point_fields, save

OFTEN = ("--snapshot-every", "0.002")  # minutes
# Each turn of the loop ends with a snapshot, so that a run always has the same file operations.
ALWAYS = ("--snapshot-every", "0.00001")
COMPILING = 300.0  # seconds that the first run of a kind may take: PyTorch compiles what it needs
PATIENCE = 10.0  # seconds after which no process of a killed run may be left
MARK = "TD7_FAULTS_FOLDER"  # a variable of all processes of a run, also of those in other groups


@dataclass(frozen=True)
class Setting:
    """A way to train, which decides what can be disturbed."""

    name: str
    kind: str  # runs of one kind come to the same, however they are carried out
    algorithm: str = "td7"
    settings: Mapping[str, object] = field(default_factory=lambda: SMALL)
    options: tuple[str, ...] = ()


LOCKSTEP = {**SMALL, "checkpoints": "none"}
WORKERS = ("--workers", "2")
DIVIDED = ("--processes", "2")
COMPILED = ("--engine", "compiled")
OFFLINE = ("td3+bc", TINY["td3+bc"])
EAGER = (
    Setting("checkpointed", "checkpointed"),
    Setting("lockstep, 2 workers", "lockstep", settings=LOCKSTEP, options=WORKERS),
    Setting("offline", "offline", *OFFLINE),
    Setting("checkpointed, 2 workers", "checkpointed", options=WORKERS),
    Setting("lockstep", "lockstep", settings=LOCKSTEP),
    Setting("offline, 2 workers", "offline", *OFFLINE, options=WORKERS),
    Setting("checkpointed, 2 processes", "checkpointed, divided", options=DIVIDED),
    Setting("lockstep, 2 processes", "lockstep, divided", settings=LOCKSTEP, options=DIVIDED),
    Setting("offline, 2 processes", "offline, divided", *OFFLINE, options=DIVIDED),
)
# Once these have run, PyTorch has what it compiles in a cache on disk.
SETTINGS = (
    *EAGER,
    Setting("checkpointed, compiled", "checkpointed, compiled", options=COMPILED),
    Setting("lockstep, compiled", "lockstep, compiled", settings=LOCKSTEP, options=COMPILED),
)

GRAPH = ("--device", "cuda", "--engine", "graph")
ON_GPU = (
    Setting("checkpointed, GPU", "checkpointed, GPU", options=(*GRAPH, *WORKERS)),
    Setting("lockstep, GPU", "lockstep, GPU", settings=LOCKSTEP, options=GRAPH),
    Setting("offline, GPU", "offline, GPU", *OFFLINE, options=GRAPH),
)


class Runs:
    """Makes runs in each setting; runs each kind once undisturbed to compare them with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data: Path | None = None
        self._undisturbed: dict[str, dict[str, Any]] = {}
        self._rehearsals: dict[tuple[str, bool], Counter[str]] = {}

    def runner(self, setting: Setting, folder: Path, *, resumes: bool = False) -> Runner:
        """A runner of a new run, or of a copy of one that was killed in the middle."""
        options = setting.options
        if setting.kind.startswith("offline"):
            if self._data is None:
                self._data = save(self._folder / "data.hdf5", point_fields(), **BOUNDS)
            options = (*options, "--dataset", str(self._data), "--metrics-every", "5")
        runner = Runner(folder, setting.algorithm, options, **setting.settings)
        if resumes:
            shutil.copytree(self._middle(setting), runner.path)
        return runner

    def undisturbed(self, setting: Setting) -> dict[str, Any]:
        if setting.kind not in self._undisturbed:
            folder = Path(mkdtemp(dir=self._folder))
            runner = self.runner(setting, folder)
            process = runner.start()
            process.join(COMPILING)
            assert process.exitcode == 0, runner.output() or "an undisturbed run hangs"
            self._undisturbed[setting.kind] = all_contents(runner.path)
        return self._undisturbed[setting.kind]

    def rehearsal(self, setting: Setting, *, resumes: bool = False) -> Counter[str]:
        """How often each file operation takes place in a run, in one of its processes."""
        key = setting.name, resumes
        if key not in self._rehearsals:
            folder = Path(mkdtemp(dir=self._folder))
            runner = self.runner(setting, folder, resumes=resumes)
            fault = Fault("*", 0, "kill", runner.path)
            assert ended(runner.start(*ALWAYS, environment=faulty(fault, folder))) == 0
            counts: dict[str, Counter[str]] = {}
            for line in fired(folder):
                pid, operation, _ = line.split(" ", 2)
                counts.setdefault(pid, Counter())[operation] += 1
            self._rehearsals[key] = max(counts.values(), key=Counter.total)
        return self._rehearsals[key]

    def _middle(self, setting: Setting) -> Path:
        """A run that was killed half-way."""
        folder = self._folder / f"middle-{setting.name}"
        if not folder.exists():
            fault = Fault("fsync", self.rehearsal(setting)["fsync"] // 2, "kill", folder / "run")
            folder.mkdir()
            runner = self.runner(setting, folder)
            with nothing_left(runner, folder):
                ended(runner.start(*ALWAYS, environment=faulty(fault, folder)))
            assert fired(folder)
            assert runner.newest_number(), runner.output()
        return folder / "run"

    def check_finished(self, runner: Runner, setting: Setting) -> None:
        """Resume the run until it is finished, and compare it with an undisturbed one."""
        status = ended(runner.start(*OFTEN, quiet=False))
        assert status is not None, "the resumed run hangs"
        assert status == 0, f"resuming ends with {status}: {runner.output()}"
        self.check_same(runner, setting)

    def check_same(self, runner: Runner, setting: Setting) -> None:
        different = differences(all_contents(runner.path), self.undisturbed(setting))
        assert not different, f"the run differs from an undisturbed one: {', '.join(different)}"


def marked(folder: Path) -> Mapping[str, str]:
    """The environment of a run's processes by which `remaining` finds them."""
    return {MARK: str(folder)}


def faulty(fault: Fault, folder: Path) -> Mapping[str, str]:
    """The environment of a run with a fault, which `fired` finds afterwards."""
    return {**marked(folder), **fault.environment(folder / "fired")}


def fired(folder: Path) -> Sequence[str]:
    """What has failed since the last call: one line per fault."""
    report = folder / "fired"
    lines = report.read_text().splitlines() if report.exists() else []
    report.unlink(missing_ok=True)
    return lines


def one_line_error(runner: Runner) -> str:
    """The error that a run ended with."""
    return error_line(runner.output())


def error_line(output: str) -> str:
    """The error that a command ended with: the last line, and nothing like a traceback before."""
    lines = output.splitlines()
    assert lines, "the command failed without a word"
    assert not any(line.startswith("Traceback") for line in lines), f"a traceback: {lines[-1]}"
    assert [line for line in lines if line.startswith("td7: ")] == lines[-1:], lines
    return lines[-1]


# -- processes that are left -----------------------------------------------------------------------


def children(process: BaseProcess, folder: Path) -> list[int]:
    """The worker processes of a run, or the processes that train it together."""
    return [
        pid
        for pid in remaining(process, folder)
        if pid != process.pid and b"spawn_main" in _read(pid, "cmdline")
    ]


def remaining(process: BaseProcess, folder: Path) -> list[int]:
    """The processes of the run that are alive, in the group of its first or elsewhere."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            status = _read(int(entry.name), "stat").rpartition(b") ")[2].split()
            if not status or status[0] in b"ZX":
                continue
            is_in_group = int(status[2]) == process.pid
            if is_in_group or mark in _read(int(entry.name), "environ").split(b"\0"):
                found.append(int(entry.name))
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def check_no_orphans(process: BaseProcess, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := remaining(process, folder):
        if time.monotonic() > deadline:
            names = [_read(pid, "cmdline").replace(b"\0", b" ").decode()[:80] for pid in left]
            raise AssertionError(f"processes are left {PATIENCE:.0f} s after a kill: {names}")
        time.sleep(0.02)


@contextmanager
def nothing_left(runner: Runner, folder: Path) -> Iterator[None]:
    """End whatever still runs after a trial, also after one that failed."""
    try:
        yield
    finally:
        end_all(runner.processes, folder)


def end_all(processes: Sequence[BaseProcess], folder: Path) -> None:
    for process in processes:
        for pid in remaining(process, folder):
            os.kill(pid, signal.SIGKILL)
        process.join()

"""Runs of a study, each in a process of its own: started, watched, stopped, counted once."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from td7.errors import Stopped
from td7.processes import available_cores, on_signals
from td7.studies.folder import PlannedRun, RunState, log_of, state, write_failures
from td7.studies.plan import StudyStatus

LOOK_EVERY = 0.2  # seconds between two looks at the processes
KILL_AFTER = 60.0  # seconds that a run has to write its snapshot


def words(run: PlannedRun) -> list[str]:
    """The command that makes a run, or goes on with it."""
    if state(run) is RunState.INTERRUPTED:
        now = ("steps", "workers", "dataset")  # may be others than when it began
        given = [(f"--{name}", str(run.options[name])) for name in now if name in run.options]
        return ["resume", str(run.folder), *(word for pair in given for word in pair)]
    found = ["train"]
    for name, value in run.options.items():
        if name in ("set", "env_kwargs"):
            if value:
                flag = f"--{name.replace('_', '-')}"
                found += [flag, *(f"{k}={_word(v)}" for k, v in value.items())]
        elif name == "seeds":
            found += ["--seeds", ",".join(map(str, value))]
        else:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return [*found, "--out", str(run.folder)]


def _word(value: Any) -> str:
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def launch(
    runs: Sequence[PlannedRun],
    out: Path,
    at_once: int,
    show: Callable[[StudyStatus], None],
) -> StudyStatus:
    """All runs that are not done, `at_once` at a time; what fails is noted, the others go on."""
    standing = StudyStatus(runs, [run for run in runs if state(run) is RunState.DONE])
    queue = [run for run in runs if run not in standing.done]
    log_folder = out / "logs"
    log_folder.mkdir(parents=True, exist_ok=True)
    processes: dict[PlannedRun, subprocess.Popen[bytes]] = {}
    free = _shares(at_once)
    taken: dict[PlannedRun, set[int]] = {}
    with signals() as asked:
        try:
            while queue or processes:
                while queue and len(processes) < at_once and not asked:
                    run = queue.pop(0)
                    taken[run] = free.pop(0)
                    processes[run] = start_process(run, log_folder, taken[run])
                    standing.running.append(run)
                if asked:
                    stop(processes.values())
                    raise Stopped(asked[0], out)
                for run, process in list(processes.items()):
                    if process.poll() is not None:
                        del processes[run]
                        free.append(taken.pop(run))
                        standing.running.remove(run)
                        note(run, process.returncode, log_folder, standing)
                        write_failures(out, standing.failed)
                show(standing)
                time.sleep(LOOK_EVERY)
        finally:
            stop(processes.values())
    return standing


def note(run: PlannedRun, status: int, log_folder: Path, standing: StudyStatus) -> None:
    """What became of a run: it is done, or it failed with the last thing that it said."""
    if status == 0 and state(run) is RunState.DONE:
        standing.done.append(run)
        return
    text = log_of(run, log_folder).read_text(errors="replace")
    lines = text[text.rfind("\n$ ") + 1 :].splitlines()  # of this try, not of those before it
    said = next((line for line in reversed(lines) if line.startswith("td7: ")), "")
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    standing.failed[run.name] = said.removeprefix("td7: ") or how


def _shares(at_once: int) -> list[set[int]]:
    """The cores of each of the runs at once: apart, as far as there are enough."""
    cores = sorted(available_cores())
    if at_once > len(cores):
        return [set(cores)] * at_once
    return [set(cores[i::at_once]) for i in range(at_once)]


def start_process(run: PlannedRun, log_folder: Path, cores: set[int]) -> "subprocess.Popen[bytes]":
    command = ["td7", *words(run)]
    with log_of(run, log_folder).open("ab") as log:
        log.write(f"$ {shlex.join(command)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we pass it on once
            # It makes one system call, and takes no lock that a thread of ours may hold.
            preexec_fn=_die_with_parent,  # noqa: PLW1509  # so it is safe with threads
        )
    if sys.platform == "linux":
        os.sched_setaffinity(process.pid, cores)
    return process


# Found here, as between fork and exec nothing should be loaded.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_SET_PARENT_DEATH_SIGNAL = 1


def _die_with_parent() -> None:
    """Has the kernel stop this process, in an orderly way, if the one that started it is killed."""
    if _PRCTL is not None:
        _PRCTL(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))


def stop(processes: "Sequence[subprocess.Popen[bytes]] | Any") -> None:
    """Asks all to write a snapshot and end, and waits for them."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + KILL_AFTER
    for process in alive:
        try:
            process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted in the list."""
    asked: list[int] = []
    with on_signals(lambda signum, _: asked.append(signum)):
        yield asked

"""Runs of a study on this machine, each in a process of its own."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from td7.errors import Stopped
from td7.options import to_words
from td7.processes import available_cores, on_signals
from td7.studies.folder import PlannedRun, RunState, log_path, run_state, write_failures
from td7.studies.plan import StudyStatus

POLL_SECONDS = 0.2  # between two checks of the processes
STOP_SECONDS = 60.0  # that a run has to write its snapshot after SIGTERM

RunProcess = subprocess.Popen[bytes]


def run_command(run: PlannedRun) -> list[str]:
    """Return the words after `td7` that train a run, or resume it."""
    if run_state(run) is RunState.INTERRUPTED:
        # These may have changed since the run began.
        names = ["steps", "workers", *(["dataset"] if run.options.dataset else [])]
        # The study names the same module and task as the run, so the user vouches for them.
        module = run.options.variant.partition("/")[0].rpartition(":")[0]
        modules = ["--import", module] if module else []
        trust = ["--trust"] if run.options.env else []
        return ["resume", str(run.folder), *to_words(run.options, names), *modules, *trust]
    return ["train", *to_words(replace(run.options, out=str(run.folder)))]


def launch(
    runs: Sequence[PlannedRun],
    out: Path,
    at_once: int,
    show: Callable[[StudyStatus], None],
) -> StudyStatus:
    """Make all runs that are not done, `at_once` at a time; a failed run does not stop others."""
    status = StudyStatus(runs, [run for run in runs if run_state(run) is RunState.DONE])
    queue = [run for run in runs if run not in status.done]
    log_folder = out / "logs"
    log_folder.mkdir(parents=True, exist_ok=True)
    processes: dict[PlannedRun, RunProcess] = {}
    free = split_cores(at_once)
    used: dict[PlannedRun, set[int]] = {}
    with received_signals() as received:
        try:
            while queue or processes:
                while queue and len(processes) < at_once and not received:
                    run = queue.pop(0)
                    used[run] = free.pop(0)
                    processes[run] = start_process(run, log_folder, used[run])
                    status.running.append(run)
                if received:
                    stop_processes(processes.values())
                    raise Stopped(received[0], out)
                for run, process in list(processes.items()):
                    if process.poll() is not None:
                        del processes[run]
                        free.append(used.pop(run))
                        status.running.remove(run)
                        record_outcome(run, process.returncode, log_folder, status)
                        write_failures(out, status.failed)
                show(status)
                time.sleep(POLL_SECONDS)
        finally:
            stop_processes(processes.values())
    return status


def record_outcome(
    run: PlannedRun, exit_status: int, log_folder: Path, status: StudyStatus
) -> None:
    """Add a run whose process has ended to those that are done or failed."""
    if exit_status == 0 and run_state(run) is RunState.DONE:
        status.done.append(run)
        return
    text = log_path(run, log_folder).read_text(errors="replace")
    lines = text[text.rfind("\n$ ") + 1 :].splitlines()  # of the last attempt
    message = next((line for line in reversed(lines) if line.startswith("td7: ")), "")
    if exit_status < 0:
        cause = f"signal {signal.Signals(-exit_status).name}"
    else:
        cause = f"exit status {exit_status}"
    status.failed[run.name] = message.removeprefix("td7: ") or cause


def split_cores(at_once: int) -> list[set[int]]:
    """Return the cores of each concurrent run: disjoint sets, if there are enough cores."""
    cores = sorted(available_cores())
    if at_once > len(cores):
        return [set(cores)] * at_once
    return [set(cores[i::at_once]) for i in range(at_once)]


def start_process(run: PlannedRun, log_folder: Path, cores: set[int]) -> RunProcess:
    command = ["td7", *run_command(run)]
    import_path = os.pathsep.join(map(str, sys.path))  # it finds the modules that this process does
    with log_path(run, log_folder).open("ab") as log:
        log.write(f"$ {shlex.join(command)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": import_path},
            start_new_session=True,  # Ctrl-C reaches only the study, which passes it on
            # It makes one system call and takes no lock that another thread may hold.
            preexec_fn=_stop_with_parent,  # noqa: PLW1509  # so it is safe with threads
        )
    if sys.platform == "linux":
        os.sched_setaffinity(process.pid, cores)
    return process


# Looked up here, as nothing should be loaded between fork and exec.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_SET_PARENT_DEATH_SIGNAL = 1


def _stop_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent dies."""
    if _PRCTL is not None:
        _PRCTL(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))


def stop_processes(processes: Iterable[RunProcess]) -> None:
    """Send SIGTERM, upon which runs write a snapshot, and wait; kill those that take too long."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    for process in alive:
        try:
            process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """Collect the numbers of signals to stop in a list instead of acting on them."""
    received: list[int] = []
    with on_signals(lambda signum, _: received.append(signum)):
        yield received

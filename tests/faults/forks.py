"""Commands in forked children of one process that has loaded every library: milliseconds each.

That process must not start a thread before it forks; every run that trains does so in a child.
"""

import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, NoReturn

from faults.campaign import Outcome
from interrupted_runs import PROCESSES

LANES = 2  # children at a time
CPU_SECONDS = 20  # that a command may take; one that refuses its input takes a hundredth
SECONDS = 40.0  # likewise of wall-clock time, which other programs on the machine lengthen
MEMORY = 4 << 30  # bytes that a child may have, beyond what its libraries map
ORPHANS = 5.0  # seconds within which the processes of a command end after it
CRASHED = 70  # the exit status of a child whose work raised; no command returns it


class Result(NamedTuple):
    """How a command ended."""

    status: int  # its exit status; a negative signal if one killed it
    out: str
    err: str
    is_late: bool = False  # it was killed at the time limit
    left_children: bool = False  # processes of its own survived it
    memory: int = 0  # bytes that it took at most, in addition to what it was forked with

    @property
    def text(self) -> str:
        return self.out + self.err


def in_child(work: Callable[[], int], folder: Path, seconds: float = SECONDS) -> Result:
    """Run `work` in a forked child, in `folder`; its return value is the exit status."""
    files = [folder.parent / f"{folder.name}.{name}" for name in ("out", "err")]
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(work, folder, files)
    descriptor = os.pidfd_open(pid)
    try:
        is_late = not select.select([descriptor], [], [], seconds)[0]
        if is_late:
            os.kill(pid, signal.SIGKILL)
        _, code, usage = os.wait4(pid, 0)
        left_children = not _group_ends(pid, 0.0 if is_late else ORPHANS)
    finally:
        os.close(descriptor)
        _kill_group(pid)
    out, err = (file.read_text(errors="backslashreplace") for file in files)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = max(0, usage.ru_maxrss - own) * 1024
    status = os.waitstatus_to_exitcode(code)
    return Result(status, out, err, is_late, left_children, memory)


def _be_child(work: Callable[[], int], folder: Path, files: list[Path]) -> NoReturn:
    status = CRASHED
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        out, err = (os.open(f, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for f in files)
        for old, new in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(old, new)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.fsync = lambda fd: None  # these commands meet bad input, not power cuts
        status = work()
    except SystemExit as error:  # as at the end of any program
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(ValueError, OSError):  # what it runs may close them
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _group_ends(pid: int, seconds: float) -> bool:
    """Whether every process of a child's group ends within this time."""
    deadline = time.monotonic() + seconds
    while _group_exists(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _group_exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def in_lanes(trials: Sequence[int], folder: Path, carry_out: Callable[[int, Path], str]) -> Outcome:
    """Like `each_trial`, two trials at a time.

    A lane is a forked child that carries out every other trial, each in an empty folder.
    """
    pids, parent = [], os.getpid()
    for lane in range(LANES):
        own = folder / f"lane-{lane}"
        own.mkdir()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _be_lane(trials[lane::LANES], own, carry_out, parent)
        pids.append(pid)
    try:
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    except BaseException:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        raise
    if any(statuses):
        raise RuntimeError(f"lanes ended with {statuses}: their tracebacks are above")
    outcome = Outcome()
    for lane in range(LANES):
        for number, ended, fault in json.loads((folder / f"lane-{lane}.json").read_text()):
            if fault:
                outcome.fail(number, fault)
            elif ended:
                outcome.add(ended)
    outcome.failures.sort()
    return outcome


def _be_lane(
    trials: Sequence[int], folder: Path, carry_out: Callable[[int, Path], str], parent: int
) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the trial's child ends as well
        results = []
        for number in trials:
            if os.getppid() != parent:  # nobody waits for the results
                break
            own = folder / f"trial-{number}"
            own.mkdir()
            ended = fault = ""
            try:
                ended = carry_out(number, own)
            except AssertionError as error:
                fault = str(error) or "an assertion without a message"
                print(f"trial {number}: {fault}", file=sys.stderr, flush=True)
            results.append((number, ended, fault))
            shutil.rmtree(own, ignore_errors=True)
        folder.with_suffix(".json").write_text(json.dumps(results))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def in_loaded_process(
    work: Callable[[Sequence[int], int, Path], Outcome],
    trials: Sequence[int],
    seed: int,
    folder: Path,
) -> Outcome:
    """Return `work(trials, seed, folder)` from a process with every library and without threads.

    It is forked from the one that all parts share, so that loading takes place once.
    """
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_work_loaded, args=(there, work, trials, seed, folder))
    process.start()
    there.close()
    try:
        outcome: Outcome = here.recv()
    except EOFError:
        raise RuntimeError("the process of a part ended: its traceback is above") from None
    finally:
        process.join()
    return outcome


def _work_loaded(
    connection: Connection,
    work: Callable[[Sequence[int], int, Path], Outcome],
    trials: Sequence[int],
    seed: int,
    folder: Path,
) -> None:
    # The key that signs runs, of all parts, since they share samples.
    os.environ["XDG_CONFIG_HOME"] = str(folder.parent / "config")
    import_module("faults.loaded")
    connection.send(work(trials, seed, folder))

"""Runs of a study on a Ray cluster, one task per run; Ray repeats a task whose node is lost.

A node that shares the study's folder trains in it: a run that a lost node began is resumed by
another. A node that does not share it trains in a folder of its own and sends the finished run to
the head: a run that it began and lost starts again.
"""

import io
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from td7.errors import Option, Stopped, assigned, needs_extra
from td7.files import IN_USE, write
from td7.processes import available_cores
from td7.runs.trust import sign
from td7.studies.folder import PlannedRun, RunState, log_path, run_state, write_failures
from td7.studies.local import received_signals, record_outcome, start_process, stop_processes
from td7.studies.plan import StudyStatus

TOKEN_FILE = ".head"  # a node that reads the head's token in it shares the study's folder
POLL_SECONDS = 0.2  # between two checks of the tasks and of received signals
CANCEL_SECONDS = 60.0  # that cancelled tasks have to end
IN_USE_SECONDS = 120.0  # that the process of a lost node may keep its run folder locked


@dataclass(frozen=True)
class Resources:
    """What a run takes of the cluster."""

    cpus: float
    gpus: float
    retries: int  # after the first attempt, where nodes are lost


@dataclass(frozen=True)
class RemoteResult:
    """What a node returns for a run."""

    exit_status: int
    log: bytes
    folder: bytes | None  # the packed run folder; None if the head shares it


def launch_on_ray(
    runs: Sequence[PlannedRun],
    out: Path,
    address: str,
    resources: Resources,
    show: Callable[[StudyStatus], None],
) -> StudyStatus:
    """Make all runs that are not done, on the cluster at `address`.

    An empty address starts a cluster of this machine alone.
    """
    ray = import_ray()
    status = StudyStatus(runs, [run for run in runs if run_state(run) is RunState.DONE])
    log_folder = out / "logs"
    log_folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    write(out / TOKEN_FILE, token.encode())
    ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    try:
        task = ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=resources.retries
        )(_train_on_node)
        pending: dict[Any, PlannedRun] = {}
        for run in runs:
            if run not in status.done:
                absolute = replace(run, folder=run.folder.resolve())
                pending[task.remote(absolute, str(out.resolve()), token)] = run
        with received_signals() as received:
            while pending and not received:
                status.running = list(pending.values())
                show(status)
                for ref in ray.wait(list(pending), timeout=POLL_SECONDS)[0]:
                    _collect(ray, ref, pending.pop(ref), log_folder, status)
                    write_failures(out, status.failed)
            if received:
                for ref in pending:
                    ray.cancel(ref)
                ray.wait(list(pending), num_returns=len(pending), timeout=CANCEL_SECONDS)
                raise Stopped(received[0], out)
        status.running = []
        show(status)
        return status
    finally:
        ray.shutdown()


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise needs_extra(assigned(Option("backend"), "ray"), "ray") from None
    return ray


def _collect(ray: Any, ref: Any, run: PlannedRun, log_folder: Path, status: StudyStatus) -> None:
    """Keep what a node returned for a run, and record the outcome."""
    try:
        result: RemoteResult = ray.get(ref)
    except ray.exceptions.RayError as error:  # there are no retries left
        status.failed[run.name] = str(error).strip().splitlines()[0]
        return
    with log_path(run, log_folder).open("ab") as log:
        log.write(result.log)
    # A failed run does not replace one that was begun here, which may have snapshots.
    if result.folder is not None and (result.exit_status == 0 or not run.folder.exists()):
        _unpack(result.folder, run.folder)
        with suppress(OSError):  # the node signed it, perhaps with another key
            sign(run.folder)
    record_outcome(run, result.exit_status, log_folder, status)


def _unpack(packed: bytes, folder: Path) -> None:
    """Unpack a run folder under a temporary name, then put it in the place of the old one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # Python before 3.11.4 has no filters and ignores this attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(aside)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


# -- on a node -----------------------------------------------------------------------------------


def _train_on_node(run: PlannedRun, out: str, token: str) -> RemoteResult:
    """Train or resume a run, in the study's folder if this node shares it."""
    if _shares_folder(Path(out), token):
        with tempfile.TemporaryDirectory() as logs:
            return _train(run, Path(logs))
    with tempfile.TemporaryDirectory() as scratch:
        local = replace(run, folder=Path(scratch) / "row" / "run")
        result = _train(local, Path(scratch))
        return replace(result, folder=_pack(local.folder))


def _shares_folder(out: Path, token: str) -> bool:
    try:
        return (out / TOKEN_FILE).read_text() == token
    except OSError:
        return False


def _train(run: PlannedRun, logs: Path) -> RemoteResult:
    deadline = time.monotonic() + IN_USE_SECONDS
    while True:
        if run_state(run) is RunState.DONE:  # a node finished it just before it was lost
            return RemoteResult(0, b"", None)
        process = start_process(run, logs, available_cores())
        try:
            exit_status = process.wait()
        finally:
            stop_processes([process])  # also when the task is cancelled
        log = log_path(run, logs).read_bytes()
        if exit_status == 0 or IN_USE.encode() not in log or time.monotonic() > deadline:
            return RemoteResult(exit_status, log, None)
        log_path(run, logs).unlink()
        time.sleep(1.0)


def _pack(folder: Path) -> bytes | None:
    """Return the run folder as an archive, without its snapshots, which are large."""
    if not folder.exists():
        return None
    buffer = io.BytesIO()

    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(info.name).parts
        return None if parts and parts[0] in ("snapshot", ".lock") else info

    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, arcname=".", filter=keep)
    return buffer.getvalue()

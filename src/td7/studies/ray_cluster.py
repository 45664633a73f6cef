"""Runs of a study on a Ray cluster: a task each, tried again where a node is lost, counted once.

A node that sees the study's folder trains in it, and a run that a lost node began is resumed by
another. A node that does not see it trains in a folder of its own, and the finished run is brought
back to the head; then a lost node's run begins again.
"""

import io
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from td7.errors import InputError, Stopped
from td7.files import write
from td7.processes import available_cores
from td7.runs.folder import IN_USE
from td7.studies.folder import PlannedRun, RunState, log_of, state, write_failures
from td7.studies.local import note, signals, start_process, stop
from td7.studies.plan import StudyStatus

TOKEN = ".head"  # in the study's folder: a node that reads the same in it sees the same folder
LOOK_EVERY = 0.2  # seconds
PATIENCE = 120.0  # seconds until the process of a lost node, which holds its run, must be gone


@dataclass(frozen=True)
class Share:
    """What a run takes of a node."""

    cpus: float
    gpus: float
    tries: int  # after the first, where nodes are lost


@dataclass(frozen=True)
class RemoteResult:
    """What a node gives back of a run."""

    status: int
    log: bytes
    folder: bytes | None  # the run folder, packed; None where the head sees it


def launch_on_ray(
    runs: Sequence[PlannedRun],
    out: Path,
    address: str,
    share: Share,
    show: Callable[[StudyStatus], None],
) -> StudyStatus:
    """As `launching.launch`, on the cluster at `address` (empty: one of this machine alone)."""
    ray = _ray()
    standing = StudyStatus(runs, [run for run in runs if state(run) is RunState.DONE])
    log_folder = out / "logs"
    log_folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    write(out / TOKEN, token.encode())
    ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    try:
        remote = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=share.tries)
        there = remote(_train_there)
        waiting: dict[Any, PlannedRun] = {}
        for run in runs:
            if run not in standing.done:
                whole = replace(run, folder=run.folder.resolve())
                waiting[there.remote(whole, str(out.resolve()), token)] = run
        with signals() as asked:
            while waiting and not asked:
                standing.running = list(waiting.values())
                show(standing)
                for ref in ray.wait(list(waiting), timeout=LOOK_EVERY)[0]:
                    run = waiting.pop(ref)
                    _take(ray, ref, run, log_folder, standing)
                    write_failures(out, standing.failed)
            if asked:
                for ref in waiting:
                    ray.cancel(ref)
                ray.wait(list(waiting), num_returns=len(waiting), timeout=60)
                raise Stopped(asked[0], out)
        standing.running = []
        show(standing)
        return standing
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("--backend ray needs Ray: pip install 'td7[ray]'") from None
    return ray


def _take(ray: Any, ref: Any, run: PlannedRun, log_folder: Path, standing: StudyStatus) -> None:
    try:
        came: RemoteResult = ray.get(ref)
    except ray.exceptions.RayError as error:  # its tries are used up
        standing.failed[run.name] = str(error).strip().splitlines()[0]
        return
    with log_of(run, log_folder).open("ab") as log:
        log.write(came.log)
    # What failed elsewhere is worth less than what was begun here, which may have snapshots.
    if came.folder is not None and (came.status == 0 or not run.folder.exists()):
        _unpack(came.folder, run.folder)
    note(run, came.status, log_folder, standing)


def _unpack(packed: bytes, folder: Path) -> None:
    """A run folder, all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # What Python 3.11 before 3.11.4 does not know of, it does not look at.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(aside)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


# -- on a node -----------------------------------------------------------------------------------


def _train_there(run: PlannedRun, out: str, token: str) -> RemoteResult:
    """Trains or resumes, in the study's folder if it can be seen from here."""
    if _sees(Path(out), token):
        with tempfile.TemporaryDirectory() as logs:
            return _train(run, Path(logs))
    with tempfile.TemporaryDirectory() as own:
        here = replace(run, folder=Path(own) / "row" / "run")
        came = _train(here, Path(own))
        return replace(came, folder=_packed(here.folder))


def _sees(out: Path, token: str) -> bool:
    try:
        return (out / TOKEN).read_text() == token
    except OSError:
        return False


def _train(run: PlannedRun, logs: Path) -> RemoteResult:
    deadline = time.monotonic() + PATIENCE
    while True:
        if state(run) is RunState.DONE:  # a lost node had just finished it
            return RemoteResult(0, b"", None)
        process = start_process(run, logs, available_cores())
        try:
            status = process.wait()
        finally:
            stop([process])  # also where the task is cancelled
        log = log_of(run, logs).read_bytes()
        if status == 0 or IN_USE.encode() not in log or time.monotonic() > deadline:
            return RemoteResult(status, log, None)
        log_of(run, logs).unlink()
        time.sleep(1.0)


def _packed(folder: Path) -> bytes | None:
    """The run folder without its snapshots, which are large and of no use once it is finished."""
    if not folder.exists():
        return None
    buffer = io.BytesIO()

    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(info.name).parts
        return None if parts and parts[0] in ("snapshot", ".lock") else info

    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, arcname=".", filter=keep)
    return buffer.getvalue()

"""Waves on a Ray cluster, one task per wave; its nodes share the folder of the search.

Ray repeats a task whose node is lost: another node resumes the wave from its last snapshot.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from td7.errors import RunError, Stopped, one_line
from td7.studies.local import received_signals
from td7.studies.ray_cluster import Resources, import_ray
from td7.training.progress import QuietProgress
from td7.tuning.waves import WaveJob

POLL_SECONDS = 0.2  # between two checks for received signals
CANCEL_SECONDS = 60.0  # that cancelled tasks have to save


class RayWaves:
    """Trains waves on the nodes of a cluster, several at a time."""

    def __init__(self, address: str, resources: Resources, folder: Path, at_once: int) -> None:
        self._folder = folder
        self._at_once = at_once
        self._ray = import_ray()
        self._ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
        self._task = self._ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=resources.retries
        )(_train)
        self._pending: dict[Any, int] = {}
        self._signals = ExitStack()
        self._received = self._signals.enter_context(received_signals())

    @property
    def has_room(self) -> bool:
        return len(self._pending) < self._at_once

    def submit(self, job: WaveJob) -> None:
        self._pending[self._task.remote(job)] = job.number

    def wait(self) -> int:
        while not self._received:
            ended, _ = self._ray.wait(list(self._pending), timeout=POLL_SECONDS)
            for ref in ended:
                number = self._pending.pop(ref)
                try:
                    self._ray.get(ref)
                except self._ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    raise RunError(f"wave {number + 1}: {one_line(cause)}") from error
                return number
        raise Stopped(self._received[0], self._folder)

    def close(self) -> None:
        """End what is still training, after it has saved."""
        self._signals.close()
        for ref in self._pending:
            self._ray.cancel(ref)
        if self._pending:
            everything = len(self._pending)
            self._ray.wait(list(self._pending), num_returns=everything, timeout=CANCEL_SECONDS)
        self._ray.shutdown()


def _train(job: WaveJob) -> None:
    """On a node, which may see the folder a moment later than the head."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while not job.folder.is_dir():
        if time.monotonic() > deadline:
            raise RunError(f"{job.folder} is not there: all nodes must share the search's folder")
        time.sleep(1.0)
    job.train(QuietProgress())

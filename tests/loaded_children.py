"""Processes that a run starts from a test: forked from one that has loaded PyTorch, so quickly."""

import os
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.context import ForkServerContext

import pytest

from interrupted_runs import LoadedProcess, start_server


class LoadedChild(LoadedProcess):
    """It has its parent's environment and blocked signals, as a process that is spawned."""

    _environment: Mapping[str, str]
    _blocked: set[int]

    def start(self) -> None:
        self._environment = dict(os.environ)
        self._blocked = {int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())}
        super().start()

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


CHILDREN = ForkServerContext()
CHILDREN.Process = LoadedChild  # type: ignore[misc]


@pytest.fixture(scope="module")
def loaded_children() -> Iterator[None]:
    """Loading PyTorch takes longer than these runs. Programs that tests start spawn as always."""
    start_server()  # outside `start_workers`, whose children inherit blocked signals
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("td7.processes.get_context", lambda _: CHILDREN)
        yield

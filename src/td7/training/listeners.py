"""Who receives a run's rows as they are written: event files and the user's function."""

from collections.abc import Mapping

from td7.runs.folder import RunFolder
from td7.runs.listeners import EventFiles, ListenerFault, ListenerQueue
from td7.training.parts import RunSetup


class RunListeners:
    """TensorBoard's event files and the user's function, if the run has them."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._event_files: EventFiles | None = None
        self._queue = None if setup.listener is None else ListenerQueue(setup.listener)

    def attach(self, folder: RunFolder, steps: Mapping[int, int]) -> None:
        """Receive rows from now on; `steps` has those that each seed has made before."""
        if self._setup.tensorboard:
            folder_of_events = self._setup.path / "tensorboard"
            self._event_files = EventFiles(folder_of_events, steps, self._setup.progress.warn)
            folder.listen(self._event_files)
        if self._queue is not None:
            folder.listen(self._queue)

    def deliver(self) -> None:
        """Pass new rows to the user's function, which gets no more once it has raised."""
        if self._queue is None:
            return
        try:
            self._queue.pass_on()
        except ListenerFault:
            self._queue = None
            raise

    def close(self) -> None:
        if self._event_files is not None:
            self._event_files.close()

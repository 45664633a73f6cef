"""Who receives a run's rows as they are written: event files and the user's listener."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from td7.errors import describe_error
from td7.runs.folder import RunFolder
from td7.runs.listeners import ListenerFault, ListenerQueue
from td7.runs.loggers.tensorboard import EventFiles
from td7.training.parts import RunSetup


class RunListeners:
    """TensorBoard's event files and the user's listener, if the run has them."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._queue = None if setup.listener is None else ListenerQueue(setup.listener)

    @contextmanager
    def attached(self, folder: RunFolder, steps: Mapping[int, int]) -> Iterator[None]:
        """Receive a run's rows, start and end; `steps` has those that each seed has made before."""
        with ExitStack() as resources:
            if self._setup.tensorboard:
                files = EventFiles(folder.path / "tensorboard", steps, self._setup.progress.warn)
                resources.callback(files.close)
                folder.listen(files)
            if self._queue is not None:
                folder.listen(self._queue)
                self._queue.start(folder.path)
            try:
                yield
            except BaseException as error:
                self._end(folder, error)
                raise
            self._end(folder, None)

    def deliver(self) -> None:
        """Pass new rows to the user's listener, which gets no more calls once it has raised."""
        if self._queue is not None:
            self._queue.pass_on()

    def _end(self, folder: RunFolder, error: BaseException | None) -> None:
        """The run has ended in any case, so that an exception of the listener only warns."""
        try:
            if self._queue is not None:
                self._queue.end(folder.path, error)
        except ListenerFault as fault:
            self._setup.progress.warn(f"the listener raised {describe_error(fault.raised)}")

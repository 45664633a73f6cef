"""Who receives a run's rows as they are written: loggers and the user's listener."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from td7.errors import describe_error
from td7.runs.folder import RunFolder
from td7.runs.listeners import ListenerFault, ListenerQueue
from td7.runs.loggers.mlflow import MlflowRuns
from td7.runs.loggers.scalars import Logger, Scalars
from td7.runs.loggers.services import LoggedRun, Service, ServiceLogger
from td7.runs.loggers.tensorboard import EventFiles
from td7.runs.loggers.wandb import WandbRuns
from td7.runs.record import RunRecord
from td7.training.parts import RunSetup


class RunListeners:
    """The loggers and the user's listener, if the run has them."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._queue = None if setup.listener is None else ListenerQueue(setup.listener)

    @contextmanager
    def attached(self, folder: RunFolder, steps: Mapping[int, int]) -> Iterator[None]:
        """Receive a run's rows, start and end; `steps` has what each member made before."""
        with ExitStack() as resources:
            if loggers := self._loggers(folder, steps):
                for logger in loggers:
                    resources.enter_context(logger)
                folder.listen(partial(_log, loggers, _scalars(folder, steps)))
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

    def _loggers(self, folder: RunFolder, steps: Mapping[int, int]) -> list[Logger]:
        chosen, progress = self._setup.loggers, self._setup.progress
        loggers: list[Logger] = []
        if chosen.tensorboard:
            loggers.append(
                EventFiles(folder.path / "tensorboard", steps, progress.warn, folder.members)
            )
        if chosen.has_service:
            run = LoggedRun(RunRecord.read(folder.path))
            services: list[Service] = []
            if chosen.wandb:
                services.append(WandbRuns(chosen.wandb, run))
            if chosen.mlflow:
                services.append(MlflowRuns(chosen.mlflow, run))
            loggers += [ServiceLogger(one, progress.say, progress.warn) for one in services]
        return loggers

    def _end(self, folder: RunFolder, error: BaseException | None) -> None:
        """The run has ended in any case, so that an exception of the listener only warns."""
        try:
            if self._queue is not None:
                self._queue.end(folder.path, error)
        except ListenerFault as fault:
            self._setup.progress.warn(f"the listener raised {describe_error(fault.raised)}")


def _scalars(folder: RunFolder, steps: Mapping[int, int]) -> Scalars:
    """Return what makes points of new rows, after those that the tables have already."""
    scalars = Scalars(steps, folder.members)
    for name, table in folder.tables.items():
        for _ in scalars.points(name, table.columns, table.read()):
            pass
    return scalars


def _log(
    loggers: Sequence[Logger],
    scalars: Scalars,
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> None:
    for point in scalars.points(table, columns, rows):
        for logger in loggers:
            logger.log(point)

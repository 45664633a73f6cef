"""Seeds in several processes: on a CPU, several learners of one thread outrun one of many threads.

    snapshot/process-0/    what one process writes, as a run folder of its seeds alone

Every process trains its seeds as a run of their own, in a folder of its own, from which it also
resumes. Their owner, the process that started them, has the run folder: it collects their rows in
its tables and their policies next to them, and it is the one that users, signals and listeners
know. Both ends of their protocol are in this file, what they exchange is in messages.py.
"""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from types import FrameType

import torch

from td7.errors import InputError, NoMemberLeftError, RunError, Stopped, describe_error
from td7.processes import (
    STOP_SIGNALS,
    Script,
    Worker,
    available_cores,
    end_workers,
    start_workers,
    stop_signals,
    worker_death,
)
from td7.rollouts.environment import Environment
from td7.rollouts.registration import register_in_worker
from td7.runs.folder import RunFolder
from td7.runs.snapshots import has_snapshot, process_folder
from td7.training.faults import close_all, is_interrupt, run_error
from td7.training.listeners import RunListeners
from td7.training.loop import SingleProcessTraining
from td7.training.merge import MergedPolicies, merged_status, merged_timings
from td7.training.messages import (
    ProcessEnd,
    ProcessReady,
    ProgressMessage,
    Report,
    Row,
    SeedJob,
    TableRows,
)
from td7.training.parts import RunSetup
from td7.training.progress import Status
from td7.training.signals import StopSignals
from td7.types import Probe

POLL_SECONDS = 0.2  # the longest that the owner waits for reports
REPORTS_AT_ONCE = 100  # of one process, so that none keeps the owner from all else
STATUS_SECONDS = 0.25  # between two statuses of a process
STOP_SECONDS = 8.0  # after which a process that is asked to stop is inside no environment


# -- the owner -------------------------------------------------------------------------------------


@dataclass
class SeedProcess:
    """A process that trains some of the seeds, as its owner knows it."""

    worker: Worker
    job: SeedJob
    status: Status = field(init=False)  # from ProcessReady on
    may_train: bool = False
    end: ProcessEnd | None = None

    def send(self, message: object) -> None:
        with suppress(OSError):  # it died, which receiving from it reveals
            self.worker.connection.send(message)

    def train(self) -> None:
        if not self.may_train:
            self.may_train = True
            self.send(None)

    def stop(self) -> None:
        """Ask for a snapshot and an end."""
        process = self.worker.process
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGTERM)

    def abandon(self) -> None:
        """End a process that has not begun to train, and so has nothing to save."""
        self.end = self.end or ProcessEnd()
        self.worker.connection.close()


class MultiprocessTraining:
    """The owner of a run whose seeds train in processes of their own."""

    def __init__(
        self, setup: RunSetup, make_loop: Callable[[RunSetup], SingleProcessTraining]
    ) -> None:
        """`make_loop` makes the loop of each process."""
        self.config = setup.config
        if setup.workers:
            raise InputError(
                f"workers={setup.workers} has no effect on a run in {self.config.processes} "
                "processes, each of which plays its own episodes; allowed: 0"
            )
        self.progress = setup.progress
        self._setup = setup
        self._make_loop = make_loop
        self._signals = StopSignals(self._stop)
        self._is_stopping = False
        self._kill_after = float("inf")
        self._fault: BaseException | None = None
        self._messages: set[str] = set()  # shown; most come from every process
        self._processes: list[SeedProcess] = []
        self._policies = MergedPolicies(setup.path, self.config.members)
        self._merged_at: list[int] = []  # modification times of the timings in the run folder
        self._started = time.monotonic()
        with ExitStack() as resources:
            config = self.config
            self.folder = RunFolder(
                setup.path, config.members, scored=config.is_scored, lock=setup.lock
            )
            resources.callback(self.folder.close)
            self._listeners = RunListeners(setup)
            self._resources = resources.pop_all()

    def restore(self) -> bool:
        """Start the processes, each of which restores its seeds."""
        was_saved = has_snapshot(self._setup.path)
        self._start_processes()
        metrics = self._wait_until_ready()
        self.folder.add_metrics(metrics)
        self.folder.gather([process.job.path for process in self._processes])
        self._started = time.monotonic()
        return was_saved

    def run(self) -> None:
        try:
            steps = {member.id: member.steps for member in self.status().members}
            with self._listeners.attached(self.folder, steps):
                self._run()
        finally:
            self.close()

    def _run(self) -> None:
        self.folder.begin()
        with self._signals.handled():
            while self._running():
                with self._noting_faults():
                    self._start_training()
                    self._kill_hanging()
                    self._receive()
                    self._listeners.deliver()
                    self._merge()
                    self.progress.show(self.status)
        with self._noting_faults():
            self._merge(always=True)
            none_left = self._none_left()
            if self._is_finished() and self._fault is None and none_left is None:
                self.folder.finish(self.config.steps)
        if self._fault is not None:
            raise self._fault
        if not self._is_finished():
            raise Stopped(self._signals.received or signal.SIGTERM, self.folder.path)
        if none_left is not None:
            raise none_left
        self.progress.show(self.status, final=True)

    def close(self) -> None:
        close_all(self._resources, self.progress.warn)

    def _is_finished(self) -> bool:
        return all(p.end is not None and p.end.is_finished for p in self._processes)

    def _none_left(self) -> Exception | None:
        """The error of a run of which all members have ended: that of the first process."""
        ends = [process.end for process in self._processes]
        if not all(end is not None and end.is_finished and end.error is not None for end in ends):
            return None
        return ends[0].error if ends[0] is not None else None

    def _running(self) -> list[SeedProcess]:
        return [process for process in self._processes if process.end is None]

    # -- processes: start, stop, faults --------------------------------------------------------

    def _start_processes(self) -> None:
        config, setup = self.config, self._setup
        script = Script.current(config.task)
        jobs = {}
        for i in range(config.processes):
            own = config.of_members(range(len(config.seeds))[i :: config.processes])
            folder = process_folder(setup.path, i)
            folder.mkdir(parents=True, exist_ok=True)
            job = SeedJob(
                config=replace(own, processes=1),
                spec=setup.spec,
                path=folder,
                snapshot_every=setup.snapshot_every,
                script=script,
                # All but the first find compiled what they need.
                compile_threads=1 if i else len(available_cores()),
                make_loop=self._make_loop,
                origins=setup.origins[i :: config.processes],
            )
            jobs[f"td7-{own.members.kind}s-{','.join(map(str, own.members.ids))}"] = (job,)
        workers = start_workers(_train_seeds, jobs, may_have_children=True)
        # At the latest when Python ends, which would wait for them.
        self._resources.callback(Finalize(self, end_workers, (workers,), exitpriority=0))
        self._processes = [
            SeedProcess(worker, job) for worker, (job,) in zip(workers, jobs.values(), strict=True)
        ]
        for process in self._processes:
            start = setup.start and setup.start.of(process.job.config.seeds)
            process.send((setup.dataset, start))

    def _wait_until_ready(self) -> tuple[str, ...]:
        """Return the names of the metrics, which are the same in all processes."""
        metrics: dict[str, tuple[str, ...]] = {}
        while len(metrics) < len(self._processes):
            for process, report in self._reports():
                if isinstance(report, ProcessReady):
                    process.status = report.status
                    metrics[process.worker.name] = report.metrics
                elif not isinstance(report, ProgressMessage | Status):
                    raise self._fault or RunError(f"{process.worker.name} trained unasked")
        return metrics[self._processes[0].worker.name]

    def _start_training(self) -> None:
        """Let the first process train alone until it has compiled; the others reuse its result.

        When the run is stopped before that, the others have nothing to save, and end.
        """
        first, *others = self._processes
        if self._is_stopping:
            for process in self._processes:
                if not process.may_train:
                    process.abandon()
            return
        compiles = self.config.engine != "eager" and not first.status.learns
        first.train()
        if not compiles or first.end is not None:
            for process in others:
                process.train()

    def _stop(self) -> None:
        """Ask every process for a snapshot, once."""
        if not self._is_stopping:
            self._is_stopping, self._kill_after = True, time.monotonic() + STOP_SECONDS
            for process in self._running():
                process.stop()

    def _kill_hanging(self) -> None:
        """End processes that an environment keeps from stopping.

        One that stops leaves its environments at once, and may then take long to save.
        """
        for process in self._running() if time.monotonic() > self._kill_after else ():
            if process.job.place.position:
                process.worker.process.kill()
                process.end = ProcessEnd()
                self.progress.warn(
                    f"{process.job.place}: the environment does not return; process "
                    f"{process.worker.name} was killed and resumes from its last snapshot"
                )

    def _give_up(self, fault: BaseException) -> None:
        """The first fault is the one that is raised; the other seeds lose nothing."""
        self._fault = self._fault or fault
        self._stop()

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        """An error in the block ends the run, after the processes have saved."""
        try:
            yield
        except BaseException as error:
            if is_interrupt(error) and self._signals.received is not None:
                raise  # the second signal
            fault = run_error(error, self.folder.path, self._remedy())
            if fault is not None:
                fault.__cause__ = error
            self._give_up(fault or error)

    def _remedy(self) -> str:
        return f"`td7 resume {self.folder.path}` continues from what is saved"

    # -- reports -------------------------------------------------------------------------------

    def _receive(self) -> None:
        for process, report in self._reports():
            if isinstance(report, Status):
                process.status = report
            elif isinstance(report, TableRows):
                if report.table == "evaluations" and self.config.keep_policies:
                    self._policies.add_evaluated(process.job.path, report.rows)
                self.folder.tables[report.table].append(report.rows)
            elif isinstance(report, Probe):
                self._setup.on_probe(report)

    def _reports(self) -> Iterator[tuple[SeedProcess, Report]]:
        """Yield what the processes report now, after messages are shown and ends are noted."""
        by_connection = {process.worker.connection: process for process in self._running()}
        for connection in wait(list(by_connection), timeout=POLL_SECONDS):
            process = by_connection[connection]  # type: ignore[index]  # only connections are waited for
            for _ in range(REPORTS_AT_ONCE):
                if process.end is not None or not process.worker.connection.poll():
                    break
                report = self._report_of(process)
                if isinstance(report, ProgressMessage):
                    self._show(report)
                elif isinstance(report, ProcessEnd):
                    process.end = report
                    if report.error is not None and not report.is_finished:
                        self._give_up(self._with_run_folder(report.error, process))
                yield process, report

    def _report_of(self, process: SeedProcess) -> Report:
        try:
            report: Report = process.worker.connection.recv()
        except (EOFError, OSError):
            activity = "training" if process.may_train else "starting"
            death = worker_death(process.worker, activity)
            return ProcessEnd(RunError(f"{death}; {self._remedy()}"))
        return report

    def _show(self, message: ProgressMessage) -> None:
        if message.text not in self._messages:
            self._messages.add(message.text)
            (self.progress.warn if message.is_warning else self.progress.say)(message.text)

    def _with_run_folder(self, error: Exception, process: SeedProcess) -> Exception:
        """A process names its own folder in errors; a user resumes the run's."""
        path = self.folder.path
        text = str(error.args[0]).replace(f"td7 resume {process.job.path}`", f"td7 resume {path}`")
        error.args = (text, *error.args[1:])
        return error

    # -- what the run folder has of the processes ----------------------------------------------

    def _merge(self, *, always: bool = False) -> None:
        """Merge policies and timings if a process has saved new ones; timings are its last file."""
        files = [process.job.path / "timings.csv" for process in self._processes]
        modified = [file.stat().st_mtime_ns if file.exists() else 0 for file in files]
        if not any(modified) or (modified == self._merged_at and not always):
            return
        for process in self._processes:
            self._policies.add_saved(process.job.path)
        self.folder.write_timings(*merged_timings([file for file in files if file.exists()]))
        self._merged_at = modified

    # -- status --------------------------------------------------------------------------------

    def status(self) -> Status:
        statuses = [process.status for process in self._processes]
        return merged_status(statuses, self.config.members.ids, time.monotonic() - self._started)


# -- a process of some seeds -----------------------------------------------------------------------


class OwnerConnection:
    """The progress of a process, which sends to the owner what it would show and say."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._status_sent_at = 0.0
        self._queue: deque[Report] = deque()
        self._is_sending = False
        self._is_broken = False
        self._must_stop = False  # a signal asked for it before there was anything to stop
        # Python's own handlers, because what an environment starts would inherit blocked signals.
        for signum in stop_signals():
            signal.signal(signum, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        self._must_stop |= signum == signal.SIGTERM

    def send(self, report: Report) -> None:
        self._queue.append(report)
        if self._is_sending:  # this is a signal handler that interrupted the loop below
            return
        self._is_sending = True
        try:
            while self._queue and not self._is_broken:
                self._connection.send(self._queue.popleft())
        except OSError:  # the owner is gone: stop as if it had asked for that
            self._is_broken = True
            signal.raise_signal(signal.SIGTERM)
        finally:
            self._is_sending = False

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        if self._must_stop:  # by now the loop handles signals
            self._must_stop = False
            signal.raise_signal(signal.SIGTERM)
        if final or time.monotonic() - self._status_sent_at >= STATUS_SECONDS:
            self._status_sent_at = time.monotonic()
            self.send(status())

    @contextmanager
    def keep_showing(self, status: Callable[[], Status]) -> Iterator[None]:
        """Let the owner know once why there is no news."""
        self.send(status())
        yield

    def send_rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        del columns
        self.send(TableRows(table, rows))

    def say(self, message: str) -> None:
        self.send(ProgressMessage(message, is_warning=False))

    def warn(self, message: str) -> None:
        self.send(ProgressMessage(message, is_warning=True))

    def close(self) -> None:
        pass


def _train_seeds(connection: Connection, job: SeedJob) -> None:
    """Train the seeds of a process in its folder, and report how that ended."""
    # PyTorch starts as many compiler processes as there are cores unless this is set.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(job.compile_threads))
    Environment.current_place = job.place
    config = job.config
    torch.set_num_threads(config.threads)
    owner = OwnerConnection(connection)
    try:
        dataset, start = connection.recv()
        register_in_worker(config.task, job.script)
        setup = RunSetup(
            config=config,
            spec=job.spec,
            path=job.path,
            progress=owner,
            dataset=dataset,
            start=start,
            origins=job.origins,
            on_probe=owner.send,
            snapshot_every=job.snapshot_every,
            can_interrupt=False,  # a second signal has the owner end this process
        )
        with closing(job.make_loop(setup)) as loop:
            loop.restore()
            loop.folder.listen(owner.send_rows)
            owner.send(ProcessReady(loop.status(), loop.engine.metrics))
            connection.recv()
            loop.run()
    except EOFError:  # the owner is gone
        return
    except Stopped:
        owner.send(ProcessEnd())
    except (RunError, InputError) as error:
        owner.send(ProcessEnd(error, is_finished=isinstance(error, NoMemberLeftError)))
    except BaseException as error:  # no memory or a bug; `sys.exit` and the like in a task's code
        members = ", ".join(map(str, config.members.ids))
        details = "".join(traceback.format_exception(error))
        owner.send(
            ProcessEnd(
                RunError(f"{config.members.kind}s {members}: {describe_error(error)}", details)
            )
        )
    else:
        owner.send(ProcessEnd(is_finished=True))

"""Seeds divided among processes: on a CPU, several learners of a thread each outrun one of many.

    snapshot/process-0/    what a process keeps, as a run folder of its seeds alone

Every process trains its seeds as a run of their own, in a folder of its own, from which it also
goes on. The one that started them owns the run folder: it has their rows in its tables, their
policies beside, and is the one that users, signals and listeners know.
"""

import csv
import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from td7.datasets.dataset import Dataset
from td7.errors import InputError, RunError, Stopped, one_line
from td7.files import write_json
from td7.processes import (
    Script,
    Worker,
    available_cores,
    end_workers,
    on_signals,
    start_workers,
    worker_death,
)
from td7.rollouts.registration import register_in_worker
from td7.runs.folder import RunFolder
from td7.runs.listeners import EventFiles, Listener, ListenerFault, ListenerQueue
from td7.runs.snapshots import has_snapshot, process_folder
from td7.training.config import RunConfig
from td7.training.loop import TWICE, Training
from td7.training.loops import loop_for
from td7.training.progress import MemberStatus, Progress, Status
from td7.types import TaskSpec

LOOK_EVERY = 0.2  # seconds that the owner waits for news at most
TELL_EVERY = 0.25  # seconds between two words of how far a process is

Row = Sequence[object]


@dataclass(frozen=True)
class Ready:
    """A process has its learner, and what its folder holds; it trains when it is told to."""

    status: Status
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    message: str
    is_warning: bool


@dataclass(frozen=True)
class NewRows:
    table: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Ended:
    """The last word of a process; all that it did is in its folder."""

    error: Exception | None = None
    is_finished: bool = False  # else it was stopped


class MultiprocessTraining:
    """The owner of a run whose seeds train in processes of their own."""

    def __init__(
        self,
        config: RunConfig,
        spec: TaskSpec,
        path: Path,
        progress: Progress,
        *,
        dataset: Dataset | None,
        workers: int,
        snapshot_every: float,
        tensorboard: bool = False,
        listener: Listener | None = None,
    ) -> None:
        if workers:
            raise InputError(
                f"workers={workers} is of no use to a run in {config.processes} processes, each of "
                "which plays its own episodes; allowed: 0"
            )
        self.config = config
        self.progress = progress
        self.has_snapshot = has_snapshot(path)
        self._said: set[str] = set()  # most is said by every process
        self._signal = 0
        self._is_stopping = False
        self._fault: BaseException | None = None
        self._endings: dict[str, Ended] = {}  # worker name: its last message
        self._gathered = [0] * config.processes  # when each saved what is in the run folder
        self._saved: dict[int, int] = {}  # seed: steps of its policy
        self._learning: tuple[float, int] | None = None
        shares = [config.seeds[i :: config.processes] for i in range(config.processes)]
        self._parts = [process_folder(path, i) for i in range(config.processes)]
        with ExitStack() as opened:
            self.folder = RunFolder(path, scored=config.is_scored)
            opened.callback(self.folder.close)
            for folder in self._parts:
                folder.mkdir(parents=True, exist_ok=True)
            script = Script.current(config.task)
            # All but the first find compiled what they need.
            compilers = [len(available_cores()), *[1] * (config.processes - 1)]
            given = {
                f"td7-seeds-{','.join(map(str, seeds))}": (
                    replace(config, seeds=seeds, processes=1),
                    *(spec, folder, snapshot_every, script, compiler),
                )
                for seeds, folder, compiler in zip(shares, self._parts, compilers, strict=True)
            }
            self._workers = start_workers(_learn, given, may_have_children=True)
            # At the latest when Python ends, which would wait for them.
            opened.callback(Finalize(self, end_workers, (self._workers,), exitpriority=0))
            self._waiting = list(self._workers)  # to be told to train
            for worker in self._workers:
                with suppress(OSError):  # it died, which is found out
                    worker.connection.send(dataset)
            ready = self._wait_until_ready()
            self._statuses = [each.status for each in ready]
            self._steps_before = sum(each.steps_before for each in self._statuses)
            self.folder.add_metrics(ready[0].metrics)
            self.folder.gather(self._parts)
            if tensorboard:
                steps = {member.seed: member.steps for member in self._members()}
                events = EventFiles(path / "tensorboard", steps)
                opened.callback(events.close)
                self.folder.listen(events)
            self._told = None if listener is None else ListenerQueue(listener)
            if self._told is not None:
                self.folder.listen(self._told)
            self._opened = opened.pop_all()
        self._started = time.monotonic()

    @property
    def begun(self) -> int:
        """Steps that every seed has made before."""
        return min(member.steps for member in self._members())

    def close(self) -> None:
        self._opened.close()

    def run(self) -> None:
        """Trains to the end, or raises `Stopped` after a signal, or what went wrong."""
        try:
            self.folder.begin()
            with self._signals():
                while self._running():
                    self._let_train()
                    with self._lasting():
                        self._hear()
                        self._pass_on()
                        self._gather()
                    self.progress.show(self.status)
            with self._lasting():
                self._gather(always=True)
                if self._is_finished() and self._fault is None:
                    self.folder.finish(self.config.steps)
            if self._fault is not None:
                raise self._fault
            if not self._is_finished():
                raise Stopped(self._signal or signal.SIGTERM, self.folder.path)
            self.progress.show(self.status, final=True)
        finally:
            self.close()

    @contextmanager
    def _lasting(self) -> Iterator[None]:
        """What cannot be written here ends the run; the processes have it, and save it."""
        try:
            yield
        except OSError as error:
            fault = f"cannot write to {self.folder.path}: {error.strerror or error}"
            self._give_up(RunError(f"{fault}; {self._remedy()}"))

    def _remedy(self) -> str:
        return f"`td7 resume {self.folder.path}` goes on from what is saved"

    def _is_finished(self) -> bool:
        return all(self._endings[worker.name].is_finished for worker in self._workers)

    # -- the processes -------------------------------------------------------------------------

    def _wait_until_ready(self) -> list[Ready]:
        ready: dict[str, Ready] = {}
        while len(ready) < len(self._workers):
            for worker, news in self._news():
                if isinstance(news, Ready):
                    ready[worker.name] = news
                elif not isinstance(news, Said):
                    raise self._fault or RunError(f"{worker.name} trained unasked")
        return [ready[worker.name] for worker in self._workers]

    def _let_train(self) -> None:
        """One process first: what it compiles, the others find compiled.

        Those that wait when the run is stopped have nothing new, and end.
        """
        if self._is_stopping:
            for worker in self._waiting:
                self._endings.setdefault(worker.name, Ended())
                worker.connection.close()
            self._waiting = []
        first, *others = self._workers
        compiles = self.config.engine != "eager" and not self._statuses[0].learning
        only_first = compiles and first.name not in self._endings
        for worker in [first] if only_first else [first, *others]:
            if worker in self._waiting:
                self._waiting.remove(worker)
                with suppress(OSError):  # it died, which is found out
                    worker.connection.send(None)

    def _running(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.name not in self._endings]

    def _hear(self) -> None:
        for worker, news in self._news():
            if isinstance(news, Status):
                self._statuses[self._workers.index(worker)] = news
                if self._learning is None and all(each.learning for each in self._statuses):
                    steps = sum(member.steps for member in self._members())
                    self._learning = self._seconds(), steps
            elif isinstance(news, NewRows):
                if self.config.keep_policies:  # those of an evaluation are there before its rows
                    self._take_kept(self._parts[self._workers.index(worker)])
                self.folder.tables[news.table].append(news.rows)

    def _news(self) -> Iterator[tuple[Worker, Any]]:
        """Messages of the processes, in the order in which each sent its own."""
        by_connection = {worker.connection: worker for worker in self._running()}
        for connection in wait(list(by_connection), timeout=LOOK_EVERY):
            worker = by_connection[connection]  # type: ignore[index]  # only connections are waited for
            while worker.name not in self._endings and worker.connection.poll():
                news = self._heard(worker)
                if isinstance(news, Said):
                    self._say(news)
                elif isinstance(news, Ended):
                    self._endings[worker.name] = news
                    if news.error is not None:
                        self._give_up(self._in_own_words(news.error, worker))
                yield worker, news

    def _heard(self, worker: Worker) -> Any:
        try:
            return worker.connection.recv()
        except (EOFError, OSError):
            doing = "starting" if worker in self._waiting else "training"
            return Ended(RunError(f"{worker_death(worker, doing)}; {self._remedy()}"))

    def _say(self, news: Said) -> None:
        if news.message not in self._said:
            self._said.add(news.message)
            (self.progress.warn if news.is_warning else self.progress.say)(news.message)

    def _in_own_words(self, error: Exception, worker: Worker) -> Exception:
        """A process knows its own folder only; a user resumes the run's."""
        own = self._parts[self._workers.index(worker)]
        text = str(error.args[0]).replace(f"td7 resume {own}`", f"td7 resume {self.folder.path}`")
        error.args = (text, *error.args[1:])
        return error

    def _give_up(self, fault: BaseException) -> None:
        """What happened first is what is raised; the other seeds lose nothing."""
        self._fault = self._fault or fault
        self._stop()

    def _stop(self) -> None:
        """Asks every process for a snapshot."""
        if not self._is_stopping:
            self._is_stopping = True
            for worker in self._running():
                if worker.process.pid is not None and worker.process.is_alive():
                    os.kill(worker.process.pid, signal.SIGTERM)

    def _pass_on(self) -> None:
        if self._told is None:
            return
        try:
            self._told.pass_on()
        except ListenerFault as fault:
            self._told = None
            if isinstance(fault.raised, KeyboardInterrupt) and self._signal:
                raise  # it insists
            self._give_up(fault)

    def _signals(self) -> AbstractContextManager[None]:
        """SIGINT and SIGTERM are passed on, once; a second one insists."""
        asked = 0.0

        def ask(signum: int, frame: FrameType | None) -> None:
            nonlocal asked
            if not self._signal:
                self._signal, asked = signum, time.monotonic()
                self._stop()
            elif time.monotonic() - asked > TWICE:
                raise KeyboardInterrupt

        return on_signals(ask)

    # -- what they made ------------------------------------------------------------------------

    def _gather(self, *, always: bool = False) -> None:
        """Policies and timings, when a process has saved new ones: timings are its last file."""
        files = [folder / "timings.csv" for folder in self._parts]
        saved = [file.stat().st_mtime_ns if file.exists() else 0 for file in files]
        if not any(saved) or (saved == self._gathered and not always):
            return
        for folder in self._parts:
            self._take_kept(folder)
            self._take_policies(folder / "policy", self.folder.path / "policy")
        rows = []
        for file in files:
            if file.exists():
                with file.open() as text:
                    rows.append(list(csv.DictReader(text)))
        phases = [row["phase"] for row in rows[0]]
        # They run side by side: the longest is what passed by the clock.
        seconds = [max(float(row["seconds"]) for row in found) for found in zip(*rows, strict=True)]
        times = [sum(int(row["times"]) for row in found) for found in zip(*rows, strict=True)]
        self.folder.write_timings(
            dict(zip(phases, seconds, strict=True)), dict(zip(phases, times, strict=True))
        )
        self._gathered = saved

    def _take_kept(self, folder: Path) -> None:
        """Policies of earlier steps that a process kept."""
        for source in sorted(folder.glob("policies/*")):
            if any(source.glob("seed-*.safetensors")):
                self._take_policies(source, self.folder.path / source.relative_to(folder))

    def _take_policies(self, source: Path, target: Path) -> None:
        """Files move; policy.json, which comes after them, tells of all seeds."""
        if not (source / "policy.json").exists():
            return
        target.mkdir(parents=True, exist_ok=True)
        for file in source.glob("seed-*.safetensors"):
            file.replace(target / file.name)
        description = json.loads((source / "policy.json").read_text())
        if isinstance(description["steps"], list):
            self._saved |= dict(zip(description["seeds"], description["steps"], strict=True))
            description["steps"] = [self._saved.get(seed, 0) for seed in self.config.seeds]
        description["seeds"] = list(self.config.seeds)
        write_json(target / "policy.json", description)

    # -- watching ------------------------------------------------------------------------------

    def _members(self) -> list[MemberStatus]:
        found = {member.seed: member for status in self._statuses for member in status.members}
        return [found[seed] for seed in self.config.seeds]

    def status(self) -> Status:
        return replace(
            self._statuses[0],
            seconds=self._seconds(),
            steps_before=self._steps_before,
            learning=self._learning,
            members=self._members(),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._started


# -- in a process of its own -----------------------------------------------------------------------


class Relay:
    """What a process would show and say, to the one that started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._told = 0.0
        self._queue: deque[object] = deque()
        self._is_sending = False
        self._is_alone = False
        self._is_asked = False  # to stop, before there was anything to stop
        # Python's own handlers, as what an environment starts would inherit blocked signals.
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGTERM, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

    def _note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        self._is_asked |= signum == signal.SIGTERM

    def send(self, news: object) -> None:
        self._queue.append(news)
        if self._is_sending:  # and this is a signal's handler, in the middle of it
            return
        self._is_sending = True
        try:
            while self._queue and not self._is_alone:
                self._connection.send(self._queue.popleft())
        except OSError:  # nobody is there any more: as if asked to stop
            self._is_alone = True
            signal.raise_signal(signal.SIGTERM)
        finally:
            self._is_sending = False

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        if self._is_asked:  # by now there is someone to handle it
            self._is_asked = False
            signal.raise_signal(signal.SIGTERM)
        if final or time.monotonic() - self._told >= TELL_EVERY:
            self._told = time.monotonic()
            self.send(status())

    def rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        del columns
        self.send(NewRows(table, rows))

    def say(self, message: str) -> None:
        self.send(Said(message, is_warning=False))

    def warn(self, message: str) -> None:
        self.send(Said(message, is_warning=True))

    def close(self) -> None:
        pass


def _learn(
    connection: Connection,
    config: RunConfig,
    spec: TaskSpec,
    path: Path,
    snapshot_every: float,
    script: Script,
    compilers: int,
) -> None:
    """A process: trains its seeds in its folder, and says what becomes of them.

    PyTorch compiles in so many processes of its own; in as many as there are cores, if it is let.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(compilers))
    torch.set_num_threads(config.threads)
    relay = Relay(connection)
    try:
        dataset = connection.recv()
        register_in_worker(config.task, script)
        loop: Training = loop_for(config, dataset)(
            config, spec, path, relay, workers=0, snapshot_every=snapshot_every
        )
        loop.can_be_hurried = False  # whoever hurries the owner has it end this process
        try:
            loop.folder.listen(relay.rows)
            relay.send(Ready(loop.status(), loop.engine.metrics))
            connection.recv()
            loop.run()
        finally:
            loop.close()
    except EOFError:  # nobody is there any more
        return
    except Stopped:
        relay.send(Ended())
    except (RunError, InputError) as error:
        relay.send(Ended(error))
    except (OSError, MemoryError) as error:
        relay.send(Ended(RunError(f"seeds {', '.join(map(str, config.seeds))}: {one_line(error)}")))
    else:
        relay.send(Ended(is_finished=True))

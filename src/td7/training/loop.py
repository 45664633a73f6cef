"""What every training loop shares: its config, its parts, evaluation, tables, snapshots, signals.

The loops themselves are `asynchronous` (members with checkpoints, each on its own clock),
`lockstep` (members without, one time step and one update at a time) and `offline` (given data).
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td7.algorithms import algorithm
from td7.datasets.scores import score
from td7.engine.cuda import Fetch
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.errors import EnvironmentFault, RunError, Stopped
from td7.processes import on_signals
from td7.rollouts.episodes import EvaluationResult, EvaluationTask
from td7.rollouts.pool import make_executor
from td7.runs import policies
from td7.runs.folder import Keep, RunFolder
from td7.runs.listeners import EventFiles, Listener, ListenerFault, ListenerQueue
from td7.runs.record import versions
from td7.runs.snapshots import Snapshot, Snapshots
from td7.training.config import RunConfig, check_same
from td7.training.member import Member
from td7.training.progress import MemberStatus, Progress, Status
from td7.training.timing import Clock
from td7.types import AnyFloat, Float64, RowLayout, TaskSpec

TWICE = 0.3  # seconds between signals that are two
WARM = 10  # updates of every seed, after which all that compiles or captures has


class Training(ABC):
    """One run: builds its parts, goes on from a snapshot if there is one, trains to the end."""

    def __init__(
        self,
        config: RunConfig,
        spec: TaskSpec,
        path: Path,
        progress: Progress,
        *,
        workers: int,
        snapshot_every: float,
        tensorboard: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self.config = config
        self.spec = spec
        self.progress = progress
        self.can_be_hurried = True  # by a second signal, which costs the snapshot
        self.clock = Clock()
        self._snapshot_every = snapshot_every
        self._signal: int | None = None
        self._is_warned = False  # that episodes do not repeat
        chosen = algorithm(config.algorithm)
        self._counted = time.monotonic()  # the total goes on from here
        with self.clock.phase("setup"), ExitStack() as opened:
            self.folder = RunFolder(path, scored=config.is_scored)
            opened.callback(self.folder.close)
            self.snapshots = Snapshots(path / "snapshot", progress.warn)
            c = config.hyperparameters
            device = torch.device(config.device)
            dtype = getattr(torch, config.precision)
            self.learner = chosen.learner(c, spec, config.seeds, device, dtype)
            self.replay = Replay(
                RowLayout(spec.state_dim, spec.action_dim),
                config.replay_rows,
                len(config.seeds),
                device,
                dtype,
                rows_on_host=config.replay_device != config.device,
                shared=config.dataset is not None,
            )
            self._fill_replay()
            self.engine = Engine(
                self.learner,
                self.replay,
                c.batch_size,
                config.seeds,
                config.engine,
                warn=progress.warn,
                say=progress.say,
            )
            self.folder.add_metrics(self.engine.metrics)
            self.members = [Member(seed) for seed in config.seeds]
            # The initial policies are the first checkpoints.
            self.checkpoints = list(self.learner.policies().to("cpu", copy=True).numpy())
            self._metrics: deque[tuple[int, int, int, Fetch]] = deque()  # seed, step, update
            self._due: deque[tuple[int, int, Fetch]] = deque()  # evaluations: seed, step, policy
            self.executor = make_executor(
                config.task, self.learner.policy_network, workers, progress.warn
            )
            opened.callback(self.executor.close)
            self._restore(self.snapshots.load())
            if tensorboard:
                steps = {member.seed: member.steps for member in self.members}
                events = EventFiles(path / "tensorboard", steps)
                opened.callback(events.close)
                self.folder.listen(events)
            self._told = None if listener is None else ListenerQueue(listener)
            self._listened = 0.0  # seconds that it took
            if self._told is not None:
                self.folder.listen(self._told)
            self._opened = opened.pop_all()
        self._evaluates_here = workers == 0
        self._updates_before = list(self.engine.updates)
        self._learned: tuple[float, int] | None = None  # when, updates of all seeds
        self._steps_before = sum(member.steps for member in self.members)
        self._learning: tuple[float, int] | None = None  # since when, at how many steps
        self._started = self._last_snapshot = time.monotonic()

    def run(self) -> None:
        """Trains to the end, or raises `Stopped` after a signal, or what went wrong."""
        try:
            self.folder.begin()
            with self._signals():
                while not self._is_finished():
                    self._advance_or_save()
                    self._pass_on()
                    self._time_learning()
                    self.progress.show(self.status)
                    self._snapshot_if_due()
                self._save()
                self._pass_on()
                self.folder.finish(self.config.steps)
                self.progress.show(self.status, final=True)
        except (Stopped, RunError):
            if self._told is not None:
                self._told.pass_on()  # what came with the snapshot
            raise
        except OSError as error:
            path = self.folder.path
            raise RunError(
                f"cannot write to {path}: {error.strerror or error}; "
                + (
                    f"the last snapshot is kept, `td7 resume {path}` goes on from it"
                    if self.snapshots.exist()
                    else f"there is no snapshot yet, `td7 resume {path}` starts anew"
                )
            ) from error
        finally:
            self.close()

    def _advance_or_save(self) -> None:
        """What an environment does wrong costs nothing of what was learned."""
        try:
            self._advance()
            self._give_evaluations(wait=all(member.finished for member in self.members))
        except EnvironmentFault as fault:
            try:
                self._save()
            except (OSError, RunError):  # what was saved before is there still
                raise fault from None
            raise EnvironmentFault(
                f"{fault}; all before it is saved, `td7 resume {self.folder.path}` tries it again",
                fault.details,
            ) from fault

    def _pass_on(self) -> None:
        """New rows to the caller's function. What it raises ends the run, and costs nothing."""
        if self._told is None:
            return
        begin = time.perf_counter()
        try:
            self._told.pass_on()
        except ListenerFault as fault:
            self._told = None
            insists = isinstance(fault.raised, KeyboardInterrupt) and self._signal is not None
            if not insists:
                self._save()
            raise
        self._listened += time.perf_counter() - begin

    @property
    def begun(self) -> int:
        """Steps that every seed has made before."""
        return min(member.steps for member in self.members)

    @property
    def has_snapshot(self) -> bool:
        return self.snapshots.exist()

    def close(self) -> None:
        self._opened.close()

    def _time_learning(self) -> None:
        """The phase "learn": seconds by the clock of all seeds' updates, and how many.

        Of the second half of the steps, so that neither exploring at random nor compiling counts.
        """
        if self._learning is None and self.engine.updates != self._updates_before:
            steps = sum(member.steps for member in self.members)
            self._learning = time.monotonic() - self._started, steps
        now, updates = self._learning_clock(), sum(self.engine.updates)
        if self._learned is None:
            if self._is_under_way():
                self._learned = now, updates
        elif updates > self._learned[1]:  # what follows the last update does not count
            since, before = self._learned
            self.clock.add("learn", now - since, updates - before)
            self._learned = now, updates

    def _learning_clock(self) -> float:
        """Seconds; it stands still in snapshots, while the caller's function runs, and in
        evaluations unless they run beside.
        """
        still = self.clock.seconds["snapshot"] + self._listened
        if self._evaluates_here:
            still += self.clock.seconds["evaluate"]
        return time.perf_counter() - still

    def _is_under_way(self) -> bool:
        pairs = zip(self.engine.updates, self._updates_before, strict=True)
        warm = all(now - before >= WARM for now, before in pairs)
        return warm and all(2 * member.steps >= self.config.steps for member in self.members)

    def _is_finished(self) -> bool:
        return all(member.finished for member in self.members) and not self.executor.pending

    # -- what a loop adds ----------------------------------------------------------------------

    def _fill_replay(self) -> None:
        """With what there is before the first step; nothing, unless data are given."""
        return

    @abstractmethod
    def _advance(self) -> None:
        """A little of everything there is to do."""

    @abstractmethod
    def _test_policy(self, m: int) -> Fetch:
        """The flat weights that an evaluation of the member tests now."""

    @abstractmethod
    def _doing(self, member: Member) -> str:
        """What a member that is not finished is doing, in words."""

    def _own_tensors(self) -> dict[str, Tensor]:
        """What a loop's snapshot holds besides what all have."""
        return {}

    def _restore_own(self, tensors: Mapping[str, Tensor]) -> None:
        """And how it comes back, after all else has."""
        del tensors

    # -- evaluation and metrics ----------------------------------------------------------------

    def _take_evaluation(self, done: EvaluationResult) -> None:
        member = self.members[self.config.seeds.index(done.task.seed)]
        rows: list[tuple[object, ...]] = [
            (member.seed, done.task.step, i, repr(e.episode_return), e.length)
            for i, e in enumerate(done.episodes)
        ]
        if (scores := self._scores([e.episode_return for e in done.episodes])) is not None:
            rows = [(*row, repr(float(one))) for row, one in zip(rows, scores, strict=True)]
        self.folder.tables["evaluations"].append(rows)
        self.clock.add("evaluate", done.seconds)
        if not (done.is_reproducible or self._is_warned):
            self._is_warned = True
            self.progress.warn(
                f"task {self.config.task.id}: an episode does not follow from its reset seed and "
                "actions alone (does a wrapper keep statistics, does reset ignore its seed?); it "
                "trains, but neither resumes exactly nor repeats its evaluations"
            )
        if done.task.step > member.evaluation_step:  # workers may answer out of order
            member.evaluation_step = done.task.step
            member.evaluation = float(np.mean([e.episode_return for e in done.episodes]))

    def _take_evaluations(self, *, block: bool) -> None:
        """Where no other task is given."""
        for done in self.executor.completed(block=block):
            if not isinstance(done, EvaluationResult):
                raise TypeError(f"{done} is not an evaluation")
            self._take_evaluation(done)

    def _scores(self, returns: Sequence[float]) -> Float64 | None:
        """D4RL's, of agents that learn from data, on tasks that have one."""
        return score(self.config.task.id, returns) if self.config.dataset else None

    def _evaluate_until(self, m: int, step: int) -> None:
        """Asks for the evaluations due up to and including time step `step`."""
        member = self.members[m]
        while member.next_evaluation <= step:
            self._due.append((member.seed, member.next_evaluation, self._test_policy(m)))
            member.next_evaluation += self.config.evaluate_every
        self._give_evaluations(wait=False)

    def _give_evaluations(self, *, wait: bool) -> None:
        """Those whose policies have arrived; with `wait`, all."""
        c = self.config
        while self._due and (wait or self._due[0][-1].is_ready()):
            seed, step, fetch = self._due.popleft()
            policy = fetch.value()
            if c.keep_policies and step % c.keep_policies == 0:
                self._save_policies(
                    policies.kept_policies(self.folder.path, step), {seed: policy}, step
                )
            self.executor.submit(EvaluationTask(seed, step, c.evaluation_episodes, policy))

    def _save_policies(
        self, folder: Path, found: Mapping[int, AnyFloat], steps: int | list[int]
    ) -> None:
        record = {
            "algorithm": self.config.algorithm,
            "exploration": asdict(self.learner.exploration),
            "steps": steps,
        }
        network, seeds = self.learner.policy_network, self.config.seeds
        policies.save(folder, self.spec, network, found, record, seeds)

    def _fetch_metrics_if_due(self, m: int) -> None:
        member, updates = self.members[m], self.engine.updates[m]
        if updates % self.config.metrics_every == 0:
            metrics = self.engine.fetch_metrics(m)
            self._metrics.append((member.seed, member.steps, updates, metrics))

    def _write_metrics(self, *, wait: bool) -> None:
        """Rows of the metrics that have arrived; with `wait`, of all."""
        while self._metrics and (wait or self._metrics[0][-1].is_ready()):
            *key, fetch = self._metrics.popleft()
            row = (*key, *(repr(float(value)) for value in fetch.value()))
            self.folder.tables["metrics"].append([row])

    # -- snapshots -----------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        waited = time.monotonic() - self._last_snapshot
        due = self._snapshot_every > 0 and waited >= 60 * self._snapshot_every
        if self._signal is not None or due:
            self._save()
        if self._signal is not None:
            raise Stopped(self._signal, self.folder.path)

    def _save(self) -> None:
        """A snapshot of this moment, and the policies beside it."""
        self._write_metrics(wait=True)
        self._give_evaluations(wait=True)
        self.engine.check()  # what is not finite is not worth going on with
        now = time.monotonic()
        self.clock.add("total", now - self._counted)
        self._counted = now
        with self.clock.phase("snapshot"):
            evaluations = [t for t in self.executor.pending if isinstance(t, EvaluationTask)]
            tensors = self._tensors()
            for i, task in enumerate(evaluations):
                tensors[f"pending_evaluation.{i}"] = torch.from_numpy(task.policy)
            members = {
                "config": self.config.to_json(),
                "versions": versions(),
                "seeds": list(self.config.seeds),
                "members": [member.to_json() for member in self.members],
                "updates": self.engine.updates,
                "rows_added": self.replay.added,
                "pending_evaluations": [
                    {"seed": t.seed, "step": t.step, "episodes": t.episodes} for t in evaluations
                ],
                "table_rows": self.folder.counts(),
                "seconds": self.clock.seconds,
                "times": self.clock.times,
            }
            self.snapshots.save(tensors, members, self.replay)
            self._save_policies(
                self.folder.path / "policy",
                {seed: self._test_policy(m).value() for m, seed in enumerate(self.config.seeds)},
                [member.steps for member in self.members],
            )
        self.folder.write_timings(self.clock.seconds, self.clock.times)
        self._last_snapshot = time.monotonic()

    def _stacked(self) -> dict[str, Tensor]:
        """Tensors [S, ...] that are filled again on resume."""
        parts = {"learner": self.learner.state(), "engine": self.engine.state()}
        return {
            f"{part}.{name}": tensor
            for part, state in parts.items()
            for name, tensor in state.items()
        }

    def _tensors(self) -> dict[str, Tensor]:
        tensors = self._stacked()
        for m, member in enumerate(self.members):
            tensors[f"checkpoint.{member.seed}"] = torch.from_numpy(self.checkpoints[m])
            priorities = self.replay.leaves[m, : self.replay.size(m)]
            tensors[f"replay.priorities.{member.seed}"] = priorities
            tensors[f"replay.max_priority.{member.seed}"] = self.replay.max_priority[m]
        return {**tensors, **self._own_tensors()}

    def _restore(self, snapshot: Snapshot | None) -> None:
        """The state of a snapshot; without one, the start."""
        if snapshot is None:
            self.folder.cut_back({}, {})
            return
        saved = snapshot.members
        check_same(self.config.to_json(), saved["config"])
        for name, version in versions().items():
            before = saved["versions"].get(name, version)  # older ones do not tell all
            if before != version:
                what = "td7's source" if name == "source" else name
                self.progress.warn(
                    f"this run began with {what} {before}, here is {version}: it goes on, but "
                    "perhaps not bit for bit"
                )
        self.members = [Member.from_json(member) for member in saved["members"]]
        for m, member in enumerate(self.members):
            self.checkpoints[m] = snapshot.tensors[f"checkpoint.{member.seed}"].numpy()
            self.replay.restore(
                m,
                self.snapshots.rows(snapshot, member.seed),
                saved["rows_added"][m],
                snapshot.tensors[f"replay.priorities.{member.seed}"],
                snapshot.tensors[f"replay.max_priority.{member.seed}"],
            )
        for name, tensor in self._stacked().items():
            tensor.copy_(snapshot.tensors[name])
        self.engine.restore(saved["updates"])
        self._restore_own(snapshot.tensors)
        self._cut_tables_back(saved)
        self.clock.seconds |= saved["seconds"]
        self.clock.times |= saved["times"]
        for i, task in enumerate(saved["pending_evaluations"]):
            policy = snapshot.tensors[f"pending_evaluation.{i}"].numpy()
            self.executor.submit(EvaluationTask(**task, policy=policy))

    def _cut_tables_back(self, saved: Mapping[str, Any]) -> None:
        """The tables' rows of before the snapshot, in whatever order they are by now."""
        members = {member.seed: member for member in self.members}
        updates = dict(zip(self.config.seeds, saved["updates"], strict=True))
        pending = {(task["seed"], task["step"]) for task in saved["pending_evaluations"]}
        keep: dict[str, Keep] = {
            "evaluations": lambda seed, step, _: (
                step < members[seed].next_evaluation and (seed, step) not in pending
            ),
            "episodes": lambda seed, step, _: step <= members[seed].steps,
            "metrics": lambda seed, _, update: update <= updates[seed],
        }
        self.folder.cut_back(keep, saved["table_rows"])

    # -- watching ------------------------------------------------------------------------------

    def status(self) -> Status:
        return Status(
            title=f"{self.config.algorithm} {self.config.task.id}",
            step_unit=self.config.step_unit,
            target=self.config.steps,
            seconds=time.monotonic() - self._started,
            steps_before=self._steps_before,
            learning=self._learning,
            members=[self._member_status(m) for m in range(len(self.members))],
        )

    def _member_status(self, m: int) -> MemberStatus:
        member = self.members[m]
        return MemberStatus(
            seed=member.seed,
            steps=self.config.steps if member.finished else member.steps,
            updates=self.engine.updates[m],
            doing="finished" if member.finished else self._doing(member),
            evaluation=member.evaluation,
            best=member.assessment.best,
        )

    def _signals(self) -> AbstractContextManager[None]:
        """SIGINT and SIGTERM ask for a stop at the next consistent point; a second one insists."""
        asked = 0.0

        def ask(signum: int, frame: FrameType | None) -> None:
            nonlocal asked
            if self._signal is not None:
                # `timeout` and others signal a process and its group: that is one wish, not two.
                if self.can_be_hurried and time.monotonic() - asked > TWICE:
                    raise KeyboardInterrupt
                return
            self._signal, asked = signum, time.monotonic()
            first = "when compiling is done, " if self.engine.is_compiling else ""
            self.progress.say(
                f"stopping: {first}writing a snapshot (once more to stop without one)"
            )
            self.executor.abandon()  # an episode may be long, and can be played again

        return on_signals(ask)

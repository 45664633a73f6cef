"""What every training loop is, and what those that train in one process share.

The loops are `checkpointed` (members with checkpoints, each on its own clock), `lockstep` (members
without, one time step and one update at a time) and `offline` (updates on a dataset);
`multiprocess` runs one of them in each of several processes.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from td7.datasets.scores import score
from td7.engine.cuda import Fetch
from td7.errors import NoMemberLeftError, Stopped, one_line
from td7.rollouts.episodes import (
    DivergedResult,
    EpisodeResult,
    EvaluationResult,
    EvaluationTask,
    TaskResult,
)
from td7.runs.snapshots import Snapshot
from td7.training.content import check_content
from td7.training.faults import close_all, is_interrupt, reason, run_error
from td7.training.listeners import RunListeners
from td7.training.parts import RunParts, RunSetup
from td7.training.policy_folders import PolicyFolders
from td7.training.progress import MemberStatus, Status, duration
from td7.training.restack import restack
from td7.training.retirement import Retirement
from td7.training.signals import StopSignals
from td7.training.state import (
    policy_tensors,
    restore_outputs,
    restore_state,
    state_record,
    state_tensors,
    warn_of_versions,
)
from td7.training.timing import LearningTimer
from td7.types import AnyFloat


class Loop(Protocol):
    """Trains one run: `restore` once, then `run` once; `close` in any case."""

    def restore(self) -> bool:
        """Load the newest snapshot; return whether there is one. Without, the run starts anew."""
        ...

    def run(self) -> None:
        """Train to the last step and close, or raise `Stopped` after a signal."""
        ...

    def status(self) -> Status: ...

    def close(self) -> None: ...


class DueEvaluation(NamedTuple):
    m: int  # the position of its member
    step: int
    policy: Fetch  # flat weights


class DueMetrics(NamedTuple):
    member: int  # its id
    step: int
    update: int
    values: Fetch


class SingleProcessTraining(ABC):
    """A loop whose learner runs in this process. A subclass decides who acts and updates when."""

    _has_checkpoints = False

    def __init__(self, setup: RunSetup, parts: RunParts) -> None:
        self.config = setup.config
        self.spec = setup.spec
        self.progress = setup.progress
        self.clock = parts.clock
        self.folder = parts.folder
        self.snapshots = parts.snapshots
        self.learner = parts.learner
        self.replay = parts.replay
        self.engine = parts.engine
        self.executor = parts.executor
        self.members = parts.members
        self.checkpoints = parts.checkpoints
        self._setup = setup
        self._parts = parts
        self._explorations = parts.learner.explorations()
        self._signals = StopSignals(self._announce_stop, can_interrupt=setup.can_interrupt)
        self._listeners = RunListeners(setup)
        self._retirement = Retirement(self.config, self.members, self.engine, self.progress.warn)
        self._policy_folders = PolicyFolders(self.folder.path, self.config, self.spec, self.learner)
        self._metrics: deque[DueMetrics] = deque()
        self._evaluations: deque[DueEvaluation] = deque()
        self._results: deque[TaskResult] = deque()  # that are not recorded
        self._has_warned_of_episodes = False
        self._learns = False  # it has made updates
        self._is_consistent = True  # False within `_changing`, and once that has failed
        self._is_saved = False  # the newest snapshot holds everything trained so far
        self._saved_steps: int | None = None  # of the newest snapshot's slowest seed
        self.engine.watch_compiler(lambda: self.progress.keep_showing(self.status))
        self._begin()

    def _begin(self) -> None:
        """Count from the members' present steps and updates on."""
        self._updates_before = list(self.engine.updates)
        self._timer = LearningTimer(
            self.clock,
            self.config.steps,
            self.engine.updates,
            evaluates_here=self._setup.workers == 0,
        )
        self._started = self._last_snapshot = time.monotonic()

    def restore(self) -> bool:
        with self.clock.phase("setup", times=0):  # which building the parts began
            snapshot = self.snapshots.load(self._check)
            if snapshot is None:
                self.folder.cut_back({}, {})
                if self._setup.origins:
                    restack(self._parts, self._setup.origins, self._restore_own, self.progress.warn)
            else:
                warn_of_versions(snapshot.members, self.progress.warn)
                restore_state(self._parts, snapshot, partial(self.snapshots.rows, snapshot))
                self._restore_own(snapshot.tensors)
                restore_outputs(self.config, self._parts, snapshot)
        self._begin()
        if snapshot is not None:
            self._saved_steps = self._fewest_steps()
        elif self._setup.start is not None or self._setup.origins:
            self._save()  # from now on the run does not need those that it starts from
        return snapshot is not None

    def _check(self, snapshot: Snapshot) -> None:
        """Raise unless the run can continue from a snapshot; nothing is restored yet."""
        check_content(self.config, self._parts, self._own_tensors(), snapshot)

    def run(self) -> None:
        try:
            steps = {member.id: member.steps for member in self.members}
            with self._signals.handled(), self._listeners.attached(self.folder, steps):
                self._run()
        finally:
            self.close()

    def _run(self) -> None:
        try:
            self._train_to_the_end()
        except (Stopped, NoMemberLeftError):
            raise
        except BaseException as error:
            if is_interrupt(error) and self._signals.received is not None:
                raise  # the second signal stops without a snapshot
            outcome = self._save_after(error)
            fault = run_error(error, self.folder.path, outcome)
            if fault is not None:
                raise fault from error
            (self.progress.say if self._is_saved else self.progress.warn)(outcome)
            raise

    def _train_to_the_end(self) -> None:
        self.folder.begin()
        self.progress.show(self.status)
        while not self._is_finished():
            self._is_saved = False
            self._advance()
            self._submit_evaluations(wait=all(member.finished for member in self.members))
            self._deliver_rows()
            self._time_learning()
            self.progress.show(self.status)
            self._snapshot_if_due()
        self._save()
        self._deliver_rows()
        self._retirement.check_any_left()
        self.folder.finish(self.config.steps)
        self.progress.show(self.status, final=True)

    def close(self) -> None:
        close_all(self._parts.resources, self.progress.warn)

    def _is_finished(self) -> bool:
        return all(member.finished for member in self.members) and not self.executor.pending

    def _acts_at_random(self, m: int) -> bool:
        """Whether random actions come before training; a run that starts from another has none."""
        return self.config.start_from is None and self._is_before_training(m)

    def _is_before_training(self, m: int) -> bool:
        return self.members[m].steps < self.config.online_of(m).random_steps

    def _fewest_steps(self) -> int:
        steps = (member.steps for member in self.members if not member.fault)
        return min(steps, default=self.config.steps)

    def _deliver_rows(self) -> None:
        """Pass new rows to the user's listener. Its exception ends the run."""
        begin = time.perf_counter()
        self._listeners.deliver()
        self._timer.exclude(time.perf_counter() - begin)

    # -- errors --------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A change of several parts of the state: an error within it leaves nothing to save.

        What is likely to fail, such as writing to a table, belongs before it.
        """
        before, self._is_consistent = self._is_consistent, False
        yield
        self._is_consistent = before

    def _save_after(self, error: BaseException) -> str:
        """Save after an error, if the state is consistent; return what a user can do."""
        resume, problem = f"`td7 resume {self.folder.path}`", ""
        if self._is_consistent and not self._is_saved:
            try:
                self._save()
            except BaseException as another:  # the first error is the one to report
                if reason(another) != reason(error):
                    problem = f"saving failed ({one_line(another)}); "
        if self._is_saved:
            return f"everything trained so far is saved, {resume} tries again"
        if self._saved_steps is None:
            return f"{problem}there is no snapshot yet, {resume} starts anew"
        return (
            f"{problem}{resume} continues from the last snapshot, at {self._saved_steps:,} "
            f"{self.config.step_unit}, {duration(time.monotonic() - self._last_snapshot)} ago"
        )

    def _time_learning(self) -> None:
        steps = [member.steps for member in self.members]
        ended = [m for m, member in enumerate(self.members) if member.fault]
        self._learns = self._learns or self.engine.updates != self._updates_before
        self._timer.record(steps, self.engine.updates, ended)

    def _announce_stop(self) -> None:
        """After a signal: the run stops at the next consistent point."""
        compiling = "waiting for compilation, then " if self.engine.compiling_since else ""
        self.progress.say(
            f"stopping: {compiling}writing a snapshot (a second signal stops without one)"
        )
        self.engine.stop()
        self.executor.abandon()  # an episode may be long, and can be played again

    # -- what a subclass adds ------------------------------------------------------------------

    @abstractmethod
    def _advance(self) -> None:
        """Take one short turn: collect, update and evaluate a little."""

    @abstractmethod
    def _evaluated_policy(self, m: int) -> Fetch:
        """The flat weights that an evaluation of the member uses now."""

    @abstractmethod
    def _activity(self, m: int) -> str:
        """What a member that has not finished is doing, for the user."""

    def _own_tensors(self) -> dict[str, Tensor]:
        """What a loop's snapshot holds in addition to what all loops' do."""
        return {}

    def _restore_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore these, after `restore_state`."""
        del tensors

    # -- evaluation and metrics ----------------------------------------------------------------

    def _schedule_evaluations(self, m: int, step: int) -> None:
        """Schedule the evaluations due up to and including time step `step`."""
        member = self.members[m]
        while member.next_evaluation <= step and not member.fault:
            policy = self._evaluated_policy(m)
            self._evaluations.append(DueEvaluation(m, member.next_evaluation, policy))
            member.next_evaluation += self.config.evaluate_every
        self._submit_evaluations(wait=False)

    def _submit_evaluations(self, *, wait: bool) -> None:
        """Submit those whose policies have arrived from the device; with `wait`, all."""
        c = self.config
        while self._evaluations and (wait or self._evaluations[0].policy.is_ready()):
            m, step, fetch = self._evaluations[0]
            policy = self._retirement.weights(m, fetch)
            if policy is None:
                self._evaluations.popleft()
                continue
            self._policy_folders.keep_if_due(m, policy, step)
            with self._changing():
                self._evaluations.popleft()
                episodes, seed, number = c.evaluation_episodes, c.seeds[m], c.members.number(m)
                self.executor.submit(EvaluationTask(seed, step, episodes, policy, number))

    def _record_results(self, *, block: bool) -> None:
        """Record what has been played. An evaluation is pending until it is recorded."""
        self._results.extend(self.executor.completed(block=block))
        while self._results:
            result = self._results[0]
            if isinstance(result, EvaluationResult):
                self._record_evaluation(result)
                continue
            if isinstance(result, EpisodeResult):
                self._record_episode(result)
            else:
                self._record_diverged(result)
            self._results.popleft()

    def _record_diverged(self, result: DivergedResult) -> None:
        m = self.config.members.ids.index(result.task.member)
        self.members[m].collecting = False
        self._retirement.end(m, "an action")

    def _record_episode(self, result: EpisodeResult) -> None:
        raise TypeError(f"{result} is not an evaluation")  # most loops submit no episodes

    def _record_evaluation(self, result: EvaluationResult) -> None:
        task = result.task
        m = self.config.members.ids.index(task.member)
        member = self.members[m]
        returns = [episode.episode_return for episode in result.episodes]
        rows: list[tuple[object, ...]] = [
            (member.id, task.step, i, repr(e.episode_return), e.length)
            for i, e in enumerate(result.episodes)
        ]
        scores = score(self.config.task.id, returns) if self.config.dataset else None
        if scores is not None:
            rows = [(*row, repr(float(one))) for row, one in zip(rows, scores, strict=True)]
        self._append("evaluations", rows)
        if result.probe is not None:
            self._setup.on_probe(result.probe)
        with self._changing():
            self._results.popleft()
            self.clock.add("evaluate", result.seconds)
            if task.step > member.evaluation_step:  # workers may answer out of order
                member.evaluation_step = task.step
                member.evaluation = float(np.mean(returns))
                if self._retirement.is_possible and not self._has_checkpoints:
                    self.checkpoints[m] = task.policy  # what remains of the member if it ends
        if not (result.is_reproducible or self._has_warned_of_episodes):
            self._has_warned_of_episodes = True
            self.progress.warn(
                f"task {self.config.task.id}: an episode does not follow from its reset seed and "
                "actions alone (does a wrapper keep statistics, does reset ignore its seed?); "
                "the run trains, but it can neither resume exactly nor repeat its evaluations"
            )

    def _append(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Append rows, whose first cell is a member's id, with the columns that members add."""
        members = self.config.members
        whole = [(*row, *members.cells(int(str(row[0])))) for row in rows]
        self.folder.tables[table].append(whole)

    def _fetch_metrics_if_due(self, m: int) -> None:
        member, updates = self.members[m], self.engine.updates[m]
        if updates % self.config.metrics_every == 0:
            values = self.engine.fetch_metrics(m, checked=self._retirement.is_possible)
            self._metrics.append(DueMetrics(member.id, member.steps, updates, values))

    def _write_metrics(self, *, wait: bool) -> None:
        """Write the metrics that have arrived from the device; with `wait`, all."""
        while self._metrics and (wait or self._metrics[0].values.is_ready()):
            *key, fetch = self._metrics[0]
            values = self._retirement.value(fetch)
            if values is not None:
                self._append("metrics", [(*key, *(repr(float(value)) for value in values))])
            self._metrics.popleft()

    # -- snapshots -----------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        minutes = (time.monotonic() - self._last_snapshot) / 60
        is_due = 0 < self._setup.snapshot_every <= minutes
        if is_due or self._signals.received is not None:
            self._save()
        if self._signals.received is not None:  # perhaps only since the snapshot began
            raise Stopped(self._signals.received, self.folder.path)

    def _save(self) -> None:
        """Write a snapshot of this moment, and the policies next to it."""
        self._write_metrics(wait=True)
        self._submit_evaluations(wait=True)
        self._retirement.check()  # a state that is not finite is not worth resuming
        self.clock.add_total()
        with self.clock.phase("snapshot"):
            tasks = (*(result.task for result in self._results), *self.executor.pending)
            evaluations = [task for task in tasks if isinstance(task, EvaluationTask)]
            tensors = {
                **state_tensors(self._parts),
                **self._own_tensors(),
                **policy_tensors(evaluations),
            }
            record = state_record(self.config, self._parts, evaluations)
            self.snapshots.save(tensors, record, self.replay)
            self._is_saved, self._saved_steps = True, self._fewest_steps()
            self._last_snapshot = time.monotonic()
            saved = [self._saved_policy(m) for m in range(len(self.members))]
            self._policy_folders.save(*zip(*saved, strict=True))
        self.folder.write_timings(self.clock.seconds, self.clock.times)

    def _saved_policy(self, m: int) -> tuple[AnyFloat, int]:
        """A member's weights in policy/, and the steps that they were trained for.

        One that has ended keeps its checkpoint or else the last policy that was evaluated.
        """
        member = self.members[m]
        if not member.fault:
            return self._evaluated_policy(m).value(), member.steps
        steps = member.steps if self._has_checkpoints else max(0, member.evaluation_step)
        return self.checkpoints[m], steps

    # -- status --------------------------------------------------------------------------------

    def status(self) -> Status:
        return Status(
            title=f"{self.config.algorithm} {self.config.task.title}",
            step_unit=self.config.step_unit,
            target=self.config.steps,
            target_updates=self.config.updates,
            seconds=time.monotonic() - self._started,
            learns=self._learns,
            compiling_since=self.engine.compiling_since,
            compiled_seconds=self.engine.compiled_seconds,
            members=[self._member_status(m) for m in range(len(self.members))],
        )

    def _member_status(self, m: int) -> MemberStatus:
        member = self.members[m]
        activity = "finished" if member.finished else self._activity(m)
        return MemberStatus(
            id=member.id,
            values=self.config.members.description(m),
            steps=self.config.steps if member.finished and not member.fault else member.steps,
            updates=self.engine.updates[m],
            activity=f"ended: {member.fault}" if member.fault else activity,
            evaluation=member.evaluation,
            best=member.assessment.best,
            has_ended=bool(member.fault),
        )

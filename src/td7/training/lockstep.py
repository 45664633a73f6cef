"""Members without checkpoints: all take one time step, then one update, together.

The policy changes at every time step, so an episode is no longer a task that could be played again
from weights and a number. A snapshot in the middle of an episode therefore keeps its actions: taken
again in the same environment, they lead to the same state.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from td7.engine.cuda import Fetch
from td7.rollouts.vector import EpisodeState, VectorStep, can_spin, make_vector_environment
from td7.rollouts.watch import AbandonTask
from td7.training.loop import SingleProcessTraining
from td7.training.parts import RunParts, RunSetup
from td7.types import AnyFloat, Float32

POLL_STEPS = 50  # time steps between two polls of the evaluators
WHOLE_EPISODE = 2**62  # more steps than an episode has


def evaluator_count(workers: int) -> int:
    """How many of the worker processes evaluate; the others step the training environments."""
    return max(1, workers // 3) if workers else 0


class LockstepTraining(SingleProcessTraining):
    """Acting is batched over members; with workers, environments step in parallel processes."""

    def __init__(self, setup: RunSetup, parts: RunParts) -> None:
        super().__init__(setup, parts)
        # Those of each member's current episode.
        self._actions: list[list[Float32]] = [[] for _ in self.members]

    def restore(self) -> bool:
        has_snapshot = super().restore()
        workers = self._setup.workers
        self._environments = make_vector_environment(
            self.config.task,
            self.config.seeds,
            [self._episode_state(m) for m in range(len(self.members))],
            self.spec,
            max(0, workers - evaluator_count(workers)),
            spins=can_spin(workers),
            step_timeout=self._setup.step_timeout,
        )
        self._parts.resources.callback(self._environments.close)
        now = self._environments.observe()
        self._check_repeated_actions(now.state)
        self._next_actions = self._finite(self.engine.act(now.state, now.noise))
        return has_snapshot

    def _episode_state(self, m: int) -> EpisodeState:
        member, actions = self.members[m], self._actions[m]
        size = self.spec.action_dim
        begin = member.steps - len(actions)
        return EpisodeState(
            member.episodes,
            self._random_steps_of_episode(m, begin),
            np.stack(actions) if actions else np.zeros((0, size), np.float32),
        )

    def _random_steps_of_episode(self, m: int, begin: int) -> int:
        """How many actions of a member's episode are random that begins at this time step."""
        c = self.config.online_of(m)
        if self.config.start_from is not None:  # its policy acts before training
            return 0
        left = max(0, c.random_steps - begin)
        return WHOLE_EPISODE if left and c.random_phase == "episode" else left

    def _check_repeated_actions(self, states: Float32) -> None:
        """Warn if actions, taken again, did not lead to the state that the replay holds."""
        for m, state in enumerate(states):
            if self._actions[m]:
                newest = (self.replay.added[m] - 1) % self.replay.capacity
                row = self.replay.rows[m, newest].cpu().numpy()
                if not np.array_equal(self.replay.layout.split(row).next_state, state):
                    name = self.config.members.name(self.members[m].id)
                    self.progress.warn(
                        f"{name}: the actions of its current episode, taken again, led to another "
                        "state; the run continues, but not exactly"
                    )

    def _advance(self) -> None:
        step = self.members[0].steps
        for m in range(len(self.members)):
            self._schedule_evaluations(m, step)
        finished = step >= self.config.steps or all(member.fault for member in self.members)
        if not finished:
            self._take_step()
        for member in self.members:
            member.finished = finished or bool(member.fault)
        if finished or step % POLL_STEPS == 0:
            self._record_results(block=finished)
            self._write_metrics(wait=False)

    def _take_step(self) -> None:
        """One time step of every member, and one update of those past their random phase."""
        begin = time.perf_counter()
        everyone = range(len(self.members))
        random_steps = [
            self._random_steps_of_episode(m, self.members[m].steps + 1) for m in everyone
        ]
        try:
            stepped = self._environments.step(self._next_actions, random_steps)
        except AbandonTask:  # the run stops, with a snapshot of the moment before this time step
            return
        self.clock.add("collect", time.perf_counter() - begin)
        ended = np.flatnonzero(stepped.ended).tolist()
        self._write_episodes([m for m in ended if not self.members[m].fault], stepped)
        with self._changing(), self.clock.phase("update"):
            self._record_actions(stepped.row)
            learning = [m for m, one in enumerate(self.members) if one.learns and not one.fault]
            actions = self.engine.step(stepped.row, stepped.state, stepped.noise, learning)
            for m in ended:
                self._end_episode(m)
            if self.config.online.random_phase == "steps":
                self._begin_learning(everyone)
            for m in learning:
                self._fetch_metrics_if_due(m)
        self._next_actions = self._finite(actions)

    def _finite(self, actions: AnyFloat) -> AnyFloat:
        """The next actions: zeros for members that have ended, now perhaps, by their actions."""
        if not self._retirement.is_possible:
            return actions
        for m in np.flatnonzero(~np.isfinite(actions).all(axis=1)).tolist():
            self._retirement.end(m, "an action")
        acts = np.array([not member.fault for member in self.members])
        return np.where(acts[:, None], actions, np.float32(0))

    def _write_episodes(self, members: Sequence[int], stepped: VectorStep) -> None:
        """Write the rows of the episodes that ended with a time step, all or none."""
        rows = []
        for m in members:
            member, length = self.members[m], int(stepped.length[m])
            episode_return = repr(float(stepped.episode_return[m]))
            rows.append((member.id, member.steps + 1, member.episodes, episode_return, length))
        if rows:
            self._append("episodes", rows)

    def _announce_stop(self) -> None:
        super()._announce_stop()
        self._environments.abandon()

    def _record_actions(self, rows: Float32) -> None:
        actions = self.replay.layout.split(rows).action.copy()
        for member, episode, action in zip(self.members, self._actions, actions, strict=True):
            member.steps += 1
            episode.append(action)

    def _end_episode(self, m: int) -> None:
        member = self.members[m]
        member.episodes += 1
        self._begin_learning([m])
        self._actions[m] = []

    def _begin_learning(self, members: Iterable[int]) -> None:
        """From the next time step on, if the random phase is over."""
        for m in members:
            member = self.members[m]
            member.learns = not self._is_before_training(m)

    def _evaluated_policy(self, m: int) -> Fetch:
        return self.engine.fetch_policy(m)

    def _activity(self, m: int) -> str:
        if self._acts_at_random(m):
            return "exploring at random"
        return f"training in episode {self.members[m].episodes:,}"

    def _own_tensors(self) -> dict[str, Tensor]:
        size = self.spec.action_dim
        return {
            f"episode_actions.{member.id}": torch.from_numpy(
                np.array(self._actions[m], np.float32).reshape(-1, size)
            )
            for m, member in enumerate(self.members)
        }

    def _restore_own(self, tensors: Mapping[str, Tensor]) -> None:
        self._actions = [
            list(tensors[f"episode_actions.{member.id}"].numpy()) for member in self.members
        ]

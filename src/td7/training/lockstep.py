"""Members without checkpoints: all take one time step, then one update, together.

The policy changes at every time step, so an episode is no longer a task that could be played again
from weights and a number. A snapshot in the middle of one therefore keeps its actions: given to
the same environment again, they lead to the same state.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td7.engine.cuda import Fetch
from td7.rollouts.vector import EpisodeState, can_spin, make_vector_environment
from td7.training.config import RunConfig
from td7.training.loop import Training
from td7.training.member import Member
from td7.types import Float32

LOOK_EVERY = 50  # time steps between two looks at what evaluators have done


class LockstepTraining(Training):
    """Acting is batched over members, environments step in parallel processes if there are any."""

    def __init__(self, config: RunConfig, *arguments: Any, workers: int, **options: Any) -> None:
        evaluators = max(1, workers // 3) if workers else 0
        self._actions: list[list[Float32]] = []  # of each member's current episode
        super().__init__(config, *arguments, workers=evaluators, **options)
        if not self._actions:
            self._actions = [[] for _ in self.members]
        try:
            live = [self._live(m) for m in range(len(self.members))]
            steppers = max(0, workers - evaluators)
            self._stepper = make_vector_environment(
                config.task, config.seeds, live, self.spec, steppers, spins=can_spin(workers)
            )
            self._opened.callback(self._stepper.close)
            now = self._stepper.observe()
            self._check_replayed(now.state)
            self._next_actions = self.engine.act(now.state, now.noise)
        except BaseException:
            self.close()
            raise

    def _live(self, m: int) -> EpisodeState:
        member, actions = self.members[m], self._actions[m]
        size = self.spec.action_dim
        begin = member.steps - len(actions)
        return EpisodeState(
            member.episodes,
            begin < self.config.online.random_steps,
            np.stack(actions) if actions else np.zeros((0, size), np.float32),
        )

    def _check_replayed(self, states: Float32) -> None:
        """Actions played again must have led to the state that the replay holds."""
        for m, state in enumerate(states):
            if self._actions[m]:
                place = (self.replay.added[m] - 1) % self.replay.capacity
                row = self.replay.rows[m, place].cpu().numpy()
                if not np.array_equal(self.replay.layout.split(row).next_state, state):
                    self.progress.warn(
                        f"seed {self.config.seeds[m]}: the actions of its episode, played again, "
                        "led to another state; the run goes on, but not exactly"
                    )

    def _advance(self) -> None:
        step = self.members[0].steps
        for m in range(len(self.members)):
            self._evaluate_until(m, step)
        if step < self.config.steps:
            self._take_step()
        finished = step >= self.config.steps
        for member in self.members:
            member.finished = finished
        if finished or step % LOOK_EVERY == 0:
            self._take_evaluations(block=finished)
            self._write_metrics(wait=False)

    def _take_step(self) -> None:
        """One time step of every member, and one update of those that are past exploring."""
        begin = time.perf_counter()
        c = self.config.online
        stepped = self._stepper.step(
            self._next_actions,
            [member.steps + 1 < c.random_steps for member in self.members],
        )
        self.clock.add("collect", time.perf_counter() - begin)
        with self.clock.phase("update"):
            self._keep_actions(stepped.row)
            learning = [m for m, member in enumerate(self.members) if member.learns]
            self._next_actions = self.engine.step(
                stepped.row, stepped.state, stepped.noise, learning
            )
            for m in np.flatnonzero(stepped.ended).tolist():
                self._end_episode(m, float(stepped.episode_return[m]), int(stepped.length[m]))
        for m in learning:
            self._fetch_metrics_if_due(m)

    def _keep_actions(self, rows: Float32) -> None:
        actions = self.replay.layout.split(rows).action.copy()
        for member, kept, action in zip(self.members, self._actions, actions, strict=True):
            member.steps += 1
            kept.append(action)

    def _end_episode(self, m: int, episode_return: float, length: int) -> None:
        member = self.members[m]
        row = (member.seed, member.steps, member.episodes, repr(episode_return), length)
        self.folder.tables["episodes"].append([row])
        member.episodes += 1
        member.learns = member.steps >= self.config.online.random_steps
        self._actions[m] = []

    def _test_policy(self, m: int) -> Fetch:
        return self.engine.fetch_policy(m)

    def _doing(self, member: Member) -> str:
        if not member.learns:
            return "exploring at random"
        return f"training in episode {member.episodes:,}"

    def _own_tensors(self) -> dict[str, Tensor]:
        size = self.spec.action_dim
        return {
            f"episode_actions.{member.seed}": torch.from_numpy(
                np.array(self._actions[m], np.float32).reshape(-1, size)
            )
            for m, member in enumerate(self.members)
        }

    def _restore_own(self, tensors: Mapping[str, Tensor]) -> None:
        self._actions = [
            list(tensors[f"episode_actions.{member.seed}"].numpy()) for member in self.members
        ]

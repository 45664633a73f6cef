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

from td7.collection import EvaluationDone
from td7.stepping import Live, Stepped, stepper
from td7.training import Member, Training
from td7.types import AnyFloat, Float32

LOOK_EVERY = 50  # time steps between two looks at what evaluators have done


class LockstepTraining(Training):
    """Acting is batched over members, environments step in parallel processes if there are any."""

    def __init__(self, *arguments: Any, workers: int, **options: Any) -> None:
        evaluators = max(1, workers // 3) if workers else 0
        self._actions: list[list[Float32]] = []  # of each member's current episode
        super().__init__(*arguments, workers=evaluators, **options)
        if not self._actions:
            self._actions = [[] for _ in self.members]
        try:
            live = [self._live(m) for m in range(len(self.members))]
            self._stepper = stepper(
                self.config.task, self.config.seeds, live, max(0, workers - evaluators)
            )
            self._opened.callback(self._stepper.close)
            now = self._stepper.now()
            self._check_replayed(now)
            self._next_actions = self.engine.act(*map(np.stack, zip(*now, strict=True)))
        except BaseException:
            self.close()
            raise

    def _live(self, m: int) -> Live:
        member, actions = self.members[m], self._actions[m]
        size = self.spec.action_dim
        begin = member.steps - len(actions)
        return Live(
            member.episodes,
            begin < self.config.hyperparameters.random_steps,
            np.stack(actions) if actions else np.zeros((0, size), np.float32),
        )

    def _check_replayed(self, now: list[tuple[Float32, Float32]]) -> None:
        """Actions played again must have led to the state that the replay holds."""
        for m, (state, _) in enumerate(now):
            if self._actions[m]:
                place = (self.replay.added[m] - 1) % self.replay.capacity
                row = self.replay.rows[m, place].cpu().numpy()
                begin = self.spec.state_dim + self.spec.action_dim
                if not np.array_equal(row[begin : begin + self.spec.state_dim], state):
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
            for done in self.executor.completed(block=finished):
                assert isinstance(done, EvaluationDone)  # no other task is given
                self._take_evaluation(done)
            self._write_metrics(wait=False)

    def _take_step(self) -> None:
        """One time step of every member, and one update of those that are past exploring."""
        begin = time.perf_counter()
        c = self.config.hyperparameters
        results = self._stepper.step(
            self._next_actions,
            [member.steps + 1 < c.random_steps for member in self.members],
        )
        self.clock.add("collect", time.perf_counter() - begin)
        with self.clock.phase("update"):
            for m, result in enumerate(results):
                self._take_result(m, result)
            learning = [m for m, member in enumerate(self.members) if member.learns]
            self._next_actions = self.engine.step(
                np.stack([result.row for result in results]),
                np.stack([result.state for result in results]),
                np.stack([result.noise for result in results]),
                learning,
            )
            for m, result in enumerate(results):
                if result.ended:
                    member = self.members[m]
                    member.learns = member.steps >= c.random_steps
        for m in learning:
            self._fetch_metrics_if_due(m)

    def _take_result(self, m: int, result: Stepped) -> None:
        member = self.members[m]
        member.steps += 1
        begin = self.spec.state_dim
        self._actions[m].append(result.row[begin : begin + self.spec.action_dim])
        if result.ended:
            row = (
                member.seed,
                member.steps,
                member.episodes,
                repr(result.episode_return),
                result.length,
            )
            self.folder.tables["episodes"].append([row])
            member.episodes += 1
            self._actions[m] = []

    def _test_policy(self, m: int) -> AnyFloat:
        return self.engine.fetch_policy(m).value()

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

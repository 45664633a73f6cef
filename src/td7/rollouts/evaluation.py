"""Returns of a policy, independent of training: own environments, own random streams."""

from collections.abc import Callable, Sequence

import numpy as np

from td7.errors import EnvironmentFault
from td7.rollouts.environment import Environment
from td7.rollouts.registration import is_mujoco
from td7.seeding import Stream, derived_seed
from td7.types import AnyFloat, EvaluationEpisode

MAX_STEPS = 100_000  # per evaluation episode of a task without a time limit
COMPARED_STEPS = 25  # per episode, to see whether it is reproducible
LANES = 10  # episodes of a MuJoCo task that are played side by side

Policy = Callable[[AnyFloat], AnyFloat]


def first_steps(
    environment: Environment, policy: Policy, seed: int, episode: str = ""
) -> list[str]:
    """Return the first steps of an episode as text."""
    state = environment.reset(seed, episode)
    steps = [repr(state.tolist())]
    for _ in range(COMPARED_STEPS):
        state, *rest = environment.step(policy(state))
        steps.append(repr((state.tolist(), *rest)))
        _, terminated, truncated = rest
        if terminated or truncated:
            break
    return steps


class Evaluator:
    """Plays a task's evaluation episodes; episode i depends only on (policy, seed, step, i).

    A policy's weights do not fit into a core's cache next to the physics, so that one product for
    ten states costs half as much as ten. Episodes of MuJoCo's tasks are therefore played side by
    side, in environments that take little memory. Other tasks have one environment.
    """

    def __init__(self, make: Callable[[], Environment]) -> None:
        """`make` makes a new environment of the task."""
        self._make = make
        self.environments = [make()]
        self._lanes = LANES if is_mujoco(self.environments[0]) else 1

    def play(
        self,
        policy: Policy,
        *,
        seed: int,
        step: int,
        episodes: int,
        resets: Stream = Stream.EVALUATION_RESET,
        on_frame: Callable[[], None] | None = None,
    ) -> list[EvaluationEpisode]:
        """Return undiscounted returns. `on_frame` is called before each step of the first lane."""
        played: list[EvaluationEpisode] = []
        for first in range(0, episodes, self._lanes):
            numbers = range(first, min(first + self._lanes, episodes))
            while len(self.environments) < len(numbers):
                self.environments.append(self._make())
            lanes = [
                _Lane(environment, seed, step, number, resets)
                for environment, number in zip(self.environments, numbers, strict=False)
            ]
            with np.errstate(over="ignore", invalid="ignore"):  # of spoilt weights
                self._play_together(lanes, policy, on_frame)
            played += [EvaluationEpisode(lane.total, lane.length) for lane in lanes]
        return played

    def _play_together(
        self, lanes: Sequence["_Lane"], policy: Policy, on_frame: Callable[[], None] | None
    ) -> None:
        # Always `_lanes` rows: with another number, products would round differently, and an
        # episode would depend on the others.
        states = np.zeros((self._lanes, *lanes[0].state.shape), lanes[0].state.dtype)
        running = list(enumerate(lanes))
        while running:
            if on_frame is not None and running[0][0] == 0:
                on_frame()
            for row, lane in running:
                states[row] = lane.state
            actions = policy(states) if self._lanes > 1 else policy(states[0])[None]
            for row, lane in running:
                lane.advance(actions[row])
            running = [(row, lane) for row, lane in running if not lane.ended]

    def close(self) -> None:
        for environment in self.environments:
            environment.close()


class _Lane:
    """An evaluation episode under way."""

    def __init__(
        self, environment: Environment, seed: int, step: int, number: int, resets: Stream
    ) -> None:
        self._environment = environment
        self._where = f"seed {seed}, evaluation at step {step}, episode {number}"
        reset_seed = derived_seed(seed, resets, step, number)
        self.state = environment.reset(reset_seed, self._where)
        self.total, self.length, self.ended = 0.0, 0, False

    def advance(self, action: AnyFloat) -> None:
        self.state, reward, terminated, truncated = self._environment.step(action)
        self.length += 1
        if self.length >= MAX_STEPS and self._environment.spec.time_limit is None:
            raise EnvironmentFault(
                f"{self._where}: the episode has not ended after {self.length:,} steps; give the "
                "task a time limit in a new run: --env-kwargs max_episode_steps=1000"
            )
        self.total += reward
        self.ended = terminated or truncated

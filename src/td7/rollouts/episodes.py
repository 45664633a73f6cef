"""Episodes and evaluations as pure tasks: weights in, transitions or returns out.

A task's result depends on the task alone, so it does not matter which process runs it, when, or how
often.
"""

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from td7.errors import ActionFault
from td7.networks.description import Network
from td7.networks.numpy_actor import Actor
from td7.rollouts.environment import Environment
from td7.rollouts.evaluation import Evaluator, first_steps
from td7.rollouts.fingerprint import probe
from td7.rollouts.registration import make_again
from td7.seeding import Stream, derived_seed, generator
from td7.types import AnyFloat, Episode, EvaluationEpisode, Exploration, Probe, RowLayout, Task


class MemberTask:
    """A task of one member of a run."""

    seed: int
    number: int | None  # of the member, where hyperparameters vary between members

    @property
    def member(self) -> int:
        """The member's id: its number, if it has one, or its seed."""
        return self.seed if self.number is None else self.number

    @property
    def who(self) -> str:
        """The member, for messages."""
        number = "" if self.number is None else f"member {self.number}, "
        return f"{number}seed {self.seed}"


@dataclass(frozen=True)
class EpisodeTask(MemberTask):
    """Training episode `episode` of `seed`, at most `limit` steps of it."""

    seed: int
    episode: int
    limit: int
    policy: AnyFloat | None  # flat weights; None means uniformly random actions
    exploration: Exploration
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.who}, episode {self.episode}"


@dataclass(frozen=True)
class EvaluationTask(MemberTask):
    """The evaluation of `seed` that is due at time step `step`."""

    seed: int
    step: int
    episodes: int
    policy: AnyFloat
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.who}, evaluation at step {self.step}"


@dataclass(frozen=True)
class EpisodeResult:
    task: EpisodeTask
    episode: Episode
    seconds: float


@dataclass(frozen=True)
class EvaluationResult:
    task: EvaluationTask
    episodes: tuple[EvaluationEpisode, ...]
    seconds: float
    is_reproducible: bool  # whether episodes depend on their reset seed and actions alone
    probe: Probe | None = None  # of the task, with a process's first evaluation


AnyTask = EpisodeTask | EvaluationTask


@dataclass(frozen=True)
class DivergedResult:
    """The task of a policy that gave an action that is not finite."""

    task: AnyTask


TaskResult = EpisodeResult | EvaluationResult | DivergedResult


class Player:
    """Runs tasks, with one environment for training episodes and others for evaluations."""

    def __init__(self, task: Task, network: Network) -> None:
        self._task = task
        self._network = network
        self._environment: Environment | None = None
        self._evaluator: Evaluator | None = None

    def run(self, task: AnyTask) -> TaskResult:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # of weights that diverge
                return self._run(task)
        except ActionFault:
            if task.number is None:  # only where hyperparameters vary may a run lose a member
                raise
            return DivergedResult(task)

    def _run(self, task: AnyTask) -> TaskResult:
        begin = time.perf_counter()
        if isinstance(task, EvaluationTask):
            return self._evaluate(task, begin)
        if self._environment is None:
            self._environment = make_again(self._task)
        episode = play(self._environment, self._network, task)
        return EpisodeResult(task, episode, time.perf_counter() - begin)

    def _evaluate(self, task: EvaluationTask, begin: float) -> EvaluationResult:
        """Evaluate and, at step 0, check that an episode is the same before and after others."""
        is_new = self._evaluator is None
        if self._evaluator is None:
            self._evaluator = Evaluator(partial(make_again, self._task))
        actor = Actor(self._network, task.policy)
        is_first, seed = task.step == 0, derived_seed(task.seed, Stream.EVALUATION_RESET, 0, 0)
        environment, first = self._evaluator.environments[0], f"{task}, episode 0"
        before = first_steps(environment, actor, seed, first) if is_first else []
        returns = self._evaluator.play(
            actor, seed=task.seed, step=task.step, episodes=task.episodes
        )
        is_reproducible = not is_first or first_steps(environment, actor, seed, first) == before
        seen = probe(environment) if is_new and is_reproducible else None
        seconds = time.perf_counter() - begin
        return EvaluationResult(task, tuple(returns), seconds, is_reproducible, seen)

    def close(self) -> None:
        for player in (self._environment, self._evaluator):
            if player is not None:
                player.close()


def play(environment: Environment, network: Network, task: EpisodeTask) -> Episode:
    """Play a training episode, which depends only on (policy, seed, episode)."""
    actor = None if task.policy is None else Actor(network, task.policy)
    spec = environment.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    reset_seed = derived_seed(task.seed, Stream.EPISODE_RESET, task.episode)
    stream = Stream.RANDOM_ACTION if actor is None else Stream.EXPLORATION
    random = generator(task.seed, stream, task.episode)

    state = environment.reset(reset_seed, str(task))
    rows: list[AnyFloat] = []
    total, ended = 0.0, False
    while not ended and len(rows) < task.limit:
        if actor is None:
            action: AnyFloat = random.uniform(-1.0, 1.0, spec.action_dim)
        else:
            noise = random.standard_normal(spec.action_dim)
            action = actor.explore(state, noise, task.exploration)
        # The learner sees the action as float32, so the environment gets the same numbers.
        action = action.astype(np.float32)
        next_state, reward, terminated, truncated = environment.step(action)
        rows.append(layout.row(state, action, next_state, reward, terminated))
        total += reward
        ended = terminated or truncated
        state = next_state
    return Episode(np.stack(rows), total, len(rows), ended)

"""Episodes and evaluations of `toys:Point-v0` as tasks, and their results."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

import toys
from folders import SMALL
from td7.algorithms.td7 import TD7, TD7Config
from td7.configs import build_config
from td7.rollouts.episodes import (
    AnyTask,
    EpisodeResult,
    EpisodeTask,
    EvaluationResult,
    EvaluationTask,
    Player,
    TaskResult,
)
from td7.rollouts.registration import describe
from td7.types import AnyFloat, Episode, Exploration, Task

assert toys  # registers the tasks
POINT = Task("toys:Point-v0")


def learner(seeds: Sequence[int] = (0, 1)) -> TD7:
    config = build_config(TD7Config, SMALL)
    return TD7(config, describe(POINT), seeds, torch.device("cpu"), torch.float32)


NETWORK = learner().policy_network
POLICIES: list[AnyFloat] = list(learner().policies().numpy())


def episode(seed: int = 0, number: int = 0, *, policy: int | None = 0) -> EpisodeTask:
    flat = None if policy is None else POLICIES[policy]
    return EpisodeTask(
        seed, number, limit=1_000, policy=flat, exploration=Exploration("added_noise", 0.1)
    )


def evaluation(seed: int = 0, step: int = 0, *, policy: int = 0, episodes: int = 3) -> AnyTask:
    return EvaluationTask(seed, step, episodes, POLICIES[policy])


TASKS: list[AnyTask] = [
    episode(0, 0),
    evaluation(0, 0),
    episode(0, 1),
    episode(0, 1, policy=None),
    evaluation(0, 100),
    episode(1, 0),
    episode(0, 1, policy=1),
    evaluation(1, 100, policy=1),
    episode(0, 7),
]

Comparable = dict[tuple[Any, ...], tuple[Any, ...]]


def comparable(results: Sequence[TaskResult]) -> Comparable:
    """Return what identifies each task: what the task resulted in, bit for bit."""
    return {_key(result): _content(result) for result in results}


def _key(result: TaskResult) -> tuple[Any, ...]:
    task = result.task
    if isinstance(task, EpisodeTask):
        policy = None if task.policy is None else task.policy.tobytes()
        return ("episode", task.seed, task.episode, policy)
    return ("evaluation", task.seed, task.step, task.policy.tobytes())


def _content(result: TaskResult) -> tuple[Any, ...]:
    if isinstance(result, EpisodeResult):
        e = result.episode
        return (e.rows.dtype, e.rows.tobytes(), e.episode_return, e.length, e.finished)
    assert isinstance(result, EvaluationResult)
    return result.episodes


def play_fresh(task: AnyTask) -> TaskResult:
    """Run a task in an environment that was never used before."""
    player = Player(POINT, NETWORK)
    result = player.run(task)
    player.close()
    return result


def play_episode(task: EpisodeTask) -> Episode:
    result = play_fresh(task)
    assert isinstance(result, EpisodeResult)
    return result.episode


@cache
def fresh_results() -> Comparable:
    """Return what every task of TASKS results in."""
    return comparable([play_fresh(task) for task in TASKS])


def faulty(fault: str) -> Task:
    return Task("toys:Point-v0", {"fault": fault, "at": 3})


FAULTS = [
    ("raise", "the environment raised ValueError: the motor is on fire"),
    ("exit", "the environment raised SystemExit: 3"),
    ("state", "step 3: the environment returned a non-finite observation (dimension 0)"),
    ("reward", "step 3: the environment returned a non-finite reward (inf)"),
]

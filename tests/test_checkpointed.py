"""Members with checkpoints: the protocol by hand, on toy tasks."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from folders import SMALL
from td7.algorithms.td7 import TD7Config
from td7.configs import build_config
from td7.errors import RunError
from td7.rollouts.episodes import AnyTask, EpisodeTask, EvaluationTask
from td7.rollouts.registration import describe
from td7.runs import folder as folder_module
from td7.training.checkpointed import CheckpointedTraining
from td7.training.config import RunConfig
from td7.training.loops import single_process_loop
from td7.training.parts import RunSetup
from td7.training.progress import (
    QuietProgress,
)
from td7.types import Task

assert toys  # registers the tasks


def build(
    path: Path,
    *,
    env: str = "toys:Point-v0",
    kwargs: Mapping[str, Any] | None = None,
    seeds: tuple[int, ...] = (0,),
    steps: int = 100,
    evaluate_every: int = 1_000,
    evaluation_episodes: int = 1,
    metrics_every: int = 10,
    precision: str = "float32",
    **hyperparameters: float,
) -> CheckpointedTraining:
    spec = describe(Task(env, dict(kwargs or {})))
    config = RunConfig(
        algorithm="td7",
        variant="",
        task=spec.task,
        seeds=seeds,
        steps=steps,
        hyperparameters=build_config(TD7Config, {**SMALL, **hyperparameters}),
        evaluate_every=evaluate_every,
        evaluation_episodes=evaluation_episodes,
        metrics_every=metrics_every,
        device="cpu",
        replay_device="cpu",
        precision=precision,
        engine="eager",
        threads=1,
    )
    lock = folder_module.create_folder(path, config.to_json())
    loop = single_process_loop(RunSetup(config, spec, path, QuietProgress(), lock=lock))
    assert isinstance(loop, CheckpointedTraining)
    loop.restore()
    return loop


def counting(path: Path, **options: Any) -> CheckpointedTraining:
    """A run whose every episode is three steps long and returns 3."""
    return build(path, env="toys:Count-v0", kwargs={"ends_at": 3}, **options)


class Spy:
    """Every task that a run submits, with the updates its member has made by then."""

    def __init__(self, training: CheckpointedTraining, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[tuple[AnyTask, int]] = []
        submit = training.executor.submit

        def spy(task: AnyTask) -> None:
            member = training.config.seeds.index(task.seed)
            self.tasks.append((task, training.engine.updates[member]))
            submit(task)

        monkeypatch.setattr(training.executor, "submit", spy)

    def episodes(self, seed: int = 0) -> list[tuple[EpisodeTask, int]]:
        return [(t, n) for t, n in self.tasks if isinstance(t, EpisodeTask) and t.seed == seed]

    def evaluations(self, seed: int = 0) -> list[EvaluationTask]:
        return [t for t, _ in self.tasks if isinstance(t, EvaluationTask) and t.seed == seed]


def test_the_random_phase_ends_with_an_episode_and_each_later_step_owes_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = counting(tmp_path / "run", steps=20, random_steps=7)
    spy = Spy(training, monkeypatch)
    training.run()
    # Episodes end at 3, 6, 9, 12, 15, 18; step 7 falls into the third. The last, 18 to 20, is cut.
    is_random = [task.policy is None for task, _ in spy.episodes()]
    assert is_random == [True, True, True, False, False, False, False]
    assert [updates for _, updates in spy.episodes()] == [0, 0, 0, 0, 3, 6, 9]
    assert [task.limit for task, _ in spy.episodes()] == [20, 17, 14, 11, 8, 5, 2]
    member = training.members[0]
    assert (member.steps, member.episodes, member.owed) == (18, 6, 0)
    assert training.engine.updates == [9]
    assert training.replay.added == [18]


def test_a_random_phase_that_ends_with_an_episode_is_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = counting(tmp_path / "run", steps=12, random_steps=6)
    spy = Spy(training, monkeypatch)
    training.run()
    assert [task.policy is None for task, _ in spy.episodes()] == [True, True, False, False]


def test_a_run_of_random_steps_trains_nothing(tmp_path: Path) -> None:
    training = counting(tmp_path / "run", steps=10, random_steps=1_000, evaluate_every=5)
    first = training.checkpoints[0].copy()
    training.run()
    assert training.engine.updates == [0]
    np.testing.assert_array_equal(training.checkpoints[0], first)
    run = td7.Run(tmp_path / "run")
    assert list(run.evaluations["step"]) == [0, 5, 10]
    assert run.metrics.empty
    assert td7.load(run.path).spec.task.id == "toys:Count-v0"


def test_a_whole_assessment_owes_its_steps_as_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = counting(tmp_path / "run", steps=18, random_steps=3, early_assessment_episodes=2)
    spy = Spy(training, monkeypatch)
    training.run()
    # Random 0; assessments of episodes 1, 2 and of 3, 4; the one of 5 has not ended.
    assert [updates for _, updates in spy.episodes()] == [0, 0, 0, 6, 6, 12]
    assessment = training.members[0].assessment
    assert (assessment.episodes, assessment.steps) == (1, 3)
    assert training.engine.updates == [18 - 3 - 3]
    policies = [task.policy for task, _ in spy.episodes()[1:]]
    same = [np.array_equal(a, b) for a, b in pairwise(policies)]  # type: ignore[arg-type]
    assert same == [True, False, True, False]  # frozen for an assessment


def test_the_late_stage_assesses_longer_and_lowers_the_bar_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = counting(
        tmp_path / "run", steps=27, random_steps=3, early_updates=5, late_assessment_episodes=3
    )
    spy = Spy(training, monkeypatch)
    training.run()
    # Two early assessments of an episode; update 5 falls into the second's training.
    assert [updates for _, updates in spy.episodes()] == [0, 0, 3, 6, 6, 6, 15, 15, 15]
    assert training.members[0].assessment.late
    assert training.members[0].assessment.best == 3.0
    training = counting(tmp_path / "again", steps=9, random_steps=3, early_updates=5)
    training.run()
    assert training.members[0].assessment.best == pytest.approx(0.9 * 3.0)


def test_every_step_after_the_random_phase_gets_one_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = (0, 1)
    training = build(tmp_path / "run", seeds=seeds, steps=100)
    spy = Spy(training, monkeypatch)
    training.run()
    episodes = td7.Run(tmp_path / "run").episodes
    for seed in seeds:
        ends = [0, *episodes[episodes["seed"] == seed]["step"]]
        begin = next(end for end in ends if end >= SMALL["random_steps"])
        expected = [max(0, end - begin) for end in ends]
        played = [updates for _, updates in spy.episodes(seed)]
        assert played == expected[: len(played)]
        assert training.engine.updates[seed] == expected[-1] > 0


def test_evaluations_use_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build(
        tmp_path / "run", steps=170, evaluate_every=10, evaluation_episodes=2, random_steps=20
    )
    initial = training.checkpoints[0].copy()
    spy = Spy(training, monkeypatch)
    training.run()
    run = td7.Run(tmp_path / "run")
    acted = {task.episode: task.policy for task, _ in spy.episodes()}
    # The rule by hand: an episode at least as good as the best so far makes its policy the
    # checkpoint. The checkpoint of a time step is that of the last episode that has ended.
    best, checkpoint, since = -np.inf, initial, {0: initial}
    verdicts = []
    for _, row in run.episodes.iterrows():
        policy = acted[int(row["episode"])]
        if policy is not None:
            verdicts.append(row["return"] >= best)
            if row["return"] >= best:
                best, checkpoint = row["return"], policy
        since[int(row["step"])] = checkpoint
    assert {True, False} == set(verdicts)  # both cases occur
    evaluations = {task.step: task for task in spy.evaluations()}
    assert list(evaluations) == list(range(0, 171, 10))
    assert any(step in since for step in evaluations if step > 20)  # at an episode's end
    assert any(step not in since for step in evaluations if step > 20)  # within one
    for step, task in evaluations.items():
        expected = since[max(end for end in since if end <= step)]
        np.testing.assert_array_equal(task.policy, expected)
        assert task.episodes == 2
    counts = run.evaluations.groupby("step").size()
    assert list(counts.index) == list(range(0, 171, 10))
    assert set(counts) == {2}


def test_exploring_actions_are_clipped(tmp_path: Path) -> None:
    training = build(tmp_path / "run", steps=80, exploration_noise=3.0, evaluate_every=100)
    training.run()
    states = slice(0, 2)
    actions = training.replay.rows[0, : training.replay.size(0), 2:4].numpy()
    assert np.abs(actions).max() == 1.0
    assert (np.abs(actions[40:]) == 1.0).mean() > 0.5  # noise of 3 nearly always leaves [-1, 1]
    assert (np.abs(actions[:30]) == 1.0).mean() < 0.1  # random actions need no clipping
    assert np.isfinite(training.replay.rows[0, :, states].numpy()).all()


@pytest.mark.parametrize(
    ("ends_at", "length", "last"),
    [
        (3, 3, 0.0),  # the task ends
        (5, 5, 0.0),  # and so it does on the last step of the time limit
        (0, 5, 1.0),  # the time limit cuts it
    ],
)
def test_not_terminated_is_0_only_for_real_ends(
    tmp_path: Path, ends_at: int, length: int, last: float
) -> None:
    training = build(
        tmp_path / "run", env="toys:Count-v0", kwargs={"ends_at": ends_at}, steps=4 * length
    )
    training.run()
    stored = training.replay.rows[0, : training.replay.size(0)].numpy()
    assert len(stored) == 4 * length
    # Rows: state, action, next state, reward, not_terminated.
    np.testing.assert_array_equal(stored[:, 0], list(range(length)) * 4)
    np.testing.assert_array_equal(stored[:, 2], list(range(1, length + 1)) * 4)
    np.testing.assert_array_equal(stored[:, 3], 1.0)
    np.testing.assert_array_equal(stored[:, 4], ([1.0] * (length - 1) + [last]) * 4)


def test_an_episode_that_the_run_cuts_is_discarded(tmp_path: Path) -> None:
    training = counting(tmp_path / "run", steps=8, random_steps=3, evaluate_every=4)
    training.run()
    run = td7.Run(tmp_path / "run")
    assert list(run.episodes["step"]) == [3, 6]
    assert list(run.evaluations["step"]) == [0, 4, 8]
    assert training.replay.added == [6]


def test_a_loss_that_is_not_finite_names_seed_update_and_metric(tmp_path: Path) -> None:
    training = build(tmp_path / "run", seeds=(4,), learning_rate=1e30)
    with pytest.raises(
        RunError, match=r"^seed 4, by update \d+: \w+ is not finite; there is no snapshot"
    ):
        training.run()

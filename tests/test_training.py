"""The online protocol, by hand on toys; neighbours, workers and length change nothing."""

import importlib
import io
import json
import re
import time
from collections.abc import Callable, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from safetensors.numpy import load_file

import td7
import toys
from folders import SMALL, contents, differences, newest, results, rows
from td7.algorithms.td7 import TD7, TD7Config
from td7.configs import build_config
from td7.engine.engine import PRIORITIES, Engine
from td7.errors import InputError, RunError
from td7.report.read import read_run
from td7.rollouts import evaluation
from td7.rollouts.episodes import AnyTask, EpisodeTask, EvaluationTask
from td7.rollouts.pool import Pool
from td7.rollouts.registration import describe
from td7.runs import folder as folder_module
from td7.training.checkpointed import CheckpointedTraining
from td7.training.config import RunConfig, check_same
from td7.training.loop import SingleProcessTraining
from td7.training.loops import single_process_loop
from td7.training.parts import RunSetup
from td7.training.progress import (
    LineProgress,
    LiveProgress,
    MemberStatus,
    QuietProgress,
    Status,
    duration,
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
    task = Task(env, dict(kwargs or {}))
    config = RunConfig(
        algorithm="td7",
        variant="",
        task=task,
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
    folder_module.create_folder(path, config.to_json())
    loop = single_process_loop(RunSetup(config, describe(task), path, QuietProgress()))
    assert isinstance(loop, CheckpointedTraining)
    loop.restore()
    return loop


def counting(path: Path, **options: Any) -> CheckpointedTraining:
    """A run whose every episode is three steps long and returns 3."""
    return build(path, env="toys:Count-v0", kwargs={"ends_at": 3}, **options)


class Spy:
    """Every task a training gives out, with the updates its member had by then."""

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


def train(path: Path, **options: Any) -> td7.Run:
    given: dict[str, Any] = {
        "env": "toys:Point-v0",
        "steps": 100,
        "evaluate_every": 40,
        "evaluation_episodes": 2,
        "metrics_every": 20,
        "set": SMALL,
        "quiet": True,
        **options,
    }
    return td7.train(out=str(path), **given)


# The protocol


def test_random_phase_lasts_to_its_episodes_end_and_steps_are_owed_as_updates(
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


def test_a_random_phase_that_ends_with_its_episode_is_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = counting(tmp_path / "run", steps=12, random_steps=6)
    spy = Spy(training, monkeypatch)
    training.run()
    assert [task.policy is None for task, _ in spy.episodes()] == [True, True, False, False]


def test_a_run_of_random_steps_alone_trains_nothing(tmp_path: Path) -> None:
    training = counting(tmp_path / "run", steps=10, random_steps=1_000, evaluate_every=5)
    first = training.checkpoints[0].copy()
    training.run()
    assert training.engine.updates == [0]
    np.testing.assert_array_equal(training.checkpoints[0], first)
    run = td7.Run(tmp_path / "run")
    assert list(run.evaluations["step"]) == [0, 5, 10]
    assert run.metrics.empty
    assert td7.load(run.path).spec.task.id == "toys:Count-v0"


def test_updates_are_owed_for_a_whole_assessment(
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


def test_every_step_after_the_random_phase_has_its_update(
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


def test_evaluations_are_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_evaluation_does_not_touch_training(tmp_path: Path) -> None:
    often = train(tmp_path / "often", evaluate_every=7, evaluation_episodes=3)
    never = train(tmp_path / "never", evaluate_every=1_000, evaluation_episodes=1)
    assert len(never.evaluations) == 1
    for name in ("episodes.csv", "metrics.csv", "policy/seed-0.safetensors"):
        assert (often.path / name).read_bytes() == (never.path / name).read_bytes()
    a, b = ((newest(path) / "state.safetensors").read_bytes() for path in (often.path, never.path))
    assert a == b


def test_exploration_is_clipped(tmp_path: Path) -> None:
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


def test_an_episode_that_the_run_cuts_is_forgotten(tmp_path: Path) -> None:
    training = counting(tmp_path / "run", steps=8, random_steps=3, evaluate_every=4)
    training.run()
    run = td7.Run(tmp_path / "run")
    assert list(run.episodes["step"]) == [3, 6]
    assert list(run.evaluations["step"]) == [0, 4, 8]
    assert training.replay.added == [6]


def test_a_loss_that_is_not_finite_names_seed_update_and_metric(tmp_path: Path) -> None:
    training = build(tmp_path / "run", seeds=(4,), learning_rate=1e30)
    with pytest.raises(RunError, match=r"^seed 4, by update \d+: \w+ is not finite$"):
        training.run()


# What results may not depend on


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_seeds_trained_together_are_seeds_trained_alone(
    tmp_path: Path, precision: str, tolerance: float
) -> None:
    """To rounding, which sixty updates and a task's own dynamics let grow."""
    options: dict[str, Any] = {"precision": precision, "steps": 120}
    together = train(tmp_path / "together", seeds="3,8", **options)
    for seed in (3, 8):
        alone = train(tmp_path / f"alone-{seed}", seeds=seed, **options)
        for table in ("evaluations", "episodes", "metrics"):
            both: pd.DataFrame = getattr(together, table)
            own = both[both["seed"] == seed].reset_index(drop=True)
            expected: pd.DataFrame = getattr(alone, table)
            assert len(own) == len(expected) > 0
            pd.testing.assert_frame_equal(
                own, expected, check_exact=False, rtol=tolerance, atol=tolerance
            )


def test_seeds_differ(tmp_path: Path) -> None:
    run = train(tmp_path / "run", seeds="0-2", steps=60)
    for table in (run.episodes, run.evaluations):
        assert table["return"].nunique() == len(table)
    policies = [td7.load(run.path, seed).flat for seed in range(3)]
    assert not np.array_equal(policies[0], policies[1])
    assert not np.array_equal(policies[1], policies[2])


def test_results_do_not_depend_on_workers(tmp_path: Path) -> None:
    trained = [
        train(tmp_path / str(workers), seeds="0-1", workers=workers, evaluate_every=15)
        for workers in (0, 1, 3)
    ]
    assert len(trained[0].evaluations) == 2 * 2 * 7
    expected = contents(trained[0].path)
    for run in trained[1:]:
        assert differences(contents(run.path), expected) == []


def test_results_do_not_depend_on_workers_that_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two of three, in the middle of something: others take their places."""
    submit, submitted = Pool.submit, count(1)

    def submit_and_kill(self: Pool, task: AnyTask) -> None:
        submit(self, task)
        if next(submitted) in (4, 9):
            busy = next(worker for worker in self._workers if worker.name in self._running)
            busy.process.kill()

    expected = contents(train(tmp_path / "left", seeds="0-1", workers=3, evaluate_every=15).path)
    monkeypatch.setattr(Pool, "submit", submit_and_kill)
    run = train(tmp_path / "killed", seeds="0-1", workers=3, evaluate_every=15)
    assert differences(contents(run.path), expected) == []
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 2
    for line in told:
        assert "died (signal SIGKILL) while busy with seed " in line
        assert line.endswith("; a new worker replaces it")


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_policies_that_come_late_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: str
) -> None:
    """As from a busy GPU: no evaluation is given before the last step, or a snapshot."""
    given = {"seeds": "0-1", "set": {**SMALL, "checkpoints": checkpoints}, "evaluate_every": 15}
    expected = train(tmp_path / "prompt", **given)
    submit = SingleProcessTraining._submit_evaluations
    waiting = []

    def submit_late(loop: SingleProcessTraining, *, wait: bool) -> None:
        waiting.append(len(loop._evaluations))
        if wait:
            submit(loop, wait=True)

    monkeypatch.setattr(SingleProcessTraining, "_submit_evaluations", submit_late)
    late = train(tmp_path / "late", **given)
    assert max(waiting) == 2 * 7
    assert differences(contents(late.path), contents(expected.path)) == []


@pytest.mark.parametrize("cut", [87, 100])
def test_a_run_that_is_extended_is_one_that_was_longer(
    tmp_path: Path, cut: int, longer: Path
) -> None:
    """Cut between two evaluations, and at one."""
    short = train(tmp_path / "short", steps=cut, seeds="0-1", evaluate_every=25)
    run = td7.resume(short.path, steps=150, quiet=True)
    assert run.config["steps"] == 150
    assert differences(contents(run.path), contents(longer)) == []


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("longer") / "run"
    return train(path, steps=150, seeds="0-1", evaluate_every=25).path


def test_a_full_ring_is_extended_and_resumed(tmp_path: Path) -> None:
    small = {**SMALL, "replay_capacity": 50}
    longer = train(tmp_path / "longer", steps=110, set=small)
    short = train(tmp_path / "short", steps=75, set=small)
    assert len(rows(short.path, 0)) == len(rows(longer.path, 0)) == 50
    run = td7.resume(short.path, steps=110, quiet=True)
    assert differences(contents(run.path), contents(longer.path)) == []


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, longer: Path) -> None:
    before = {**contents(longer), "config": (longer / "config.json").read_bytes()}
    td7.resume(longer, quiet=True)
    after = {**contents(longer), "config": (longer / "config.json").read_bytes()}
    assert differences(before, after) == []


@pytest.mark.parametrize(
    ("saved", "now", "named"),
    [
        ({"steps": 5}, {"steps": 4}, r"steps=5 already; steps can only grow, given 4"),
        ({"a": 1}, {"a": 2}, "a is 1, given 2"),
        ({"a": {"b": [1]}}, {"a": {"b": [2]}}, r"a.b is \[1\], given \[2\]"),
        ({"a": {"steps": 4}}, {"a": {"steps": 5}}, "a.steps is 4, given 5"),
        ({"a": 1, "b": 2}, {"a": 1}, "b is 2, given None"),
    ],
)
def test_a_config_may_not_change(
    saved: Mapping[str, Any], now: Mapping[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        check_same(now, saved)


def test_a_config_may_grow_in_steps() -> None:
    check_same({"steps": 5, "seeds": (0, 1)}, {"steps": 4, "seeds": [0, 1]})


# What a run leaves behind, and says


def test_tables(longer: Path) -> None:
    run = td7.Run(longer)
    columns = ["seed", "step", "episode", "return", "length"]
    assert list(run.evaluations) == columns
    assert list(run.episodes) == columns
    for table, name in ((run.evaluations, "evaluations"), (run.episodes, "episodes")):
        assert all(table[c].dtype == np.int64 for c in ("seed", "step", "episode", "length"))
        lines = (longer / f"{name}.csv").read_text().splitlines()
        assert [float(line.split(",")[3]) for line in lines[1:]] == list(table["return"])
        assert table.sort_values(["seed", "step", "episode"]).index.is_monotonic_increasing
    assert list(run.evaluations["episode"]) == [0, 1] * (2 * 7)
    for _, episodes in run.episodes.groupby("seed"):
        assert list(episodes["episode"]) == list(range(len(episodes)))
        assert list(episodes["step"]) == list(np.cumsum(episodes["length"]))
    assert repr(run) == f"Run({str(longer)!r})"


def test_metrics(longer: Path) -> None:
    run = td7.Run(longer)
    assert list(run.metrics) == ["seed", "step", "update", *TD7.metrics, *PRIORITIES]
    for seed, metrics in run.metrics.groupby("seed"):
        ends = run.episodes[run.episodes["seed"] == seed]["step"]
        begin = next(end for end in ends if end >= SMALL["random_steps"])
        total = ends.max() - begin
        assert list(metrics["update"]) == list(range(20, total + 1, 20))
        # An update belongs to the episode that it is owed for.
        expected = [
            next(end for end in ends if end - begin >= update) for update in metrics["update"]
        ]
        assert list(metrics["step"]) == expected
        assert np.isfinite(metrics.to_numpy()).all()
        assert (metrics["mean_priority"] >= 1).all()  # the smallest that LAP has
        assert (metrics["mean_priority"] < metrics["max_priority"]).all()
        clipped = metrics[["clip_min", "clip_max"]].to_numpy()
        assert (clipped[0] == 0).all()  # up to the first copy, at update 25
        assert (clipped[1:, 0] < clipped[1:, 1]).all()


def test_timings(longer: Path) -> None:
    timings = pd.read_csv(longer / "timings.csv").set_index("phase")
    assert list(timings.index) == [
        *("setup", "collect", "evaluate", "update", "snapshot", "learn", "total")
    ]
    assert list(timings.columns) == ["seconds", "times"]
    run = td7.Run(longer)
    assert timings["times"]["evaluate"] == len(run.evaluations) / 2
    assert timings["times"]["collect"] >= len(run.episodes)
    assert timings["seconds"]["update"] > 0
    parts = timings["seconds"][["collect", "evaluate", "update"]].sum()
    assert timings["seconds"]["total"] >= 0.99 * parts


@pytest.fixture
def slowed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any], float], None]:
    """Has calls of a name take so many seconds more, by the clocks."""
    ahead = 0.0
    for name in ("perf_counter", "monotonic"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + ahead)

    def slow(name: str, function: Callable[..., Any], seconds: float) -> None:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal ahead
            ahead += seconds
            return function(*arguments, **options)

        monkeypatch.setattr(name, called)

    return slow


def test_a_runs_total_has_its_set_up_in_it(
    tmp_path: Path, slowed: Callable[[str, Callable[..., Any], float], None]
) -> None:
    slowed("td7.training.parts.Engine", Engine, 1000.0)
    run = train(tmp_path / "run", steps=20)
    seconds = pd.read_csv(run.path / "timings.csv").set_index("phase")["seconds"]
    assert seconds["setup"] >= 1000
    assert seconds["total"] >= seconds["setup"]


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_what_learning_takes_is_timed_from_half_way_on(
    tmp_path: Path, slowed: Callable[[str, Callable[..., Any], float], None], checkpoints: str
) -> None:
    """Evaluations take much longer here, and do not count; nor do the first ten updates."""
    slowed("td7.rollouts.episodes.evaluate", evaluation.evaluate, 0.2)
    run = train(tmp_path / "run", steps=100, set={**SMALL, "checkpoints": checkpoints})
    timings = pd.read_csv(run.path / "timings.csv").set_index("phase")
    evaluations = timings["times"]["evaluate"]
    assert timings["seconds"]["evaluate"] > 0.2 * evaluations
    others = timings["seconds"]["total"] - timings["seconds"]["evaluate"]
    assert 0 < timings["seconds"]["learn"] < others
    seeds = run.evaluations["seed"].nunique()
    updates = timings["times"]["learn"]
    assert 0 < updates <= seeds * 50
    if checkpoints == "none":  # one a step; the look that begins it is after step 50
        assert updates == seeds * 50


def test_the_snapshot_holds_every_tensor(longer: Path) -> None:
    names = set(load_file(newest(longer) / "state.safetensors"))
    for name in ("clip_min", "clip_max", "target_seen_min", "target_seen_max"):
        assert f"learner.{name}" in names
    for seed in (0, 1):
        assert {f"checkpoint.{seed}", f"replay.priorities.{seed}"} <= names


def test_config_json_tells_where_a_run_comes_from(longer: Path) -> None:
    config = json.loads((longer / "config.json").read_text())
    assert config["hyperparameters"]["batch_size"] == SMALL["batch_size"]
    assert config["hyperparameters"]["discount"] == 0.99  # defaults too
    names = {"python", "td7", "source", "torch", "numpy", "gymnasium", "mujoco"}
    assert set(config["versions"]) == names
    assert re.fullmatch(r"[0-9a-f]{12}", config["versions"]["source"])
    for name in ("numpy", "gymnasium", "mujoco"):
        assert config["versions"][name] == importlib.import_module(name).__version__
    assert config["device"] == "cpu"
    assert {"command", "started", "hardware"} <= set(config)


def test_quiet_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", steps=40)
    assert capfd.readouterr() == ("", "")


def test_a_run_without_its_end_is_unfinished(tmp_path: Path) -> None:
    """Also where nothing is missing of what is evaluated: minutes would be of fewer steps."""
    run = train(tmp_path / "run", steps=50, evaluate_every=40)
    whole = read_run(run.path)
    assert whole.finished
    assert whole.seconds is not None
    (run.path / "finished.json").unlink()
    stopped = read_run(run.path)
    assert not stopped.finished
    assert stopped.seconds is None
    assert "unfinished: at 40 of 50 steps" in stopped.notes


def test_a_run_that_trains_nothing_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A quiet one, too: the paper's random steps are more than a short run has."""
    train(tmp_path / "run", steps=20)
    told = "nothing is trained: all 20 steps are random, as random_steps=30\n"
    assert capfd.readouterr() == ("", told)


def test_without_a_terminal_progress_is_lines_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"steps": 40, "evaluate_every": 30, "seeds": "0,5", "quiet": False}
    run = train(tmp_path / "run", **options)
    out, err = capfd.readouterr()
    assert out == ""
    first, second, last = err.splitlines()
    assert "toys:Point-v0" in first
    assert "seeds 0,5, 40 steps, cpu, replay 0." in first
    assert " MB on cpu" in first
    assert str(run.path) in first
    assert second == "the last evaluation is at 30 steps, because --evaluate-every is 30"
    assert last.startswith("100%")
    mean = run.evaluations.query("seed == 5 and step == 30")["return"].mean()
    assert f"[5] 40 steps, evaluation {mean:,.1f}" in last


def status(
    seconds: float = 10.0,
    step_unit: str = "steps",
    learning: tuple[float, int] | None = (5.0, 100),
) -> Status:
    members = [
        MemberStatus(0, 50, 20, "training", 12.5, 3.0),
        MemberStatus(1, 100, 70, "finished", None, -np.inf),
    ]
    return Status("td7 Toy", step_unit, 100, seconds, 50, learning, members)


def test_status_by_hand() -> None:
    assert status().fraction == 0.75
    assert status().rate == 10.0  # 50 of the 150 steps were in the 5 s since updates began
    assert status().remaining == 5.0
    assert status(seconds=5.0).remaining is None
    # Before that, 100 of the 150 are this process's, in 10 s; the others will take longer.
    assert status(learning=None).rate == 10.0
    assert status(learning=None).remaining is None
    given: list[float | None] = [None, 5.4, 65, 3_700]
    assert [duration(s) for s in given] == ["?", "5s", "1m05s", "1h01m"]


def test_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("td7.training.progress.time.monotonic", lambda: now[0])
    file = io.StringIO()
    progress = LineProgress(file)
    asked: list[float] = []

    def ask() -> Status:
        asked.append(now[0])
        return status()

    for now[0] in (101.0, 116.0, 117.0, 140.0):
        progress.show(ask)
    progress.show(ask, final=True)
    assert asked == [116.0, 140.0, 140.0]
    assert len(file.getvalue().splitlines()) == 3
    assert " 75%" in file.getvalue()


def test_a_terminal_shows_a_table() -> None:
    file = io.StringIO()
    progress = LiveProgress(Console(file=file, force_terminal=True, width=120))
    ask: Callable[[], Status] = status
    progress.show(ask)
    progress.say("[not markup]")
    progress.show(ask, final=True)
    progress.close()
    shown = file.getvalue()
    for text in ("td7 Toy", "75%", "10 steps/s", "training", "12.5", "–", "[not markup]"):
        assert text in shown


def test_given_data_are_counted_in_updates() -> None:
    file = io.StringIO()
    progress = LiveProgress(Console(file=file, force_terminal=True, width=120))
    progress.show(lambda: status(step_unit="updates"), final=True)
    progress.close()
    LineProgress(file).show(lambda: status(step_unit="updates"), final=True)
    assert "10 updates/s" in file.getvalue()
    assert "step" not in file.getvalue()


def test_results_are_only_results(longer: Path) -> None:
    """The helpers compare something: no file is empty, and two seeds are not one."""
    found = results(longer)
    assert set(found) == {
        "evaluations.csv",
        "episodes.csv",
        "metrics.csv",
        "policy/policy.json",
        "policy/seed-0.safetensors",
        "policy/seed-1.safetensors",
    }
    assert found["policy/seed-0.safetensors"] != found["policy/seed-1.safetensors"]
    assert all(found.values())


def test_numbers_for_a_task_may_be_numpys(tmp_path: Path) -> None:
    """config.json keeps them plain; what it cannot hold is refused before anything is written."""
    kwargs: dict[str, Any] = {"at": np.int64(9), "fault": "none"}
    options: dict[str, Any] = {"env": "toys:Point-v0", "steps": 20, "quiet": True, "set": SMALL}
    run = td7.train(**options, out=tmp_path / "run", env_kwargs=kwargs)
    assert run.config["task"]["kwargs"] == {"at": 9, "fault": "none"}
    for given, told in (
        ({"at": object()}, r"env_kwargs: at is <object .*>; allowed: what JSON can hold"),
        (5, "--env-kwargs takes words, given 5"),
    ):
        with pytest.raises(InputError, match=told):
            td7.train(**options, out=tmp_path / "none", env_kwargs=given)
    assert not (tmp_path / "none").exists()

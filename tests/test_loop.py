"""Runs: their results do not depend on how they are carried out; what they write and say."""

import importlib
import json
import re
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import td7
import toys
from folders import SMALL, contents, differences, newest, results, rows
from td7.algorithms.td7 import TD7
from td7.engine.engine import PRIORITIES, Engine
from td7.errors import InputError
from td7.reports.read import read_run
from td7.rollouts import evaluation
from td7.rollouts.episodes import AnyTask
from td7.rollouts.pool import Pool
from td7.training.config import check_same
from td7.training.loop import SingleProcessTraining

assert toys  # registers the tasks


def train(path: Path, **options: Any) -> td7.Run:
    defaults: dict[str, Any] = {
        "env": "toys:Point-v0",
        "steps": 100,
        "evaluate_every": 40,
        "evaluation_episodes": 2,
        "metrics_every": 20,
        "set": SMALL,
        "quiet": True,
    }
    return td7.train(out=str(path), **{**defaults, **options})


# -- what results do not depend on ---------------------------------------------------------------


def test_evaluation_does_not_change_training(tmp_path: Path) -> None:
    often = train(tmp_path / "often", evaluate_every=7, evaluation_episodes=3)
    never = train(tmp_path / "never", evaluate_every=1_000, evaluation_episodes=1)
    assert len(never.evaluations) == 1
    for name in ("episodes.csv", "metrics.csv", "policy/seed-0.safetensors"):
        assert (often.path / name).read_bytes() == (never.path / name).read_bytes()
    a, b = ((newest(path) / "state.safetensors").read_bytes() for path in (often.path, never.path))
    assert a == b


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_seeds_trained_together_are_seeds_trained_alone(
    tmp_path: Path, precision: str, tolerance: float
) -> None:
    """To rounding errors, which grow over sixty updates and in the task's dynamics."""
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
    """Two of three are killed while busy, at different tasks; others take their places."""
    submit, submitted = Pool.submit, count(1)
    killed: list[AnyTask] = []

    def submit_and_kill(self: Pool, task: AnyTask) -> None:
        submit(self, task)
        if len(killed) == 2 or next(submitted) < (4, 9)[len(killed)]:
            return
        for worker in self._workers:
            busy = self._running.get(worker.name)
            if busy is not None and not any(busy is task for task in killed):
                killed.append(busy)
                worker.process.kill()
                return

    expected = contents(train(tmp_path / "left", seeds="0-1", workers=3, evaluate_every=15).path)
    monkeypatch.setattr(Pool, "submit", submit_and_kill)
    run = train(tmp_path / "killed", seeds="0-1", workers=3, evaluate_every=15)
    assert differences(contents(run.path), expected) == []
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 2
    for line in warnings:
        assert "died (signal SIGKILL) while busy with seed " in line
        assert line.endswith("; a new worker replaces it")


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_policies_that_come_late_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: str
) -> None:
    """As from a busy GPU: no evaluation is submitted before the last step or a snapshot."""
    options = {"seeds": "0-1", "set": {**SMALL, "checkpoints": checkpoints}, "evaluate_every": 15}
    expected = train(tmp_path / "prompt", **options)
    submit = SingleProcessTraining._submit_evaluations
    waiting = []

    def submit_late(loop: SingleProcessTraining, *, wait: bool) -> None:
        waiting.append(len(loop._evaluations))
        if wait:
            submit(loop, wait=True)

    monkeypatch.setattr(SingleProcessTraining, "_submit_evaluations", submit_late)
    late = train(tmp_path / "late", **options)
    assert max(waiting) == 2 * 7
    assert differences(contents(late.path), contents(expected.path)) == []


@pytest.mark.parametrize("cut", [87, 100])
def test_an_extended_run_is_one_that_was_longer(tmp_path: Path, cut: int, longer: Path) -> None:
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


# -- what a run writes and says --------------------------------------------------------------------


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


def test_timings_have_every_phase(longer: Path) -> None:
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
    """Make calls of a function take more seconds by the clocks."""
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


def test_total_time_includes_the_setup(
    tmp_path: Path, slowed: Callable[[str, Callable[..., Any], float], None]
) -> None:
    slowed("td7.training.parts.Engine", Engine, 1000.0)
    run = train(tmp_path / "run", steps=20)
    seconds = pd.read_csv(run.path / "timings.csv").set_index("phase")["seconds"]
    assert seconds["setup"] >= 1000
    assert seconds["total"] >= seconds["setup"]


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_learning_is_timed_in_the_second_half(
    tmp_path: Path, slowed: Callable[[str, Callable[..., Any], float], None], checkpoints: str
) -> None:
    """Evaluations, which take much longer here, do not count; nor do the first ten updates."""
    slowed("td7.rollouts.episodes.Evaluator.play", evaluation.Evaluator.play, 0.2)
    run = train(tmp_path / "run", steps=100, set={**SMALL, "checkpoints": checkpoints})
    timings = pd.read_csv(run.path / "timings.csv").set_index("phase")
    evaluations = timings["times"]["evaluate"]
    assert timings["seconds"]["evaluate"] > 0.2 * evaluations
    others = timings["seconds"]["total"] - timings["seconds"]["evaluate"]
    assert 0 < timings["seconds"]["learn"] < others
    seeds = run.evaluations["seed"].nunique()
    updates = timings["times"]["learn"]
    assert 0 < updates <= seeds * 50
    if checkpoints == "none":  # one per step; timing begins after step 50
        assert updates == seeds * 50


def test_the_snapshot_holds_every_tensor(longer: Path) -> None:
    names = set(load_file(newest(longer) / "state.safetensors"))
    for name in ("clip_min", "clip_max", "target_seen_min", "target_seen_max"):
        assert f"learner.{name}" in names
    for seed in (0, 1):
        assert {f"checkpoint.{seed}", f"replay.priorities.{seed}"} <= names


def test_config_json_records_settings_and_versions(longer: Path) -> None:
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


def test_a_quiet_run_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", steps=40)
    assert capfd.readouterr() == ("", "")


def test_a_run_without_its_end_is_unfinished(tmp_path: Path) -> None:
    """Even if it has its last evaluation: its minutes would count fewer steps."""
    run = train(tmp_path / "run", steps=50, evaluate_every=40)
    (whole,) = read_run(run.path)
    assert whole.finished
    assert whole.seconds is not None
    (run.path / "finished.json").unlink()
    (stopped,) = read_run(run.path)
    assert not stopped.finished
    assert stopped.seconds is None
    assert "unfinished: at 40 of 50 steps" in stopped.notes


def test_a_run_that_trains_nothing_warns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A quiet run warns as well: the paper's random steps are more than a short run has."""
    train(tmp_path / "run", steps=20)
    warning = "nothing is trained: all 20 steps are random, as random_steps=30\n"
    assert capfd.readouterr() == ("", warning)


@pytest.mark.parametrize(("steps", "every"), [(60, 0), (50, 0), (60, 10)])
def test_a_long_run_without_snapshots_warns(
    tmp_path: Path,
    steps: int,
    every: float,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("td7.training.announce.LONG_RUN", 50)
    train(tmp_path / "run", steps=steps, snapshot_every=every)
    warning = "with snapshot_every=0, a power cut or `kill -9` loses all training since"
    assert capfd.readouterr().err.startswith(warning) == ((steps, every) == (60, 0))


def test_results_are_only_results(longer: Path) -> None:
    """The helpers do compare something: no file is empty, and two seeds differ."""
    files = results(longer)
    assert set(files) == {
        "evaluations.csv",
        "episodes.csv",
        "metrics.csv",
        "policy/policy.json",
        "policy/seed-0.safetensors",
        "policy/seed-1.safetensors",
    }
    assert files["policy/seed-0.safetensors"] != files["policy/seed-1.safetensors"]
    assert all(files.values())


def test_arguments_of_a_task_may_be_numpy_numbers(tmp_path: Path) -> None:
    """config.json holds Python's; what JSON cannot hold is refused before anything is written."""
    kwargs: dict[str, Any] = {"at": np.int64(9), "fault": "none"}
    options: dict[str, Any] = {"env": "toys:Point-v0", "steps": 20, "quiet": True, "set": SMALL}
    run = td7.train(**options, out=tmp_path / "run", env_kwargs=kwargs)
    assert run.config["task"]["kwargs"] == {"at": 9, "fault": "none"}
    values: tuple[tuple[Any, str], ...] = (
        ({"at": object()}, r"env_kwargs: at is <object .*>; allowed: what JSON can hold"),
        (5, "env_kwargs takes text, given 5"),
    )
    for value, message in values:
        with pytest.raises(InputError, match=message):
            td7.train(**options, out=tmp_path / "none", env_kwargs=value)
    assert not (tmp_path / "none").exists()

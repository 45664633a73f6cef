"""Learning from a dataset: like a plain loop, stacked as alone, and resumed exactly."""

import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import td7
from folders import contents, differences, newest, results
from interrupted_runs import Runner, change_both, check_kills, files, refused, train_words
from offline_runs import BOUNDS, CPU, POINT, STEPS, TINY, Fields, point_fields, save, train
from td7.algorithms import ALGORITHMS, algorithm
from td7.algorithms.learner import Learner
from td7.cli.main import main
from td7.configs import build_config
from td7.engine.cuda import Fetch
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.errors import InputError, Stopped
from td7.networks.numpy_actor import Actor
from td7.rollouts.evaluation import Evaluator
from td7.rollouts.registration import describe, make
from td7.runs.policies import kept_policies
from td7.training.resolve import read_dataset
from td7.types import RowLayout, Task

# What the paper changes for datasets; the other algorithms are made for them.
CHANGED: Mapping[str, Mapping[str, Any]] = {"td7": {"cloning_weight": 0.1, "checkpoints": "none"}}


def test_every_offline_algorithm_is_tested_here() -> None:
    assert [a.name for a in ALGORITHMS.values() if a.offline is not None] == list(TINY)


@pytest.fixture(scope="module")
def fields() -> Fields:
    return point_fields()


@pytest.fixture(scope="module")
def data(fields: Fields, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "point.hdf5", fields, **BOUNDS)


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("offline")
    return {name: train(name, folder / name, data).path for name in TINY}


def made_of(run: td7.Run) -> tuple[str, dict[str, Any]]:
    """Return the id and the arguments of the run's task."""
    return run.config["task"]["id"], run.config["task"]["kwargs"]


def saved(run: Path) -> dict[str, Tensor]:
    return load_file(newest(run) / "state.safetensors")


# -- the loop ------------------------------------------------------------------------------------


def plain_loop(name: str, seed: int, fields: Fields) -> tuple[Learner, Replay]:
    """Rows made by hand, then one update after the other."""
    last_of_cut = fields["timeouts"] & ~fields["terminals"]
    columns = (
        fields["observations"],
        (fields["actions"].astype(np.float32) - [1.0, 0.0]) / 2,  # bounds [-1, 3] and [-2, 2]
        fields["next_observations"],
        fields["rewards"],
        ~fields["terminals"],
    )
    rows = np.column_stack(columns)[~last_of_cut].astype(np.float32)
    layout = RowLayout(2, 2)
    chosen = algorithm(name)
    config = build_config(chosen.config, {**CHANGED.get(name, {}), **TINY[name]})
    learner = chosen.learner(config, describe(Task(POINT)), [seed], CPU, torch.float64)
    replay = Replay(layout, len(rows), 1, CPU, torch.float64, shared=True)
    replay.fill(learner.prepare_rows(rows, layout))
    engine = Engine(learner, replay, config.batch_size, [seed])
    for _ in range(STEPS):
        engine.advance([1])
    return learner, replay


@pytest.mark.parametrize("name", TINY)
def test_a_run_equals_a_plain_loop(name: str, finished: dict[str, Path], fields: Fields) -> None:
    """Weights, moments, targets, priorities and the last evaluation of both seeds."""
    tensors = saved(finished[name])
    evaluations = td7.Run(finished[name]).evaluations
    evaluator = Evaluator(partial(make, Task(POINT)))
    for m, seed in enumerate((0, 1)):
        learner, replay = plain_loop(name, seed, fields)
        state = learner.state()
        assert state["critic.steps"].item() == STEPS
        for key, tensor in state.items():
            assert torch.allclose(tensor[0], tensors[f"learner.{key}"][m], rtol=1e-6, atol=1e-9), (
                key
            )
        priorities = replay.leaves[0, : replay.size(0)]
        assert torch.allclose(priorities, tensors[f"replay.priorities.{seed}"], rtol=1e-6)
        assert (priorities.max() > priorities.min()) == (name == "td7")
        actor = Actor(learner.policy_network, learner.policies()[0].numpy())
        played = evaluator.play(actor, seed=seed, step=STEPS, episodes=2)
        last = evaluations.query(f"seed == {seed} and step == {STEPS}")["return"]
        assert np.allclose([episode.episode_return for episode in played], last, rtol=1e-6)
    evaluator.close()


@pytest.mark.parametrize("name", TINY)
def test_seeds_trained_together_are_seeds_trained_alone(
    name: str, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    both, together = td7.Run(finished[name]), saved(finished[name])
    assert not torch.equal(*together["learner.actor.parameters"])
    for m, seed in enumerate((0, 1)):
        alone = train(name, tmp_path / f"{seed}", data, seeds=seed)
        for key, tensor in saved(alone.path).items():
            if key.startswith("learner."):
                assert torch.allclose(tensor[0], together[key][m], rtol=1e-9, atol=1e-11), key
        for table in ("metrics", "evaluations"):
            theirs = getattr(both, table)
            ours = getattr(alone, table)
            assert len(ours) > 3
            mine = theirs[theirs["seed"] == seed]
            assert np.allclose(mine, ours, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["td7", "iql"])
def test_results_do_not_depend_on_workers(
    name: str, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    run = train(name, tmp_path / "run", data, workers=2)
    assert differences(contents(run.path), contents(finished[name])) == []


def test_policies_that_arrive_late_change_nothing(
    tmp_path: Path, finished: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a busy GPU: they arrive only when they are waited for.

    Once to the end, once with a snapshot while two evaluations per seed wait for their policies.
    """
    advance = Engine.advance

    def stop_at_30(engine: Engine, wanted: Sequence[int]) -> None:
        advance(engine, wanted)
        if engine.updates[0] == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Fetch, "is_ready", lambda _: False)
        run = train("td7", tmp_path / "run", data)
        patch.setattr(Engine, "advance", stop_at_30)
        with pytest.raises(Stopped):
            train("td7", tmp_path / "stopped", data)
    assert differences(contents(run.path), contents(finished["td7"])) == []
    stopped = newest(tmp_path / "stopped") / "members.json"
    assert len(json.loads(stopped.read_text())["pending_evaluations"]) == 4
    assert main(["resume", str(tmp_path / "stopped"), "--quiet"]) == 0
    assert differences(contents(tmp_path / "stopped"), contents(finished["td7"])) == []


def test_info_checks_the_sizes_of_a_named_task(
    tmp_path: Path, fields: Fields, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does so as training does."""
    still = {**fields, "actions": 0 * fields["actions"]}  # within the bounds of both tasks
    path = str(save(tmp_path / "still.hdf5", still))
    line = refused(["dataset", "info", path, "--env", "Swimmer-v4"], capsys)
    assert "states of 2 numbers, but Swimmer-v4 has states of 8" in line
    assert main(["dataset", "info", path, "--env", POINT]) == 0
    assert POINT in capsys.readouterr().out


@pytest.mark.parametrize("name", TINY)
def test_every_table_has_its_rows(name: str, finished: dict[str, Path]) -> None:
    run = td7.Run(finished[name])
    evaluated = run.evaluations.groupby(["seed", "step"]).size()
    assert dict(evaluated) == {(seed, step): 2 for seed in (0, 1) for step in (0, 20, 40, STEPS)}
    metrics = run.metrics
    assert list(zip(metrics["seed"], metrics["step"], metrics["update"], strict=True)) == [
        (seed, update, update) for seed in (0, 1) for update in (15, 30, 45, STEPS)
    ]
    assert np.isfinite(metrics.to_numpy()).all()
    assert (run.path / "episodes.csv").read_text() == "seed,step,episode,return,length\n"
    kept = [kept_policies(run.path, step) for step in (0, 40)]
    assert sorted((run.path / "policies").iterdir()) == kept


@pytest.mark.parametrize("name", TINY)
def test_evaluations_use_the_current_policy(name: str, finished: dict[str, Path]) -> None:
    """The saved policies repeat their evaluations exactly, and no others."""
    evaluations = td7.Run(finished[name]).evaluations
    last = evaluations[evaluations["step"] == STEPS]
    assert list(td7.evaluate(finished[name], episodes=2)["return"]) == list(last["return"])
    middle = evaluations[evaluations["step"] == 40]
    of_middle = td7.evaluate(finished[name] / "policies" / "40", episodes=2)
    assert list(of_middle["return"]) == list(middle["return"]) != list(last["return"])
    first = load_file(kept_policies(finished[name], 0) / "seed-0.safetensors")
    now = load_file(finished[name] / "policy" / "seed-0.safetensors")
    assert all(not torch.equal(first[key], now[key]) for key in now)


def test_a_file_without_bounds_gets_those_of_the_task(
    tmp_path: Path, finished: dict[str, Path], fields: Fields
) -> None:
    """A file like D4RL's, read with --env, has the same rows."""
    file = save(tmp_path / "plain.hdf5", fields, task="")
    run = train("iql", tmp_path / "run", file, env=POINT)
    assert differences(results(run.path), results(finished["iql"])) == []
    plain, stated = (r.config["dataset"] for r in (run, td7.Run(finished["iql"])))
    assert plain["sha256"] == stated["sha256"]
    ends = np.flatnonzero(fields["terminals"] | fields["timeouts"]) + 1
    episodes = np.split(fields["rewards"], ends)[: len(ends)]
    assert plain["mean_return"] == pytest.approx(np.mean([rewards.sum() for rewards in episodes]))


@pytest.mark.parametrize("stated", [{}, {"action_low": [-1.0, -9.0], "action_high": [9.0, 9.0]}])
def test_the_bounds_of_the_task_count_whatever_a_file_states(
    stated: dict[str, Any], tmp_path: Path, fields: Fields
) -> None:
    """The rows are the same without --env, with it and on resume, which names the task."""
    small = {**fields, "actions": fields["actions"] / 3}
    file = save(tmp_path / "own.hdf5", small, **stated)
    run = train("iql", tmp_path / "run", file, steps=20)
    named = train("iql", tmp_path / "named", file, steps=20, env=POINT)
    assert differences(results(run.path), results(named.path)) == []
    rows = (small["actions"].astype(np.float32) - [1.0, 0.0]) / 2  # bounds [-1, 3] and [-2, 2]
    read = read_dataset(str(file), Task("")).rows
    assert np.allclose(read[:, 2:4], rows[~fields["timeouts"] | fields["terminals"]], atol=1e-6)
    td7.resume(run.path, steps=40, quiet=True)


def test_env_kwargs_are_known_without_the_name_of_the_task(tmp_path: Path, data: Path) -> None:
    run = train("iql", tmp_path / "run", data, steps=20, env_kwargs={"at": 5})
    assert made_of(run) == (POINT, {"at": 5})
    with pytest.raises(InputError, match="unexpected keyword argument 'wings'"):
        train("iql", tmp_path / "other", data, env_kwargs={"wings": 2})
    assert not (tmp_path / "other").exists()


def test_a_task_has_the_arguments_it_had_for_the_data(
    tmp_path: Path, fields: Fields, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "own.hdf5", fields, **BOUNDS, task_kwargs='{"at": 5}')
    run = train("iql", tmp_path / "run", path, steps=20)
    assert made_of(run) == (POINT, {"at": 5})
    assert capfd.readouterr().err == ""
    run = train("iql", tmp_path / "other", path, steps=20, env=POINT)
    assert made_of(run) == (POINT, {})
    warning = f"its data are of {POINT} with at=5, but it is evaluated on {POINT}"
    assert capfd.readouterr().err == f"own ({POINT}): {warning}\n"  # even in a quiet run


# -- resume --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "steps"), [*((name, 37) for name in TINY), ("iql", 40)])
def test_an_extended_run_is_one_that_was_longer(
    name: str, steps: int, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    """The first part ends between two evaluations and rows of metrics, or at an evaluation."""
    run = train(name, tmp_path / "run", data, steps=steps)
    command = ["resume", str(run.path), "--steps", str(STEPS), "--quiet"]
    assert main(command) == 0
    assert differences(contents(run.path), contents(finished[name])) == []


@pytest.mark.parametrize("name", ["td7", "cql"])
def test_a_run_killed_at_random_moments_resumes_exactly(
    name: str, tmp_path: Path, data: Path
) -> None:
    options = ["--dataset", str(data), "--metrics-every", "5"]
    path = tmp_path / "uninterrupted"
    assert main([*train_words(path, name, **TINY[name]), *options, "--quiet"]) == 0
    runner = Runner(tmp_path, name, options, **TINY[name])
    check_kills(runner, contents(path), 1)
    for process in runner.processes:
        process.kill()


@pytest.fixture
def stopped(tmp_path: Path, data: Path) -> tuple[Path, Path]:
    """A run to be extended, and its own copy of the data."""
    own = tmp_path / "own.hdf5"
    shutil.copy(data, own)
    return train("iql", tmp_path / "run", own, steps=37).path, own


def test_data_may_be_moved(
    stopped: tuple[Path, Path], tmp_path: Path, finished: dict[str, Path]
) -> None:
    """The run remembers where they are now."""
    run, own = stopped
    moved = own.rename(tmp_path / "moved.hdf5")
    for steps in ("50", str(STEPS)):
        where = ["--dataset", str(moved)] if steps == "50" else []
        assert main(["resume", str(run), "--steps", steps, "--quiet", *where]) == 0
    assert td7.Run(run).config["dataset"]["source"] == str(moved)
    assert differences(results(run), results(finished["iql"])) == []
    ours, theirs = saved(run), saved(finished["iql"])
    assert all(torch.equal(ours[key], theirs[key]) for key in {**ours, **theirs})


def test_a_run_older_than_the_mean_return_of_its_data_resumes(stopped: tuple[Path, Path]) -> None:
    run, _ = stopped

    def older(config: dict[str, Any]) -> None:
        del config["dataset"]["mean_return"]

    change_both(run, older)
    assert main(["resume", str(run), "--steps", "50", "--quiet", "--trust"]) == 0
    assert td7.Run(run).config["dataset"]["mean_return"] is not None


def test_other_data_are_refused(
    stopped: tuple[Path, Path],
    tmp_path: Path,
    fields: Fields,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One other reward among hundreds is enough, in the same file or elsewhere."""
    run, own = stopped
    rewards = fields["rewards"].copy()
    rewards[7] += 1.0
    other = save(tmp_path / "other.hdf5", {**fields, "rewards": rewards})
    before = files(run)
    problem = f"does not hold the data that {run} began with"
    line = refused(["resume", str(run), "--dataset", str(other)], capsys)
    assert line == f"td7: {other} {problem}"
    shutil.copy(other, own)
    assert refused(["resume", str(run), "--steps", "50"], capsys) == f"td7: {own} {problem}"
    assert files(run) == before


def test_missing_data_are_refused(
    stopped: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, own = stopped
    own.rename(tmp_path / "elsewhere")
    before = files(run)
    line = refused(["resume", str(run)], capsys)
    assert line.startswith(f"td7: {own} is neither a file nor a local Minari dataset")
    assert files(run) == before


def test_an_online_run_refuses_a_dataset_on_resume(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden_dim": 8, "batch_size": 8, "random_steps": 10}
    run = td7.train("td3", env=POINT, steps=20, out=str(tmp_path / "run"), set=small, quiet=True)
    before = files(run.path)
    line = refused(["resume", str(run.path), "--dataset", str(data)], capsys)
    assert line == f"td7: {run.path} collects its own data: --dataset has no effect"
    assert files(run.path) == before

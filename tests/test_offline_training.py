"""Learning from given data: the plain loop, side by side as alone, and exactly again on resume."""

import io
import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

import td7
import toys
from folders import contents, differences, newest, results, words
from td7 import api as api_module
from td7.algorithms import ALGORITHMS, algorithm
from td7.algorithms.learner import Learner
from td7.cli.main import main
from td7.cli.terminal import evaluation_table
from td7.configs import build_config
from td7.datasets.hdf5 import write_hdf5
from td7.engine.cuda import Fetch
from td7.engine.engine import Engine
from td7.engine.replay import Replay, required_bytes
from td7.errors import InputError, Stopped
from td7.networks.numpy_actor import Actor
from td7.rollouts.evaluation import evaluate
from td7.rollouts.registration import describe, make
from td7.runs import folder as folder_module
from td7.runs.policies import kept_policies
from td7.training import hardware as hardware_module
from td7.training import resolve as resolve_module
from td7.types import Float32, RowLayout, Task
from test_resume import Runner, change_both, check_kills, files, refused, train_words

assert toys  # registers the tasks
POINT = "toys:Point-v0"
BOUNDS = {"action_low": [-1.0, -2.0], "action_high": [3.0, 2.0]}
CPU = torch.device("cpu")
STEPS = 60
TINY: Mapping[str, Mapping[str, Any]] = {
    "td7": {"hidden_dim": 8, "embedding_dim": 6, "batch_size": 16, "target_every": 7},
    "td3+bc": {"hidden_dim": 8, "batch_size": 16},
    "cql": {"hidden_dim": 8, "batch_size": 16, "sampled_actions": 3, "cloning_updates": 20},
    "iql": {"hidden_dim": 8, "batch_size": 16},
    "xql": {"hidden_dim": 8, "batch_size": 16},
}
# What the paper changes where data are given; the others are made for that.
CHANGED: Mapping[str, Mapping[str, Any]] = {"td7": {"cloning_weight": 0.1, "checkpoints": "none"}}

Fields = dict[str, Any]


def test_all_that_learn_from_data_are_here() -> None:
    assert [a.name for a in ALGORITHMS.values() if a.offline is not None] == list(TINY)


@pytest.fixture(scope="module")
def fields() -> Fields:
    """Twelve episodes of the point under random actions; pushed in one direction, some end."""
    environment = gymnasium.make(POINT)
    environment.action_space.seed(0)
    found: dict[str, list[Any]] = {}
    for episode in range(12):
        state, _ = environment.reset(seed=episode)
        ended = False
        while not ended:
            action = environment.action_space.sample()
            if episode % 3 == 0:
                action[0] = 3.0
            next_state, reward, terminated, truncated, _ = environment.step(action)
            row = (state, action, next_state, reward, terminated, truncated)
            names = ("observations", "actions", "next_observations")
            for name, value in zip((*names, "rewards", "terminals", "timeouts"), row, strict=True):
                found.setdefault(name, []).append(value)
            state, ended = next_state, terminated or truncated
    environment.close()
    assert any(found["terminals"])
    assert any(found["timeouts"])
    assert np.max(found["actions"]) > 2.5  # the task's own, beyond [-1, 1]
    return {name: np.array(column) for name, column in found.items()}


def save(path: Path, fields: Fields, **attributes: Any) -> Path:
    given = {"task": POINT, "kind": "random", **attributes}
    write_hdf5(path, **fields, attributes=given)
    return path


@pytest.fixture(scope="module")
def data(fields: Fields, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "point.hdf5", fields, **BOUNDS)


def train(name: str, path: Path, data: Path, **options: Any) -> td7.Run:
    given: dict[str, Any] = {
        "dataset": str(data),
        "steps": STEPS,
        "evaluate_every": 20,
        "evaluation_episodes": 2,
        "metrics_every": 15,
        "keep_policies": 40,
        "set": TINY[name],
        "seeds": "0-1",
        "precision": "float64",
        "quiet": True,
        **options,
    }
    return td7.train(name, out=str(path), **given)


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("offline")
    return {name: train(name, folder / name, data).path for name in TINY}


def saved(run: Path) -> dict[str, Tensor]:
    return load_file(newest(run) / "state.safetensors")


# -- the loop ------------------------------------------------------------------------------------


def plainly(name: str, seed: int, fields: Fields) -> tuple[Learner, Replay]:
    """The rows by hand, then one update after the other."""
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
def test_it_is_the_plain_loop(name: str, finished: dict[str, Path], fields: Fields) -> None:
    """Weights, moments, targets, priorities and the last evaluation of both seeds."""
    found = saved(finished[name])
    evaluations = api_module.Run(finished[name]).evaluations
    environment = make(Task(POINT))
    for m, seed in enumerate((0, 1)):
        learner, replay = plainly(name, seed, fields)
        state = learner.state()
        assert state["critic.steps"].item() == STEPS
        for key, tensor in state.items():
            assert torch.allclose(tensor[0], found[f"learner.{key}"][m], rtol=1e-6, atol=1e-9), key
        priorities = replay.leaves[0, : replay.size(0)]
        assert torch.allclose(priorities, found[f"replay.priorities.{seed}"], rtol=1e-6)
        assert (priorities.max() > priorities.min()) == (name == "td7")
        actor = Actor(learner.policy_network, learner.policies()[0].numpy())
        played = evaluate(environment, actor, seed=seed, step=STEPS, episodes=2)
        last = evaluations.query(f"seed == {seed} and step == {STEPS}")["return"]
        assert np.allclose([episode.episode_return for episode in played], last, rtol=1e-6)
    environment.close()


@pytest.mark.parametrize("name", TINY)
def test_members_are_as_if_alone(
    name: str, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    both, together = api_module.Run(finished[name]), saved(finished[name])
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
def test_processes_change_nothing(
    name: str, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    run = train(name, tmp_path / "run", data, workers=2)
    assert differences(contents(run.path), contents(finished[name])) == []


def test_policies_that_arrive_late_change_nothing(
    tmp_path: Path, finished: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a GPU they come while it goes on; here, only when they are waited for.

    Once to the end, once with a snapshot while two evaluations of each seed wait for theirs.
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
    """As training does."""
    still = {**fields, "actions": 0 * fields["actions"]}  # within the bounds of both tasks
    path = str(save(tmp_path / "still.hdf5", still))
    told = refused(["dataset", "info", path, "--env", "Swimmer-v4"], capsys)
    assert "states of 2 numbers, Swimmer-v4 of 8" in told
    assert main(["dataset", "info", path, "--env", POINT]) == 0
    assert POINT in capsys.readouterr().out


@pytest.mark.parametrize("name", TINY)
def test_what_is_written_when(name: str, finished: dict[str, Path]) -> None:
    run = api_module.Run(finished[name])
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
def test_the_policy_that_is_evaluated_is_the_current_one(
    name: str, finished: dict[str, Path]
) -> None:
    """The last evaluation can be played again from the saved policies; another is another."""
    evaluations = api_module.Run(finished[name]).evaluations
    last = evaluations[evaluations["step"] == STEPS]
    assert list(td7.evaluate(finished[name], episodes=2)["return"]) == list(last["return"])
    middle = evaluations[evaluations["step"] == 40]
    of_middle = td7.evaluate(finished[name] / "policies" / "40", episodes=2)
    assert list(of_middle["return"]) == list(middle["return"]) != list(last["return"])
    first = load_file(kept_policies(finished[name], 0) / "seed-0.safetensors")
    now = load_file(finished[name] / "policy" / "seed-0.safetensors")
    assert all(not torch.equal(first[key], now[key]) for key in now)


def test_bounds_of_actions_are_the_tasks(
    tmp_path: Path, finished: dict[str, Path], fields: Fields
) -> None:
    """A file like D4RL's, which states none, with --env: the same rows."""
    file = save(tmp_path / "plain.hdf5", fields, task="")
    run = train("iql", tmp_path / "run", file, env=POINT)
    assert differences(results(run.path), results(finished["iql"])) == []
    given, stated = (r.config["dataset"] for r in (run, api_module.Run(finished["iql"])))
    assert given["sha256"] == stated["sha256"]
    ends = np.flatnonzero(fields["terminals"] | fields["timeouts"]) + 1
    episodes = np.split(fields["rewards"], ends)[: len(ends)]
    assert given["mean_return"] == pytest.approx(np.mean([rewards.sum() for rewards in episodes]))


@pytest.mark.parametrize("stated", [{}, {"action_low": [-1.0, -9.0], "action_high": [9.0, 9.0]}])
def test_bounds_are_the_tasks_whatever_a_file_states(
    stated: dict[str, Any], tmp_path: Path, fields: Fields
) -> None:
    """Without --env, and so on resume, which names the task: the same rows."""
    small = {**fields, "actions": fields["actions"] / 3}
    file = save(tmp_path / "own.hdf5", small, **stated)
    run = train("iql", tmp_path / "run", file, steps=20)
    named = train("iql", tmp_path / "named", file, steps=20, env=POINT)
    assert differences(results(run.path), results(named.path)) == []
    rows = (small["actions"].astype(np.float32) - [1.0, 0.0]) / 2  # bounds [-1, 3] and [-2, 2]
    read = resolve_module.read_dataset(str(file), Task("")).rows
    assert np.allclose(read[:, 2:4], rows[~fields["timeouts"] | fields["terminals"]], atol=1e-6)
    td7.resume(run.path, steps=40, quiet=True)


def test_a_tasks_options_are_known_without_its_name(tmp_path: Path, data: Path) -> None:
    run = train("iql", tmp_path / "run", data, steps=20, env_kwargs={"at": 5})
    assert run.config["task"] == {"id": POINT, "kwargs": {"at": 5}}
    with pytest.raises(InputError, match="unexpected keyword argument 'wings'"):
        train("iql", tmp_path / "other", data, env_kwargs={"wings": 2})
    assert not (tmp_path / "other").exists()


def test_a_task_is_made_as_it_was_for_the_data(
    tmp_path: Path, fields: Fields, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "own.hdf5", fields, **BOUNDS, task_kwargs='{"at": 5}')
    run = train("iql", tmp_path / "run", path, steps=20)
    assert run.config["task"] == {"id": POINT, "kwargs": {"at": 5}}
    assert capfd.readouterr().err == ""
    run = train("iql", tmp_path / "other", path, steps=20, env=POINT)
    assert run.config["task"] == {"id": POINT, "kwargs": {}}
    told = f"its data are of {POINT} with at=5, but it is evaluated on {POINT}"
    assert capfd.readouterr().err == f"own ({POINT}): {told}\n"  # a quiet run says it, too


# -- resume --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "steps"), [*((name, 37) for name in TINY), ("iql", 40)])
def test_extended_it_is_the_whole_run(
    name: str, steps: int, tmp_path: Path, finished: dict[str, Path], data: Path
) -> None:
    """Stopped between two evaluations and two rows of metrics, and at an evaluation."""
    run = train(name, tmp_path / "run", data, steps=steps)
    command = ["resume", str(run.path), "--steps", str(STEPS), "--quiet"]
    assert main(command) == 0
    assert differences(contents(run.path), contents(finished[name])) == []


@pytest.mark.parametrize("name", ["td7", "cql"])
def test_killed_again_and_again_at_random_moments(name: str, tmp_path: Path, data: Path) -> None:
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
    """And the run remembers where they are now."""
    run, own = stopped
    moved = own.rename(tmp_path / "moved.hdf5")
    for steps in ("50", str(STEPS)):
        where = ["--dataset", str(moved)] if steps == "50" else []
        assert main(["resume", str(run), "--steps", steps, "--quiet", *where]) == 0
    assert api_module.Run(run).config["dataset"]["source"] == str(moved)
    assert differences(results(run), results(finished["iql"])) == []
    ours, theirs = saved(run), saved(finished["iql"])
    assert all(torch.equal(ours[key], theirs[key]) for key in {**ours, **theirs})


def test_a_run_of_before_the_datas_mean_was_told_goes_on(stopped: tuple[Path, Path]) -> None:
    run, _ = stopped

    def older(config: dict[str, Any]) -> None:
        del config["dataset"]["mean_return"]

    change_both(run, older)
    assert main(["resume", str(run), "--steps", "50", "--quiet"]) == 0
    assert api_module.Run(run).config["dataset"]["mean_return"] is not None


def test_other_data_are_refused(
    stopped: tuple[Path, Path],
    tmp_path: Path,
    fields: Fields,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One reward among hundreds is enough, in its place or elsewhere."""
    run, own = stopped
    rewards = fields["rewards"].copy()
    rewards[7] += 1.0
    other = save(tmp_path / "other.hdf5", {**fields, "rewards": rewards})
    before = files(run)
    told = f"does not hold the data that {run} began with"
    line = refused(["resume", str(run), "--dataset", str(other)], capsys)
    assert line == f"td7: {other} {told}"
    shutil.copy(other, own)
    assert refused(["resume", str(run), "--steps", "50"], capsys) == f"td7: {own} {told}"
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


def test_a_run_that_collects_takes_no_data_on_resume(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden_dim": 8, "batch_size": 8, "random_steps": 10}
    run = td7.train("td3", env=POINT, steps=20, out=str(tmp_path / "run"), set=small, quiet=True)
    before = files(run.path)
    line = refused(["resume", str(run.path), "--dataset", str(data)], capsys)
    assert line == f"td7: {run.path} collects its own data: --dataset has no effect"
    assert files(run.path) == before


# -- what is refused -----------------------------------------------------------------------------

ENV = ["--env", POINT]
WITHOUT_EFFECT = "has no effect with --dataset"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            ["td3", "--dataset", "DATA"],
            "td3 does not learn from a dataset; allowed: td7, td3+bc, cql, iql, xql",
        ),
        (["iql", *ENV], "iql learns from a dataset: give --dataset"),
        (["iql"], "--env is missing: the Gymnasium id of a task, such as HalfCheetah-v4"),
        (
            ["td7", "--dataset", "DATA", "--set", "random_steps=5"],
            f"random_steps=5 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--set", "replay_capacity=5"],
            f"replay_capacity=5 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--set", "checkpoints=minimum"],
            f"checkpoints=minimum {WITHOUT_EFFECT}",
        ),
        (
            ["td3+bc", "--dataset", "DATA", "--set", "exploration_noise=0.2"],
            f"exploration_noise=0.2 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--keep-policies", "30", "--evaluate-every", "20"],
            "keep-policies=30 must be a multiple of evaluate-every=20",
        ),
        (
            ["cql", "--dataset", "DATA", "--env", "toys:Count-v0"],
            "DATA: actions has 2 dimensions, the task's 1",
        ),
        (["cql", "--dataset", "WIDE"], f"WIDE has states of 3 numbers, {POINT} of 2"),
        (["cql", "--dataset", "WIDE", *ENV], f"WIDE has states of 3 numbers, {POINT} of 2"),
        (["cql", "--dataset", "NAMELESS"], "NAMELESS does not name its task: give --env"),
        (["xql", "--dataset", "/none"], "/none is neither a file nor a local Minari dataset"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    given: Sequence[str],
    line: str,
    tmp_path: Path,
    data: Path,
    fields: Fields,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide = {
        name: fields[name].repeat(2, 1)[:, :3] for name in ("observations", "next_observations")
    }
    bounds = {"action_low": [-1.0, -2.0], "action_high": [3.0, 2.0]}
    unbounded = {**fields, "actions": fields["actions"] / 3}
    paths = {
        "DATA": data,
        "WIDE": save(tmp_path / "wide.hdf5", {**fields, **wide}, **bounds),
        "NAMELESS": save(tmp_path / "nameless.hdf5", unbounded, task=""),
    }
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)  # where runs/ would come to be
    told = refused(["train", *(str(paths.get(word, word)) for word in given)], capsys)
    for name, path in paths.items():
        line = line.replace(name, str(path))
    assert told == f"td7: {line}"
    assert list(here.iterdir()) == []


def test_what_helps_where_memory_is_short(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No advice that would be refused itself."""
    monkeypatch.setattr(hardware_module, "_free_bytes", lambda _: 1000)
    with pytest.raises(InputError) as error:
        train("td7", tmp_path / "run", data)
    assert str(error.value).endswith("; allowed: a smaller dataset, fewer seeds at once")
    assert not (tmp_path / "run").exists()


def test_memory_is_for_one_copy_of_the_rows(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free is enough to the byte for two seeds, where two copies would not fit."""
    options = resolve_module.train_options({"dataset": str(data), "seeds": "0-1", "device": "cpu"})
    dataset = resolve_module.read_dataset(options.dataset, options.task)
    config, spec = resolve_module.run_config(options, dataset), describe(Task(POINT))
    n = len(dataset.rows)
    priorities = required_bytes(RowLayout(2, 2), n, 2)[1]
    enough = 4 * n * 8 + priorities  # a row: two states of two numbers, an action of two, and two
    monkeypatch.setattr(hardware_module, "_free_bytes", lambda _: enough)
    hardware_module.check_memory(config, spec)
    monkeypatch.setattr(hardware_module, "_free_bytes", lambda _: enough - 1)
    with pytest.raises(InputError, match="the replay of 2 seed"):
        hardware_module.check_memory(config, spec)


@pytest.mark.parametrize("name", [a.name for a in ALGORITHMS.values() if a.offline is None])
def test_the_others_do_not_learn_from_data(name: str, tmp_path: Path, data: Path) -> None:
    with pytest.raises(InputError) as error:
        td7.train(name, dataset=str(data), out=str(tmp_path / "run"))
    allowed = "td7, td3+bc, cql, iql, xql"
    assert str(error.value) == f"{name} does not learn from a dataset; allowed: {allowed}"
    assert list(tmp_path.iterdir()) == []


def test_every_step_is_an_update(data: Path) -> None:
    """A million, as in the paper; all of them count for whether compiling is worth its minute."""
    given = {"dataset": str(data), "device": "cpu"}
    options = resolve_module.train_options(given)
    dataset = resolve_module.read_dataset(options.dataset, options.task)
    assert resolve_module.run_config(options, dataset).steps == 1_000_000
    for steps, engine in (
        (hardware_module.WORTH_COMPILING - 1, "eager"),
        (hardware_module.WORTH_COMPILING, "compiled"),
    ):
        chosen = resolve_module.train_options({**given, "steps": steps})
        assert resolve_module.run_config(chosen, dataset).engine == engine


# -- what is shown -------------------------------------------------------------------------------


def test_the_command_tells_no_score_without_reference_returns(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    few = ["--steps", "4", "--evaluate-every", "2", "--evaluation-episodes", "1"]
    given = ["--dataset", str(data), "--out", str(path), *few, "--set", *words(TINY["iql"])]
    assert main(["train", "iql", *given]) == 0
    out, err = capsys.readouterr()
    assert "mean return of an evaluation" in out
    assert "D4RL" not in out
    assert f"iql on point ({POINT}), seeds 0, 4 updates" in err
    assert "[0] 4 updates, evaluation " in err
    assert "at update" in out
    assert "step" not in out + err  # of the task there are none
    assert (path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def hopper(path: Path) -> Path:
    """Noise of the right size; the file's name tells the task."""
    random, n = np.random.default_rng(0), 30
    write_hdf5(
        path / "hopper-medium-v2.hdf5",
        observations=random.standard_normal((n, 11)),
        actions=random.uniform(-1.0, 1.0, (n, 3)),
        next_observations=random.standard_normal((n, 11)),
        rewards=random.uniform(0.0, 3.0, n),
        terminals=np.arange(n) % 10 == 9,
        timeouts=np.zeros(n),
        attributes={"task": "", "kind": "noise"},
    )
    return path / "hopper-medium-v2.hdf5"


def test_the_command_tells_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    few = ["--steps", "2", "--evaluate-every", "2", "--evaluation-episodes", "1"]
    given = ["--dataset", str(hopper(tmp_path)), "--out", str(path), *few]
    assert main(["train", "iql", *given, "--set", *words(TINY["iql"])]) == 0
    out, _ = capsys.readouterr()
    assert "D4RL score" in out
    assert "(self-collected)" in out
    evaluations = api_module.Run(path).evaluations
    last = evaluations.query("step == 2")["return"].item()
    expected = 100 * (evaluations["return"] + 20.272305) / (3234.3 + 20.272305)
    np.testing.assert_allclose(evaluations["score"], expected)
    assert main(["evaluate", str(path), "--episodes", "1"]) == 0
    again = api_module.evaluate(path, episodes=1)
    assert again["score"].item() == pytest.approx(expected.iloc[-1])
    told = capsys.readouterr().out
    assert f"{again['score'].item():.1f}" in told
    assert "D4RL score" in told
    assert "(self-collected)" in told
    api_module.resume(path, steps=4, quiet=True)
    assert list(api_module.Run(path).evaluations.columns) == [*folder_module.EVALUATIONS, "score"]
    assert len(api_module.Run(path).evaluations) == len(evaluations) + 1
    (row,) = [line for line in out.splitlines() if line.startswith("│    0")]
    assert f"{100 * (last + 20.272305) / (3234.3 + 20.272305):.1f}" in row.split()[-2]


@pytest.mark.parametrize(
    ("task", "score"),
    [("Hopper-v4", "50.0"), ("toys:Hopper-v0", "50.0"), (POINT, None), ("", None)],
)
def test_scores_are_of_tasks_with_reference_returns(task: str, score: str | None) -> None:
    """Of Hopper -20.272305 is 0 and 3234.3 is 100: their middle is 50."""
    columns = ["seed", "step", "episode", "return"]
    rows = [(0, 0, 0, 0.0), (0, 5, 0, 1607.0138475)]
    written = io.StringIO()
    table = evaluation_table(pd.DataFrame(rows, columns=columns), scored_task=task)
    Console(width=140, file=written).print(table)
    text = written.getvalue()
    assert ("D4RL score" in text) == (score is not None)
    assert score is None or score in text


# -- the shared replay ---------------------------------------------------------------------------

LAYOUT = RowLayout(state_dim=2, action_dim=1)


def numbers(n: int) -> Float32:
    random = np.random.default_rng(0)
    return random.standard_normal((n, LAYOUT.width)).astype(np.float32)


def pair(n: int, members: int) -> tuple[Replay, Replay]:
    """Shared rows, and the same of each member's own."""
    shared = Replay(LAYOUT, n, members, CPU, torch.float32, shared=True)
    shared.fill(numbers(n))
    own = Replay(LAYOUT, n, members, CPU, torch.float32)
    for member in range(members):
        own.append(member, numbers(n))
    return shared, own


@pytest.mark.parametrize("n", [1, 7, 300])
def test_shared_rows_are_kept_once(n: int) -> None:
    once = 4 * n * LAYOUT.width
    shared, own = pair(n, 3)
    assert shared.rows.untyped_storage().nbytes() == once
    assert own.rows.untyped_storage().nbytes() == 3 * once
    assert required_bytes(LAYOUT, n, 3, shared=True)[0] == once
    assert required_bytes(LAYOUT, n, 3)[0] == 3 * once
    priorities = sum(level.nbytes for level in shared._levels)
    for is_shared in (True, False):  # priorities are each member's own
        assert required_bytes(LAYOUT, n, 3, shared=is_shared)[1] >= priorities


@pytest.mark.parametrize("n", [1, 7, 300])
def test_shared_rows_are_sampled_like_own_ones(n: int) -> None:
    shared, own = pair(n, 3)
    random = torch.Generator().manual_seed(0)
    for _ in range(5):
        uniforms = torch.rand(3, 16, generator=random, dtype=torch.float64)
        new = 1 + 9 * torch.rand(3, 16, generator=random)
        active = torch.tensor([True, False, True])
        found = []
        for replay in (shared, own):
            indices = replay.sample(uniforms)
            replay.set_priorities(indices, new, active)
            uniform = replay.sample_uniformly(uniforms)
            found.append([indices, uniform, *replay.batch(indices), *replay._levels])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert shared.added == own.added == [n] * 3
    assert torch.equal(shared.max_priority, own.max_priority)
    assert shared.max_priority[1] == 1 < shared.max_priority[0]

"""Members without checkpoints: one time step, one update, together; and exactly again on resume."""

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import td7
import toys
from folders import SMALL, contents, differences, newest
from td7.algorithms.td7 import TD7, TD7Config
from td7.configs import build_config
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.errors import RunError
from td7.rollouts import vector as vector_module
from td7.rollouts.registration import describe, make
from td7.rollouts.vector import EpisodeState, can_spin
from td7.seeding import Stream, derived_seed, generator
from td7.training import lockstep
from td7.training.lockstep import LockstepTraining
from td7.types import RowLayout, Task

assert toys  # registers the tasks
NONE: Mapping[str, Any] = {**SMALL, "checkpoints": "none"}
STEPS = 90


def train(path: Path, **options: Any) -> td7.Run:
    defaults: dict[str, Any] = {
        "env": "toys:Point-v0",
        "steps": STEPS,
        "evaluate_every": 25,
        "evaluation_episodes": 2,
        "metrics_every": 20,
        "set": NONE,
        "seeds": "0-1",
        "quiet": True,
    }
    return td7.train(out=str(path), **{**defaults, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("lockstep") / "run").path


def plain_loop(
    seed: int, steps: int, **settings: object
) -> tuple[dict[str, torch.Tensor], list[tuple[int, float]]]:
    """The protocol as a plain loop, for comparison: the learner's state, the ends of episodes."""
    config = build_config(TD7Config, {**NONE, **settings})
    environment = make(Task("toys:Point-v0"))
    spec = environment.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    learner = TD7(config, spec, [seed], torch.device("cpu"), torch.float64)
    replay = Replay(layout, steps, 1, torch.device("cpu"), torch.float64)
    engine = Engine(learner, replay, config.batch_size, [seed])
    ends: list[tuple[int, float]] = []
    state, episode, trains = None, -1, False
    for step in range(1, steps + 1):
        if state is None:
            episode += 1
            is_random = step - 1 < config.random_steps
            randoms = {
                is_random: generator(seed, stream, episode)
                for is_random, stream in (
                    (True, Stream.RANDOM_ACTION),
                    (False, Stream.EXPLORATION),
                )
            }
            state = environment.reset(derived_seed(seed, Stream.EPISODE_RESET, episode))
            total = 0.0
        if config.random_phase == "steps":
            is_random = step - 1 < config.random_steps
        random = randoms[is_random]
        if is_random:
            action = random.uniform(-1.0, 1.0, spec.action_dim).astype(np.float32)
        else:
            observed = torch.from_numpy(state.astype(np.float32)).double()
            noise = torch.from_numpy(random.standard_normal(spec.action_dim).astype(np.float32))
            chosen = learner.explore(observed.view(1, 1, -1), noise.double().view(1, 1, -1))
            action = chosen.flatten().float().numpy()
        next_state, reward, terminated, truncated = environment.step(action)
        row = np.concatenate([state, action, next_state, [reward, 1.0 - terminated]])
        replay.append(0, row[None].astype(np.float32))
        if trains:
            engine.advance([1])
        total += reward
        state = next_state
        if terminated or truncated:
            state = None
            ends.append((step, total))
            trains = step >= config.random_steps
        if config.random_phase == "steps":
            trains = step >= config.random_steps
    return learner.state(), ends


@pytest.mark.parametrize("phase", ["episode", "steps"])
def test_a_run_equals_a_plain_loop(tmp_path: Path, phase: str) -> None:
    """Both seeds have the plain loop's weights, moments, targets, clip bounds and episodes."""
    run = train(tmp_path / "run", precision="float64", set={**NONE, "random_phase": phase})
    saved = load_file(newest(run.path) / "state.safetensors")
    episodes = run.episodes
    for m, seed in enumerate((0, 1)):
        state, ends = plain_loop(seed, STEPS, random_phase=phase)
        own = episodes[episodes["seed"] == seed]
        assert list(own["step"]) == [step for step, _ in ends]
        assert np.allclose(own["return"], [total for _, total in ends], rtol=1e-9)
        assert state["critic.steps"].item() > 40
        for name, tensor in state.items():
            expected = saved[f"learner.{name}"][m]
            assert torch.allclose(tensor[0], expected, rtol=1e-6, atol=1e-9), name


def test_members_in_different_phases_train_as_if_alone(tmp_path: Path) -> None:
    """The seeds' random phases end an odd number of steps apart, so actor updates alternate."""
    options = {"precision": "float64", "threads": 1}
    both = train(tmp_path / "both", seeds="0,8", **options)
    metrics = both.metrics
    first = metrics.groupby("seed")["step"].first() - metrics.groupby("seed")["update"].first()
    assert (first[0] - first[8]) % 2 == 1
    for seed in (0, 8):
        alone = train(tmp_path / f"{seed}", seeds=str(seed), **options)
        expected = alone.metrics.to_numpy()
        own = metrics[metrics["seed"] == seed].to_numpy()
        assert np.allclose(own, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("workers", "spins"), [("1", False), ("2", True), ("4", False)])
def test_results_do_not_depend_on_workers(
    tmp_path: Path, finished: Path, workers: str, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockstep, "can_spin", lambda _: spins)
    run = train(tmp_path / "run", workers=workers)
    assert differences(contents(run.path), contents(finished)) == []


def test_steppers_spin_where_each_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_module, "available_cores", lambda: range(16))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert can_spin(15)
    assert not can_spin(16)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")  # sees writes in any order
    assert not can_spin(2)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no way to share a core")
def test_spinning_steppers_give_a_shared_core_away() -> None:
    """As with several runs on one machine. Who does not, looks for whole turns of milliseconds."""
    task, steps = Task("toys:Point-v0"), 200
    spec = make(task).spec
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        live = EpisodeState(0, False, np.zeros((0, spec.action_dim), np.float32))
        pool = vector_module.make_vector_environment(
            task, [0, 1], [live, live], spec, 2, spins=True
        )
        pool.observe()
        begin = time.process_time()
        for _ in range(steps):
            pool.step(np.zeros((2, spec.action_dim), np.float32), [False, False])
        looked = time.process_time() - begin
        pool.close()
    finally:
        os.sched_setaffinity(0, cores)
    assert looked < 0.5e-3 * steps


@pytest.mark.parametrize("steps", [17, 52, 89])
def test_a_run_extended_in_the_middle_of_an_episode_is_one_that_was_longer(
    tmp_path: Path, finished: Path, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """While exploring, with one seed training, and near the end; actions are taken again."""
    run = train(tmp_path / "run", steps=steps)
    td7.resume(run.path, steps=STEPS, quiet=True)
    assert differences(contents(run.path), contents(finished)) == []
    warning = f"nothing is trained: all {steps} steps are random, as random_steps=30\n"
    assert capsys.readouterr().err == (warning if steps <= 30 else "")


def test_a_replay_smaller_than_an_episode(tmp_path: Path) -> None:
    small = {"set": {**NONE, "replay_capacity": 7}}
    whole = train(tmp_path / "whole", **small)
    half = train(tmp_path / "half", steps=50, **small)
    td7.resume(half.path, steps=STEPS, quiet=True)
    assert differences(contents(half.path), contents(whole.path)) == []


def test_evaluations_use_the_current_policy(finished: Path) -> None:
    """The saved policies repeat the last evaluation exactly."""
    run = train(finished.parent / "round", steps=75)
    again = td7.evaluate(run.path, episodes=2)
    last = run.evaluations[run.evaluations["step"] == 75]
    assert list(again["return"]) == list(last["return"])
    steps = run.evaluations.groupby("step").size()
    assert dict(steps) == {0: 4, 25: 4, 50: 4, 75: 4}


def test_an_environment_that_does_not_repeat_itself_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", steps=52)
    with monkeypatch.context() as patch:
        step = toys.Point.step

        def drifting(self: toys.Point, action: Any) -> Any:
            state, *rest = step(self, action)
            return state + 0.01, *rest

        patch.setattr(toys.Point, "step", drifting)
        td7.resume(run.path, steps=60, quiet=True)
    warning = capsys.readouterr().err
    assert "led to another state; the run continues, but not exactly" in warning


@pytest.mark.parametrize(("workers", "spins"), [("0", False), ("3", False), ("3", True)])
def test_what_an_environment_raises_is_one_line(
    tmp_path: Path,
    workers: str,
    spins: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lockstep, "can_spin", lambda _: spins)
    with pytest.raises(
        RunError, match=r"seed 0, episode 0, step 1: .* ValueError: the motor is on fire"
    ):
        train(tmp_path / "run", workers=workers, env_kwargs={"fault": "raise", "at": 1})
    assert capfd.readouterr().err == ""
    assert "in step\n" in (tmp_path / "run" / "error.txt").read_text()


@pytest.mark.parametrize("spins", [False, True])
def test_a_traceback_longer_than_a_pipe_arrives(spins: bool) -> None:
    """A stepping process must not wait for the learner while that waits for it."""
    task = Task("toys:Point-v0", {"fault": "long", "at": 1})
    spec = describe(task)
    live = EpisodeState(0, True, np.zeros((0, 2), np.float32))
    steps = vector_module.make_vector_environment(task, [0], [live], spec, 1, spins=spins)
    try:
        with pytest.raises(RunError, match="seed 0, episode 0, step 1: the environment") as caught:
            steps.step(steps.observe().row[:, :2], [True])
    finally:
        steps.close()
    assert len(caught.value.details) > 1_000_000
    assert len(str(caught.value)) < 1_200


@pytest.mark.parametrize("spins", [False, True])
def test_a_dead_stepper_is_one_line(
    tmp_path: Path, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockstep, "can_spin", lambda _: spins)
    with pytest.raises(RunError, match=r"td7-stepper-0 died \(signal SIGKILL\) while busy with"):
        train(tmp_path / "run", workers="3", env_kwargs={"fault": "kill", "at": 1})


def test_the_loop_is_chosen_by_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("members with checkpoints do not train in lockstep")

    monkeypatch.setattr(LockstepTraining, "__init__", refuse)
    with pytest.raises(RunError, match="do not train in lockstep"):
        train(tmp_path / "none")
    train(tmp_path / "minimum", set=SMALL)

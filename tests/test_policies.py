"""`td7.load(...).predict`: Stable-Baselines3's convention, the task's own actions."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from safetensors.numpy import load_file

import td7
import toys
from folders import SMALL, newest, two_policies
from td7.errors import InputError
from td7.networks.description import Layer, Layout, Network
from td7.networks.numpy_actor import Actor, flatten
from td7.runs.policies import Policy
from td7.statistics import Sample
from td7.types import Exploration, Task, TaskSpec

assert toys  # registers the tasks
LOW, HIGH = np.array([-1.0, -2.0]), np.array([3.0, 2.0])  # of Point's actions

NOISE = Exploration("added_noise", 0.1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    return two_policies(tmp_path_factory.mktemp("policies") / "run")


@pytest.fixture
def policy(run: td7.Run) -> Policy:
    return td7.load(run.path, seed=2)


def states(n: int = 50) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(0).uniform(-3.0, 3.0, (n, 2))


def test_what_a_run_ended_with(run: td7.Run) -> None:
    """By hand: the mean of the two episodes of step 80, a seed."""
    final = run.final()
    assert list(final.index) == [2, 5]
    for seed in (2, 5):
        rows = run.evaluations.query(f"seed == {seed} and step == 80")["return"]
        assert len(rows) == 2
        assert final[seed] == pytest.approx(rows.sum() / 2)
    assert Sample.of(final).n == 2


def test_what_takes_a_path_takes_a_run(run: td7.Run) -> None:
    again = td7.Run(str(run.path))
    assert again.path == run.path
    assert td7.load(again, seed=2).spec.task.id == "toys:Point-v0"
    assert len(td7.evaluate(again, episodes=1)) == 2
    assert td7.resume(again, quiet=True).path == run.path


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"env": toys.Point()},
            "env takes the id of a task, or a class or function that makes it, given a Point",
        ),
        ({"sed": 3}, "unknown option 'sed'; did you mean 'seeds'"),
    ],
)
def test_slips_of_the_pen(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        td7.train(**{"env": "toys:Point-v0", **given})


def test_one_observation_or_many(policy: Policy) -> None:
    batch, state = policy.predict(states())
    assert state is None
    assert batch.shape == (50, 2)
    assert batch.dtype == np.float32
    assert len(np.unique(batch, axis=0)) == 50
    for observation, expected in zip(states(), batch, strict=True):
        action, state = policy.predict(observation)
        assert state is None
        assert action.shape == (2,)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        policy.predict(states()[0].tolist())[0], policy.predict(states()[0])[0]
    )
    assert policy.predict(states(0))[0].shape == (0, 2)


def test_actions_are_the_tasks_own(policy: Policy) -> None:
    """[-1, 1] is mapped to [-1, 3] and [-2, 2], by hand."""
    unit = policy.actor(states())
    assert np.abs(unit).max() <= 1.0
    expected = unit * np.array([2.0, 2.0]) + np.array([1.0, 0.0])
    np.testing.assert_allclose(policy.predict(states())[0], expected, rtol=1e-5, atol=1e-6)


def test_actions_stay_within_bounds(policy: Policy) -> None:
    far = np.array([[1e6, 1e6], [-1e6, 1e6], [1e6, -1e6], [-1e6, -1e6], [0.0, 0.0]])
    policy.exploration = Exploration("added_noise", 100.0)
    for deterministic in (True, False):
        actions, _ = policy.predict(np.tile(far, (50, 1)), deterministic=deterministic)
        assert (actions >= LOW).all()
        assert (actions <= HIGH).all()
    for bound in (*LOW, *HIGH):  # noise of 100 reaches every one
        assert (actions == bound).any()


def test_deterministic_or_not(policy: Policy) -> None:
    same = np.zeros((4_000, 2))
    actions, _ = policy.predict(same)
    # To rounding only: BLAS computes the last rows of a product with another kernel on some CPUs.
    np.testing.assert_allclose(actions, np.broadcast_to(actions[0], actions.shape), rtol=1e-5)
    np.testing.assert_array_equal(policy.predict(same, deterministic=True)[0], actions)
    noisy, _ = policy.predict(same, deterministic=False)
    assert noisy.dtype == np.float32
    assert noisy.shape == actions.shape
    assert len(np.unique(noisy, axis=0)) > 3_900
    # 0.1 in units of [-1, 1] is 0.2 of both of Point's, whose bounds are 4 apart.
    assert np.abs(policy.actor(same[0])).max() < 0.6  # far enough from the bounds not to be clipped
    np.testing.assert_allclose(noisy.std(axis=0), 0.2, rtol=0.1)
    np.testing.assert_allclose(noisy.mean(axis=0), actions[0], atol=0.02)
    assert not np.array_equal(policy.predict(same, deterministic=False)[0], noisy)


def test_convention(policy: Policy) -> None:
    """What Stable-Baselines3 gives: the state of a recurrent policy, and where episodes begin."""
    expected, _ = policy.predict(states())
    actions, state = policy.predict(states(), state=None, episode_start=np.ones(50, bool))
    assert state is None
    np.testing.assert_array_equal(actions, expected)


def test_it_says_what_it_is_of(policy: Policy) -> None:
    assert repr(policy) == f"<policy of {policy.spec.task.id}, (2,) to (2,)>"


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 3), (5, 1, 2), (2, 5, 2)])
def test_a_wrong_shape_is_told(policy: Policy, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as caught:
        policy.predict(np.zeros(shape))
    told = str(caught.value)
    assert told.startswith("toys:Point-v0 has observations (2,)")
    assert told.endswith(f"given {shape}")


def test_shapes_other_than_vectors() -> None:
    """A task with observations [3, 2] and actions [1, 2], of one linear layer."""
    spec = TaskSpec(Task("Grid-v0"), (3, 2), (1, 2), (-1.0, 0.0), (1.0, 4.0), None)
    network = Network({"state": 6}, (Layer("action", ("state",), 2, activation="tanh"),))
    bias = np.array([0.0, np.arctanh(0.5)], np.float32)
    weights = {"action.weight": np.zeros((6, 2), np.float32), "action.bias": bias}
    policy = Policy(spec, network, flatten(Layout.of(network), weights), NOISE)
    np.testing.assert_allclose(policy.predict(np.zeros((3, 2)))[0], [[0.0, 3.0]])
    assert policy.predict(np.zeros((7, 3, 2)))[0].shape == (7, 1, 2)
    assert policy.predict(np.zeros((3, 2), np.uint8))[0].dtype == np.float32


@pytest.mark.parametrize(
    ("observation", "told"),
    [
        ([np.nan, 0.0], "Plain-v0: an observation is not finite"),
        ([0.0, -np.inf], "Plain-v0: an observation is not finite"),
        ([1e300, 0.0], "Plain-v0: an observation is not finite"),
        ([[1.0], [1.0, 2.0]], "Plain-v0: an observation is not numeric"),
        (["a", "b"], "Plain-v0: an observation is not numeric"),
    ],
)
def test_what_no_policy_can_act_on_is_refused(observation: Any, told: str) -> None:
    """A motor is not to be given NaN."""
    network = Network({"state": 2}, (Layer("action", ("state",), 1, activation="tanh"),))
    weights = {
        "action.weight": np.ones((2, 1), np.float32),
        "action.bias": np.zeros(1, np.float32),
    }
    spec = TaskSpec(Task("Plain-v0"), (2,), (1,), (-1.0,), (1.0,), None)
    policy = Policy(spec, network, flatten(Layout.of(network), weights), NOISE)
    with pytest.raises(InputError) as refused:
        policy.predict(observation)
    assert str(refused.value) == told
    assert policy.predict([0.0, 0.0])[0].tolist() == [0.0]


def test_whole_numbers_and_a_single_one() -> None:
    """Of an action space without dimensions, in 0..4: tanh 0.4 is 2 + 2 * 0.4, rounded."""
    network = Network({"state": 1}, (Layer("action", ("state",), 1, activation="tanh"),))
    weights = {"action.weight": np.zeros((1, 1)), "action.bias": np.array([np.arctanh(0.4)])}
    flat = flatten(Layout.of(network), weights)
    for dtype, expected in (("int64", 3), ("float32", np.float32(2.8))):
        spec = TaskSpec(Task("Knob-v0"), (1,), (), (0.0,), (4.0,), None, dtype)
        action, _ = Policy(spec, network, flat, NOISE).predict([0.0])
        assert action.shape == ()
        assert action.dtype == dtype
        assert action == expected


def test_bounds_that_float32_cannot_hold() -> None:
    """The nearest float32 of 0.1 lies beyond it, the action must not."""
    spec = TaskSpec(Task("Narrow-v0"), (1,), (1,), (-0.1,), (0.1,), None)
    network = Network({"state": 1}, (Layer("action", ("state",), 1, activation="tanh"),))
    for bias in (-100.0, 100.0):
        weights = {"action.weight": np.zeros((1, 1)), "action.bias": np.array([bias])}
        policy = Policy(spec, network, flatten(Layout.of(network), weights), NOISE)
        action, _ = policy.predict(np.zeros(1))
        assert abs(float(action[0])) <= 0.1
        assert abs(float(action[0])) == pytest.approx(0.1)


# Loading


def test_seeds_are_told_apart(run: td7.Run) -> None:
    two, five = (td7.load(run.path, seed) for seed in (2, 5))
    assert np.array_equal(td7.load(run.path, "2").flat, two.flat)  # type: ignore[arg-type]
    assert not np.array_equal(two.flat, five.flat)
    with pytest.raises(InputError, match="has several seeds: choose one of 2, 5"):
        td7.load(run.path)
    with pytest.raises(InputError, match="has no seed 0; allowed: 2, 5"):
        td7.load(run.path, seed=0)


def test_a_policy_folder_is_enough(run: td7.Run, tmp_path: Path) -> None:
    """What is shared may be just policy/."""
    folder = run.path / "policy"
    expected, _ = td7.load(str(run.path), 5).predict(states())
    np.testing.assert_array_equal(td7.load(folder, 5).predict(states())[0], expected)
    with pytest.raises(InputError, match="holds no policy"):
        td7.load(tmp_path)


def test_the_policy_is_the_checkpoint(run: td7.Run) -> None:
    state = load_file(newest(run.path) / "state.safetensors")
    for seed in (2, 5):
        np.testing.assert_array_equal(td7.load(run.path, seed).flat, state[f"checkpoint.{seed}"])


def test_loading_and_predicting_need_no_torch(run: td7.Run) -> None:
    program = """
import sys
from td7.runs.policies import load
print(load(sys.argv[1], 2).predict([0.5, 0.5])[0].tolist(), 'torch' in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, run.path], capture_output=True, text=True, check=True
    )
    action = td7.load(run.path, 2).predict([0.5, 0.5])[0].tolist()
    assert done.stdout == f"{action} False\n"


def test_precision_is_kept(tmp_path: Path) -> None:
    run = td7.train(
        env="toys:Point-v0",
        steps=30,
        set=SMALL,
        precision="float64",
        quiet=True,
        out=str(tmp_path / "run"),
    )
    policy = td7.load(run.path)
    assert policy.flat.dtype == np.float64
    assert policy.predict(states())[0].dtype == np.float32
    assert isinstance(policy.actor, Actor)


# Stable-Baselines3


def test_stable_baselines_evaluates_it(run: td7.Run, policy: Policy) -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    env = monitor.Monitor(gymnasium.make("toys:Point-v0"))
    returns, lengths = evaluation.evaluate_policy(
        policy, env, n_eval_episodes=5, return_episode_rewards=True
    )
    env.close()
    assert len(returns) == 5
    assert all(0 < length <= 20 for length in lengths)
    assert np.isfinite(returns).all()
    # The same by hand: the task's own environment, its own actions.
    env = gymnasium.make("toys:Point-v0")
    assert isinstance(env.action_space, Box)
    observation, _ = env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        action, _ = policy.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    env.close()
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    vector = vec_env.DummyVecEnv([lambda: monitor.Monitor(gymnasium.make("toys:Point-v0"))])
    vector.seed(1)
    (first,), _ = evaluation.evaluate_policy(
        policy, vector, n_eval_episodes=1, return_episode_rewards=True
    )
    vector.close()
    assert first == pytest.approx(total, rel=1e-4)


def test_stable_baselines_evaluates_a_mujoco_task(tmp_path: Path) -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    run = td7.train(
        env="InvertedPendulum-v5",
        steps=20,
        set=SMALL,
        quiet=True,
        out=str(tmp_path / "run"),
    )
    env = monitor.Monitor(gymnasium.make("InvertedPendulum-v5"))
    mean, sd = evaluation.evaluate_policy(
        td7.load(run.path), env, n_eval_episodes=3, deterministic=False
    )
    env.close()
    assert mean >= 1.0
    assert sd >= 0.0

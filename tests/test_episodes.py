"""Episodes and evaluations are pure functions of their tasks; a fault names its seed and place."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from point_tasks import (
    FAULTS,
    NETWORK,
    POINT,
    POLICIES,
    TASKS,
    comparable,
    episode,
    evaluation,
    faulty,
    fresh_results,
    play_episode,
    play_fresh,
)
from td7.errors import RunError
from td7.networks.description import Layer, Layout, Network
from td7.networks.numpy_actor import Actor
from td7.rollouts.episodes import EvaluationResult, Player, play
from td7.rollouts.evaluation import LANES, Evaluator, first_steps
from td7.rollouts.registration import make
from td7.seeding import Stream, derived_seed, generator
from td7.types import AnyFloat, Exploration, Task

POLE = Task("InvertedPendulum-v5")
POLE_NETWORK = Network(
    inputs={"state": 4},
    layers=(
        Layer("a1", ("state",), 64, activation="tanh"),
        Layer("action", ("a1",), 1, activation="tanh"),
    ),
)
# Pushes the cart so that the pole falls after 15 to 25 steps.
BALANCE = Actor(
    POLE_NETWORK,
    (0.05 * np.random.default_rng(2).standard_normal(Layout.of(POLE_NETWORK).size)).astype(
        np.float32
    ),
)


@pytest.mark.parametrize("noise", [0.0, 0.1, 3.0])
def test_an_episode_equals_one_played_by_hand(noise: float) -> None:
    """Reset, noise and clipping come from the streams; a row holds the action that was taken."""
    task = replace(episode(3, 5), exploration=Exploration("added_noise", noise))
    played = play_episode(task)
    env = make(POINT)
    state = env.reset(derived_seed(3, Stream.EPISODE_RESET, 5))
    random = generator(3, Stream.EXPLORATION, 5)
    actor = Actor(NETWORK, POLICIES[0])
    total = 0.0
    for row in played.rows:
        exact = np.clip(actor(state) + noise * random.standard_normal(2), -1.0, 1.0)
        action = exact.astype(np.float32)
        step = env.step(action)
        expected = [*state, *action, *step.state, step.reward, 0.0 if step.terminated else 1.0]
        np.testing.assert_array_equal(row, np.array(expected, np.float32))
        total += step.reward
        state = step.state
    assert played.episode_return == total
    assert played.length == len(played.rows) > 10
    assert played.finished


def test_players_and_play_give_the_same_episode() -> None:
    environment = make(POINT)
    played = play(environment, NETWORK, episode())
    np.testing.assert_array_equal(played.rows, play_episode(episode()).rows)
    environment.close()


def test_random_actions_fill_the_box() -> None:
    episodes = [play_episode(episode(0, k, policy=None)) for k in range(20)]
    actions = np.concatenate([played.rows[:, 2:4] for played in episodes])
    assert np.abs(actions).max() <= 1.0
    assert actions.min() < -0.95
    assert actions.max() > 0.95
    np.testing.assert_allclose(actions.mean(0), 0.0, atol=0.1)


def test_a_limited_episode_is_the_beginning_of_the_whole() -> None:
    whole, cut = play_episode(episode()), play_episode(replace(episode(), limit=7))
    np.testing.assert_array_equal(cut.rows, whole.rows[:7])
    assert not cut.finished
    assert play_episode(replace(episode(), limit=whole.length)).finished


def test_an_evaluation_equals_one_played_by_hand() -> None:
    result = play_fresh(evaluation(3, 50, episodes=2))
    assert isinstance(result, EvaluationResult)
    actor = Actor(NETWORK, POLICIES[0])
    env = make(POINT)
    for i, played in enumerate(result.episodes):
        state = env.reset(derived_seed(3, Stream.EVALUATION_RESET, 50, i))
        total, length, ended = 0.0, 0, False
        while not ended:
            state, reward, terminated, truncated = env.step(actor(state))
            total, length, ended = total + reward, length + 1, terminated or truncated
        assert (played.episode_return, played.length) == (total, length)


def test_episodes_side_by_side_do_not_feel_each_other() -> None:
    """Poles fall after different numbers of steps; each episode is as if it were the only one."""
    evaluator = Evaluator(partial(make, POLE))
    together = evaluator.play(BALANCE, seed=3, step=50, episodes=LANES + 2)
    assert len(evaluator.environments) == LANES
    lengths = [played.length for played in together]
    assert len(set(lengths)) > 3
    for i in (0, LANES - 1):
        alone = Evaluator(partial(make, POLE))
        assert alone.play(BALANCE, seed=3, step=50, episodes=i + 1) == together[: i + 1]
        assert len(alone.environments) == i + 1
        alone.close()
    assert evaluator.play(BALANCE, seed=3, step=50, episodes=1) == together[:1]
    evaluator.close()


def test_an_episode_side_by_side_equals_one_played_by_hand() -> None:
    """But for rounding: a product of many rows may add in another order than that of one."""
    evaluator = Evaluator(partial(make, POLE))
    env = make(POLE)
    for i, played in enumerate(evaluator.play(BALANCE, seed=3, step=50, episodes=4)):
        state = env.reset(derived_seed(3, Stream.EVALUATION_RESET, 50, i))
        total, length, ended = 0.0, 0, False
        while not ended:
            state, reward, terminated, truncated = env.step(BALANCE(state))
            total, length, ended = total + reward, length + 1, terminated or truncated
        assert played.episode_return == pytest.approx(total)
        assert played.length == length
    env.close()
    evaluator.close()


def test_other_tasks_have_one_environment() -> None:
    """They may take much memory, or exist only once."""
    evaluator = Evaluator(partial(make, POINT))
    evaluator.play(Actor(NETWORK, POLICIES[0]), seed=3, step=50, episodes=3)
    assert len(evaluator.environments) == 1


def test_results_depend_neither_on_earlier_tasks_nor_on_their_order() -> None:
    fresh = fresh_results()
    assert len(fresh) == len(set(fresh.values())) == len(TASKS)  # all tasks differ
    player = Player(POINT, NETWORK)
    random = np.random.default_rng(0)
    for _ in range(3):
        order = random.permutation(len(TASKS))
        assert comparable([player.run(TASKS[i]) for i in order]) == fresh
    player.close()


def test_an_evaluation_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.rollouts.evaluation.MAX_STEPS", 50)
    evaluator = Evaluator(partial(make, Task("toys:Endless-v0")))
    message = "seed 3, evaluation at step 10, episode 0: the episode has not ended after 50 steps"
    with pytest.raises(RunError, match=f"{message}; give the task a time limit"):
        evaluator.play(lambda _: np.zeros(1), seed=3, step=10, episodes=1)
    limited = Evaluator(partial(make, Task("toys:Endless-v0", {"max_episode_steps": 70})))
    (played,) = limited.play(lambda _: np.zeros(1), seed=3, step=10, episodes=1)
    assert played.length == 70


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_fault_names_seed_and_place(fault: str, message: str) -> None:
    player = Player(faulty(fault), NETWORK)
    with pytest.raises(RunError) as caught:
        player.run(episode(7, 2))
    assert str(caught.value).startswith("seed 7, episode 2")
    assert str(caught.value).endswith(message)
    for step in (0, 400):  # at step 0 the first steps are played twice
        with pytest.raises(RunError) as caught:
            player.run(evaluation(7, step))
        assert str(caught.value).startswith(f"seed 7, evaluation at step {step}")
        assert str(caught.value).endswith(message)


def test_a_policy_never_acts_on_a_non_finite_state() -> None:
    environment = make(faulty("state"))
    states: list[AnyFloat] = []

    def policy(state: AnyFloat) -> AnyFloat:
        states.append(state)
        return np.zeros(2)

    with pytest.raises(RunError, match=r"step 3: .* non-finite observation"):
        first_steps(environment, policy, 0)
    assert len(states) == 3
    assert np.isfinite(states).all()

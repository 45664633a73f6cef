"""TD3+BC and IQL beside d3rlpy, and how both scale data and act: same weights, batch, noise."""

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from d3rlpy_peers import (
    CONFIGS,
    HIGHEST,
    LAYOUT,
    LOWEST,
    TASK,
    UPDATES,
    Beside,
    fields,
    float64,
    log_std,
    pairs,
    their_log_std,
)
from td7.algorithms import algorithm, losses
from td7.configs import build_config
from td7.networks.numpy_actor import Actor

d3rlpy = pytest.importorskip("d3rlpy")


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    with float64():
        yield


# -- TD3+BC --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cloning_alpha": 0.4, "target_noise": 0.8, "target_noise_clip": 0.3, "actor_every": 3},
        {"actor_every": 1, "discount": 0.99, "target_rate": 1.0},
    ],
)
def test_td3_bc_is_d3rlpys(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Value targets, losses, gradients, Adam's steps, the delayed actor and targets."""
    both = Beside("td3+bc", monkeypatch, settings)
    for _ in range(UPDATES):
        both.update()
        both.check(1e-12)


def test_d3rlpy_counts_td3_bcs_updates_from_0() -> None:
    """So that its first, third, … update trains the actor; here it is the second, fourth, …"""
    torch.set_default_dtype(torch.float32)
    algo = CONFIGS["td3+bc"](batch_size=4).create(device="cpu:0")
    algo.create_impl((TASK.state_dim,), TASK.action_dim)
    parts = {
        key: np.zeros((4, width), np.float32)
        for key, width in {
            "observations": TASK.state_dim,
            "next_observations": TASK.state_dim,
            "actions": TASK.action_dim,
            "next_actions": TASK.action_dim,
            "rewards": 1,
            "terminals": 1,
            "intervals": 1,
        }.items()
    }
    batch = d3rlpy.dataset.TransitionMiniBatch(**parts, transitions=[])
    trains = ["actor_loss" in algo.update(batch) for _ in range(6)]
    assert trains == [True, False] * 3
    every = algorithm("td3+bc").config().actor_every  # type: ignore[attr-defined]
    assert [update % every == 0 for update in range(1, 7)] == [False, True] * 3


# -- IQL -----------------------------------------------------------------------------------------


def with_v_of_before(learner: Any) -> None:
    """The critics' targets of V before its step, as the peer has them."""
    kept = learner.value.flat.clone()

    def wrapped(stage: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(stage)
        def run(*arguments: Any) -> Any:
            if stage.__name__ == "_train_value":
                kept.copy_(learner.value.flat)
            if stage.__name__ != "_train_critics":
                return stage(*arguments)
            after = learner.value.flat.clone()
            learner.value.flat.copy_(kept)
            result = stage(*arguments)
            learner.value.flat.copy_(after)
            return result

        return run

    learner.wrap_stages(wrapped)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"expectile": 0.875, "advantage_temperature": 0.5, "target_rate": 1.0},
        {"advantage_temperature": 10.0, "largest_weight": 2.0, "decay_updates": UPDATES},
        {"expectile": float(np.float32(0.7)), "decay_updates": 1_000_000, "discount": 0.99},
    ],
)
def test_iql_is_d3rlpys_with_v_of_before(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but log std, which the peer moves as p; its gradient is the learner's, by the chain rule.

    After every update the learner's takes the value of the peer's.
    """
    both = Beside("iql", monkeypatch, settings)
    learner = both.learner
    with_v_of_before(learner)
    for _ in range(UPDATES):
        first = learner.actor.first.clone()
        shares = [(their_log_std(i) - LOWEST) / (HIGHEST - LOWEST) for i in both.impls]
        both.update()
        both.check(1e-12)
        gradient = (learner.actor.first - 0.9 * first) / 0.1
        for m, impl in enumerate(both.impls):
            slope = (HIGHEST - LOWEST) * shares[m] * (1 - shares[m])  # of log std, by p
            expected = log_std(learner, gradient, m) * slope
            theirs = impl.modules.policy._logstd.grad[0]
            assert_allclose(theirs, expected, rtol=1e-12, atol=1e-12)
            log_std(learner, learner.actor.flat, m).copy_(their_log_std(impl))


def test_iqls_critics_learn_of_v_after_its_step_d3rlpys_of_v_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """y = r + gamma V(s'); value and policy are the same in both."""
    both = Beside("iql", monkeypatch)
    learner = both.learner
    before = {name: tensor.clone() for name, tensor in learner.value.parameters.items()}
    both.update()
    batch = both.batch
    targets = [
        losses.value_target(
            batch.reward, batch.not_terminated, learner._v(value, batch.next_state), 0.9
        )
        for value in (before, learner.value.parameters)
    ]
    assert_allclose(both.their_targets(), targets[0], rtol=1e-12)
    assert_allclose(learner.recorded["value_target"], targets[1].mean(dim=(1, 2)), rtol=1e-12)
    assert (targets[0] - targets[1]).abs().max() > 1e-3
    both.check_networks({"value", "actor"}, 1e-12)
    with pytest.raises(AssertionError, match="moments of critic"):
        both.check_networks({"critic"}, 1e-3)


# -- data and acting -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_test_actions_are_d3rlpys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deterministic policy's, or tanh of the mean."""
    both = Beside(name, monkeypatch)
    states = np.random.default_rng(2).standard_normal((6, TASK.state_dim))
    for m, impl in enumerate(both.impls):
        actor = Actor(both.learner.policy_network, both.learner.policies()[m].numpy())
        with torch.no_grad():
            theirs = impl.predict_best_action(torch.from_numpy(states))
        for state, expected in zip(states, theirs, strict=True):
            assert_allclose(actor(state[None])[0], expected, rtol=1e-6)


def test_data_are_scaled_as_by_d3rlpys_scalers() -> None:
    """TD3+BC's states and IQL's rewards, if the peer's scalers are asked for; none is by default.

    Of whole episodes: the first ends, the second is cut, and its last step has no next state.
    """
    random = np.random.default_rng(0)
    episodes = [
        d3rlpy.dataset.Episode(
            observations=random.normal(2, 3, (9, TASK.state_dim)).astype(np.float32),
            actions=random.uniform(-1, 1, (9, TASK.action_dim)).astype(np.float32),
            rewards=random.standard_normal((9, 1)).astype(np.float32),
            terminated=terminated,
        )
        for terminated in (True, False)
    ]
    picker = d3rlpy.dataset.BasicTransitionPicker()
    transitions = [picker(e, i) for e in episodes for i in range(e.transition_count)]
    assert len(transitions) == 9 + 8
    rows = np.stack(
        [
            np.concatenate(
                [t.observation, t.action, t.next_observation, t.reward, [1 - t.terminal]]
            )
            for t in transitions
        ]
    ).astype(np.float32)
    states = d3rlpy.preprocessing.StandardObservationScaler()
    rewards = d3rlpy.preprocessing.ReturnBasedRewardScaler(multiplier=1000.0)
    for scaler in (states, rewards):
        scaler.fit_with_transition_picker(episodes, picker)
    learners: dict[str, Any] = {
        name: algorithm(name).learner(
            algorithm(name).config(), TASK, (0,), torch.device("cpu"), torch.float32
        )
        for name in ("td3+bc", "iql")
    }
    n = TASK.state_dim
    prepared = learners["td3+bc"].prepare_rows(rows, LAYOUT)
    assert_allclose(prepared[:, :n], states.transform_numpy(rows[:, :n]), rtol=1e-5, atol=1e-6)
    prepared = learners["iql"].prepare_rows(rows, LAYOUT)
    assert_allclose(prepared[:, -2], rewards.transform_numpy(rows[:, -2]), rtol=1e-5)
    for name in CONFIGS:
        default = fields(name)
        assert default["observation_scaler"] is None
        assert default["reward_scaler"] is None


@pytest.mark.parametrize("name", CONFIGS)
def test_first_weights_of_d3rlpy_are_pytorchs(name: str) -> None:
    """Uniform up to 1 / sqrt(fan in), here TD3+BC's alone; target critics are copies in both."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    algo = CONFIGS[name]().create(device="cpu:0")
    algo.create_impl((TASK.state_dim,), TASK.action_dim)
    learner: Any = algorithm(name).learner(
        build_config(algorithm(name).config, {"hidden_layers": 2} if name == "cql" else {}),
        TASK,
        (0,),
        torch.device("cpu"),
        torch.float32,
    )
    same = []
    for own, theirs in pairs(learner, algo.impl, 0):
        if own.ndim < 2 or own.numel() < 256:  # too few for their largest to tell the bound
            continue
        bound = own.shape[0] ** -0.5
        assert_allclose(theirs.abs().max(), bound, rtol=0.05)
        same.append(math.isclose(own.abs().max(), bound, rel_tol=0.05))
    assert all(same) == (name == "td3+bc")
    assert torch.equal(learner.target_critic, learner.critic.flat)
    modules = algo.impl.modules
    for own, copy in zip(
        modules.q_funcs.parameters(), modules.targ_q_funcs.parameters(), strict=True
    ):
        assert torch.equal(own, copy)

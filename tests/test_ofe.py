"""TD3+OFE: updates compared with an independent reference program, OFENet's sizes by hand."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor

from ofe_reference import PlainTD3OFE, Settings
from td7.algorithms import algorithm
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.td3_ofe import TD3OFE, TD3OFEConfig
from td7.configs import build_config
from td7.errors import InputError
from td7.networks.description import Layout
from td7.networks.numpy_actor import Actor
from td7.networks.stacked import apply, unflatten
from td7.types import Task, TaskSpec
from test_variants import weights

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
CPU = torch.device("cpu")
BATCH = 16
TINY = {"hidden_dim": 8, "ofe_features": 12, "ofe_layers": 3, "batch_size": BATCH}
UPDATES = 200
SEEDS = (0, 1)


def tiny(**settings: Any) -> Any:
    chosen = algorithm("td3+ofe")
    config = build_config(chosen.config, {**TINY, **settings})
    return chosen.learner(config, TASK, SEEDS, CPU, torch.float64)


def batches(count: int) -> list[tuple[Batch, Tensor]]:
    """Batches and noise; states are neither centred nor of unit scale, which batch norm sees."""
    random = np.random.default_rng(11)
    pairs = []
    for _ in range(count):
        state, action, next_state, reward, ends, noise = (
            torch.from_numpy(random.standard_normal((len(SEEDS), BATCH, n)))
            for n in (TASK.state_dim, TASK.action_dim, TASK.state_dim, 1, 1, TASK.action_dim)
        )
        not_terminated = (ends > -1).double()
        change = torch.tanh(next_state) + action.sum(-1, keepdim=True)
        state = 3 * state + 1
        batch = Batch(state, action.clamp(-1, 1), state + change, reward, not_terminated)
        pairs.append((batch, 2 * noise))
    return pairs


def step(learner: Any, update: int, batch: Batch, noise: Tensor) -> None:
    trains = update % learner.actor_every == 0
    assert learner.update(batch, {"target_policy": noise}, Turn(trains_actors=trains)) is None


def member(learner: Any, m: int) -> dict[str, list[dict[str, Tensor]]]:
    """The networks of one member, under the reference program's names."""
    state = learner.state()
    critic, actor = learner.critic.layout, learner.actor.layout
    layouts = {
        "ofe": learner.net.layout,
        "critic": critic,
        "target_critic": critic,
        "actor": actor,
        "target_actor": actor,
    }
    return {
        name: weights(layout, state[f"{name}.parameters"], m) for name, layout in layouts.items()
    }


def plain_program(learner: Any, settings: Settings, m: int, predicted_dim: int) -> PlainTD3OFE:
    """The reference program with a member's weights."""
    own = member(learner, m)
    (ofe,), (actor,) = own["ofe"], own["actor"]
    return PlainTD3OFE(settings, ofe, own["critic"], actor, TINY["ofe_layers"], predicted_dim)


def plain_step(agent: PlainTD3OFE, m: int, batch: Batch, noise: Tensor) -> None:
    state, action, next_state, reward, not_terminated = (part[m] for part in batch)
    agent.update(state, action, next_state, reward[:, 0], not_terminated[:, 0], noise[m])


def check(learner: Any, agents: list[PlainTD3OFE], tolerance: float) -> None:
    for m, agent in enumerate(agents):
        actual, expected = member(learner, m), agent.networks()
        assert actual.keys() == expected.keys()
        for name, heads in actual.items():
            for ours, theirs in zip(heads, expected[name], strict=True):
                assert ours.keys() == theirs.keys(), name
                for key, value in ours.items():
                    assert_allclose(
                        value,
                        theirs[key].detach(),
                        rtol=tolerance,
                        atol=tolerance,
                        err_msg=f"{name} {key}",
                    )


# -- updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "plain", "predicted_dim"),
    [
        ({}, Settings(), 5),
        ({"ofe_predicted_dims": 3}, Settings(), 3),
        (
            {"discount": 0.9, "target_rate": 0.1, "actor_every": 3, "target_noise": 0.4},
            Settings(discount=0.9, target_rate=0.1, policy_frequency=3, target_noise=0.4),
            5,
        ),
    ],
    ids=["all predicted", "3 of 5 predicted", "other constants"],
)
def test_an_update_is_the_reference_programs(
    settings: dict[str, Any], plain: Settings, predicted_dim: int
) -> None:
    """Two stacked members, each compared with its own reference over hundreds of updates."""
    learner = tiny(**settings)
    assert learner.predicted_dim == predicted_dim
    agents = [plain_program(learner, plain, m, predicted_dim) for m in range(len(SEEDS))]
    before = {name: value.clone() for name, value in learner.state().items()}
    for update, (batch, noise) in enumerate(batches(UPDATES), start=1):
        step(learner, update, batch, noise)
        for m, agent in enumerate(agents):
            plain_step(agent, m, batch, noise)
        if update in (1, 2, UPDATES):
            # A bias before a batch norm has only rounding errors as gradient; Adam amplifies them.
            check(learner, agents, 1e-10 if update <= 2 else 1e-7)
    for name in ("ofe", "critic", "actor", "target_critic", "target_actor"):
        moved = (learner.state()[f"{name}.parameters"] - before[f"{name}.parameters"]).abs()
        assert moved.amax(dim=1).min() > 1e-3, name


def test_numpy_acts_with_the_running_statistics() -> None:
    """After training, NumPy's actor, the learner's policy and the reference program's agree."""
    learner = tiny()
    agent = plain_program(learner, Settings(), 1, TASK.state_dim)
    for update, (batch, noise) in enumerate(batches(20), start=1):
        step(learner, update, batch, noise)
        plain_step(agent, 1, batch, noise)
    statistics = member(learner, 1)["ofe"][0]
    assert (statistics["s1.mean"].abs() > 0.01).all()
    assert ((statistics["s1.variance"] - 1).abs() > 0.01).all()

    flat = learner.policies()
    policy = unflatten(Layout.of(learner.policy_network), flat)
    states = batches(1)[0][0].state
    expected = apply(learner.policy_network, policy, state=states)
    zs = learner.ofe.zs(learner.net.parameters, states)
    from_parts = apply(learner.actor_network, learner.actor.parameters, **zs)
    assert_array_equal(expected, from_parts)
    for m in range(len(SEEDS)):
        actor = Actor(learner.policy_network, flat[m].numpy())
        assert_allclose(actor(states[m].numpy()), expected[m], rtol=0, atol=1e-13)
        alone = actor(states[m, 0].numpy())  # not one of a batch: its statistics play no part
        assert_allclose(alone, expected[m, 0], rtol=0, atol=1e-13)
    assert_allclose(agent.act(states[1]), expected[1], rtol=0, atol=1e-8)


# -- sizes ---------------------------------------------------------------------------------------


def rows(learner: TD3OFE) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of every linear layer."""
    layouts = (learner.net.layout, learner.critic.layout, learner.actor.layout)
    return {
        p.name.removesuffix(".weight"): (p.fan_in, p.shape[1])
        for layout in layouts
        for p in layout.parameters
        if p.name.endswith(".weight")
    }


def at_the_papers_size(task: str, state_dim: int, action_dim: int) -> TD3OFE:
    spec = TaskSpec(
        Task(task), (state_dim,), (action_dim,), (-1.0,) * action_dim, (1.0,) * action_dim, None
    )
    return TD3OFE(TD3OFEConfig(), spec, [0], CPU, torch.float64)


def test_half_cheetahs_sizes_by_hand() -> None:
    """17 state and 6 action dimensions: 8 layers of 30, zs 17 + 240, zsa 17 + 6 + 240 + 240."""
    learner = at_the_papers_size("HalfCheetah-v4", 17, 6)
    assert sum(learner.ofe.zs_widths.values()) == 17 + 240
    assert sum(learner.ofe.zsa_widths.values()) == 17 + 6 + 240 + 240
    assert rows(learner) == {
        **{f"s{i}": (17 + 30 * (i - 1), 30) for i in range(1, 9)},
        **{f"sa{i}": (17 + 6 + 240 + 30 * (i - 1), 30) for i in range(1, 9)},
        "next_state": (503, 17),
        "q1": (503, 256),
        "q2": (256, 256),
        "value": (256, 1),
        "a1": (257, 256),
        "a2": (256, 256),
        "action": (256, 6),
    }
    state, action = torch.zeros(1, 4, 17).double(), torch.zeros(1, 4, 6).double()
    zs = learner.ofe.zs(learner.net.parameters, state)
    zsa = learner.ofe.zsa(learner.net.parameters, zs, action)
    assert learner.ofe.next_state(learner.net.parameters, zs, action).shape == (1, 4, 17)
    assert torch.cat(list(zs.values()), dim=-1).shape == (1, 4, 257)
    assert torch.cat(list(zsa.values()), dim=-1).shape == (1, 4, 503)


def test_humanoid_v4_predicts_292_of_376() -> None:
    sizes = rows(at_the_papers_size("Humanoid-v4", 376, 17))
    assert sizes["s8"] == (376 + 30 * 7, 30)
    assert sizes["next_state"] == (376 + 17 + 480, 292)


def features(learner: TD3OFE, net: dict[str, Tensor], state: Tensor) -> dict[str, Tensor]:
    action = torch.full((1, 4, 6), 0.5).double()
    zs = learner.ofe.zs(net, state)
    predicted = learner.ofe.next_state(net, zs, action)
    return {**learner.ofe.zsa(net, zs, action), "next_state": predicted}


def test_the_states_last_dimension_reaches_every_layer() -> None:
    """Through all layers, and directly when every other layer is 0 (swish(0) = 0)."""
    learner = at_the_papers_size("HalfCheetah-v4", 17, 6)
    net = learner.net.parameters
    layers = [f"{block}{i}" for block in ("s", "sa") for i in range(1, 9)]
    state = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, 17)))
    changed = state.clone()
    changed[..., -1] += 1
    before, after = features(learner, net, state), features(learner, net, changed)
    for layer in [*layers, "next_state"]:
        assert (before[layer] != after[layer]).all(), layer

    for layer in layers:
        alone = {
            name: value * 0 if name.endswith((".gain", ".shift")) else value
            for name, value in net.items()
        }
        alone[f"{layer}.gain"] = net[f"{layer}.gain"]
        before, after = features(learner, alone, state), features(learner, alone, changed)
        for other in layers:
            if other == layer:
                assert (before[other] != after[other]).all(), layer
            else:
                assert not before[other].any(), (layer, other)


# -- the paper's values for tasks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "layers", "predicted"),
    [
        ("HalfCheetah-v4", 8, 0),
        ("HalfCheetah-v5", 8, 0),
        ("Hopper-v4", 6, 0),
        ("Walker2d-v4", 6, 0),
        ("Ant-v4", 6, 0),
        ("Humanoid-v4", 8, 292),
        ("gymnasium:Humanoid-v4", 8, 292),
        ("Humanoid-v5", 8, 0),
        ("HumanoidStandup-v4", 6, 0),
        ("Other-v0", 6, 0),
    ],
)
def test_the_papers_values_for_tasks(task: str, layers: int, predicted: int) -> None:
    """0 predicted dimensions stands for all."""
    config = TD3OFEConfig().for_task(Task(task))
    assert (config.ofe_layers, config.ofe_predicted_dims) == (layers, predicted)
    assert config.ofe_features == 240
    own = TD3OFEConfig(ofe_layers=3, ofe_predicted_dims=7).for_task(Task(task))
    assert (own.ofe_layers, own.ofe_predicted_dims) == (3, 7)


def test_humanoid_v4s_last_84_dimensions_are_external_forces() -> None:
    """14 bodies with 6 numbers each, which are 0 without contact; the test runs until contact."""
    env: Any = gymnasium.make(gymnasium.spec("Humanoid-v4"))
    env.reset(seed=0)
    random = np.random.default_rng(0)
    touches = 0
    for _ in range(100):
        action = random.uniform(env.action_space.low, env.action_space.high)
        observation, _, terminated, _, _ = env.step(action)
        forces = env.unwrapped.data.cfrc_ext
        assert observation.shape == (376,)
        assert forces.shape == (14, 6)
        assert_array_equal(observation[292:], forces.ravel())
        assert_array_equal(observation[269:292], env.unwrapped.data.qfrc_actuator)
        touches += bool(forces.any())
        if terminated:
            env.reset()
    env.close()
    assert touches > 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ofe_layers": 5}, "ofe_features=12 must be a multiple of ofe_layers=5"),
        ({"ofe_features": 10, "ofe_layers": 0}, "ofe_features=10 must be a multiple of .*=6"),
        ({"ofe_predicted_dims": 6}, "ofe_predicted_dims=6 must be at most 5, the state's"),
    ],
)
def test_sizes_that_do_not_fit_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**settings)


def test_ofenet_predicts_the_first_dimensions() -> None:
    """The other dimensions of s' make no difference to OFENet."""
    (batch, noise), (other, _) = batches(2)
    mixed = torch.cat([batch.next_state[..., :3], other.next_state[..., 3:]], dim=-1)
    changed = batch._replace(next_state=mixed)
    learner, same = tiny(ofe_predicted_dims=3), tiny(ofe_predicted_dims=3)
    step(learner, 1, batch, noise)
    step(same, 1, changed, noise)
    assert torch.equal(learner.net.flat, same.net.flat)
    assert not torch.equal(learner.critic.flat, same.critic.flat)  # they read all of s'

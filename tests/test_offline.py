"""The offline agents: formulas by hand, updates compared with independent reference programs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

import offline_reference as plain
from offline_reference import BY_HAND
from td7.algorithms import algorithm, losses
from td7.algorithms.iql import trajectory_returns
from td7.algorithms.learner import Batch, Learner, Turn
from td7.configs import build_config
from td7.networks.description import Layout
from td7.networks.optimiser import cosine
from td7.networks.stacked import apply, initial, orthogonal_start, unflatten
from td7.types import RowLayout, Task, TaskSpec
from test_variants import weights

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
CPU = torch.device("cpu")
UPDATES = 150


def tensor(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


# -- formulas ------------------------------------------------------------------------------------


def rows(numbers: Any) -> Tensor:
    """[1, B, 1] of B numbers."""
    return tensor(numbers).view(1, -1, 1)


FORMULAS: dict[str, Callable[[dict[str, Any]], Tensor]] = {
    "expectile_loss": lambda g: losses.expectile_loss(rows(g["difference"]), g["expectile"])[0],
    "gumbel_loss": lambda g: losses.gumbel_loss(rows(g["difference"]), g["temperature"], g["clip"])[
        0
    ],
    "huber": lambda g: torch.stack(
        [losses.huber(tensor(e).view(1, 1, 1, 1), g["threshold"])[0] for e in g["error"]]
    ),
    "advantage_weights": lambda g: losses.advantage_weight(
        tensor(g["advantage"]), g["temperature"], g["largest"]
    ),
    "cosine_rate": lambda g: (
        g["first_rate"] * cosine(g["total"])(tensor([[g["updates_before"]]]))[0, 0]
    ),
    "inverse_tanh": lambda g: losses.inverse_tanh(tensor(g["a"])),
    "conservative_loss": lambda g: (
        g["weight"]
        * losses.conservative_loss(
            tensor(g["values"]).view(1, 1, -1, 1, 1),
            tensor(g["log_densities"]).view(1, -1, 1, 1),
            tensor(g["data_value"]).view(1, 1, 1, 1),
        )[0]
    ),
    "td3_bc_actor_loss": lambda g: losses.td3_bc_loss(
        tensor(g["q"])[None, None],
        tensor(g["pi_a"])[None],
        tensor(g["a"])[None],
        g["cloning_alpha"],
    )[0],
    "td7_actor_loss": lambda g: losses.actor_loss(
        tensor(g["q"]).t()[None, :, :, None],
        tensor(g["pi_a"])[None],
        tensor(g["a"])[None],
        g["cloning_weight"],
    )[0],
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_by_hand(name: str) -> None:
    for arguments, expected in BY_HAND[name]:
        assert_allclose(FORMULAS[name](arguments), expected, rtol=1e-12, atol=1e-15)


def test_the_soft_maximum_is_a_sum() -> None:
    """The reference's examples at temperature 1, with 0 as the data's value."""
    for arguments, expected in BY_HAND["soft_maximum"]:
        if arguments["temperature"] == 1:
            values = tensor(arguments["values"]).view(1, 1, -1, 1, 1)
            density = tensor(arguments["log_densities"]).view(1, -1, 1, 1)
            loss = losses.conservative_loss(values, density, torch.zeros(1, 1, 1, 1).double())
            assert_allclose(loss, [expected], rtol=1e-12)


def test_gumbel_regression_has_no_gradient_where_clipped() -> None:
    for arguments, expected in BY_HAND["gumbel_gradient_of_v"]:
        difference = rows(arguments["difference"]).requires_grad_()
        loss = losses.gumbel_loss(difference, arguments["temperature"], arguments["clip"]).sum()
        (gradient,) = torch.autograd.grad(loss, difference)
        assert_allclose(-gradient.flatten(), expected, atol=1e-15)


def test_every_example_is_used() -> None:
    elsewhere = {"soft_maximum", "gumbel_gradient_of_v", "normal_log_density"}
    assert set(BY_HAND) == set(FORMULAS) | elsewhere


def test_each_members_gumbel_loss_is_scaled_by_its_own_batch() -> None:
    both = torch.stack([rows([0.0, 3.0])[0], rows([-5.0, -6.0])[0]])
    together = losses.gumbel_loss(both, 1.0, 7.0)
    apart = [losses.gumbel_loss(member[None], 1.0, 7.0)[0] for member in both]
    assert together.tolist() == [x.item() for x in apart]


# -- updates -------------------------------------------------------------------------------------

TINY = {"hidden_dim": 8, "batch_size": 16}

# Case: the algorithm, its settings and the reference program's.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "td7": (
        "td7",
        {"embedding_dim": 8, "cloning_weight": 0.1, "checkpoints": "none", "target_every": 50},
        {"target_every": 50},
    ),
    "td3+bc": ("td3+bc", {}, {}),
    "td3+bc otherwise": (
        "td3+bc",
        {"cloning_alpha": 0.7, "target_rate": 0.1},
        {"cloning_alpha": 0.7, "target_rate": 0.1},
    ),
    "iql": ("iql", {}, {}),
    "iql otherwise": (
        "iql",
        {"expectile": 0.9, "advantage_temperature": 0.5, "decay_updates": 100},
        {"expectile": 0.9, "advantage_temperature": 0.5, "cosine_updates": 100},
    ),
    "xql": ("xql", {}, {"norm_epsilon": 1e-5}),
    "xql otherwise": (
        "xql",
        {"gumbel_temperature": 0.5, "gumbel_clip": 1.0, "huber_threshold": 0.5},
        {
            "gumbel_temperature": 0.5,
            "gumbel_clip": 1.0,
            "huber_threshold": 0.5,
            "norm_epsilon": 1e-5,
        },
    ),
    "cql cloning": ("cql", {}, {}),
    "cql": (
        "cql",
        {"cloning_updates": 20, "conservative_weight": 3.0},
        {"cloning_updates": 20, "conservative_weight": 3.0},
    ),
}


def reference(name: str, learner: Any, m: int, settings: dict[str, Any]) -> Any:
    """The reference program with a member's weights."""

    def of(group: str) -> list[dict[str, Tensor]]:
        parameters = getattr(learner, group)
        return weights(parameters.layout, parameters.flat, m)

    critics, actor = of("critic"), of("actor")[0]
    if name == "td7":
        return plain.TD7Offline(of("encoder")[0], critics, actor, **settings)
    if name == "td3+bc":
        return plain.TD3BC(critics, actor, **settings)
    if name == "cql":
        return plain.CQL(critics, actor, TASK.action_dim, **settings)
    make = {"iql": plain.iql, "xql": plain.xql}[name]
    return make(of("value")[0], critics, actor, **settings)


def build(name: str, settings: dict[str, Any], members: int = 2) -> Learner:
    chosen = algorithm(name)
    config = build_config(chosen.config, {**TINY, **settings})
    return chosen.learner(config, TASK, range(members), CPU, torch.float64)


@pytest.mark.parametrize("case", CASES)
def test_an_update_is_the_reference_programs(case: str) -> None:
    """Two stacked members, each compared with its own reference over 150 updates."""
    name, ours, theirs = CASES[case]
    compare(name, build(name, ours), theirs, UPDATES)


@pytest.mark.parametrize("log_std", [-6.0, 3.0])
@pytest.mark.parametrize("name", ["iql", "xql"])
def test_a_policys_spread_is_bounded(name: str, log_std: float) -> None:
    """Outside its bounds log std has no gradient, and the loss uses the bound."""
    learner: Any = build(name, {})
    learner.actor.parameters["log_std"].fill_(log_std)
    compare(name, learner, CASES[name][2], 5)
    assert (learner.actor.parameters["log_std"] == log_std).all()


def test_a_cloned_mean_is_bounded() -> None:
    """With weights so large that most means exceed the bound."""
    learner: Any = build("cql", {})
    learner.actor.parameters["action.weight"].mul_(1_000)
    compare("cql", learner, {}, 5)


def compare(name: str, learner: Any, theirs: dict[str, Any], updates: int) -> None:
    agents = [reference(name, learner, m, theirs) for m in (0, 1)]
    random = np.random.default_rng(3)

    def normals(*shape: int) -> Tensor:
        return torch.from_numpy(random.standard_normal((2, *shape)))

    for update in range(1, updates + 1):
        ends = (normals(16, 1) > -1).double()
        batch = Batch(
            normals(16, 5), normals(16, 2).clamp(-1, 1), normals(16, 5), normals(16, 1), ends
        )
        noise = {n: normals(*shape) for n, shape in learner.noise_shapes.items()}
        turn = Turn(trains_actors=update % learner.actor_every == 0)
        priorities = learner.update(batch, noise, turn)
        if "random" in noise:  # the reference takes uniform numbers
            noise["random"] = torch.erf(noise["random"] / math.sqrt(2))
        for m, agent in enumerate(agents):
            expected = agent.update(
                plain.Batch(*(part[m] for part in batch)), {n: x[m] for n, x in noise.items()}
            )
            for loss in {"critic_loss", "actor_loss", "value_loss"} & set(expected):
                assert_allclose(learner.recorded[loss][m], expected[loss], rtol=1e-6, atol=1e-9)
            if priorities is not None:
                assert_allclose(priorities[m], agent.priorities.flatten(), rtol=1e-7)
        if update % learner.target_every == 0:
            learner.copy_targets(None)
        if update in (1, 2, updates):
            check(learner, agents, 1e-11 if update <= 2 else 1e-7)


def check(learner: Any, agents: list[Any], tolerance: float) -> None:
    state = learner.state()
    for m, agent in enumerate(agents):
        for name, expected in agent.networks().items():
            group = name.rpartition("_")[2]
            actual = weights(getattr(learner, group).layout, state[f"{name}.parameters"], m)
            for ours, theirs in zip(actual, expected, strict=True):
                assert ours.keys() == theirs.keys()
                for key, value in ours.items():
                    close = torch.allclose(value, theirs[key], rtol=tolerance, atol=tolerance)
                    assert close, f"{name} {key}"
        if hasattr(agent, "log_alpha"):
            log_alpha = learner.temperature.parameters["log_alpha"][m].item()
            assert abs(log_alpha - agent.log_alpha.item()) < tolerance
            assert log_alpha != 0


# -- data and first weights ----------------------------------------------------------------------

LAYOUT = RowLayout(5, 2)


def data(n: int = 40) -> Any:
    """Rows of episodes of 10 steps; of two episodes one terminates and the next is cut off."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((n, LAYOUT.width)).astype(np.float32) * 3
    rows[:, 5:7] = random.uniform(-1, 1, (n, 2))
    rows[:-1, 7:12] = rows[1:, :5]
    rows[:, -1] = 1.0
    rows[9::20, -1] = 0.0
    rows[19::20, 7:12] += 1.0  # the next row belongs to another episode
    return rows


def test_td3_bc_normalises_states_and_includes_that_in_its_policies() -> None:
    """The policy reads raw states: W ((s - m) / d) + b with other weights."""
    learner: Any = build("td3+bc", {})
    raw = data()
    prepared = learner.prepare_rows(raw, LAYOUT)
    states = raw[:, :5].astype(float)
    mean, spread = states.mean(axis=0), states.std(axis=0) + 1e-3
    assert_allclose(prepared[:, :5], (states - mean) / spread, rtol=1e-5, atol=1e-6)
    assert_allclose(prepared[:, 7:12], (raw[:, 7:12] - mean) / spread, rtol=1e-5, atol=1e-6)
    assert np.array_equal(prepared[:, 5:7], raw[:, 5:7])
    assert np.array_equal(prepared[:, 12:], raw[:, 12:])
    assert np.array_equal(raw, data())

    network, layout = learner.actor_network, Layout.of(learner.actor_network)
    of_normalised = apply(
        network, learner.actor.parameters, state=tensor((states - mean) / spread).expand(2, -1, -1)
    )
    of_raw = apply(
        network, unflatten(layout, learner.policies()), state=tensor(states).expand(2, -1, -1)
    )
    assert_allclose(of_raw, of_normalised, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["iql", "xql"])
def test_iql_scales_rewards_by_the_range_of_returns(name: str) -> None:
    """Trajectories are rows 0-9, which terminate, rows 10-19, which are cut off, and so on."""
    raw = data()
    raw[3, 5] = 1.0
    returns = [float(raw[i : i + 10, -2].astype(float).sum()) for i in range(0, 40, 10)]
    assert_allclose(trajectory_returns(raw, LAYOUT), returns, rtol=1e-6)
    prepared = build(name, {}).prepare_rows(raw, LAYOUT)
    factor = 1000 / (max(returns) - min(returns))
    assert_allclose(prepared[:, -2], raw[:, -2] * factor, rtol=1e-5)
    assert prepared[3, 5] == np.float32(1 - 1e-5)
    assert np.array_equal(prepared[:, :5], raw[:, :5])


def test_a_dataset_without_a_range_of_returns_keeps_its_rewards() -> None:
    one_piece = data(10)
    assert np.array_equal(build("iql", {}).prepare_rows(one_piece, LAYOUT)[:, -2], one_piece[:, -2])


def test_td7_and_cql_leave_rows_unchanged() -> None:
    for name in ("td7", "cql"):
        assert build(name, {}).prepare_rows(data(), LAYOUT) is not None
        assert np.array_equal(build(name, {}).prepare_rows(data(), LAYOUT), data())


def test_iql_starts_orthogonal() -> None:
    """Every weight has orthogonal rows or columns of length sqrt 2; biases and log std are 0."""
    learner: Any = build("iql", {"hidden_dim": 16})
    for group in (learner.value, learner.critic, learner.actor):
        for head in weights(group.layout, group.flat, 1):
            for name, value in head.items():
                if not name.endswith("weight"):
                    assert not value.any(), name
                    continue
                small = value if value.shape[0] <= value.shape[1] else value.t()
                assert_allclose(small @ small.t(), 2 * np.eye(len(small)), atol=1e-12)


def test_orthogonal_weights_differ_between_heads_and_members() -> None:
    learner: Any = build("iql", {})
    q2_weights = [
        head["q2.weight"]
        for m in (0, 1)
        for head in weights(learner.critic.layout, learner.critic.flat, m)
    ]
    for i, a in enumerate(q2_weights):
        for b in q2_weights[:i]:
            assert not torch.allclose(a, b)
    layout = learner.value.layout
    once, again = (initial(layout, [np.random.default_rng(3)], orthogonal_start) for _ in "12")
    assert np.array_equal(once, again)


def test_cql_starts_like_rlkit() -> None:
    """Hidden weights within 1/sqrt(width), biases 0.1; last layers within 3e-3 and 1e-3."""
    learner: Any = build("cql", {"hidden_dim": 64})
    for group, last in ((learner.critic, 3e-3), (learner.actor, 1e-3)):
        for name, value in weights(group.layout, group.flat, 0)[0].items():
            if name.split(".")[0] in ("value", "action", "log_std"):
                bound = last
            elif name.endswith("bias"):
                assert (value == 0.1).all()
                continue
            else:
                bound = 64**-0.5
            assert value.abs().max() <= bound
            assert value.numel() < 50 or value.abs().max() > 0.9 * bound


def test_networks_have_the_shapes_of_the_authors_programs() -> None:
    """Layers, widths and norms, which the reference programs take from the weights."""

    def shapes(name: str, group: str) -> dict[str, tuple[int, ...]]:
        learner: Any = build(name, {})
        parameters = getattr(learner, group)
        (head, *_) = weights(parameters.layout, parameters.flat, 0)
        return {key: tuple(value.shape) for key, value in head.items()}

    norm = {"gain": (8,), "shift": (8,)}
    plain_value = {
        **{"v1.weight": (5, 8), "v1.bias": (8,), "v2.weight": (8, 8), "v2.bias": (8,)},
        **{"value.weight": (8, 1), "value.bias": (1,)},
    }
    norms = {f"v{i}.{kind}": shape for i in (1, 2) for kind, shape in norm.items()}
    assert shapes("iql", "value") == plain_value
    assert shapes("xql", "value") == {**plain_value, **norms}
    for name in ("iql", "xql"):
        assert shapes(name, "critic")["q1.weight"] == (7, 8)
        assert list(shapes(name, "actor"))[-1] == "log_std"
        assert not any("gain" in key for key in (*shapes(name, "critic"), *shapes(name, "actor")))
    assert [key for key in shapes("cql", "critic") if "weight" in key] == [
        *("q1.weight", "q2.weight", "q3.weight", "value.weight")
    ]
    assert [key for key in shapes("cql", "actor") if "weight" in key] == [
        *("a1.weight", "a2.weight", "a3.weight", "log_std.weight", "action.weight")
    ]
    learner: Any = build("cql", {})
    assert [layer.activation for layer in learner.actor_network.layers] == [
        *("relu", "relu", "relu", "none", "tanh")
    ]
    assert [layer.activation for layer in learner.critic_network.layers] == [
        *("relu", "relu", "relu", "none")
    ]

"""SAC and TQC: formulas by hand, updates compared with an independent reference program."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from gaussian_reference import PlainAgent
from td7.algorithms import algorithm, losses
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.maximum_entropy import policy_network, sample_action
from td7.algorithms.sac import SACConfig
from td7.algorithms.tqc import TQCConfig
from td7.configs import build_config
from td7.errors import InputError
from td7.networks.description import Layout
from td7.networks.stacked import unflatten
from td7.types import Task, TaskSpec
from test_variants import weights

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
CPU = torch.device("cpu")
TINY = {"actor_hidden_dim": 8, "critic_hidden_dim": 8, "batch_size": 16}
UPDATES = 150


def tensor(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


# -- formulas ------------------------------------------------------------------------------------


def test_gaussian_log_prob_by_hand() -> None:
    """std 2 at one standard deviation: -1/2 - log(2 pi)/2 - log 2."""
    log_prob = losses.gaussian_log_prob(tensor(math.log(2)), tensor(1))
    assert_allclose(log_prob, -0.5 - 0.5 * math.log(2 * math.pi) - math.log(2))


def test_both_corrections_by_hand() -> None:
    """At 0 tanh has slope 1: no correction but the epsilon. At log 2: tanh 3/5, slope 16/25."""
    u = tensor(0, math.log(2))
    assert_allclose(losses.tanh_correction_epsilon(u), [math.log1p(1e-6), math.log(0.64 + 1e-6)])
    assert_allclose(losses.tanh_correction_sigmoid(u), [0, math.log(0.64)], atol=1e-15)


def test_the_corrections_differ_where_tanh_is_flat() -> None:
    """At 20 the slope is about 4 exp(-40), which the epsilon hides and the sigmoid form keeps."""
    u = tensor(20.0)
    assert_allclose(losses.tanh_correction_epsilon(u), [math.log(1e-6)])
    assert_allclose(losses.tanh_correction_sigmoid(u), [math.log(4) - 40])


@pytest.mark.parametrize("form", ["epsilon", "sigmoid"])
def test_log_prob_is_the_density_of_the_squashed_gaussian(form: str) -> None:
    """Compared with the density of tanh(u) in torch.distributions, by a change of variables."""
    network = policy_network(1, 1, SACConfig(actor_hidden_dim=3))
    layout = Layout.of(network)
    random = np.random.default_rng(0)
    flat = torch.from_numpy(random.normal(size=(1, layout.size)))
    actor = unflatten(layout, flat)
    state, noise = (torch.from_numpy(random.normal(size=(1, 9, 1))) for _ in range(2))
    correction = getattr(losses, f"tanh_correction_{form}")
    action, log_prob = sample_action(network, actor, {"state": state}, noise, correction)
    hidden = state
    for name in ("a1", "a2"):
        weight = actor[f"{name}.weight"][:, : hidden.shape[-1]]
        hidden = torch.relu(hidden @ weight + actor[f"{name}.bias"])
    mean = hidden @ actor["action.weight"][:, :3] + actor["action.bias"]
    log_std = (hidden @ actor["log_std.weight"][:, :3] + actor["log_std.bias"]).clamp(-20, 2)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform(cache_size=1)]
    )
    assert_allclose(action, torch.tanh(mean + log_std.exp() * noise))
    tolerance = 1e-3 if form == "epsilon" else 1e-6
    expected = squashed.log_prob(action)  # type: ignore[no-untyped-call]
    assert_allclose(log_prob, expected, rtol=tolerance, atol=tolerance)


def test_truncation_pools_and_drops_the_largest() -> None:
    """Two critics of three quantiles, one row: 1 2 3 4 5 9 without the two largest."""
    z = tensor(5, 1, 9, 2, 4, 3).view(1, 2, 1, 3)
    assert losses.truncated(z, 2).tolist() == [[[1, 2, 3, 4]]]
    assert losses.truncated(z, 0).tolist() == [[[1, 2, 3, 4, 5, 9]]]


def test_quantile_huber_by_hand() -> None:
    """One critic, quantiles 0 and 1 (tau 1/4, 3/4), one target 3, then one of -0.5.

    3: deltas 3, 2; hubers 2.5, 1.5; weights 1/4, 3/4. -0.5: deltas -0.5, -1.5; hubers 0.125, 1;
    weights |1/4 - 1|, |3/4 - 1|.
    """
    z = tensor(0, 1).view(1, 1, 1, 2)
    far = tensor(3).view(1, 1, 1)
    assert_allclose(losses.quantile_huber(z, far, 1.0), [(2.5 / 4 + 4.5 / 4) / 2])
    # With a threshold of 2: hubers 2 (3 - 1) and 2^2 / 2.
    assert_allclose(losses.quantile_huber(z, far, 2.0), [(4 / 4 + 2 * 3 / 4) / 2])
    near = tensor(-0.5).view(1, 1, 1)
    assert_allclose(losses.quantile_huber(z, near, 1.0), [(0.125 * 3 / 4 + 1 / 4) / 2])


def test_temperature_loss_by_hand() -> None:
    """log pi 1 and 3, target entropy -4: -(0.5) * (2 - 4) = 1; too little entropy raises alpha."""
    log_prob = tensor(1, 3).view(1, 2, 1)
    assert losses.temperature_loss(tensor(0.5), log_prob, -4.0).tolist() == [1.0]


# -- updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sac", {}),
        ("sac", {"target_entropy_per_dimension": 0.5, "target_rate": 0.1, "discount": 0.9}),
        ("tqc", {"quantiles": 7}),
        ("tqc", {"quantiles": 4, "critics": 2, "dropped_quantiles": 0}),
        ("tqc", {"quantiles": 5, "critics": 1, "dropped_quantiles": 3}),
        ("sac", {"sale": True, "embedding_dim": 6, "target_every": 20}),
        ("tqc", {"sale": True, "embedding_dim": 6, "target_every": 20, "quantiles": 4}),
    ],
)
def test_an_update_is_the_reference_programs(name: str, settings: dict[str, Any]) -> None:
    """Two stacked members, each compared with its own reference over 150 updates."""
    chosen = algorithm(name)
    config = build_config(chosen.config, {**TINY, **settings})
    learner: Any = chosen.learner(config, TASK, (0, 1), CPU, torch.float64)
    agents = [
        PlainAgent(
            name,
            settings,
            weights(learner.critic.layout, learner.critic.flat, m),
            weights(learner.actor.layout, learner.actor.flat, m)[0],
            TASK.action_dim,
            weights(learner.embeddings.sale.layout, learner.embeddings.encoder.flat, m)[0]
            if settings.get("sale")
            else None,
        )
        for m in (0, 1)
    ]
    random = np.random.default_rng(3)

    def normals(width: int) -> Tensor:
        return torch.from_numpy(random.standard_normal((2, 16, width)))

    for update in range(1, UPDATES + 1):
        ends = (normals(1) > -1).double()
        batch = Batch(normals(5), normals(2).clamp(-1, 1), normals(5), normals(1), ends)
        noise = {"next_policy": normals(2), "policy": normals(2)}
        assert learner.update(batch, noise, Turn()) is None
        for m, agent in enumerate(agents):
            own = Batch(*(part[m] for part in batch))
            agent.update(*own, noise["next_policy"][m], noise["policy"][m])
            if update % learner.target_every == 0:
                agent.copy_encoders()
        if update % learner.target_every == 0:
            learner.copy_targets(None)
        if update in (1, 2, UPDATES):
            check(learner, agents, 1e-11 if update <= 2 else 1e-7)


def check(learner: Any, agents: list[PlainAgent], tolerance: float) -> None:
    state = learner.state()
    for m, agent in enumerate(agents):
        for name, expected in agent.networks().items():
            layout = learner.actor.layout if name == "actor" else learner.critic.layout
            if name.endswith("encoder"):
                layout = learner.embeddings.sale.layout
            found = weights(layout, state[f"{name}.parameters"], m)
            for ours, theirs in zip(found, expected, strict=True):
                assert ours.keys() == theirs.keys()
                for key, value in ours.items():
                    close = torch.allclose(value, theirs[key], rtol=tolerance, atol=tolerance)
                    assert close, f"{name} {key}"
        log_alpha = learner.temperature.parameters["log_alpha"][m].item()
        assert abs(log_alpha - agent.log_alpha.item()) < tolerance
        assert log_alpha != 0


# -- the paper's values for tasks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "dropped"),
    [
        *(("HalfCheetah-v4", 0), ("Hopper-v4", 5), ("Walker2d-v5", 2), ("Ant-v4", 2)),
        *(("Other-v0", 2), ("gymnasium:Hopper-v4", 5), ("Hopper-variant-v0", 2)),
    ],
)
def test_tqc_drops_what_the_paper_drops(task: str, dropped: int) -> None:
    assert TQCConfig().for_task(Task(task)).dropped_quantiles == dropped
    assert TQCConfig(dropped_quantiles=1).for_task(Task(task)).dropped_quantiles == 1


def test_tqc_cannot_drop_all() -> None:
    config = TQCConfig(quantiles=4, dropped_quantiles=4)
    with pytest.raises(InputError, match="dropped_quantiles=4 must be below quantiles=4"):
        algorithm("tqc").learner(config, TASK, [0], CPU, torch.float64)

"""Formulas, norms, networks, initial weights and the optimiser, against numbers by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.representations import Sale
from td7.algorithms.td7 import TD7, TD7Config, actor_network, critic_network
from td7.networks import numpy_actor
from td7.networks.description import Layer, Layout, Network
from td7.networks.masked import polyak
from td7.networks.optimiser import ParameterGroup
from td7.networks.stacked import (
    NORMS,
    BatchStatistics,
    Parameters,
    apply,
    avg_l1_norm,
    follow,
    initial,
    unflatten,
)
from td7.types import Task, TaskSpec

STATE, ACTION, BATCH = 5, 2, 32
SMALL = TD7Config(embedding_dim=8, hidden_dim=16, batch_size=BATCH)
TASK = TaskSpec(Task("none"), (STATE,), (ACTION,), (-1.0,) * 2, (1.0,) * 2, None)
NO_NOISE = {"target_policy": torch.zeros(1, BATCH, ACTION, dtype=torch.float64)}


def tensor(*numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def heads(*rows: tuple[float, float]) -> Tensor:
    """[1, 2, B, 1] of a single member, from both critics' numbers in each row."""
    return tensor(*rows).t().reshape(1, 2, -1, 1)


def column(*numbers: float) -> Tensor:
    """[1, B, 1] of a single member, from one number per row."""
    return tensor(*numbers).reshape(1, -1, 1)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(function(x).sum(), x)
    return gradient


# -- formulas ------------------------------------------------------------------------------------


def test_per_member_mean() -> None:
    assert losses.per_member_mean(tensor([[1, 3]], [[5, 9]])).tolist() == [2, 7]


def test_encoder_loss_is_a_mean_over_dimensions_and_batch() -> None:
    zsa, next_zs = tensor([[1, 2], [3, 5]]), tensor([[1, 1], [1, 1]])
    assert losses.encoder_loss(zsa, next_zs).tolist() == [(0 + 1 + 4 + 16) / 4]


def test_target_policy_noise_is_clipped_and_so_is_the_action() -> None:
    action = column(0.0, 0.9, -0.9, 0.2, 0.2)
    noise = column(1.0, 1.0, -5.0, -5.0, 5.0)  # times 0.2: ±0.2 and, clipped, ±0.5
    smoothed = losses.smoothed_action(action, noise, scale=0.2, clip=0.5)
    assert_allclose(smoothed.flatten(), [0.2, 1.0, -1.0, -0.3, 0.7])


def test_value_target_clips_the_smaller_critic_to_the_bounds_of_its_member() -> None:
    next_q = heads((5, 2), (-7, 4), (1, 3)).expand(2, -1, -1, -1)  # the smaller: 2, -7, 1
    reward = column(1, 1, 1).expand(2, -1, -1)
    not_terminated = column(1, 1, 0).expand(2, -1, -1)
    clipped = losses.clipped_value(next_q.amin(dim=1), tensor(-3, -10), tensor(1.5, 10))
    y = losses.value_target(reward, not_terminated, clipped, discount=0.5)
    assert y.flatten(1).tolist() == [[1 + 0.75, 1 - 1.5, 1], [1 + 1.0, 1 - 3.5, 1]]


@pytest.mark.parametrize(
    ("min_priority", "expected"),
    [
        # From m on it is m x, without -m²/2: 1 counts as 1, not as 0.5.
        (1.0, ((0.125 + 2.0) + (1.0 + 0.02)) / 2),
        (2.0, ((0.125 + 4.0) + (0.5 + 0.02)) / 2),
    ],
)
def test_lap_huber_sums_both_critics(min_priority: float, expected: float) -> None:
    error = heads((0.5, 2.0), (-1.0, 0.2))
    assert_allclose(losses.lap_huber(error, min_priority), [expected])


def test_lap_huber_has_the_gradient_of_the_huber_loss() -> None:
    error = heads((0.5, -0.5), (3.0, -3.0))
    huber = gradient(lambda x: losses.lap_huber(x, 2.0), error)
    # x below 2, ±2 above; halved, because the mean is over two rows.
    assert_allclose(huber, heads((0.25, -0.25), (1.0, -1.0)))


def test_lap_priority_is_the_larger_error_and_at_least_the_minimum() -> None:
    error = heads((0.5, -3.0), (0.5, 0.2), (32.0, 1.0))
    assert_allclose(losses.lap_priority(error, 1.0, 0.4), [[3**0.4, 1.0, 4.0]])
    assert_allclose(losses.lap_priority(error, 2.0, 1.0), [[3.0, 2.0, 32.0]])
    assert_allclose(losses.lap_priority(error, 2.0, 0.0), [[1.0, 1.0, 1.0]])


def test_actor_loss_by_hand() -> None:
    q = heads((1, -3), (2, 4))  # mean 1, mean of the absolute 2.5
    action, data_action = column(0.5, 0.0), column(0.0, 1.0)  # mean square difference 0.625
    assert losses.actor_loss(q, action, data_action, 0.0).tolist() == [-1]
    assert_allclose(losses.actor_loss(q, action, data_action, 0.1), [-1 + 0.1 * 2.5 * 0.625])


def test_the_cloning_weight_has_no_gradient() -> None:
    q, action, data_action = heads((1, -3), (2, 4)), column(0.5, 0.0), column(0.0, 1.0)
    pull = gradient(lambda x: losses.actor_loss(x, action, data_action, 0.1), q)
    assert_allclose(pull, torch.full_like(q, -1 / 4))


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_avg_l1_norm(library: str) -> None:
    rows = np.array([[1.0, -3.0], [10.0, -30.0], [0.0, 0.0], [1e-9, -3e-9]])
    if library == "torch":
        normed = avg_l1_norm(torch.from_numpy(rows)).numpy()
    else:
        normed = numpy_actor.avg_l1_norm(rows)
    # The mean of |1| and |-3| is 2, of any multiple the same; below 1e-8 the guard divides.
    assert_allclose(normed, [[0.5, -1.5], [0.5, -1.5], [0.0, 0.0], [0.1, -0.3]])


# -- networks ------------------------------------------------------------------------------------


def test_encoders_are_three_layers_deep_and_only_zs_is_normed() -> None:
    sale = Sale.of(17, 6, 256, 256)
    f = [(layer.width, layer.norm, layer.activation) for layer in sale.f.layers]
    g = [(layer.width, layer.norm, layer.activation) for layer in sale.g.layers]
    hidden = (256, "none", "elu")
    assert f == [hidden, hidden, (256, "avg_l1", "none")]
    assert g == [hidden, hidden, (256, "none", "none")]
    assert sale.g.layers[0].inputs == ("zs", "action")


def test_sizes_on_halfcheetah() -> None:
    """17 state and 6 action dimensions: in x out + out for every layer of the paper's figure."""
    config = TD7Config()
    square = 256 * 256 + 256
    f = (17 * 256 + 256) + 2 * square
    g = (262 * 256 + 256) + 2 * square
    critic = (23 * 256 + 256) + (768 * 256 + 256) + square + 257
    actor = (17 * 256 + 256) + (512 * 256 + 256) + square + (256 * 6 + 6)
    sale = Sale.of(17, 6, 256, 256)
    assert in_use(sale.f) + in_use(sale.g) == f + g
    assert in_use(critic_network(17, 6, config)) == 2 * critic
    assert in_use(actor_network(17, 6, config)) == actor


def in_use(network: Network) -> int:
    """The number of parameters without the layout's padding."""
    layout = Layout.of(network)
    weights = numpy_actor.unflatten(layout, np.zeros(layout.size))
    return layout.heads * sum(weight.size for weight in weights.values())


def zeros_but(network: Network, **values: Tensor | float) -> Parameters:
    """Parameters of one member, all 0 except the named ones (`phi_bias` for `phi.bias`)."""
    layout = Layout.of(network)
    parameters = unflatten(layout, torch.zeros(1, layout.size, dtype=torch.float64))
    for name, value in values.items():
        parameters[name.replace("_", ".")].copy_(torch.as_tensor(value))
    return parameters


@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_critics_are_elu_and_the_actor_is_relu(bias: float) -> None:
    """The first hidden layer consists of its bias, which the second passes through unchanged."""
    critic, actor = critic_network(STATE, ACTION, SMALL), actor_network(STATE, ACTION, SMALL)
    assert [layer.activation for layer in critic.layers] == ["none", "elu", "elu", "none"]
    assert [layer.activation for layer in actor.layers] == ["none", "relu", "relu", "tanh"]
    state, action = torch.zeros(1, 1, STATE).double(), torch.zeros(1, 1, ACTION).double()
    z = torch.zeros(1, 1, SMALL.embedding_dim).double()
    identity = torch.eye(SMALL.hidden_dim)
    mean = 1 / SMALL.hidden_dim

    q = apply(
        critic,
        zeros_but(critic, q1_bias=bias, q2_weight=identity, value_weight=mean),
        state=state,
        action=action,
        zsa=z,
        zs=z,
    )
    elu = {1.0: 1.0, -1.0: math.expm1(math.expm1(-1))}  # of elu(bias)
    assert_allclose(q, np.full((1, 2, 1, 1), elu[bias]))

    pi = apply(
        actor,
        zeros_but(actor, a1_bias=bias, a2_weight=identity, action_weight=mean),
        state=state,
        zs=z,
    )
    relu = {1.0: 1.0, -1.0: 0.0}
    assert_allclose(pi, np.full((1, 1, ACTION), math.tanh(relu[bias])))


def test_critic_and_actor_normalise_only_the_raw_input() -> None:
    """phi is AvgL1Norm(Linear(s, a)), in the actor AvgL1Norm(Linear(s)); embeddings enter as is."""
    critic, actor = critic_network(STATE, ACTION, SMALL), actor_network(STATE, ACTION, SMALL)
    assert critic.layers[0] == Layer("phi", ("state", "action"), 16, norm="avg_l1")
    assert actor.layers[0] == Layer("phi", ("state",), 16, norm="avg_l1")
    assert critic.layers[1].inputs == ("zsa", "zs", "phi")
    assert actor.layers[1].inputs == ("zs", "phi")
    later = (*critic.layers[1:], *actor.layers[1:])
    assert {layer.norm for layer in later} == {"none"}


def test_initial_parameters_fill_pytorchs_range() -> None:
    """Uniform within 1/sqrt(inputs of the layer), weights and biases alike."""
    layout = Layout.of(critic_network(17, 6, TD7Config()))
    inputs = {"phi": 17 + 6, "q1": 3 * 256, "q2": 256, "value": 256}
    flat = initial(layout, [np.random.default_rng(seed) for seed in (0, 1)])
    assert flat.shape == (2, layout.size)
    for head in flat.reshape(4, layout.head_size):
        for name, values in numpy_actor.unflatten(layout, head).items():
            bound = inputs[name.partition(".")[0]] ** -0.5
            assert np.abs(values).max() <= bound, name
            if values.size >= 256:  # enough of them to come close to both ends
                assert values.min() < -0.97 * bound, name
                assert values.max() > 0.97 * bound, name
                assert abs(values.mean()) < 5 * bound / math.sqrt(3 * values.size), name
    assert not ((flat[0] == flat[1]) & (flat[0] != 0)).any()
    assert np.count_nonzero(flat) == 2 * in_use(critic_network(17, 6, TD7Config()))


# -- optimiser -----------------------------------------------------------------------------------


def test_adam_is_pytorchs_with_a_step_count_per_member() -> None:
    layout = Layout.of(Network({"x": 3}, (Layer("y", ("x",), 2),)))
    start = torch.linspace(-1, 1, 3 * layout.size, dtype=torch.float64).reshape(3, -1)
    trained = ParameterGroup(layout, start.clone(), learning_rate=0.01)
    solo = [start[m].clone().requires_grad_() for m in range(3)]
    adams = [torch.optim.Adam([p], lr=0.01) for p in solo]

    def loss(weight: Tensor, bias: Tensor) -> Tensor:
        return (weight**4).sum() + (3 * bias - 1).square().sum()

    def stacked_loss(parameters: Parameters) -> tuple[Tensor, None]:
        pairs = zip(parameters["y.weight"], parameters["y.bias"], strict=True)
        return torch.stack([loss(weight, bias) for weight, bias in pairs]), None

    masks = [(True, True, True), (True, False, True), (False, False, True)] * 4
    for mask in masks:
        trained.descend(stacked_loss, None if all(mask) else torch.tensor(mask))
        for p, adam, active in zip(solo, adams, mask, strict=True):
            if active:
                p.grad = gradient(lambda flat: loss(flat[:16].view(8, 2), flat[64:66]), p.detach())
                adam.step()
        assert_allclose(trained.flat, torch.stack(solo).detach(), rtol=1e-13)
    assert trained.count.flatten().tolist() == [8, 4, 12]
    for m, (p, adam) in enumerate(zip(solo, adams, strict=True)):
        assert_allclose(trained.first[m], adam.state[p]["exp_avg"], rtol=1e-12)
        assert_allclose(trained.second[m], adam.state[p]["exp_avg_sq"], rtol=1e-12)


# -- what reaches what in TD7 --------------------------------------------------------------------


def td7(config: TD7Config = SMALL) -> TD7:
    return TD7(config, TASK, [0], torch.device("cpu"), torch.float64)


def random_batch(seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    widths = (STATE, ACTION, STATE, 1, 1)
    parts = [torch.randn(1, BATCH, n, generator=random, dtype=torch.float64) for n in widths]
    return Batch(parts[0], parts[1].tanh(), parts[2], parts[3], (parts[4] > 0).double())


@pytest.mark.parametrize(
    ("min_priority", "loss", "pull"),
    [(4.0, 0.5 * 9, -3.0), (2.0, 2.0 * 3, -2.0), (1.0, 1.0 * 3, -1.0)],
)
def test_the_minimum_priority_reaches_the_loss_and_the_sampler(
    min_priority: float, loss: float, pull: float
) -> None:
    """Critics of 0 and rewards of 3: every error is 3, because the clip starts at (0, 0)."""
    config = TD7Config(embedding_dim=8, hidden_dim=16, batch_size=BATCH, min_priority=min_priority)
    learner = td7(config)
    learner.critic.flat.zero_()
    batch = random_batch()._replace(reward=torch.full((1, BATCH, 1), 3.0, dtype=torch.float64))
    priorities = learner.update(batch, NO_NOISE, Turn(trains_actors=False))
    assert priorities is not None
    assert_allclose(learner.recorded["critic_loss"], [2 * loss])
    assert_allclose(priorities, np.full((1, BATCH), max(3, min_priority) ** 0.4))
    # Adam's first moment after one step is a tenth of the gradient.
    moments = unflatten(learner.critic.layout, learner.critic.first)
    assert_allclose(moments["value.bias"].flatten(), [0.1 * pull, 0.1 * pull])


def test_the_encoders_target_has_no_gradient() -> None:
    """The target comes from the trained encoder, which differs from its copies after an update."""
    learner, batch = td7(), random_batch()
    learner.update(batch, NO_NOISE, Turn())
    sale, encoder, moment = (
        learner.sale,
        learner.encoder.flat.clone(),
        learner.encoder.first.clone(),
    )

    def loss(flat: Tensor, stop: Callable[[Tensor], Tensor]) -> Tensor:
        now = unflatten(sale.layout, flat)
        next_zs = stop(sale.zs(now, batch.next_state))
        zsa = sale.zsa(now, sale.zs(now, batch.state), batch.action)
        return (zsa - next_zs).square().mean()

    stopped = gradient(lambda flat: loss(flat, Tensor.detach), encoder)
    flowing = gradient(lambda flat: loss(flat, lambda x: x), encoder)
    learner.update(batch, NO_NOISE, Turn())
    assert_allclose(learner.encoder.first, 0.9 * moment + 0.1 * stopped, rtol=1e-9, atol=1e-12)
    assert (stopped - flowing).abs().max() > 0.1 * stopped.abs().max()


def test_neither_critic_nor_actor_trains_the_encoder() -> None:
    """Other rewards, ends and noise lead to other critics and actors but to the same encoder."""
    one, other = td7(), td7()
    batch = random_batch()
    other_batch = batch._replace(reward=batch.reward + 2, not_terminated=1 - batch.not_terminated)
    other_noise = {name: x + 1 for name, x in NO_NOISE.items()}
    for update in range(4):
        one.update(batch, NO_NOISE, Turn(trains_actors=update % 2 == 1))
        other.update(other_batch, other_noise, Turn())
    state, other_state = one.state(), other.state()
    for name, value in state.items():
        if "encoder" in name:
            assert torch.equal(value, other_state[name]), name
    assert not torch.equal(one.critic.flat, other.critic.flat)
    assert not torch.equal(one.actor.flat, other.actor.flat)
    # An update does not move the encoders that feed them either.
    assert torch.equal(one.fixed_encoder, td7().encoder.flat)
    assert torch.equal(one.target_fixed_encoder, td7().encoder.flat)
    assert not torch.equal(one.encoder.flat, td7().encoder.flat)


def test_the_actor_step_leaves_the_critics_alone() -> None:
    one, other, batch = td7(), td7(), random_batch()
    one.update(batch, NO_NOISE, Turn())
    other.update(batch, NO_NOISE, Turn(trains_actors=False))
    for name in ("critic.parameters", "critic.first_moment", "critic.second_moment"):
        assert torch.equal(one.state()[name], other.state()[name])
    assert torch.equal(other.actor.flat, td7().actor.flat)
    assert not torch.equal(one.actor.flat, other.actor.flat)


# -- what the studies vary -----------------------------------------------------------------------


def test_cosine_loss_by_hand() -> None:
    """(3, 4) and (4, 3): 24 / 25; (3, 4) and (-6, -8): -1. The loss is minus their mean."""
    zsa = tensor(3, 4, 3, 4).view(1, 2, 2)
    next_zs = tensor(4, 3, -6, -8).view(1, 2, 2)
    assert_allclose(losses.cosine_loss(zsa, next_zs), [-(24 / 25 - 1) / 2])


def test_squared_error_sums_both_critics() -> None:
    """Row 1: 1 + 4, row 2: 9 + 0; the mean over rows is 7."""
    assert losses.squared_error(heads((1, 2), (-3, 0))).tolist() == [7.0]


def test_layer_norm_by_hand() -> None:
    """1, 3: mean 2, variance 1; times the gain, plus the shift."""
    own = {"gain": tensor(2, 3), "shift": tensor(0, 10)}
    normed = NORMS["layer"](tensor(1, 3).view(1, 1, 2), own)
    assert_allclose(normed.flatten(), [-2, 13], rtol=1e-4)


BATCH_NORMED = Network({"state": 1}, (Layer("x", ("state",), 1, norm="batch"),))


def batch_normed(states: Tensor, *, training: bool) -> tuple[list[float], dict[str, Any]]:
    """Two members; weight 1 and 2, bias 0, gain 1 and 3, shift 0, running mean 1, variance 4."""
    layout = Layout.of(BATCH_NORMED)
    flat = torch.zeros(2, layout.size, dtype=torch.float64)
    named = unflatten(layout, flat)
    named["x.weight"][:, 0, 0] = tensor(1, 2)
    for kind, value in (("gain", (1, 3)), ("mean", (1, 1)), ("variance", (4, 4))):
        named[f"x.{kind}"][:, 0] = tensor(*value)
    statistics: BatchStatistics | None = {} if training else None
    y = apply(BATCH_NORMED, named, statistics, state=states)
    if statistics is not None:
        follow(layout, flat, statistics, torch.tensor([True, False]))
    running = {kind: named[f"x.{kind}"].flatten().tolist() for kind in ("mean", "variance")}
    return y.flatten().tolist(), running


def test_batch_norm_by_hand() -> None:
    """States 0, 4 of both members: x is 0, 4 and 0, 8, so batch means 2 and 4, variances 4 and 16.

    Running: (0 - 1) / 2, (4 - 1) / 2 and, times gain 3, (0 - 1) / 2, (8 - 1) / 2. Only the first
    member follows: its mean goes 0.1 of the way to 2, its variance to the unbiased 8.
    """
    states = tensor(0, 4, 0, 4).view(2, 2, 1)
    y, running = batch_normed(states, training=True)
    assert_allclose(y, [-1, 1, -3, 3], rtol=1e-4)
    assert_allclose(running["mean"], [1.1, 1])
    assert_allclose(running["variance"], [4.4, 4])
    y, running = batch_normed(states, training=False)
    assert_allclose(y, [-0.5, 1.5, -1.5, 10.5], rtol=1e-4)
    assert running == {"mean": [1, 1], "variance": [4, 4]}


def test_polyak_by_hand() -> None:
    """The active member alone moves a tenth of the way from 0 to 10."""
    target = torch.zeros(2, 1)
    polyak(target, torch.full((2, 1), 10.0), 0.1, torch.tensor([True, False]))
    assert target.flatten().tolist() == [1.0, 0.0]

"""CQL beside d3rlpy: same weights, batch and noise."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from d3rlpy_peers import UPDATES, Beside, draw, float64, make_batch
from td7.algorithms import cql, losses
from td7.algorithms.maximum_entropy import sample_squashed
from td7.networks.stacked import Parameters
from test_variants import weights

torch_models = pytest.importorskip("d3rlpy.models.torch")


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    with float64():
        yield


# -- CQL -----------------------------------------------------------------------------------------


def with_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """log(1 - a^2 + 1e-6) in the peer's density, as it is here."""

    def log_prob(self: Any, u: Tensor) -> Tensor:
        log_prob: Tensor = self._dist.log_prob(u) - losses.tanh_correction_epsilon(u)
        return log_prob.sum(dim=-1, keepdim=True)

    squashed_gaussian = torch_models.distributions.SquashedGaussianDistribution
    monkeypatch.setattr(squashed_gaussian, "_log_prob_from_raw_y", log_prob)


def with_critics_first(learner: Any) -> None:
    """The policy climbs critics after their step, as the peer's does."""
    train_actor, train_critics = learner._train_actor, learner._train_critics
    waiting: list[Any] = []

    def train_both(*arguments: Any) -> None:
        train_critics(*arguments)
        train_actor(*waiting.pop())

    learner._train_actor = lambda *arguments: waiting.append(arguments)
    learner._train_critics = train_both


def with_exponential_temperature_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """-alpha (log pi + target entropy), as the peer has it, in place of -log alpha (…)."""

    def loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
        return -log_alpha.exp() * losses.per_member_mean(log_prob + target_entropy)

    monkeypatch.setattr(losses, "temperature_loss", loss)


def bounded(impl: Any) -> None:
    """Log std at least -5, as it is here; -20 there."""
    policy = impl.modules.policy
    assert (policy._min_logstd, policy._max_logstd) == (-20.0, 2.0)
    policy._min_logstd = cql.LOG_STD_BOUNDS[0]


def wild(impl: Any) -> None:
    """Actions so near 1 that an epsilon of 1e-6 tells, and log stds beyond both bounds."""
    bounded(impl)
    with torch.no_grad():
        impl.modules.policy._mu.weight.mul_(20)
        impl.modules.policy._logstd.bias[:2] = torch.tensor([-8.0, 4.0])


@pytest.mark.parametrize("prepare", [bounded, wild])
@pytest.mark.parametrize("settings", [{}, {"conservative_weight": 1.5, "discount": 0.99}])
def test_cql_is_d3rlpys_in_its_order_with_its_temperature_loss(
    settings: dict[str, Any], prepare: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, with the learner's density in the peer and, of both, a' = tanh(mean(s'))."""
    with_epsilon(monkeypatch)
    with_exponential_temperature_loss(monkeypatch)
    both = Beside("cql", monkeypatch, settings, prepare=prepare)
    with_critics_first(both.learner)
    for _ in range(UPDATES):
        both.update()
        both.check(1e-12)
    if prepare is wild:  # where no gradient comes through
        flat = both.learner.actor.first
        stopped = weights(both.learner.actor.layout, flat, 0)[0]["log_std.bias"]
        assert not stopped[:2].any()
        assert stopped[2] != 0


def test_cqls_policy_climbs_critics_before_their_step_d3rlpys_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The critics' first update is the same; the temperature's gradient is alpha times as large."""
    with_epsilon(monkeypatch)
    both = Beside("cql", monkeypatch, prepare=bounded)
    both.update()
    both.check_critics(1e-12)
    learner = both.learner
    gap = learner.recorded["actor_loss"] - torch.tensor(both.their("actor_loss"))
    assert (gap.abs() > 1e-3).all()
    for m, impl in enumerate(both.impls):
        state = impl.modules.temp_optim.optim.state[impl.modules.log_temp._parameter]
        expected = 0.3 * learner.temperature.first[m, :1]
        assert_allclose(state["exp_avg"][0], expected, rtol=1e-6)  # 0.3's logarithm is float32
        mean_log_prob = -learner.recorded["entropy"][m]
        expected = -0.3 * (mean_log_prob + learner.target_entropy)
        assert_allclose(both.logs[m]["temp_loss"], expected, rtol=1e-6)


def epsilon_gap(learner: Any, actor: Parameters, state: Tensor, noise: Tensor) -> Tensor:
    """log(1 + 1e-6 / (1 - a^2)), summed over dimensions, of actions a = tanh(u)."""
    mean, deviation = learner._gaussian(actor, state)
    u = mean + deviation.exp() * noise
    return torch.log1p(1e-6 * torch.cosh(u).square()).sum(dim=-1, keepdim=True)


def test_densities_differ_by_the_epsilon_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here log pi is smaller, by log(1 + 1e-6 / (1 - a^2)) a dimension; the actions are equal."""
    both = Beside("cql", monkeypatch, prepare=wild)
    learner = both.learner
    state = make_batch(np.random.default_rng(0)).state
    noise = draw("cql", 3, samples_next=True)["next_policy"]
    mean, deviation = learner._gaussian(learner.actor.parameters, state)
    action, log_prob = sample_squashed(mean, deviation, noise, losses.tanh_correction_epsilon)
    expected = log_prob + epsilon_gap(learner, learner.actor.parameters, state, noise)
    for m, impl in enumerate(both.impls):
        with torch.no_grad():
            output = impl.modules.policy(state[m])
        torch.manual_seed(3)
        of_peer = torch_models.build_squashed_gaussian_distribution(output)
        their_action, their_log_prob = of_peer.sample_with_log_prob()
        assert_allclose(action[m], their_action, rtol=1e-12)
        assert_allclose(expected[m], their_log_prob, rtol=1e-9)


def test_the_epsilon_reaches_critics_and_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the peer's own density, of actions near 1: the policy's loss is alpha gaps larger."""
    both = Beside("cql", monkeypatch, prepare=wild)
    learner = both.learner
    with_critics_first(learner)
    actor = {name: tensor.clone() for name, tensor in learner.actor.parameters.items()}
    both.update()
    gap = epsilon_gap(learner, actor, both.batch.state, both.noise["policy"]).mean(dim=(1, 2))
    assert (gap > 0.1).all()
    recorded = learner.recorded
    expected = recorded["actor_loss"] + recorded["temperature"] * gap
    assert_allclose(both.their("actor_loss"), expected, atol=1e-5)  # of critics that differ by
    both.check_critics(1e-5)  # this much
    with pytest.raises(AssertionError):
        both.check_critics(1e-9)


def test_d3rlpys_sampled_backup_has_the_entropy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """y is smaller by gamma alpha log pi(a' | s') there, if asked for with `soft_q_backup`."""
    both = Beside("cql", monkeypatch, options={"soft_q_backup": True}, prepare=bounded)
    learner = both.learner
    alphas = learner.temperature.parameters["log_alpha"].exp().unsqueeze(-1)
    actor = {name: tensor.clone() for name, tensor in learner.actor.parameters.items()}
    targets: list[Tensor] = []
    own = learner._value_target

    def noted(*arguments: Any) -> Tensor:
        targets.append(own(*arguments))
        return targets[-1]

    learner._value_target = noted
    both.update()
    batch = both.batch
    mean, deviation = learner._gaussian(actor, batch.next_state)
    noise = both.noise["next_policy"]
    _, log_prob = sample_squashed(mean, deviation, noise, losses.tanh_correction_sigmoid)
    expected = targets[0] - 0.9 * batch.not_terminated * alphas * log_prob
    assert_allclose(both.their_targets(), expected, rtol=1e-12, atol=1e-12)


def test_d3rlpys_threshold_is_taken_off_the_loss_and_leaves_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weight times threshold, of each of two critics, as long as the weight is not learned."""
    with_epsilon(monkeypatch)
    both = Beside("cql", monkeypatch, options={"alpha_threshold": 7.0}, prepare=bounded)
    both.update()
    taken_off = 2 * both.learner.config.conservative_weight * 7
    expected = both.learner.recorded["conservative_loss"] - taken_off
    assert_allclose(both.their("conservative_loss"), expected, rtol=1e-12)
    both.check_networks({"critic", "target_critic"}, 1e-12)


def test_log_std_reaches_lower_in_d3rlpys_cql(monkeypatch: pytest.MonkeyPatch) -> None:
    """-8 there is -5 here; above 2 both are 2."""

    def low(impl: Any) -> None:
        wild(impl)
        impl.modules.policy._min_logstd = -20.0
        impl.modules.policy._logstd.weight.data.zero_()

    both = Beside("cql", monkeypatch, prepare=low)
    state = make_batch(np.random.default_rng(0)).state
    _, own = both.learner._gaussian(both.learner.actor.parameters, state)
    assert_allclose(own[0, 0, :2], [-5.0, 2.0])
    with torch.no_grad():
        assert_allclose(both.impls[0].modules.policy(state[0]).logstd[0, :2], [-8.0, 2.0])

"""TD3+BC, IQL and CQL beside d3rlpy: same weights, batch and noise.

It is the peer's own `update` that runs. It draws from PyTorch's global generator, so its noise is
drawn ahead for the learner, and then once more by the peer. Both compute in float64. Two numbers
the peer makes float32 all the same: the sum of its critics' losses, of which the parts are
compared, and the expectile's two weights, which are float32 numbers here, too.

Where definitions differ, a function below changes one side, and its name says how.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from td7.algorithms import algorithm, cql, losses
from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.maximum_entropy import sample_squashed
from td7.bench import peers
from td7.configs import build_config
from td7.networks.numpy_actor import Actor
from td7.networks.stacked import Parameters
from td7.types import RowLayout, Task, TaskSpec
from test_peers import shown
from test_variants import weights

d3rlpy = pytest.importorskip("d3rlpy")
torch_models = pytest.importorskip("d3rlpy.models.torch")

CONFIGS: dict[str, Any] = {
    "td3+bc": d3rlpy.algos.TD3PlusBCConfig,
    "iql": d3rlpy.algos.IQLConfig,
    "cql": d3rlpy.algos.CQLConfig,
}
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "peers.md"
TASK = TaskSpec(Task("none"), (5,), (3,), (-1.0,) * 3, (1.0,) * 3, None)
LAYOUT = RowLayout(TASK.state_dim, TASK.action_dim)
SEEDS = (0, 1)
ROWS = 32
UPDATES = 8
SHARED = {"batch_size": ROWS, "learning_rate": 0.01, "target_rate": 0.1, "discount": 0.9}
SMALL: dict[str, dict[str, Any]] = {
    "td3+bc": {"hidden_dim": 8},
    "iql": {"hidden_dim": 8, "expectile": 0.75, "decay_updates": 12},
    "cql": {
        "hidden_dim": 8,
        "policy_learning_rate": 0.003,
        "sampled_actions": 4,
        "cloning_updates": 0,  # the peer has no cloning
    },
}
# The peer's names of what a learner's config has.
ARGUMENTS = {
    "learning_rate": "critic_learning_rate",
    "policy_learning_rate": "actor_learning_rate",
    "batch_size": "batch_size",
    "target_rate": "tau",
    "discount": "gamma",
    "actor_every": "update_actor_interval",
    "target_noise": "target_smoothing_sigma",
    "target_noise_clip": "target_smoothing_clip",
    "cloning_alpha": "alpha",
    "expectile": "expectile",
    "advantage_temperature": "weight_temp",
    "largest_weight": "max_weight",
    "conservative_weight": "conservative_weight",
    "sampled_actions": "n_action_samples",
}
# The learner's groups, and the peer's networks and their optimisers.
NETWORKS = {
    "critic": ("q_funcs", "critic_optim"),
    "value": ("value_func", "critic_optim"),
    "actor": ("policy", "actor_optim"),
}
TARGETS = {"target_critic": "targ_q_funcs", "target_actor": "targ_policy"}
LOWEST, HIGHEST = -5.0, 2.0  # of IQL's log std, in both


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    """The peer draws its noise in PyTorch's default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


# -- both sides, with the same weights -----------------------------------------------------------


def make_peer(name: str, settings: dict[str, Any], options: dict[str, Any], seed: int) -> Any:
    """The torch side of a peer in float64, its target networks unlike those they follow."""
    own: Any = make_config(name, settings)
    arguments = {
        theirs: getattr(own, key) for key, theirs in ARGUMENTS.items() if hasattr(own, key)
    }
    arguments.setdefault("actor_learning_rate", own.learning_rate)
    factory = d3rlpy.models.encoders.VectorEncoderFactory(
        hidden_units=[8] * (3 if name == "cql" else 2)
    )
    arguments |= {key: factory for key in fields(name) if key.endswith("encoder_factory")}
    if name == "iql":
        schedule = d3rlpy.optimizers.CosineAnnealingLRFactory(T_max=own.decay_updates)
        arguments["actor_optim_factory"] = d3rlpy.optimizers.AdamFactory(
            lr_scheduler_factory=schedule
        )
    if name == "cql":
        arguments |= {
            "temp_learning_rate": own.policy_learning_rate,
            "initial_temperature": 0.3,  # whose logarithm is not 0
            "alpha_learning_rate": 0.0,  # a weight that is not learned
            "alpha_threshold": 0.0,
        }
    torch.manual_seed(seed)
    algo = CONFIGS[name](**{**arguments, **options}).create(device="cpu:0")
    algo.create_impl((TASK.state_dim,), TASK.action_dim)
    modules = algo.impl.modules
    for module in modules.get_torch_modules().values():
        module.double()
    unlike = [
        getattr(modules, key).parameters() for key in TARGETS.values() if hasattr(modules, key)
    ]
    if name == "iql":
        unlike.append([modules.policy._logstd])  # an equal number in all dimensions, else
    with torch.no_grad():
        for parameters in unlike:
            for parameter in parameters:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return algo.impl


def make_config(name: str, settings: dict[str, Any]) -> LearnerConfig:
    return build_config(algorithm(name).config, {**SHARED, **SMALL[name], **settings})


def fields(name: str) -> dict[str, Any]:
    """The peer's options and their defaults."""
    return dict(vars(CONFIGS[name]()))


def make_learner(name: str, settings: dict[str, Any], impls: list[Any]) -> Any:
    """Member m has the weights, the target networks and the temperature of peer m."""
    learner: Any = algorithm(name).learner(
        make_config(name, settings), TASK, SEEDS, torch.device("cpu"), torch.float64
    )
    for m, impl in enumerate(impls):
        for own, theirs in pairs(learner, impl, m):
            own.copy_(theirs)
        if name == "iql":
            log_std(learner, learner.actor.flat, m).copy_(their_log_std(impl))
        if name == "cql":
            learner.temperature.parameters["log_alpha"][m].copy_(log_temperature(impl))
    return learner


def pairs(learner: Any, impl: Any, m: int) -> Iterable[tuple[Tensor, Tensor]]:
    """Every parameter of every network, the learner's and the peer's, in the same shape."""
    theirs = {**{group: key for group, (key, _) in NETWORKS.items()}, **TARGETS}
    for group, key in theirs.items():
        if hasattr(impl.modules, key):
            flat = learner.state()[f"{group}.parameters"]
            module = getattr(impl.modules, key)
            yield from of_network(learner, group, flat, module, m, own_data)


def own_data(parameter: Tensor) -> Tensor:
    return parameter.data


def of_network(
    learner: Any,
    group: str,
    flat: Tensor,
    module: Any,
    m: int,
    read: Callable[[Tensor], Tensor],
) -> Iterable[tuple[Tensor, Tensor]]:
    """A learner's flat numbers of one network, each beside what `read` gives of the peer's.

    But for IQL's log std, which is no layer.
    """
    group = group.removeprefix("target_")
    heads = list(module) if isinstance(module, nn.ModuleList) else [module]
    own_heads = weights(getattr(learner, group).layout, flat, m)
    for head, their_head in zip(own_heads, heads, strict=True):
        layers = linears(group, their_head)
        assert len(head) - ("log_std" in head) == 2 * len(layers), group
        for layer, linear in layers.items():
            yield head[f"{layer}.weight"], read(linear.weight).T
            yield head[f"{layer}.bias"], read(linear.bias)


def linears(group: str, module: Any) -> dict[str, nn.Linear]:
    """The linear layers of a peer's network by the learner's names."""
    letter, last = {"critic": "q value", "value": "v value", "actor": "a action"}[group].split()
    hidden = [layer for layer in module._encoder.modules() if isinstance(layer, nn.Linear)]
    layers = {f"{letter}{i}": layer for i, layer in enumerate(hidden, start=1)}
    for key, name in {"_fc": last, "_mu": last, "_logstd": "log_std"}.items():
        layer = getattr(module, key, None)
        if isinstance(layer, nn.Linear):
            layers[name] = layer
    return layers


def log_std(learner: Any, flat: Tensor, m: int) -> Tensor:
    """IQL's, of numbers that lie as the actor's parameters do."""
    return weights(learner.actor.layout, flat, m)[0]["log_std"]


def their_log_std(impl: Any) -> Tensor:
    """-5 + 7 sigmoid(p) of the number p that the peer learns."""
    p = impl.modules.policy._logstd.detach()[0]
    return LOWEST + (HIGHEST - LOWEST) * torch.sigmoid(p)


def log_temperature(impl: Any) -> Tensor:
    log_temperature: Tensor = impl.modules.log_temp._parameter.detach()[0]
    return log_temperature


# -- the same updates on both sides --------------------------------------------------------------


def make_batch(random: np.random.Generator) -> Batch:
    def normals(width: int) -> Tensor:
        return torch.from_numpy(random.standard_normal((len(SEEDS), ROWS, width)))

    ends = (normals(1) > -1).double()
    actions = normals(TASK.action_dim).clamp(-1, 1)
    return Batch(normals(TASK.state_dim), actions, normals(TASK.state_dim), 3 * normals(1), ends)


def their_batch(batch: Batch, m: int) -> Any:
    own = Batch(*(part[m] for part in batch))
    return d3rlpy.TorchMiniBatch(
        observations=own.state,
        actions=own.action,
        rewards=own.reward,
        next_observations=own.next_state,
        next_actions=torch.zeros_like(own.action),  # which none of the three reads
        returns_to_go=torch.zeros_like(own.reward),
        terminals=1 - own.not_terminated,
        intervals=torch.ones_like(own.reward),
        device="cpu:0",
    )


def draw(name: str, seed: int, *, samples_next: bool = False) -> dict[str, Tensor]:
    """What one update draws, in the order in which the peer does; as normals, for the learner."""
    torch.manual_seed(seed)
    one, n = (ROWS, TASK.action_dim), SMALL["cql"]["sampled_actions"]
    if name == "td3+bc":
        return {"target_policy": torch.randn(one)}
    if name == "iql":
        return {}
    noise = {"next_policy": normal(*one) if samples_next else torch.zeros(one)}
    noise |= {"sampled": normal(n, *one), "next_sampled": normal(n, *one)}
    uniform = torch.zeros(ROWS * n, TASK.action_dim).uniform_(-1, 1)
    uniform = uniform.view(ROWS, n, -1).transpose(0, 1)
    return {**noise, "random": math.sqrt(2) * torch.erfinv(uniform), "policy": normal(*one)}


def normal(*shape: int) -> Tensor:
    """As PyTorch's distributions draw."""
    return torch.normal(torch.zeros(shape), torch.ones(shape))


class Beside:
    """A learner and a peer for each of its members, through the same updates."""

    def __init__(
        self,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        settings: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        prepare: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """`settings` of both, `options` of the peer's alone."""
        self.name = name
        self.options = options or {}
        self.impls = [make_peer(name, settings or {}, self.options, seed) for seed in SEEDS]
        for impl in self.impls:
            prepare(impl)
        self.learner = make_learner(name, settings or {}, self.impls)
        self.updates = 0
        self.logs: list[dict[str, float]] = []  # of the peers' last update
        self.values: list[list[tuple[Tensor, Tensor]]] = []  # their critics' Q and y
        self._random = np.random.default_rng(5)
        self._note_values(monkeypatch)

    def _note_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loss = nn.functional.mse_loss

        def spy(values: Tensor, target: Tensor, **options: Any) -> Any:
            self.values[-1].append((values.detach(), target))
            return loss(values, target, **options)

        monkeypatch.setattr(nn.functional, "mse_loss", spy)

    def update(self) -> None:
        """One update of both, with the same batch and noise, and what they tell of it."""
        self.updates += 1
        self.batch = batch = make_batch(self._random)
        samples_next = self.options.get("soft_q_backup", False)
        seeds = [100 * self.updates + m for m in range(len(SEEDS))]
        noises = [draw(self.name, seed, samples_next=samples_next) for seed in seeds]
        self.noise = {key: torch.stack([n[key] for n in noises]) for key in noises[0]}
        self.trains_actor = self.updates % self.learner.actor_every == 0
        self.learner.update(batch, self.noise, Turn(trains_actors=self.trains_actor))
        self.logs, self.values = [], []
        for m, impl in enumerate(self.impls):
            self.values.append([])
            torch.manual_seed(seeds[m])
            self.logs.append(impl.update(their_batch(batch, m), self.updates))
            assert len(self.values[m]) == 2

    def their_targets(self) -> Tensor:
        """y [S, B, 1]; both critics learn the same."""
        for (_, y), (_, again) in self.values:
            assert torch.equal(y, again)
        return torch.stack([pairs[0][1] for pairs in self.values])

    def their(self, metric: str) -> list[float]:
        return [log[metric] for log in self.logs]

    def moments(self) -> Iterable[tuple[str, Tensor, Tensor]]:
        """Adam's first moments: group, own, theirs. After one update: a tenth of the gradient."""
        for m, impl in enumerate(self.impls):
            for group, (key, optimiser) in NETWORKS.items():
                if not hasattr(impl.modules, key):
                    continue
                state = getattr(impl.modules, optimiser).optim.state

                def read(parameter: Tensor, state: Any = state) -> Any:
                    return state[parameter].get("exp_avg", torch.zeros_like(parameter))

                flat, module = getattr(self.learner, group).first, getattr(impl.modules, key)
                for own, theirs in of_network(self.learner, group, flat, module, m, read):
                    yield group, own, theirs

    def check_critics(self, tolerance: float) -> None:
        """Value targets, and the critics' losses, gradients, weights and target networks."""
        close: dict[str, Any] = {"rtol": tolerance, "atol": tolerance}
        recorded = self.learner.recorded
        errors = [[(q - y).square().mean() for q, y in pairs] for pairs in self.values]
        expected = torch.tensor(errors).sum(dim=1)
        if self.name == "cql":
            expected += torch.tensor(self.their("conservative_loss"))
            assert_allclose(recorded["conservative_loss"], self.their("conservative_loss"), **close)
        assert_allclose(recorded["critic_loss"], expected, **close)
        assert_allclose(recorded["value_target"], self.their_targets().mean(dim=(1, 2)), **close)
        self.check_networks({"critic", "target_critic"}, tolerance)

    def check_networks(self, groups: set[str], tolerance: float) -> None:
        close: dict[str, Any] = {"rtol": tolerance, "atol": tolerance}
        for group, own, theirs in self.moments():
            if group in groups:
                assert_allclose(own, theirs, err_msg=f"moments of {group}", **close)
        keys = {**{group: key for group, (key, _) in NETWORKS.items()}, **TARGETS}
        for group in groups:
            for m, impl in enumerate(self.impls):
                flat = self.learner.state()[f"{group}.parameters"]
                module = getattr(impl.modules, keys[group])
                for own, theirs in of_network(self.learner, group, flat, module, m, own_data):
                    assert_allclose(own, theirs, err_msg=group, **close)

    def check(self, tolerance: float) -> None:
        """Value targets, losses, gradients, weights and target networks are the same."""
        close: dict[str, Any] = {"rtol": tolerance, "atol": tolerance}
        recorded = self.learner.recorded
        self.check_critics(tolerance)
        if self.trains_actor:
            assert_allclose(recorded["actor_loss"], self.their("actor_loss"), **close)
        if self.name == "iql":
            assert_allclose(recorded["value_loss"], self.their("v_loss"), **close)
        if self.name == "cql":
            theirs = torch.stack([log_temperature(impl) for impl in self.impls])
            assert_allclose(self.learner.temperature.parameters["log_alpha"], theirs, **close)
            assert_allclose(recorded["temperature"], self.their("temp"), **close)
        others = {"iql": {"value"}, "td3+bc": {"target_actor"}, "cql": set[str]()}
        self.check_networks({"actor", *others[self.name]}, tolerance)


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


# -- what `td7 bench` measures -------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_bench_measures_networks_and_batches_of_the_same_sizes(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    config: Any = algorithm(name).config()
    theirs = peers.PEERS[name].make(batch_size=peers.BATCH_SIZE)
    assert theirs.batch_size == config.batch_size
    if name == "cql":
        assert theirs.n_action_samples == config.sampled_actions
        assert theirs.alpha_learning_rate == 0
    algo = theirs.create(device="cpu:0")
    algo.create_impl((TASK.state_dim,), TASK.action_dim)
    learner = algorithm(name).learner(config, TASK, (0,), torch.device("cpu"), torch.float32)
    shapes = [(own.shape, other.shape) for own, other in pairs(learner, algo.impl, 0)]
    assert shapes
    assert all(own == other for own, other in shapes)


def test_benchs_updates_are_d3rlpys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round makes the asked number of updates, on 256 rows however few the data has."""
    torch.set_default_dtype(torch.float32)
    seen: list[tuple[int, int]] = []
    impl = d3rlpy.algos.qlearning.torch.TD3PlusBCImpl
    own = impl.inner_update

    def spy(self: Any, batch: Any, grad_step: int) -> Any:
        seen.append((len(batch.observations), grad_step))
        return own(self, batch, grad_step)

    monkeypatch.setattr(impl, "inner_update", spy)
    run = peers.updates("td3+bc", TASK, np.ones((30, LAYOUT.width), np.float32), "cpu", 3)
    run()
    run()
    assert seen == [(256, step) for step in range(6)]


# -- what docs/peers.md says ---------------------------------------------------------------------


def defaults(name: str) -> dict[str, tuple[Any, Any]]:
    """The documented defaults by name: this package's and the peer's."""
    chosen, theirs = algorithm(name), fields(name)
    config: Any = chosen.config()
    values = {
        own: (getattr(config, own), theirs[key])
        for own, key in ARGUMENTS.items()
        if hasattr(config, own)
    }
    values["policy_learning_rate"] = (
        getattr(config, "policy_learning_rate", config.learning_rate),
        theirs["actor_learning_rate"],
    )
    torch.set_default_dtype(torch.float32)
    algo = CONFIGS[name]().create(device="cpu:0")
    algo.create_impl((TASK.state_dim,), TASK.action_dim)
    modules = algo.impl.modules
    learner: Any = chosen.learner(config, TASK, (0,), torch.device("cpu"), torch.float32)
    values["critics"] = (learner.critic_network.heads, len(modules.q_funcs))
    for group, network, module in (
        ("actor", learner.actor_network, modules.policy),
        ("critic", learner.critic_network, modules.q_funcs[0]),
    ):
        own = [layer.width for layer in network.layers if layer.activation == "relu"]
        of_peer = [
            layer.out_features
            for key, layer in linears(group, module).items()
            if re.fullmatch(r"[aq]\d", key)
        ]
        values[f"{group} layers"] = ("-".join(map(str, own)), "-".join(map(str, of_peer)))
    if name == "iql":
        assert theirs["actor_optim_factory"].lr_scheduler_factory is None
        values["decay_updates"] = (config.decay_updates, None)
        output = modules.policy(torch.zeros(1, TASK.state_dim))
        values["log std at first"] = (
            log_std(learner, learner.actor.flat, 0)[0].item(),
            output.logstd[0, 0].item(),
        )
    if name == "cql":
        values["temperature's rate"] = (config.policy_learning_rate, theirs["temp_learning_rate"])
        values["temperature at first"] = (
            learner.temperature.parameters["log_alpha"].exp().item(),
            theirs["initial_temperature"],
        )
        values["target entropy"] = (learner.target_entropy, -float(algo.impl._action_size))
        values["cloning_updates"] = (config.cloning_updates, None)
        values["weight's rate"] = (None, theirs["alpha_learning_rate"])
        values["threshold"] = (None, theirs["alpha_threshold"])
        policy = modules.policy
        values["lowest log std"] = (cql.LOG_STD_BOUNDS[0], policy._min_logstd)
    return values


def test_the_documented_defaults_of_d3rlpy() -> None:
    """The table's rows are what the two programs have."""
    tables = {name: defaults(name) for name in CONFIGS}
    rows = list(dict.fromkeys(key for table in tables.values() for key in table))
    text = DOCS.read_text().partition("d3rlpy's defaults")[2]
    for row in rows:
        cells = [cell for name in CONFIGS for cell in tables[name].get(row, ("", ""))]
        line = f"| {row.replace('_', ' ')} | {' | '.join(map(shown, cells))} |"
        assert re.sub(" +", " ", line) in text, line


def test_the_documented_version_of_d3rlpy() -> None:
    """That which constraints.txt pins."""
    pins = (ROOT / "constraints.txt").read_text()
    (version,) = re.findall(r"^d3rlpy==(\S+)$", pins, re.MULTILINE)
    assert f"d3rlpy {version}" in DOCS.read_text()

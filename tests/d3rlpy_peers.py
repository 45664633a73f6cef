"""TD3+BC, IQL and CQL beside d3rlpy: same weights, batch and noise.

The peer's own `update` runs. It draws from PyTorch's global generator, so the noise is drawn first
for the learner and then once more by the peer. Both compute in float64, except for two numbers that
the peer keeps in float32: the sum of its critics' losses, of which the tests compare the parts, and
the expectile's two weights, for which the tests take numbers that float32 holds exactly.

Where definitions differ, a function below changes one side, and its name says how.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from td7.algorithms import algorithm
from td7.algorithms.config import LearnerConfig
from td7.algorithms.learner import Batch, Turn
from td7.configs import build_config
from td7.types import RowLayout, Task, TaskSpec
from test_variants import weights

d3rlpy = pytest.importorskip("d3rlpy")
torch_models = pytest.importorskip("d3rlpy.models.torch")

CONFIGS: dict[str, Any] = {
    "td3+bc": d3rlpy.algos.TD3PlusBCConfig,
    "iql": d3rlpy.algos.IQLConfig,
    "cql": d3rlpy.algos.CQLConfig,
}
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "reproduction" / "peers.md"
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


@contextmanager
def float64() -> Iterator[None]:
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

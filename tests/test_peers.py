"""TD3, SAC and TQC beside Stable-Baselines3 and sb3-contrib: same weights, batch and noise.

It is the peer's own `train` that runs. It draws from PyTorch's global generator, so its noise is
drawn ahead for the learner, and then once more by the peer. Both compute in float64.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import toys  # noqa: F401  # registers the tasks
from td7.algorithms import algorithm, losses
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.maximum_entropy import sample_action
from td7.configs import build_config
from td7.networks.description import LOG_STD_BOUNDS, Network
from td7.networks.numpy_actor import Actor
from td7.options import TrainOptions
from td7.rollouts.environment import ActionMap
from td7.rollouts.episodes import EpisodeTask, play
from td7.rollouts.registration import describe, make
from td7.types import Exploration, Task
from test_variants import weights

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")

PEERS: dict[str, Any] = {"td3": sb3.TD3, "sac": sb3.SAC, "tqc": contrib.TQC}
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "reproduction" / "peers.md"
POINT = describe(Task("toys:Point-v0"))
SEEDS = (0, 1)
ROWS = 32
UPDATES = 8
SMALL = {
    "td3": {"hidden_dim": 8},
    "sac": {"actor_hidden_dim": 8, "critic_hidden_dim": 8},
    "tqc": {"actor_hidden_dim": 8, "critic_hidden_dim": 8},
}
SHARED = {"batch_size": ROWS, "learning_rate": 0.01, "target_rate": 0.1, "discount": 0.9}
# The peers' names of what a learner's config has: arguments of the model, and of its policy.
ARGUMENTS = {
    "learning_rate": "learning_rate",
    "batch_size": "batch_size",
    "target_rate": "tau",
    "discount": "gamma",
    "replay_capacity": "buffer_size",
    "random_steps": "learning_starts",
    "exploration_noise": "action_noise",
    "actor_every": "policy_delay",
    "target_noise": "target_policy_noise",
    "target_noise_clip": "target_noise_clip",
    "dropped_quantiles": "top_quantiles_to_drop_per_net",
}
POLICY_ARGUMENTS = {"critics": "n_critics", "quantiles": "n_quantiles"}
# Where the defaults are not the same.
ALIKE: dict[str, dict[str, Any]] = {
    "td3": {},
    "sac": {},
    "tqc": {"critics": 2, "quantiles": 8, "dropped_quantiles": 2},
}


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peers make every observation float32; here it stays what it is."""

    def as_it_is(observation: Tensor, *_: Any, **__: Any) -> Tensor:
        return observation

    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", as_it_is)


# -- both sides, with the same weights -----------------------------------------------------------


def make_peer(name: str, settings: dict[str, Any], seed: int) -> Any:
    """A peer's model in float64, its target networks unlike the networks they follow."""
    arguments: dict[str, Any] = {"buffer_size": 1}
    sizes: dict[str, Any] = {"net_arch": {"pi": [8, 8], "qf": [8] * (3 if name == "tqc" else 2)}}
    for key, value in {**SHARED, **settings}.items():
        if key == "target_entropy_per_dimension":
            arguments["target_entropy"] = value * POINT.action_dim
        elif key in ARGUMENTS:
            arguments[ARGUMENTS[key]] = value
        else:
            sizes[POLICY_ARGUMENTS[key]] = value
    if name != "td3":
        arguments["ent_coef"] = "auto_0.3"  # a temperature to start with whose logarithm is not 0
    env = gymnasium.make("Point-v0")
    model = PEERS[name]("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=sizes, **arguments)
    model.set_logger(sb3.common.logger.Logger(folder=None, output_formats=[]))
    model.policy.double()
    if name != "td3":
        model.log_ent_coef.data = model.log_ent_coef.data.double()
    with torch.no_grad():
        for group in ("critic_target", "actor_target"):
            for parameter in getattr(model, group, nn.Module()).parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def make_learner(name: str, settings: dict[str, Any], models: list[Any]) -> Any:
    """Member m has the weights, the target networks and the temperature of model m."""
    chosen = algorithm(name)
    config = build_config(chosen.config, {**SHARED, **SMALL[name], **settings})
    learner: Any = chosen.learner(config, POINT, SEEDS, torch.device("cpu"), torch.float64)
    for m, model in enumerate(models):
        for own, theirs in pairs(learner, model, m):
            own.copy_(theirs)
        if name != "td3":
            learner.temperature.parameters["log_alpha"][m].copy_(model.log_ent_coef.data)
    return learner


def pairs(learner: Any, model: Any, m: int) -> Iterable[tuple[Tensor, Tensor]]:
    """Every parameter of every network, the learner's and the peer's, in the same shape."""
    for group, theirs in {
        "critic": "critic",
        "actor": "actor",
        "target_critic": "critic_target",
        "target_actor": "actor_target",
    }.items():
        if hasattr(model, theirs):
            flat = learner.state()[f"{group}.parameters"]
            yield from of_network(learner, group, flat, getattr(model, theirs), m, own_data)


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
    """A learner's flat numbers of one network, each beside what `read` gives of the peer's."""
    layout = (learner.critic if group.endswith("critic") else learner.actor).layout
    for head, layers in zip(weights(layout, flat, m), linears(module), strict=True):
        assert len(head) == 2 * len(layers), group
        for layer, linear in layers.items():
            yield head[f"{layer}.weight"], read(linear.weight).T
            yield head[f"{layer}.bias"], read(linear.bias)


def linears(module: Any) -> list[dict[str, nn.Linear]]:
    """The linear layers of a peer's network by the learner's names, a dictionary a head."""

    def of(part: nn.Module) -> list[nn.Linear]:
        return [layer for layer in part.modules() if isinstance(layer, nn.Linear)]

    if hasattr(module, "q_networks"):
        heads = [of(network) for network in module.q_networks]
        names = [*(f"q{i}" for i in range(1, len(heads[0]))), "value"]
        return [dict(zip(names, head, strict=True)) for head in heads]
    if hasattr(module, "log_std"):
        hidden = dict(zip(("a1", "a2"), of(module.latent_pi), strict=True))
        return [{**hidden, "log_std": module.log_std, "action": module.mu}]
    return [dict(zip(("a1", "a2", "action"), of(module.mu), strict=True))]


# -- the same updates on both sides --------------------------------------------------------------


def make_batch(random: np.random.Generator) -> Batch:
    def normals(width: int) -> Tensor:
        return torch.from_numpy(random.standard_normal((len(SEEDS), ROWS, width)))

    ends = (normals(1) > -1).double()
    actions = normals(POINT.action_dim).clamp(-1, 1)
    return Batch(normals(POINT.state_dim), actions, normals(POINT.state_dim), 3 * normals(1), ends)


def draw(name: str, seed: int) -> dict[str, Tensor]:
    """The standard normals of one update, in the order in which the peer draws them."""
    torch.manual_seed(seed)
    purposes = ("target_policy",) if name == "td3" else ("policy", "next_policy")
    shape = (ROWS, POINT.action_dim)
    return {purpose: torch.empty(shape, dtype=torch.float64).normal_() for purpose in purposes}


class Beside:
    """A learner and a peer for each of its members, through the same updates."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
        prepare: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.models = [make_peer(name, settings, seed) for seed in SEEDS]
        for model in self.models:
            prepare(model)
        self.learner = make_learner(name, settings, self.models)
        self.targets: dict[str, list[Tensor]] = {"own": [], "theirs": []}
        self.updates = 0
        self._random = np.random.default_rng(5)
        self._monkeypatch = monkeypatch
        self._note_targets()

    def _note_targets(self) -> None:
        """Value targets, as the learner's stage gives them and the peer's critic loss has them."""

        def noted(stage: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                result = stage(*arguments)
                if stage.__name__ == "_value_target":
                    self.targets["own"] = list(result)
                return result

            return run

        self.learner.wrap_stages(noted)
        if self.name == "tqc":
            module, function = contrib.tqc.tqc, "quantile_huber_loss"
        else:
            module, function = nn.functional, "mse_loss"
        loss = getattr(module, function)

        def spy(values: Tensor, target: Tensor, **options: Any) -> Any:
            self.targets["theirs"].append(target.squeeze(1) if self.name == "tqc" else target)
            return loss(values, target, **options)

        self._monkeypatch.setattr(module, function, spy)

    def update(self) -> None:
        """One update of both, with the same batch and noise, and what they tell of it."""
        self.updates += 1
        self.log_alphas = [
            getattr(model, "log_ent_coef", torch.zeros(1)).detach().clone() for model in self.models
        ]
        batch = make_batch(self._random)
        noises = [draw(self.name, 100 * self.updates + m) for m in range(len(SEEDS))]
        noise = {purpose: torch.stack([n[purpose] for n in noises]) for purpose in noises[0]}
        self.trains_actor = self.updates % self.learner.actor_every == 0
        self.learner.update(batch, noise, Turn(trains_actors=self.trains_actor))
        targets = []
        for m, model in enumerate(self.models):
            own = Batch(*(part[m] for part in batch))
            samples = sb3.common.type_aliases.ReplayBufferSamples(
                observations=own.state,
                actions=own.action,
                next_observations=own.next_state,
                dones=1 - own.not_terminated,
                rewards=own.reward,
            )
            self._monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, s=samples, **__: s)
            self.targets["theirs"] = []
            torch.manual_seed(100 * self.updates + m)
            model.train(gradient_steps=1, batch_size=ROWS)
            targets.append(self.targets["theirs"][0])
        self.targets["theirs"] = targets

    def logged(self, metric: str) -> list[float]:
        """What the peers logged last."""
        return [float(model.logger.name_to_value[f"train/{metric}"]) for model in self.models]

    def moments(self) -> Iterable[tuple[str, Tensor, Tensor]]:
        """Adam's first moments: group, own, theirs. After one update: a tenth of the gradient."""
        for m, model in enumerate(self.models):
            for group in ("critic", "actor"):
                module = getattr(model, group)
                state = module.optimizer.state

                def read(parameter: Tensor, state: Any = state) -> Any:
                    return state[parameter].get("exp_avg", torch.zeros_like(parameter))

                flat = getattr(self.learner, group).first
                for own, theirs in of_network(self.learner, group, flat, module, m, read):
                    yield group, own, theirs
            if self.name != "td3":
                theirs = model.ent_coef_optimizer.state[model.log_ent_coef]["exp_avg"]
                yield "temperature", self.learner.temperature.first[m, :1], theirs

    def check(self, tolerance: float, critic_loss_factor: float = 1.0) -> None:
        """Value targets, losses, gradients, weights and target networks are the same."""
        close: dict[str, Any] = {"rtol": tolerance, "atol": tolerance}
        recorded = self.learner.recorded
        for own, theirs in zip(self.targets["own"], self.targets["theirs"], strict=True):
            assert_allclose(own, theirs, **close)
        expected = critic_loss_factor * recorded["critic_loss"]
        assert_allclose(expected, self.logged("critic_loss"), **close)
        if self.trains_actor:
            assert_allclose(recorded["actor_loss"], self.logged("actor_loss"), **close)
        if self.name != "td3":
            log_alpha = torch.cat(self.log_alphas)
            mean_log_prob = -recorded["entropy"].view(-1, 1, 1)
            own = losses.temperature_loss(log_alpha, mean_log_prob, self.learner.target_entropy)
            assert_allclose(own, self.logged("ent_coef_loss"), **close)
            assert_allclose(log_alpha.exp(), self.logged("ent_coef"), **close)
            theirs = torch.cat([model.log_ent_coef.detach() for model in self.models])
            assert_allclose(self.learner.temperature.parameters["log_alpha"][:, 0], theirs, **close)
            assert_allclose(recorded["temperature"], theirs.exp(), **close)
        for group, own, theirs in self.moments():
            factor = critic_loss_factor if group == "critic" else 1.0
            assert_allclose(factor * own, theirs, err_msg=f"moments of {group}", **close)
        for m, model in enumerate(self.models):
            for own, theirs in pairs(self.learner, model, m):
                assert_allclose(own, theirs, **close)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_noise": 0.8, "target_noise_clip": 0.3, "actor_every": 3},
        {"actor_every": 1, "discount": 0.99, "target_rate": 1.0},
    ],
)
def test_td3_is_stable_baselines(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Value targets, losses, gradients, Adam's steps, the delayed actor and targets."""
    both = Beside("td3", settings, monkeypatch)
    for _ in range(UPDATES):
        both.update()
        both.check(1e-10)


def halve_critic_epsilon(model: Any) -> None:
    """Of half a loss, Adam with half its epsilon makes the very same steps."""
    (group,) = model.critic.optimizer.param_groups
    assert group["eps"] == 1e-8
    group["eps"] = 0.5e-8


@pytest.mark.parametrize("settings", [{}, {"target_entropy_per_dimension": 0.5, "discount": 0.99}])
def test_sac_is_stable_baselines(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same but for the critics' loss, of which the peer takes half."""
    both = Beside("sac", settings, monkeypatch, halve_critic_epsilon)
    for _ in range(UPDATES):
        both.update()
        both.check(1e-9, critic_loss_factor=0.5)


def test_sac_clamps_its_log_std_as_stable_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One action dimension above the upper bound, where no gradient comes through."""

    def prepare(model: Any) -> None:
        halve_critic_epsilon(model)
        model.actor.log_std.bias.data[0] = 4.0

    policies = sb3.sac.policies
    assert (policies.LOG_STD_MIN, policies.LOG_STD_MAX) == LOG_STD_BOUNDS
    assert (contrib.tqc.policies.LOG_STD_MIN, contrib.tqc.policies.LOG_STD_MAX) == LOG_STD_BOUNDS
    both = Beside("sac", {}, monkeypatch, prepare)
    both.update()
    both.check(1e-9, critic_loss_factor=0.5)
    stopped = weights(both.learner.actor.layout, both.learner.actor.first, 0)[0]["log_std.bias"]
    assert stopped[0] == 0
    assert stopped[1] != 0


def test_the_half_in_sacs_loss_reaches_the_weights_by_adams_epsilon_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a gradient g, a first step is g / (|g| + 1e-8) here and g / (|g| + 2e-8) there."""
    both = Beside("sac", {}, monkeypatch)
    both.update()
    learner = both.learner
    gradient = learner.critic.first / 0.1
    step = gradient / (gradient.abs() + 1e-8)
    their_step = gradient / (gradient.abs() + 2e-8)
    expected = learner.critic.flat + 0.01 * (step - their_step)
    for m, model in enumerate(both.models):
        pairs = of_network(learner, "critic", expected, model.critic, m, own_data)
        for own, theirs in pairs:
            assert_allclose(own, theirs, rtol=1e-10, atol=1e-10)
    assert 0 < (expected - learner.critic.flat).abs().max() < 1e-5


def without_epsilon(model: Any) -> None:
    """log(1 - a^2 + 0), which the learner's form of the log probability is equal to."""
    assert model.actor.action_dist.epsilon == 1e-6
    model.actor.action_dist.epsilon = 0.0


@pytest.mark.parametrize(
    "settings",
    [
        ALIKE["tqc"],
        {"critics": 5, "quantiles": 4, "dropped_quantiles": 0},
        {"critics": 1, "quantiles": 8, "dropped_quantiles": 5, "discount": 0.99},
    ],
)
def test_tqc_is_sb3_contrib(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, truncated targets and quantile loss included, without the peer's epsilon."""
    both = Beside("tqc", settings, monkeypatch, without_epsilon)
    for _ in range(UPDATES):
        both.update()
        kept = settings["critics"] * (settings["quantiles"] - settings["dropped_quantiles"])
        assert both.targets["own"][0].shape == (ROWS, kept)
        both.check(1e-9)


# -- formulas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sac", "tqc"])
def test_log_probabilities_differ_by_the_epsilon_alone(name: str) -> None:
    """SAC's is the peer's; TQC's is larger, by log(1 + 1e-6 / (1 - a^2)) a dimension."""
    models = [make_peer(name, ALIKE[name], seed) for seed in SEEDS]
    learner = make_learner(name, ALIKE[name], models)
    state = make_batch(np.random.default_rng(0)).state
    noise = draw(name, 3)["policy"]
    correction = {"sac": losses.tanh_correction_epsilon, "tqc": losses.tanh_correction_sigmoid}
    action, log_prob = sample_action(
        learner.policy_network,
        learner.actor.parameters,
        {"state": state},
        noise.expand(len(SEEDS), -1, -1),
        correction[name],
    )
    for m, model in enumerate(models):
        torch.manual_seed(3)
        with torch.no_grad():
            their_action, their_log_prob = model.actor.action_log_prob(state[m])
        assert_allclose(action[m], their_action, rtol=1e-12)
        epsilon = torch.log1p(1e-6 / (1 - action[m].square())).sum(-1)
        expected = log_prob[m, :, 0] - (epsilon if name == "tqc" else 0)
        assert_allclose(their_log_prob, expected, rtol=1e-9)


def test_the_quantile_loss_is_sb3_contribs_mean() -> None:
    """As its TQC takes it; its default, of QR-DQN, sums over quantiles: that many times more."""
    random = np.random.default_rng(1)
    z = torch.from_numpy(3 * random.standard_normal((1, 5, ROWS, 8)))
    target = torch.from_numpy(3 * random.standard_normal((1, ROWS, 30)))
    their_z, their_target = z[0].transpose(0, 1), target[0].unsqueeze(1)
    theirs = contrib.common.utils.quantile_huber_loss
    (own,) = losses.quantile_huber(z, target, 1.0)
    mean = theirs(their_z, their_target, sum_over_quantiles=False)
    assert_allclose(own, mean, rtol=1e-12)
    assert_allclose(8 * own, theirs(their_z, their_target), rtol=1e-12)


# -- acting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_actions_are_the_peers(name: str) -> None:
    """At test time and in training, in [-1, 1] and in the task's own bounds."""
    models = [make_peer(name, ALIKE[name], seed) for seed in SEEDS]
    learner = make_learner(name, ALIKE[name], models)
    bounds = ActionMap(POINT.action_low, POINT.action_high)
    state = np.random.default_rng(2).standard_normal((1, POINT.state_dim))
    torch.manual_seed(9)
    normal = torch.empty(1, POINT.action_dim, dtype=torch.float64).normal_().numpy()
    noise = (lambda: 0.1 * normal) if name == "td3" else None  # the peer's default has none
    for m, model in enumerate(models):
        actor = Actor(learner.policy_network, learner.policies()[m].numpy())
        theirs, _ = model.predict(state, deterministic=True)
        assert_allclose(bounds.to_task(actor(state)), theirs, rtol=1e-6)  # its bounds are float32
        model._last_obs = state
        torch.manual_seed(9)
        in_task, in_unit = model._sample_action(learning_starts=0, action_noise=noise)
        own = actor.explore(state, normal, learner.exploration)
        assert_allclose(own, in_unit, rtol=1e-6)
        assert_allclose(bounds.to_task(own), in_task, rtol=1e-6)
        assert_allclose(bounds.to_unit(in_task), in_unit, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("ends_at", [0, 3, 5])
def test_a_time_limit_is_no_end_for_either(ends_at: int) -> None:
    """Episodes of a task with a limit of 5; a true end there, too, is an end for both."""
    steps = 11
    env = gymnasium.make("Count-v0", ends_at=ends_at)
    model = sb3.SAC("MlpPolicy", env, learning_starts=100, buffer_size=steps, device="cpu")
    model.learn(steps)
    theirs = model.replay_buffer._get_samples(np.arange(steps))
    environment = make(Task("toys:Count-v0", {"ends_at": ends_at}))
    rows: list[Any] = []
    while len(rows) < steps:
        task = EpisodeTask(0, len(rows), steps - len(rows), None, Exploration("added_noise"))
        rows += [*play(environment, Network({}, ()), task).rows]
    environment.close()
    state, _, next_state, reward, not_terminated = np.stack(rows).T
    assert_allclose(state, theirs.observations[:, 0])
    assert_allclose(next_state, theirs.next_observations[:, 0])
    assert_allclose(reward, theirs.rewards[:, 0])
    assert_allclose(1 - not_terminated, theirs.dones[:, 0])
    assert (not_terminated == 0).any() == bool(ends_at)


# -- what docs/reproduction/peers.md says --------------------------------------------------------


def defaults(name: str) -> dict[str, tuple[Any, Any]]:
    """The documented defaults by name: this package's and the peer's."""
    chosen, peer = algorithm(name), PEERS[name]
    config: Any = chosen.config()
    signature = inspect.signature(peer.__init__).parameters
    values = {
        own: (getattr(config, own), signature[theirs].default)
        for own, theirs in ARGUMENTS.items()
        if hasattr(config, own)
    }
    model = peer("MlpPolicy", gymnasium.make("Point-v0"), buffer_size=1, device="cpu")
    config = config.for_task(POINT.task)
    if name == "tqc":
        values["dropped_quantiles"] = (config.dropped_quantiles, values["dropped_quantiles"][1])
        values["quantiles"] = (config.quantiles, model.critic.n_quantiles)
    learner: Any = chosen.learner(config, POINT, (0,), torch.device("cpu"), torch.float32)
    values["critics"] = (learner.critic_network.heads, model.critic.n_critics)
    for group, network in {
        "actor": learner.policy_network,
        "critic": learner.critic_network,
    }.items():
        own = [layer.width for layer in network.layers if layer.activation == "relu"]
        (layers, *_) = linears(getattr(model, group))
        theirs = [
            layer.out_features for key, layer in layers.items() if re.fullmatch(r"[aq]\d", key)
        ]
        values[f"{group} layers"] = ("-".join(map(str, own)), "-".join(map(str, theirs)))
    if name != "td3":
        values["initial temperature"] = (
            learner._alpha().item(),
            model.log_ent_coef.exp().item(),
        )
        values["target entropy"] = (learner.target_entropy, float(model.target_entropy))
    return values


def test_the_documented_defaults() -> None:
    """The table's rows are what the two programs have."""
    tables = {name: defaults(name) for name in PEERS}
    rows = list(dict.fromkeys(key for table in tables.values() for key in table))
    text = DOCS.read_text()
    for row in rows:
        cells = [cell for name in PEERS for cell in tables[name].get(row, ("", ""))]
        line = f"| {row.replace('_', ' ')} | {' | '.join(map(shown, cells))} |"
        assert re.sub(" +", " ", line) in text, line


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def test_the_documented_evaluation() -> None:
    """How often and how long, of `td7 train` and of the peers' callback."""
    callback = inspect.signature(sb3.common.callbacks.EvalCallback.__init__).parameters
    assert (TrainOptions().evaluate_every, TrainOptions().evaluation_episodes) == (5_000, 10)
    assert (callback["eval_freq"].default, callback["n_eval_episodes"].default) == (10_000, 5)
    assert callback["deterministic"].default
    text = " ".join(DOCS.read_text().split())
    assert "every 5,000 steps, 10 episodes" in text
    assert "every 10,000 steps, 5 episodes" in text


def test_first_weights_are_of_the_same_distribution() -> None:
    """Uniform up to 1 / sqrt(fan in), biases too."""
    model = sb3.SAC("MlpPolicy", gymnasium.make("Point-v0"), buffer_size=1, device="cpu", seed=0)
    chosen = algorithm("sac")
    learner: Any = chosen.learner(chosen.config(), POINT, (0,), torch.device("cpu"), torch.float32)
    for own, theirs in pairs(learner, model, 0):
        if own.numel() < 256:  # too few for their largest to tell the bound
            continue
        assert_allclose(own.abs().max(), theirs.abs().max(), rtol=0.05)
        assert_allclose(own.std(), theirs.std(), rtol=0.1)


def test_the_documented_versions() -> None:
    """Those that constraints.txt pins."""
    pins = (ROOT / "constraints.txt").read_text()
    for package, title in {
        "stable_baselines3": "Stable-Baselines3",
        "sb3_contrib": "sb3-contrib",
    }.items():
        (version,) = re.findall(rf"^{package}==(\S+)$", pins, re.MULTILINE)
        assert f"{title} {version}" in DOCS.read_text()

"""What `td7 bench` measures of d3rlpy, and what docs/reproduction/peers.md says of its defaults."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from d3rlpy_peers import (
    ARGUMENTS,
    CONFIGS,
    DOCS,
    LAYOUT,
    ROOT,
    TASK,
    fields,
    float64,
    linears,
    log_std,
    pairs,
)
from td7.algorithms import algorithm, cql
from td7.bench import peers
from test_peers import shown

d3rlpy = pytest.importorskip("d3rlpy")


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    with float64():
        yield


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


# -- what docs/reproduction/peers.md says --------------------------------------------------------


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
        values["initial log std"] = (
            log_std(learner, learner.actor.flat, 0)[0].item(),
            output.logstd[0, 0].item(),
        )
    if name == "cql":
        values["temperature's rate"] = (config.policy_learning_rate, theirs["temp_learning_rate"])
        values["initial temperature"] = (
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

"""The offline agents compiled: the same updates on shared rows, traced whole, and no fallback."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from td7.algorithms import ALGORITHMS, algorithm
from td7.configs import with_values
from td7.engine import Engine
from td7.replay import Replay
from td7.types import RowLayout, Task, TaskSpec
from test_studies import TRACED

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
LAYOUT = RowLayout(5, 2)
CPU = torch.device("cpu")
UPDATES = 24
NAMES = [a.name for a in ALGORITHMS.values() if a.offline is not None]
# Actor steps in every update: the updates without are a part of those with, and are traced apart.
TINY: dict[str, dict[str, int]] = {
    "td7": {"embedding_dim": 6, "target_every": 10, "actor_every": 1},
    "td3+bc": {"target_every": 10, "actor_every": 1},
    "cql": {"sampled_actions": 3, "cloning_updates": 9},
    "iql": {},
    "xql": {},
}


def rows() -> Any:
    """Fifty steps in episodes of ten."""
    random = np.random.default_rng(0)
    found = random.standard_normal((50, LAYOUT.width)).astype(np.float32)
    found[:, 5:7] = random.uniform(-1, 1, (50, 2))
    found[:, -1] = np.arange(50) % 10 != 9
    return found


def build(name: str, mode: str) -> Engine:
    """Two members on one copy of the data; where compiling fails, so does the test."""
    chosen = algorithm(name)
    small = {**(chosen.offline or {}), "hidden_dim": 8, "batch_size": 16, **TINY[name]}
    config = with_values(chosen.config, small)
    learner = chosen.learner(config, TASK, [0, 1], CPU, torch.float64)
    replay = Replay(LAYOUT, 50, 2, CPU, torch.float64, shared=True)
    replay.fill(learner.prepared(rows(), LAYOUT))
    return Engine(learner, replay, config.batch_size, [0, 1], mode, warn=pytest.fail)


def state(engine: Engine) -> dict[str, Tensor]:
    return {**engine.learner.state(), **engine.state(), "leaves": engine.replay.leaves}


def check_compiled(name: str) -> None:
    compiled, eager = build(name, "compiled"), build(name, "eager")
    before = {key: tensor.clone() for key, tensor in state(compiled).items()}
    for engine in (compiled, eager):
        while engine.updates[0] < UPDATES:
            engine.advance([UPDATES - n for n in engine.updates])
    expected = state(eager)
    for key, tensor in state(compiled).items():
        assert torch.allclose(tensor, expected[key], rtol=1e-7, atol=1e-10), key
    assert not torch.equal(before["critic.parameters"], expected["critic.parameters"])


def test_every_agent_is_traced_here_or_among_the_variants() -> None:
    among_variants = {"td3+bc": "TD3+BC", "cql": "CQL", "xql": "X-QL"}
    assert {f"offline/{label}" for label in among_variants.values()} < set(TRACED)
    assert {*TRACED_HERE, *among_variants} == set(NAMES) == set(TINY)


TRACED_HERE = ["td7", "iql"]  # with a prioritised replay, and with a uniform one


@pytest.mark.parametrize("name", TRACED_HERE)
@pytest.mark.usefixtures("traced")
def test_an_agent_is_traced_whole(name: str) -> None:
    """What the compiler sees of an update is the update."""
    check_compiled(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_compiles(name: str) -> None:
    torch.compiler.reset()
    check_compiled(name)

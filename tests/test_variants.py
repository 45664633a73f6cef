"""Every row's update, compared number by number with an independent reference program."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from td7.algorithms import algorithm
from td7.algorithms.learner import Batch, Learner, Turn
from td7.configs import build_config
from td7.networks.description import Layout
from td7.networks.stacked import unflatten
from td7.studies.rows import variant
from test_rows import CPU, DISTINCT, TASK, TINY, settings_of
from variants_reference import PlainAgent

UPDATES = 35  # three target copies
SEEDS = (0, 1)


def weights(layout: Layout, flat: Tensor, m: int) -> list[dict[str, Tensor]]:
    """A member's weights, one dictionary per head, without padding."""
    named = unflatten(layout, flat)
    return [
        {p.name: named[p.name][m * layout.heads + head][p.used] for p in layout.parameters}
        for head in range(layout.heads)
    ]


def layouts(learner: Any) -> dict[str, Layout]:
    return {
        "encoder": learner.sale.layout,
        "critic": learner.critic.layout,
        "actor": learner.actor.layout,
    }


def plain(learner: Any, name: str, settings: dict[str, Any], m: int) -> PlainAgent:
    """The reference program with a member's weights."""
    state = learner.state()
    start = {
        group: weights(layout, state[f"{group}.parameters"], m)
        for group, layout in layouts(learner).items()
        if f"{group}.parameters" in state
    }
    (encoder,) = start.get("encoder", [{}])
    (actor,) = start["actor"]
    return PlainAgent(variant(name).algorithm, settings, encoder, start["critic"], actor)


def batches(count: int) -> list[tuple[Batch, Tensor]]:
    random = np.random.default_rng(7)
    pairs = []
    for _ in range(count):
        sizes = (TASK.state_dim, TASK.action_dim, TASK.state_dim, 1, 1)
        shape = (len(SEEDS), TINY["batch_size"])
        parts = [torch.from_numpy(random.standard_normal((*shape, n))) for n in sizes]
        parts[1] = parts[1].clamp(-1, 1)
        parts[3] = 3 * parts[3]  # errors on both sides of LAP's threshold
        parts[4] = (parts[4] > -1).double()
        noise = torch.from_numpy(random.standard_normal((*shape, TASK.action_dim)))
        pairs.append((Batch(*parts), noise))
    return pairs


def check(learner: Any, agents: list[PlainAgent], tolerance: float) -> None:
    state = learner.state()
    for m, agent in enumerate(agents):
        compared = 0
        for name, expected in agent.networks().items():
            if f"{name}.parameters" not in state:
                assert not any(expected), name  # an algorithm without an encoder
                continue
            group = name.rpartition("_")[2]
            actual = weights(layouts(learner)[group], state[f"{name}.parameters"], m)
            for ours, theirs in zip(actual, expected, strict=True):
                assert ours.keys() == theirs.keys(), name
                for key, tensor in ours.items():
                    close = torch.allclose(tensor, theirs[key], rtol=tolerance, atol=tolerance)
                    assert close, f"{name} {key}"
                    compared += 1
        assert compared >= 12
        bounds = (learner.clip.min[m].item(), learner.clip.max[m].item())
        assert np.allclose(bounds, (agent.clip_min, agent.clip_max), rtol=tolerance)


def compare(name: str, **changes: Any) -> Learner:
    row = variant(name)
    small = {"critic_phi_dim": 3} if "critic_phi_dim" in row.settings else {}
    chosen = algorithm(row.algorithm)
    settings = {**settings_of(name), **TINY, **small, **changes}
    config = build_config(chosen.config, settings)
    learner = chosen.learner(config, TASK, SEEDS, CPU, torch.float64)
    agents = [plain(learner, name, settings, m) for m in range(len(SEEDS))]
    for update, (batch, noise) in enumerate(batches(UPDATES), start=1):
        turn = Turn(trains_actors=update % learner.actor_every == 0)
        priorities = learner.update(batch, {"target_policy": noise}, turn)
        if update % learner.target_every == 0:
            learner.copy_targets(None)
        for m, agent in enumerate(agents):
            own = Batch(*(part[m] for part in batch))
            expected = agent.update(*own, noise[m])
            if priorities is None:
                assert expected is None
            else:
                assert expected is not None
                assert torch.allclose(priorities[m], expected, rtol=1e-6)
        if update in (1, 2, UPDATES):
            # A bias before a batch norm has only rounding errors as gradient; Adam amplifies them.
            check(learner, agents, 1e-11 if update <= 2 else 1e-7)
    return learner


HERE = [name for name in DISTINCT if variant(name).algorithm in ("td7", "td3")]


@pytest.mark.parametrize("name", HERE)
def test_a_row_is_the_reference_program(name: str) -> None:
    compare(name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ablation/TD7", {"cloning_weight": 0.5}),
        ("ablation/No implementation", {"cloning_weight": 0.5}),
        ("design/zs'a'", {"fixed_embeddings": False}),
        ("design/End-to-end, 10", {"zs_norm": "batch", "zsa_norm": "layer", "phi_norm": "batch"}),
        ("design/zs'_target", {"zs_norm": "batch"}),
        ("design/End-to-end, 1", {"learning_target": "next_state"}),
        ("design/End-to-end, 1", {"learning_target": "slow_next_zs", "zs_norm": "batch"}),
        ("design/End-to-end, 1", {"learning_target": "next_zs_and_reward"}),
        ("design/End-to-end, 1", {"learning_target": "next_zsa", "zsa_norm": "batch"}),
        ("design/End-to-end, 1", {"fixed_embeddings": False, "learning_target": "next_zsa"}),
        ("design/End-to-end, 1", {"fixed_embeddings": False, "encoder_loss": "cosine"}),
        ("ablation/TD7", {"min_priority": 0.5, "priority_exponent": 0.7, "actor_every": 3}),
        ("ablation/TD3 with encoder", {"replay": "lap", "value_clipping": True}),
    ],
)
def test_choices_that_no_row_combines(name: str, changes: dict[str, Any]) -> None:
    compare(name, **changes)

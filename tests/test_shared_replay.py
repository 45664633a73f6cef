"""A replay whose rows all members share: kept once, sampled like rows of their own."""

import numpy as np
import pytest
import torch

from offline_runs import CPU
from td7.engine.replay import Replay, required_bytes
from td7.types import Float32, RowLayout

LAYOUT = RowLayout(state_dim=2, action_dim=1)


def numbers(n: int) -> Float32:
    random = np.random.default_rng(0)
    return random.standard_normal((n, LAYOUT.width)).astype(np.float32)


def pair(n: int, members: int) -> tuple[Replay, Replay]:
    """A replay with shared rows, and one with the same rows for each member."""
    shared = Replay(LAYOUT, n, members, CPU, torch.float32, shared=True)
    shared.fill(numbers(n))
    own = Replay(LAYOUT, n, members, CPU, torch.float32)
    for member in range(members):
        own.append(member, numbers(n))
    return shared, own


@pytest.mark.parametrize("n", [1, 7, 300])
def test_shared_rows_are_kept_once(n: int) -> None:
    once = 4 * n * LAYOUT.width
    shared, own = pair(n, 3)
    assert shared.rows.untyped_storage().nbytes() == once
    assert own.rows.untyped_storage().nbytes() == 3 * once
    assert required_bytes(LAYOUT, n, 3, shared=True)[0] == once
    assert required_bytes(LAYOUT, n, 3)[0] == 3 * once
    priorities = sum(level.nbytes for level in shared._levels)
    for is_shared in (True, False):  # each member has its own priorities
        assert required_bytes(LAYOUT, n, 3, shared=is_shared)[1] >= priorities


@pytest.mark.parametrize("n", [1, 7, 300])
def test_shared_rows_are_sampled_like_rows_per_member(n: int) -> None:
    shared, own = pair(n, 3)
    random = torch.Generator().manual_seed(0)
    for _ in range(5):
        uniforms = torch.rand(3, 16, generator=random, dtype=torch.float64)
        new = 1 + 9 * torch.rand(3, 16, generator=random)
        active = torch.tensor([True, False, True])
        drawn = []
        for replay in (shared, own):
            indices = replay.sample(uniforms)
            replay.set_priorities(indices, new, active)
            uniform = replay.sample_uniformly(uniforms)
            drawn.append([indices, uniform, *replay.batch(indices), *replay._levels])
        assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))
    assert shared.added == own.added == [n] * 3
    assert torch.equal(shared.max_priority, own.max_priority)
    assert shared.max_priority[1] == 1 < shared.max_priority[0]

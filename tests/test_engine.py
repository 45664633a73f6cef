"""Units of updates and time steps, by hand; every update draws fresh numbers."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engines import LAYOUT, SMALL, build, check_close, needs_gpu, run
from td7.algorithms.td7 import TD7


def test_a_time_step_is_storing_updating_acting() -> None:
    """`step` does what its parts do one after the other."""
    together, apart = build("eager", "cpu"), build("eager", "cpu")
    random = np.random.default_rng(0)
    for update in range(22):
        sizes = (LAYOUT.width, LAYOUT.state_dim, LAYOUT.action_dim)
        rows, states, noise = (random.standard_normal((3, n)).astype(np.float32) for n in sizes)
        members = [0, 1, 2] if update < 3 else [0, 2]
        actions = together.step(rows, states, noise, members)
        for m in range(3):
            apart.replay.append(m, rows[m : m + 1])
        run(apart, [1, int(update < 3), 1])
        assert np.array_equal(actions, apart.act(states, noise)), update
    check_close(together, apart, 1e-15)
    for a, b in zip(together.replay._levels, apart.replay._levels, strict=True):
        assert torch.allclose(a, b, rtol=1e-14)


def test_a_unit_ends_where_targets_or_noise_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots by hand: a unit of 10, targets every 20, noise blocks of 15."""
    monkeypatch.setattr("td7.engine.noise.NOISE_BLOCK", 15)
    engine = build("eager", "cpu")
    steps = []
    for _ in range(4):
        engine.advance([100, 7, 0])
        steps.append(list(engine.updates))
    assert steps == [[10, 7, 0], [15, 14, 0], [20, 15, 0], [30, 20, 0]]


def test_a_unit_is_long_if_all_members_owe_many_updates() -> None:
    """As in a graph; slots by hand: 20 if no member stops before, else 10."""
    engine = build("eager", "cpu", config=replace(SMALL, target_every=50))
    engine.units = [20, 10]
    steps = []
    for wanted in ([100, 30, 20], [80, 10, 80], [100, 100, 0], [100] * 3, [100] * 3):
        engine.advance(wanted)
        steps.append(list(engine.updates))
    assert steps == [[20, 20, 20], [30, 30, 30], [40, 40, 30], [50, 50, 40], [60, 60, 50]]


@pytest.mark.parametrize(
    ("mode", "device"),
    [
        ("eager", "cpu"),
        pytest.param("graph", "cuda", marks=[pytest.mark.gpu, needs_gpu]),
    ],
)
def test_every_update_draws_fresh_numbers(
    mode: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three units of ten. Priorities stay equal, so that draws depend on random numbers alone."""
    update, unit = TD7.update, 10
    seen = torch.zeros(unit, 2, 3, SMALL.batch_size, device=device, dtype=torch.float64)
    slots = itertools.cycle(range(unit))

    def noting(learner: TD7, batch: Any, noise: Any, turn: Any) -> Tensor | None:
        drawn = torch.stack([batch.state[..., 0], noise["target_policy"][..., 0]])
        seen[next(slots)].copy_(drawn)
        return update(learner, batch, noise, turn)

    monkeypatch.setattr(TD7, "update", noting)
    engine = build(mode, device, config=replace(SMALL, priority_exponent=0.0, target_every=60))
    units = []
    for _ in range(3):
        engine.advance([unit] * 3)
        units.append(seen.cpu().clone())
    assert engine.updates == [30] * 3
    drawn = torch.stack(units).flatten(0, 1)  # [30, rows and noise, members, batch]
    for kind in (0, 1):
        of_members = drawn[:, kind].flatten(0, 1).tolist()
        assert len(set(map(tuple, of_members))) == 30 * 3

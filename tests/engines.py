"""Small engines of TD7, and comparisons of what they computed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.types import RowLayout, Task, TaskSpec

TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
LAYOUT = RowLayout(5, 2)
SMALL = TD7Config(embedding_dim=8, hidden_dim=16, batch_size=32, target_every=20)
READS_THE_TRAINED_ENCODER = (
    replace(SMALL, fixed_embeddings=False),
    replace(SMALL, encoder_training="end_to_end"),
)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def build(
    mode: str,
    device: str,
    dtype: torch.dtype = torch.float64,
    members: int = 3,
    *,
    config: TD7Config = SMALL,
    rows_on_host: bool = False,
    warn: Callable[[str], None] = pytest.fail,
    say: Callable[[str], None] = lambda _: None,
) -> Engine:
    where = torch.device(device)
    learner = TD7(config, TASK, range(members), where, dtype)
    replay = Replay(LAYOUT, 300, members, where, dtype, rows_on_host=rows_on_host)
    for m in range(members):
        rows = np.random.default_rng(m).standard_normal((200, LAYOUT.width)).astype(np.float32)
        rows[:, -1] = rows[:, -1] > -1
        replay.append(m, rows)
    # Where compiling fails, updates are eager; a test of compiled ones must then fail.
    return Engine(learner, replay, config.batch_size, range(members), mode, warn, say)


def run(engine: Engine, wanted: Sequence[int]) -> None:
    """Make this many updates of each member."""
    left = list(wanted)
    while any(left):
        before = list(engine.updates)
        engine.advance(left)
        done = zip(left, engine.updates, before, strict=True)
        left = [n - (now - then) for n, now, then in done]


def tensors(engine: Engine) -> dict[str, Tensor]:
    state = {**engine.learner.state(), **engine.state()}
    state |= {"leaves": engine.replay.leaves, "max": engine.replay.max_priority}
    return {name: tensor.cpu().clone() for name, tensor in state.items()}


def check_close(a: Engine, b: Engine, tolerance: float) -> None:
    assert a.updates == b.updates
    expected = tensors(b)
    for name, tensor in tensors(a).items():
        scale = expected[name].abs().max().clamp(min=1e-30)
        assert float((tensor - expected[name]).abs().max() / scale) < tolerance, name


def step_through(engine: Engine) -> list[NDArray[np.floating[Any]]]:
    """Time steps in which no, some and all members learn, in different phases."""
    random = np.random.default_rng(0)
    schedule = [[], [1], [1], [0, 1], [0, 1, 2], [1, 2], *[[0, 1, 2]] * 22]
    actions = []
    for members in schedule:
        sizes = (LAYOUT.width, LAYOUT.state_dim, LAYOUT.action_dim)
        rows, states, noise = (random.standard_normal((3, n)).astype(np.float32) for n in sizes)
        actions.append(engine.step(rows, states, noise, members))
    return actions


def check_time_steps(fast: Engine, eager: Engine) -> None:
    """Rows are stored, members updated and actions computed, past target copies."""
    before = list(fast.updates)
    actions, expected = step_through(fast), step_through(eager)
    done = [now - then for now, then in zip(fast.updates, before, strict=True)]
    assert done == [24, 27, 24]
    check_close(fast, eager, 1e-9)
    assert np.allclose(actions, expected, atol=1e-6)
    assert torch.equal(fast.replay.rows.cpu(), eager.replay.rows.cpu())
    assert fast.replay.added == eager.replay.added == [228] * 3


def fails(*_: object) -> None:
    """Stands for a compiler, or what else may fail."""
    raise RuntimeError("too\nlong")

"""The stacked replay against `ReferenceLAP`, one cumulative sum, and by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from torch import Tensor

from reference import ReferenceLAP
from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.engine import Engine
from td7.engine.replay import FANS, Replay
from td7.types import Float32, RowLayout, Task, TaskSpec

CPU = torch.device("cpu")
FAN = FANS["cpu"]
LAYOUT = RowLayout(state_dim=2, action_dim=1)


def empty(capacity: int, members: int = 1, dtype: torch.dtype = torch.float32) -> Replay:
    return Replay(LAYOUT, capacity, members, CPU, dtype)


def numbered(first: int, n: int) -> Float32:
    """Rows that contain their absolute number: number.column, the column in eighths."""
    numbers = np.arange(first, first + n)[:, None] + np.arange(LAYOUT.width) / 8
    return numbers.astype(np.float32)


def filled(capacity: int, parts: Sequence[int], members: int = 1) -> Replay:
    replay = empty(capacity, members)
    for member in range(members):
        for n in parts:
            replay.append(member, numbered(replay.added[member], n))
    return replay


def with_priorities(priorities: NDArray[np.float64]) -> Replay:
    """A full replay of one member."""
    n = len(priorities)
    replay = empty(n)
    replay.restore(
        0, [numbered(0, n)], n, torch.from_numpy(priorities), torch.tensor(priorities.max())
    )
    return replay


def sample(replay: Replay, uniforms: Sequence[float] | NDArray[np.float64]) -> list[int]:
    """Of a single member."""
    return replay.sample(torch.tensor(np.array(uniforms))[None])[0].tolist()


def set_priorities(replay: Replay, indices: Sequence[int], priorities: Sequence[float]) -> None:
    """Of a single member."""
    values = torch.tensor([priorities], dtype=torch.float64)
    replay.set_priorities(torch.tensor([indices]), values, None)


# -- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "parts"),
    [
        (1, [1]),
        (100, [37, 23]),  # partially full
        (FAN, [FAN]),
        (FAN + 1, [FAN + 1]),
        (200, [150, 130]),  # around the ring
        (97, [300, 300, 200]),
        (FAN * FAN + 1, [10, 7]),  # the last row alone under a second root
        (20_000, [12_000, 5_000]),
        (20_000, [12_000, 12_000, 12_000]),
    ],
)
def test_sampling_is_the_references(capacity: int, parts: Sequence[int]) -> None:
    """Two members of different sizes and priorities, sampled in one call."""
    random = np.random.default_rng(capacity)
    replay, references = empty(capacity, 2), [ReferenceLAP(capacity) for _ in range(2)]
    for m, reference in enumerate(references):
        for n in [1, *parts] if m else parts:
            replay.append(m, numbered(0, n))
            reference.add(n)
            # After each part some rows get a new priority, the next part gets the largest.
            indices = random.integers(reference.size, size=300)
            priorities = random.lognormal(sigma=2.0, size=300)
            everyone = torch.zeros(2, 300, dtype=torch.int64)
            everyone[m] = torch.from_numpy(indices)
            replay.set_priorities(
                everyone, torch.from_numpy(priorities).expand(2, -1), torch.arange(2) == m
            )
            reference.set_priorities(indices, priorities)
    uniforms = random.uniform(size=(2, 1000))
    sampled = replay.sample(torch.from_numpy(uniforms))
    for m, reference in enumerate(references):
        assert_array_equal(replay.leaves[m, :capacity], reference.priorities)
        assert_array_equal(sampled[m], reference.sample(uniforms[m]))
        assert float(replay.max_priority[m]) == reference.maximum


def test_sampling_by_hand() -> None:
    """Priorities 1, 2, 4, 1: row i begins where the sum of those before it ends."""
    replay = with_priorities(np.array([1.0, 2.0, 4.0, 1.0]))
    begins = np.array([0, 1, 3, 7]) / 8
    assert sample(replay, begins) == [0, 1, 2, 3]
    assert sample(replay, np.nextafter([*begins[1:], 1.0], 0.0)) == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [1, 5, 127, 1000])
def test_the_largest_uniform_never_leaves_the_rows_stored(n: int) -> None:
    """Rounding carries it past the last of 127 such rows two times in five."""
    for seed in range(10):
        replay = filled(1500, [n])
        priorities = np.random.default_rng(seed).lognormal(size=n)
        set_priorities(replay, range(n), priorities.tolist())
        assert sample(replay, [np.nextafter(1.0, 0.0)]) == [n - 1]


def test_rows_are_sampled_in_proportion_to_their_priorities() -> None:
    """Chi-square over all rows of two members: 1000 rows, 200,000 samples each."""
    n, batch, times = 1000, 10_000, 20
    random = np.random.default_rng(0)
    replay = filled(n, [n], members=2)
    priorities = random.uniform(0.5, 2.0, (2, n))
    every_row = torch.arange(n).expand(2, -1)
    replay.set_priorities(every_row, torch.from_numpy(priorities), None)
    counts = np.zeros((2, n))
    for _ in range(times):
        sampled = replay.sample(torch.from_numpy(random.uniform(size=(2, batch)))).numpy()
        counts += [np.bincount(member, minlength=n) for member in sampled]
    expected = batch * times * priorities / priorities.sum(axis=1, keepdims=True)
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    # Mean n - 1 and variance 2 (n - 1).
    assert (np.abs(chi_square - (n - 1)) < 4 * np.sqrt(2 * (n - 1))).all()


@pytest.mark.parametrize("place", [0, 77_777, 199_999])
def test_small_priorities_are_not_lost_next_to_a_large_one(place: int) -> None:
    """200,000 rows of 1e-6 and one of 1e6: in float32, 1e6 + 1e-6 is 1e6 and they are lost."""
    n = 200_000
    priorities = np.full(n, 1e-6)
    priorities[place] = 1e6
    replay = with_priorities(priorities)
    rows = [i for i in (0, 1, 127, 128, 50_000, 77_778, 123_456, n - 1) if i != place]
    total = 1e6 + (n - 1) * 1e-6
    # The middle of a row's part of the sum.
    middles = [(i + 0.5) * 1e-6 if i < place else 1e6 + (i - 0.5) * 1e-6 for i in rows]
    assert sample(replay, np.array(middles) / total) == rows
    assert sample(replay, [0.5]) == [place]


def test_equal_priorities_are_uniform_replay() -> None:
    """An exponent of 0, through updates of a learner: row = floor(u * rows), as before any."""
    config = TD7Config(embedding_dim=4, hidden_dim=8, batch_size=16, priority_exponent=0.0)
    task = TaskSpec(Task("none"), (2,), (1,), (-1.0,), (1.0,), None)
    replay = empty(100)
    random = np.random.default_rng(0)
    replay.append(0, random.standard_normal((50, LAYOUT.width)).astype(np.float32))
    engine = Engine(TD7(config, task, [0], CPU, torch.float32), replay, 16, [0])
    engine.advance([3])
    assert_array_equal(replay.leaves[0, :50], np.ones(50))
    uniforms = random.uniform(size=1000)
    assert sample(replay, uniforms) == np.floor(50 * uniforms).tolist()


# -- priorities ----------------------------------------------------------------------------------


def test_of_equal_rows_the_last_priority_counts() -> None:
    replay = filled(8, [8])
    set_priorities(replay, [3, 3, 5, 3], [9.0, 8.0, 7.0, 2.0])
    assert replay.leaves[0, :8].tolist() == [1, 1, 1, 2, 1, 7, 1, 1]
    assert replay.max_priority.tolist() == [9]  # of all priorities written
    # The sums above the leaves follow: 15 in all, row 5 from 6 to 13.
    assert sample(replay, [5.9 / 15, 6.1 / 15, 12.9 / 15, 13.1 / 15]) == [4, 5, 5, 6]


def test_new_rows_get_the_largest_priority_seen_until_it_is_reset() -> None:
    replay = filled(10, [2])
    assert replay.leaves[0, :2].tolist() == [1, 1]
    set_priorities(replay, [0], [5.0])
    set_priorities(replay, [0], [0.5])
    replay.append(0, numbered(2, 1))
    assert replay.leaves[0, :3].tolist() == [0.5, 1, 5]  # the largest seen, though of no row now
    set_priorities(replay, [2], [2.0])
    replay.append(0, numbered(3, 1))
    assert replay.leaves[0, :4].tolist() == [0.5, 1, 2, 5]
    set_priorities(replay, [3], [0.25])
    replay.reset_max_priority(None)
    replay.append(0, numbered(4, 1))
    assert replay.leaves[0, :5].tolist() == [0.5, 1, 2, 0.25, 2]  # the largest stored


def test_a_maximum_below_1_is_kept() -> None:
    """A minimum priority below 1 leads there; the initial 1 must not come back."""
    replay = filled(4, [4])
    set_priorities(replay, range(4), [0.1, 0.2, 0.3, 0.2])
    replay.reset_max_priority(None)
    assert replay.max_priority.tolist() == [0.3]


def test_an_overwritten_rows_priority_is_gone() -> None:
    replay = filled(3, [3])
    set_priorities(replay, [0], [8.0])
    replay.max_priority.fill_(2.0)
    replay.append(0, numbered(3, 1))
    assert replay.leaves[0, :3].tolist() == [2, 1, 1]
    assert sample(replay, [0.49, 0.51, 0.76]) == [0, 1, 2]


def test_a_mask_spares_the_other_members() -> None:
    replay = filled(4, [4], members=3)
    only = torch.tensor([False, True, False])
    indices = torch.tensor([[0, 1], [0, 1], [0, 0]])
    replay.set_priorities(indices, torch.full((3, 2), 6.0), only)
    assert replay.leaves[:, :4].tolist() == [[1, 1, 1, 1], [6, 6, 1, 1], [1, 1, 1, 1]]
    assert replay.max_priority.tolist() == [1, 6, 1]
    halves = torch.full((3, 1), 0.5, dtype=torch.float64)
    assert replay.sample(halves).flatten().tolist() == [2, 1, 2]
    replay.max_priority.fill_(9.0)
    replay.reset_max_priority(only)
    assert replay.max_priority.tolist() == [9, 6, 9]


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_come_back_in_their_parts(dtype: torch.dtype) -> None:
    """Columns: two of the state, the action, two of the next state, the reward, not_terminated."""
    replay = empty(5, members=2, dtype=dtype)
    replay.append(0, numbered(0, 4))
    replay.append(1, numbered(100, 3))
    batch = replay.batch(torch.tensor([[3, 0], [1, 1]]))
    first, second = torch.tensor([[3.0], [0.0]]), torch.tensor([[101.0], [101.0]])
    number = torch.stack([first, second]).to(dtype)
    assert torch.equal(batch.state, number + torch.tensor([0.0, 0.125]))
    assert torch.equal(batch.action, number + 0.25)
    assert torch.equal(batch.next_state, number + torch.tensor([0.375, 0.5]))
    assert torch.equal(batch.reward, number + 0.625)
    assert torch.equal(batch.not_terminated, number + 0.75)
    assert {part.dtype for part in batch} == {dtype}


def test_parts_of_a_row_are_views() -> None:
    """Of arrays and tensors, of one row and of many: what is written to a part is in the row."""
    rows = np.zeros((3, LAYOUT.width), np.float32)
    for number, part in enumerate(LAYOUT.split(rows)):
        part[:] = number
    assert rows.tolist() == [[0, 0, 1, 2, 2, 3, 4]] * 3
    assert [part.tolist() for part in LAYOUT.split(rows[0])] == [[0, 0], [1], [2, 2], [3], [4]]
    tensor = torch.zeros(3, LAYOUT.width)
    LAYOUT.split(tensor).next_state.fill_(1)
    assert tensor.tolist() == [[0, 0, 0, 1, 1, 0, 0]] * 3


@pytest.mark.parametrize("parts", [[4], [3, 4], [7, 7, 7, 2], [20], [1] * 9, [7, 15]])
def test_the_ring_keeps_the_newest_rows(parts: Sequence[int]) -> None:
    """Row number n lies at n % capacity, however the rows came, even more at once than it holds."""
    capacity, added = 7, sum(parts)
    replay = filled(capacity, parts)
    newest = range(max(0, added - capacity), added)
    assert replay.added == [added]
    assert replay.size(0) == len(newest)
    for number in newest:
        assert_array_equal(replay.rows[0, number % capacity], numbered(number, 1)[0])
    assert_array_equal(replay.leaves[0, : len(newest)], np.ones(len(newest)))
    places = sample(replay, (np.arange(len(newest)) + 0.5) / len(newest))
    assert places == list(range(len(newest)))


def state(replay: Replay, member: int) -> list[Tensor]:
    tensors = (replay.rows, replay.leaves, replay.max_priority)
    return [tensor[member] for tensor in tensors]


@pytest.mark.parametrize(
    ("capacity", "added", "parts"),
    [
        (300, 200, [200]),
        (300, 200, [80, 0, 120]),
        (300, 300, [150, 150]),
        (300, 1000, [300]),  # around the ring, only what it holds
        (300, 1000, [250, 50, 120]),  # and more than that, as the oldest file begins earlier
        (300, 1000, [400, 100]),
    ],
)
def test_restored_is_as_it_was(capacity: int, added: int, parts: Sequence[int]) -> None:
    before, after = empty(capacity, 2), empty(capacity, 2)
    before.append(1, numbered(0, added))
    random = np.random.default_rng(0)
    size = before.size(1)
    indices = torch.from_numpy(random.integers(size, size=(2, 400)))
    priorities = torch.from_numpy(random.lognormal(size=(2, 400)))
    before.set_priorities(indices, priorities, torch.tensor([False, True]))

    ends = added - sum(parts) + np.cumsum(parts)
    after.restore(
        1,
        [numbered(end - n, n) for end, n in zip(ends.tolist(), parts, strict=True)],
        added,
        before.leaves[1, :size].clone(),
        before.max_priority[1].clone(),
    )
    uniforms = torch.from_numpy(random.uniform(size=(2, 500)))
    for _ in range(2):
        assert after.added == before.added
        for now, then in zip(state(after, 1), state(before, 1), strict=True):
            assert torch.equal(now, then)
        assert torch.equal(after.sample(uniforms)[1], before.sample(uniforms)[1])
        for replay in (before, after):  # and it continues in the same way
            replay.append(1, numbered(added, 77))
            replay.set_priorities((indices + 1) % size, priorities, torch.tensor([False, True]))


def test_sums_are_recomputed_from_their_children() -> None:
    """No error accumulates over many changes: the sums are those of a restored replay, bit for bit.

    A resumed run therefore samples like an uninterrupted one.
    """
    random = np.random.default_rng(0)
    replay = filled(1000, [1000])
    for _ in range(1000):
        indices, priorities = random.integers(1000, size=16), random.lognormal(0, 3, 16)
        set_priorities(replay, indices.tolist(), priorities.tolist())
    restored = with_priorities(replay.leaves[0, :1000].numpy())
    for level, restored_level in zip(replay._levels, restored._levels, strict=True):
        assert torch.equal(level, restored_level)


def test_uniform_sampling_by_hand() -> None:
    """Members of 4 and 1 rows; priorities do not matter, and no sample is past the last row."""
    replay = empty(10, 2)
    replay.append(0, numbered(0, 4))
    replay.append(1, numbered(0, 1))
    everyone = torch.tensor([[0, 1, 2], [0, 0, 0]])
    replay.set_priorities(everyone, torch.full((2, 3), 50.0), None)
    uniforms = torch.tensor([[0.0, 0.2499, 0.25, 0.6, 0.99, 1 - 1e-17]] * 2, dtype=torch.float64)
    indices = replay.sample_uniformly(uniforms)
    assert indices.tolist() == [[0, 0, 1, 2, 3, 3], [0] * 6]


def test_priority_metrics_by_hand() -> None:
    """The mean of the rows and the largest seen, of a member with three rows and of a full ring."""
    replay = empty(5, members=2)
    replay.append(0, numbered(0, 3))
    replay.append(1, numbered(0, 7))
    indices, new = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[4.0, 7.0], [2.0, 5.0]])
    replay.set_priorities(indices, new, None)
    assert replay.priority_metrics(0).tolist() == [4.0, 7.0]  # of 4, 7, 1
    assert replay.priority_metrics(1).tolist() == [2.0, 5.0]  # of 2, 5, 1, 1, 1

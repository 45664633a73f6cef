"""Stacked equals solo: a member's training does not depend on the members stacked with it."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from td7.algorithms.learner import Batch, Turn
from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.engine import Engine
from td7.engine.noise import NOISE_BLOCK
from td7.engine.replay import Replay
from td7.errors import RunError
from td7.types import Float32, RowLayout, Task, TaskSpec

CPU = torch.device("cpu")
LAYOUT = RowLayout(state_dim=5, action_dim=2)
TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0, -1.0), (1.0, 1.0), None)
CONFIG = TD7Config(embedding_dim=8, hidden_dim=16, batch_size=32, target_every=25)
SEEDS = (0, 1, 2)
CAPACITY = 200


def transitions(seed: int, part: int, n: int) -> Float32:
    rows = np.random.default_rng((seed, part)).standard_normal((n, LAYOUT.width))
    rows[:, 5:7] = np.tanh(rows[:, 5:7])
    rows[:, -1] = rows[:, -1] > -1
    return rows.astype(np.float32)


def empty_engine(seeds: Sequence[int], config: TD7Config = CONFIG) -> Engine:
    learner = TD7(config, TASK, seeds, CPU, torch.float64)
    replay = Replay(LAYOUT, CAPACITY, len(seeds), CPU, torch.float64)
    return Engine(learner, replay, config.batch_size, seeds)


def engine_of(seeds: Sequence[int], config: TD7Config = CONFIG) -> Engine:
    """An engine with data of its own for each seed: 150 rows and 7 more per seed number."""
    engine = empty_engine(seeds, config)
    for m, seed in enumerate(seeds):
        engine.replay.append(m, transitions(seed, 0, 150 + 7 * seed))
    return engine


def state(engine: Engine, member: int) -> dict[str, Tensor]:
    """Copies of all tensors of one member that persist between updates."""
    replay = engine.replay
    tensors = {
        **engine.learner.state(),
        **engine.state(),
        "rows": replay.rows,
        "leaves": replay.leaves,
        "max_priority": replay.max_priority,
    }
    return {name: tensor[member].clone() for name, tensor in tensors.items()}


def run(engine: Engine, wanted: Sequence[int]) -> None:
    """Run the wanted number of updates of every member."""
    left = list(wanted)
    while any(left):
        before = list(engine.updates)
        engine.advance(left)
        left = [n - (now - then) for n, now, then in zip(left, engine.updates, before, strict=True)]


def check_equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Compare each tensor to within 1e-7 of its largest number."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        difference = (actual[name] - tensor).abs().max()
        assert difference <= 1e-7 * tensor.abs().max(), name


def check_identical(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(actual[name], tensor, rtol=0, atol=0, equal_nan=True), name


def test_three_stacked_seeds_equal_each_alone_after_300_updates() -> None:
    together = engine_of(SEEDS)
    run(together, [300, 300, 300])
    for m, seed in enumerate(SEEDS):
        alone = engine_of([seed])
        run(alone, [300])
        check_equal(state(together, m), state(alone, 0))


@pytest.mark.parametrize("actor_every", [2, 3])
def test_stacked_members_with_different_counts_equal_each_alone(actor_every: int) -> None:
    """Odd numbers, different numbers, no updates, and a member that joins late, without rows.

    Members whose actor steps fall on different updates wait for each other, the periodic copies
    are due for some members only, and rows arrive in between.
    """
    config = TD7Config(
        embedding_dim=8, hidden_dim=16, batch_size=32, target_every=9, actor_every=actor_every
    )
    schedule = [(7, 0, 0), (4, 12, 0), (1, 1, 0), (0, 6, 5), (17, 3, 8), (2, 0, 1), (5, 5, 5)]
    engine = empty_engine(SEEDS, config)
    alone = [empty_engine([seed], config) for seed in SEEDS]
    for part, wanted in enumerate(schedule):
        for m, seed in enumerate(SEEDS):
            if wanted[m]:
                rows = transitions(seed, part, 40 + m)  # the first member's ring wraps around
                engine.replay.append(m, rows)
                alone[m].replay.append(0, rows)
                run(alone[m], [wanted[m]])
        run(engine, wanted)
    assert engine.updates == [sum(column) for column in zip(*schedule, strict=True)]
    assert engine.replay.added[0] > CAPACITY
    for m in range(len(SEEDS)):
        check_equal(state(engine, m), state(alone[m], 0))


def test_members_that_do_not_train_stay_bit_identical() -> None:
    """Meanwhile every network of the third member moves, the last one at its second copy."""
    engine = engine_of(SEEDS)
    run(engine, [3, 2, 45])
    before = [state(engine, m) for m in range(len(SEEDS))]
    run(engine, [0, 0, 5])
    for m in (0, 1):
        check_identical(state(engine, m), before[m])
    assert engine.updates == [3, 2, 50]
    for name, tensor in state(engine, 2).items():
        if name.endswith("parameters") or name == "leaves":
            assert not torch.equal(tensor, before[2][name]), name


def test_copy_targets_copies_the_active_member_alone() -> None:
    """By hand: network number n of every member is filled with n."""
    learner = engine_of(SEEDS).learner
    numbers = {name: float(n) for n, name in enumerate(learner.state())}
    for name, tensor in learner.state().items():
        tensor.fill_(numbers[name])
    learner.copy_targets(torch.tensor([False, True, False]))
    copies = {
        "target_actor.parameters": "actor.parameters",
        "target_critic.parameters": "critic.parameters",
        "target_fixed_encoder.parameters": "fixed_encoder.parameters",  # of before the copy
        "fixed_encoder.parameters": "encoder.parameters",
        "clip_min": "target_seen_min",
        "clip_max": "target_seen_max",
    }
    for name, tensor in learner.state().items():
        old, new = numbers[name], numbers[copies.get(name, name)]
        assert [float(member.unique()) for member in tensor] == [old, new, old], name


def test_nan_rows_of_one_member_do_not_reach_the_others() -> None:
    """NaN in one member's rows stays in that member; its policy is refused, by seed and metric."""
    healthy, sick = engine_of((5, 6)), engine_of((5, 6))
    run(sick, [1, 1])
    sick.replay.rows[1] = torch.nan
    run(sick, [4, 0])
    for m in (0, 1):
        sick.fetch_policy(m).value()  # the member with NaN took no part in these updates
    run(sick, [3, 3])
    run(healthy, [8, 4])
    check_identical(state(sick, 0), state(healthy, 0))
    sick.fetch_policy(0).value()
    with pytest.raises(RunError, match="seed 6, by update 4: encoder_loss is not finite"):
        sick.fetch_policy(1).value()


def noise_at(engine: Engine, counts: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
    for member, count in enumerate(counts):
        engine.noise.prepare(member, count)
    return engine.noise.at(torch.tensor(counts))


def test_ten_seeds_draw_different_numbers() -> None:
    """No number is drawn twice, by two members, networks or blocks of noise."""
    engine = empty_engine(range(10))
    learner = engine.learner.state()
    drawn = [learner[f"{name}.parameters"] for name in ("encoder", "critic", "actor")]
    drawn = [flat[:, (flat != 0).all(dim=0)] for flat in drawn]  # without what fills up
    for update in (*range(30), NOISE_BLOCK - 1, NOISE_BLOCK, NOISE_BLOCK + 1):
        uniforms, normals = noise_at(engine, [update] * 10)
        drawn += [uniforms, normals["target_policy"].flatten(1)]
    numbers = torch.cat(drawn, dim=1).numpy()
    assert len(np.unique(numbers)) == numbers.size


def test_weights_and_noise_depend_on_the_seed_alone() -> None:
    """They depend neither on the member's index nor on the other members."""
    alone, among = empty_engine([7]), empty_engine([3, 7])
    for name, tensor in alone.learner.state().items():
        assert torch.equal(among.learner.state()[name][1], tensor[0]), name
    # The other member is at another update, and draws its blocks in between.
    for update, others in ((0, 300), (1, 0), (NOISE_BLOCK, 0), (3, 800)):
        uniforms, normals = noise_at(alone, [update])
        uniforms_among, normals_among = noise_at(among, [others, update])
        assert torch.equal(uniforms_among[1], uniforms[0])
        assert torch.equal(normals_among["target_policy"][1], normals["target_policy"][0])


def storages(learner: TD7) -> list[int]:
    return [tensor.untyped_storage().data_ptr() for tensor in learner.state().values()]


def test_no_two_networks_share_a_tensor() -> None:
    """A target that *is* its network still gives plausible returns, so returns cannot show it."""
    learner = TD7(CONFIG, TASK, SEEDS, CPU, torch.float64)
    state = learner.state()
    pairs = (
        ("fixed_encoder", "encoder"),
        ("target_fixed_encoder", "encoder"),
        ("target_critic", "critic"),
        ("target_actor", "actor"),
    )
    for target, network in pairs:
        assert torch.equal(state[f"{target}.parameters"], state[f"{network}.parameters"])
    assert len(set(storages(learner))) == len(state)

    random = torch.Generator().manual_seed(0)
    batch = Batch(*(torch.randn(3, 32, n, generator=random).double() for n in (5, 2, 5, 1, 1)))
    noise = {"target_policy": torch.zeros(3, 32, 2, dtype=torch.float64)}
    for active in (None, torch.tensor([True, False, True])):
        before = {target: state[f"{target}.parameters"].clone() for target, _ in pairs}
        learner.update(batch, noise, Turn(active))
        state = learner.state()
        for target, network in pairs:
            assert torch.equal(state[f"{target}.parameters"], before[target])
            assert not torch.equal(state[f"{network}.parameters"], before[target])
        learner.copy_targets(active)
        state = learner.state()
        assert len(set(storages(learner))) == len(state)

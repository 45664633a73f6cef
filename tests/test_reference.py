"""TD7 and LAP against `reference.py`, which shares no code with the package."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reference import ReferenceLAP, ReferenceTD7
from td7.algorithms.learner import Batch, Turn
from td7.algorithms.td7 import TD7, TD7Config
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.types import Float32, RowLayout, Task, TaskSpec

STATE, ACTION, EMBEDDING, HIDDEN, BATCH = 5, 2, 8, 16, 32
CPU = torch.device("cpu")
LAYOUT = RowLayout(STATE, ACTION)

ENCODER = ("f1", "f2", "f3", "g1", "g2", "g3")  # the reference's layers, in the package's order
HEAD = ("l0", "l1", "l2", "l3")
# The seven networks, called the same in the package and in the reference.
NETWORKS = {
    "encoder": ENCODER,
    "critic": HEAD,
    "actor": HEAD,
    "fixed_encoder": ENCODER,
    "target_fixed_encoder": ENCODER,
    "target_critic": HEAD,
    "target_actor": HEAD,
}
TRAINED = ("encoder", "critic", "actor")

# The hyperparameters with the same names in both; only the cloning weight's differ.
SHARED = (
    "discount",
    "target_noise",
    "target_noise_clip",
    "actor_every",
    "target_every",
    "priority_exponent",
    "min_priority",
    "learning_rate",
)
KINDS = ("weight", "bias")


def flat(module: nn.Module, layers: Sequence[str], read: Callable[[Tensor], Tensor]) -> Tensor:
    """`read` of each parameter in the package's layout: head by head, weights [out, in].

    Inputs of a weight are padded with 0 to a multiple of 8, parameters to a multiple of 64.
    """
    heads = [getattr(module, q) for q in ("q1", "q2") if hasattr(module, q)] or [module]
    parts = []
    for head in heads:
        for layer in layers:
            weight, bias = (read(getattr(getattr(head, layer), kind)) for kind in KINDS)
            parts += [nn.functional.pad(weight, (0, -weight.shape[1] % 8)), bias]
    return torch.cat([torch.cat([p.flatten(), p.new_zeros(-p.numel() % 64)]) for p in parts])


def moment(adam: Mapping[Tensor, Mapping[str, Tensor]], key: str) -> Callable[[Tensor], Tensor]:
    """Reads a moment of a parameter; before its first step PyTorch's Adam has none."""
    return lambda p: adam[p][key] if p in adam else torch.zeros_like(p)


def state_of(reference: ReferenceTD7) -> dict[str, Tensor]:
    """The reference's whole state under the names of `TD7.state()`, without the member axis."""
    state = {
        f"{name}.parameters": flat(getattr(reference, name), layers, Tensor.detach)
        for name, layers in NETWORKS.items()
    }
    for name in TRAINED:
        module, layers = getattr(reference, name), NETWORKS[name]
        adam = getattr(reference, f"{name}_optimizer").state
        state[f"{name}.first_moment"] = flat(module, layers, moment(adam, "exp_avg"))
        state[f"{name}.second_moment"] = flat(module, layers, moment(adam, "exp_avg_sq"))
        steps = next((float(moments["step"]) for moments in adam.values()), 0.0)
        state[f"{name}.steps"] = torch.tensor([steps], dtype=torch.float64)
        # The next step's factors, by Adam's paper.
        rate = reference.encoder_optimizer.param_groups[0]["lr"]
        factors = (rate / (1 - 0.9 ** (steps + 1)), (1 - 0.999 ** (steps + 1)) ** 0.5)
        for key, factor in zip(("step_size", "root_correction"), factors, strict=True):
            state[f"{name}.{key}"] = torch.tensor([factor], dtype=torch.float64)
    bounds = {
        "target_seen_min": reference.running_min,
        "target_seen_max": reference.running_max,
        "clip_min": reference.clip_min,
        "clip_max": reference.clip_max,
    }
    return state | {name: torch.tensor(b, dtype=torch.float64) for name, b in bounds.items()}


def pair(
    members: int, dtype: torch.dtype = torch.float64, **settings: float
) -> tuple[TD7, list[ReferenceTD7]]:
    """A stacked learner and as many references, all from the references' weights."""
    config = TD7Config(
        embedding_dim=EMBEDDING,
        hidden_dim=HIDDEN,
        batch_size=BATCH,
        **settings,  # type: ignore[arg-type]  # whole numbers stay whole
    )
    task = TaskSpec(Task("none"), (STATE,), (ACTION,), (-1.0,) * 2, (1.0,) * 2, None)
    learner = TD7(config, task, range(members), CPU, dtype)
    references = []
    for m in range(members):
        torch.manual_seed(m)
        references.append(
            ReferenceTD7(
                STATE,
                ACTION,
                EMBEDDING,
                HIDDEN,
                bc_weight=config.cloning_weight,
                **{name: getattr(config, name) for name in SHARED},
            )
        )
        start = state_of(references[m])
        for name, tensor in learner.state().items():
            tensor[m].copy_(start[name])
    return learner, references


def relative(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest number expected."""
    if torch.equal(actual.double(), expected):
        return 0.0  # also where all is 0, as the clip is at first
    return float((actual.double() - expected).abs().max() / expected.abs().max())


def check(learner: TD7, references: Sequence[ReferenceTD7], tolerance: float) -> None:
    """Every tensor of every member is the reference's."""
    for m, reference in enumerate(references):
        state = {name: tensor[m] for name, tensor in learner.state().items()}
        expected = state_of(reference)
        assert state.keys() == expected.keys()
        for name, tensor in state.items():
            assert relative(tensor, expected[name]) < tolerance, f"member {m}, {name}"


def check_priorities(actual: Tensor, expected: Sequence[Tensor], tolerance: float) -> None:
    for m, priorities in enumerate(expected):
        assert relative(actual[m], priorities) < tolerance, f"member {m}"


def transitions(seed: int, n: int) -> Float32:
    """Packed rows whose TD errors lie on both sides of Huber's 1, a tenth of them real ends."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, LAYOUT.width))
    rows[:, STATE : STATE + ACTION] = random.uniform(-1, 1, (n, ACTION))
    rows[:, -1] = random.uniform(size=n) > 0.1
    return rows.astype(np.float32)


def unpack(rows: Tensor) -> Batch:
    """Batches from packed rows; not by `Replay.batch`, which is under test."""
    s, a = STATE, STATE + ACTION
    return Batch(
        state=rows[..., :s],
        action=rows[..., s:a],
        next_state=rows[..., a : a + STATE],
        reward=rows[..., -2:-1],
        not_terminated=rows[..., -1:],
    )


def step(
    learner: TD7, references: Sequence[ReferenceTD7], update: int
) -> tuple[Tensor, list[Tensor]]:
    """Update number `update` (from 1 on) of the learner and the references; their priorities."""
    c = learner.config
    rows = np.stack([transitions(1000 * update + m, BATCH) for m in range(len(references))])
    noise = torch.randn(
        len(references), BATCH, ACTION, generator=torch.Generator().manual_seed(update)
    )
    dtype = learner.clip.min.dtype
    batch = unpack(torch.from_numpy(rows).to(dtype))
    turn = Turn(trains_actors=update % c.actor_every == 0)
    priorities = learner.update(batch, {"target_policy": noise.to(dtype)}, turn)
    assert priorities is not None
    if update % c.target_every == 0:
        learner.copy_targets(None)
    expected = [
        reference.update(*Batch._make(part[m] for part in batch), noise[m])
        for m, reference in enumerate(references)
    ]
    return priorities, expected


def test_two_stacked_members_follow_two_references_for_600_updates() -> None:
    """Two target copies and more: all seven networks, Adam's moments, the clip, the priorities."""
    learner, references = pair(2)
    at_minimum, above_minimum = False, False
    for update in range(1, 601):
        priorities, expected = step(learner, references, update)
        tolerance = 1e-12 if update <= 50 else 1e-7
        check_priorities(priorities, expected, tolerance)
        at_minimum |= bool((priorities == 1).any())
        above_minimum |= bool((priorities > 1).any())
        if update == 50:
            check(learner, references, 1e-12)
    check(learner, references, 1e-7)
    # The comparison covers both parts of the Huber loss and value clips in use.
    assert at_minimum
    assert above_minimum
    assert all(learner.clip.min < -1)
    assert all(learner.clip.max > 1)


def test_behaviour_cloning_with_no_hyperparameter_at_its_default() -> None:
    learner, references = pair(
        2,
        cloning_weight=0.1,
        discount=0.9,
        target_noise=0.4,
        target_noise_clip=0.3,
        actor_every=3,
        target_every=20,
        priority_exponent=0.7,
        min_priority=0.5,
        learning_rate=1e-3,
    )
    for update in range(1, 61):
        priorities, expected = step(learner, references, update)
        check_priorities(priorities, expected, 1e-10)
    check(learner, references, 1e-10)


def test_float32_differs_by_rounding_only() -> None:
    learner, references = pair(2, torch.float32, target_every=10)
    for update in range(1, 21):
        priorities, expected = step(learner, references, update)
        assert priorities.dtype == torch.float32
        check_priorities(priorities, expected, 2e-6)
    check(learner, references, 2e-6)


class Watched(Replay):
    """Keep the indices of the last sample."""

    def sample(self, uniforms: Tensor) -> Tensor:
        self.sampled = super().sample(uniforms)
        return self.sampled


def test_the_whole_chain_of_replay_noise_learner_and_engine() -> None:
    """With the same noise, the engine's rows, priorities and learner equal the references'.

    Every 50 updates 60 rows arrive; the last of them overwrite the oldest.
    """
    capacity = 300
    learner, references = pair(2, target_every=50)
    members = range(len(references))
    replay = Watched(LAYOUT, capacity, len(members), CPU, torch.float64)
    engine = Engine(learner, replay, BATCH, seeds=[3, 4])
    buffers = [ReferenceLAP(capacity) for _ in members]
    stored = np.zeros((len(members), capacity, LAYOUT.width), np.float32)

    for update in range(300):
        if update % 50 == 0:
            for m in members:
                rows = transitions(100 * update + m, 60)
                replay.append(m, rows)
                stored[m, buffers[m].add(len(rows))] = rows
        for m in members:
            engine.noise.prepare(m, update)
        uniforms, normals = engine.noise.at(torch.tensor(engine.updates))
        engine.advance([1] * len(members))
        assert engine.updates == [update + 1] * len(members)
        for m, (reference, buffer) in enumerate(zip(references, buffers, strict=True)):
            indices = buffer.sample(uniforms[m].numpy())
            np.testing.assert_array_equal(replay.sampled[m], indices)
            batch = unpack(torch.from_numpy(stored[m, indices]))
            priorities = reference.update(*batch, normals["target_policy"][m])
            buffer.set_priorities(indices, priorities.numpy())
            if reference.updates % 50 == 0:
                buffer.reset_maximum()
            np.testing.assert_allclose(
                replay.leaves[m, : buffer.size], buffer.priorities[: buffer.size], rtol=1e-7
            )
            assert float(replay.max_priority[m]) == pytest.approx(buffer.maximum, rel=1e-7)
    check(learner, references, 1e-7)
    assert replay.added == [360, 360]

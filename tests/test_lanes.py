"""Lanes that run in parallel do not access the same tensor, which would be a race on a GPU.

The tests simulate lanes with vector clocks: a lane's clock says how much of every other lane it
has waited for. An access is safe if the lane has waited for all earlier accesses that conflict.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from td7.algorithms import algorithm
from td7.algorithms.learner import Batch, Lanes, Learner, Turn
from td7.algorithms.normalisation import NormalisedLearner
from td7.algorithms.td7 import LEARNING_TARGETS
from td7.configs import build_config
from td7.studies.rows import STUDIES
from td7.types import Task, TaskSpec

TASK = TaskSpec(Task("none"), (5,), (3,), (-1.0,) * 3, (1.0,) * 3, None)
SMALL = dict.fromkeys(("hidden_dim", "embedding_dim", "actor_hidden_dim", "critic_hidden_dim"), 8)
SMALL |= {"ofe_features": 12, "batch_size": 4}
VIEWS = ("view", "slice", "select", "squeeze", "detach", "alias", "as_strided", "expand", "split")
MAIN = "main"


class ClockedLanes(Lanes):
    """`CudaLanes` without a device: a lane that begins waits for the current one; a join waits."""

    def __init__(self) -> None:
        self.current = MAIN
        self._clocks: dict[str, dict[str, int]] = {MAIN: {MAIN: 1}}
        self._open: set[str] = set()

    @property
    def seen(self) -> dict[str, int]:
        """How much of every lane the current one has waited for."""
        return self._clocks[self.current]

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        del reads
        return self._beside(name)

    @contextmanager
    def _beside(self, name: str) -> Iterator[None]:
        self._clocks.setdefault(name, {name: 1})
        self._see(name, self.current)
        self._open.add(name)
        before, self.current = self.current, name
        try:
            yield
        finally:
            self.current = before

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def join(self, *names: str) -> None:
        for name in self._open & set(names or self._open):
            self._see(self.current, name)
            self._open.discard(name)

    def _see(self, who: str, whom: str) -> None:
        for lane, count in self._clocks[whom].items():
            self._clocks[who][lane] = max(self._clocks[who].get(lane, 0), count)
        self._clocks[whom][whom] += 1  # what it does from now on is unseen


class Clashes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record every read and write of some tensors, and the pairs that no wait puts in order."""

    def __init__(self, lanes: ClockedLanes, names: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pairs: set[tuple[str, str, str]] = set()  # tensor, earlier lane, later lane
        self._lanes = lanes
        self._names = {tensor.untyped_storage().data_ptr(): n for n, tensor in names.items()}
        self._reads: dict[str, dict[str, int]] = {}
        self._writes: dict[str, dict[str, int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for i, argument in enumerate(function._schema.arguments):
            value = args[i] if i < len(args) else (kwargs or {}).get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if writes or not any(word in str(function) for word in VIEWS):
                for tensor in tree_leaves(value):
                    if isinstance(tensor, Tensor):
                        self._note(tensor, writes=writes)
        return function(*args, **(kwargs or {}))

    def _note(self, tensor: Tensor, *, writes: bool) -> None:
        name = self._names.get(tensor.untyped_storage().data_ptr())
        if name is None:
            return
        seen, lane = self._lanes.seen, self._lanes.current
        clashing = [self._writes, self._reads] if writes else [self._writes]
        for before in clashing:
            for other, count in before.get(name, {}).items():
                if seen.get(other, 0) < count:
                    self.pairs.add((name, other, lane))
        (self._writes if writes else self._reads).setdefault(name, {})[lane] = seen[lane]


def clashes(learner: Learner, lanes: ClockedLanes) -> set[tuple[str, str, str]]:
    """The clashes in six updates."""
    learner.lanes = lanes
    watched = {**learner.state(), **{f"metric.{k}": v for k, v in learner.recorded.items()}}
    random = torch.Generator().manual_seed(0)

    def normals(*shape: int) -> Tensor:
        return torch.randn(2, *shape, generator=random, dtype=torch.float64)

    recorder = Clashes(lanes, watched)
    with recorder:
        for update in range(1, 7):
            batch = Batch(normals(4, 5), normals(4, 3), normals(4, 5), normals(4, 1), normals(4, 1))
            noise = {name: normals(*shape) for name, shape in learner.noise_shapes.items()}
            learner.update(batch, noise, Turn(None, update % learner.actor_every == 0))
        lanes.join()
    return recorder.pairs


def rows() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Every distinct row of every study."""
    distinct: dict[str, tuple[str, Mapping[str, Any]]] = {}
    known = set()
    for study in STUDIES.values():
        for row in study.rows.values():
            key = (row.algorithm, repr(sorted(row.settings.items())))
            if key not in known:
                known.add(key)
                distinct[f"{study.name}/{row.label}"] = row.algorithm, row.settings
    return distinct


ROWS = rows()
# Combinations that no row has.
ROWS |= {
    f"end to end, {target}": (
        "td7",
        {"encoder_training": "end_to_end", "learning_target": target, "fixed_embeddings": False},
    )
    for target in LEARNING_TARGETS
}


def learner_of(name: str) -> Learner:
    chosen, settings = algorithm(ROWS[name][0]), ROWS[name][1]
    small = {n: v for n, v in SMALL.items() if n in chosen.config.__dataclass_fields__}
    config = build_config(chosen.config, {**small, **settings})
    return chosen.learner(config, TASK, (0, 1), torch.device("cpu"), torch.float64)


@pytest.mark.parametrize("name", ROWS)
def test_lanes_do_not_clash(name: str) -> None:
    assert clashes(learner_of(name), ClockedLanes()) == set()


def test_lanes_do_not_clash_on_normalised_observations() -> None:
    learner = NormalisedLearner(learner_of("online/TD7"), TASK.state_dim)
    learner.observe(torch.randn(1, 9, 5, dtype=torch.float64), None)
    assert clashes(learner, ClockedLanes()) == set()
    assert isinstance(learner.learner.lanes, ClockedLanes)


def test_a_missing_copy_is_a_clash() -> None:
    """Without copies, the next update writes to what the actor's step reads."""

    class Careless(ClockedLanes):
        def kept(self, tensor: Tensor) -> Tensor:
            return tensor

    assert clashes(learner_of("online/TD7"), Careless()) == {
        ("critic.parameters", "actor", "critic")
    }
    assert clashes(learner_of("design/No fixed embeddings"), Careless()) == {
        ("critic.parameters", "actor", "critic"),
        ("encoder.parameters", "actor", "encoder"),
    }

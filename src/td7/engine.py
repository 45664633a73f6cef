"""How updates run: which members, with which random numbers, eager, compiled or as a CUDA graph.

Updates are run in units of a few. Within a unit every member has a first and a last slot, so that
members with other counts, other amounts of work and other phases share the same stacked updates;
in the slots that are not its own a member is masked out. The host knows every count beforehand and
never waits for the device.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from td7.algorithms.base import Batch, Lanes, Learner
from td7.errors import RunError, one_line
from td7.replay import Replay
from td7.streams import Stream, derived_seed
from td7.targets import assign
from td7.types import AnyFloat

NOISE_BLOCK = 250  # updates drawn at once; part of every result, like the stream numbers
UNIT = 10  # updates, about; a longer one means fewer launches, a shorter one less idling in it
AHEAD = 2  # units that may be waiting for the device; more would make new episodes wait

MODES = ("eager", "compiled", "graph")


class Noise:
    """The random numbers of updates, as data: block b of a member is a function of (seed, b)."""

    def __init__(
        self, learner: Learner, batch_size: int, seeds: Sequence[int], like: Tensor
    ) -> None:
        self._seeds = seeds
        self._generator = torch.Generator(like.device)
        shape = (len(seeds), NOISE_BLOCK)
        self.uniforms = like.new_zeros(*shape, batch_size, dtype=torch.float64)
        self.normals = {
            name: like.new_zeros(*shape, *size) for name, size in learner.noise_shapes.items()
        }
        self._blocks = [-1] * len(seeds)
        self._member = torch.arange(len(seeds), device=like.device)

    def prepare(self, member: int, count: int) -> None:
        """Has the member's block ready for its update number `count`."""
        block = count // NOISE_BLOCK
        if block == self._blocks[member]:
            return
        self._generator.manual_seed(derived_seed(self._seeds[member], Stream.UPDATE, block))
        self.uniforms[member].uniform_(generator=self._generator)
        for normals in self.normals.values():
            normals[member].normal_(generator=self._generator)
        self._blocks[member] = block

    def at(self, counts: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Uniforms [S, B] to sample with and normals [S, ...], of updates number `counts` [S]."""
        place = counts % NOISE_BLOCK
        normals = {name: x[self._member, place] for name, x in self.normals.items()}
        return self.uniforms[self._member, place], normals


class CudaLanes(Lanes):
    """Lanes as side streams; within a CUDA graph they become parallel branches."""

    def __init__(self) -> None:
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._open: set[str] = set()

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        stream = self._stream(name)
        stream.wait_stream(torch.cuda.current_stream())
        for tensor in reads:  # their memory is not to be used again before the lane is done
            tensor.record_stream(stream)
        self._open.add(name)
        context: AbstractContextManager[None] = torch.cuda.stream(stream)
        return context

    def _stream(self, name: str) -> torch.cuda.Stream:
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return self._streams[name]

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def join(self, *names: str) -> None:
        for name in self._open & set(names or self._open):
            torch.cuda.current_stream().wait_stream(self._streams[name])
            self._open.discard(name)


class Fetch:
    """A small tensor on its way to the host."""

    def __init__(self, tensor: Tensor, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._event: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._host = tensor.clone()

    def is_ready(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def value(self) -> AnyFloat:
        """The numbers; waits for them if need be."""
        if self._event is not None:
            self._event.synchronize()
        self._check()
        array: AnyFloat = self._host.numpy()
        return array


class Engine:
    """Runs updates of stacked members, each on its own clock. The host knows every count."""

    def __init__(
        self,
        learner: Learner,
        replay: Replay,
        batch_size: int,
        seeds: Sequence[int],
        mode: str = "eager",
        warn: Callable[[str], None] = print,
    ) -> None:
        self.learner = learner
        self.replay = replay
        self.seeds = list(seeds)
        self.mode = mode
        self.updates = [0] * len(seeds)  # done, or on their way to the device, a member
        k = learner.actor_every
        self.unit = -(-UNIT // k) * k

        like = next(iter(learner.state().values()))
        members = len(seeds)
        self.noise = Noise(learner, batch_size, seeds, like)
        self._count = torch.zeros(members, device=like.device, dtype=torch.int64)
        # The update by which a metric was first seen not to be finite; 0: never.
        self._broken = torch.zeros(
            members, len(learner.metrics), device=like.device, dtype=torch.int64
        )

        self._draw_stage: Callable[..., Any] = self._draw
        self._write_stage: Callable[..., Any] = self._write
        self._look_stage: Callable[..., Any] = self._look_for_faults
        if like.device.type == "cuda":
            # TF32 products: float32's range, ten bits of mantissa; five times faster.
            torch.set_float32_matmul_precision("high")
        if mode != "eager" and _can_compile(like.device, warn):
            learner.wrap_stages(_compiled)
            self._draw_stage = _compiled(self._draw)
            self._write_stage = _compiled(self._write)
            self._look_stage = _compiled(self._look_for_faults)
        self._graph: torch.cuda.CUDAGraph | None = None
        # Whose slot a slot is, for the graph to read.
        self._slots = torch.zeros(self.unit, members, device=like.device, dtype=torch.bool)
        self._ahead: deque[torch.cuda.Event] = deque()

    def state(self) -> dict[str, Tensor]:
        return {f"metric.{name}": metric for name, metric in self.learner.recorded.items()}

    def restore(self, updates: Sequence[int]) -> None:
        """Counts, after `state()` was filled."""
        self.updates = list(updates)
        self._count.copy_(torch.tensor(self.updates))

    def advance(self, wanted: Sequence[int]) -> None:
        """Runs one unit of updates of the members that want some, as far as each may go in it.

        A member stops early where it has had what it wanted and where its targets are copied.
        """
        k, target_every = self.learner.actor_every, self.learner.target_every
        begin, end = [], []
        for m, want in enumerate(wanted):
            count = self.updates[m]
            first = count % k  # slot i is of phase i % k
            room = (target_every - count % target_every, NOISE_BLOCK - count % NOISE_BLOCK)
            begin.append(first)
            end.append(first + max(0, min(want, *room, self.unit - first)))
            if want > 0:
                self.noise.prepare(m, count)
        if self.mode == "graph":
            self._run_graph(begin, end)
        else:
            self._run(begin, end)
        for m in range(len(wanted)):
            self.updates[m] += end[m] - begin[m]
        due = [
            m
            for m in range(len(wanted))
            if end[m] > begin[m] and self.updates[m] % target_every == 0
        ]
        if due:
            self.learner.copy_targets(self._mask(due))
            self.replay.reset_max_priority(self._mask(due))

    def _run(self, begin: Sequence[int], end: Sequence[int]) -> None:
        for slot in range(max(end)):
            members = [m for m in range(len(begin)) if begin[m] <= slot < end[m]]
            if members:
                self._update(slot, self._mask(members))
        self._look_stage()

    def _mask(self, members: Sequence[int]) -> Tensor | None:
        """[S]; None where all are meant, which saves the masking."""
        if len(members) == len(self.updates):
            return None
        mask = torch.zeros(len(self.updates), dtype=torch.bool)
        mask[list(members)] = True
        return mask.to(self._count.device)

    # -- one update ----------------------------------------------------------------------------

    def _update(self, slot: int, active: Tensor | None) -> None:
        k = self.learner.actor_every
        indices, batch, normals = self._draw_stage()
        priorities = self.learner.update(batch, normals, active, train_actor=slot % k == k - 1)
        self._write_stage(indices, priorities, active)

    def _draw(self) -> tuple[Tensor, Batch, dict[str, Tensor]]:
        uniforms, normals = self.noise.at(self._count)
        indices = self.replay.sample(uniforms)
        return indices, self.replay.batch(indices), normals

    def _write(self, indices: Tensor, priorities: Tensor, active: Tensor | None) -> None:
        self.replay.set_priorities(indices, priorities, active)
        assign(self._count, self._count + 1, active)

    def _look_for_faults(self) -> None:
        first = ~self._metrics().isfinite() & (self._broken == 0)
        self._broken.copy_(self._count.unsqueeze(1).where(first, self._broken))

    def _metrics(self) -> Tensor:
        """[S, metrics]"""
        return torch.stack(list(self.learner.recorded.values()), dim=1)

    # -- CUDA graphs ---------------------------------------------------------------------------

    def _run_graph(self, begin: Sequence[int], end: Sequence[int]) -> None:
        if self._graph is None:
            self._graph = self._capture()
        if len(self._ahead) >= AHEAD:
            self._ahead.popleft().synchronize()
        bounds = list(zip(begin, end, strict=True))
        slots = torch.tensor([[b <= i < e for b, e in bounds] for i in range(self.unit)])
        self._slots.copy_(slots.pin_memory(), non_blocking=True)
        self._graph.replay()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._ahead.append(event)

    def _capture(self) -> torch.cuda.CUDAGraph:
        """A unit of updates as one CUDA graph; capturing changes nothing: no slot is anyone's."""
        self._slots.zero_()
        self.learner.lanes = CudaLanes()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles, and lets libraries set themselves up
            self._masked_unit()
            self._masked_unit()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._masked_unit()
        return graph

    def _masked_unit(self) -> None:
        for slot in range(self.unit):
            self._update(slot, self._slots[slot])
        self.learner.lanes.join()
        self._look_stage()

    # -- what the host asks for ----------------------------------------------------------------

    def fetch_metrics(self, member: int) -> Fetch:
        """The member's latest metrics, in the order of `learner.metrics`."""
        return Fetch(self._metrics()[member])

    def fetch_policy(self, member: int) -> Fetch:
        """The flat weights that act for the member after the updates given so far.

        Its value raises if one of the member's losses or values was not finite.
        """
        faults = Fetch(self._broken[member])
        return Fetch(self.learner.policies()[member], lambda: self._raise(member, faults))

    def check(self) -> None:
        """Raises if a loss or value of any member was not finite; waits for the device."""
        for member in range(len(self.seeds)):
            self._raise(member, Fetch(self._broken[member]))

    def _raise(self, member: int, faults: Fetch) -> None:
        pairs = zip(faults.value().tolist(), self.learner.metrics, strict=True)
        found = [(update, name) for update, name in pairs if update]
        if found:
            update, name = min(found, key=lambda fault: fault[0])
            raise RunError(f"seed {self.seeds[member]}, by update {update}: {name} is not finite")


def _can_compile(device: torch.device, warn: Callable[[str], None]) -> bool:
    """Whether PyTorch's compiler works here; it needs a C++ compiler, or Triton for a GPU."""
    try:
        _compiled(lambda x: 2 * x + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever a compiler or a missing one raises
        warn(f"updates run without compilation, which fails here: {one_line(error)[:200]}")
        return False
    return True


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False)
    return compiled

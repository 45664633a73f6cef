"""Stacked replay on the learner's device: rows [S, capacity, width], sampled by LAP's priorities.

Priorities are the leaves of a tree of sums: a node is the sum of its children. A sample walks down
from the root, so its cost hardly grows with the capacity. Sums are float64, in which a million
small priorities are not lost next to a large one.
"""

import math
import weakref
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Batch
from td7.networks.masked import assign, column
from td7.types import Float32, RowLayout, aligned

MAPPED = 2  # CUDA's flag for host memory that a GPU may use
# Children per node: the fastest powers of two. A CPU pays for every number that it adds, a GPU for
# every level.
FANS = {"cpu": 4, "cuda": 16}
# Every tree has at least the levels for this many rows. A run that is extended, and its replay with
# it, then adds the same numbers in the same order.
USUAL_ROWS = 1_000_000


def required_bytes(
    layout: RowLayout, capacity: int, members: int, *, shared: bool = False
) -> tuple[int, int]:
    """Of a replay's float32 rows, and of its float64 priorities with their sums."""
    sums = max(sum(_level_sizes(capacity, fan)) for fan in FANS.values())
    return 4 * (1 if shared else members) * capacity * layout.width, 8 * members * sums


class Replay:
    """Each member's last `capacity` rows. New rows get the largest priority seen."""

    def __init__(
        self,
        layout: RowLayout,
        capacity: int,
        members: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        rows_on_host: bool = False,
        shared: bool = False,
    ) -> None:
        """`rows_on_host`: a GPU's replay keeps its rows, not its priorities, in host memory.

        `shared`: all members have the same rows, which `fill` stores once; each member has its own
        priorities.
        """
        self.layout = layout
        self.capacity = capacity
        self.device = device
        self.dtype = dtype  # of batches; rows are float32
        self.added = [0] * members  # rows ever; the next index in the ring is added % capacity
        self.is_shared = shared
        shape = (1 if shared else members, capacity, layout.width)
        rows = _on_host(shape) if rows_on_host else torch.zeros(shape, device=device)
        self.rows = rows.expand(members, -1, -1)
        self._fan = FANS[device.type]
        self._levels = [
            torch.zeros(members, size, device=device, dtype=torch.float64)
            for size in _level_sizes(capacity, self._fan)
        ]
        self.max_priority = torch.ones(members, device=device, dtype=torch.float64)
        self._sizes = torch.zeros(members, 1, device=device, dtype=torch.int64)
        self._next = torch.zeros_like(self._sizes)  # the index of the next row
        self._member = torch.arange(members, device=device).unsqueeze(1)  # [S, 1], to index with

    @property
    def leaves(self) -> Tensor:
        """The rows' priorities, [S, capacity or more]; 0 where there is no row."""
        return self._levels[0]

    def size(self, member: int) -> int:
        return min(self.added[member], self.capacity)

    def numbered_rows(self, member: int, begin: int, end: int) -> Float32:
        """Return the member's rows from number `begin` to `end`, counted since its first one."""
        indices = np.arange(begin, end) % self.capacity
        rows: Float32 = self.rows[member, indices].cpu().numpy()
        return rows

    def append(self, member: int, rows: Float32) -> None:
        """Store the member's next rows, over its oldest ones once the ring is full."""
        for start in range(0, len(rows), self.capacity):
            self._append(member, rows[start : start + self.capacity])

    def _append(self, member: int, rows: Float32) -> None:
        source = to_device(torch.from_numpy(rows), self.device)
        begin = self.added[member] % self.capacity
        head = min(len(rows), self.capacity - begin)
        for start, part in ((begin, source[:head]), (0, source[head:])):
            if len(part):
                self.rows[member, start : start + len(part)] = part
                self.leaves[member, start : start + len(part)] = self.max_priority[member]
                self._sum_range(member, start, start + len(part))
        self._set_added(member, self.added[member] + len(rows))

    def fill(self, rows: Float32) -> None:
        """Store all `capacity` rows at once, the same for every member."""
        self.rows[0].copy_(torch.from_numpy(rows))
        self.leaves[:, : len(rows)] = self.max_priority.unsqueeze(1)
        for member in range(len(self.added)):
            self._sum_range(member, 0, self.leaves.shape[1])
            self._set_added(member, len(rows))

    def _set_added(self, member: int, added: int) -> None:
        self.added[member] = added
        self._sizes[member] = self.size(member)
        self._next[member] = added % self.capacity

    def append_each(self, rows: Tensor, active: Tensor | None) -> None:
        """Store one row [S, width] of each active member. The host then calls `count_row`."""
        new = rows.unsqueeze(1)
        if active is not None:
            new = new.where(column(active, new), self.rows[self._member, self._next])
        self.rows[self._member, self._next] = new
        self._set_leaves(self._next, self.max_priority.unsqueeze(1), active)
        assign(self._sizes, (self._sizes + 1).clamp(max=self.capacity), active)
        assign(self._next, (self._next + 1) % self.capacity, active)

    def count_row(self, member: int) -> None:
        """The host's side of `append_each`."""
        self.added[member] += 1

    def _sum_range(self, member: int, start: int, stop: int) -> None:
        """Recompute the sums above the leaves [start, stop) of one member."""
        fan = self._fan
        for children, parents in pairwise(self._levels):
            start, stop = start // fan, -(-stop // fan)
            parents[member, start:stop] = (
                children[member, start * fan : stop * fan].view(-1, fan).sum(dim=1)
            )

    def sample(self, uniforms: Tensor) -> Tensor:
        """Row indices [S, B] with probability priority / sum, from uniforms [S, B] in [0, 1).

        A sample is the first row whose cumulative priority exceeds u * sum.
        """
        rest = uniforms.double() * self._levels[-1].sum(dim=1, keepdim=True)
        node = torch.zeros_like(rest, dtype=torch.int64)
        for level in reversed(self._levels):
            blocks = level.view(len(level), -1, self._fan)
            # Rounding can lead past the last block, and a member without rows has no block.
            node = node.clamp(max=blocks.shape[1] - 1)
            child, rest = _descend(blocks[self._member, node], rest)
            node = node * self._fan + child
        # Rounding can carry the last sample past the last row.
        return torch.minimum(node, self._sizes - 1)

    def sample_uniformly(self, uniforms: Tensor) -> Tensor:
        """Row indices [S, B], each row as likely as any other."""
        indices = (uniforms * self._sizes).long()
        return torch.minimum(indices, self._sizes - 1).clamp(min=0)

    def batch(self, indices: Tensor) -> Batch:
        """The rows at indices [S, B]."""
        rows = self.rows[self._member, indices].to(self.dtype)
        return self.layout.split(rows)

    def set_priorities(self, indices: Tensor, priorities: Tensor, active: Tensor | None) -> None:
        """New priorities [S, B] of the active members' rows; the last one of equal rows counts."""
        self._set_leaves(indices, _last_of_equals(indices, priorities.double()), active)
        largest = priorities.double().amax(dim=1)
        assign(self.max_priority, torch.maximum(self.max_priority, largest), active)

    def _set_leaves(self, indices: Tensor, new: Tensor, active: Tensor | None) -> None:
        """Write leaves [S, n] of the active members, and the sums above them."""
        if active is not None:
            new = new.where(active.unsqueeze(1), self.leaves[self._member, indices])
        self.leaves[self._member, indices] = new
        node = indices
        for children, parents in pairwise(self._levels):
            # node // fan; compiled code would repeat all the slow divisions at every level.
            node = node >> (self._fan.bit_length() - 1)
            sums = children.view(len(children), -1, self._fan)[self._member, node].sum(dim=2)
            parents[self._member, node] = sums

    def priority_metrics(self, member: int) -> Tensor:
        """The mean priority of the member's rows and the largest seen: [2], on the device."""
        mean = self._levels[-1][member].sum() / self._sizes[member, 0]
        return torch.stack([mean, self.max_priority[member]])

    def reset_max_priority(self, active: Tensor | None) -> None:
        """Set the largest priority to that of the rows stored."""
        assign(self.max_priority, self.leaves.amax(dim=1), active)

    def reset_priorities(self, member: int) -> None:
        """Give all rows of a member the priority of the first one."""
        self.max_priority[member] = 1.0
        self.leaves[member, : self.size(member)] = 1.0
        self._sum_range(member, 0, self.leaves.shape[1])

    def restore(
        self,
        member: int,
        parts: Sequence[Float32],
        added: int,
        priorities: Tensor,
        max_priority: Tensor,
    ) -> None:
        """Restore a member: its rows in parts, oldest first, and their priorities."""
        row = added
        for part in reversed(parts):
            row -= len(part)
            newest = part[max(0, added - self.capacity - row) :]
            indices = torch.arange(row + len(part) - len(newest), row + len(part)) % self.capacity
            self.rows[member, indices.to(self.device)] = torch.from_numpy(newest).to(self.device)
        self._set_added(member, added)
        self.leaves[member, : len(priorities)] = priorities.to(self.device)
        self.max_priority[member] = max_priority
        self._sum_range(member, 0, self.leaves.shape[1])


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy of the host's tensor on the device; the host does not wait for a GPU's."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _on_host(shape: tuple[int, ...]) -> Tensor:
    """Zeros in pinned host memory, which a GPU reads and writes like its own.

    Only the rows of a batch travel, within the kernels that read them; no copy is waited for.
    """
    rows: Tensor = torch.as_tensor(_PinnedMemory(torch.zeros(shape)), device="cuda")
    return rows


class _PinnedMemory:
    """Pinned host memory, in the interface by which CUDA libraries share memory.

    PyTorch's own pinning rounds sizes up to a power of two, which may double them.
    """

    def __init__(self, host: Tensor) -> None:
        self._host = host  # keeps it alive
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # PyTorch's
        torch.cuda.check_error(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, MAPPED))
        weakref.finalize(self, cudart.cudaHostUnregister, host.data_ptr())
        self.__cuda_array_interface__ = {
            "shape": tuple(host.shape),
            "typestr": "<f4",
            "data": (host.data_ptr(), False),
            "version": 3,
        }


def _level_sizes(capacity: int, fan: int) -> list[int]:
    """Leaves first. Every level's size is a multiple of `fan`; the last level is one block."""
    usual = math.ceil(math.log(USUAL_ROWS, fan))
    sizes = [aligned(capacity, fan)]
    while sizes[-1] > fan or len(sizes) < usual:
        sizes.append(aligned(sizes[-1] // fan, fan))
    return sizes


def _descend(children: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """The child [S, B] whose span contains `rest`, and `rest` within it; children: [S, B, fan]."""
    if torch.compiler.is_compiling():  # one loop that keeps no cumulative sums in memory
        child = torch.zeros_like(rest, dtype=torch.int64)
        total, below = torch.zeros_like(rest), torch.zeros_like(rest)
        for i in range(children.shape[-1] - 1):
            total = total + children[..., i]
            beyond = total <= rest
            child = child + beyond
            below = torch.where(beyond, total, below)
        return child, rest - below
    cumulative = children[..., :-1].cumsum(dim=2)
    beyond = cumulative <= rest.unsqueeze(2)
    child = beyond.sum(dim=2)
    below = cumulative.gather(2, (child - 1).clamp(min=0).unsqueeze(2)).squeeze(2)
    return child, rest - below.where(child > 0, 0.0)


def _last_of_equals(indices: Tensor, values: Tensor) -> Tensor:
    """values [S, B], where equal indices all carry the value of the last of them.

    The result of writing them then does not depend on the order in which the device writes.
    """
    equal = indices.unsqueeze(2) == indices.unsqueeze(1)  # [S, B, B]
    positions = torch.arange(indices.shape[1], device=indices.device)
    # The clamp changes nothing; it tells the compiler that no index is out of bounds.
    last = torch.where(equal, positions, 0).amax(dim=2).clamp(min=0)
    return values.gather(1, last)

"""Stacked replay on the learner's device: rows [S, capacity, width], sampled by LAP's priorities.

Priorities are summed in a tree of three levels: `leaves` (a row each), `blocks` (FAN leaves each)
and `roots` (FAN blocks each). A sample walks from the roots down, so its cost hardly grows with
the capacity, and sums are float64, so a million small priorities are not lost beside a large one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from td7.algorithms.base import Batch
from td7.targets import assign
from td7.types import Float32, RowLayout

FAN = 128


def required_bytes(layout: RowLayout, capacity: int, members: int) -> int:
    """What a replay takes of its device's memory: float32 rows, float64 priorities."""
    return members * capacity * (4 * layout.width + 8)


class Replay:
    """Each member's last `capacity` rows. New rows get the largest priority seen."""

    def __init__(
        self,
        layout: RowLayout,
        capacity: int,
        members: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.layout = layout
        self.capacity = capacity
        self.device = device
        self.dtype = dtype  # of batches; rows are float32
        self.added = [
            0
        ] * members  # rows ever added, a member; the ring's place is added % capacity
        self.rows = torch.zeros(members, capacity, layout.width, device=device)
        roots = -(-capacity // (FAN * FAN))
        self.leaves = torch.zeros(members, roots * FAN * FAN, device=device, dtype=torch.float64)
        self._blocks = torch.zeros(members, roots * FAN, device=device, dtype=torch.float64)
        self._roots = torch.zeros(members, roots, device=device, dtype=torch.float64)
        self.max_priority = torch.ones(members, device=device, dtype=torch.float64)
        self._sizes = torch.zeros(members, 1, device=device, dtype=torch.int64)
        self._member = torch.arange(members, device=device).unsqueeze(1)  # [S, 1], to index with

    def size(self, member: int) -> int:
        return min(self.added[member], self.capacity)

    def append(self, member: int, rows: Float32) -> None:
        """The member's next rows, over its oldest ones once the ring is full."""
        for start in range(0, len(rows), self.capacity):
            self._append(member, rows[start : start + self.capacity])

    def _append(self, member: int, rows: Float32) -> None:
        source = torch.from_numpy(rows).to(self.device)
        begin = self.added[member] % self.capacity
        head = min(len(rows), self.capacity - begin)
        for start, part in ((begin, source[:head]), (0, source[head:])):
            if len(part):
                self.rows[member, start : start + len(part)] = part
                self.leaves[member, start : start + len(part)] = self.max_priority[member]
                self._sum_range(member, start, start + len(part))
        self.added[member] += len(rows)
        self._sizes[member] = self.size(member)

    def _sum_range(self, member: int, start: int, stop: int) -> None:
        """The sums above the leaves [start, stop) of one member, anew."""
        for children, parents in ((self.leaves, self._blocks), (self._blocks, self._roots)):
            start, stop = start // FAN, -(-stop // FAN)
            parents[member, start:stop] = (
                children[member, start * FAN : stop * FAN].view(-1, FAN).sum(dim=1)
            )

    def sample(self, uniforms: Tensor) -> Tensor:
        """Row indices [S, B] with probability priority / sum, from uniforms [S, B] in [0, 1).

        The inverse of the cumulative distribution: the first row whose cumulative priority
        exceeds u * sum.
        """
        cumulative = self._roots.cumsum(dim=1)
        rest = uniforms.double() * cumulative[:, -1:]
        node, rest = _descend(cumulative.unsqueeze(1), rest)
        for level in (self._blocks, self.leaves):
            children = level.view(len(level), -1, FAN)[self._member, node]  # [S, B, FAN]
            child, rest = _descend(children.cumsum(dim=2), rest)
            node = node * FAN + child
        # Rounding can carry the last sample past the last row.
        return torch.minimum(node, self._sizes - 1)

    def batch(self, indices: Tensor) -> Batch:
        """The rows at indices [S, B]."""
        rows = self.rows[self._member, indices].to(self.dtype)
        return Batch(*torch.split(rows, self.layout.splits, dim=-1))

    def set_priorities(self, indices: Tensor, priorities: Tensor, active: Tensor | None) -> None:
        """New priorities [S, B] of the active members' rows; of equal rows the last counts."""
        new = _last_of_equals(indices, priorities.double())
        if active is not None:
            new = new.where(active.unsqueeze(1), self.leaves[self._member, indices])
        self.leaves[self._member, indices] = new
        node = indices
        for children, parents in ((self.leaves, self._blocks), (self._blocks, self._roots)):
            node = node // FAN
            sums = children.view(len(children), -1, FAN)[self._member, node].sum(dim=2)
            parents[self._member, node] = sums
        largest = priorities.double().amax(dim=1)
        assign(self.max_priority, torch.maximum(self.max_priority, largest), active)

    def reset_max_priority(self, active: Tensor | None) -> None:
        """The largest priority, from the rows stored."""
        assign(self.max_priority, self.leaves.amax(dim=1), active)

    def restore(
        self,
        member: int,
        parts: Sequence[Float32],
        added: int,
        priorities: Tensor,
        max_priority: Tensor,
    ) -> None:
        """A member as it was: its rows in parts, oldest first, and what went with them."""
        row = added
        for part in reversed(parts):
            row -= len(part)
            newest = part[max(0, added - self.capacity - row) :]
            places = torch.arange(row + len(part) - len(newest), row + len(part)) % self.capacity
            self.rows[member, places.to(self.device)] = torch.from_numpy(newest).to(self.device)
        self.added[member] = added
        self._sizes[member] = self.size(member)
        self.leaves[member, : len(priorities)] = priorities.to(self.device)
        self.max_priority[member] = max_priority
        self._sum_range(member, 0, self.leaves.shape[1])


def _descend(cumulative: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """The child [S, B] that holds `rest`, and what is left of it; cumulative is [S, B or 1, n]."""
    child = (cumulative <= rest.unsqueeze(2)).sum(dim=2).clamp(max=cumulative.shape[2] - 1)
    below = cumulative.expand(-1, rest.shape[1], -1).gather(
        2, (child - 1).clamp(min=0).unsqueeze(2)
    )
    return child, rest - below.squeeze(2).where(child > 0, 0.0)


def _last_of_equals(indices: Tensor, values: Tensor) -> Tensor:
    """values [S, B], where equal indices all carry the value of the last of them.

    Writing them is then the same whatever order the device writes in.
    """
    equal = indices.unsqueeze(2) == indices.unsqueeze(1)  # [S, B, B]
    positions = torch.arange(indices.shape[1], device=indices.device)
    # The clamp changes nothing; it tells the compiler that no index is out of bounds.
    last = torch.where(equal, positions, 0).amax(dim=2).clamp(min=0)
    return values.gather(1, last)

"""Members that continue in another run: taken out of the snapshots of theirs and stacked anew.

A member's state is the same, bit for bit, before and after. What it computes from then on may be
rounded differently, because its neighbours are others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from td7.errors import InputError
from td7.runs.snapshots import Snapshot, Snapshots, process_folders
from td7.training.member import Origin
from td7.training.parts import RunParts
from td7.training.state import restore_state, stacked_tensors
from td7.types import Float32

# Tensors of one member alone, whose names end with its id.
OWN = ("checkpoint", "replay.priorities", "replay.max_priority", "episode_actions")


class _Place(NamedTuple):
    """Where a member's state is."""

    snapshots: Snapshots
    snapshot: Snapshot
    position: int  # among the members of the snapshot
    id: int

    def rows(self) -> list[Float32]:
        return self.snapshots.rows(self.snapshot, self.id)

    def record(self, name: str) -> Any:
        return self.snapshot.members[name][self.position]


def restack(
    parts: RunParts,
    origins: Sequence[Origin],
    restore_own: Callable[[Mapping[str, Tensor]], None],
    warn: Callable[[str], None],
) -> None:
    """Give each member the state and the table rows of its origin."""
    places = _places(origins, warn)
    ids = [member.id for member in parts.members]
    stacked = {name: tensor.clone() for name, tensor in stacked_tensors(parts).items()}
    tensors = dict(stacked)
    for m, (id, place) in enumerate(zip(ids, places, strict=True)):
        for name, tensor in stacked.items():
            tensor[m] = place.snapshot.tensors[name][place.position]
        for own in OWN:
            if (saved := place.snapshot.tensors.get(f"{own}.{place.id}")) is not None:
                tensors[f"{own}.{id}"] = saved
    records = {
        "members": [
            {**place.record("members"), "seed": id} for id, place in zip(ids, places, strict=True)
        ],
        **{name: [place.record(name) for place in places] for name in ("updates", "rows_added")},
    }
    by_id = dict(zip(ids, places, strict=True))
    restore_state(parts, Snapshot(tensors, records, {}), lambda id: by_id[id].rows())
    restore_own(tensors)
    for table in parts.folder.tables.values():
        table.adopt(
            (id, origin.run / table.path.name, origin.id)
            for id, origin in zip(ids, origins, strict=True)
        )


def _places(origins: Sequence[Origin], warn: Callable[[str], None]) -> list[_Place]:
    """Where the states of the members are; each snapshot is read once."""
    known: dict[Origin, _Place] = {}
    for run in dict.fromkeys(origin.run for origin in origins):
        for folder in process_folders(run):
            snapshots = Snapshots(folder / "snapshot", warn)
            snapshot = snapshots.load()
            for position, id in enumerate(snapshot.members["seeds"] if snapshot else ()):
                assert snapshot is not None
                known[Origin(run, id)] = _Place(snapshots, snapshot, position, id)
    for origin in origins:
        if origin not in known:
            raise InputError(f"{origin.run} has no snapshot of member {origin.id}")
    return [known[origin] for origin in origins]

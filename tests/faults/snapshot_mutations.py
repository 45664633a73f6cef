"""Runs whose snapshots were spoilt, as in `mutations`, and resumed.

A good snapshot, a copy of what is damaged or the checksums save the run: it ends as it would have,
or a line says why it cannot.
"""

from collections.abc import Sequence
from pathlib import Path

from faults.campaign import Outcome
from faults.mutations import Targets, mutate

NAME = "snapshot_mutations"
FULL = 4_000
QUICK = 6
TARGETS: Targets = (
    (r"run/snapshot/\d+/manifest\.json", 3, ("resume",)),
    (r"run/snapshot/\d+/members\.json", 2, ("resume",)),
    (r"run/snapshot/\d+/state\.safetensors", 2, ("resume",)),
    (r"run/snapshot/replay/.*", 3, ("resume",)),
)


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return mutate(TARGETS, trials, seed, folder)

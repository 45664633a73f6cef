"""Runs on a GPU that are killed and resumed, as in `kills`: updates are captured in CUDA graphs."""

from collections.abc import Sequence
from pathlib import Path

import torch

from faults.campaign import Outcome
from faults.kills import kill_runs
from faults.runs import ON_GPU

NAME = "gpu_kills"
FULL = 12
QUICK = 0


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    if not torch.cuda.is_available():
        return Outcome(notes=["skipped: it needs a CUDA device"])
    return kill_runs(ON_GPU, trials, seed, folder)

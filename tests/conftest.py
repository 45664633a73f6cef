"""One thread: the tests' products are tiny, and more threads only fight over the cores."""

import os
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
# Subprocesses of the tests: the same, and they find `toys`.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
sys.path.insert(0, str(Path(__file__).parent))

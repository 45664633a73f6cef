"""One thread a process: products are tiny here, and more threads only fight over the cores."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
# Subprocesses of the tests: the same, and they find `toys`.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["mini_report"]  # fixtures of the tests of reports


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler sees of an update is run; no code is generated, which takes long."""
    torch.compiler.reset()
    trace = partial(torch.compile, fullgraph=True, dynamic=False, backend="aot_eager")
    monkeypatch.setattr("td7.engine.compiling._compiled", trace)


@pytest.fixture
def minari_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Minari's folder for this test, so that it does not see the user's datasets."""
    root = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root

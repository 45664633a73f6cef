"""One thread per process: products are small here, and more threads compete for the cores.

Fixtures that tests of several commands share are below.
"""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
# The subprocesses of tests use one thread as well, and find `toys`.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
sys.path.insert(0, str(Path(__file__).parent))
import_module("usual_signals").restore_signals()

# Fixtures of tests of reports, of datasets, of tasks and of several processes.
pytest_plugins = ["mini_report", "recorded_runs", "tiny_tasks", "loaded_children"]


def pytest_collection_finish() -> None:
    """Python does not look through the imported modules for garbage, as compiling asks it to."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def config_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the key that signs runs: never the user's own."""
    home = tmp_path_factory.mktemp("config")
    os.environ["XDG_CONFIG_HOME"] = str(home)
    return home


@pytest.fixture(autouse=True)
def no_learning_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no runs, which takes longer than most of them, except in tests that are about it."""
    if "draws" not in request.keywords:
        monkeypatch.setattr("td7.reports.single_run.draw", lambda folder: None)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what the compiler sees of an update, without generating code, which takes long."""
    torch.compiler.reset()
    trace = partial(torch.compile, fullgraph=True, dynamic=False, backend="aot_eager")
    monkeypatch.setattr("td7.engine.compiling.compile_whole", trace)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, which is empty."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of seeds 0 and 3 that ended in the random phase, so its checkpoints are the first."""
    from commands import ENV, TINY
    from folders import SMALL, words
    from td7.cli.main import main

    path = tmp_path_factory.mktemp("finished") / "run"
    options = [*ENV, *TINY, "--seeds", "0,3", "--out", str(path), "--set", *words(SMALL)]
    assert main(["train", *options]) == 0
    return path


@pytest.fixture(scope="session")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a page of the documentation has in runs/ if it trains nothing itself."""
    import td7
    from doc_blocks import small_sizes

    path = tmp_path_factory.mktemp("example") / "run"
    with small_sizes():
        td7.train(env="InvertedPendulum-v5", seeds=range(2), keep_policies=5_000, out=str(path))
    return path


@pytest.fixture
def run_copy(tmp_path: Path, finished_run: Path) -> Path:
    """A copy of the finished run, which a test may change."""
    path = tmp_path / "run"
    shutil.copytree(finished_run, path)
    return path


@pytest.fixture
def failing_command(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a command that must fail, and returns its message without `td7: `."""
    from td7.cli.main import main

    def run(*arguments: str | Path, status: int = 2) -> str:
        capfd.readouterr()
        assert main([str(argument) for argument in arguments]) == status
        out, err = capfd.readouterr()
        assert out == ""
        assert err.endswith("\n")
        (line,) = err.splitlines()
        assert line.startswith("td7: ")
        assert len(line) > len("td7: ") + 10
        return line.removeprefix("td7: ")

    return run


@pytest.fixture
def minari_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Minari's folder for this test, so that it does not see the user's datasets."""
    root = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root

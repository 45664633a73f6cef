"""Worker processes: what they inherit and load, which signals they receive, when they end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from folders import SMALL, words
from point_tasks import NETWORK, POINT
from td7.rollouts.pool import Pool


def test_starting_workers_leaves_this_process_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have one thread and blocked signals; this process keeps its settings."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    Pool(POINT, NETWORK, 1).close()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def python(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_worker_loads_neither_torch_nor_pandas() -> None:
    program = """
import sys
import td7.rollouts.pool
from td7.rollouts.episodes import Player
loaded = [name for name in sys.modules if name.partition('.')[0] in ('torch', 'pandas')]
print(loaded)
"""
    out, _ = python(program).communicate(timeout=60)
    assert out == "[]\n"


POOL_REPORTS = """
import sys
from td7.rollouts.pool import Pool
import td7.cli.main
completed = Pool.completed
def report(self, *, block):
    results = completed(self, block=block)
    if results:
        print('working', flush=True)  # a worker has started
    return results
Pool.completed = report
td7.cli.main.main(sys.argv[1:])
"""
STEPPERS_REPORT = """
import sys
from td7.training import lockstep
from td7.rollouts.vector import ParallelVectorEnvironment
import td7.cli.main
lockstep.can_spin = lambda _: {spins}
advance = ParallelVectorEnvironment._advance
def report(self):
    advance(self)
    print('working', flush=True)  # all processes have started
ParallelVectorEnvironment._advance = report
td7.cli.main.main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("program", "checkpoints"),
    [
        (POOL_REPORTS, "minimum"),
        (STEPPERS_REPORT.format(spins=True), "none"),
        (STEPPERS_REPORT.format(spins=False), "none"),
    ],
    ids=["workers", "spinning steppers", "steppers"],
)
def test_workers_end_with_a_killed_parent(tmp_path: Path, program: str, checkpoints: str) -> None:
    """Workers inherit standard output, which therefore ends when the last of them does."""
    command = ["train", "--env", "toys:Point-v0", "--steps", "2e6", "--workers", "3", "--quiet"]
    command += ["--engine", "eager"]  # nothing is trained
    settings = {**SMALL, "random_steps": 1_000_000, "checkpoints": checkpoints}
    out = ["--out", str(tmp_path / "run"), "--seeds", "0-1"]
    process = python(program, *command, *out, "--set", *words(settings))
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.kill()
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert set(rest.split()) <= {"working"}


POOL = """
import os, signal, sys
from td7.networks.description import Layer, Network
from td7.rollouts.episodes import EpisodeTask
from td7.rollouts.pool import Pool
from td7.types import Task

def make(limit):
    task = Task('toys:Count-v0', {'max_episode_steps': limit})
    return Pool(task, Network({'state': 1}, (Layer('action', ('state',), 1),)), 2)

def play(pool, limit):
    for k in range(2):
        pool.submit(EpisodeTask(0, k, limit, None, 0.0))
    while pool.pending:
        for result in pool.completed(block=True):
            print(result.episode.length, flush=True)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_only_the_parent_handles_a_signal_to_all_processes(name: str) -> None:
    """Ctrl-C and `timeout` signal a whole group, workers that are still importing included."""
    program = f"""
os.setpgid(0, 0)
signal.signal(signal.{name}, lambda *_: print('handled', flush=True))
pool = make(3)
os.killpg(0, signal.{name})
play(pool, 3)
os.killpg(0, signal.{name})
play(pool, 3)
pool.close()
"""
    process = python(POOL + program)
    out, _ = process.communicate(timeout=60)
    assert sorted(out.split()) == ["3"] * 4 + ["handled"] * 2
    assert process.returncode == 0


def test_a_pool_that_is_never_closed_ends_with_python() -> None:
    program = """
pool = make(10**12)
play(pool, 3)  # both workers have started
pool.submit(EpisodeTask(0, 0, 10**12, None, 0.0))
"""
    process = python(POOL + program)
    out, _ = process.communicate(timeout=60)
    assert out.split() == ["3", "3"]
    assert process.returncode == 0

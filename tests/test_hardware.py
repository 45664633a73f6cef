"""What `auto` chooses, and the errors for what does not fit this machine."""

import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.envs.registration import EnvSpec

from td7.algorithms.td7 import TD7Config
from td7.algorithms.tqc import TQCConfig
from td7.errors import InputError
from td7.memory import group_bytes
from td7.processes import Script
from td7.rollouts.registration import describe
from td7.training.hardware import (
    PROCESS_BYTES,
    WORTH_COMPILING,
    WORTH_DIVIDING,
    check_memory,
    choose_engine,
    choose_processes,
    choose_threads,
    choose_workers,
    fast_processes,
)
from td7.training.resolve import run_config, train_options
from td7.training.start import _fit_to_memory
from td7.types import Task


@pytest.mark.parametrize(
    ("device", "updates", "engine"),
    [
        ("cuda", 1, "graph"),
        ("cpu", WORTH_COMPILING - 1, "eager"),
        ("cpu", WORTH_COMPILING, "compiled"),
    ],
)
def test_auto_chooses_the_engine(device: str, updates: int, engine: str) -> None:
    assert choose_engine("auto", device, updates) == engine
    assert choose_engine("eager", device, updates) == "eager"


def test_updates_of_all_seeds_count_for_compilation_and_random_steps_do_not() -> None:
    for seeds, engine in ((1, "eager"), (10, "compiled")):
        options = train_options(
            {
                "env": "InvertedPendulum-v5",
                "seeds": range(seeds),
                "device": "cpu",
                "steps": 27_000,
                "set": {"random_steps": 25_000},
            }
        )
        assert run_config(options).engine == engine


@pytest.mark.parametrize(
    ("device", "seeds", "workers"), [("cpu", 10, 0), ("cuda", 1, 6), ("cuda", 10, 15)]
)
def test_auto_chooses_the_workers(
    device: str, seeds: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, one per seed and some to evaluate, as long as a core is left."""
    monkeypatch.setattr("td7.training.hardware.available_cores", lambda: set(range(16)))
    assert choose_workers("auto", device, seeds) == workers
    assert choose_workers("3", device, seeds) == 3


def test_auto_chooses_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """All cores for the paper's networks; with small ones, threads would wait for each other."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert choose_threads("auto", TD7Config(), 1) == 7
    assert choose_threads("auto", TQCConfig(), 1) == 7
    assert choose_threads("auto", TD7Config(), 3) == 2
    assert choose_threads("auto", TD7Config(), 10) == 1
    assert choose_threads("auto", TD7Config(hidden_dim=64), 1) == 1
    assert choose_threads("2", TD7Config(hidden_dim=64), 3) == 2


LOCK = threading.Lock()  # which cannot be sent to another process
LONG: dict[str, Any] = {"seeds": 10, "updates": 10**6, "workers": 0, "threads": "auto"}


@pytest.mark.parametrize(
    ("cores", "device", "changes", "processes"),
    [
        (2, "cpu", {}, 10),
        (1, "cpu", {}, 1),
        (2, "cpu", {"seeds": 1}, 1),
        (2, "cpu", {"seeds": 30}, 10),  # five per core
        (16, "cpu", {"seeds": 30}, 30),
        (16, "cpu", {"threads": "4"}, 4),  # waiting threads occupy their cores
        (16, "cpu", {"threads": "16"}, 1),
        (16, "cpu", {"updates": WORTH_DIVIDING - 1}, 1),
        (16, "cpu", {"workers": 2}, 1),
        (16, "cuda", {}, 1),
    ],
)
def test_auto_chooses_the_processes(
    cores: int,
    device: str,
    changes: dict[str, Any],
    processes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: 10**12)
    task = Task("Pendulum-v1")
    assert choose_processes("auto", device, task, **{**LONG, **changes}) == processes


def test_auto_leaves_memory_free_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    for free, processes in ((None, 10), (4 * PROCESS_BYTES, 2), (0, 1)):
        monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _, free=free: free)
        assert fast_processes(10) == processes


def test_a_task_typed_into_a_shell_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes could not make it."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    entry = EnvSpec("Typed-v0", entry_point=lambda: LOCK)  # type: ignore[arg-type]  # is not made
    monkeypatch.setitem(gymnasium.registry, "Typed-v0", entry)
    assert choose_processes("auto", "cpu", Task("Typed-v0"), **LONG) == 1
    with pytest.raises(InputError, match=r"workers=0 and processes=1"):
        Script.current(Task("Typed-v0"))


def test_processes_that_cannot_start_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("Pendulum-v1")
    with pytest.raises(InputError, match="is for a cpu"):
        choose_processes("2", "cuda", task, **LONG)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(
        "td7.training.hardware.current_process", lambda: SimpleNamespace(daemon=True)
    )
    with pytest.raises(InputError, match="daemonic process"):
        choose_processes("2", "cpu", task, **LONG)
    assert choose_processes("auto", "cpu", task, **LONG) == 1


def test_a_task_that_only_its_script_can_make_stays_in_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The script, run again, might have other effects, or none because of its main guard."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    entry = EnvSpec("Own-v0", entry_point=lambda: LOCK)  # type: ignore[arg-type]  # is not made
    monkeypatch.setitem(gymnasium.registry, "Own-v0", entry)
    assert Script.current(Task("Own-v0")).must_run
    assert choose_processes("auto", "cpu", Task("Own-v0"), **LONG) == 1


def test_processes_that_do_not_fit_are_refused_or_become_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused if the user asked for several; with `auto`, the run has one."""
    task, free = "HalfCheetah-v4", 3 * PROCESS_BYTES
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: free)
    values = {"env": task, "seeds": "0-3", "steps": 50_000, "device": "cpu"}
    options = train_options({**values, "processes": 4})
    with pytest.raises(InputError, match=r"in 4 processes takes 1.8 GB .* processes=1$"):
        check_memory(run_config(options), describe(Task(task)))
    options = train_options(values)
    config = replace(run_config(options), processes=4, threads=1)
    fitting = _fit_to_memory(config, describe(Task(task)), options)
    assert (fitting.processes, fitting.threads) == (1, torch.get_num_threads())
    check_memory(fitting, describe(Task(task)))


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"seeds": "0-1", "device": "cuda"}, "fewer seeds at once, replay_device=cpu"),
        ({"seeds": "0-1", "device": "cuda", "replay_device": "cpu"}, "fewer seeds at once"),
        ({"seeds": "0-1", "device": "cpu"}, "fewer seeds at once"),
        ({"seeds": "0", "device": "cpu"}, "or less"),
    ],
)
def test_a_replay_that_does_not_fit_is_refused_with_advice(
    changes: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: 1_000_000)
    config = run_config(train_options({"env": "HalfCheetah-v4", **changes}))
    with pytest.raises(InputError) as refused:
        check_memory(config, describe(Task("HalfCheetah-v4")))
    assert "allowed: replay_capacity=" in str(refused.value)
    assert str(refused.value).endswith(advice)


def test_limits_of_containers_count(tmp_path: Path) -> None:
    """The group's own limit, where caches count as free, and those of the groups above it."""
    own, root = tmp_path / "cgroup", tmp_path / "groups"
    inner = root / "job" / "step"
    inner.mkdir(parents=True)
    own.write_text("4:memory:/old\n0::/job/step\n")
    assert group_bytes(own, root) == []
    for level, limit, used, cached in ((inner, "1000", 700, 200), (root / "job", "max", 0, 0)):
        (level / "memory.max").write_text(f"{limit}\n")
        (level / "memory.current").write_text(f"{used}\n")
        (level / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
    assert group_bytes(own, root) == [500]
    (root / "job" / "memory.max").write_text("300\n")
    assert group_bytes(own, root) == [500, 300]
    assert group_bytes(tmp_path / "none", root) == []

"""What `auto` chooses, and what does not fit this machine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from td7 import api, hardware
from td7.algorithms.td7 import TD7Config
from td7.algorithms.tqc import TQCConfig
from td7.environments import describe
from td7.errors import InputError
from td7.types import Task


@pytest.mark.parametrize(
    ("device", "updates", "engine"),
    [
        ("cuda", 1, "graph"),
        ("cpu", hardware.WORTH_COMPILING - 1, "eager"),
        ("cpu", hardware.WORTH_COMPILING, "compiled"),
    ],
)
def test_the_engine(device: str, updates: int, engine: str) -> None:
    assert hardware.choose_engine("auto", device, updates) == engine
    assert hardware.choose_engine("eager", device, updates) == "eager"


def test_updates_of_all_seeds_are_worth_compiling() -> None:
    """Each saves time, whoever's it is; random steps are none."""
    for seeds, engine in ((1, "eager"), (10, "compiled")):
        given = {"env": "InvertedPendulum-v5", "seeds": range(seeds), "device": "cpu"}
        options = api.train_options({**given, "steps": 27_000, "set": {"random_steps": 25_000}})
        assert api.run_config(options).engine == engine


@pytest.mark.parametrize(
    ("device", "seeds", "workers"), [("cpu", 10, 0), ("cuda", 1, 6), ("cuda", 10, 15)]
)
def test_the_workers(
    device: str, seeds: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU so many that all seeds play and some are evaluated, and a core is left."""
    monkeypatch.setattr(hardware, "own_cores", lambda: set(range(16)))
    assert hardware.choose_workers("auto", device, seeds) == workers
    assert hardware.choose_workers("3", device, seeds) == 3


def test_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them for the paper's networks; for small ones they would wait for each other."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert hardware.choose_threads("auto", TD7Config(), 1) == 7
    assert hardware.choose_threads("auto", TQCConfig(), 1) == 7
    assert hardware.choose_threads("auto", TD7Config(), 3) == 2
    assert hardware.choose_threads("auto", TD7Config(), 10) == 1
    assert hardware.choose_threads("auto", TD7Config(hidden_dim=64), 1) == 1
    assert hardware.choose_threads("2", TD7Config(hidden_dim=64), 3) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": "0-1", "device": "cuda"}, "fewer seeds at once, --replay-device cpu"),
        ({"seeds": "0-1", "device": "cuda", "replay_device": "cpu"}, "fewer seeds at once"),
        ({"seeds": "0-1", "device": "cpu"}, "fewer seeds at once"),
        ({"seeds": "0", "device": "cpu"}, "or less"),
    ],
)
def test_a_replay_that_cannot_fit(
    changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with what would fit."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(hardware, "_free_bytes", lambda _: 1_000_000)
    config = api.run_config(api.train_options({"env": "HalfCheetah-v4", **changes}))
    with pytest.raises(InputError) as refused:
        hardware.check_memory(config, describe(Task("HalfCheetah-v4")))
    assert "allowed: --set replay_capacity=" in str(refused.value)
    assert str(refused.value).endswith(told)


def test_limits_of_containers_count(tmp_path: Path) -> None:
    """The group's own, without what is only cached, and those of groups above it."""
    own, root = tmp_path / "cgroup", tmp_path / "groups"
    inner = root / "job" / "step"
    inner.mkdir(parents=True)
    own.write_text("4:memory:/old\n0::/job/step\n")
    assert hardware._group_bytes(own, root) == []
    for level, limit, used, cached in ((inner, "1000", 700, 200), (root / "job", "max", 0, 0)):
        (level / "memory.max").write_text(f"{limit}\n")
        (level / "memory.current").write_text(f"{used}\n")
        (level / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
    assert hardware._group_bytes(own, root) == [500]
    (root / "job" / "memory.max").write_text("300\n")
    assert hardware._group_bytes(own, root) == [500, 300]
    assert hardware._group_bytes(tmp_path / "none", root) == []

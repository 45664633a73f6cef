"""Members taken out of the snapshots of runs and stacked anew continue as if they had stayed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import td7
from folders import SMALL, newest, rows
from td7.errors import InputError
from td7.runs.members import Members
from td7.runs.policies import load
from td7.runs.snapshots import process_folders
from td7.training.member import Origin
from td7.training.resolve import train_options
from td7.training.start import Stack, start

RATES, SEEDS = (1e-3, 3e-4, 1e-4), (0, 3)


def settings(algorithm: str) -> dict[str, int]:
    return {n: v for n, v in SMALL.items() if algorithm != "td3" or "embedding" not in n}


def train(
    out: Path, algorithm: str, stack: Stack, steps: int, options: Sequence[tuple[str, Any]] = ()
) -> Path:
    values = {
        "algorithm": algorithm,
        "env": "toys:Point-v0",
        "steps": steps,
        "evaluate_every": 40,
        "evaluation_episodes": 2,
        "metrics_every": 10,
        "precision": "float64",
        "device": "cpu",
        "quiet": True,
        "out": str(out),
        "set": settings(algorithm),
        **dict(options),
    }
    return start(train_options(values), stack=stack)


def members(*pairs: tuple[float, int]) -> Members:
    rates, seeds = zip(*pairs, strict=True)
    return Members(seeds, {"learning_rate": rates}, tuple(range(len(pairs))))


ALL = [(rate, seed) for rate in RATES for seed in SEEDS]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("td7", ()),
        ("td3", ()),
        ("td7", (("processes", 2),)),
    ],
)
def test_survivors_of_two_runs_continue_like_members_that_stayed(
    algorithm: str,
    options: Sequence[tuple[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four of six members, of two runs and with padding, in another order, for 40 more steps."""
    monkeypatch.setattr("td7.training.start.UNPADDED", ())
    first = train(tmp_path / "a", algorithm, Stack(members(*ALL[:4])), 40, options)
    second = train(tmp_path / "b", algorithm, Stack(members(*ALL[4:])), 40, options)
    whole = train(tmp_path / "whole", algorithm, Stack(members(*ALL)), 80, options)
    chosen = [3, 4, 0, 5]
    origins = [Origin(first, m) if m < 4 else Origin(second, m - 4) for m in chosen]
    stack = Stack(members(*(ALL[m] for m in chosen)), padding=1, origins=origins)
    again = train(tmp_path / "again", algorithm, stack, 80, options)

    tables = [td7.Run(path) for path in (again, whole)]
    for name in ("evaluations", "episodes", "metrics"):
        mine, theirs = (getattr(run, name) for run in tables)
        for m, there in enumerate(chosen):
            own = mine[mine["member"] == m].drop(columns="member").to_numpy(float)
            expected = theirs[theirs["member"] == there].drop(columns="member").to_numpy(float)
            assert own.shape == expected.shape, name
            assert abs(own - expected).max() <= 1e-7 * abs(expected).max(), name
    for m, there in enumerate(chosen):
        flat, expected = load(again, member=m).flat, load(whole, member=there).flat
        assert abs(flat - expected).max() <= 1e-7 * abs(expected).max()


def test_the_state_is_the_same_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that continues members without a further step holds what they had."""
    monkeypatch.setattr("td7.training.start.UNPADDED", ())
    first = train(tmp_path / "a", "td7", Stack(members(*ALL[:4])), 80)
    stack = Stack(members(ALL[2], ALL[1]), 1, [Origin(first, 2), Origin(first, 1)])
    again = train(tmp_path / "again", "td7", stack, 80)
    before, after = (
        safetensors.torch.load_file(newest(run) / "state.safetensors") for run in (first, again)
    )
    for name, tensor in after.items():
        if name.startswith(("learner.", "engine.")):
            assert torch.equal(tensor[:2], before[name][[2, 1]]), name
            assert len(tensor) == 3  # with padding
        else:
            kind, _, m = name.rpartition(".")
            assert torch.equal(tensor, before[f"{kind}.{[2, 1][int(m)]}"]), name
    for n, there in enumerate((2, 1)):
        assert (rows(again, n) == rows(first, there)).all()


def test_a_stacked_run_resumes_without_those_that_it_continues(tmp_path: Path) -> None:
    first = train(tmp_path / "a", "td7", Stack(members(*ALL[:2])), 40)
    origins = [Origin(first, 1), Origin(first, 0)]
    again, long = (
        train(tmp_path / name, "td7", Stack(members(ALL[1], ALL[0]), 0, origins), steps)
        for name, steps in (("again", 60), ("long", 80))
    )
    first.rename(tmp_path / "elsewhere")
    td7.resume(again, steps=80, quiet=True)
    assert (again / "episodes.csv").read_bytes() == (long / "episodes.csv").read_bytes()


def test_a_member_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    first = train(tmp_path / "a", "td7", Stack(members(*ALL[:2])), 40)
    assert process_folders(first) == [first]
    stack = Stack(members(*ALL[:2]), 0, [Origin(first, 0), Origin(first, 7)])
    with pytest.raises(InputError, match="has no snapshot of member 7"):
        train(tmp_path / "again", "td7", stack, 80)

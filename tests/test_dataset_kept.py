"""Policies that a run keeps on the way, as `td7 dataset record` needs them."""

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import td7
from folders import newest
from recorded_runs import (
    EPISODES,
    FIRST,
    KEEP,
    SEEDS,
    STEPS,
    N,
    assert_same,
    attributes,
    episode,
    explored,
    kept,
    noise_of,
    recorded,
    table,
    train,
)
from td7.datasets.record import FIRST_EPISODE
from td7.errors import Stopped
from td7.runs import policies
from td7.seeding import Stream, derived_seed


@pytest.fixture(scope="module")
def stopped(run_with_policies: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, but stopped in the middle, right after a policy was kept."""
    path = tmp_path_factory.mktemp("stopped") / run_with_policies.name
    save = policies.save

    def save_and_stop(folder: Path, *given: Any) -> None:
        save(folder, *given)
        if folder == kept(path, 80):
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "save", save_and_stop)
        with pytest.raises(Stopped):
            train(path, run_with_policies.name)
    return path


def assert_kept_as_evaluated(run: Path, steps: Sequence[int]) -> None:
    """Every kept policy, played again, has the returns and lengths of evaluations.csv."""
    assert sorted(path.name for path in (run / "policies").iterdir()) == [
        f"{step:09d}" for step in steps
    ]
    evaluated = [
        (row["seed"], row["step"], row["episode"], row["return"], row["length"])
        for row in table(run, "evaluations")
        if row["step"] in steps
    ]
    played = []
    for seed in SEEDS:
        for step in steps:
            policy = policies.load(kept(run, step), seed)
            for i in range(EPISODES):
                reset_seed = derived_seed(seed, Stream.EVALUATION_RESET, step, i)
                found = episode(policy.actor, reset_seed)
                played.append((seed, step, i, sum(s.reward for s in found), len(found)))
    assert sorted(evaluated) == played
    for step in steps:
        assert json.loads((kept(run, step) / "policy.json").read_text())["steps"] == step


def test_kept_policies_are_those_evaluated(run_with_policies: Path) -> None:
    assert_kept_as_evaluated(run_with_policies, range(0, STEPS + 1, KEEP))
    for seed in SEEDS:
        weights = [
            td7.load(kept(run_with_policies, step), seed).flat.tobytes() for step in (0, STEPS)
        ]
        assert len(set(weights)) > 1, "policies that never change show nothing"


def test_after_a_resume_they_are_the_same(
    run_with_policies: Path, stopped: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(stopped, tmp_path / "run"))
    assert not kept(path, 120).exists()
    td7.resume(path, quiet=True)
    assert_kept_as_evaluated(path, range(0, STEPS + 1, KEEP))
    for file in (run_with_policies / "policies").rglob("*.*"):
        assert (path / file.relative_to(run_with_policies)).read_bytes() == file.read_bytes(), file


def test_after_an_extension_there_are_more(run_with_policies: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(run_with_policies, tmp_path / "run"))
    td7.resume(path, steps=STEPS + KEEP, quiet=True)
    assert_kept_as_evaluated(path, range(0, STEPS + KEEP + 1, KEEP))


def test_an_unfinished_run_is_stamped_with_the_steps_it_made(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "expert.hdf5"
    fields = recorded(stopped, "expert", N, out)
    saved = json.loads((newest(stopped) / "members.json").read_text())["members"][0]
    assert attributes(out)["td7.policy_steps"] == [saved["steps"]]
    assert 0 < saved["steps"] < STEPS
    policy = td7.load(stopped, FIRST)
    assert_same(fields, explored(policy, noise_of(stopped), FIRST, FIRST_EPISODE, N))

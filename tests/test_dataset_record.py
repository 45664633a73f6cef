"""`td7 dataset record`: what a run did or can do, against plain loops over the task."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import td7
from folders import rows as replay_rows
from recorded_runs import (
    ENV,
    FIRST,
    HALF_WIDTH,
    KEEP,
    LIMIT,
    MIDDLE,
    OTHER,
    SEEDS,
    STEPS,
    N,
    Says,
    assert_of_the_task,
    assert_same,
    attributes,
    everything,
    explored,
    joined,
    kept,
    noise_of,
    recorded,
    table,
    words_of,
)
from td7.datasets.read import read as read_dataset
from td7.datasets.record import FIRST_EPISODE, KINDS, record


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_d4rls_and_says_where_it_comes_from(
    kind: str, run_with_policies: Path, tmp_path: Path, dataset_prints: Says
) -> None:
    out = tmp_path / "some.hdf5"
    assert (
        dataset_prints(*words_of(run_with_policies, kind, N, "--out", out, "--seed", OTHER))
        == f"{out}\n"
    )
    with h5py.File(out) as file:
        fields = {name: field[...] for name, field in file.items()}
    shapes = {name: (field.shape, str(field.dtype)) for name, field in fields.items()}
    assert shapes == {
        "observations": ((N, 2), "float32"),
        "actions": ((N, 2), "float32"),
        "next_observations": ((N, 2), "float32"),
        "rewards": ((N,), "float32"),
        "terminals": ((N,), "bool"),
        "timeouts": ((N,), "bool"),
    }
    assert_of_the_task(fields)
    ends = np.flatnonzero(fields["terminals"] | fields["timeouts"])
    lengths = np.diff(ends, prepend=-1)
    is_cut = fields["timeouts"][ends] & (lengths < LIMIT)
    assert is_cut.sum() <= (2 if kind == "medium-expert" else 1)
    stamps = attributes(out)
    assert stamps.pop("td7.cut_rows") == ends[is_cut].tolist()
    message = stamps.pop("td7.policies")
    own = json.loads((run_with_policies / "policy" / "policy.json").read_text())["steps"][1]
    medium = stamps["td7.policy_steps"][0]
    steps = {
        "expert": [own],
        "medium": [medium],
        "medium-expert": [medium, own],
        "replay": [0, N],
    }
    assert stamps == {
        "td7.self_collected": True,
        "td7.task": ENV,
        "td7.task_kwargs": f'{{"max_episode_steps": {LIMIT}}}',
        "td7.task_wrappers": "[]",
        "td7.kind": kind,
        "td7.algorithm": run_with_policies.name,
        "td7.seed": OTHER,
        "td7.policy_steps": steps[kind],
        "td7.action_low": [-1, -2],
        "td7.action_high": [3, 2],
        "td7.entries": "[]",
    }
    assert kind not in ("medium", "medium-expert") or medium in range(KEEP, STEPS + 1, KEEP)
    expert = f"expert: the policy of step {own}, the run's last"
    assert re.fullmatch(
        {
            "expert": expert,
            "medium": (taken := rf"medium: the policy of step {medium}, return \S+ \(.*\)"),
            "medium-expert": f"{taken}; {expert}",
            "replay": f"replay: the run's first {N} steps",
        }[kind],
        message,
    )

    dataset = read_dataset(out)
    assert (dataset.task_id, dataset.self_collected, dataset.warnings) == (ENV, True, ())
    assert dataset.task_kwargs == {"max_episode_steps": LIMIT}
    stays = ~fields["timeouts"]
    unit = (fields["actions"].astype(np.float64) - MIDDLE) / HALF_WIDTH
    columns = (fields["observations"], unit, fields["next_observations"], fields["rewards"])
    expected = np.column_stack([*columns, ~fields["terminals"]])[stays].astype(np.float32)
    assert_array_equal(dataset.rows, expected)
    assert dataset.lengths.tolist() == lengths[~is_cut].tolist()
    returns = [own.sum(dtype=np.float64) for own in np.split(fields["rewards"], ends + 1)[:-1]]
    np.testing.assert_allclose(dataset.returns, np.array(returns)[~is_cut], rtol=1e-6)


def test_expert_is_what_the_last_policy_does(run_with_policies: Path, tmp_path: Path) -> None:
    for seed in SEEDS:
        fields = recorded(run_with_policies, "expert", N, tmp_path / f"{seed}.hdf5", "--seed", seed)
        policy = td7.load(run_with_policies, seed)
        assert_same(fields, explored(policy, noise_of(run_with_policies), seed, FIRST_EPISODE, N))
    default = recorded(run_with_policies, "expert", N, tmp_path / "default.hdf5")
    assert_same(
        default, recorded(run_with_policies, "expert", N, tmp_path / "first.hdf5", "--seed", FIRST)
    )


def test_medium_is_what_a_kept_policy_does(run_with_policies: Path, tmp_path: Path) -> None:
    out = tmp_path / "medium.hdf5"
    fields = recorded(run_with_policies, "medium", N, out, "--seed", OTHER)
    (step,) = attributes(out)["td7.policy_steps"]
    policy = td7.load(kept(run_with_policies, step), OTHER)
    assert_same(fields, explored(policy, noise_of(run_with_policies), OTHER, FIRST_EPISODE, N))


@pytest.mark.parametrize("rows", [4, N, 60])
def test_medium_expert_is_half_and_half_with_a_cut_between(
    rows: int, run_with_policies: Path, tmp_path: Path
) -> None:
    out = tmp_path / "both.hdf5"
    fields = recorded(run_with_policies, "medium-expert", rows, out, "--seed", OTHER)
    step, _ = attributes(out)["td7.policy_steps"]
    medium, expert = (
        td7.load(kept(run_with_policies, step), OTHER),
        td7.load(run_with_policies, OTHER),
    )
    half, noise = rows // 2, noise_of(run_with_policies)
    expected = joined(
        explored(medium, noise, OTHER, FIRST_EPISODE, half),
        explored(expert, noise, OTHER, 2 * FIRST_EPISODE, rows - half),
    )
    assert_same(fields, expected)
    assert (fields["terminals"] | fields["timeouts"])[half - 1]


def test_other_seeds_and_kinds_are_other_data(run_with_policies: Path, tmp_path: Path) -> None:
    expert = recorded(run_with_policies, "expert", N, tmp_path / "expert.hdf5")
    other = recorded(run_with_policies, "expert", N, tmp_path / "other.hdf5", "--seed", OTHER)
    both = recorded(run_with_policies, "medium-expert", 2 * N, tmp_path / "both.hdf5")
    again = {tuple(row) for row in both["observations"][N:]}
    for states in (other["observations"], both["observations"][N:]):
        assert not {tuple(row) for row in expert["observations"]} & {tuple(s) for s in states}
    assert len(again) == N, "a state that comes twice"


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_is_what_the_run_did(seed: int, run_with_policies: Path, tmp_path: Path) -> None:
    """From the snapshot's rows, row by row, cut within an episode, at its end, and nowhere."""
    rows = replay_rows(run_with_policies, seed)
    ended = [
        int(row["step"]) for row in table(run_with_policies, "episodes") if row["seed"] == seed
    ]
    assert len(ended) > 3
    for count in (ended[2], ended[2] + 1, ended[3] - 1, len(rows)):
        fields = recorded(
            run_with_policies, "replay", count, tmp_path / f"{count}.hdf5", "--seed", seed
        )
        assert_of_the_task(fields)
        assert len(fields["rewards"]) == count
        for i in range(count):
            row = rows[i]
            assert_array_equal(fields["observations"][i], row[:2])
            task_action = MIDDLE + HALF_WIDTH * row[2:4].astype(np.float64)
            assert_array_equal(fields["actions"][i], task_action.astype(np.float32))
            assert_array_equal(fields["next_observations"][i], row[4:6])
            assert fields["rewards"][i] == row[6]
            terminal = row[7] == 0
            assert fields["terminals"][i] == terminal
            is_last = i + 1 in ended or i + 1 == count
            assert fields["timeouts"][i] == (is_last and not terminal)
    returns = [row["return"] for row in table(run_with_policies, "episodes") if row["seed"] == seed]
    for count in (len(rows), ended[2] + 1):  # one step of the episode after the third is none
        whole = read_dataset(tmp_path / f"{count}.hdf5").returns
        expected = returns if count == len(rows) else returns[:3]
        np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5)


def test_the_runs_have_both_kinds_of_ends(run_with_policies: Path) -> None:
    """Without both, the tests above would show little."""
    rows = replay_rows(run_with_policies, OTHER)
    lengths = [
        row["length"] for row in table(run_with_policies, "episodes") if row["seed"] == OTHER
    ]
    assert LIMIT in lengths
    assert 0 < min(lengths) < LIMIT
    assert np.count_nonzero(rows[:, -1] == 0) >= sum(length < LIMIT for length in lengths) > 0


def test_workers_do_not_matter(run_with_policies: Path, tmp_path: Path) -> None:
    alone = recorded(run_with_policies, "medium-expert", N, tmp_path / "alone.hdf5", "--workers", 0)
    assert_same(
        recorded(run_with_policies, "medium-expert", N, tmp_path / "two.hdf5", "--workers", 2),
        alone,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_progress_counts_all_rows(kind: str, td3_run: Path, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    out = tmp_path / "some.hdf5"
    given: dict[str, Any] = {"seed": None, "workers": 0, "say": print}
    record(td3_run, kind, N, out, report=lambda *now: shown.append(now), **given)
    assert {total for _, total in shown} <= {N}
    assert shown == sorted(shown)
    assert kind == "replay" or shown[-1] == (N, N)


def test_the_default_name_is_the_tasks_and_the_kinds(
    td3_run: Path, empty_folder: Path, dataset_prints: Says
) -> None:
    assert dataset_prints(*words_of(td3_run, "expert", "1e1")) == "Point-v0-expert.hdf5\n"
    assert [path.name for path in empty_folder.iterdir()] == ["Point-v0-expert.hdf5"]
    with h5py.File("Point-v0-expert.hdf5") as file:
        assert len(file["rewards"]) == 10


def test_recording_leaves_the_run_alone(td3_copy: Path, tmp_path: Path) -> None:
    before = everything(td3_copy)
    for kind in KINDS:
        recorded(td3_copy, kind, N, tmp_path / f"{kind}.hdf5")
    assert everything(td3_copy) == before

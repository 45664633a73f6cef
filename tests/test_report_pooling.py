"""Runs of the same row and place are one result."""

from pathlib import Path
from typing import Any

import pytest

from fake_runs import SPREAD, dataset_fields, pair, write_run
from mini_report import record_of, table_of
from td7.reports.report import read_report


def test_seeds_in_two_folders_are_one_run(tmp_path: Path) -> None:
    both = pair(1000)
    for seed in both:
        write_run(tmp_path / f"seed-{seed}", {seed: both[seed]})
    write_run(tmp_path / "seed-1-again", {1: [5, 5, 5]})
    report = read_report([tmp_path])
    record = record_of(table_of(report, "online-scores"), step=1_000_000)
    assert (record["seeds"], record["mean"]) == (2, 1000)
    notes = "\n".join(report.notes)
    assert f"pools the seeds of {tmp_path / 'seed-0'} and of {tmp_path / 'seed-1'}" in notes
    assert f"seed-1-again left out: {tmp_path / 'seed-0'} has seed 1" in notes


def test_a_shared_seed_counts_once(tmp_path: Path) -> None:
    """Seeds 0 and 1 reach 900 and 1100; of the other run only seeds 2 and 3 count."""
    first = write_run(tmp_path / "first", pair(1000), values=pair(10))
    own = {1: [5.0, 5.0, 5.0], 2: [0.0, 700.0, 1400.0], 3: [0.0, 300.0, 600.0]}
    write_run(tmp_path / "second", own, values=own)
    report = read_report([tmp_path])
    (result,) = report.results
    assert result.seeds == (0, 1, 2, 3)
    last = result.at(1_000_000)
    assert last is not None
    assert last.tolist() == [1000 - SPREAD, 1000 + SPREAD, 1400, 600]
    assert result.values is not None
    assert result.values[:, -1].tolist() == [10 - SPREAD, 10 + SPREAD, 1400, 600]
    assert result.seconds is None  # that of seeds 2 and 3 alone is unknown
    note = f"second adds seeds 2, 3 only, and no run time: {first} has seed 1"
    assert any(text.endswith(note) for text in report.notes)


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_the_longest_of_equal_runs_counts(tmp_path: Path, order: tuple[str, ...]) -> None:
    """A run that stopped early does not, whatever the order of the folders."""
    for name, evaluations in {"a": [0, 5], "b": [0, 5, 7, 9], "c": [0, 5, 7]}.items():
        own = dict.fromkeys((0, 1), evaluations)
        write_run(tmp_path / name, own, variant="online/TD7", steps=4_000_000)
    report = read_report([tmp_path / name for name in order])
    (result,) = report.results
    assert (result.folder.name, result.last_step) == ("b", 1_500_000)
    assert sum("has seeds 0, 1" in note for note in report.notes) == 2


def test_a_run_without_evaluations_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {}, seeds=(0, 1), steps=1_000_000)
    write_run(tmp_path / "b", pair(1000))
    (result,) = read_report([tmp_path]).results
    assert result.folder == tmp_path / "b"


def test_runs_that_were_measured_differently_are_pooled_with_a_note(tmp_path: Path) -> None:
    both = pair(1000)
    write_run(tmp_path / "a", {0: both[0]}, also={"precision": "float32"})
    other: dict[str, Any] = {"precision": "float64", "evaluation_episodes": 1}
    other["versions"] = {"mujoco": "3.5.0", "torch": "2.12.0"}
    write_run(tmp_path / "b", {1: both[1]}, also=other)
    report = read_report([tmp_path])
    assert [result.seeds for result in report.results] == [(0, 1)]
    note = f"pools the seeds of {tmp_path / 'a'} and of {tmp_path / 'b'}, which differ: "
    note += "evaluation_episodes 2 and 1, precision float32 and float64, mujoco 3.4.0 and 3.5.0"
    assert f"online: TD7 on Ant-v4: {note}" in report.notes


def test_runs_of_different_experiments_are_not_pooled(tmp_path: Path) -> None:
    """A row keeps the runs with its settings; a dataset's name, those with the first run's rows."""
    row: Any = {"variant": "design/TD3", "algorithm": "td3"}
    write_run(tmp_path / "a", {0: [1, 2, 3]}, **row, changed={"batch_size": 8})
    for seed in (1, 2):
        write_run(tmp_path / f"b{seed}", {seed: [1, 2, 3]}, **row, changed={"batch_size": 256})
    data: Any = {"algorithm": "iql", "env": "Hopper-v4"}
    for i, sha256 in enumerate(("1", "1", "2")):
        dataset = dataset_fields("/data/Hopper-v4-medium.hdf5", sha256=sha256, self_collected=True)
        write_run(tmp_path / f"c{i}", {i: [1, 2, 3]}, **data, also={"dataset": dataset})
    report = read_report([tmp_path])
    assert [result.seeds for result in report.results] == [(0, 1), (1, 2)]
    note = f"{tmp_path / 'a'} left out: it differs from {tmp_path / 'b1'}: batch_size 256 and 8"
    assert f"design: TD3 on Ant-v4: {note}" in report.notes
    assert not any("differs from its row" in note for note in report.notes)
    note = f"{tmp_path / 'c2'} left out: it differs from {tmp_path / 'c0'}: sha256 1 and 2"
    assert f"offline: IQL on Hopper-v4-medium: {note}" in report.notes

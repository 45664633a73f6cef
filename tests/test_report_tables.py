"""Other tables: every number compared with one computed by hand."""

import shutil
from pathlib import Path

import pytest

from fake_runs import INTERVAL, pair, write_run
from mini_report import record_of, table_of
from td7.reports.bars import speed_bars
from td7.reports.report import Report, read_report
from td7.studies.rows import STUDIES


def test_every_study_has_its_tables(mini_report: Report) -> None:
    assert {table.name for table in mini_report.tables} == {
        *("online-headline", "offline-headline", "online-reaching"),
        *(f"{study}-scores" for study in STUDIES),
        *(f"{study}-speed" for study in STUDIES),
        *(f"{name}-aggregates" for name, study in STUDIES.items() if study.table),
        *("design-losses", "ablation-losses", "ablation-main-losses"),
        *("checkpoints-drops", "extrapolation-values"),
    }


def test_steps_to_the_papers_scores(tmp_path: Path) -> None:
    """TD3 has 10574 at 1M on HalfCheetah; the seeds reach it at 1M, at 1.5M and never."""
    curves = {0: [0, 5000, 10574, 12000], 1: [0, 1000, 9000, 11000], 2: [0, 1, 2, 3]}
    write_run(tmp_path / "run", curves, env="HalfCheetah-v4", seconds=1500.0)
    table = table_of(read_report([tmp_path]), "online-reaching")
    record = record_of(table, paper_step=1_000_000)
    assert (record["score"], record["seeds"], record["seeds_reaching"]) == (10574, 3, 2)
    assert record["median_steps"] == 1_500_000
    assert record["minutes"] == pytest.approx(25)
    (line,) = (line for line in table.lines if line[2].text == "10574, at 1,000,000")
    assert [cell.text for cell in line[3:]] == ["2 of 3", "1,500,000", "25.0"]
    record = record_of(table, paper_step=5_000_000)
    assert (record["seeds_reaching"], record["median_steps"], record["minutes"]) == (0, None, None)
    assert [cell.text for cell in table.lines[-1][3:]] == ["0 of 3", "> 1,500,000", "–"]


def test_checkpoints_and_drops(mini_report: Report) -> None:
    """Of 4 late evaluations of 2 seeds, 6 have a next one; after one of them it is 60% lower."""
    table = table_of(mini_report, "checkpoints-drops")
    for percent in (10, 25, 50):
        record = record_of(table, within_evaluations=1, drop_percent=percent)
        assert record["evaluations"] == 6
        assert record["percent_of_evaluations"] == pytest.approx(100 / 6)
    assert {record["within_evaluations"] for record in table.records} == {
        1
    }  # there are fewer than 5
    score = record_of(table_of(mini_report, "checkpoints-scores"), step=5_000_000)
    assert (score["mean"], score["interval"], score["paper_mean"]) == (100, 0, 4075)


def test_extrapolation(mini_report: Report) -> None:
    record = record_of(table_of(mini_report, "extrapolation-values"), step=1_000_000)
    assert record["return_mean"] == pytest.approx(3000)
    assert record["return_interval"] == pytest.approx(INTERVAL)
    assert record["value_mean"] == pytest.approx(1000)
    assert record["value_interval"] == pytest.approx(196)
    assert record["value_highest"] == 1100
    assert [cell.text for cell in table_of(mini_report, "extrapolation-values").lines[0]] == [
        *("1,000,000", "Buffer size 1M", "No clipping, 1M", "Ant-v4"),
        *("3000 ± 196", "1000 ± 196", "1100"),
    ]


def test_run_times_of_whole_runs(mini_report: Report) -> None:
    """1200 s of two seeds and 1M steps: 20 minutes, 10 per seed; the paper's 110."""
    record = record_of(table_of(mini_report, "online-speed"), row="TD7")
    assert (record["minutes"], record["minutes_per_million_steps"]) == (20, 20)
    assert record["minutes_per_million_steps_and_seed"] == 10
    assert (record["paper_minutes"], record["machine"]) == (110, "2 cores")
    assert record["timed_under_way"] is False


def test_run_times_are_those_of_steps_under_way(mini_report: Report) -> None:
    """300 s of 50,000 steps, each an update of one seed or of both: 6 ms, 100 minutes for 1M."""
    table = table_of(mini_report, "runtime-speed")
    keys = ("row", "seeds", "timed_under_way", "paper_minutes")
    assert [tuple(record[key] for key in keys) for record in table.records] == [
        ("TD3", 2, False, 47),
        ("TD7", 1, True, 110),
        ("TD7", 2, True, 110),
    ]
    whole, one, both = table.records
    assert one["place"] == "HalfCheetah-v4, 1 seed on 2 cores"
    assert both["place"] == whole["place"] == "HalfCheetah-v4, 2 seeds on 2 cores"
    for record in (one, both):
        assert record["milliseconds_per_step"] == pytest.approx(6)
        assert record["minutes_per_million_steps"] == pytest.approx(100)
    assert both["minutes_per_million_steps_and_seed"] == pytest.approx(50)
    assert (both["minutes"], whole["minutes_per_million_steps"]) == (120, 120)
    assert [cell.text for cell in table.lines[2]] == [
        *("TD7", "HalfCheetah-v4", "1,000,000", "2", "120.0", "6.00", "under way"),
        *("100.0", "50.0", "110", "2 cores"),
    ]


def test_run_times_on_datasets_are_of_updates(mini_report: Report) -> None:
    """In the table, its caption and the figure's axis; the page's script takes the record's."""
    table = table_of(mini_report, "offline-speed")
    assert {record["step_unit"] for record in table.records} == {"updates"}
    assert (table.header[2], table.header[5], table.header[7]) == (
        *("updates", "ms per update", "1M updates"),
    )
    assert "per update of all seeds, and the minutes for 1M updates at" in table.caption
    assert "steps" not in table.caption
    (axes,) = speed_bars(table).axes
    assert axes.get_xlabel() == "minutes for 1M updates, all seeds together"
    online = table_of(mini_report, "online-speed")
    assert (online.records[0]["step_unit"], online.header[7]) == ("steps", "1M steps")


def test_run_times_of_another_machine_are_separate(mini_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(mini_runs / "runtime", tmp_path / "here")
    for where, hardware in (("there", {"cores": 16, "gpu": "NVIDIA H200"}), ("again", None)):
        write_run(
            tmp_path / where,
            pair(1000),
            variant="runtime/TD7",
            env="HalfCheetah-v4",
            hardware=hardware,
        )
    report = read_report([tmp_path / "here", tmp_path / "there", tmp_path / "again"])
    rows = [(r["row"], r["machine"], r["seeds"]) for r in table_of(report, "runtime-speed").records]
    assert rows == [
        *(("TD3", "2 cores", 2), ("TD7", "2 cores", 1), ("TD7", "2 cores", 2)),
        ("TD7", "NVIDIA H200, 16 cores", 2),
    ]
    assert any(
        "again left out: " in note and note.endswith("has seeds 0, 1") for note in report.notes
    )

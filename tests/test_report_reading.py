"""Run and study folders: what a report reads, and what it notes as missing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fake_runs import pair, write_run
from mini_report import record_of, table_of
from td7.errors import InputError
from td7.reports.read import read_run
from td7.reports.report import read_report
from td7.reports.result import paper_name
from td7.reports.write import write


def test_the_hash_of_a_file_decides_whether_it_is_d4rls(tmp_path: Path) -> None:
    """In runs that recorded no comparison its name decides."""
    seen = {}
    for d4rl in (None, "", "hopper-medium-v2"):
        path = tmp_path / repr(d4rl)
        options: Any = {"dataset": "/data/hopper_medium-v2.hdf5", "d4rl": d4rl}
        write_run(path, {0: [1.0, 2.0]}, algorithm="iql", env="Hopper-v4", **options)
        (result,) = read_report([path]).results
        seen[d4rl] = result.requested, result.data
    of_d4rl = ("hopper-medium-v2", "D4RL")
    assert seen == {
        None: of_d4rl,
        "": ("hopper_medium-v2", "of other origin"),
        "hopper-medium-v2": of_d4rl,
    }


def test_agents_have_the_papers_names() -> None:
    names = {a: paper_name("online", a) for a in ("td7", "td3", "sac", "tqc", "td3+ofe")}
    assert list(names.values()) == ["TD7", "TD3", "SAC", "TQC", "TD3+OFE"]
    offline = ("cql", "td3+bc", "iql", "xql", "td7")
    names = {a: paper_name("offline", a) for a in offline}
    assert list(names.values()) == ["CQL", "TD3+BC", "IQL", "X-QL", "TD7"]


@pytest.mark.parametrize(
    ("source", "place", "data"),
    [
        ("/data/walker2d_medium_replay-v2.hdf5", "walker2d-medium-replay-v2", "D4RL"),
        ("/data/hopper_random-v2.hdf5", "hopper_random-v2", "D4RL"),
        ("mujoco/hopper/medium-v0", "mujoco/hopper/medium-v0 on Hopper-v4", "Minari"),
        ("/data/Hopper-v4-medium-expert.hdf5", "Hopper-v4-medium-expert", "of other origin"),
    ],
)
def test_the_origin_of_data(tmp_path: Path, source: str, place: str, data: str) -> None:
    env = "Walker2d-v4" if "walker2d" in source else "Hopper-v4"
    (result,) = read_run(write_run(tmp_path / "run", pair(1000), env=env, dataset=source))
    assert (result.study, result.place, result.data) == ("offline", place, data)


def test_self_collected_data_may_have_any_name(tmp_path: Path) -> None:
    source = "/data/hopper_medium-v2.hdf5"
    options: Any = {"env": "Hopper-v4", "dataset": source, "self_collected": True}
    (result,) = read_run(write_run(tmp_path / "run", pair(1000), **options))
    assert (result.place, result.data) == ("hopper_medium-v2", "self-collected")


def test_a_users_algorithm_is_labelled_by_its_name(tmp_path: Path) -> None:
    (result,) = read_run(write_run(tmp_path / "run", pair(1000), algorithm="ddpg"))
    assert (result.study, result.label, result.notes) == ("online", "DDPG", ())


def test_changed_hyperparameters_are_another_row(tmp_path: Path) -> None:
    write_run(tmp_path / "a", pair(1000), changed={"batch_size": 256})
    write_run(tmp_path / "b", pair(2000), changed={"batch_size": 128})
    write_run(
        tmp_path / "c", pair(3), variant="design/TD3", algorithm="td3", changed={"batch_size": 8}
    )
    report = read_report([tmp_path])
    rows = {record["row"] for record in table_of(report, "online-scores").records}
    assert rows == {"TD7", "TD7, batch_size 128"}
    assert "design: TD3 on Ant-v4: differs from its row: batch_size=8" in report.notes


def test_a_missing_seed_is_noted(tmp_path: Path) -> None:
    write_run(tmp_path / "run", pair(1000), seeds=(0, 1, 2))
    report = read_report([tmp_path])
    assert "online: TD7 on Ant-v4: no evaluations of seed 2" in report.notes
    assert not report.results[0].finished
    assert [table.name for table in report.tables if table.kind == "speed"] == []


def test_unequal_lengths_are_noted(tmp_path: Path) -> None:
    returns = pair(1000)
    write_run(tmp_path / "run", {**returns, 1: returns[1][:2]})
    report = read_report([tmp_path])
    notes = "\n".join(report.notes)
    assert "seed 0: 1 of 3 evaluations left out (step 1,000,000), missing in seed 1" in notes
    assert "unfinished: at 500,000 of 1,000,000 steps" in notes
    assert {record["step"] for record in table_of(report, "online-scores").records} == {500_000}


def test_incomplete_rows_are_noted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", pair(1000), steps=2_000_000)
    with (run / "evaluations.csv").open("a") as file:
        file.write("0,1500000,0,7")
    notes = "\n".join(read_report([tmp_path]).notes)
    assert "evaluations.csv: incomplete rows left out: 1" in notes
    with (run / "evaluations.csv").open("a") as file:
        file.write(",10\n")
    notes = "\n".join(read_report([tmp_path]).notes)
    assert "evaluations with fewer than 2 episodes left out: 1" in notes


def test_numbers_that_are_not_finite_are_noted(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {0: [1, 2, math.inf], 1: [1, 2, 3]})
    notes = "\n".join(read_report([tmp_path]).notes)
    assert "evaluations that are not finite left out: 1" in notes


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "x"])
@pytest.mark.parametrize("phase", ["total", "learn", "learn,1,1\nlearn"])
def test_times_that_are_none_are_noted(tmp_path: Path, phase: str, seconds: str) -> None:
    path = write_run(tmp_path / "run", pair(1000))
    other = "" if phase == "total" else "total,2,1\n"
    (path / "timings.csv").write_text(f"phase,seconds,times\n{phase},{seconds},1\n{other}")
    (result,) = read_run(path)
    assert result.seconds is None
    assert "timings.csv does not have the times of the run" in result.notes


def test_what_an_unfinished_study_lacks_is_noted(tmp_path: Path) -> None:
    request = {
        "name": "design",
        "rows": ["TD7 (no checkpoints)", "TD3", "zs'a'"],
        "tasks": ["Ant-v4", "Hopper-v4"],
        "steps": 1_000_000,
        "options": {"seeds": [0, 1]},
    }
    (tmp_path / "study.json").write_text(json.dumps(request))
    (tmp_path / "failed.json").write_text(json.dumps({"05-zs_a--Hopper-v4": "out of memory"}))
    row = "TD7 (no checkpoints)"
    write_run(tmp_path / "00-TD7" / "Ant-v4", pair(8000), variant=f"design/{row}")
    write_run(
        tmp_path / "01-TD3" / "Ant-v4",
        pair(4000, 2),
        variant="design/TD3",
        algorithm="td3",
        steps=1_000_000,
    )
    begun = write_run(
        tmp_path / "05-zs_a" / "Ant-v4", {}, variant="design/zs'a'", seeds=(0, 1), steps=9
    )
    (begun / "evaluations.csv").unlink()
    report = read_report([tmp_path])
    assert set(report.notes) >= {
        "design: 05-zs_a--Hopper-v4 failed: out of memory",
        f"design: {row} on Hopper-v4: not started",
        "design: TD3 on Hopper-v4: not started",
        "design: zs'a' on Hopper-v4: not started",
        "design: zs'a' on Ant-v4: no evaluation yet of a run of 9 steps",
        "design: TD3 on Ant-v4: unfinished: at 500,000 of 1,000,000 steps",
    }
    steps = {(r["row"], r["step"]) for r in table_of(report, "design-scores").records}
    assert steps == {(row, 1_000_000), (row, 500_000), ("TD3", 500_000)}
    # Half way, TD7's seeds are at 3950.5 and 4050.5, TD3's at 3900 and 4100.
    record = record_of(table_of(report, "design-losses"), row="TD3")
    assert record["percent_loss"] == pytest.approx(100 * (1 - 4000 / 4000.5))
    write(report, tmp_path / "out", with_figures=False)
    assert "design: TD3 on Hopper-v4: not started" in (tmp_path / "out/report.md").read_text()


def test_damaged_runs_are_noted_and_the_others_read(tmp_path: Path) -> None:
    write_run(tmp_path / "good", pair(1000))
    bad = write_run(tmp_path / "bad", pair(1000))
    (bad / "config.json").write_text("{")
    worse = write_run(tmp_path / "worse", pair(1000))
    (worse / "evaluations.csv").write_bytes(b"\xff\xfe\x00")
    listed = write_run(tmp_path / "listed", pair(1000), also={"hyperparameters": ["batch_size"]})
    notes = read_report([tmp_path]).notes
    assert any(note.startswith(f"{bad} left out: ") for note in notes)
    assert any(note.startswith(f"{listed} left out: {listed}/config.json") for note in notes)
    assert any(note.startswith(("online: TD7", f"{worse} left out: ")) for note in notes)


def test_a_folder_without_runs_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs"):
        read_report([tmp_path])

"""Tables of scores: every number compared with one computed by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_runs import INTERVAL, pair, write_run
from mini_report import record_of, table_of
from td7.datasets.scores import REFERENCE_RETURNS
from td7.reports import paper
from td7.reports.curves import curves
from td7.reports.report import Report, read_report
from td7.studies.rows import STUDIES

ONLINE = {  # paper's mean and interval at 1M, difference in percent
    "TD7": (16000, 17434, 155, 100 * (16000 / 17434 - 1)),
    "TD3": (11000, 10574, 897, 100 * (11000 / 10574 - 1)),
    "SAC": (15900, 10484, 659, 100 * (15900 / 10484 - 1)),
}


@pytest.mark.parametrize("label", ONLINE)
def test_online_scores(mini_report: Report, label: str) -> None:
    mean, paper_mean, paper_interval, difference = ONLINE[label]
    record = record_of(table_of(mini_report, "online-scores"), row=label, step=1_000_000)
    assert record["place"] == "HalfCheetah-v4"
    assert (record["seeds"], record["quantity"], record["data"]) == (2, "return", "")
    assert record["mean"] == pytest.approx(mean)
    assert record["interval"] == pytest.approx(INTERVAL)
    assert record["student_interval"] == pytest.approx(12.7062 * 100, rel=1e-5)  # t of 1 degree
    assert record["paper_mean"] == paper_mean
    assert record["paper_interval"] == pytest.approx(paper_interval)
    assert record["difference_percent"] == pytest.approx(difference)
    # SAC is 100 below TD7 with sd 141 in either: t = 0.7. TD3 is 5000 below: t = 35.
    assert record["highlighted"] == (label in ("TD7", "SAC"))
    assert record["paper_highlighted"] == (label == "TD7")


def test_welchs_test_against_the_paper(mini_report: Report) -> None:
    """TD3: standard errors of 100 and 897 / 1.96; t by hand, p by integrating its density."""
    record = record_of(table_of(mini_report, "online-scores"), row="TD3", step=1_000_000)
    ours, theirs = 100.0, 897 / 1.96
    t = (11000 - 10574) / math.hypot(ours, theirs)
    freedom = (ours**2 + theirs**2) ** 2 / (ours**4 / 1 + theirs**4 / 9)
    x = np.linspace(0, t, 20001)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    area = np.trapezoid(density, x) * norm / math.sqrt(freedom * math.pi)
    assert record["p"] == pytest.approx(1 - 2 * area, abs=1e-6)


def test_the_papers_numbers_are_highlighted_as_in_its_table(mini_report: Report) -> None:
    lines = table_of(mini_report, "online-scores").lines
    cells = {line[1].text: line[2] for line in lines if line[0].text == "1,000,000"}
    assert cells["TD7"].text == "16000 ± 196"
    assert cells["TD7, paper"].text == "17434 ± 155"
    assert cells["TD7, paper"].bold
    assert not cells["TD3, paper"].bold
    assert cells["TD3, difference"].text.startswith("+4.0%, p 0.")


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {0: [1, 2, 3000]})
    report = read_report([tmp_path])
    record = record_of(table_of(report, "online-scores"), step=1_000_000)
    assert (record["mean"], record["interval"], record["p"]) == (3000, None, None)
    assert table_of(report, "online-scores").lines[0][2].text == "3000"
    assert "online: TD7 on Ant-v4: one seed: no interval and no test" in report.notes


def test_a_study_without_a_table_is_not_compared(mini_report: Report) -> None:
    record = record_of(table_of(mini_report, "beyond-scores"), step=1_000_000)
    assert (record["mean"], record["paper_mean"], record["p"]) == (5000, None, None)


def test_offline_scores(mini_report: Report) -> None:
    """Scores of 50 and 70: 60 ± 19.6; self-collected data are not compared with the paper's."""
    table = table_of(mini_report, "offline-scores")
    d4rl = record_of(table, data="D4RL")
    assert (d4rl["place"], d4rl["quantity"]) == ("hopper-medium-v2", "D4RL score")
    assert d4rl["mean"] == pytest.approx(60)
    assert d4rl["interval"] == pytest.approx(19.6)
    assert (d4rl["paper_mean"], d4rl["step"]) == (63.9, 1_000_000)
    assert d4rl["difference_percent"] == pytest.approx(100 * (60 / 63.9 - 1))
    own = record_of(table, data="self-collected")
    assert own["place"] == "Hopper-v4-medium"
    assert own["mean"] == pytest.approx(60)
    assert own["paper_mean"] is None
    assert "Hopper-v4-medium (self-collected)" in table.header
    assert table.header[0] == "updates"
    assert "Not D4RL's data: Hopper-v4-medium (self-collected)." in table.caption
    assert (d4rl["data_mean"], own["data_mean"]) == (None, pytest.approx(40))
    assert [cell.text for cell in table.lines[0]] == ["", "the data", "–", "40.0"]
    assert "The data: the mean over the dataset's own episodes." in table.caption


def test_returns_are_not_called_scores(tmp_path: Path) -> None:
    """A task without reference returns has no D4RL score."""
    options: Any = {"variant": "offline/IQL", "algorithm": "iql", "every": 1_000_000}
    own: Any = {"env": "Swimmer-v4", "dataset": "/data/own.hdf5", "self_collected": True}
    write_run(tmp_path / "own", pair(1000), **options, **own)
    (result,) = read_report([tmp_path]).results
    assert result.quantity == "return"
    table = table_of(read_report([tmp_path]), "offline-scores")
    assert table.caption.startswith("Mean return of the evaluation")
    assert "score" not in table.caption
    d4rl: Any = {"env": "Hopper-v4", "dataset": "/data/hopper_medium-v2.hdf5"}
    write_run(tmp_path / "d4rl", pair(1000), **options, **d4rl)
    report = read_report([tmp_path])
    table = table_of(report, "offline-scores")
    assert table.caption.startswith("Mean D4RL score of the evaluation")
    assert table.caption.endswith(
        " Returns, because the task has no D4RL score: own on Swimmer-v4."
    )
    figure = curves(report.results, 1)
    labels = [axes.get_ylabel().splitlines()[0] for axes in figure.axes if axes.lines]
    assert labels == ["D4RL score", "return"]


def test_offline_totals(tmp_path: Path) -> None:
    """Nine datasets of 60 ± 19.6: 540 ± 3 * 19.6, compared with the paper's total."""
    for name in STUDIES["offline"].datasets:
        family = {"ha": "HalfCheetah", "ho": "Hopper", "wa": "Walker2d"}[name[:2]]
        low, high = REFERENCE_RETURNS[family]
        scored = {0: [low, low + 0.5 * (high - low)], 1: [low, low + 0.7 * (high - low)]}
        write_run(
            tmp_path / name,
            scored,
            algorithm="td3+bc",
            env=f"{family}-v4",
            dataset=name,
            every=1_000_000,
        )
    record = record_of(table_of(read_report([tmp_path]), "offline-scores"), place="Total")
    assert (record["row"], record["paper_mean"]) == ("TD3+BC", 671.3)
    assert record["mean"] == pytest.approx(540)
    assert record["interval"] == pytest.approx(58.8)


def test_a_task_with_other_arguments_is_another_place(tmp_path: Path) -> None:
    """It is neither pooled with the plain task nor compared with the paper's number for that."""
    write_run(tmp_path / "plain", pair(8000), seconds=1200.0)
    made = {"use_contact_forces": True, "max_episode_steps": 20}
    other = {seed + 2: own for seed, own in pair(90).items()}
    write_run(tmp_path / "short", other, kwargs=made, seconds=1200.0)
    again = {4: [0.0, 30.0, 60.0]}  # in another order
    write_run(tmp_path / "again", again, kwargs=dict(reversed(made.items())))
    report = read_report([tmp_path])
    table = table_of(report, "online-scores")
    place = "Ant-v4 (max_episode_steps=20, use_contact_forces=true)"
    assert table.header[2:] == ("Ant-v4", place)
    plain = record_of(table, place="Ant-v4", step=1_000_000)
    assert (plain["seeds"], plain["mean"], plain["paper_mean"]) == (2, 8000, 8509)
    short = record_of(table, place=place, step=1_000_000)
    assert (short["seeds"], short["mean"], short["paper_mean"]) == (3, 80, None)
    assert {r["place"] for r in table_of(report, "online-headline").records} == {"Ant-v4"}
    assert {r["place"] for r in table_of(report, "online-reaching").records} == {"Ant-v4"}
    write_run(tmp_path / "cheetah/plain", pair(1), env="HalfCheetah-v4")
    write_run(tmp_path / "cheetah/short", pair(1), env="HalfCheetah-v4", kwargs=made)
    speeds = table_of(read_report([tmp_path / "cheetah"]), "online-speed").records
    assert [record["paper_minutes"] for record in speeds] == [110, None]


def test_the_place_of_a_dataset_names_another_task(tmp_path: Path) -> None:
    """The paper's numbers are for v4; tasks with states of the same size are easily confused."""
    options: Any = {"dataset": "/data/hopper_medium-v2.hdf5", "every": 1_000_000}
    for i, env in enumerate(("Hopper-v4", "Hopper-v5", "mine:Hopper-v4", "Walker2d-v4")):
        write_run(tmp_path / env, {i: [0.0, 100.0]}, algorithm="iql", env=env, **options)
    records = table_of(read_report([tmp_path]), "offline-scores").records
    assert [(r["place"], r["paper_mean"]) for r in records] == [
        ("hopper-medium-v2", 63.9),
        ("hopper-medium-v2 on Hopper-v5", None),
        ("hopper-medium-v2 on Walker2d-v4", None),
        ("hopper-medium-v2 on mine:Hopper-v4", None),
    ]


@pytest.mark.parametrize("study", [name for name, study in STUDIES.items() if study.table])
def test_every_number_of_the_paper_has_a_row_and_a_place(study: str) -> None:
    chosen = STUDIES[study]
    there = paper.printed(chosen.table, chosen.steps)
    places = {*(chosen.datasets or chosen.tasks), *(["Total"] if chosen.datasets else [])}
    assert set(there) == {(label, place) for label in chosen.rows for place in places}


@pytest.mark.parametrize(
    ("mean", "text"), [(0.0123, "0.0123"), (0.5, "0.500"), (-8, "-8.00"), (45.678, "45.7")]
)
def test_small_returns_have_three_digits(mean: float, text: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", {0: [0.0, mean]}, env="Own-v0")
    (line, *_) = table_of(read_report([tmp_path]), "online-scores").lines
    assert line[2].text == text


def test_every_cell_has_three_digits(tmp_path: Path) -> None:
    """Of the mean, or of an interval that is larger."""
    for number, mean in enumerate((0.25, 25.0, 2500.0)):
        run, ends = tmp_path / f"{number}", {0: [0.0, mean], 1: [0.0, 1.04 * mean]}
        write_run(run, ends, env="Own-v0", changed={"batch_size": number + 1})
    write_run(tmp_path / "wide", pair(0.01), env="Own-v0", changed={"batch_size": 9})
    lines = table_of(read_report([tmp_path]), "online-scores").lines
    texts = [line[2].text for line in lines if line[0].text == "500,000"]
    assert texts == ["0.255 ± 0.010", "25.5 ± 1.0", "2550 ± 98", "0.5 ± 98.0"]


def test_a_table_without_the_papers_numbers_does_not_mention_them(tmp_path: Path) -> None:
    for label in ("td7", "td3"):
        write_run(tmp_path / label, pair(1000), env="Own-v0", algorithm=label)
    report = read_report([tmp_path])
    assert [table.kind for table in report.tables] == ["scores", "aggregates", "speed"]
    for table in report.tables:
        assert not table.uses_paper
        assert "paper" not in table.header
        assert "Paper:" not in table.caption
    caption = table_of(report, "online-scores").caption
    assert "Difference" not in caption
    assert "Bold" in caption

"""`td7 report`: every number compared with one made by hand; what is missing is said."""

import csv
import html
import json
import math
import re
import shutil
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fake_runs import dataset_fields, write_run
from td7.cli.main import main
from td7.datasets.scores import REFERENCE_RETURNS
from td7.errors import InputError
from td7.report import bars as bars_module
from td7.report import curves as curves_module
from td7.report import figures as figures_module
from td7.report import formats, paper
from td7.report import html as page
from td7.report import read as read_module
from td7.report import result as result_module
from td7.report import style as style_module
from td7.report import write as write_module
from td7.report.tables.table import Table
from td7.statistics import Sample
from td7.studies.rows import STUDIES
from td7.studies.rows.design import PERCENT_LOSS_LABELS

ROOT = Path(__file__).parents[1]
Record = Mapping[str, Any]

# Two seeds at m - 100 and m + 100: sd 100 sqrt(2), so the interval is 1.96 / sqrt(2) * that = 196.
SPREAD, INTERVAL = 100, 196.0


def pair(mean: float, evaluations: int = 3, start: float = 1.0) -> dict[int, list[float]]:
    """Seeds 0 and 1, from `start` to mean ± SPREAD in equal steps."""
    ends = {0: mean - SPREAD, 1: mean + SPREAD}
    return {seed: np.linspace(start, end, evaluations).tolist() for seed, end in ends.items()}


def table_of(found: write_module.Report, name: str) -> Table:
    (table,) = (table for table in found.tables if table.name == name)
    return table


def record_of(table: Table, **wanted: Any) -> Record:
    (record,) = (r for r in table.records if all(r[key] == v for key, v in wanted.items()))
    return record


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something of every study, at the paper's steps."""
    folder = tmp_path_factory.mktemp("mini")
    write_run(folder / "online/td7", pair(16000), env="HalfCheetah-v4", seconds=1200)
    online = {"TD3": 11000, "SAC": 15900}
    for label, mean in online.items():
        write_run(
            folder / "online" / label,
            pair(mean),
            variant=f"online/{label}",
            algorithm=label.lower(),
            env="HalfCheetah-v4",
            seconds=600,
        )
    low, high = REFERENCE_RETURNS["Hopper"]
    scored = {0: [low, low + 0.5 * (high - low)], 1: [low, low + 0.7 * (high - low)]}
    for kind, source in (
        ("d4rl", "/data/hopper_medium-v2.hdf5"),
        ("own", "/data/Hopper-v4-medium.hdf5"),
    ):
        write_run(
            folder / "offline" / kind,
            scored,
            variant="offline/IQL",
            algorithm="iql",
            env="Hopper-v4",
            dataset=source,
            self_collected=kind == "own",
            data_return=low + 0.4 * (high - low) if kind == "own" else None,
            every=1_000_000,
        )
    for study, rows in {
        "design": {
            "TD7 (no checkpoints)": (8000, 4000),
            "zs'a'": (6000, 3600),
            "TD3": (4000, 1000),
        },
        "ablation": {"TD7": (8000, 4000), "No LAP": (7200, 4000)},
    }.items():
        for label, means in rows.items():
            for env, mean in zip(("HalfCheetah-v4", "Ant-v4"), means, strict=True):
                write_run(
                    folder / study / f"{label} {env}".replace("/", "-"),
                    pair(mean),
                    variant=f"{study}/{label}",
                    algorithm=STUDIES[study].rows[label].algorithm,
                    env=env,
                )
    for study, label in (("ablation-main", "TD7"), ("ablation-main", "No SALE")):
        mean = {"TD7": 10000, "No SALE": 9000}[label]
        write_run(
            folder / study / label,
            pair(mean),
            variant=f"{study}/{label}",
            env="Humanoid-v4",
            every=2_500_000,
        )
    # 21 evaluations; the last fifth are those after 4M: 100, 40, 100, 100 and 100, 100, 100, 100.
    early = [100.0] * 17
    write_run(
        folder / "checkpoints/td7",
        {0: [*early, 100, 40, 100, 100], 1: [*early, 100, 100, 100, 100]},
        variant="checkpoints/TD7",
        env="Hopper-v4",
        every=250_000,
    )
    write_run(
        folder / "extrapolation/no clipping",
        pair(3000),
        variant="extrapolation/No clipping, 1M",
        values={0: [0, 400, 900], 1: [0, 400, 1100]},
    )
    # 300 s of 100,000 updates of two seeds: 6 ms a step of both, 100 minutes for 1M.
    for label, learned in (("TD7", (300, 100_000)), ("TD3", None)):
        write_run(
            folder / "runtime/two seeds" / label,
            pair(1000),
            variant=f"runtime/{label}",
            algorithm=label.lower(),
            env="HalfCheetah-v4",
            learned=learned,
            seconds=7200,
        )
    write_run(
        folder / "runtime/one seed",
        {0: [1, 2, 3]},
        variant="runtime/TD7",
        env="HalfCheetah-v4",
        learned=(300, 50_000),
    )
    write_run(
        folder / "beyond/sale",
        pair(5000),
        variant="beyond/SAC + SALE",
        algorithm="sac",
    )
    return folder


@pytest.fixture(scope="module")
def found(mini: Path) -> write_module.Report:
    return write_module.read([mini])


@pytest.fixture(scope="module")
def written(found: write_module.Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    write_module.write(found, out)
    return out


def test_every_study_has_its_tables(found: write_module.Report) -> None:
    assert {table.name for table in found.tables} == {
        *("online-headline", "offline-headline", "online-reaching"),
        *(f"{study}-scores" for study in STUDIES),
        *(f"{study}-speed" for study in STUDIES),
        *(f"{name}-aggregates" for name, study in STUDIES.items() if study.table),
        *("design-losses", "ablation-losses", "ablation-main-losses"),
        *("checkpoints-drops", "extrapolation-values"),
    }


ONLINE = {  # paper's mean and interval at 1M, difference in percent
    "TD7": (16000, 17434, 155, 100 * (16000 / 17434 - 1)),
    "TD3": (11000, 10574, 897, 100 * (11000 / 10574 - 1)),
    "SAC": (15900, 10484, 659, 100 * (15900 / 10484 - 1)),
}


@pytest.mark.parametrize("label", ONLINE)
def test_online_scores(found: write_module.Report, label: str) -> None:
    mean, paper_mean, paper_interval, difference = ONLINE[label]
    record = record_of(table_of(found, "online-scores"), row=label, step=1_000_000)
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


def test_welch_beside_the_paper(found: write_module.Report) -> None:
    """TD3: standard errors are 100 and 897 / 1.96; t by hand, its p-value by numbers."""
    record = record_of(table_of(found, "online-scores"), row="TD3", step=1_000_000)
    ours, theirs = 100.0, 897 / 1.96
    t = (11000 - 10574) / math.hypot(ours, theirs)
    freedom = (ours**2 + theirs**2) ** 2 / (ours**4 / 1 + theirs**4 / 9)
    x = np.linspace(0, t, 20001)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    area = np.trapezoid(density, x) * norm / math.sqrt(freedom * math.pi)
    assert record["p"] == pytest.approx(1 - 2 * area, abs=1e-6)


def test_the_papers_highlighting_is_what_its_table_has(found: write_module.Report) -> None:
    lines = table_of(found, "online-scores").lines
    cells = {(line[1].text, line[2].text): line[3] for line in lines if line[0].text == "1,000,000"}
    assert cells["TD7", "here"].text == "16000 ± 196"
    assert cells["TD7", "paper"].text == "17434 ± 155"
    assert cells["TD7", "paper"].bold
    assert not cells["TD3", "paper"].bold
    assert cells["TD3", "difference"].text.startswith("+4.0%, p 0.")


def test_offline_scores(found: write_module.Report) -> None:
    """Seeds at 50 and 70 of D4RL's 100: 60, interval 19.6; own data are not beside the paper's."""
    table = table_of(found, "offline-scores")
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
    assert [cell.text for cell in table.lines[0]] == ["", "the data", "", "–", "40.0"]
    assert "The data: the mean over their own episodes." in table.caption


def test_returns_are_not_called_scores(tmp_path: Path) -> None:
    """Where a task has no reference returns, D4RL's score cannot be told."""
    options: Any = {"variant": "offline/IQL", "algorithm": "iql", "every": 1_000_000}
    own: Any = {"env": "Swimmer-v4", "dataset": "/data/own.hdf5", "self_collected": True}
    write_run(tmp_path / "own", pair(1000), **options, **own)
    (result,) = write_module.read([tmp_path]).findings.results
    assert result.quantity == "return"
    table = table_of(write_module.read([tmp_path]), "offline-scores")
    assert table.caption.startswith("Mean return of the evaluation")
    assert "score" not in table.caption
    d4rl: Any = {"env": "Hopper-v4", "dataset": "/data/hopper_medium-v2.hdf5"}
    write_run(tmp_path / "d4rl", pair(1000), **options, **d4rl)
    found = write_module.read([tmp_path])
    table = table_of(found, "offline-scores")
    assert table.caption.startswith("Mean D4RL's score of the evaluation")
    assert table.caption.endswith(" Returns, since their tasks have no score: own on Swimmer-v4.")
    figure = curves_module.curves("offline", found.findings.results, 1)
    labels = [axes.get_ylabel().splitlines()[0] for axes in figure.axes if axes.lines]
    assert labels == ["D4RL score", "return"]


def test_offline_totals(tmp_path: Path) -> None:
    """Nine datasets of 60 ± 19.6: 540 ± 3 * 19.6, beside the paper's total."""
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
    record = record_of(table_of(write_module.read([tmp_path]), "offline-scores"), place="Total")
    assert (record["row"], record["paper_mean"]) == ("TD3+BC", 671.3)
    assert record["mean"] == pytest.approx(540)
    assert record["interval"] == pytest.approx(58.8)


LOSSES = [
    # design: seeds are 5900 and 6100 of 8000, 3500 and 3700 of 4000: losses of
    # (26.25 + 12.5) / 2 and (23.75 + 7.5) / 2, whose mean is 17.5 and half distance 1.875
    ("design-losses", "zs'a'", 2, 17.5, 1.96 * 1.875),
    # 3900, 4100 of 8000; 900, 1100 of 4000: (51.25 + 77.5) / 2 and (48.75 + 72.5) / 2
    ("design-losses", "TD3", 2, 62.5, 1.96 * 1.875),
    # 7100, 7300 of 8000; 3900, 4100 of 4000: (11.25 + 2.5) / 2 and (8.75 - 2.5) / 2
    ("ablation-losses", "No LAP", 2, 5.0, 1.96 * 1.875),
    # 8900, 9100 of 10000
    ("ablation-main-losses", "No SALE", 1, 10.0, 1.96),
]


@pytest.mark.parametrize(("name", "label", "tasks", "loss", "interval"), LOSSES)
def test_percent_losses(
    found: write_module.Report, name: str, label: str, tasks: int, loss: float, interval: float
) -> None:
    table = table_of(found, name)
    record = record_of(table, row=label)
    assert (record["tasks"], record["seeds"]) == (tasks, 2)
    assert record["percent_loss"] == pytest.approx(loss)
    assert record["interval"] == pytest.approx(interval)
    (line,) = (line for line in table.lines if line[2].text == label)
    assert line[4].text == f"{loss:.1f} ± {interval:.1f}"


def test_the_papers_percent_losses(found: write_module.Report, tmp_path: Path) -> None:
    """On some tasks, of its means; on all five, as its figure prints them."""
    record = record_of(table_of(found, "ablation-main-losses"), row="No SALE")
    rows = paper.table("ablation_5M").set_index(["variant", "environment"])["mean"]
    own = 100 * (1 - rows["No SALE", "Humanoid"] / rows["TD7", "Humanoid"])
    assert record["paper_percent_loss"] == pytest.approx(own)
    assert record["paper_interval"] is None
    rows = paper.table("design").set_index(["variant", "environment"])["mean"]
    kept = [rows["zs'a'", e] / rows["TD7 (no checkpoints)", e] for e in ("HalfCheetah", "Ant")]
    record = record_of(table_of(found, "design-losses"), row="zs'a'")
    assert record["paper_percent_loss"] == pytest.approx(100 * (1 - sum(kept) / 2))
    assert record["paper_interval"] is None
    for label, mean in (("TD7 (no checkpoints)", 1000), ("No normalization", 900)):
        for task in STUDIES["design"].tasks:
            write_run(tmp_path / label / task, pair(mean), variant=f"design/{label}", env=task)
    record = record_of(
        table_of(write_module.read([tmp_path]), "design-losses"), row="No normalization"
    )
    assert record["paper_percent_loss"] == 8.3
    assert record["paper_interval"] == pytest.approx(5.1)
    assert record["percent_loss"] == pytest.approx(10)


def test_when_the_papers_scores_are_reached(tmp_path: Path) -> None:
    """By hand: TD3's 10574 at 1M on HalfCheetah; seeds get there at 1M and 1.5M, and never."""
    curves = {0: [0, 5000, 10574, 12000], 1: [0, 1000, 9000, 11000], 2: [0, 1, 2, 3]}
    write_run(tmp_path / "run", curves, env="HalfCheetah-v4", seconds=1500.0)
    table = table_of(write_module.read([tmp_path]), "online-reaching")
    record = record_of(table, paper_step=1_000_000)
    assert (record["score"], record["seeds"], record["seeds_reaching"]) == (10574, 3, 2)
    assert record["median_steps"] == 1_500_000
    assert record["minutes"] == pytest.approx(25)
    (line,) = (line for line in table.lines if line[2].text == "10574, at 1,000,000")
    assert [cell.text for cell in line[3:]] == ["2 of 3", "1,500,000", "25.0"]
    record = record_of(table, paper_step=5_000_000)
    assert (record["seeds_reaching"], record["median_steps"], record["minutes"]) == (0, None, None)
    assert [cell.text for cell in table.lines[-1][3:]] == ["0 of 3", "> 1,500,000", "–"]


def test_percent_losses_before_the_papers_steps(tmp_path: Path) -> None:
    """Beside its last ones, and in whose order: by hand, two of three rows have changed places."""
    means = {"TD7 (no checkpoints)": 1000, "TD3": 300, "zs'a'": 200, "s'": 900}
    for label, mean in means.items():
        folder, row = tmp_path / label, f"design/{label}"
        write_run(folder, pair(mean), variant=row, env="HalfCheetah-v4", every=2500)
    table = table_of(write_module.read([tmp_path]), "design-losses")
    record = record_of(table, row="s'")
    rows = paper.table("design").set_index(["variant", "environment"])["mean"]
    own = 100 * (1 - rows["s'", "HalfCheetah"] / rows["TD7 (no checkpoints)", "HalfCheetah"])
    assert (record["step"], record["paper_step"]) == (5000, 1_000_000)
    assert record["paper_percent_loss"] == pytest.approx(own)
    (line,) = (line for line in table.lines if line[2].text == "s'")
    assert line[5].text == f"{own:.1f} at 1,000,000"
    assert table.caption.endswith("here and there: 0.50 at 5,000 steps, over 3 rows.")
    figure = bars_module.loss_bars(table)
    assert "paper, 1,000,000 steps" in [text.get_text() for text in figure.legends[0].texts]


@pytest.mark.parametrize("label", PERCENT_LOSS_LABELS.values())
def test_every_printed_percent_loss_finds_its_row(tmp_path: Path, label: str) -> None:
    for row in ("TD7 (no checkpoints)", label):
        for task in STUDIES["design"].tasks:
            write_run(tmp_path / row / task, pair(1000), variant=f"design/{row}", env=task)
    record = record_of(table_of(write_module.read([tmp_path]), "design-losses"), row=label)
    theirs = {ours: name for name, ours in PERCENT_LOSS_LABELS.items()}[label]
    with (ROOT / "src/td7/report/paper/design_percent_loss.csv").open() as file:
        (row_,) = (row for row in csv.DictReader(file) if row["variant"] == theirs)
    assert record["paper_percent_loss"] == float(row_["mean_percent_loss_1M"])
    assert record["paper_interval"] == pytest.approx(float(row_["ci95_range"]))


@pytest.mark.parametrize("study", [name for name, study in STUDIES.items() if study.table])
def test_every_number_of_the_paper_finds_its_row_and_place(study: str) -> None:
    chosen = STUDIES[study]
    there = paper.printed(chosen.table, chosen.steps)
    places = {*(chosen.datasets or chosen.tasks), *(["Total"] if chosen.datasets else [])}
    assert set(there) == {(label, place) for label in chosen.rows for place in places}


def test_over_all_tasks(found: write_module.Report) -> None:
    """Shares of the paper's TD7 (no checkpoints) at 1M: 17123 on HalfCheetah, 8605 on Ant."""
    table = table_of(found, "design-aggregates")
    record = record_of(table, row="zs'a'")
    shares = np.array([[5900 / 17123, 3500 / 8605], [6100 / 17123, 3700 / 8605]])
    assert record["mean"] == pytest.approx(shares.mean())
    ends = shares.mean(axis=1)
    assert record["interval"] == pytest.approx(1.96 / 2 * (ends[1] - ends[0]))
    assert record["iqm"] == pytest.approx(np.sort(shares.ravel())[1:3].mean())
    assert shares.min() <= record["iqm_low"] < record["iqm"] < record["iqm_high"] <= shares.max()
    assert record["probability_of_improvement"] == 0  # 6100 < 7900, 3700 < 3900
    assert record_of(table, row="TD7 (no checkpoints)")["probability_of_improvement"] is None
    # Online, of four pairs SAC wins one: its 16000 against TD7's 15900. Drawn anew, both of its
    # seeds may be 15800, or 16000 with 15900 twice.
    table = table_of(found, "online-aggregates")
    sac = record_of(table, row="SAC")
    assert sac["probability_of_improvement"] == 0.25
    assert (sac["probability_low"], sac["probability_high"]) == (0, 1)
    assert sac["student_interval"] == pytest.approx(12.7062 / 1.96 * sac["interval"], rel=1e-5)
    (line,) = (line for line in table.lines if line[1].text == "SAC")
    student = f"± {sac['student_interval']:.3f}"
    assert [line[i].text for i in (2, 6, 8)] == ["1 v4", student, "0.25 [0.00, 1.00]"]


def test_means_in_multiples_of_td3(found: write_module.Report, tmp_path: Path) -> None:
    """Of the paper's 10574 on HalfCheetah at 1M; at a step it does not have, of TD3's here."""
    table = table_of(found, "online-aggregates")
    record = record_of(table, row="TD7")
    assert (record["baseline"], record["baseline_tasks"]) == ("TD3", 1)
    assert record["baseline_mean"] == pytest.approx(16000 / 10574)
    assert record["baseline_interval"] == pytest.approx(INTERVAL / 10574)
    assert table.header[7] == "of TD3"
    assert [line[7].text for line in table.lines] == ["1.04 ± 0.02", "1.50 ± 0.02", "1.51 ± 0.02"]
    assert "of TD3" not in table_of(found, "offline-aggregates").header
    for label, env, mean in (
        *(("TD3", "Ant-v4", 400), ("TD3", "Hopper-v4", -1)),
        *(("TD7", "Ant-v4", 800), ("TD7", "Hopper-v4", 500), ("TD7", "Walker2d-v4", 500)),
    ):
        algorithm = label.lower()
        run = tmp_path / f"{label}-{env}"
        write_run(run, {0: [0, mean]}, algorithm=algorithm, env=env, every=70_000)
    table = table_of(write_module.read([tmp_path]), "online-aggregates")
    record = record_of(table, row="TD7")
    assert (record["tasks"], record["baseline_tasks"], record["baseline_mean"]) == (3, 1, 2)
    assert table.lines[-1][7].text == "2.00 on 1"


def test_versions_of_tasks_are_never_averaged(tmp_path: Path) -> None:
    """As by hand above on v4; on what is made otherwise, and on v5, shares of 1/2 and 1/4."""
    others: dict[str, Any] = {
        "v4 (max_episode_steps=20)": {"env": "Ant-v4", "kwargs": {"max_episode_steps": 20}},
        "v5": {"env": "HalfCheetah-v5"},
    }
    for label, means in {
        "TD7 (no checkpoints)": (8000, 4000, 1000, 400),
        "zs'a'": (6000, 3600, 500, 100),
    }.items():
        where = [{"env": "HalfCheetah-v4"}, {"env": "Ant-v4"}, *others.values()]
        for i, (task, mean) in enumerate(zip(where, means, strict=True)):
            write_run(tmp_path / label / str(i), pair(mean), variant=f"design/{label}", **task)
    found = write_module.read([tmp_path])
    for kind in ("aggregates", "losses"):
        records = [r for r in table_of(found, f"design-{kind}").records if r["row"] == "zs'a'"]
        suites = [(record["suite"], record["tasks"]) for record in records]
        assert suites == [("v4", 2), *((suite, 1) for suite in others)]
    shares = table_of(found, "design-aggregates").records
    assert [record["mean"] for record in shares if record["row"] == "zs'a'"] == pytest.approx(
        [(6000 / 17123 + 3600 / 8605) / 2, 0.5, 0.25]
    )
    table = table_of(found, "design-losses")
    assert [record["percent_loss"] for record in table.records] == pytest.approx([17.5, 50, 75])
    there = [record["paper_percent_loss"] for record in table.records]
    assert [number is None for number in there] == [False, True, True]
    assert [line[3].text for line in table.lines] == ["2 v4", *(f"1 {suite}" for suite in others)]
    (axes,) = bars_module.loss_bars(table).axes
    names = [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()]
    assert names == [f"zs'a', {suite}" for suite in ("v4", *others)]


def test_curves_over_tasks_are_of_one_version(tmp_path: Path) -> None:
    for label, shares in {"TD7": (1, 1), "No SALE": (0.5, 0.25)}.items():
        for env, share in zip(("Ant-v4", "Ant-v5"), shares, strict=True):
            run, last = tmp_path / f"{label}-{env}", 1000 * share
            write_run(run, {0: [last, last]}, variant=f"ablation-main/{label}", env=env)
    shown = write_module.read([tmp_path]).findings.results
    figure = curves_module.normalised_curves("ablation-main", shown, 1)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == [
        "mean of 1 task, v4",
        "mean of 1 task, v5",
    ]
    ends = [[float(line.get_ydata()[-1]) for line in axes.lines] for axes in figure.axes]
    assert ends == [[1, 0.5], [1, 0.25]]


def test_data_of_another_origin_are_averaged_apart(tmp_path: Path) -> None:
    low, high = REFERENCE_RETURNS["Hopper"]
    for source, share in (("hopper_medium-v2", 0.5), ("Hopper-v4-medium", 0.7)):
        scored = {0: [low, low + share * (high - low)]}
        options: Any = {"dataset": f"/data/{source}.hdf5", "self_collected": "v4" in source}
        write_run(tmp_path / source, scored, algorithm="iql", env="Hopper-v4", **options)
    records = table_of(write_module.read([tmp_path]), "offline-aggregates").records
    assert [record["suite"] for record in records] == ["v4", "v4, self-collected"]
    assert [record["mean"] for record in records] == pytest.approx([0.5, 0.7])


def test_a_file_is_d4rls_by_its_sha256_where_a_run_says(tmp_path: Path) -> None:
    """Runs of before did not look: of those, by its name."""
    seen = {}
    for d4rl in (None, "", "hopper-medium-v2"):
        path = tmp_path / repr(d4rl)
        options: Any = {"dataset": "/data/hopper_medium-v2.hdf5", "d4rl": d4rl}
        write_run(path, {0: [1.0, 2.0]}, algorithm="iql", env="Hopper-v4", **options)
        (result,) = write_module.read([path]).findings.results
        seen[d4rl] = result.asked, result.data
    of_d4rl = ("hopper-medium-v2", "D4RL")
    assert seen == {
        None: of_d4rl,
        "": ("hopper_medium-v2", "of other origin"),
        "hopper-medium-v2": of_d4rl,
    }


def test_checkpoints_and_drops(found: write_module.Report) -> None:
    """Of 2 seeds and 4 late evaluations 6 have a next one; after one of them it is 60% lower."""
    table = table_of(found, "checkpoints-drops")
    for percent in (10, 25, 50):
        record = record_of(table, within_evaluations=1, drop_percent=percent)
        assert record["evaluations"] == 6
        assert record["percent_of_evaluations"] == pytest.approx(100 / 6)
    assert {record["within_evaluations"] for record in table.records} == {1}  # 5 are too many
    score = record_of(table_of(found, "checkpoints-scores"), step=5_000_000)
    assert (score["mean"], score["interval"], score["paper_mean"]) == (100, 0, 4075)


def test_extrapolation(found: write_module.Report) -> None:
    record = record_of(table_of(found, "extrapolation-values"), step=1_000_000)
    assert record["return_mean"] == pytest.approx(3000)
    assert record["return_interval"] == pytest.approx(INTERVAL)
    assert record["value_mean"] == pytest.approx(1000)
    assert record["value_interval"] == pytest.approx(196)
    assert record["value_highest"] == 1100
    assert [cell.text for cell in table_of(found, "extrapolation-values").lines[0]] == [
        *("1,000,000", "Buffer size 1M", "No clipping, 1M", "Ant-v4"),
        *("3000 ± 196", "1000 ± 196", "1100"),
    ]


def test_speed_of_whole_runs(found: write_module.Report) -> None:
    """1200 s of two seeds and 1M steps: 20 minutes, 10 a seed; the paper's 110."""
    record = record_of(table_of(found, "online-speed"), row="TD7")
    assert (record["minutes"], record["minutes_a_million_steps"]) == (20, 20)
    assert record["minutes_a_million_steps_and_seed"] == 10
    assert (record["paper_minutes"], record["machine"]) == (110, "2 cores")
    assert record["timed_under_way"] is False


def test_run_time_is_that_of_a_step_under_way(found: write_module.Report) -> None:
    """300 s of 50,000 steps, each an update of one seed or of both: 6 ms, 100 minutes for 1M."""
    table = table_of(found, "runtime-speed")
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
        assert record["milliseconds_a_step"] == pytest.approx(6)
        assert record["minutes_a_million_steps"] == pytest.approx(100)
    assert both["minutes_a_million_steps_and_seed"] == pytest.approx(50)
    assert (both["minutes"], whole["minutes_a_million_steps"]) == (120, 120)
    assert [cell.text for cell in table.lines[2]] == [
        *("TD7", "HalfCheetah-v4", "1,000,000", "2", "120.0", "6.00", "under way"),
        *("100.0", "50.0", "110", "2 cores"),
    ]


def test_the_same_seeds_on_another_machine_are_another_run_time(mini: Path, tmp_path: Path) -> None:
    shutil.copytree(mini / "runtime", tmp_path / "here")
    for where, hardware in (("there", {"cores": 16, "gpu": "NVIDIA H200"}), ("again", None)):
        write_run(
            tmp_path / where,
            pair(1000),
            variant="runtime/TD7",
            env="HalfCheetah-v4",
            hardware=hardware,
        )
    found = write_module.read([tmp_path / "here", tmp_path / "there", tmp_path / "again"])
    rows = [(r["row"], r["machine"], r["seeds"]) for r in table_of(found, "runtime-speed").records]
    assert rows == [
        *(("TD3", "2 cores", 2), ("TD7", "2 cores", 1), ("TD7", "2 cores", 2)),
        ("TD7", "NVIDIA H200, 16 cores", 2),
    ]
    assert any("again left out: seeds 0, 1 are in" in note for note in found.findings.notes)


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_of_equal_runs_the_longest_counts(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Not one that was stopped early, whatever the order they are given in."""
    for name, evaluations in {"a": [0, 5], "b": [0, 5, 7, 9], "c": [0, 5, 7]}.items():
        own = dict.fromkeys((0, 1), evaluations)
        write_run(tmp_path / name, own, variant="online/TD7", steps=4_000_000)
    found = write_module.read([tmp_path / name for name in order])
    (result,) = found.findings.results
    assert (result.folder.name, result.last) == ("b", 1_500_000)
    assert sum("left out: seeds 0, 1 are in" in note for note in found.findings.notes) == 2


def test_no_paper_no_comparison(found: write_module.Report) -> None:
    record = record_of(table_of(found, "beyond-scores"), step=1_000_000)
    assert (record["mean"], record["paper_mean"], record["p"]) == (5000, None, None)


# -- the forms agree -----------------------------------------------------------------------------


def _unescaped_markdown(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    return [
        re.sub(r"\\(.)", r"\1", cell.strip().removeprefix("**").removesuffix("**"))
        for cell in cells
    ]


def _unescaped_latex(line: str) -> list[str]:
    found = []
    for cell in re.split(r"(?<!\\)&", line.removesuffix(r" \\")):
        text = re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell.strip())
        for written, plain in (
            (r"$\pm$", "±"),
            ("--", "–"),
            ("$>$", ">"),
            ("$<$", "<"),
            (r"\textbackslash{}", "\\"),
        ):
            text = text.replace(written, plain)
        found.append(re.sub(r"\\([&%$#_{}])", r"\1", text))
    return found


def test_markdown_latex_and_page_have_the_same_cells(
    found: write_module.Report, written: Path
) -> None:
    page = (written / "report.html").read_text()
    for table in found.tables:
        want = [[cell.text for cell in line] for line in table.lines]
        lines = (written / "tables" / f"{table.name}.md").read_text().splitlines()
        assert [_unescaped_markdown(line) for line in lines[2:]] == want
        body = (written / "tables" / f"{table.name}.tex").read_text()
        inside = body.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
        assert [_unescaped_latex(line) for line in inside if line != r"\midrule"] == want
        shown = page.partition(f'<table id="table-{table.name}"')[2].partition("</table>")[0]
        rows = re.findall(r"<tr>(.*?)</tr>", shown)[1:]
        plain = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
        assert [[html.unescape(re.sub("<.*?>", "", c)) for c in row] for row in plain] == want
        bold = [[cell.bold for cell in line] for line in table.lines]
        assert [[c.startswith("<strong>") for c in row] for row in plain] == bold
        assert [["**" in c for c in re.split(r"(?<!\\)\|", x)[1:-1]] for x in lines[2:]] == bold


def test_csv_and_page_have_the_same_numbers(found: write_module.Report, written: Path) -> None:
    page = (written / "report.html").read_text()
    embedded = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    by_name = {table["name"]: table["records"] for table in embedded["tables"]}
    assert set(by_name) == {table.name for table in found.tables}
    for name, records in by_name.items():
        text = (written / "tables" / f"{name}.csv").read_text()
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == len(records)
        for row, record in zip(rows, records, strict=True):
            for key, value in record.items():
                said = "" if value is None else str(value)
                assert row[key] == said or float(row[key]) == value, (name, key)
        (address,) = re.findall(rf'download="{name}\.csv" href="data:[^,]*,([^"]*)"', page)
        assert unquote(address) == text


def test_cells_print_the_records(found: write_module.Report) -> None:
    """Of every table of scores: each mean ± interval stands in the line of its row."""
    for table in found.tables:
        if table.name.endswith("-scores"):
            spec = ".1f" if table.study == "offline" else ".0f"
            for record in table.records:
                column = next(
                    i for i, h in enumerate(table.header) if h.startswith(str(record["place"]))
                )
                (line,) = (
                    line
                    for line in table.lines
                    if [c.text for c in line[:3]] == [f"{record['step']:,}", record["row"], "here"]
                )
                said = f"{record['mean']:{spec}}"
                if record["interval"] is not None:
                    said += f" ± {record['interval']:{spec}}"
                assert line[column].text == said


def test_curves_on_the_page_are_those_of_the_csv(written: Path) -> None:
    page = (written / "report.html").read_text()
    embedded = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    shown = {
        (study["name"], run["row"], run["place"], str(seed), str(step)): value
        for study in embedded["studies"]
        for run in study["curves"]
        for seed, values in zip(run["seeds"], run["values"], strict=True)
        for step, value in zip(run["steps"], values, strict=True)
    }
    rows = list(csv.DictReader((written / "curves.csv").read_text().splitlines()))
    keys = ("study", "row", "place", "seed", "step")
    assert len(rows) == len(shown) > 100
    for row in rows:
        value = shown[tuple(row[key] for key in keys)]  # type: ignore[index]  # five words
        assert value == pytest.approx(float(row["value"]), rel=1e-5)


def test_the_page_needs_nothing_else(written: Path) -> None:
    page = (written / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(", page)
    assert not re.findall(r"\{\{\w+\}\}", page)
    assert 'lang="en"' in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:aria-labelledby="|href="#)([^"]*)"', page):
        assert target in ids


def test_videos_are_within_the_page(tmp_path: Path) -> None:
    """What is too large is said, not shown."""
    run = write_run(tmp_path / "run", pair(1000))
    (run / "policy.mp4").write_bytes(b"film")
    (run / "policy.gif").write_bytes(b"GIF")
    (run / ".film.tmp.mp4").write_bytes(b"being filmed")
    (run / "large.mp4").write_bytes(bytes(result_module.LARGEST_VIDEO + 1))
    found = write_module.read([tmp_path])
    made = page.page(found.findings, found.tables)
    assert re.findall(r'<(video|img) [^>]*src="(data:[^"]*)"', made) == [
        ("img", f"data:image/gif;base64,{b64encode(b'GIF').decode()}"),
        ("video", f"data:video/mp4;base64,{b64encode(b'film').decode()}"),
    ]
    said = "large.mp4 is not on the page: 4.0 MB, of which a page has room for 4.0"
    assert f"online: TD7 on Ant-v4: {said}" in found.findings.notes


def test_all_videos_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_module, "ALL_VIDEOS", 5)
    for name in ("a", "b"):
        run = write_run(tmp_path / name, pair(1000), variant=f"design/{name}")
        (run / "policy.mp4").write_bytes(b"1234")
    found = write_module.read([tmp_path]).findings
    assert [len(result.videos) for result in found.results] == [1, 0]
    assert any("design: b on Ant-v4: policy.mp4 is not on the page" in n for n in found.notes)


def test_value_estimates_on_the_page_are_every_seeds(tmp_path: Path) -> None:
    """From the first evaluation before which all seeds have one."""
    values = {0: [math.nan, 400.0, 900.0], 1: [7.0, 400.0, 1100.0]}
    write_run(tmp_path / "run", pair(3000), values=values)
    found = write_module.read([tmp_path])
    (study,) = page.data(found.findings, found.tables)["studies"]
    (estimates,) = study["estimates"]
    assert estimates["steps"] == (500_000, 1_000_000)
    assert estimates["values"] == [[400, 900], [400, 1100]]
    assert (estimates["seeds"], estimates["quantity"]) == ((0, 1), "value estimate")


@pytest.mark.parametrize("text", ["zs'a'", "a & b", "50%_x", r"\top", "<b>|*`#~^{}$", "</script>"])
def test_labels_are_escaped(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "run", pair(5), variant=f"design/{text}")
    made = write_module.read([tmp_path])
    write_module.write(made, tmp_path / "out", with_figures=False)
    page = (tmp_path / "out/report.html").read_text()
    assert f">{html.escape(text)}</th>" in page
    assert "<b>" not in page.partition("<script")[0]
    embedded_text = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(embedded_text)
    embedded = json.loads(embedded_text)
    assert embedded["tables"][0]["records"][0]["row"] == text
    table = table_of(made, "design-scores")
    assert _unescaped_markdown(formats.as_markdown(table).splitlines()[2])[1] == text
    rows = list(csv.DictReader(formats.as_csv(table).splitlines()))
    assert rows[0]["row"] == text


def test_latex_escapes() -> None:
    assert formats.latex(r"a_b & 5% #1 {x} $ ± – \n ~^") == (
        r"a\_b \& 5\% \#1 \{x\} \$ $\pm$ -- \textbackslash{}n \textasciitilde{}\textasciicircum{}"
    )
    assert formats.latex("zs'a'") == "zs'a'"


def test_long_words_are_wrapped(tmp_path: Path) -> None:
    """Else a table's other columns are beyond the window."""
    changed = {"batch_size": 16, "random_steps": 300, "hidden_dim": 16}
    for name, own in (("td7", {}), ("changed", changed)):
        write_run(tmp_path / name, pair(1000), changed=own)
    found = write_module.read([tmp_path])
    made = page.page(found.findings, found.tables)
    label = "TD7, batch_size=16, random_steps=300, hidden_dim=16"
    assert f'<th scope="row" class="words long">{label}</th>' in made
    assert f'<td class="words long">{label}</td>' in made  # of every run
    assert '<th scope="row" class="words">TD7</th>' in made


# -- figures -------------------------------------------------------------------------------------


def test_figures_exist_and_are_not_empty(written: Path) -> None:
    names = {path.stem for path in (written / "figures").iterdir()}
    assert names == {
        *(f"{study}-curves" for study in STUDIES),
        *(f"{study}-speed" for study in STUDIES),
        *("design-losses", "ablation-losses", "ablation-main-losses", "ablation-main-normalised"),
        *("checkpoints-drops", "checkpoints-seeds", "extrapolation-values"),
        *("online-time-curves", "runtime-time-curves"),
    }
    from matplotlib.image import imread

    for name in names:
        image = imread(written / "figures" / f"{name}.png")[..., :3]
        assert min(image.shape[:2]) > 150
        assert 0.005 < (image.min(axis=2) < 0.9).mean() < 0.7  # some ink, mostly paper
        root = ElementTree.parse(written / "figures" / f"{name}.svg").getroot()
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
        assert (written / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_figures_are_the_same_again(
    found: write_module.Report, written: Path, tmp_path: Path
) -> None:
    drawn = dict(figures_module.figures(found.findings.studies, found.tables))
    for path in figures_module.save(drawn["design-losses"], tmp_path, "design-losses"):
        assert path.read_bytes() == (written / "figures" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("evaluations", "window"), [(3, 1), (11, 2), (49, 9), (50, 10), (61, 10), (201, 10)]
)
def test_curves_are_smoothed_as_the_papers(evaluations: int, window: int, tmp_path: Path) -> None:
    """Over ten evaluations; a short curve over a fifth of itself. SAC's has only begun."""
    climbing = [float(i) for i in range(evaluations)]
    write_run(tmp_path / "td7", {0: climbing, 1: climbing}, variant="online/TD7", every=5000)
    longer = {0: [*climbing, 0.0]}
    write_run(tmp_path / "td3", longer, variant="online/TD3", algorithm="td3", every=5000)
    begun, steps = {0: [0.0, 1.0]}, 5000 * (evaluations - 1)
    write_run(
        tmp_path / "sac", begun, variant="online/SAC", algorithm="sac", every=5000, steps=steps
    )
    found = write_module.read([tmp_path])
    drawn = dict(figures_module.figures(found.findings.studies, found.tables))
    (axes,) = drawn["online-curves"].axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert lines["TD7"][-1] == pytest.approx(evaluations - 1 - (window - 1) / 2)
    assert ("evaluations)" in axes.get_ylabel()) == (window > 1)
    assert f"mean of {window} " in axes.get_ylabel() or window == 1
    (study,) = page.data(found.findings, found.tables)["studies"]
    assert study["window"] == window


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (4, 4), (5, 5), (6, 3), (9, 5), (12, 4)])
def test_panels_fill_their_lines(panels: int, columns: int) -> None:
    _, axes = style_module.panels(panels)
    lines = [one.get_subplotspec().rowspan.start for one in axes]
    assert (len(lines), lines.count(0)) == (panels, columns)


def test_lines_are_means(found: write_module.Report) -> None:
    """SAC from 1 to 15900 in two steps."""
    drawn = dict(figures_module.figures(found.findings.studies, found.tables))
    (axes,) = drawn["online-curves"].axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) == {"TD7", "TD3", "SAC"}
    assert lines["SAC"].get_xdata().tolist() == [0, 500, 1000]
    assert lines["SAC"].get_ydata().tolist() == pytest.approx([1, (1 + 15900) / 2, 15900])
    (timed,) = drawn["online-time-curves"].axes
    minutes = {line.get_label(): line.get_xdata().tolist() for line in timed.lines}
    assert minutes == {"TD7": [0, 10, 20], "TD3": [0, 5, 10], "SAC": [0, 5, 10]}
    both, one = drawn["runtime-time-curves"].axes
    assert one.get_title() == "HalfCheetah-v4, 1 seed on 2 cores"
    minutes = {line.get_label(): line.get_xdata().tolist() for line in both.lines}
    assert minutes == {"TD3": [0, 60, 120], "TD7": [0, pytest.approx(50), pytest.approx(100)]}


def test_single_seeds_and_shares(found: write_module.Report) -> None:
    drawn = dict(figures_module.figures(found.findings.studies, found.tables))
    (axes,) = drawn["checkpoints-seeds"].axes
    first, second = (line.get_ydata().tolist() for line in axes.lines)
    assert (first[-4:], second[-4:]) == ([100, 40, 100, 100], [100, 100, 100, 100])
    (axes,) = drawn["ablation-main-normalised"].axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    # No SALE goes from 1 to 9000 in two steps, TD7 comes to 10000.
    assert lines["No SALE"] == pytest.approx([1e-4, 0.45005, 0.9])


def _marks(axes: Any) -> list[tuple[str, list[float]]]:
    return [(line.get_marker(), line.get_xdata().tolist()) for line in axes.lines]


def test_a_curve_of_one_point_is_marked(tmp_path: Path) -> None:
    """And its interval drawn: a line of one point shows nothing."""
    values = {0: [math.nan, math.nan, 900.0], 1: [math.nan, math.nan, 1100.0]}
    write_run(tmp_path / "ex", pair(1), variant="extrapolation/No clipping, 1M", values=values)
    write_run(tmp_path / "td3", pair(8), variant="checkpoints/TD3", algorithm="td3")
    begun = {0: [900.0], 1: [1100.0]}
    write_run(tmp_path / "td7", begun, variant="checkpoints/TD7", steps=1_000_000)
    drawn = dict(figures_module.figures(write_module.read([tmp_path]).findings.studies, []))
    returns, estimates = drawn["extrapolation-values"].axes
    steps = [0, 500, 1000]
    assert _marks(returns) == [("None", steps)] * 2
    assert _marks(estimates) == [("o", steps)] * 2
    assert estimates.get_xlim() == returns.get_xlim()
    (axes,) = drawn["checkpoints-curves"].axes
    assert sorted(_marks(axes)) == [("None", steps), ("o", [0])]
    edges = [band.get_linewidth().tolist() for band in axes.collections]
    assert sorted(edges) == [[0], [4]]
    (axes,) = drawn["checkpoints-seeds"].axes
    assert _marks(axes) == [("o", [0])] * 2
    evaluations = pd.DataFrame({"step": [0, 0], "seed": [0, 1], "return": [900, 1100]})
    (axes,) = curves_module.learning_curve(evaluations, "td7 on Ant-v4", "environment steps").axes
    assert _marks(axes) == [("o", [0])] * 3


def test_drops_say_within_what(tmp_path: Path) -> None:
    """A panel a task and window that there is; on the page from 0 %, also where all are 0."""
    for env, evaluations in (("Hopper-v4", 21), ("Ant-v4", 41)):
        returns = {0: [100.0] * evaluations}
        write_run(tmp_path / env, returns, variant="checkpoints/TD7", env=env, every=5000)
    found = write_module.read([tmp_path])
    axes = dict(figures_module.figures(found.findings.studies, found.tables))[
        "checkpoints-drops"
    ].axes
    words = [one.get_xlabel().partition("\n")[2] for one in axes]
    assert words == ["within 1 evaluation"] * 2 + ["within 5 evaluations"]
    (study,) = page.data(found.findings, found.tables)["studies"]
    titles = [f"{one.get_title()}, {word}" for one, word in zip(axes, words, strict=True)]
    assert [drop["title"] for drop in study["drops"]] == titles
    assert {(drop["lowest"], drop["highest"]) for drop in study["drops"]} == {(0, 100)}


def test_a_high_legend_leaves_the_panels_their_height(tmp_path: Path) -> None:
    heights = []
    for rows in (1, 6):
        for i in range(rows):
            changed = {"batch_size": i + 1, "random_steps": 300, "hidden_dim": 16, "discount": 0.5}
            write_run(tmp_path / f"{rows}/{i}", pair(1000), changed=changed)
        found = write_module.read([tmp_path / str(rows)])
        drawn = dict(figures_module.figures(found.findings.studies, []))["online-curves"]
        drawn.canvas.draw()
        heights.append(drawn.axes[0].get_window_extent().height)
    assert heights[1] == pytest.approx(heights[0], rel=0.15)


def test_a_single_runs_picture() -> None:
    """Every seed's line, and over the steps that all have, their mean and the paper's interval."""
    steps, seeds, values = [0, 5, 0, 5, 9], [0, 0, 1, 1, 1], [900, 1900, 1100, 2100, 7]
    evaluations = pd.DataFrame({"step": steps, "seed": seeds, "return": values})
    (axes,) = curves_module.learning_curve(evaluations, "td7 on Ant-v4", "environment steps").axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert lines == {
        **{"seed 0": [900, 1900], "seed 1": [1100, 2100, 7]},
        "mean ± 1.96 sd/√n": [1000, 2000],
    }
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).y0 == pytest.approx(1000 - INTERVAL)
    assert (axes.get_title(), axes.get_xlabel()) == ("td7 on Ant-v4", "environment steps")


def test_bars_are_the_tables_numbers(found: write_module.Report) -> None:
    drawn = dict(figures_module.figures(found.findings.studies, found.tables))
    (axes,) = drawn["design-losses"].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TD3", "zs'a'"]
    here, there = axes.containers[0], axes.containers[2]
    assert [bar.get_width() for bar in here] == pytest.approx([62.5, 17.5])
    records = table_of(found, "design-losses").records
    losses = [record["paper_percent_loss"] for record in records]
    assert [bar.get_width() for bar in there] == pytest.approx(losses)
    (axes,) = drawn["runtime-speed"].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TD3", "TD7"]
    both, one, paper_ = axes.containers
    assert [bar.get_width() for bar in both] == pytest.approx([120, 100])
    assert [bar.get_width() for bar in one] == pytest.approx([100])
    assert [bar.get_width() for bar in paper_] == [47, 110]
    assert "100.0, 50.0 a seed" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("study", STUDIES)
def test_lines_of_a_figure_differ_in_grey(study: str) -> None:
    """Rows of one figure have line styles of their own, and the agents the same everywhere."""
    labels = list(STUDIES[study].rows)
    for part, own in figures_module.parts(study, labels).items():
        dashes = [style_module.style(study, label).dashes for label in own]
        assert len(set(dashes)) == len(dashes), part
    assert len({style_module.style(study, label) for label in labels}) == len(labels)
    drawn = [label for own in figures_module.parts(study, labels).values() for label in own]
    assert set(drawn) == set(labels)
    for label in ("TD7", "TD3"):
        assert style_module.style(study, label) == style_module.style("online", label)


def test_rows_of_ones_own_have_looks_of_their_own(tmp_path: Path) -> None:
    """Also where labels are made of the same letters."""
    write_run(tmp_path / "td7", pair(1000))
    for rate in (0.1, 0.01, 0.001, 0.0001):
        write_run(tmp_path / f"{rate}", pair(1000), changed={"learning_rate": rate})
    found = write_module.read([tmp_path]).findings.results
    looks = {result.label: style_module.look_of(result) for result in found}
    assert len(set(looks)) == len(set(looks.values())) == 5
    assert looks["TD7"] == style_module.style("online", "TD7")


# -- what is not as it should be -----------------------------------------------------------------


def test_a_missing_seed_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "run", pair(1000), seeds=(0, 1, 2))
    found = write_module.read([tmp_path])
    said = "online: TD7 on Ant-v4: seed 2 is missing: there are no evaluations"
    assert said in found.findings.notes
    assert not found.findings.results[0].finished
    assert [table.name for table in found.tables if table.kind == "speed"] == []


def test_unequal_lengths_are_said(tmp_path: Path) -> None:
    returns = pair(1000)
    write_run(tmp_path / "run", {**returns, 1: returns[1][:2]})
    found = write_module.read([tmp_path])
    said = "\n".join(found.findings.notes)
    assert "seed 0: 1 of 3 evaluations left out (step 1,000,000), not in seed 1" in said
    assert "unfinished: at 500,000 of 1,000,000 steps" in said
    assert {record["step"] for record in table_of(found, "online-scores").records} == {500_000}


def test_rows_cut_short_are_said(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", pair(1000), steps=2_000_000)
    with (run / "evaluations.csv").open("a") as file:
        file.write("0,1500000,0,7")
    said = "\n".join(write_module.read([tmp_path]).findings.notes)
    assert "evaluations.csv: 1 rows that are cut short left out" in said
    with (run / "evaluations.csv").open("a") as file:
        file.write(",10\n")
    said = "\n".join(write_module.read([tmp_path]).findings.notes)
    assert "1 evaluations of fewer than 2 episodes left out" in said


def test_numbers_that_are_not_finite_are_said(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {0: [1, 2, math.inf], 1: [1, 2, 3]})
    said = "\n".join(write_module.read([tmp_path]).findings.notes)
    assert "1 evaluations that are not finite left out" in said


def test_an_unfinished_study(tmp_path: Path) -> None:
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
    found = write_module.read([tmp_path])
    assert set(found.findings.notes) >= {
        "design: 05-zs_a--Hopper-v4 failed: out of memory",
        f"design: {row} on Hopper-v4: not begun",
        "design: TD3 on Hopper-v4: not begun",
        "design: zs'a' on Hopper-v4: not begun",
        "design: zs'a' on Ant-v4: no evaluation yet, of 9 steps",
        "design: TD3 on Ant-v4: unfinished: at 500,000 of 1,000,000 steps",
    }
    steps = {(r["row"], r["step"]) for r in table_of(found, "design-scores").records}
    assert steps == {(row, 1_000_000), (row, 500_000), ("TD3", 500_000)}
    # Half way, TD7's seeds are at 3950.5 and 4050.5, TD3's at 3900 and 4100.
    record = record_of(table_of(found, "design-losses"), row="TD3")
    assert record["percent_loss"] == pytest.approx(100 * (1 - 4000 / 4000.5))
    write_module.write(found, tmp_path / "out", with_figures=False)
    assert "design: TD3 on Hopper-v4: not begun" in (tmp_path / "out/report.md").read_text()


def test_seeds_in_two_folders_are_one_run(tmp_path: Path) -> None:
    both = pair(1000)
    for seed in both:
        write_run(tmp_path / f"seed-{seed}", {seed: both[seed]})
    write_run(tmp_path / "seed-1-again", {1: [5, 5, 5]})
    found = write_module.read([tmp_path])
    record = record_of(table_of(found, "online-scores"), step=1_000_000)
    assert (record["seeds"], record["mean"]) == (2, 1000)
    said = "\n".join(found.findings.notes)
    assert "are pooled" in said
    assert "seed-1-again left out: seed 1 is in" in said


def test_of_seeds_that_two_runs_share_the_others_count(tmp_path: Path) -> None:
    """Seeds 0 and 1 come to 900 and 1100; the other run's seed 1 is not taken, its 2 and 3 are."""
    first = write_run(tmp_path / "first", pair(1000), values=pair(10))
    own = {1: [5.0, 5.0, 5.0], 2: [0.0, 700.0, 1400.0], 3: [0.0, 300.0, 600.0]}
    write_run(tmp_path / "second", own, values=own)
    found = write_module.read([tmp_path])
    (result,) = found.findings.results
    assert result.seeds == (0, 1, 2, 3)
    last = result.at(1_000_000)
    assert last is not None
    assert last.tolist() == [1000 - SPREAD, 1000 + SPREAD, 1400, 600]
    assert result.values is not None
    assert result.values[:, -1].tolist() == [10 - SPREAD, 10 + SPREAD, 1400, 600]
    assert result.seconds is None  # of seeds 2 and 3 alone it is not known
    told = f"second: only 2, 3 of its seeds, and no run time: seed 1 is in {first}, too"
    assert any(note.endswith(told) for note in found.findings.notes)


def test_changed_hyperparameters_are_another_row(tmp_path: Path) -> None:
    write_run(tmp_path / "a", pair(1000), changed={"batch_size": 256})
    write_run(tmp_path / "b", pair(2000), changed={"batch_size": 128})
    write_run(
        tmp_path / "c", pair(3), variant="design/TD3", algorithm="td3", changed={"batch_size": 8}
    )
    found = write_module.read([tmp_path])
    rows = {record["row"] for record in table_of(found, "online-scores").records}
    assert rows == {"TD7", "TD7, batch_size=128"}
    assert "design: TD3 on Ant-v4: differs from its row: batch_size=8" in found.findings.notes


def test_tasks_that_are_made_otherwise_are_other_places(tmp_path: Path) -> None:
    """Neither pooled with the plain task, nor beside the paper's number of it."""
    write_run(tmp_path / "plain", pair(8000), seconds=1200.0)
    made = {"use_contact_forces": True, "max_episode_steps": 20}
    other = {seed + 2: own for seed, own in pair(90).items()}
    write_run(tmp_path / "short", other, kwargs=made, seconds=1200.0)
    again = {4: [0.0, 30.0, 60.0]}  # in another order
    write_run(tmp_path / "again", again, kwargs=dict(reversed(made.items())))
    found = write_module.read([tmp_path])
    table = table_of(found, "online-scores")
    place = "Ant-v4 (max_episode_steps=20, use_contact_forces=true)"
    assert table.header[3:] == ("Ant-v4", place)
    plain = record_of(table, place="Ant-v4", step=1_000_000)
    assert (plain["seeds"], plain["mean"], plain["paper_mean"]) == (2, 8000, 8509)
    short = record_of(table, place=place, step=1_000_000)
    assert (short["seeds"], short["mean"], short["paper_mean"]) == (3, 80, None)
    assert {r["place"] for r in table_of(found, "online-headline").records} == {"Ant-v4"}
    assert {r["place"] for r in table_of(found, "online-reaching").records} == {"Ant-v4"}
    write_run(tmp_path / "cheetah/plain", pair(1), env="HalfCheetah-v4")
    write_run(tmp_path / "cheetah/short", pair(1), env="HalfCheetah-v4", kwargs=made)
    speeds = table_of(write_module.read([tmp_path / "cheetah"]), "online-speed").records
    assert [record["paper_minutes"] for record in speeds] == [110, None]


def test_a_dataset_is_a_place_on_the_task_it_is_evaluated_on(tmp_path: Path) -> None:
    """The paper's numbers are of v4; walkers and half cheetahs have states of the same size."""
    options: Any = {"dataset": "/data/hopper_medium-v2.hdf5", "every": 1_000_000}
    for i, env in enumerate(("Hopper-v4", "Hopper-v5", "mine:Hopper-v4", "Walker2d-v4")):
        write_run(tmp_path / env, {i: [0.0, 100.0]}, algorithm="iql", env=env, **options)
    records = table_of(write_module.read([tmp_path]), "offline-scores").records
    assert [(r["place"], r["paper_mean"]) for r in records] == [
        ("hopper-medium-v2", 63.9),
        ("hopper-medium-v2 on Hopper-v5", None),
        ("hopper-medium-v2 on Walker2d-v4", None),
        ("hopper-medium-v2 on mine:Hopper-v4", None),
    ]


def test_what_was_measured_otherwise_is_pooled_and_said(tmp_path: Path) -> None:
    both = pair(1000)
    write_run(tmp_path / "a", {0: both[0]}, also={"precision": "float32"})
    other: dict[str, Any] = {"precision": "float64", "evaluation_episodes": 1}
    other["versions"] = {"mujoco": "3.5.0", "torch": "2.12.0"}
    write_run(tmp_path / "b", {1: both[1]}, also=other)
    found = write_module.read([tmp_path])
    assert [result.seeds for result in found.findings.results] == [(0, 1)]
    said = f"seeds of {tmp_path / 'a'} and of {tmp_path / 'b'} are pooled, though they differ: "
    said += "evaluation_episodes 2 and 1, precision float32 and float64, mujoco 3.4.0 and 3.5.0"
    assert f"online: TD7 on Ant-v4: {said}" in found.findings.notes


def test_what_learned_something_else_is_not_pooled(tmp_path: Path) -> None:
    """Of a row, the runs that are as it says; of a dataset's name, the first one's rows."""
    row: Any = {"variant": "design/TD3", "algorithm": "td3"}
    write_run(tmp_path / "a", {0: [1, 2, 3]}, **row, changed={"batch_size": 8})
    for seed in (1, 2):
        write_run(tmp_path / f"b{seed}", {seed: [1, 2, 3]}, **row, changed={"batch_size": 256})
    data: Any = {"algorithm": "iql", "env": "Hopper-v4"}
    for i, sha256 in enumerate(("1", "1", "2")):
        given = dataset_fields("/data/Hopper-v4-medium.hdf5", sha256=sha256, self_collected=True)
        write_run(tmp_path / f"c{i}", {i: [1, 2, 3]}, **data, also={"dataset": given})
    found = write_module.read([tmp_path]).findings
    assert [result.seeds for result in found.results] == [(0, 1), (1, 2)]
    unlike = f"{tmp_path / 'a'} left out: unlike {tmp_path / 'b1'}: batch_size 256 and 8"
    assert f"design: TD3 on Ant-v4: {unlike}" in found.notes
    assert not any("differs from its row" in note for note in found.notes)
    unlike = f"{tmp_path / 'c2'} left out: unlike {tmp_path / 'c0'}: sha256 1 and 2"
    assert f"offline: IQL on Hopper-v4-medium: {unlike}" in found.notes


def test_a_run_without_evaluations_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {}, seeds=(0, 1), steps=1_000_000)
    write_run(tmp_path / "b", pair(1000))
    (result,) = write_module.read([tmp_path]).findings.results
    assert result.folder == tmp_path / "b"


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {0: [1, 2, 3000]})
    found = write_module.read([tmp_path])
    record = record_of(table_of(found, "online-scores"), step=1_000_000)
    assert (record["mean"], record["interval"], record["p"]) == (3000, None, None)
    assert table_of(found, "online-scores").lines[0][3].text == "3000"
    assert "online: TD7 on Ant-v4: one seed: no interval and no test" in found.findings.notes


def test_names_of_agents_are_the_papers() -> None:
    names = {
        a: result_module.paper_name("online", a) for a in ("td7", "td3", "sac", "tqc", "td3+ofe")
    }
    assert list(names.values()) == ["TD7", "TD3", "SAC", "TQC", "TD3+OFE"]
    offline = ("cql", "td3+bc", "iql", "xql", "td7")
    names = {a: result_module.paper_name("offline", a) for a in offline}
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
def test_where_data_come_from(tmp_path: Path, source: str, place: str, data: str) -> None:
    env = "Walker2d-v4" if "walker2d" in source else "Hopper-v4"
    result = read_module.read_run(write_run(tmp_path / "run", pair(1000), env=env, dataset=source))
    assert (result.study, result.place, result.data) == ("offline", place, data)


def test_ones_own_data_are_told_by_the_run_whatever_the_files_name(tmp_path: Path) -> None:
    source = "/data/hopper_medium-v2.hdf5"
    options: Any = {"env": "Hopper-v4", "dataset": source, "self_collected": True}
    result = read_module.read_run(write_run(tmp_path / "run", pair(1000), **options))
    assert (result.place, result.data) == ("hopper_medium-v2", "self-collected")


def test_a_run_of_ones_own_algorithm_is_told_by_its_name(tmp_path: Path) -> None:
    result = read_module.read_run(write_run(tmp_path / "run", pair(1000), algorithm="ddpg"))
    assert (result.study, result.label, result.notes) == ("online", "DDPG", ())


def test_damaged_runs_are_said_and_others_told(tmp_path: Path) -> None:
    write_run(tmp_path / "good", pair(1000))
    bad = write_run(tmp_path / "bad", pair(1000))
    (bad / "config.json").write_text("{")
    worse = write_run(tmp_path / "worse", pair(1000))
    (worse / "evaluations.csv").write_bytes(b"\xff\xfe\x00")
    listed = write_run(tmp_path / "listed", pair(1000), also={"hyperparameters": ["batch_size"]})
    notes = write_module.read([tmp_path]).findings.notes
    assert any(note.startswith(f"{bad}: left out: ") for note in notes)
    assert any(note.startswith(f"{listed}: left out: {listed}/config.json") for note in notes)
    assert any(note.startswith(("online: TD7", f"{worse}: left out: ")) for note in notes)


def _gone(folder: Path) -> list[str]:
    return [str(folder / "nowhere")]


def _empty(folder: Path) -> list[str]:
    return [str(folder)]


def _no_evaluations(folder: Path) -> list[str]:
    run = write_run(folder / "run", {}, seeds=(0,), steps=9)
    return [str(run)]


def _onto_a_file(folder: Path) -> list[str]:
    run = write_run(folder / "run", pair(1))
    (folder / "file").write_text("")
    return [str(run), "--out", str(folder / "file"), "--no-figures"]


def _damaged_request(folder: Path) -> list[str]:
    run = write_run(folder / "run", pair(1))
    (folder / "study.json").write_text("[]")
    return [str(run.parent)]


BAD = {
    _gone: "does not exist",
    _empty: "holds no runs",
    _no_evaluations: "no run has an evaluation yet",
    _onto_a_file: "cannot write to",
    _damaged_request: "is damaged",
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_bad_input_is_one_line(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *make(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert BAD[make] in captured.err
    assert not captured.out


def test_nothing_to_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs"):
        write_module.read([tmp_path])


def test_the_command(
    mini: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: Path
) -> None:
    shutil.copytree(mini / "online", tmp_path / "online")
    before = {p: p.read_bytes() for p in (tmp_path / "online").rglob("*.*")}
    out = tmp_path / "out"
    words = ["report", str(tmp_path / "online"), "--out", str(out), "--no-figures"]
    assert main([*words, "--markdown", str(tmp_path / "page.md")]) == 0
    captured = capsys.readouterr()
    assert "3 runs with 6 seeds in all, 3 of them finished, in 40.0 minutes" in captured.out
    assert f"{out / 'report.html'}" in captured.out
    name = "tables/online-scores.csv"
    assert (out / name).read_text() == (written / name).read_text()
    assert (tmp_path / "page.md").read_text() == (out / "report.md").read_text()
    assert not (out / "figures").exists()
    assert {p: p.read_bytes() for p in (tmp_path / "online").rglob("*.*")} == before


def test_marked_places_of_a_text_are_filled(mini: Path, tmp_path: Path) -> None:
    """And nothing else of it is touched; given again, nothing changes."""
    file = tmp_path / "text.md"
    marks = "<!-- td7 report: online-headline -->\n{}<!-- td7 report -->"
    file.write_text(f"before\n{marks.format('old')}\nafter\n")
    words = ["report", str(mini / "online"), "--out", str(tmp_path / "out"), "--no-figures"]
    for _ in range(2):
        assert main([*words, "--markdown", str(file), str(tmp_path / "new.md")]) == 0
        lines = [
            "| 1,000,000 steps, 2 seeds (paper) | HalfCheetah-v4 |",
            "|---|---|",
            "| TD3 | 11000 ± 196 (10574 ± 897) |",
            "| SAC | 15900 ± 196 (10484 ± 659) |",
            "| TD7 | 16000 ± 196 (17434 ± 155) |",
        ]
        table = "".join(f"{line}\n" for line in lines)
        assert file.read_text() == f"before\n{marks.format(table)}\nafter\n"
        assert (tmp_path / "new.md").read_text() == (tmp_path / "out/report.md").read_text()
    file.write_text(marks.format("old").replace("headline", "headline with caption"))
    assert main([*words, "--markdown", str(file)]) == 0
    caption = (
        "Mean ± 1.96 / sqrt(n) \\* sd over seeds, the paper's interval; in brackets the paper's."
    )
    captioned = f"{caption}\n\n{table}"
    assert file.read_text() == marks.format(captioned).replace("headline", "headline with caption")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Mine\n", "it is no report, and has no places marked for one"),
        ("<!-- td7 report: online-headline -->\n", "or not to the end"),
        (
            "<!-- td7 report: online-headlin -->\n<!-- td7 report -->",
            "unknown table of the report 'online-headlin'; did you mean 'online-headline'?",
        ),
    ],
)
def test_other_texts_are_left_alone(
    mini: Path, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.md"
    file.write_text(text)
    words = ["report", str(mini / "online"), "--out", str(tmp_path / "out"), "--no-figures"]
    assert main([*words, "--markdown", str(file)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert file.read_text() == text


def test_a_report_over_another_leaves_nothing_of_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a/run", pair(1000))
    write_run(tmp_path / "b/run", pair(1000), variant="beyond/SAC", algorithm="sac")
    out = tmp_path / "out"
    write_module.write(write_module.read([tmp_path / "a"]), out, with_figures=False)
    (out / "tables" / "mine.csv").write_text("not the report's")
    write_module.write(write_module.read([tmp_path / "b"]), out, with_figures=False)
    names = {path.name for path in (out / "tables").glob("*.csv")}
    assert names == {"mine.csv", "beyond-scores.csv", "beyond-speed.csv"}


def test_a_thousand_runs(tmp_path: Path) -> None:
    """Fifty rows on twenty tasks, ten seeds each: tables and the page in seconds, little memory."""
    for row in range(50):
        for task in range(20):
            write_run(
                tmp_path / f"{row}/{task}",
                {seed: [1.0] * 20 + [float(row + seed)] for seed in range(10)},
                variant=f"design/row {row}",
                env=f"Task{task}-v0",
                every=50_000,
            )
    begin = time.process_time()
    found = write_module.read([tmp_path])
    write_module.write(found, tmp_path / "out", with_figures=False)
    assert time.process_time() - begin < 20
    records = table_of(found, "design-scores").records
    assert len(records) == 1000
    record = record_of(table_of(found, "design-scores"), row="row 40", place="Task19-v0")
    assert (record["mean"], record["seeds"]) == (44.5, 10)
    tracemalloc.start()  # which takes longer
    read_module.read([tmp_path / f"{row}" for row in range(10)])
    assert tracemalloc.get_traced_memory()[1] < 40e6  # of two hundred runs
    tracemalloc.stop()


# -- the committed results -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    ["docs/results.md", "README.md", "results/online/README.md", "results/offline/README.md"],
)
def test_tables_in_the_texts_are_those_of_the_files(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`td7 report results --markdown docs/results.md README.md …` writes them."""
    monkeypatch.chdir(ROOT)
    text = Path(file).read_text()
    assert write_module.read([Path("results")]).within(text) == text
    assert re.search(r"\| [*]*\d+(\.\d)? ± \d+", text)


def test_the_committed_results_are_the_means_of_their_rows() -> None:
    """By another way than the report's: the csv module and sums."""
    found = write_module.read([ROOT / "results" / "online"])
    for record in table_of(found, "online-scores").records:
        name = f"{str(record['row']).lower()}-{record['place']}"
        folder = ROOT / "results" / "online" / name
        by_seed: dict[str, list[float]] = {}
        with (folder / "evaluations.csv").open() as file:
            for row in csv.DictReader(file):
                if int(row["step"]) == record["step"]:
                    by_seed.setdefault(row["seed"], []).append(float(row["return"]))
        means = [sum(own) / len(own) for own in by_seed.values()]
        assert record["mean"] == pytest.approx(sum(means) / len(means))
        assert record["interval"] == pytest.approx(Sample.of(means).interval)

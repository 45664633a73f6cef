"""Reports and comparisons of runs whose hyperparameters vary: a result per configuration."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import td7
from fake_runs import INTERVAL, pair, write_run, write_varied_run
from mini_report import record_of, table_of
from td7.cli.main import main
from td7.reports.read import read_run
from td7.reports.report import read_report

NAMES = ("learning_rate", "discount")
DEFAULT = (0.0003, 0.99)  # of TD7
MEANS = {
    DEFAULT: 4000.0,
    (0.0003, 0.9): 3000.0,
    (0.0012345, 0.99): 2000.0,
    (0.0012345, 0.9): 1000.0,
}
LABELS = [
    "TD7",
    "TD7, discount 0.9, learning_rate 0.0003",
    "TD7, discount 0.99, learning_rate 0.00123",
    "TD7, discount 0.9, learning_rate 0.00123",
]


def varied(folder: Path, **options: Any) -> Path:
    return write_varied_run(folder, MEANS, NAMES, **options)


def alone(folder: Path, values: tuple[float, float], seeds: tuple[int, ...] = (7, 8)) -> Path:
    """A run of one configuration, with seeds of its own."""
    returns = dict(zip(seeds, pair(MEANS[values]).values(), strict=True))
    return write_run(folder, returns, changed=dict(zip(NAMES, values, strict=True)))


# -- a result per configuration ------------------------------------------------------------------


def test_a_result_per_configuration(tmp_path: Path) -> None:
    results = read_run(varied(tmp_path / "run"))
    assert [result.record.hyperparameters for result in results] == [
        dict(zip(NAMES, values, strict=True)) for values in MEANS
    ]
    for result, mean in zip(results, MEANS.values(), strict=True):
        assert result.seeds == (0, 1)
        assert result.finished
        assert result.curves is not None
        assert result.curves.values[:, -1].tolist() == [mean - 100, mean + 100]


def test_they_are_rows_as_runs_of_their_own_are(tmp_path: Path) -> None:
    """The tables, but for run times, which a configuration does not have."""
    varied(tmp_path / "varied" / "run")
    for i, values in enumerate(MEANS):
        alone(tmp_path / "alone" / str(i), values, (0, 1))
    ours, theirs = (read_report([tmp_path / name]) for name in ("varied", "alone"))
    assert [result.label for result in ours.results] == [result.label for result in theirs.results]
    for kind in ("scores", "aggregates"):
        assert (
            table_of(ours, f"online-{kind}").records == table_of(theirs, f"online-{kind}").records
        )
    assert not any(table.kind == "speed" for table in ours.tables if table.records)


def test_rows_are_named_by_what_differs(tmp_path: Path) -> None:
    report = read_report([varied(tmp_path / "run")])
    labels = {result.label for result in report.results}
    assert labels == set(LABELS)  # the first has the paper's hyperparameters, and its name
    here = record_of(table_of(report, "online-scores"), row="TD7", step=1_000_000)
    assert here["mean"] == 4000
    assert here["interval"] == pytest.approx(INTERVAL)


def test_a_report_counts_runs_and_configurations(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    varied(folder / "varied", seconds=7200.0)
    report = read_report([folder])
    expected = "1 run of 4 configurations (1 finished) with 8 seeds in all, 2.0 hours"
    assert report.summary.startswith(expected)
    assert [line.partition(" on ")[0] for line in report.machines] == ["1 run"]


def test_a_note_on_the_folder_comes_once(tmp_path: Path) -> None:
    path = varied(tmp_path / "run")
    with (path / "evaluations.csv").open("a") as file:
        file.write("0,x,0,1,1,0,0.1,0.1\n")
    notes = read_report([path]).notes
    assert notes.count(f"{path}: evaluations.csv: incomplete rows left out: 1") == 1
    assert len([note for note in notes if "incomplete" in note]) == 1


# -- pooling -------------------------------------------------------------------------------------


def test_the_same_hyperparameters_pool(tmp_path: Path) -> None:
    """As two runs do; seeds that both have are noted."""
    varied(tmp_path / "a")
    alone(tmp_path / "b", (0.0003, 0.9))
    alone(tmp_path / "c", (0.0012345, 0.9), (0, 9))
    report = read_report([tmp_path])
    seeds = {result.label: sorted(result.seeds) for result in report.results}
    assert seeds == dict(zip(LABELS, ([0, 1], [0, 1, 7, 8], [0, 1], [0, 1, 9]), strict=True))
    name, place = LABELS[3], "on Ant-v4"
    adds = f"{tmp_path / 'c'} adds seed 9 only, and no run time: {tmp_path / 'a'} has seed 0"
    assert f"online: {name} {place}: {adds}" in report.notes


def test_configurations_of_a_row_of_a_study(tmp_path: Path) -> None:
    """The configuration that is the row keeps its name; the others say what they change."""
    means = {(0.0003,): 2000.0, (0.001,): 1000.0}
    also = {"hyperparameters": {"learning_rate": 0.0003}}
    path = write_varied_run(
        tmp_path / "run", means, ("learning_rate",), variant="online/TD7", also=also
    )
    report = read_report([path])
    assert [result.label for result in report.results] == ["TD7", "TD7, learning_rate 0.001"]
    assert not any("left out" in note or "differs" in note for note in report.notes)


# -- files of a report ---------------------------------------------------------------------------


def test_a_page_of_many_configurations(tmp_path: Path) -> None:
    means = {(0.0001 * (i + 1), 0.9 + 0.01 * (i % 8)): 100.0 * i for i in range(32)}
    path = write_varied_run(tmp_path / "run", means, NAMES)
    (path / "video.gif").write_bytes(b"GIF89a and so on")
    written = td7.report(path, out=tmp_path / "out", figures=False)
    text = written.page.read_text()
    assert text.count("data:image/gif") == 1  # and not in every row
    assert '<figcaption class="faint">TD7 on Ant-v4 (video.gif)' in text
    assert "1 run of 32 configurations and their commands" in text
    assert "whole run, all seeds together, with all of its configurations." in text
    (data,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.S)
    (study,) = json.loads(data)["studies"]
    assert len(study["curves"]) == 32
    assert {len(curve["seeds"]) for curve in study["curves"]} == {2}
    assert written.page.stat().st_size < 1_000_000


@pytest.mark.draws
def test_figures_have_few_lines_each(tmp_path: Path) -> None:
    means = {(0.0001 * (i + 1),): 100.0 * i for i in range(8)}
    path = write_varied_run(tmp_path / "run", means, ("learning_rate",))
    written = td7.report(path, out=tmp_path / "out")
    figures = [file.name for file in written.files if file.suffix == ".png"]
    assert {"online-curves-others-1.png", "online-curves-others-2.png"} <= set(figures)


# -- compare -------------------------------------------------------------------------------------


def test_configurations_are_compared(tmp_path: Path) -> None:
    table = td7.compare(varied(tmp_path / "run"))
    assert len(table) == 3
    assert set(table["seeds"]) == {2}
    by_row = dict(zip(table["row"], table["mean"], strict=True))
    assert sorted([*by_row.values(), table["baseline_mean"][0]]) == sorted(MEANS.values())


def test_a_configuration_against_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_run(tmp_path / "td3", pair(500), algorithm="td3")
    path = varied(tmp_path / "run")
    assert main(["compare", str(base), str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {row["baseline"] for row in data["comparisons"]} == {"TD3"}
    assert sorted(row["difference"] for row in data["comparisons"]) == [500, 1500, 2500, 3500]
    shared = [note for note in data["notes"] if note.startswith(f"{path}: ")]
    assert len(shared) == len(set(shared))

"""A miniature of every study, from its command to every table and figure of its report.

The task has episodes of five steps with reward 1, so every return is 5.
"""

import csv
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import toys
from td7.algorithms import algorithm
from td7.cli.main import main
from td7.datasets.hdf5 import write_hdf5
from td7.reports.figures import split_rows
from td7.reports.style import FORMATS
from td7.studies.folder import PlannedRun, log_path
from td7.studies.local import run_command
from td7.studies.rows import STUDIES, Row

assert toys  # registers the tasks
STEPS, EVERY, SEEDS = 60, 5, 2
OPTIONS = {
    "--seeds": "0-1",
    "--steps": str(STEPS),
    "--evaluate-every": str(EVERY),
    "--evaluation-episodes": "1",
    "--metrics-every": "10",
    "--engine": "eager",
    "--at-once": "2",
}
SMALL = {
    **{"hidden_dim": 8, "critic_hidden_dim": 8, "embedding_dim": 8, "batch_size": 8},
    **{"target_every": 25, "cloning_updates": 20},
}


@dataclass(frozen=True)
class Miniature:
    rows: tuple[str, ...]  # enough for every table and figure
    tables: tuple[str, ...]
    figures: tuple[str, ...]  # besides curves


MINIATURES = {
    "online": Miniature(
        ("TD7",), ("scores", "aggregates", "drops", "speed"), ("time-curves", "drops")
    ),
    "offline": Miniature(("TD7",), ("scores", "aggregates", "speed"), ()),
    "design": Miniature(
        ("TD7 (no checkpoints)", "zs'a'"), ("scores", "losses", "aggregates", "speed"), ("losses",)
    ),
    "extrapolation": Miniature(("No clipping, 1M",), ("scores", "values", "speed"), ("values",)),
    "checkpoints": Miniature(
        ("TD7", "TD7 (no checkpoints)"),
        ("scores", "losses", "aggregates", "drops", "speed"),
        ("losses", "drops", "seeds"),
    ),
    "ablation-main": Miniature(
        ("TD7", "No SALE"), ("scores", "losses", "aggregates", "speed"), ("losses", "normalised")
    ),
    "ablation": Miniature(
        ("TD7", "No LAP"), ("scores", "losses", "aggregates", "speed"), ("losses",)
    ),
    "runtime": Miniature(("TD3", "TD7"), ("scores", "speed"), ("time-curves",)),
    "beyond": Miniature(("SAC + SALE",), ("scores", "speed"), ()),
}


def write_dataset(path: Path) -> Path:
    """Write a dataset of ten episodes of the task."""
    step = np.tile(np.arange(5.0), 10)
    write_hdf5(
        path,
        observations=step[:, None],
        actions=np.linspace(-1, 1, 50)[:, None],
        next_observations=step[:, None] + 1,
        rewards=np.ones(50),
        terminals=np.zeros(50, bool),
        timeouts=step == 4,
        attributes={"task": "toys:Count-v0", "kind": "random"},
    )
    return path


def run(study: str, rows: tuple[str, ...], folder: Path) -> None:
    """Run the study and its report with their two commands."""
    where, settings = "toys:Count-v0", {**SMALL, "random_steps": 30}
    if study == "offline":
        where, settings = str(write_dataset(folder / "count.hdf5")), SMALL
    # A row takes those settings that it has; the study refuses one that no row has.
    configs = [algorithm(row.algorithm).config for row in _rows(study, rows)]
    names = {name for config in configs for name in config.__dataclass_fields__}
    own = [f"{name}={value}" for name, value in settings.items() if name in names]
    options = [word for pair in OPTIONS.items() for word in pair]
    out = str(folder / "study")
    words = ["study", study, "--env", where, *options, "--set", *own, "--out", out]
    assert main([*words, *(["--rows", *rows] if rows else [])]) == 0
    assert main(["report", out, "--out", str(folder / "report")]) == 0


def _rows(study: str, labels: tuple[str, ...]) -> list[Row]:
    return [row for label, row in STUDIES[study].rows.items() if label in labels or not labels]


def check(study: str, rows: tuple[str, ...], report: Path) -> None:
    wanted = MINIATURES[study]
    tables = {path.stem for path in (report / "tables").glob("*.csv")}
    assert tables == {f"{study}-{kind}" for kind in wanted.tables}
    drawn = [f"curves{part}" for part in split_rows(study, list(rows))]
    for kind in FORMATS:
        figures = {path.stem for path in (report / "figures").glob(f"*.{kind}")}
        assert figures == {f"{study}-{name}" for name in (*drawn, *wanted.figures, "speed")}
    assert (report / "report.html").stat().st_size > 10_000
    curves = _read(report / "curves.csv")
    assert len(curves) == len(rows) * SEEDS * (STEPS // EVERY + 1)
    assert {float(row["value"]) for row in curves} == {5.0}
    scores = [row for row in _read(report / f"tables/{study}-scores.csv") if row["step"] == "60"]
    assert sorted(row["row"] for row in scores) == sorted(rows)
    for row in scores:
        assert (row["mean"], row["interval"], row["seeds"]) == ("5.0", "0.0", "2")
    speed = _read(report / f"tables/{study}-speed.csv")
    assert len(speed) == len(rows)
    for row in speed:
        # A row whose assessments are longer than the miniature has no update to time.
        assert row["timed_under_way"] == "True" or row["row"] not in wanted.rows
        minutes = float(row["milliseconds_per_step"]) * 1e6 / 60e3
        assert float(row["minutes_per_million_steps"]) == pytest.approx(minutes)
        assert 0 < minutes < 1e4
    for kind, column, value in (
        ("losses", "percent_loss", 0.0),
        ("aggregates", "iqm", 1.0),
        ("drops", "percent_of_evaluations", 0.0),
        ("values", "return_mean", 5.0),
    ):
        if kind in wanted.tables:
            records = _read(report / f"tables/{study}-{kind}.csv")
            assert {float(record[column]) for record in records} == {value}
    if "values" in wanted.tables:
        records = _read(report / f"tables/{study}-values.csv")
        assert all(np.isfinite(float(record["value_highest"])) for record in records)


def _read(file: Path) -> list[dict[str, str]]:
    with file.open() as text:
        return list(csv.DictReader(text))


def test_every_study_has_a_miniature() -> None:
    assert set(MINIATURES) == set(STUDIES)


class FinishedProcess:
    """Makes a run of a study by its command, in this process; `poll` finds it finished."""

    def __init__(self, run: PlannedRun, log_folder: Path, cores: set[int]) -> None:
        del cores
        log = log_path(run, log_folder).open("a")
        with log, redirect_stdout(log), redirect_stderr(log):
            self.returncode = main(run_command(run))

    def poll(self) -> int:
        return self.returncode


@pytest.mark.parametrize("study", MINIATURES)
def test_a_miniature(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one study starts processes, as the slow tests do: a start takes longer than a run."""
    if study != "online":
        monkeypatch.setattr("td7.studies.local.start_process", FinishedProcess)
    rows = MINIATURES[study].rows
    run(study, rows, tmp_path)
    check(study, rows, tmp_path / "report")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("study", MINIATURES)
def test_a_miniature_with_every_row(study: str, tmp_path: Path) -> None:
    run(study, (), tmp_path)
    check(study, tuple(STUDIES[study].rows), tmp_path / "report")

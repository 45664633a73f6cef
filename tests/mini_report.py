"""A report of runs of every study, with round numbers that a reader can check."""

from pathlib import Path
from typing import Any

import pytest

from fake_runs import pair, write_run
from td7.datasets.scores import REFERENCE_RETURNS
from td7.reports.report import Report, read_report
from td7.reports.tables.table import Record, Table
from td7.reports.write import write
from td7.studies.rows import STUDIES


def table_of(report: Report, name: str) -> Table:
    (table,) = (table for table in report.tables if table.name == name)
    return table


def record_of(table: Table, **fields: Any) -> Record:
    """The only record with these fields."""
    (record,) = (r for r in table.records if all(r[key] == v for key, v in fields.items()))
    return record


@pytest.fixture(scope="session")
def mini_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture(scope="session")
def mini_report(mini_runs: Path) -> Report:
    return read_report([mini_runs])


@pytest.fixture(scope="session")
def report_folder(mini_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it is written to."""
    out = tmp_path_factory.mktemp("report")
    write(mini_report, out)
    return out

"""Rows of a sweep are named by what differs, in the order of their numbers."""

from pathlib import Path
from typing import Any

import pytest

from fake_runs import pair, write_run
from mini_report import table_of
from td7.reports.report import read_report

OWN_TASK = "InvertedPendulum-v5"  # the paper has no number for it
SMALL = {"hidden_dim": 16, "random_steps": 300}


def _rows(folder: Path) -> list[str]:
    return list(dict.fromkeys(result.label for result in read_report([folder]).results))


def _sweep(folder: Path, *runs: dict[str, Any], **options: Any) -> None:
    for number, changed in enumerate(runs):
        write_run(folder / f"run-{number}", pair(1000), changed=changed, **options)


def test_rows_are_named_by_what_differs(tmp_path: Path) -> None:
    """What all have in common stands in the caption, a default among the values in its row."""
    rates = [{**SMALL, "learning_rate": rate} for rate in (1e-3, 1e-4, 3e-4)]
    _sweep(tmp_path, *rates, env=OWN_TASK)
    report = read_report([tmp_path])
    assert [result.label for result in report.results] == [
        "TD7, learning_rate 0.0001",
        "TD7, learning_rate 0.0003",
        "TD7, learning_rate 0.001",
    ]
    caption = table_of(report, "online-scores").caption
    assert "All rows of TD7: hidden_dim 16, random_steps 300." in caption


def test_rows_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    sizes = [{"batch_size": size} for size in (1024, 64, 256)]
    _sweep(tmp_path, *sizes, env=OWN_TASK)
    assert _rows(tmp_path) == ["TD7, batch_size 64", "TD7, batch_size 256", "TD7, batch_size 1024"]


def test_two_settings_that_differ_are_both_named(tmp_path: Path) -> None:
    grid = [{"learning_rate": r, "batch_size": b} for r in (1e-3, 1e-4) for b in (32, 64)]
    _sweep(tmp_path, *grid, env=OWN_TASK)
    assert len(_rows(tmp_path)) == 4
    assert _rows(tmp_path)[0] == "TD7, learning_rate 0.0001, batch_size 32"


@pytest.mark.parametrize(
    ("rates", "texts"),
    [
        ((0.00012345, 1 / 3), ("0.000123", "0.333")),
        ((0.0001234, 0.00012349), ("0.0001234", "0.0001235")),
    ],
)
def test_numbers_have_three_digits_unless_more_tell_them_apart(
    rates: tuple[float, ...], texts: tuple[str, ...], tmp_path: Path
) -> None:
    _sweep(tmp_path, *({"learning_rate": rate} for rate in rates), env=OWN_TASK)
    assert _rows(tmp_path) == [f"TD7, learning_rate {text}" for text in texts]


def test_only_unchanged_rows_have_the_papers_name(tmp_path: Path) -> None:
    """On a task of the paper, a row by that name is compared with the paper's number."""
    _sweep(tmp_path / "one", SMALL)
    assert _rows(tmp_path / "one") == ["TD7, hidden_dim 16, random_steps 300"]
    _sweep(tmp_path / "two", {}, {"batch_size": 128})
    assert _rows(tmp_path / "two") == ["TD7", "TD7, batch_size 128"]
    _sweep(tmp_path / "own", SMALL, env=OWN_TASK)
    _sweep(tmp_path / "own/td3", SMALL, env=OWN_TASK, algorithm="td3")
    assert _rows(tmp_path / "own") == ["TD3", "TD7"]  # each differs by its algorithm alone
    write_run(tmp_path / "own/row", pair(1), variant="online/TD7", env=OWN_TASK)
    names = ["TD3", "TD7", "TD7, hidden_dim 16, random_steps 300"]
    assert sorted(_rows(tmp_path / "own")) == names


def test_rows_of_a_users_algorithm_are_named_by_what_differs(tmp_path: Path) -> None:
    """Its defaults are not at hand."""
    noisy = [{"batch_size": 8, "noise": noise} for noise in (0.5, 0.25)]
    _sweep(tmp_path, *noisy, algorithm="mine:ddpg")
    assert _rows(tmp_path) == ["DDPG, noise 0.25", "DDPG, noise 0.5"]


def test_normalised_observations_are_named(tmp_path: Path) -> None:
    options: Any = {"env": OWN_TASK, "changed": {"batch_size": 8}}
    write_run(tmp_path / "plain", pair(1), **options)
    write_run(tmp_path / "other", pair(1), also={"normalise_observations": True}, **options)
    assert _rows(tmp_path) == ["TD7", "TD7, normalised observations"]

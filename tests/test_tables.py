"""Tables of a run folder that are damaged, or a stranger's."""

from pathlib import Path

import pytest

import td7
from td7.reports.read import read_run
from td7.runs.tables import LONGEST_HEADER, read_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "episodes.csv"


def refusal(file: Path) -> str:
    with pytest.raises(td7.InputError) as caught:
        read_table(file)
    return str(caught.value)


def test_a_table_without_rows_has_none(table: Path) -> None:
    table.write_text("seed,step,episode,return,length\n")
    assert read_table(table).empty


def test_text_in_place_of_a_number_is_named(table: Path) -> None:
    table.write_text("seed,return\n0,1.5\n0,../../x\n")
    assert refusal(table) == f"{table} is damaged: return must be a number, given '../../x'"


def test_missing_numbers_are_none(table: Path) -> None:
    table.write_text("seed,loss\n0,\n1,nan\n")
    assert read_table(table)["loss"].isna().all()


def test_a_missing_table_is_named(table: Path) -> None:
    assert refusal(table) == f"{table.parent} has no {table.name}"


def test_a_header_of_thousands_of_names_is_refused_at_once(run_copy: Path) -> None:
    """Pandas gives equal names numbers, in a time that grows with their square."""
    header = ",".join("1" * LONGEST_HEADER)
    for name in ("evaluations.csv", "metrics.csv"):
        (run_copy / name).write_text(f"{header}\n")
        message = f"{run_copy / name} is damaged: its header exceeds 10,000 bytes"
        assert refusal(run_copy / name) == message
        with pytest.raises(td7.InputError, match="its header exceeds"):
            read_run(run_copy)


@pytest.mark.parametrize("more", [",9", "," * 100_000])
def test_a_row_longer_than_the_header_is_refused_at_once(table: Path, more: str) -> None:
    """Pandas would take its first fields for an index, shift the others, and need a minute."""
    table.write_text(f"seed,return\n0,1.5{more}\n1,2.5{more}\n")
    assert refusal(table) == f"{table} is damaged: a row has more fields than the header"

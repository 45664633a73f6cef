"""Reading the tables of a run folder, which may be damaged or a stranger's."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from td7.errors import InputError, one_line

LONGEST_HEADER = 10_000  # bytes; pandas takes minutes for thousands of equal names


def read_table(file: Path) -> pd.DataFrame:
    """Return a table of numbers; an InputError says what is wrong with the file."""
    try:
        table = read_columns(file)
    except FileNotFoundError:
        raise InputError(f"{file.parent} has no {file.name}") from None
    except (OSError, ValueError) as error:  # also pandas' errors, and bytes that are not text
        raise InputError(f"{file} is damaged: {one_line(error)}") from None
    for name in table:
        if is_numeric_dtype(table[name]):
            continue
        numbers = pd.to_numeric(table[name], errors="coerce")
        for value in table[name][numbers.isna() & table[name].notna()]:
            raise InputError(f"{file} is damaged: {name} must be a number, given {value!r:.99}")
    return table


def read_columns(
    file: Path, columns: list[str] | Callable[[str], bool] | None = None
) -> pd.DataFrame:
    """Return a table, or some of its columns: by name, all of which it must have, or by a test.

    A ValueError says what is wrong. A row that is longer than the header never
    shifts the columns.
    """
    _check_header(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(file, usecols=columns, index_col=False)
        except pd.errors.ParserWarning:
            raise ValueError("a row has more fields than the header") from None


def _check_header(file: Path) -> None:
    """Raise if the first line of a CSV file is no header of a run's table."""
    try:
        with file.open("rb") as lines:
            header = lines.readline(LONGEST_HEADER + 1)
    except OSError:  # reading the table reports it
        return
    if len(header) > LONGEST_HEADER:
        raise ValueError(f"its header exceeds {LONGEST_HEADER:,} bytes")

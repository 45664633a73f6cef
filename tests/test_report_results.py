"""The committed results and the documents that show them."""

import csv
import re
from pathlib import Path

import pytest

from mini_report import table_of
from td7.reports.markdown import with_tables
from td7.reports.report import read_report
from td7.statistics import Sample

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "file",
    [
        "docs/reproduction/results.md",
        "README.md",
        "results/online/README.md",
        "results/offline/README.md",
    ],
)
def test_tables_in_the_texts_are_those_of_the_files(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`td7 report results --markdown docs/reproduction/results.md README.md …` writes them."""
    monkeypatch.chdir(ROOT)
    text = Path(file).read_text()
    assert with_tables(text, read_report([Path("results")])) == text
    assert re.search(r"\| [*]*\d+(\.\d)? ± \d+", text)


def test_the_committed_results_are_the_means_of_their_rows() -> None:
    """By another way than the report's: the csv module and sums."""
    report = read_report([ROOT / "results" / "online"])
    for record in table_of(report, "online-scores").records:
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

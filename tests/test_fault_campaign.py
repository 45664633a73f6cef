"""The quick form of the fault campaign, and its tables; docs/guides/resume.md has the full form."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from faults.__main__ import main
from faults.campaign import PARTS, Outcome, Report, each_trial, load, markdown, run_part


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all parts, which share samples."""
    return tmp_path_factory.mktemp("faults")


@pytest.mark.parametrize("name", PARTS)
def test_the_quick_form_finds_nothing(name: str, shared: Path) -> None:
    part = load(name)
    report = run_part(part, range(part.QUICK), 0, shared)
    assert report.outcome.failures == []
    assert report.outcome.trials or report.outcome.notes, "nothing took place"
    assert name == part.NAME
    assert part.FULL > part.QUICK


@pytest.fixture
def coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part whose trial 3 fails, and whose trial 4 does not take place."""

    def toss(number: int, _: np.random.Generator, folder: Path) -> str:
        assert list(folder.iterdir()) == []
        assert number != 3, "the coin\nis lost"
        return "" if number == 4 else ["heads", "tails"][number % 2]

    def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
        return each_trial(trials, seed, folder, toss)

    part = SimpleNamespace(NAME="coins", FULL=6, QUICK=2, run=run)
    monkeypatch.setitem(sys.modules, "faults.coins", part)
    monkeypatch.setattr("faults.__main__.PARTS", ("coins",))


@pytest.mark.usefixtures("coins")
def test_the_tables_count_trials_and_name_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "faults.md"
    assert main(["--seed", "7", "--out", str(out)]) == 1
    text = capsys.readouterr().out
    assert out.read_text() == text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["coins", "5", "3", "1", "7", "0.0"] in rows
    assert ["coins", "heads", "2"] in rows
    assert "- `--part coins --seed 7 --trial 3`: the coin is lost" in text


@pytest.mark.usefixtures("coins")
@pytest.mark.parametrize(
    ("words", "trials", "status"),
    [("--quick", 2, 0), ("--trials coins=3", 3, 0), ("--part coins --trial 3", 1, 1)],
)
def test_the_command_line_chooses_trials(
    words: str, trials: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == status
    assert f"coins: {trials} trials" in capsys.readouterr().err


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="no part 'dice'"):
        main(["--part", "dice"])


def test_cells_do_not_break_the_table() -> None:
    outcome = Outcome()
    outcome.add("a | b")
    assert "a \\| b" in markdown([Report("bars", 0, 1.0, outcome)])

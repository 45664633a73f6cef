"""docs/guides/logging.md: its program runs."""

import re
from pathlib import Path

import pytest

from test_structure import ROOT

PAGE = (ROOT / "docs" / "guides" / "logging.md").read_text()


def test_the_listener_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's program with fewer steps; every task ends its episodes soon."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    small = "steps=60, evaluate_every=30, evaluation_episodes=1, quiet=True, "
    assert code.count("steps=5_000, ") == 1
    exec(compile(code.replace("steps=5_000, ", small), "logging.md", "exec"), {})
    first, *evaluations, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("training InvertedPendulum-v5", "finished")
    assert [line.split()[:2] for line in evaluations] == [["0", "0"], ["0", "30"], ["0", "60"]]

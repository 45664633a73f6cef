"""The notebook runs, and its outputs in the repository are those of a whole execution."""

from pathlib import Path

import nbformat
import pytest

import td7
from execute_notebook import FILE, executed, outputs


def test_the_notebook_runs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel of its own, as a user would: the task is known to no module."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
    notebook = executed(tmp_path)
    text = "\n".join(str(output) for output in outputs(notebook))
    (path,) = (tmp_path / "runs").iterdir()
    run = td7.Run(path)
    assert run.config["task"]["id"] == "callable/__main__.Hover"
    assert (path / "learning_curve.png").is_file()
    assert (tmp_path / "report" / "report.html").is_file()
    assert "stderr" not in text  # no warning, no red box
    progress, *_ = (o for o in outputs(notebook) if o.output_type == "display_data")
    assert "100%" in progress.data["text/html"]
    for expected in ("<b>td7 on Hover</b>", "'image/png'", "interval", "dtype=float32"):
        assert expected in text
    mean = run.summary().loc["mean"]
    assert mean["last"] > mean["first"]


def test_the_notebook_was_executed_whole() -> None:
    committed = nbformat.reads(FILE.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]  # it has no types
    counts = [cell.execution_count for cell in committed.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert {output.output_type for output in outputs(committed)}.isdisjoint({"error"})
    assert "/tmp" not in str(outputs(committed))

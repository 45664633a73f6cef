"""Executes the notebook: `make notebook` keeps its new outputs, a test looks at them."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

FILE = Path(__file__).parents[1] / "docs" / "get-started" / "notebook.ipynb"


def executed(folder: Path) -> Any:
    """Return the notebook as a kernel in this folder has executed it; raise if a cell does."""
    notebook = nbformat.reads(FILE.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]  # it has no types
    for cell in notebook.cells:
        cell.metadata = {}
    client = NotebookClient(
        notebook,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    for output in outputs(notebook):
        for kind, content in output.get("data", {}).items():
            if kind == "text/plain":  # without the colours of a terminal
                output.data[kind] = re.sub(r"\x1b\[[\d;]*m", "", content)
    notebook.metadata.pop("language_info", None)  # the version of Python
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """Return the outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        text = nbformat.writes(executed(Path(folder)))  # type: ignore[no-untyped-call]
    FILE.write_text(text, encoding="utf-8")

"""Words and files for tests of the command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from td7.cli.main import main

ENV = ["--env", "toys:Point-v0"]
TINY = ["--steps", "30", "--evaluate-every", "15", "--evaluation-episodes", "2", "--quiet"]

FailingCommand = Callable[..., str]  # the fixture `failing_command`


def all_files(folder: Path) -> dict[str, bytes]:
    """Return everything below a folder: paths, and the contents of files."""
    paths = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must succeed without messages; return what it prints."""
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def run_process(
    *arguments: str | Path, stdout: int = subprocess.PIPE, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run `td7` in a process of its own, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "td7", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )

"""`td7 resume` with damaged folders and faults of the machine."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import td7
import toys
from commands import FailingCommand, all_files
from td7.engine.engine import Engine
from td7.errors import InputError

assert toys  # registers the tasks


def test_a_read_only_run_gets_one_line(
    run_copy: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: str, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(run_copy)):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert failing_command("resume", run_copy) == f"cannot write to {run_copy}: Permission denied"


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_folder_without_a_run_gets_one_line(
    command: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    assert (
        failing_command(command, working_folder)
        == f"{working_folder} holds no run: it has no config.json"
    )
    file = working_folder / "file"
    file.write_text("")
    assert failing_command(command, file) == f"{file} is a file, not a run folder"


@pytest.mark.parametrize("command", ["resume", "evaluate"])
@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '"text"', "\xff"])
def test_a_damaged_config_gets_one_line(
    command: str, text: str, run_copy: Path, failing_command: FailingCommand
) -> None:
    (run_copy / "config.json").write_text(text, encoding="latin-1")
    before = all_files(run_copy)
    assert failing_command(command, run_copy).startswith(f"{run_copy / 'config.json'} ")
    assert all_files(run_copy) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("algorithm", "td8"),
        ("algorithm", None),
        ("algorithm", [1]),
        ("task", "toys:Point-v0"),
        ("task", {"id": 5}),
        ("task", {"name": "toys:Point-v0"}),
        ("seeds", 5),
        ("seeds", "text"),
        ("seeds", ["a"]),
        ("seeds", []),
        ("steps", "many"),
        ("steps", None),
        ("hyperparameters", []),
        ("hyperparameters", {"batch_sise": 5}),
        ("hyperparameters", {"batch_size": "x"}),
        ("evaluate_every", 0),
        ("evaluation_episodes", "x"),
        ("metrics_every", 0),
        ("device", "abacus"),
        ("precision", "float12"),
    ],
)
def test_a_config_with_a_wrong_or_missing_field_gets_one_line(
    field: str, value: object, run_copy: Path, failing_command: FailingCommand
) -> None:
    config = json.loads((run_copy / "config.json").read_text())
    (run_copy / "config.json").write_text(json.dumps({**config, field: value}))
    failing_command("resume", run_copy)
    (run_copy / "config.json").write_text(
        json.dumps({name: v for name, v in config.items() if name != field})
    )
    assert f"{run_copy / 'config.json'} is damaged" in failing_command("resume", run_copy)


def test_a_run_restores_the_settings_of_pytorch(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the engine selects TF32 products, which the caller may not want."""
    build = Engine.__init__

    def fast(*arguments: Any, **options: Any) -> None:
        torch.set_float32_matmul_precision("high")
        build(*arguments, **options)

    monkeypatch.setattr(Engine, "__init__", fast)
    config = json.loads((run_copy / "config.json").read_text())
    (run_copy / "config.json").write_text(json.dumps({**config, "threads": 2}))
    with pytest.raises(InputError, match="threads is 1, given 2"):
        td7.resume(run_copy, quiet=True)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == 1


def test_a_fault_of_the_disk_is_status_1(
    run_copy: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    assert "Input/output error" in failing_command("resume", run_copy, "--quiet", status=1)

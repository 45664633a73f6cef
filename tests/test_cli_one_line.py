"""Bad words, outputs that fail and folders that are gone: one line, and nothing is written."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import ENV, TINY, FailingCommand, all_files
from folders import SMALL, words
from td7.cli.main import main
from td7.errors import say

DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 6000
TRAIN = ["train", *ENV, "--steps", "40"]
BENCH = ["bench", "--env", "toys:Point-v0"]
FETCH = ["dataset", "fetch", "hopper-medium-v2"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*TRAIN, "--seeds", LONG], "--seeds takes a whole number, given '9999"),
        ([*TRAIN, "--seeds", f"0-{LONG}"], "--seeds takes a whole number, given '9999"),
        ([*TRAIN, "--threads", "1e18"], "--threads 1000000000000000000 must be at most 1000"),
        ([*TRAIN, "--threads", LONG], "--threads takes auto or a whole number"),
        ([*TRAIN, "--processes", "1e18"], "--processes 1000000000000000000 for 1 seed(s)"),
        ([*TRAIN, "--env-kwargs", f"x={DEEP}"], "--env-kwargs: x is nested more than 50 levels"),
        (
            [*TRAIN, "--env-kwargs", f"x={'[' * 51}{']' * 51}"],
            "--env-kwargs: x is nested more than 50 levels deep",
        ),
        ([*TRAIN, "--set", f"batch_size={DEEP}"], "batch_size takes a whole number, given '[[["),
        ([*TRAIN, "--set", "batch_size=1e18"], "batch_size=1000000000000000000 must be at most"),
        ([*TRAIN, "--set", "hidden_dim=1e18"], "td7 cannot be built with these hyperparameters"),
        ([*TRAIN, "--set", "hidden_dim=1e9"], "td7 cannot be built with these hyperparameters"),
        ([*TRAIN, "--evaluation-episodes", "1e9"], "must be at most 1e+06"),
        ([*TRAIN, "--out", f"new/{'x' * 256}"], "File name too long"),
        ([*TRAIN, "--out", "x" * 256], "File name too long"),
        ([*TRAIN, "--out", f"new/{'é' * 128}"], "File name too long"),
        ([*FETCH, "--out", f"new/{'x' * 256}"], "File name too long"),
        ([*BENCH, "--out", f"new/{'x' * 256}"], "File name too long"),
        (
            [*BENCH, "--rows", "1e30"],
            "--rows 1000000000000000019884624838656 must be at most 1e+12",
        ),
        ([*BENCH, "--rows", "1e12"], "--rows 1,000,000,000,000 of 10 seed(s) take"),
        ([*BENCH, "--members", "1e9"], "--members 1000000000 must be at most 1000"),
        ([*BENCH, "--seconds", "1e300"], "--seconds 1e+300 must be at most 86400"),
        ([*FETCH, "--url", "http://a\nb"], "'http://a\\nb' is not an HTTP address"),
        (["resume", "x" * 300], "File name too long"),
        (["evaluate", "run/policies/²"], "run/policies/² does not exist"),
        (["evaluate", f"run/policies/{LONG}"], "File name too long"),
        ([*FETCH, "--url", "http://a b"], "'http://a b' is not an HTTP address"),
        ([*FETCH, "--url", f"http://{'a' * 300}"], "is not an HTTP address"),
        (["export", "a" * 100_000], "aaa … aaa"),
        (["list", "\x1b[31mred\u202e"], "unknown list '\\x1b[31mred\\u202e'"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_bad_word_is_one_line(
    command: list[str], message: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    line = failing_command(*command)
    assert message in line.replace("a" * 497, "aaa")
    assert line.isprintable()
    assert len(line) < 5_000
    assert all_files(working_folder) == {}


def test_a_report_is_not_written_if_its_markdown_cannot_be(
    finished_run: Path, working_folder: Path, failing_command: FailingCommand
) -> None:
    os.mkfifo(working_folder / "pipe")
    for file, reason in [("pipe", "it is not a file"), ("new/x.md", "No such file or directory")]:
        line = failing_command("report", finished_run, "--markdown", file)
        assert line == f"cannot write to {file}: {reason}" or line.endswith(reason)
    assert list(all_files(working_folder)) == [str(working_folder / "pipe")]


def test_a_deleted_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_command: FailingCommand
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr(sys, "path", ["elsewhere"])
    assert failing_command("list", "tasks") == (
        "the working folder was deleted; change to another one"
    )


@pytest.mark.parametrize("command", [["list", "studies"], ["--help"]])
def test_an_output_that_is_full_is_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(command) == 1
        full.flush()  # Python does so at exit
        os.write(full.fileno(), b"x")  # to nothing
    assert capfd.readouterr().err == (
        "td7: standard output cannot be written: No space left on device\n"
    )


def test_closed_outputs_and_a_full_standard_error_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    say("nobody reads this", Full())
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["list", "studies", "nothing"]) == 2
    for stream in (sys.stdout, sys.stderr):
        stream.close()


def test_an_encoding_without_a_character_shows_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(["export", "--help"]) == 0
        stdout.flush()
        assert "\\u" in raw.getvalue().decode("ascii")


def test_event_files_on_a_full_disk_do_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard's own writer has a thread, which prints a traceback."""
    open_file = Path.open

    def full(path: Path, *mode: Any, **options: Any) -> Any:
        name = "/dev/full" if path.name.startswith("events.out") else path
        return open_file(Path(name), *mode, **options)

    monkeypatch.setattr(Path, "open", full)
    run = tmp_path / "run"
    command = ["train", *ENV, *TINY, "--tensorboard", "--out", str(run), "--set", *words(SMALL)]
    assert main(command) == 0
    assert capfd.readouterr().err.splitlines()[1:] == [
        f"{run / 'tensorboard'} cannot be written: No space left on device; "
        "the run continues without event files"
    ]
    assert (run / "finished.json").exists()

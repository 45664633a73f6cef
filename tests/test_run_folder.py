"""Run folders: one writer, nothing outside them, one line for whatever is wrong in them."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Barrier

import pytest

import td7
from commands import ENV, TINY, FailingCommand, all_files
from folders import SMALL, words
from td7.cli.main import main
from td7.errors import InputError
from td7.files import FileDigest, FolderLock, write, write_sealed
from td7.runs.folder import create_folder
from td7.runs.record import FINISHED

# -- one writer ------------------------------------------------------------------------------------


def test_one_of_many_processes_creates_a_run(tmp_path: Path) -> None:
    """Locks belong to open files, so threads compete for them as processes do."""
    together = Barrier(4)

    def create(path: Path, number: int) -> str | FolderLock:
        together.wait()
        try:
            return create_folder(path, {"number": number})
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(4) as threads:
        for i in range(10):
            path = tmp_path / str(i)
            results = list(threads.map(create, [path] * 4, range(4)))
            (winner,) = [n for n, result in enumerate(results) if isinstance(result, FolderLock)]
            assert json.loads((path / "config.json").read_text()) == {"number": winner}
            assert set(results) - {results[winner]} <= {
                f"{path} is in use by another td7 process",
                f"{path} already holds a run; `td7 resume {path}` continues it",
            }
            assert {".lock", "config.json"} <= {file.name for file in path.iterdir()}
            results[winner].close()  # type: ignore[union-attr]  # it is a lock


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    """Even if it is killed, so that a folder never stays locked."""
    script = """
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from td7.files import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match=f"{tmp_path} is in use by another td7 process"):
            FolderLock(tmp_path)
        process.kill()
    FolderLock(tmp_path).close()


def test_a_new_run_keeps_its_lock_until_it_ends(tmp_path: Path) -> None:
    def listener(table: str, rows: object) -> None:
        with pytest.raises(InputError, match="run is in use by another td7 process"):
            FolderLock(tmp_path / "run")

    td7.train(
        env="toys:Point-v0",
        steps=40,
        set=SMALL,
        quiet=True,
        listener=listener,
        out=str(tmp_path / "run"),
    )
    FolderLock(tmp_path / "run").close()


def test_a_run_that_was_killed_before_its_config_can_begin(
    working_folder: Path, failing_command: FailingCommand
) -> None:
    run = working_folder / "run"
    run.mkdir()
    for name in (".lock", "config.mac", ".config.mac.tmp"):
        (run / name).touch()
    (run / ".config.json.tmp").write_text('{"algor')
    before = all_files(run)
    assert (
        failing_command("resume", "run")
        == "run holds a run that never began; start it with `td7 train … --out run`"
    )
    assert all_files(run) == before
    assert main(["train", *ENV, *TINY, "--out", "run", "--set", *words(SMALL)]) == 0
    assert (run / "finished.json").exists()
    assert not (run / ".config.json.tmp").exists()


# -- paths -----------------------------------------------------------------------------------------


@pytest.mark.draws
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_task_may_change_the_working_folder(
    checkpoints: str,
    working_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    task = ["--env", "toys:Wanderer-v0", "--env-kwargs", f"to={elsewhere}"]
    settings = words({**SMALL, "checkpoints": checkpoints})
    options = ["--steps", "60", "--evaluate-every", "20", "--keep-policies", "20"]
    options += ["--snapshot-every", "1e-4", "--out", "run", "--set", *settings]
    assert main(["train", *task, *options]) == 0
    assert "\nall files       run\n" in capsys.readouterr().out
    assert main(["resume", "run", "--steps", "80", "--quiet"]) == 0
    record = ["dataset", "record", "--run", "run", "--rows", "30"]
    for command in (
        ["evaluate", "run"],
        ["evaluate", "run", "--episodes", "1", "--video", "film.gif"],
        [*record, "--kind", "medium-expert", "--out", "data.hdf5"],
        ["train", "td3+bc", "--dataset", "data.hdf5", *task, *TINY, "--out", "offline"],
    ):
        assert main(command) == 0
    assert Path.cwd() == working_folder
    names = ("run/learning_curve.png", "film.gif", "data.hdf5", "offline/finished.json")
    assert [name for name in names if not Path(name).exists()] == []
    assert all_files(elsewhere) == {}


# -- links -----------------------------------------------------------------------------------------


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def fifo(path: Path, target: Path) -> None:
    del target
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("make", [link, fifo])
@pytest.mark.parametrize(
    "name",
    [
        *("config.json", ".lock", ".evaluations.csv.tmp", "learning_curve.png", "film.mp4"),
        *("snapshot/replay/stray", "policy/seed-0.safetensors", "policies"),
    ],
)
def test_links_and_special_files_are_refused(
    name: str,
    make: Callable[[Path, Path], None],
    run_copy: Path,
    tmp_path: Path,
    failing_command: FailingCommand,
) -> None:
    """Whatever a stranger's folder holds, nothing outside it is read, written or deleted."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    make(run_copy / name, outside / "file")
    kind = "a link" if make is link else "neither a file nor a folder"
    reason = f"{run_copy / name} is {kind}, which td7 does not follow, read or replace"
    report = tmp_path / "report"
    before = all_files(outside)
    for command in (
        ["resume", run_copy],
        ["evaluate", run_copy, "--seed", "0"],
        ["export", run_copy, "--seed", "0"],
        ["dataset", "record", "--run", run_copy, "--kind", "expert", "--rows", "9"],
        ["report", run_copy, "--out", report],
    ):
        assert reason in failing_command(*command)
    with pytest.raises(InputError, match=name):
        td7.load(run_copy, 0)
    assert all_files(outside) == before
    assert not report.exists()


@pytest.mark.draws
@pytest.mark.parametrize("name", ["learning_curve.png", "finished.json", ".timings.csv.tmp"])
def test_what_a_hard_link_shares_stays_as_it_is(run_copy: Path, tmp_path: Path, name: str) -> None:
    shared = tmp_path / "shared"
    shared.write_text("mine")
    (run_copy / name).unlink(missing_ok=True)
    (run_copy / name).hardlink_to(shared)
    if name == "finished.json":
        shared.write_bytes(b'{"steps": 30}')
    before = shared.read_bytes()
    assert main(["resume", str(run_copy), "--quiet"]) == 0
    assert shared.read_bytes() == before


def test_the_run_folder_itself_may_be_a_link(run_copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run_copy)
    td7.resume(tmp_path / "link", quiet=True)
    assert td7.load(tmp_path / "link", 0).spec.task.id == "toys:Point-v0"


def test_a_file_is_replaced_and_not_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in ("notes.txt", ".notes.txt.tmp"):
        outside.write_text("mine")
        folder = tmp_path / f"in {name}"
        folder.mkdir()
        (folder / name).symlink_to(outside)
        write(folder / "notes.txt", b"new")
        assert outside.read_text() == "mine"
        assert (folder / "notes.txt").read_text() == "new"
        assert [file.name for file in folder.iterdir()] == ["notes.txt"]


def test_hard_links_are_not_written_through(run_copy: Path, tmp_path: Path) -> None:
    """A copy made with `cp -al` keeps what it holds when the run continues."""
    copy = tmp_path / "copy"
    shutil.copytree(run_copy, copy, copy_function=os.link)
    before = all_files(copy)
    td7.resume(run_copy, steps=60, quiet=True)
    assert all_files(copy) == before


# -- checksums -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "evaluations.csv", "metrics.csv", "timings.csv"])
def test_a_file_that_was_changed_after_the_end_is_named(
    run_copy: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run is worth what its files say, so nobody should read other numbers unawares."""
    commands = (
        ["report", str(run_copy), "--no-figures", "--out", str(tmp_path / "report")],
        ["evaluate", str(run_copy), "--episodes", "1"],
    )
    for command in commands:
        assert main(command) == 0
    assert "was changed" not in capsys.readouterr().err
    file = run_copy / name
    file.write_text(file.read_text() + "\n")
    for command in commands:
        assert main(command) == 0
        assert f"{name} was changed after the run had ended\n" in capsys.readouterr().err


def test_a_file_that_was_removed_after_the_end_needs_no_note(
    run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reader says what it needs; published runs lack most tables."""
    (run_copy / "metrics.csv").unlink()
    assert main(["evaluate", str(run_copy), "--episodes", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_a_changed_table_does_not_get_the_checksum_of_a_good_one(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    """A run that ends writes checksums of its tables, whatever they hold."""
    file = run_copy / "episodes.csv"
    file.write_text(file.read_text().replace("20\n", "30\n", 1))
    before = all_files(run_copy)
    for steps in (["--steps", "60"], []):
        assert failing_command("resume", run_copy, *steps) == (
            f"{file} was changed after the run had ended; put it back, or delete "
            f"{run_copy / 'finished.json'} to continue with the table as it is"
        )
    assert all_files(run_copy) == before
    (run_copy / "finished.json").unlink()
    assert main(["resume", str(run_copy), "--quiet"]) == 0


@pytest.mark.usefixtures("loaded_children")
def test_a_table_of_one_of_several_processes_counts_as_well(
    tmp_path: Path, failing_command: FailingCommand
) -> None:
    options = [*ENV, *TINY, "--processes", "2", "--seeds", "0-1", "--set", *words(SMALL)]
    assert main(["train", *options, "--out", str(tmp_path / "run")]) == 0
    file = tmp_path / "run" / "snapshot" / "process-1" / "episodes.csv"
    file.write_text(file.read_text() + "\n")
    message = failing_command("resume", tmp_path / "run", "--steps", "60")
    assert message.startswith(f"{file} was changed after the run had ended; ")


def test_a_finish_names_only_files_of_the_run(
    run_copy: Path, tmp_path: Path, failing_command: FailingCommand
) -> None:
    """Nobody reads a path outside the folder in order to hash it."""
    digest = FileDigest.of(run_copy / "config.json")._asdict()
    files = {"config.json": digest, str(tmp_path / "outside"): digest}
    write_sealed(run_copy / "finished.json", {"steps": 30, "files": files})
    for command in (("report", run_copy, "--no-figures"), ("resume", run_copy, "--steps", "60")):
        assert f"{str(tmp_path / 'outside')!r} is not a file of a run" in failing_command(*command)


@pytest.mark.parametrize("files", [None, True, "x", ["config.json"], {"config.json": 3}])
def test_checksums_of_another_type_are_damage(
    files: object, run_copy: Path, failing_command: FailingCommand
) -> None:
    write_sealed(run_copy / "finished.json", {"steps": 30, "files": files})
    message = failing_command("report", run_copy, "--no-figures")
    assert f"{run_copy / 'finished.json'} is damaged: its files have no checksums" in message


def test_a_run_that_ended_before_there_were_checksums_is_read(
    run_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_copy / "finished.json").write_text('{"steps": 30}')
    (run_copy / "timings.csv").write_text("phase,seconds,times\ntotal,1,1\n")
    assert main(["report", str(run_copy), "--no-figures", "--out", str(tmp_path / "report")]) == 0
    assert "was changed" not in capsys.readouterr().err


def test_a_finish_that_was_changed_is_refused(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    file = run_copy / "finished.json"
    file.write_text(file.read_text().replace('"steps": 30', '"steps": 31'))
    assert failing_command("resume", run_copy) == (
        f"{file} is damaged: it does not have the SHA-256 that it states"
    )


@pytest.mark.parametrize("name", ["versions", "hardware"])
@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_facts_of_another_type_are_refused(
    name: str, value: object, run_copy: Path, failing_command: FailingCommand
) -> None:
    file = run_copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    message = failing_command("report", run_copy, "--out", run_copy / "report")
    assert f"{file} is damaged: {name} must be an object, given {value!r}" in message


@pytest.mark.parametrize("name", ["steps", "threads", "processes"])
def test_numbers_that_no_machine_has_are_refused(
    name: str, run_copy: Path, failing_command: FailingCommand
) -> None:
    file = run_copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: 10**30}))
    message = failing_command("resume", run_copy)
    assert f"{name}=1000000000000000000000000000000 must be at most 1" in message


# -- rows ------------------------------------------------------------------------------------------

SPOILT = [
    "0,abc,1,2,3",
    "0",
    ",,,,",
    "0,15,9,1.0",
    "0,1,2,3,4,5,6,7,8",
    "\0\0\0",
    '"0,1',
    "0,15,9,fast,20",
    "0,15,0,1_000.0,20",  # a number for Python, but not for those who read the table
    "0,15,0, 1.0,20",
    f"0,15,0,{'9' * 5_000},20",
    "7,15,0,1.0,20",  # of a seed that the run does not have
    "\u0663,15,0,1.0,20",  # a digit, though not of those in our tables
    f"0,{'9' * 5_000},0,1.0,20",
]


@pytest.mark.parametrize("row", SPOILT)
def test_spoilt_rows_are_left_out_when_a_run_is_resumed(row: str, run_copy: Path) -> None:
    file = run_copy / "evaluations.csv"
    before = td7.Run(run_copy).evaluations
    (run_copy / FINISHED).unlink()  # as if it had been killed
    with file.open("a") as rows:
        rows.write(f"{row}\n")
    after = td7.resume(run_copy, quiet=True).evaluations
    assert after.equals(before)


def test_a_row_that_is_spoilt_while_a_run_trains_is_named(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    def spoil(table: str, rows: object) -> None:
        with (run_copy / "evaluations.csv").open("a") as file:
            file.write("0,abc\n")

    with pytest.raises(InputError, match=r"evaluations.csv is damaged: it has the row '0,abc'"):
        td7.resume(run_copy, steps=60, quiet=True, listener=spoil)
    assert main(["resume", str(run_copy), "--quiet"]) == 0
    assert td7.Run(run_copy).evaluations["step"].max() == 60

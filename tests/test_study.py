"""`td7 study`: runs are trained, stopped and resumed; finished runs are never repeated."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import td7
import toys
from fake_runs import dataset_fields, write_config
from folders import words
from td7.cli.main import main
from td7.errors import InputError
from td7.files import read_sealed, try_lock
from td7.modules import StopScriptImport
from td7.options import TrainOptions
from td7.processes import available_cores
from td7.reports.report import read_report
from td7.studies.folder import RunState, StudyRequest, log_path, read_request, run_state
from td7.studies.local import record_outcome, run_command, split_cores, start_process
from td7.studies.plan import StudyStatus, plan_runs
from td7.studies.rows import STUDIES, study
from test_plan import request

assert toys  # registers the tasks
TINY = {
    **{"random_steps": 30, "hidden_dim": 8, "embedding_dim": 8},
    **{"batch_size": 8, "target_every": 25},
}
EVALUATION = {"evaluate_every": 20, "evaluation_episodes": 1}
OPTIONS = (
    *("--seeds", "0-1", "--steps", "60"),
    *("--evaluate-every", "20", "--evaluation-episodes", "1"),
)
TIMEOUT = 120.0  # seconds, for a busy machine


def study_command(out: Path, *more: str, rows: tuple[str, ...] = ("TD3", "zs'a'")) -> list[str]:
    options = ["--env", "toys:Point-v0", *OPTIONS, "--engine", "eager", "--out", str(out)]
    return ["study", "design", *options, "--rows", *rows, "--set", *words(TINY), *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "design"
    assert main(study_command(out)) == 0
    return out


def folders(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.glob("*/*/config.json"))


def test_every_run_follows_its_command(finished: Path) -> None:
    assert [str(f.relative_to(finished)) for f in folders(finished)] == [
        "01-TD3/toys_Point-v0",
        "05-zs_a/toys_Point-v0",
    ]
    for folder, variant in zip(folders(finished), ("design/TD3", "design/zs'a'"), strict=True):
        run = td7.Run(folder)
        assert run.config["variant"] == variant
        command = shlex.split(run.config["command"])  # as a shell would
        assert command[command.index("--variant") + 1] == variant
        assert run.config["hyperparameters"]["batch_size"] == 8
        assert run.evaluations["step"].max() == 60
        assert set(run.evaluations["seed"]) == {0, 1}
    assert not (finished / "failed.json").exists()
    (log,) = (finished / "logs").glob("01-*.log")
    assert log.read_text().startswith("$ td7 train --variant design/TD3 ")


def test_finished_runs_are_not_repeated(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*.csv")}
    assert main(study_command(finished)) == 0
    assert "all 2 runs are done" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*.csv")}


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(study_command(tmp_path / "study", "--dry-run")) == 0
    out = capsys.readouterr().out
    assert "0 of 2 runs are done" in out
    assert "zs'a'" in out
    assert not (tmp_path / "study").exists()


def test_seeds_may_be_divided_among_runs(tmp_path: Path, finished: Path) -> None:
    """Their results are those of one run, and one row in a report."""
    out = tmp_path / "study"
    assert main(study_command(out, "--seeds-each", "1", "--at-once", "2", rows=("TD3",))) == 0
    names = [str(f.relative_to(out)) for f in folders(out)]
    assert names == [f"01-TD3/toys_Point-v0--seeds-{seed}-{seed}" for seed in (0, 1)]
    apart = pd.concat([td7.Run(folder).evaluations for folder in folders(out)])
    together = td7.Run(finished / "01-TD3" / "toys_Point-v0").evaluations
    assert apart["seed"].tolist() == [0] * 4 + [1] * 4
    expected = together.sort_values(["seed", "step"])["return"]
    np.testing.assert_allclose(apart["return"], expected, rtol=1e-4)
    (result,) = read_report([out]).results
    assert result.seeds == (0, 1)


def test_a_longer_study_resumes_its_runs(finished: Path) -> None:
    (run,) = plan_runs(request(80, **EVALUATION, set=TINY), finished, Path())
    assert run_state(run) is RunState.INTERRUPTED
    command = ["resume", str(run.folder), "--steps", "80", "--workers"]
    assert run_command(run) == [*command, "auto", "--trust"]
    run = replace(run, options=replace(run.options, workers="2"))
    assert run_command(run) == [*command, "2", "--trust"]


def test_a_resumed_run_gets_the_new_path_of_a_moved_dataset(tmp_path: Path) -> None:
    file = tmp_path / "own.hdf5"
    file.touch()
    options = TrainOptions(seeds=(0, 1))
    moved = StudyRequest("offline", ("IQL",), (str(file),), 60, options)
    (run,) = plan_runs(moved, tmp_path / "out", Path())
    write_config(
        run.folder,
        algorithm="iql",
        variant="offline/IQL",
        seeds=[0, 1],
        evaluate_every=options.evaluate_every,
        evaluation_episodes=options.evaluation_episodes,
        dataset=dataset_fields("/before/own.hdf5"),
    )
    command = run_command(run)
    assert command[:2] == ["resume", str(run.folder)]
    assert command[command.index("--dataset") + 1] == str(file)


def test_the_error_of_a_run_is_that_of_the_last_attempt(tmp_path: Path) -> None:
    (run,) = plan_runs(request(), tmp_path, Path())
    status = StudyStatus([run], [])
    log = log_path(run, tmp_path)
    first = "$ td7 train\ntd7: the motor is on fire\n"
    log.write_text(f"{first}$ td7 resume\nhalf way\n")
    record_outcome(run, -signal.SIGKILL, tmp_path, status)
    assert status.failed == {run.name: "signal SIGKILL"}
    log.write_text(f"{first}$ td7 resume\ntd7: the motor is cold\n")
    record_outcome(run, 1, tmp_path, status)
    assert status.failed == {run.name: "the motor is cold"}
    log.write_text(first)
    record_outcome(run, 1, tmp_path, status)
    assert status.failed == {run.name: "the motor is on fire"}


def test_a_failed_run_is_recorded_and_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two tasks fails. The next call tries only that one again."""
    out = tmp_path / "study"
    command = study_command(out, "--env", "toys:Point-v0,toys:Faulty-v0", rows=("TD3",))
    command += ["--at-once", "2"]
    assert main(command) == 1
    output = capsys.readouterr()
    assert "1 of 2 runs are done" in output.out
    fault = "the motor is on fire"
    assert "failed: 01-TD3--toys_Faulty-v0: seed 0, evaluation at step 0" in output.err
    assert fault in output.err
    failures = read_sealed(out / "failed.json")
    assert list(failures) == ["01-TD3--toys_Faulty-v0"]
    assert fault in failures["01-TD3--toys_Faulty-v0"]
    assert main(command) == 1
    assert "1 of 2 runs are done; the others" in capsys.readouterr().out


def test_a_stopped_study_continues(tmp_path: Path, finished: Path) -> None:
    """After SIGTERM runs save snapshots; the same command then ends with the same files."""
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "td7", *study_command(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + TIMEOUT
    while not list(out.glob("*/*/evaluations.csv")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM
    message = "td7: stopped by SIGTERM; run the same command again to continue"
    assert errors.splitlines()[-1] == message
    assert main(study_command(out, "--at-once", "2")) == 0
    for a, b in zip(folders(out), folders(finished), strict=True):
        for name in ("evaluations.csv", "episodes.csv", "metrics.csv"):
            assert (a / name).read_bytes() == (b / name).read_bytes()


def test_runs_do_not_outlive_a_killed_study(tmp_path: Path) -> None:
    """They save a snapshot and unlock their folders, as if they had been stopped."""
    out = tmp_path / "killed"
    command = [
        sys.executable,
        "-m",
        "td7",
        *study_command(out, "--steps", "100_000", rows=("TD3",)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + TIMEOUT
    while not any(file.read_text().count("\n") > 5 for file in out.glob("*/*/evaluations.csv")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    (folder,) = folders(out)
    with (folder / ".lock").open("a") as lock:
        while not try_lock(lock):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert list(folder.glob("snapshot/0*/manifest.json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "0-2"), "holds a run with seeds=[0, 1], but this study needs [0, 1, 2]"),
        (("--set", "batch_size=9"), "--set names batch_size twice"),
        (("--evaluate-every", "7"), "a run with evaluate_every=20, but this study needs 7"),
        (("--at-once", "0"), "--at-once 0 must be at least 1"),
        (("--rows", "zs'a"), 'unknown row of design "zs\'a"; did you mean "zs\'a\'"?'),
    ],
)
def test_bad_input_is_one_line(
    finished: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(study_command(finished, *words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_other_hyperparameters_need_another_folder(finished: Path) -> None:
    (run,) = plan_runs(request(**EVALUATION, set={**TINY, "batch_size": 9}), finished, Path())
    with pytest.raises(InputError, match="a run with batch_size=8, but this study needs 9; use an"):
        run_state(run)
    (run,) = plan_runs(
        request(**EVALUATION), finished, Path()
    )  # with the hyperparameters of the paper
    with pytest.raises(InputError, match="but this study needs"):
        run_state(run)


def test_a_row_that_moved_keeps_its_folder(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new row above others does not make the study repeat their runs."""
    out = tmp_path / "design"
    shutil.copytree(finished, out)
    before = [(run.label, run.folder) for run in plan_runs(request(), out, Path())]
    design = study("design")
    moved = dict(list(design.rows.items())[::-1])
    monkeypatch.setitem(STUDIES, "design", replace(design, rows=moved))
    after = plan_runs(request(), out, Path())
    assert sorted((run.label, run.folder) for run in after) == sorted(before)
    elsewhere = plan_runs(request(), tmp_path / "new", Path())
    assert [run.folder.parent.name for run in elsewhere] != [f.parent.name for _, f in before]


def test_a_run_gets_the_options_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keyword arguments of the task keep their types on the way to the run's process."""
    kwargs = {
        "terminate_when_unhealthy": False,
        "healthy_z_range": [0.5, 1.0],
        "reward": {"scale": -2, "terms": [None, "a b"]},
        "name": "12",
        "note": 'a "q" = [é',
    }
    words = [f"{name}={json.dumps(value)}" for name, value in kwargs.items()]
    more = ("--env", "toys:Configurable-v0", "--env-kwargs", *words)
    more += ("--keep-policies", "20", "--snapshot-every", "0")
    command = study_command(tmp_path / "out", *more, rows=("TD3",))
    assert main(command) == 0
    (run,) = folders(tmp_path / "out")
    config = json.loads((run / "config.json").read_text())
    assert config["task"]["kwargs"] == kwargs
    assert config["snapshot_every"] == 0
    assert (run / "policies").is_dir()
    capsys.readouterr()
    assert main(command) == 0
    assert "all 1 runs are done" in capsys.readouterr().out
    assert main([*command, "--env-kwargs", "terminate_when_unhealthy=true"]) == 2
    assert 'but this study needs {"terminate_when_unhealthy": true, ' in capsys.readouterr().err


def test_study_json_of_earlier_versions_is_read(finished: Path) -> None:
    """They hold options as plain JSON, fewer of them, with hyperparameters as text."""
    file = finished / "study.json"
    data = json.loads(file.read_text())
    assert list(data) == ["name", "rows", "tasks", "steps", "options", "seeds_each", "sha256"]
    assert data["options"]["seeds"] == [0, 1]
    assert data["options"]["set"]["batch_size"] == "8"
    written = read_request(finished)
    assert written is not None
    earlier = {name: data["options"][name] for name in ("seeds", "evaluate_every", "set")}
    del data["seeds_each"], data["sha256"]
    folder = finished.parent / "earlier"
    folder.mkdir()
    (folder / "study.json").write_text(json.dumps({**data, "options": earlier}))
    assert read_request(folder) == replace(written, options=TrainOptions(**earlier), seeds_each=0)


def test_a_folder_holds_one_study(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "beyond", "--env", "toys:Point-v0", "--out", str(finished)]) == 2
    assert "holds the study design; use another folder (--out)" in capsys.readouterr().err


def test_importing_a_users_script_starts_no_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.modules._ScriptImport.is_active", True)
    with pytest.raises(StopScriptImport):
        td7.study("design")


def test_python_and_the_command_line_run_the_same_study(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"env": ["toys:Point-v0"], "seeds": range(2), "steps": 60}
    options |= {"evaluate_every": 20, "evaluation_episodes": 1, "engine": "eager", "set": TINY}
    status = td7.study("design", rows=["TD3", "zs'a'"], out=finished, quiet=True, **options)
    assert [run.folder for run in status.done] == folders(finished)
    assert status.failed == {}
    assert capsys.readouterr().err == ""
    for bad, message in (
        ({"name": "desing"}, "unknown study 'desing'; did you mean 'design'?"),
        ({"name": "design", "task": "Hopper-v4"}, "unknown option 'task'; did you mean 'env'?"),
        ({"name": "design", "seeds": []}, "seeds is empty"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            td7.study(**bad)


def test_concurrent_runs_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.studies.local.available_cores", lambda: {0, 1, 2, 5, 6})
    assert split_cores(2) == [{0, 2, 6}, {1, 5}]
    assert split_cores(1) == [{0, 1, 2, 5, 6}]
    assert split_cores(6) == [{0, 1, 2, 5, 6}] * 6


def test_a_terminals_signals_do_not_reach_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has a session of its own, so it gets a signal once: from the study."""
    # A lock that another thread held at the fork stays locked: nothing may be loaded after it.
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("loaded between fork and exec"))
    (run,) = plan_runs(request(), tmp_path, Path())
    (tmp_path / "logs").mkdir()
    process = start_process(run, tmp_path / "logs", available_cores())
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        process.kill()
        process.wait()

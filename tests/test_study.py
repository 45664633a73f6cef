"""`td7 study`: planned, run, stopped, resumed; finished runs are never repeated."""

import fcntl
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
from td7.cli.main import main
from td7.errors import InputError
from td7.processes import StopScriptImport, available_cores
from td7.report.report import read_report
from td7.studies import folder as folder_module
from td7.studies import local as local_module
from td7.studies import plan as plan_module
from td7.studies.folder import PlannedRun, RunState, StudyRequest, fraction, state
from td7.studies.plan import plan, seconds_left
from td7.studies.rows import STUDIES, study

assert toys  # registers the tasks
TINY = ("random_steps=30", "hidden_dim=8", "embedding_dim=8", "batch_size=8", "target_every=25")
OPTIONS = (
    "--seeds",
    "0-1",
    "--steps",
    "60",
    "--evaluate-every",
    "20",
    "--evaluation-episodes",
    "1",
)
PATIENCE = 120.0  # seconds, on a machine that has other things to do


def words(out: Path, *more: str, rows: tuple[str, ...] = ("TD3", "zs'a'")) -> list[str]:
    given = ["--tasks", "toys:Point-v0", *OPTIONS, "--engine", "eager", "--out", str(out)]
    return ["study", "design", *given, "--rows", *rows, "--set", *TINY, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "design"
    assert main(words(out)) == 0
    return out


def folders(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.glob("*/*/config.json"))


def test_every_run_is_made_as_its_command_says(finished: Path) -> None:
    assert [str(f.relative_to(finished)) for f in folders(finished)] == [
        "01-TD3/toys_Point-v0",
        "05-zs_a/toys_Point-v0",
    ]
    for folder, variant in zip(folders(finished), ("design/TD3", "design/zs'a'"), strict=True):
        run = td7.Run(folder)
        assert run.config["variant"] == variant
        given = shlex.split(run.config["command"])  # so that a shell would take it
        assert given[given.index("--variant") + 1] == variant
        assert run.config["hyperparameters"]["batch_size"] == 8
        assert run.evaluations["step"].max() == 60
        assert set(run.evaluations["seed"]) == {0, 1}
    assert not (finished / "failed.json").exists()
    (log,) = (finished / "logs").glob("01-*.log")
    assert log.read_text().startswith("$ td7 train --seeds 0,1 ")


def test_finished_runs_are_not_repeated(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*.csv")}
    assert main(words(finished)) == 0
    assert "all 2 runs are done" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*.csv")}


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path / "study", "--dry-run")) == 0
    out = capsys.readouterr().out
    assert "0 of 2 runs are done" in out
    assert "zs'a'" in out
    assert not (tmp_path / "study").exists()


def test_seeds_may_be_divided_among_runs(tmp_path: Path, finished: Path) -> None:
    """As for a core each. They are the same, and one row in a report."""
    out = tmp_path / "study"
    assert main(words(out, "--seeds-each", "1", "--at-once", "2", rows=("TD3",))) == 0
    names = [str(f.relative_to(out)) for f in folders(out)]
    assert names == [f"01-TD3/toys_Point-v0--seeds-{seed}-{seed}" for seed in (0, 1)]
    apart = pd.concat([td7.Run(folder).evaluations for folder in folders(out)])
    together = td7.Run(finished / "01-TD3" / "toys_Point-v0").evaluations
    assert apart["seed"].tolist() == [0] * 4 + [1] * 4
    expected = together.sort_values(["seed", "step"])["return"]
    np.testing.assert_allclose(apart["return"], expected, rtol=1e-4)
    (result,) = read_report([out]).results
    assert result.seeds == (0, 1)


@pytest.mark.parametrize(
    ("each", "shares"),
    [(0, [()]), (2, [(3, 4), (7, 8), (9,)]), (3, [(3, 4, 7), (8, 9)]), (5, [()]), (9, [()])],
)
def test_which_seeds_a_run_has(each: int, shares: list[tuple[int, ...]], tmp_path: Path) -> None:
    given = replace(request(seeds=(3, 4, 7, 8, 9)), seeds_each=each)
    found = plan(given, tmp_path, Path())
    assert [run.options["seeds"] for run in found] == [own or (3, 4, 7, 8, 9) for own in shares]
    own = [f"--seeds-{own[0]}-{own[-1]}" if own else "" for own in shares]
    assert [run.folder.name for run in found] == [f"toys_Point-v0{which}" for which in own]


def test_a_longer_study_goes_on_with_its_runs(finished: Path) -> None:
    given = request(set=dict(word.split("=") for word in TINY), steps=80)
    (run,) = plan(given, finished, Path())
    assert state(run) is RunState.INTERRUPTED
    began_with = ["resume", str(run.folder), "--steps", "80"]
    assert local_module.words(run) == began_with
    run = replace(run, options={**run.options, "workers": "2"})  # as the study is given now
    assert local_module.words(run) == [*began_with, "--workers", "2"]


def test_moved_data_are_told_to_a_run_that_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "own.hdf5"
    file.touch()
    given = StudyRequest("offline", ("IQL",), (str(file),), 60, {"seeds": (0, 1), "set": {}})
    (run,) = plan(given, tmp_path / "out", Path())
    before = dataset_fields("/before/own.hdf5")
    write_config(run.folder, variant="offline/IQL", seeds=[0, 1], dataset=before)
    resumed = ["resume", str(run.folder), "--steps", "60", "--dataset", str(file)]
    assert local_module.words(run) == resumed


@pytest.mark.parametrize(
    ("study", "tasks", "said"),
    [
        ("design", "Hopper-v4,Hopper-v5,Hopper-v4", "Hopper-v4 is given twice"),
        ("design", "toys:Point-v0,toys_Point-v0", "toys:Point-v0 and toys_Point-v0 would share"),
        ("offline", "a/own.hdf5,b/own.hdf5", "b/own.hdf5 would share the folder"),
        ("offline", "a/own.hdf5,../here/a/own.hdf5", "here/a/own.hdf5 is given twice"),
    ],
)
def test_two_runs_have_two_folders(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    study: str,
    tasks: str,
    said: str,
) -> None:
    for folder in ("a", "b"):
        (tmp_path / "here" / folder).mkdir(parents=True)
        (tmp_path / "here" / folder / "own.hdf5").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["study", study, "--tasks", tasks, "--dry-run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_an_error_is_that_of_the_last_try(tmp_path: Path) -> None:
    (run,) = plan(request(), tmp_path, Path())
    standing = plan_module.StudyStatus([run], [])
    log = folder_module.log_of(run, tmp_path)
    first = "$ td7 train\ntd7: the motor is on fire\n"
    log.write_text(f"{first}$ td7 resume\nhalf way\n")
    local_module.note(run, -signal.SIGKILL, tmp_path, standing)
    assert standing.failed == {run.name: "signal SIGKILL"}
    log.write_text(f"{first}$ td7 resume\ntd7: the motor is cold\n")
    local_module.note(run, 1, tmp_path, standing)
    assert standing.failed == {run.name: "the motor is cold"}
    log.write_text(first)
    local_module.note(run, 1, tmp_path, standing)
    assert standing.failed == {run.name: "the motor is on fire"}


def test_what_fails_is_noted_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two tasks breaks down. Given again, it is tried again, and the other is not."""
    given = words(tmp_path / "s", "--tasks", "toys:Point-v0,toys:Faulty-v0", rows=("TD3",))
    given += ["--at-once", "2"]
    assert main(given) == 1
    said = capsys.readouterr()
    assert "1 of 2 runs are done" in said.out
    fault = "the motor is on fire"
    assert "failed: 01-TD3--toys_Faulty-v0: seed 0, evaluation at step 0" in said.err
    assert fault in said.err
    noted = json.loads((tmp_path / "s" / "failed.json").read_text())
    assert list(noted) == ["01-TD3--toys_Faulty-v0"]
    assert fault in noted["01-TD3--toys_Faulty-v0"]
    assert main(given) == 1
    assert "1 of 2 runs are done; the others" in capsys.readouterr().out


def test_stopped_it_goes_on(tmp_path: Path, finished: Path) -> None:
    """SIGTERM: running runs write their snapshots; the same command ends with the same files."""
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "td7", *words(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE
    while not list(out.glob("*/*/evaluations.csv")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1] == "td7: stopped by SIGTERM; the same command goes on"
    assert main(words(out)) == 0
    for a, b in zip(folders(out), folders(finished), strict=True):
        for name in ("evaluations.csv", "episodes.csv", "metrics.csv"):
            assert (a / name).read_bytes() == (b / name).read_bytes()


def test_runs_do_not_outlive_a_killed_study(tmp_path: Path) -> None:
    """They end as if stopped: with a snapshot, and the folder is free for the next try."""
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "td7", *words(out, "--steps", "100_000", rows=("TD3",))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not any(file.read_text().count("\n") > 5 for file in out.glob("*/*/evaluations.csv")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    (folder,) = folders(out)
    with (folder / ".lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert list(folder.glob("snapshot/0*/manifest.json"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--seeds", "0-2"), "holds a run with seeds=[0, 1], wanted is [0, 1, 2]"),
        (("--set", "batch_size=9"), "--set names batch_size twice"),
        (("--evaluate-every", "7"), "holds a run with evaluate_every=20, wanted is 7"),
        (("--at-once", "0"), "at_once=0 must be at least 1"),
        (("--rows", "zs'a"), 'unknown row of design "zs\'a"; did you mean "zs\'a\'"?'),
    ],
)
def test_bad_input_is_one_line(
    finished: Path, given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(finished, *given)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_other_hyperparameters_need_another_folder(finished: Path) -> None:
    tiny = dict(word.split("=") for word in TINY)
    (run,) = plan(request(set={**tiny, "batch_size": 9}), finished, Path())
    with pytest.raises(InputError, match="holds a run with batch_size=8, wanted is 9"):
        state(run)
    (run,) = plan(request(set={}), finished, Path())  # the row as the paper has it
    with pytest.raises(InputError, match=r"holds a run with .*, wanted is .*: give --out another"):
        state(run)


def test_a_row_that_moved_is_still_itself(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is put before others does not make their runs be repeated."""
    out = tmp_path / "design"
    shutil.copytree(finished, out)
    before = [(run.label, run.folder) for run in plan(request(), out, Path())]
    design = study("design")
    moved = dict(list(design.rows.items())[::-1])
    monkeypatch.setitem(STUDIES, "design", replace(design, rows=moved))
    after = plan(request(), out, Path())
    assert sorted((run.label, run.folder) for run in after) == sorted(before)
    elsewhere = plan(request(), tmp_path / "new", Path())
    assert [run.folder.parent.name for run in elsewhere] != [f.parent.name for _, f in before]


def test_tasks_may_be_made_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And runs may keep their policies; both are options of every run."""
    rows = ("TD3",)
    more = ("--env-kwargs", "at=7", "--keep-policies", "20", "--snapshot-every", "0")
    assert main(words(tmp_path / "out", *more, rows=rows)) == 0
    (run,) = folders(tmp_path / "out")
    assert json.loads((run / "config.json").read_text())["task"]["kwargs"] == {"at": 7}
    assert (run / "policies").is_dir()
    assert main(words(tmp_path / "out", *more, rows=rows)) == 0  # it is done
    assert main(words(tmp_path / "out", rows=rows)) == 2
    assert 'holds a run with env_kwargs={"at": 7}, wanted is {}' in capsys.readouterr().err


def test_a_folder_holds_one_study(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["study", "beyond", "--tasks", "toys:Point-v0", "--out", str(finished)]
    assert main(given) == 2
    assert "holds the study design; give --out another folder" in capsys.readouterr().err


def test_missing_data_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan has a line for each; the study does not begin."""
    data = tmp_path / "my data"
    own = f"{tmp_path}/own.hdf5"
    tasks = f"hopper-medium-v2,walker2d-medium-v2,{own}"
    given = ["study", "offline", "--tasks", tasks, "--datasets", str(data)]
    given += ["--out", str(tmp_path / "out")]
    lines = [
        f"there is no dataset {data}/hopper_medium-v2.hdf5; "
        f"`td7 dataset fetch hopper-medium-v2 --out '{data}'` gets it",
        f"there is no dataset {data}/walker2d_medium-v2.hdf5; "
        f"`td7 dataset fetch walker2d-medium-v2 --out '{data}'` gets it",
        f"there is no dataset {own}",
    ]
    assert main([*given, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "0 of 15 runs are done" in out
    assert out.splitlines()[-3:] == lines
    assert err == ""
    assert main(given) == 2
    assert capsys.readouterr().err == f"td7: {lines[0]} (2 more are missing)\n"
    assert not (tmp_path / "out").exists()


def test_a_worker_that_reads_a_script_starts_no_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.processes._ScriptImport.is_active", True)
    with pytest.raises(StopScriptImport):
        td7.study("design")


def test_from_python_it_is_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = {name: int(value) for name, value in (word.split("=") for word in TINY)}
    given: dict[str, Any] = {"tasks": ["toys:Point-v0"], "seeds": range(2), "steps": 60}
    given |= {"evaluate_every": 20, "evaluation_episodes": 1, "engine": "eager", "set": tiny}
    standing = td7.study("design", rows=["TD3", "zs'a'"], out=finished, quiet=True, **given)
    assert [run.folder for run in standing.done] == folders(finished)
    assert standing.failed == {}
    assert capsys.readouterr().err == ""
    for bad, said in (
        ({"name": "desing"}, "unknown study 'desing'; did you mean 'design'?"),
        ({"name": "design", "task": "Hopper-v4"}, "unknown option 'task'; did you mean 'tasks'?"),
        ({"name": "design", "seeds": []}, "seeds is empty"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            td7.study(**bad)


def test_the_plan_of_agents_that_learn_from_data_is_in_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.hdf5").touch()
    given = ["study", "offline", "--tasks", str(tmp_path / "own.hdf5"), "--rows", "IQL"]
    assert main([*given, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    header = capsys.readouterr().out.splitlines()[1:3]
    assert "updates" in " ".join(header)
    assert "steps" not in " ".join(header)


def request(steps: int = 60, **options: Any) -> StudyRequest:
    given = {"seeds": (0, 1), "set": {}, **options}
    return StudyRequest("design", ("TD3",), ("toys:Point-v0",), steps, given)


def test_how_long_it_takes() -> None:
    """By hand: 2 seeds, 60 steps; half of one run is left, at 30 seed-steps a second."""
    (run,) = plan(request(), Path("none"), Path())
    assert run.seed_steps == 120
    assert seconds_left({run: 0.5}, {"td3": 30.0}) == 2.0
    assert seconds_left({run: 0.5}, {"td7": 30.0}) is None
    assert plan_module.usual_rates("cuda")["td7"] > 1_000


def test_how_far_a_run_is(tmp_path: Path) -> None:
    (run,) = plan(request(), tmp_path, Path())
    assert fraction(run) == 0
    run.folder.mkdir(parents=True)
    rows = ["seed,step,episode,return,length", "0,0,0,1.0,5", "0,30,0,1.0,5", "1,60,0,1.0,5", "1,3"]
    (run.folder / "evaluations.csv").write_text("\n".join(rows))
    assert fraction(run) == (30 + 60) / 120


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "own_cores", lambda: {0, 1, 2, 5, 6})
    assert local_module._shares(2) == [{0, 2, 6}, {1, 5}]
    assert local_module._shares(1) == [{0, 1, 2, 5, 6}]
    assert local_module._shares(6) == [{0, 1, 2, 5, 6}] * 6


def test_a_thousand_runs_are_planned_in_seconds(tmp_path: Path) -> None:
    """Fifty rows, twenty tasks, a third of them finished."""
    begin = time.process_time()
    tasks = tuple(f"Task{i}-v0" for i in range(20))
    options = {"seeds": tuple(range(10)), "set": {}}
    found: list[PlannedRun] = []
    for name in ("design", "ablation", "checkpoints"):
        found += plan(StudyRequest(name, (), tasks, 1000, options), tmp_path / name, Path())
    assert len(found) > 1_000
    for i, run in enumerate(found):
        if i % 3 == 0:
            task = {"id": run.where, "kwargs": {}}
            write_config(
                run.folder, variant=run.options["variant"], seeds=list(range(10)), task=task
            )
            (run.folder / "finished.json").write_text('{"steps": 1000}')
            (run.folder / "timings.csv").write_text("phase,seconds,times\ntotal,2.0,1\n")
    states = [state(run) for run in found]
    assert states.count(RunState.DONE) == len(found[::3])
    assert plan_module.measured_rates(found, 3)["td7"] == 15_000
    assert time.process_time() - begin < 5


def test_the_parents_signal_reaches_the_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are in sessions of their own: a terminal's Ctrl-C is not theirs."""
    # A lock that another thread held at the fork is held for ever: nothing is loaded after it.
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("loaded between fork and exec"))
    (run,) = plan(request(), tmp_path, Path())
    (tmp_path / "logs").mkdir()
    process = local_module.start_process(run, tmp_path / "logs", available_cores())
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tasks", "Hoper-v4"), "unknown task 'Hoper-v4'; did you mean 'Hopper-v4'?"),
        (("--engine", "foo"), "unknown engine 'foo'"),
        (
            ("--set", "hiden_dim=3"),
            "unknown hyperparameter 'hiden_dim'; did you mean 'hidden_dim'?",
        ),
        (("--set", "hidden_dim=abc"), "hidden_dim"),
        (("--gpus", "0.5"), "--gpus is of no use without --backend ray"),
        (("--cpus", "4"), "--cpus is of no use without --backend ray"),
        (("--backend", "ray", "--gpus", "half"), "gpus takes a number, given 'half'"),
        (("--backend", "slurm"), "unknown backend 'slurm'"),
        (("--rows", "End-to-end"), "'End-to-end, 0.1', 'End-to-end, 1'"),
    ],
)
def test_a_dry_run_finds_mistakes(
    tmp_path: Path, given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before an hour is gone, and before anything is written."""
    out = tmp_path / "study"
    assert main(["study", "design", "--out", str(out), "--dry-run", *given]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert not out.exists()


def test_a_node_may_have_a_gpu_that_is_not_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    given = words(tmp_path, "--backend", "ray", "--dry-run", "--engine", "graph")
    assert main([*given, "--device", "cuda"]) == 0
    assert main([*given, "--device", "auto"]) == 0
    assert main([*given, "--device", "cpu"]) == 2
    assert "engine graph needs a CUDA device" in capsys.readouterr().err
    assert main([*given, "--device", "cuda", "--engine", "grahp"]) == 2
    assert "unknown engine 'grahp'; did you mean 'graph'?" in capsys.readouterr().err
    assert main([*given, "--device", "cuba"]) == 2
    assert "unknown device 'cuba'" in capsys.readouterr().err

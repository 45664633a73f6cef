"""Plans of studies: which runs there are, how long they take, and mistakes that they show."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toys
from fake_runs import write_config
from td7.cli.main import main
from td7.options import TrainOptions
from td7.studies.folder import (
    PlannedRun,
    RunState,
    StudyRequest,
    completed_fraction,
    run_state,
)
from td7.studies.plan import measured_rates, plan_runs, seconds_left, usual_rates

assert toys  # registers the tasks


def request(steps: int = 60, **options: Any) -> StudyRequest:
    """A request for one row on one task, with two seeds unless `options` has others."""
    shared = TrainOptions(**{"seeds": (0, 1), **options})
    return StudyRequest("design", ("TD3",), ("toys:Point-v0",), steps, shared)


@pytest.mark.parametrize(
    ("each", "groups"),
    [(0, [()]), (2, [(3, 4), (7, 8), (9,)]), (3, [(3, 4, 7), (8, 9)]), (5, [()]), (9, [()])],
)
def test_seeds_each_divides_the_seeds_in_order(
    each: int, groups: list[tuple[int, ...]], tmp_path: Path
) -> None:
    divided = replace(request(seeds=(3, 4, 7, 8, 9)), seeds_each=each)
    runs = plan_runs(divided, tmp_path, Path())
    assert [run.options.seeds for run in runs] == [group or (3, 4, 7, 8, 9) for group in groups]
    suffixes = [f"--seeds-{group[0]}-{group[-1]}" if group else "" for group in groups]
    assert [run.folder.name for run in runs] == [f"toys_Point-v0{suffix}" for suffix in suffixes]


@pytest.mark.parametrize(
    ("study", "tasks", "message"),
    [
        ("design", "Hopper-v4,Hopper-v5,Hopper-v4", "Hopper-v4 is given twice"),
        ("design", "toys:Point-v0,toys_Point-v0", "toys:Point-v0 and toys_Point-v0 would share"),
        ("offline", "a/own.hdf5,b/own.hdf5", "b/own.hdf5 would share the folder"),
        ("offline", "a/own.hdf5,../here/a/own.hdf5", "here/a/own.hdf5 is given twice"),
    ],
)
def test_no_two_runs_share_a_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    study: str,
    tasks: str,
    message: str,
) -> None:
    for folder in ("a", "b"):
        (tmp_path / "here" / folder).mkdir(parents=True)
        (tmp_path / "here" / folder / "own.hdf5").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["study", study, "--env", tasks, "--dry-run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_missing_datasets_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan has a line for each, and the study does not begin."""
    data = tmp_path / "my data"
    own = f"{tmp_path}/own.hdf5"
    tasks = f"hopper-medium-v2,walker2d-medium-v2,{own}"
    command = ["study", "offline", "--env", tasks, "--datasets", str(data)]
    command += ["--out", str(tmp_path / "out")]
    lines = [
        f"there is no dataset {data}/hopper_medium-v2.hdf5; "
        f"download it with `td7 dataset fetch hopper-medium-v2 --out '{data}'`",
        f"there is no dataset {data}/walker2d_medium-v2.hdf5; "
        f"download it with `td7 dataset fetch walker2d-medium-v2 --out '{data}'`",
        f"there is no dataset {own}",
    ]
    assert main([*command, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "0 of 15 runs are done" in out
    assert out.splitlines()[-3:] == lines
    assert err == ""
    assert main(command) == 2
    assert capsys.readouterr().err == f"td7: {lines[0]} (2 more are missing)\n"
    assert not (tmp_path / "out").exists()


def test_the_plan_of_an_offline_study_counts_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.hdf5").touch()
    command = ["study", "offline", "--env", str(tmp_path / "own.hdf5"), "--rows", "IQL"]
    assert main([*command, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    header = " ".join(capsys.readouterr().out.splitlines()[1:3])
    assert "updates" in header
    assert "steps" not in header


def test_the_time_left_is_the_rest_of_each_run_at_its_algorithms_rate() -> None:
    """By hand: 2 seeds of 60 steps; half of the run is left, at 30 seed-steps per second."""
    (run,) = plan_runs(request(), Path("none"), Path())
    assert run.seed_steps == 120
    assert seconds_left({run: 0.5}, {"td3": 30.0}) == 2.0
    assert seconds_left({run: 0.5}, {"td7": 30.0}) is None
    assert usual_rates("cuda")["td7"] > 1_000


def test_the_evaluations_of_a_run_show_how_far_it_is(tmp_path: Path) -> None:
    (run,) = plan_runs(request(), tmp_path, Path())
    assert completed_fraction(run) == 0
    run.folder.mkdir(parents=True)
    rows = ["seed,step,episode,return,length", "0,0,0,1.0,5", "0,30,0,1.0,5", "1,60,0,1.0,5", "1,3"]
    (run.folder / "evaluations.csv").write_text("\n".join(rows))
    assert completed_fraction(run) == (30 + 60) / 120


def test_a_thousand_runs_are_planned_in_seconds(tmp_path: Path) -> None:
    """Fifty rows on twenty tasks, a third of the runs finished."""
    begin = time.process_time()
    tasks = tuple(f"Task{i}-v0" for i in range(20))
    options = TrainOptions(seeds=tuple(range(10)))
    runs: list[PlannedRun] = []
    for name in ("design", "ablation", "checkpoints"):
        runs += plan_runs(StudyRequest(name, (), tasks, 1000, options), tmp_path / name, Path())
    assert len(runs) > 1_000
    for i, run in enumerate(runs):
        if i % 3 == 0:
            write_config(
                run.folder,
                algorithm=run.algorithm,
                variant=run.options.variant,
                task={"id": run.task, "kwargs": {}},
                seeds=list(range(10)),
                evaluate_every=options.evaluate_every,
                evaluation_episodes=options.evaluation_episodes,
            )
            (run.folder / "finished.json").write_text('{"steps": 1000}')
            (run.folder / "timings.csv").write_text("phase,seconds,times\ntotal,2.0,1\n")
    states = [run_state(run) for run in runs]
    assert states.count(RunState.DONE) == len(runs[::3])
    assert measured_rates(runs, 3)["td7"] == 15_000
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--env", "Hoper-v4"), "unknown task 'Hoper-v4'; did you mean 'Hopper-v4'?"),
        (("--engine", "foo"), "unknown engine 'foo'"),
        (
            ("--set", "hiden_dim=3"),
            "unknown hyperparameter 'hiden_dim'; did you mean 'hidden_dim'?",
        ),
        (("--set", "hidden_dim=abc"), "hidden_dim"),
        (("--gpus", "0.5"), "--gpus has no effect without --backend ray"),
        (("--cpus", "4"), "--cpus has no effect without --backend ray"),
        (("--backend", "ray", "--gpus", "half"), "--gpus takes auto or a number, given 'half'"),
        (("--backend", "slurm"), "unknown backend 'slurm'"),
        (("--rows", "End-to-end"), "'End-to-end, 0.1', 'End-to-end, 1'"),
    ],
)
def test_a_dry_run_shows_mistakes(
    tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They show before an hour is gone, and before anything is written."""
    out = tmp_path / "study"
    assert main(["study", "design", "--out", str(out), "--dry-run", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not out.exists()


def test_a_plan_names_the_rows_that_a_hyperparameter_does_not_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["study", "online", "--env", "toys:Point-v0", "--out", str(tmp_path), "--dry-run"]
    settings = ["--set", "hidden_dim=32", "embedding_dim=8"]
    assert main([*command, *settings]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: embedding_dim=8 has no effect with encoder=False: left out of TD3",
        "note: hidden_dim=32 has no effect in sac: left out of SAC",
        "note: embedding_dim=8 has no effect with sale=False: left out of SAC, TQC",
        "note: hidden_dim=32 has no effect in tqc: left out of TQC",
        "note: embedding_dim=8 has no effect in td3+ofe: left out of TD3+OFE",
    ]
    shared = TrainOptions(set={"hidden_dim": 32, "embedding_dim": 8})
    runs = plan_runs(
        StudyRequest("online", (), ("toys:Point-v0",), 60, shared), tmp_path, Path("none")
    )
    assert {run.label: list(run.options.set) for run in runs} == {
        "TD3": ["hidden_dim"],
        "SAC": [],
        "TQC": [],
        "TD3+OFE": ["hidden_dim"],
        "TD7": ["hidden_dim", "embedding_dim"],
    }


def test_a_plan_names_what_has_no_effect_with_a_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "offline", "--rows", "TD7", "--set", "random_steps=3", "--dry-run"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    note = "note: random_steps=3 has no effect with --dataset: left out of TD7"
    assert note in capsys.readouterr().out.splitlines()


def test_a_node_may_have_a_gpu_that_this_machine_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    command = ["study", "design", "--env", "toys:Point-v0", "--out", str(tmp_path)]
    command += ["--backend", "ray", "--dry-run", "--engine", "graph"]
    assert main([*command, "--device", "cuda"]) == 0
    assert main([*command, "--device", "auto"]) == 0
    assert main([*command, "--device", "cpu"]) == 2
    assert "engine graph needs a CUDA device" in capsys.readouterr().err
    assert main([*command, "--device", "cuda", "--engine", "grahp"]) == 2
    assert "unknown engine 'grahp'; did you mean 'graph'?" in capsys.readouterr().err
    assert main([*command, "--device", "cuba"]) == 2
    assert "unknown device 'cuba'" in capsys.readouterr().err

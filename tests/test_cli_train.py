"""`td7 train`: its options, its refusals, and what it prints."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from commands import ENV, TINY, FailingCommand, all_files, printed
from folders import SMALL, words
from td7.algorithms import ALGORITHMS
from td7.algorithms.config import ONLINE_GROUPS
from td7.cli.main import main
from td7.configs import describe_fields
from td7.errors import InputError
from td7.options import TrainOptions

assert toys  # registers the tasks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--env is missing: the Gymnasium id of a task, such as HalfCheetah-v4"),
        (["--env"], "--env: expected one argument"),
        (["--env", ""], "an empty argument follows --env"),
        ([*ENV, "--stps", "100"], "unknown option '--stps'; did you mean '--steps'?"),
        ([*ENV, "--step=5"], "unknown option '--step'; did you mean '--steps'?"),
        ([*ENV, "-s", "5"], "unknown option '-s'"),
        (
            [*ENV, "--lr", "1e-3"],
            "did you mean '--set learning_rate=…'? allowed: --",
        ),
        ([*ENV, "--engine", "fast"], "unknown engine 'fast'; allowed: "),
        ([*ENV, "--learning-rate", "1e-3"], "--set learning_rate=…"),
        ([*ENV, "--batch-size=5"], "--batch-size is a hyperparameter: --set batch_size=…"),
        ([*ENV, "--batch_size=5"], "--batch_size is a hyperparameter: --set batch_size=…"),
        ([*ENV, "--quantiles", "5"], "unknown option '--quantiles'; "),  # not of td7
        (["tqc", *ENV, "--quantiles", "5"], "is a hyperparameter: --set quantiles=…"),
        (["--quantiles", "5", "tqc", *ENV], "is a hyperparameter: --set quantiles=…"),
        (["--variant", "online/TQC", "--quantiles", "5"], "--set quantiles=…"),
        (["td7", "td3", *ENV], "unexpected argument 'td3'"),
        (["td8", *ENV], "unknown algorithm 'td8'; did you mean 'td7'? allowed: td7"),
        (["td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["td77", "--help"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["td77", "--stps", "5"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["--steps", "many", "td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["--variant", "desing/s'"], "unknown study 'desing'; did you mean 'design'?"),
        (["--env", "HalfCheeta-v4"], "did you mean 'HalfCheetah-v4'?"),
        (["--env", "HalfCheetah-v9"], "unknown task version 'HalfCheetah-v9'"),
        (["--env", "My-v0"], "; for your own task, use MODULE:ID, which imports MODULE"),
        ([*ENV, "--steps", "1e13"], "--steps 10000000000000 must be at most 1e+12"),
        (["--env", "toy:Point-v0"], "module 'toy' cannot be imported"),
        (["--env", "toys:Pint-v0"], "did you mean 'Point-v0'?"),
        (["--env", "MountainCa-v0"], "did you mean 'MountainCarContinuous-v0'?"),
        (["--env", "CartPole-v1"], "'CartPole-v1' has a Discrete action space"),
        (["--env", "FrozenLake-v1"], "has a Discrete observation space; allowed: a Box"),
        ([*ENV, "--env-kwargs", "wings=2"], "unexpected keyword argument 'wings'"),
        ([*ENV, "--env-kwargs", "wings"], "--env-kwargs takes name=value, given 'wings'"),
        ([*ENV, "--steps", "many"], "--steps takes a whole number, given 'many'"),
        ([*ENV, "--steps", "1.5"], "--steps takes a whole number, given '1.5'"),
        ([*ENV, "--steps", "nan"], "--steps takes a whole number, given 'nan'"),
        ([*ENV, "--steps", "inf"], "--steps takes a whole number, given 'inf'"),
        ([*ENV, "--steps", "0"], "--steps 0 must be at least 1"),
        ([*ENV, "--steps", "-5"], "--steps -5 must be at least 1"),
        ([*ENV, "--steps"], "--steps: expected one argument"),
        ([*ENV, "--evaluate-every", "0"], "--evaluate-every 0 must be at least 1"),
        ([*ENV, "--evaluation-episodes", "0"], "--evaluation-episodes 0 must be at least 1"),
        ([*ENV, "--metrics-every", "0"], "--metrics-every 0 must be at least 1"),
        ([*ENV, "--workers", "-1"], "--workers -1 must be at least 0"),
        ([*ENV, "--workers", "two"], "--workers takes auto or a whole number, given 'two'"),
        ([*ENV, "--snapshot-every", "-1"], "--snapshot-every -1.0 must be at least 0"),
        ([*ENV, "--snapshot-every", "nan"], "--snapshot-every takes a number, given 'nan'"),
        ([*ENV, "--device", "gpu"], "unknown device 'gpu'; allowed: "),
        ([*ENV, "--precision", "float16"], "unknown precision 'float16'"),
        ([*ENV, "--seeds", "3-1"], "--seeds 3-1 runs backwards"),
        ([*ENV, "--seeds", "0,1,0"], "seed 0 is given twice"),
        ([*ENV, "--seeds", "0-3,2"], "seed 2 is given twice"),
        ([*ENV, "--seeds", "-1"], "--seeds takes 0-9, 0,3,7 or 0 3 7, given '-1'"),
        ([*ENV, "--seeds", "first"], "--seeds takes 0-9, 0,3,7 or 0 3 7, given 'first'"),
        ([*ENV, "--seeds", "1.5"], "--seeds takes 0-9, 0,3,7 or 0 3 7, given '1.5'"),
        ([*ENV, "--seeds", "1-"], "--seeds takes 0-9, 0,3,7 or 0 3 7, given '1-'"),
        ([*ENV, "--seeds", "0-1_000"], "--seeds takes 0-9, 0,3,7 or 0 3 7"),
        ([*ENV, "--seeds", "0-99999999999"], "at most 1,000 seeds can be trained at once"),
        ([*ENV, "--seeds", "0-999,1000"], "at most 1,000 seeds can be trained at once"),
        ([*ENV, "--workers", "1001"], "--workers 1001 must be at most 1000"),
        ([*ENV, "--set", "batch_sise=5"], "did you mean 'batch_size'?"),
        ([*ENV, "--set", "batch_size"], "--set takes field=value, given 'batch_size'"),
        ([*ENV, "--set", "batch_size="], "batch_size takes a whole number, given ''"),
        ([*ENV, "--set", "batch_size=0"], "batch_size=0 must be at least 1"),
        ([*ENV, "--set", "batch_size=2.5"], "batch_size takes a whole number"),
        ([*ENV, "--set", "discount=1.1"], "discount=1.1 must be at most 1"),
        ([*ENV, "--set", "learning_rate=0"], "learning_rate=0.0 must be above 0"),
        ([*ENV, "--set", "hidden_dim=8", "hidden_dim=9"], "--set names hidden_dim twice"),
        ([*ENV, "--set"], "--set: expected one argument"),
    ],
)
def test_a_mistake_gets_one_line_before_anything_is_written(
    words: list[str], message: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    assert message in failing_command("train", *words)
    assert all_files(working_folder) == {}


def test_a_missing_gpu_gets_one_line(
    working_folder: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    message = failing_command("train", *ENV, "--device", "cuda")
    assert message == "device cuda needs a GPU, and PyTorch sees no CUDA device; allowed: cpu"
    assert all_files(working_folder) == {}


def test_python_raises_the_same_errors(working_folder: Path) -> None:
    for options, message in (
        ({"env": "toys:Point-v0", "stps": 5}, "unknown option 'stps'; did you mean 'steps'?"),
        ({"env": "toys:Point-v0", "seeds": []}, "seeds is empty"),
        ({"env": "toys:Point-v0", "seeds": [1, -2]}, "seeds must be at least 0, given -2"),
        ({"env": "toys:Point-v0", "seeds": [0.5]}, "seeds takes a whole number, given 0.5"),
        (
            {"env": "toys:Point-v0", "seeds": range(1001)},
            "at most 1,000 seeds can be trained at once",
        ),
        ({"env": "toys:Point-v0", "seeds": count()}, "at most 1,000 seeds can be trained at once"),
        ({"env": "toys:Point-v0", "seeds": None}, "seeds takes whole numbers, given None"),
        ({"env": "toys:Point-v0", "set": {"batch_size": 0}}, "batch_size=0 must be at least 1"),
        ({}, "env is missing"),
        ({"algorithm": "td77"}, "unknown algorithm 'td77'; did you mean 'td7'?"),
        ({"algorithm": "td77", "dataset": "no"}, "unknown algorithm 'td77'; did you mean 'td7'?"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            td7.train(**options)
    assert all_files(working_folder) == {}


@pytest.mark.parametrize(
    ("algorithm", "setting", "message"),
    [
        ("td3+ofe", "ofe_features=241", "ofe_features"),
        ("td3+ofe", "ofe_predicted_dims=3", "ofe_predicted_dims"),
        ("tqc", "dropped_quantiles=25", "dropped_quantiles=25 must be below quantiles=25"),
    ],
)
def test_hyperparameters_that_exclude_each_other_are_refused(
    algorithm: str,
    setting: str,
    message: str,
    working_folder: Path,
    failing_command: FailingCommand,
) -> None:
    assert message in failing_command("train", algorithm, *ENV, "--out", "run", "--set", setting)
    assert all_files(working_folder) == {}


def test_out_must_be_new(
    working_folder: Path, finished_run: Path, failing_command: FailingCommand
) -> None:
    before = all_files(finished_run)
    message = failing_command("train", *ENV, "--out", finished_run)
    assert (
        message == f"{finished_run} already holds a run; `td7 resume {finished_run}` continues it"
    )
    assert all_files(finished_run) == before
    (working_folder / "notes").mkdir()
    (working_folder / "notes" / "a").write_text("mine")
    before = all_files(working_folder)
    message = failing_command("train", *ENV, "--out", "notes")
    assert message == "notes is not empty; give --out a new folder"
    assert failing_command("train", *ENV, "--out", "notes/a") == "notes/a is a file, not a folder"
    message = failing_command("train", *ENV, "--out", "notes/a/b")
    assert message == "cannot write to notes/a/b: Not a directory"
    assert all_files(working_folder) == before


def test_a_read_only_folder_gets_one_line(
    working_folder: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    message = failing_command("train", *ENV, "--out", "there")
    assert message == "cannot write to there: Permission denied"
    assert all_files(working_folder) == {}


def test_a_replay_that_does_not_fit_is_refused(
    working_folder: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 rows of 8 float32 (32 kB per seed) and 1,356 priorities and sums of 8 bytes."""
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: 60_000)
    words = ("train", "--env", "toys:Point-v0", "--steps", "1e9", "--set", "replay_capacity=1000")
    message = failing_command(*words, "--seeds", "0,1")
    assert "takes 0.0 GB of cpu (1,000 rows each), which has 0.0 GB free" in message
    assert "allowed: replay_capacity=6.6e+02 or less, fewer seeds at once" in message
    assert all_files(working_folder) == {}


def test_a_fault_of_the_task_is_status_1(
    working_folder: Path, failing_command: FailingCommand
) -> None:
    options = [*ENV, "--steps", "50", "--quiet", "--seeds", "7", "--out", "run"]
    options += ["--set", "random_steps=10"]
    message = failing_command("train", *options, "--env-kwargs", "fault=raise", "at=3", status=1)
    where = "seed 7, evaluation at step 0, episode 0, step 3"
    fault = "the environment raised ValueError: the motor is on fire"
    saved = "everything trained so far is saved, `td7 resume run` tries again"
    assert message == f"{where}: {fault}; {saved} (run/error.txt has its traceback)"


def test_help_of_train_names_every_option_and_hyperparameter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for those that an offline algorithm would refuse."""
    for algorithm in ALGORITHMS.values():
        out = printed(capsys, "train", algorithm.name, "--help")
        for option in TrainOptions.__dataclass_fields__:
            assert option == "algorithm" or f"--{option.replace('_', '-')}" in out
        for other in ALGORITHMS:
            assert other == algorithm.name or f"`td7 train {other} --help`" in out
        own = out.partition(f"hyperparameters of {algorithm.name}")[2]
        for group, fields in describe_fields(algorithm.config).items():
            is_shown = algorithm.online or group not in ONLINE_GROUPS
            for name, _, doc in fields:
                assert (f" {name}=" in own) == is_shown, name
                assert (doc in own) == is_shown
    assert "(default: 1_000_000)" in out


@pytest.mark.draws
def test_train_prints_its_results_and_draws_the_learning_curve(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*ENV, "--steps", "4e1", "--evaluate-every", "10", "--seeds", "0-1", "--out", "run"]
    assert main(["train", *options, "--set", *words(SMALL)]) == 0
    out, err = capsys.readouterr()
    assert "mean return of an evaluation" in out
    assert "±" in out
    assert "run/learning_curve.png" in out
    assert "td7 evaluate run" not in out  # this task draws no frames
    assert err.startswith(
        "td7 on toys:Point-v0, seeds 0,1, 40 steps, cpu, replay 0.0 MB on cpu → run"
    )
    assert (working_folder / "run" / "learning_curve.png").read_bytes()[1:4] == b"PNG"
    assert json.loads((working_folder / "run" / "config.json").read_text())["steps"] == 40


def test_train_names_the_command_for_a_video(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--env", "toys:Drawn-v0", "--steps", "20", "--evaluate-every", "10", "--out", "run"]
    assert main(["train", *options, "--evaluation-episodes", "1", "--set", *words(SMALL)]) == 0
    assert "td7 evaluate run --video run/video.mp4\n" in capsys.readouterr().out


def test_without_out_each_run_gets_a_new_folder(working_folder: Path) -> None:
    for _ in range(2):  # in the same second
        assert main(["train", *ENV, *TINY]) == 0
    names = sorted(path.name for path in (working_folder / "runs").iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"td7-toys-Point-v0-\d{8}-\d{6}(-2)?", name) for name in names)

"""The command line: useful words, one-line errors, and the exit status that goes with them."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import td7
import toys
from folders import SMALL, newest, words
from td7.algorithms import ALGORITHMS
from td7.algorithms.config import ONLINE_GROUPS
from td7.bench import updates as updates_module
from td7.bench import whole_runs as whole_runs_module
from td7.bench.whole_runs import whole_run
from td7.cli import main as main_module
from td7.cli.main import main
from td7.configs import describe_fields
from td7.engine.engine import Engine
from td7.errors import InputError, Stopped
from td7.options import TrainOptions
from td7.types import PAPER_TASKS

assert toys  # registers the tasks
ENV = ["--env", "toys:Point-v0"]
TINY = ["--steps", "30", "--evaluate-every", "15", "--evaluation-episodes", "2", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one to be in."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds that never left the random phase: its checkpoints are the first."""
    path = tmp_path_factory.mktemp("finished") / "run"
    given = [*ENV, *TINY, "--seeds", "0,3", "--out", str(path), "--set", *words(SMALL)]
    assert main(["train", *given]) == 0
    return path


@pytest.fixture
def run(tmp_path: Path, finished: Path) -> Path:
    """A copy to spoil."""
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    return path


Says = Callable[..., str]


@pytest.fixture
def failing(capfd: pytest.CaptureFixture[str]) -> Says:
    """Runs a command that must fail; gives back its one line without the `td7: `."""

    def failing(*arguments: str | Path, status: int = 2) -> str:
        capfd.readouterr()
        assert main([str(argument) for argument in arguments]) == status
        out, err = capfd.readouterr()
        assert out == ""
        assert err.endswith("\n")
        (line,) = err.splitlines()
        assert line.startswith("td7: ")
        assert len(line) > len("td7: ") + 10
        return line.removeprefix("td7: ")

    return failing


def everything(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(path.rglob("*"))}


# Bad words


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tran"], "unknown command 'tran'; did you mean 'train'?"),
        (["Train"], "did you mean 'train'?"),
        ([""], "unknown command ''"),
        (["--foo"], "unknown option '--foo'"),
        (["--verson"], "did you mean '--version'?"),
        (["-x", "train"], "unknown option '-x'"),
        (["--", "train"], "'--'"),
        (["--"], "'--'"),
        (["train"], "--env is missing: the Gymnasium id of a task, such as HalfCheetah-v4"),
        (["train", "--env"], "--env: expected one argument"),
        (["train", "--env", ""], "--env is missing"),
        (["train", *ENV, "--stps", "100"], "unknown option '--stps'; did you mean '--steps'?"),
        (["train", *ENV, "--step=5"], "unknown option '--step'; did you mean '--steps'?"),
        (["train", *ENV, "-s", "5"], "unknown option '-s'"),
        (["train", *ENV, "--lr", "1e-3"], "unknown option '--lr'; allowed: "),
        (["train", *ENV, "--engine", "fast"], "unknown engine 'fast'; allowed: "),
        (["train", *ENV, "--learning-rate", "1e-3"], "--set learning_rate=…"),
        (["train", *ENV, "--batch-size=5"], "--batch-size is a hyperparameter: --set batch_size=…"),
        (["train", *ENV, "--batch_size=5"], "--batch_size is a hyperparameter: --set batch_size=…"),
        (["train", *ENV, "--quantiles", "5"], "unknown option '--quantiles'; "),  # not of td7
        (["train", "tqc", *ENV, "--quantiles", "5"], "is a hyperparameter: --set quantiles=…"),
        (["train", "--quantiles", "5", "tqc", *ENV], "is a hyperparameter: --set quantiles=…"),
        (["train", "--variant", "online/TQC", "--quantiles", "5"], "--set quantiles=…"),
        (["study", "online", "--quantiles", "5"], "is a hyperparameter: --set quantiles=…"),
        (["resume", "nowhere", "--quantiles", "5"], "--quantiles: a resumed run keeps its"),
        (["evaluate", "nowhere", "--quantiles", "5"], "unknown option '--quantiles'; allowed: "),
        (["train", "td7", "td3", *ENV], "does not know what to do with 'td3'"),
        (["train", "td8", *ENV], "unknown algorithm 'td8'; did you mean 'td7'? allowed: td7"),
        (["train", "td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["train", "td77", "--help"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["train", "td77", "--stps", "5"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["train", "--steps", "many", "td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["train", "--variant", "desing/s'"], "unknown study 'desing'; did you mean 'design'?"),
        (["train", "--env", "HalfCheeta-v4"], "did you mean 'HalfCheetah-v4'?"),
        (["train", "--env", "HalfCheetah-v9"], "unknown task version 'HalfCheetah-v9'"),
        (["train", "--env", "My-v0"], "; for your own task, use MODULE:ID, which imports MODULE"),
        (["train", *ENV, "--steps", "1e13"], "steps=10000000000000 must be at most 1e+12"),
        (["train", "--env", "toy:Point-v0"], "module 'toy' cannot be imported"),
        (["train", "--env", "toys:Pint-v0"], "did you mean 'Point-v0'?"),
        (["train", "--env", "MountainCa-v0"], "did you mean 'MountainCarContinuous-v0'?"),
        (["train", "--env", "CartPole-v1"], "'CartPole-v1' has a Discrete action space"),
        (["train", "--env", "FrozenLake-v1"], "has a Discrete observation space; allowed: a Box"),
        (["train", *ENV, "--env-kwargs", "wings=2"], "unexpected keyword argument 'wings'"),
        (["train", *ENV, "--env-kwargs", "wings"], "--env-kwargs takes name=value, given 'wings'"),
        (["train", *ENV, "--steps", "many"], "steps takes a whole number, given 'many'"),
        (["train", *ENV, "--steps", "1.5"], "steps takes a whole number, given '1.5'"),
        (["train", *ENV, "--steps", "nan"], "steps takes a whole number, given 'nan'"),
        (["train", *ENV, "--steps", "inf"], "steps takes a whole number, given 'inf'"),
        (["train", *ENV, "--steps", "0"], "steps=0 must be at least 1"),
        (["train", *ENV, "--steps", "-5"], "steps=-5 must be at least 1"),
        (["train", *ENV, "--steps"], "--steps: expected one argument"),
        (["train", *ENV, "--evaluate-every", "0"], "evaluate_every=0 must be at least 1"),
        (["train", *ENV, "--evaluation-episodes", "0"], "evaluation_episodes=0 must be at least 1"),
        (["train", *ENV, "--metrics-every", "0"], "metrics_every=0 must be at least 1"),
        (["train", *ENV, "--workers", "-1"], "workers=-1 must be at least 0"),
        (["train", *ENV, "--workers", "two"], "workers takes a whole number, given 'two'"),
        (["train", *ENV, "--snapshot-every", "-1"], "snapshot_every=-1.0 must be at least 0"),
        (["train", *ENV, "--snapshot-every", "nan"], "snapshot_every takes a number, given 'nan'"),
        (["train", *ENV, "--device", "gpu"], "unknown device 'gpu'; allowed: "),
        (["train", *ENV, "--precision", "float16"], "unknown precision 'float16'"),
        (["train", *ENV, "--seeds", "3-1"], "seeds 3-1 runs backwards"),
        (["train", *ENV, "--seeds", "0,1,0"], "seed 0 is given twice"),
        (["train", *ENV, "--seeds", "0-3,2"], "seed 2 is given twice"),
        (["train", *ENV, "--seeds", "-1"], "seeds takes 0-9 or 0,3,7, given '-1'"),
        (["train", *ENV, "--seeds", "first"], "seeds takes 0-9 or 0,3,7, given 'first'"),
        (["train", *ENV, "--seeds", "1.5"], "seeds takes 0-9 or 0,3,7, given '1.5'"),
        (["train", *ENV, "--seeds", "1-"], "seeds takes 0-9 or 0,3,7, given '1-'"),
        (["train", *ENV, "--seeds", ""], "seeds takes 0-9 or 0,3,7, given ''"),
        (["train", *ENV, "--seeds", "0-1_000"], "seeds takes 0-9 or 0,3,7"),
        (["train", *ENV, "--seeds", "0-99999999999"], "seeds are more than 1,000 at once"),
        (["train", *ENV, "--seeds", "0-999,1000"], "seeds are more than 1,000 at once"),
        (["train", *ENV, "--workers", "1001"], "workers=1001 must be at most 1000"),
        (["train", *ENV, "--set", "batch_sise=5"], "did you mean 'batch_size'?"),
        (["train", *ENV, "--set", "batch_size"], "--set takes field=value, given 'batch_size'"),
        (["train", *ENV, "--set", "batch_size="], "batch_size takes a whole number, given ''"),
        (["train", *ENV, "--set", "batch_size=0"], "batch_size=0 must be at least 1"),
        (["train", *ENV, "--set", "batch_size=2.5"], "batch_size takes a whole number"),
        (["train", *ENV, "--set", "discount=1.1"], "discount=1.1 must be at most 1"),
        (["train", *ENV, "--set", "learning_rate=0"], "learning_rate=0.0 must be above 0"),
        (["train", *ENV, "--set", "hidden_dim=8", "hidden_dim=9"], "--set names hidden_dim twice"),
        (["train", *ENV, "--set"], "--set: expected at least one argument"),
        (["resume"], "the following arguments are required: DIR"),
        (["resume", "nowhere"], "nowhere does not exist"),
        (["resume", "nowhere", "--video", "a.mp4"], "unknown option '--video'"),
        (["evaluate"], "the following arguments are required: DIR"),
        (["evaluate", "nowhere"], "nowhere does not exist"),
        (["evaluate", "a", "--import", "toy"], "--import: module 'toy' cannot be imported: Mod"),
        (["resume", "a", "--import=toys", "--import=toy"], "--import: module 'toy' cannot be im"),
        (["evaluate", "a", "--import", ""], "--import: module '' cannot be imported: ValueError"),
        (["evaluate", "a", "b"], "does not know what to do with 'b'"),
        (["list"], "the following arguments are required"),
        (["list", "algorithm"], "unknown list 'algorithm'; did you mean 'algorithms'?"),
        (["list", "algorithms", "td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["list", "tasks", "td7"], "td7 list tasks does not know what to do with 'td7'"),
    ],
)
def test_bad_words_get_one_line(
    arguments: list[str], told: str, folder: Path, failing: Says
) -> None:
    assert told in failing(*arguments)
    assert everything(folder) == {}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried 9 GiB"),
    ],
)
def test_what_does_not_fit_is_one_line(
    error: Exception, folder: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("td7.training.lockstep.LockstepTraining.__init__", too_large)
    given = ["--steps", "20", "--set", "random_steps=10", "--quiet"]
    told = failing("train", "td3", *ENV, *given, status=1)
    assert told.startswith("out of memory (")
    assert "); fewer seeds at once, smaller networks or a smaller replay take less" in told
    assert told.endswith("--replay-device cpu has a GPU's replay in the host's memory") == (
        "CUDA" in str(error)
    )


def test_other_errors_are_not_hidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("td7.training.lockstep.LockstepTraining.__init__", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main(["train", "td3", *ENV, "--steps", "20", "--quiet"])


def test_a_task_beside_the_user_is_found(folder: Path) -> None:
    """By `td7` as by `python -m td7`."""
    (folder / "plant_here.py").write_text(
        "import gymnasium, toys\ngymnasium.register('Plant-v0', toys.Point, max_episode_steps=10)\n"
    )
    script = "import sys; sys.path.remove(''); from td7.cli.main import main; sys.exit(main())"
    words = ["train", "td3", "--env", "plant_here:Plant-v0", "--steps", "15", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--set", "random_steps=10"],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def scripted(tmp_path: Path, folder: Path) -> Iterator[Path]:
    """A run whose task was registered by a script; `cart_here`, beside the user, does so, too."""
    before = dict(gymnasium.registry)
    gymnasium.register("Cart-v0", "toys:Point", max_episode_steps=10)
    path = tmp_path / "run"
    assert (
        main(["train", "--env", "Cart-v0", *TINY, "--out", str(path), "--set", *words(SMALL)]) == 0
    )
    gymnasium.registry.pop("Cart-v0")
    (folder / "cart_here.py").write_text(
        "import gymnasium, toys\n\n\n"
        "class Cart(toys.Point): pass\n\n\n"
        "gymnasium.register('Cart-v0', Cart, max_episode_steps=10)\n"
    )
    yield path
    sys.modules.pop("cart_here", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "RUN", "--steps", "40", "--quiet"],
        ["evaluate", "RUN", "--episodes", "1"],
        ["dataset", "record", "--run", "RUN", "--kind", "expert", "--rows", "20"],
        ["dataset", "record", "--run", "RUN", "--kind", "expert", "--rows", "20", "--workers", "1"],
    ],
)
def test_a_task_of_a_script_is_imported(
    words: list[str], scripted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run names no module; the commands that make it need one, and say so."""
    given = [word.replace("RUN", str(scripted)) for word in words]
    capsys.readouterr()
    assert main(given) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("td7: unknown task 'Cart-v0'; ")
    assert told.endswith("; one's own: --import MODULE, which registers it")
    assert "MODULE:ID" not in told
    assert main([*given, "--import", "json", "--import", "cart_here"]) == 0


def test_a_module_that_trains_when_it_is_imported_is_refused(
    scripted: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script without a guard: it would train again."""
    (folder / "script_here.py").write_text("import td7\ntd7.train(env='toys:Point-v0')\n")
    capsys.readouterr()
    assert main(["evaluate", str(scripted), "--import", "script_here"]) == 2
    told = "td7: --import: module 'script_here' uses td7 when it is imported: put that under"
    assert capsys.readouterr().err == f"{told} `if __name__ == '__main__':`\n"
    assert not (folder / "runs").exists()


def test_no_cuda_is_told(folder: Path, failing: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    told = failing("train", *ENV, "--device", "cuda")
    assert told == "device cuda was asked for, but PyTorch sees no CUDA device; allowed: cpu"
    assert everything(folder) == {}


def test_python_gets_the_same_errors(folder: Path) -> None:
    for options, told in (
        ({"env": "toys:Point-v0", "stps": 5}, "unknown option 'stps'; did you mean 'steps'?"),
        ({"env": "toys:Point-v0", "seeds": []}, "seeds is empty"),
        ({"env": "toys:Point-v0", "seeds": [1, -2]}, "seeds must be at least 0, given -2"),
        ({"env": "toys:Point-v0", "seeds": [0.5]}, "seeds takes a whole number, given 0.5"),
        ({"env": "toys:Point-v0", "seeds": range(1001)}, "seeds are more than 1,000 at once"),
        ({"env": "toys:Point-v0", "seeds": count()}, "seeds are more than 1,000 at once"),
        ({"env": "toys:Point-v0", "seeds": None}, "seeds takes whole numbers, given None"),
        ({"env": "toys:Point-v0", "set": {"batch_size": 0}}, "batch_size=0 must be at least 1"),
        ({}, "--env is missing"),
        ({"algorithm": "td77"}, "unknown algorithm 'td77'; did you mean 'td7'?"),
        ({"algorithm": "td77", "dataset": "no"}, "unknown algorithm 'td77'; did you mean 'td7'?"),
    ):
        with pytest.raises(InputError, match=re.escape(told)):
            td7.train(**options)
    assert everything(folder) == {}


@pytest.mark.parametrize(
    ("algorithm", "setting", "told"),
    [
        ("td3+ofe", "ofe_features=241", "ofe_features"),
        ("td3+ofe", "ofe_predicted_dims=3", "ofe_predicted_dims"),
        ("tqc", "dropped_quantiles=25", "dropped_quantiles=25 must be below quantiles=25"),
    ],
)
def test_what_does_not_go_together_is_told_before_anything_is_written(
    algorithm: str, setting: str, told: str, folder: Path, failing: Says
) -> None:
    assert told in failing("train", algorithm, *ENV, "--out", "run", "--set", setting)
    assert everything(folder) == {}


# Bad folders


def test_out_must_be_new(folder: Path, finished: Path, failing: Says) -> None:
    before = everything(finished)
    told = failing("train", *ENV, "--out", finished)
    assert told == f"{finished} already holds a run; `td7 resume {finished}` continues it"
    assert everything(finished) == before
    (folder / "notes").mkdir()
    (folder / "notes" / "a").write_text("mine")
    before = everything(folder)
    told = failing("train", *ENV, "--out", "notes")
    assert told == "notes is not empty; give --out a new folder"
    assert failing("train", *ENV, "--out", "notes/a") == "notes/a is a file, not a folder"
    told = failing("train", *ENV, "--out", "notes/a/b")
    assert told == "cannot write to notes/a/b: Not a directory"
    assert everything(folder) == before


def test_out_in_a_place_to_read_only(
    folder: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    told = failing("train", *ENV, "--out", "there")
    assert told == "cannot write to there: Permission denied"
    assert everything(folder) == {}


def test_a_run_in_a_place_to_read_only(
    run: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def refuse(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not mode.startswith("r"):
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert failing("resume", run) == f"cannot write to {run}: Permission denied"


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_no_run_in_a_folder(command: str, folder: Path, failing: Says) -> None:
    assert failing(command, folder) == f"{folder} holds no run: it has no config.json"
    file = folder / "file"
    file.write_text("")
    assert failing(command, file) == f"{file} is a file, not a run folder"


@pytest.mark.parametrize("command", ["resume", "evaluate"])
@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '"text"', "\xff"])
def test_a_damaged_config(command: str, text: str, run: Path, failing: Says) -> None:
    (run / "config.json").write_text(text, encoding="latin-1")
    before = everything(run)
    assert failing(command, run).startswith(f"{run / 'config.json'} ")
    assert everything(run) == before


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
def test_a_config_with_a_senseless_field(
    field: str, value: object, run: Path, failing: Says
) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, field: value}))
    failing("resume", run)
    (run / "config.json").write_text(
        json.dumps({name: v for name, v in config.items() if name != field})
    )
    assert f"{run / 'config.json'} is damaged" in failing("resume", run)


def test_evaluating_without_seeds(run: Path, failing: Says) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["seeds"]
    (run / "config.json").write_text(json.dumps(config))
    assert f"{run / 'config.json'} is damaged" in failing("evaluate", run)


def spoil_text(file: Path) -> None:
    file.write_text(file.read_text()[:-20])


def spoil_json(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        data = json.loads(file.read_text())
        change(data)
        file.write_text(json.dumps(data))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_text,
        Path.unlink,
        lambda file: file.write_text("[]"),
        lambda file: file.write_text("{}"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        spoil_json(lambda data: data.update(format=99)),
        spoil_json(lambda data: data.update(seeds=5)),
        spoil_json(lambda data: data.update(task=[])),
        spoil_json(lambda data: data.update(task={})),
        spoil_json(lambda data: data.update(network=[])),
        spoil_json(lambda data: data["network"].update(layers=[])),
        spoil_json(lambda data: data["network"]["layers"][0].update(norm="norma")),
        spoil_json(lambda data: data["network"]["layers"][0].update(activation="sigmoid")),
        spoil_json(lambda data: data["network"]["layers"][0].update(width=3)),
        spoil_json(lambda data: data["network"]["layers"][0].update(inputs=["nobody"])),
        spoil_json(lambda data: data.update(exploration="loud")),
    ],
)
def test_a_damaged_policy_json(spoil: Callable[[Path], object], run: Path, failing: Says) -> None:
    spoil(run / "policy" / "policy.json")
    assert str(run / "policy") in failing("evaluate", run)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[:5]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff" * 1_000),
        Path.unlink,
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_damaged_policy_file(spoil: Callable[[Path], object], run: Path, failing: Says) -> None:
    spoil(run / "policy" / "seed-3.safetensors")
    assert f"{run / 'policy' / 'seed-3.safetensors'} is damaged" in failing("evaluate", run)
    assert main(["evaluate", str(run), "--seed", "0", "--episodes", "1"]) == 0


def test_a_run_without_a_policy_yet(run: Path, failing: Says) -> None:
    shutil.rmtree(run / "policy")
    told = failing("evaluate", run)
    reason = "policy/policy.json is written with a run's first snapshot"
    assert told == f"{run} holds no policy: {reason}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--seed", "1"], "has no seed 1; allowed: 0, 3"),
        (["--seed", "x"], "seed takes a whole number, given 'x'"),
        (["--episodes", "0"], "episodes=0 must be at least 1"),
        (["--episodes", "-3"], "episodes=-3 must be at least 1"),
        (["--episodes", "few"], "episodes takes a whole number, given 'few'"),
        (["--video", "film.txt"], "a video file ends in .mp4 or .gif, given 'film.txt'"),
        (["--video", "film"], "a video file ends in .mp4 or .gif, given 'film'"),
        (["--video", "no/where.mp4"], "no is not a folder"),
        (["--video", "film.mp4"], "task 'toys:Point-v0' draws no frames: "),
    ],
)
def test_bad_words_to_evaluate(
    options: list[str], told: str, finished: Path, folder: Path, failing: Says
) -> None:
    assert told in failing("evaluate", finished, *options)
    assert everything(folder) == {}


def test_a_fault_while_running_is_status_1(folder: Path, failing: Says) -> None:
    given = [*ENV, "--steps", "50", "--quiet", "--seeds", "7", "--out", "run"]
    given += ["--set", "random_steps=10"]
    told = failing("train", *given, "--env-kwargs", "fault=raise", "at=3", status=1)
    where = "seed 7, evaluation at step 0"
    fault = "the environment raised ValueError: the motor is on fire"
    saved = "all training before it is saved, `td7 resume run` tries again"
    assert told == f"{where}: {fault}; {saved} (run/error.txt has its traceback)"


def test_an_environment_is_closed_also_after_a_fault(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(toys.Point, "close", lambda _: closed.append(True))
    monkeypatch.setattr(toys.Point, "step", lambda *_: 1 / 0)
    with pytest.raises(td7.RunError, match=r"seed 0, evaluation: .* ZeroDivisionError"):
        td7.evaluate(run)
    assert closed == [True]


def test_a_run_leaves_pytorch_as_it_was(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU an engine asks for fast products, which whoever called may not want."""
    build = Engine.__init__

    def fast(*arguments: Any, **options: Any) -> None:
        torch.set_float32_matmul_precision("high")
        build(*arguments, **options)

    monkeypatch.setattr(Engine, "__init__", fast)
    edit = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**edit, "threads": 2}))
    with pytest.raises(InputError, match="threads is 1, given 2"):
        td7.resume(run, quiet=True)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("content", [b"", b"seed,step\n1,2\n1,2,3\n", b"\xff"])
def test_a_damaged_table(run: Path, content: bytes) -> None:
    (run / "evaluations.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"evaluations\.csv is damaged: "):
        _ = td7.Run(run).evaluations


def test_a_disk_that_fails_is_status_1(
    run: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    assert "Input/output error" in failing("resume", run, "--quiet", status=1)


# Good words


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        out = said(capsys, *arguments)
        for command in ("train", "resume", "evaluate", "list", "--version"):
            assert command in out


def test_help_of_train_names_every_option_and_hyperparameter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All but those that an agent which needs data would refuse."""
    for algorithm in ALGORITHMS.values():
        out = said(capsys, "train", algorithm.name, "--help")
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


@pytest.mark.parametrize("command", ["resume", "evaluate", "list"])
def test_help_of_commands(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, command, "--help")
    assert out.startswith(f"usage: td7 {command}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == f"td7 {td7.__version__}\n"


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    *lines, last = said(capsys, "list", "algorithms").strip().split("\n")
    assert last == "`td7 list algorithms NAME` shows the hyperparameters of one."
    titles = [line for line in lines if line]
    for title, (name, algorithm) in zip(titles, ALGORITHMS.items(), strict=True):
        assert title.split(maxsplit=1) == [name, algorithm.summary]
        own, _, settings = said(capsys, "list", "algorithms", name).partition("\n\n")
        assert own == title
        assert settings.startswith(f"hyperparameters of {name}, for --set:\n")
        assert settings.strip() in said(capsys, "train", name, "--help")
    out = said(capsys, "list", "tasks")
    for task in PAPER_TASKS:
        assert re.search(rf"^{task} +in the paper$", out, re.MULTILINE)
    assert "Hopper-v5\n" in out


def test_train_shows_what_came_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*ENV, "--steps", "4e1", "--evaluate-every", "10", "--seeds", "0-1", "--out", "run"]
    assert main(["train", *given, "--set", *words(SMALL)]) == 0
    out, err = capsys.readouterr()
    assert "mean return of an evaluation" in out
    assert "±" in out
    assert "run/learning_curve.png" in out
    assert "td7 evaluate run" not in out  # this task draws no frames
    assert err.startswith(
        "td7 on toys:Point-v0, seeds 0,1, 40 steps, cpu, replay 0.0 MB on cpu → run"
    )
    assert (folder / "run" / "learning_curve.png").read_bytes()[1:4] == b"PNG"
    assert json.loads((folder / "run" / "config.json").read_text())["steps"] == 40


def test_a_task_that_draws_may_be_watched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--env", "toys:Drawn-v0", "--steps", "20", "--evaluate-every", "10", "--out", "run"]
    assert main(["train", *given, "--evaluation-episodes", "1", "--set", *words(SMALL)]) == 0
    assert "td7 evaluate run --video run/video.mp4\n" in capsys.readouterr().out


def test_without_out_runs_get_folders_of_their_own(folder: Path) -> None:
    for _ in range(2):  # in the same second
        assert main(["train", *ENV, *TINY]) == 0
    names = sorted(path.name for path in (folder / "runs").iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"td7-toys-Point-v0-\d{8}-\d{6}(-2)?", name) for name in names)


def test_evaluate_tells_the_returns(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "evaluate", str(finished), "--episodes", "4")
    played = td7.evaluate(finished, episodes=4)
    assert list(played.columns) == ["seed", "episode", "return", "length"]
    assert list(played["seed"]) == [0] * 4 + [3] * 4
    for _, returns in played.groupby("seed")["return"]:
        for number in (returns.mean(), returns.min(), returns.max()):
            assert f"{number:,.1f}" in out
    # The checkpoint is still the first, so this is the run's last evaluation again, and more.
    last = td7.Run(finished).evaluations.query("step == 30")
    again = played[played["episode"] < 2]
    assert list(again["return"]) == list(last["return"])
    assert list(again["length"]) == list(last["length"])
    only = td7.evaluate(finished, seed=3, episodes=4)
    assert list(only["return"]) == list(played[played["seed"] == 3]["return"])


def test_evaluations_without_their_columns_are_told(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "damaged"
    shutil.copytree(finished, run)
    (run / "evaluations.csv").write_text("a,b\n1,2\n")
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 2
    told = f"td7: {run / 'evaluations.csv'} is damaged: no columns seed and step\n"
    assert capsys.readouterr().err == told


def test_evaluate_repeats_the_last_evaluation(tmp_path: Path) -> None:
    """Also where it was not at the last step."""
    run = td7.train(
        env="toys:Point-v0",
        steps=70,
        evaluate_every=30,
        evaluation_episodes=2,
        set={**SMALL, "random_steps": 20, "early_assessment_episodes": 5},
        quiet=True,
        out=str(tmp_path / "run"),
    )
    last = run.evaluations.query("step == 60")
    assert list(td7.evaluate(run.path, episodes=2)["return"]) == list(last["return"])


# Real processes


def process(
    *arguments: str | Path, stdout: int = subprocess.PIPE, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`td7` with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "td7", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_process_exits_with_the_status(tmp_path: Path) -> None:
    bad = process("train", *ENV, "--seeds", "3-1", "--out", tmp_path / "run")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "td7: seeds 3-1 runs backwards\n"
    assert everything(tmp_path) == {}


def test_a_reader_that_has_gone_away_is_no_error() -> None:
    """As in `td7 list tasks | head -n 1`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = process("list", "tasks", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pendulum") / "run"
    given = ["--env", "InvertedPendulum-v5", *TINY, "--out", str(path), "--set", *words(SMALL)]
    assert main(["train", *given]) == 0
    return path


# imageio's reader of mp4 files leaves pipes open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_video(name: str, pendulum: Path, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    file = tmp_path / name
    given = ["evaluate", str(pendulum), "--episodes", "1", "--video", str(file)]
    done = process(*given, MUJOCO_GL="", DISPLAY="", WAYLAND_DISPLAY="")  # no screen
    if re.search("no frame with MUJOCO_GL=(egl|osmesa)", done.stderr):
        pytest.skip(f"neither EGL nor OSMesa here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert f"video: {file}" in done.stdout
    with imageio.get_reader(file) as reader:
        frames = [np.asarray(frame) for frame in reader]
    length = int(td7.evaluate(pendulum, episodes=1)["length"][0])
    assert len(frames) == length
    assert frames[0].shape[:2] == (480, 480)
    assert all(frame.max() > 50 for frame in frames)
    assert newest(pendulum).exists()  # filming leaves the run alone


def test_a_replay_that_cannot_fit_is_refused(
    folder: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 rows of 8 float32 (32 kB a seed) and 1,356 priorities and sums of 8 bytes."""
    monkeypatch.setattr("td7.training.hardware._free_bytes", lambda _: 60_000)
    words = ("train", "--env", "toys:Point-v0", "--steps", "1e9", "--set", "replay_capacity=1000")
    said = failing(*words, "--seeds", "0,1")
    assert "takes 0.0 GB of cpu (1,000 rows each), which has 0.0 GB free" in said
    assert "allowed: --set replay_capacity=6.6e+02 or less, fewer seeds at once" in said
    assert everything(folder) == {}


def test_bench_measures_updates_and_whole_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--env", "toys:Point-v0", "--seeds", "1,2", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--steps", "30", "--device", "cpu"]
    assert main([*words, "--algorithms", "td7,td3"]) == 0
    said = capsys.readouterr().out
    (file,) = (folder / "results" / "bench").iterdir()
    assert str(file.relative_to(folder)) in said
    data = json.loads(file.read_text())
    measured = [(r["algorithm"], r["engine"], r["seeds"]) for r in data["results"]]
    assert measured == [
        *(("td7", "plain", 1), ("td7", "eager", 1), ("td7", "eager", 2)),
        *(("td3", "stable-baselines3", 1), ("td3", "eager", 1), ("td3", "eager", 2)),
    ]
    assert {r["env"] for r in data["results"]} == {"toys:Point-v0"}
    for r in data["results"]:
        assert 0 < r["seeds"] * 1e3 / r["milliseconds"] == r["seed_updates_per_second"]
        # The products alone are most of a plain update, and never more than all of it.
        assert r["floor_milliseconds"] > 0
    plain = data["results"][0]
    assert 0.1 < plain["floor_milliseconds"] / plain["milliseconds"] < 1.2
    names = ("algorithm", "engine", "seeds", "steps", "workers")
    runs = [tuple(r[name] for name in names) for r in data["end_to_end"]]
    assert runs == [(name, "eager", seeds, 30, 0) for name in ("td7", "td3") for seeds in (1, 2)]
    for r in data["end_to_end"]:
        assert r["seed_steps_per_second"] == 30 * r["seeds"] / r["seconds"]
        assert r["steady"] > 0
    assert data["machine"]["cores"]


def test_a_stopped_bench_keeps_what_it_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = whole_run
    made: list[whole_runs_module.EndToEnd] = []

    def stopped_in_the_second(*arguments: Any) -> whole_runs_module.EndToEnd:
        if made:
            raise Stopped(signal.SIGTERM, folder / "run")
        made.append(run(*arguments))
        return made[-1]

    monkeypatch.setattr("td7.bench.whole_runs.whole_run", stopped_in_the_second)
    words = ["bench", "--env", "toys:Point-v0", "--seeds", "1,2", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--steps", "30", "--device", "cpu"]
    assert main(words) == 128 + signal.SIGTERM
    (file,) = (folder / "results" / "bench").iterdir()
    assert f"td7: stopped by SIGTERM; what was measured is in {file.relative_to(folder)}" in (
        capsys.readouterr().err
    )
    data = json.loads(file.read_text())
    assert [r["seeds"] for r in data["results"]] == [1, 1, 2]
    assert [r["seeds"] for r in data["end_to_end"]] == [1]


def test_bench_measures_what_learns_from_data(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside d3rlpy, which has no X-QL; one update a round, for CQL's take long."""
    monkeypatch.setattr("td7.bench.updates.ROUND", 1)
    threads = torch.get_num_threads()
    words = ["bench", "--env", "toys:Point-v0", "--seeds", "1", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--device", "cpu"]
    assert main([*words, "--algorithms", "td3+bc,iql,cql,xql"]) == 0
    assert "Gym has been unmaintained" not in capsys.readouterr().err
    (file,) = (folder / "results" / "bench").iterdir()
    data = json.loads(file.read_text())
    measured = [(r["algorithm"], r["engine"], r["is_reference"]) for r in data["results"]]
    assert measured == [
        *(("td3+bc", "d3rlpy", True), ("td3+bc", "eager", False)),
        *(("iql", "d3rlpy", True), ("iql", "eager", False)),
        *(("cql", "d3rlpy", True), ("cql", "eager", False)),
        ("xql", "eager", False),
    ]
    for r in data["results"]:
        assert 0 < r["seed_updates_per_second"] == 1e3 / r["milliseconds"]
        assert r["floor_milliseconds"] > 0
    assert data["machine"]["torch_threads"] == torch.get_num_threads() == threads


def test_bench_measures_on_each_device(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which a second is pretended here: both are the CPU."""
    measure, machine = updates_module.measure, updates_module.machine
    pretended = {"engines": ["eager"], "device": "cpu"}

    def measured(*arguments: Any, device: str, **options: Any) -> list[updates_module.Result]:
        found = measure(*arguments, **{**options, **pretended})
        return [dataclasses.replace(result, device=device) for result in found]

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(updates_module, "measure", measured)
    monkeypatch.setattr(
        updates_module, "machine", lambda devices: machine(["cpu"]) | {"of": devices}
    )
    words = ["bench", "--env", "toys:Point-v0", "--seeds", "1", "--rows", "300", "--seconds"]
    assert main([*words, "0.01", "--device", "cpu,cuda"]) == 0
    (file,) = (folder / "results" / "bench").iterdir()
    assert file.name.startswith("cpu-cuda-")
    data = json.loads(file.read_text())
    assert data["machine"]["of"] == ["cpu", "cuda"]
    found = [(r["device"], r["engine"], r["is_reference"]) for r in data["results"]]
    pair = (("plain", True), ("eager", False))
    assert found == [(device, *who) for device in ("cpu", "cuda") for who in pair]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " td7 " in line]
    assert [row[3] for row in rows] == ["cpu", "cpu", "cuda", "cuda"]
    # Beside the plain program on the same device.
    shares = [r["seed_updates_per_second"] for r in data["results"]]
    told = [float(row[-8]) for row in rows]
    assert told == [1.0, pytest.approx(shares[1] / shares[0], abs=0.006), 1.0, told[3]]
    assert told[3] == pytest.approx(shares[3] / shares[2], abs=0.006)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--env", "Nope-v0"], "Nope"),
        (["--algorithms", "td8"], "did you mean 'td7'"),
        (["--engines", "egaer"], "did you mean 'eager'"),
        (["--engines", "samplin"], "did you mean 'sampling'"),
        (["--seeds", "0"], "seeds=0 must be at least 1"),
        (["--device", "cpu,gpu"], "unknown device 'gpu'; allowed: auto, cpu, cuda"),
        (["--device", "cpu,cpu"], "device cpu is given twice"),
        (["--device", "cpu", "--engines", "graph"], "engine graph needs a CUDA device"),
        (["--seconds", "soon"], "seconds takes a number"),
        (["--seconds", "-1"], "seconds=-1.0 must be above 0"),
        (["--out", "/proc/x"], "cannot write to /proc/x: "),
        (["--steps", "30", "--algorithms", "td7,cql"], "steps=30: cql learns from data"),
    ],
)
def test_bench_refuses_before_it_measures(
    folder: Path, failing: Says, words: list[str], reason: str
) -> None:
    assert reason in failing("bench", *words)
    assert everything(folder) == {}


def test_an_interrupt_while_libraries_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the process; what they would raise instead of KeyboardInterrupt is not seen."""
    seen: list[object] = []
    parser = main_module._parser

    def watched(words: Sequence[str]) -> Any:
        seen.append(signal.getsignal(signal.SIGINT))
        return parser(words)

    monkeypatch.setattr(main_module, "_parser", watched)
    before = signal.getsignal(signal.SIGINT)
    for given in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, given)
        try:
            assert main(["list", "algorithms"]) == 0
            assert signal.getsignal(signal.SIGINT) is given
        finally:
            signal.signal(signal.SIGINT, before)
    elsewhere = threading.Thread(target=main, args=(["list", "algorithms"],))
    elsewhere.start()
    elsewhere.join()
    assert seen == [signal.SIG_DFL, signal.SIG_IGN, before]

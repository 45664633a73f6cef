"""Learning from a dataset: what is refused, and what the command shows."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import td7
from folders import words
from interrupted_runs import refused
from offline_runs import BOUNDS, POINT, TINY, Fields, point_fields, save, train
from td7.algorithms import ALGORITHMS
from td7.cli.main import main
from td7.cli.terminal import evaluation_table
from td7.datasets.hdf5 import write_hdf5
from td7.engine.replay import required_bytes
from td7.errors import InputError
from td7.rollouts.registration import describe
from td7.runs.folder import EVALUATIONS
from td7.training.hardware import WORTH_COMPILING, check_memory
from td7.training.resolve import read_dataset, run_config, train_options
from td7.types import RowLayout, Task


@pytest.fixture(scope="module")
def fields() -> Fields:
    return point_fields()


@pytest.fixture(scope="module")
def data(fields: Fields, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "point.hdf5", fields, **BOUNDS)


# -- what is refused -----------------------------------------------------------------------------

ENV = ["--env", POINT]
WITHOUT_EFFECT = "has no effect with --dataset"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["td3", "--dataset", "DATA"],
            "td3 does not learn from a dataset; allowed: td7, td3+bc, cql, iql, xql",
        ),
        (["iql", *ENV], "iql learns from a dataset: give --dataset"),
        (["iql"], "--env is missing: the Gymnasium id of a task, such as HalfCheetah-v4"),
        (
            ["td7", "--dataset", "DATA", "--set", "random_steps=5"],
            f"random_steps=5 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--set", "replay_capacity=5"],
            f"replay_capacity=5 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--set", "checkpoints=minimum"],
            f"checkpoints=minimum {WITHOUT_EFFECT}",
        ),
        (
            ["td3+bc", "--dataset", "DATA", "--set", "exploration_noise=0.2"],
            f"exploration_noise=0.2 {WITHOUT_EFFECT}",
        ),
        (
            ["td7", "--dataset", "DATA", "--keep-policies", "30", "--evaluate-every", "20"],
            "--keep-policies 30 must be a multiple of --evaluate-every 20",
        ),
        (
            ["cql", "--dataset", "DATA", "--env", "toys:Count-v0"],
            "DATA: actions has 2 dimensions, the task's 1",
        ),
        (
            ["cql", "--dataset", "WIDE"],
            f"WIDE has states of 3 numbers, but {POINT} has states of 2",
        ),
        (
            ["cql", "--dataset", "WIDE", *ENV],
            f"WIDE has states of 3 numbers, but {POINT} has states of 2",
        ),
        (["cql", "--dataset", "NAMELESS"], "NAMELESS does not name its task: give --env"),
        (["xql", "--dataset", "/none"], "/none is neither a file nor a local Minari dataset"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: Sequence[str],
    line: str,
    tmp_path: Path,
    data: Path,
    fields: Fields,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide = {
        name: fields[name].repeat(2, 1)[:, :3] for name in ("observations", "next_observations")
    }
    bounds = {"action_low": [-1.0, -2.0], "action_high": [3.0, 2.0]}
    unbounded = {**fields, "actions": fields["actions"] / 3}
    paths = {
        "DATA": data,
        "WIDE": save(tmp_path / "wide.hdf5", {**fields, **wide}, **bounds),
        "NAMELESS": save(tmp_path / "nameless.hdf5", unbounded, task=""),
    }
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)  # where runs/ would be written
    error = refused(["train", *(str(paths.get(word, word)) for word in arguments)], capsys)
    for name, path in paths.items():
        line = line.replace(name, str(path))
    assert error == f"td7: {line}"
    assert list(here.iterdir()) == []


def test_advice_for_a_dataset_that_does_not_fit(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice does not name anything that would itself be refused."""
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: 1000)
    with pytest.raises(InputError) as error:
        train("td7", tmp_path / "run", data)
    assert str(error.value).endswith("; allowed: a smaller dataset, fewer seeds at once")
    assert not (tmp_path / "run").exists()


def test_memory_is_checked_for_one_copy_of_the_rows(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free memory is exactly enough for two seeds; two copies would not fit."""
    options = train_options({"dataset": str(data), "seeds": "0-1", "device": "cpu"})
    dataset = read_dataset(options.dataset, options.task)
    config, spec = run_config(options, dataset), describe(Task(POINT))
    n = len(dataset.rows)
    priorities = required_bytes(RowLayout(2, 2), n, 2)[1]
    enough = 4 * n * 8 + priorities  # a row: two states of two numbers, an action of two, and two
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: enough)
    check_memory(config, spec)
    monkeypatch.setattr("td7.training.hardware.device_bytes", lambda _: enough - 1)
    with pytest.raises(InputError, match="the replay of 2 seed"):
        check_memory(config, spec)


@pytest.mark.parametrize("name", [a.name for a in ALGORITHMS.values() if a.offline is None])
def test_online_algorithms_refuse_a_dataset(name: str, tmp_path: Path, data: Path) -> None:
    with pytest.raises(InputError) as error:
        td7.train(name, dataset=str(data), out=str(tmp_path / "run"))
    allowed = "td7, td3+bc, cql, iql, xql"
    assert str(error.value) == f"{name} does not learn from a dataset; allowed: {allowed}"
    assert list(tmp_path.iterdir()) == []


def test_every_step_is_an_update(data: Path) -> None:
    """A million by default, as in the paper; all count for whether compilation pays off."""
    values = {"dataset": str(data), "device": "cpu"}
    options = train_options(values)
    dataset = read_dataset(options.dataset, options.task)
    assert run_config(options, dataset).steps == 1_000_000
    for steps, engine in (
        (WORTH_COMPILING - 1, "eager"),
        (WORTH_COMPILING, "compiled"),
    ):
        chosen = train_options({**values, "steps": steps})
        assert run_config(chosen, dataset).engine == engine


# -- what is shown -------------------------------------------------------------------------------


@pytest.mark.draws
def test_the_command_shows_no_score_without_reference_returns(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    few = ["--steps", "4", "--evaluate-every", "2", "--evaluation-episodes", "1"]
    options = ["--dataset", str(data), "--out", str(path), *few, "--set", *words(TINY["iql"])]
    assert main(["train", "iql", *options]) == 0
    out, err = capsys.readouterr()
    assert "mean return of an evaluation" in out
    assert "D4RL" not in out
    assert f"iql on point ({POINT}), seeds 0, 4 updates" in err
    assert "[0] 4 updates, evaluation " in err
    assert "at update" in out
    assert "step" not in out + err  # there are no steps of the task
    assert (path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def hopper(path: Path) -> Path:
    """A file of noise, of the right size; its name identifies the task."""
    random, n = np.random.default_rng(0), 30
    write_hdf5(
        path / "hopper-medium-v2.hdf5",
        observations=random.standard_normal((n, 11)),
        actions=random.uniform(-1.0, 1.0, (n, 3)),
        next_observations=random.standard_normal((n, 11)),
        rewards=random.uniform(0.0, 3.0, n),
        terminals=np.arange(n) % 10 == 9,
        timeouts=np.zeros(n),
        attributes={"task": "", "kind": "noise"},
    )
    return path / "hopper-medium-v2.hdf5"


def test_the_command_shows_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    few = ["--steps", "2", "--evaluate-every", "2", "--evaluation-episodes", "1"]
    options = ["--dataset", str(hopper(tmp_path)), "--out", str(path), *few]
    assert main(["train", "iql", *options, "--set", *words(TINY["iql"])]) == 0
    out, _ = capsys.readouterr()
    assert "D4RL score" in out
    assert "(self-collected)" in out
    evaluations = td7.Run(path).evaluations
    last = evaluations.query("step == 2")["return"].item()
    expected = 100 * (evaluations["return"] + 20.272305) / (3234.3 + 20.272305)
    np.testing.assert_allclose(evaluations["score"], expected)
    assert main(["evaluate", str(path), "--episodes", "1"]) == 0
    again = td7.evaluate(path, episodes=1)
    assert again["score"].item() == pytest.approx(expected.iloc[-1])
    evaluated = capsys.readouterr().out
    assert f"{again['score'].item():.1f}" in evaluated
    assert "D4RL score" in evaluated
    assert "(self-collected)" in evaluated
    td7.resume(path, steps=4, quiet=True)
    assert list(td7.Run(path).evaluations.columns) == ["seed", *EVALUATIONS, "score"]
    assert len(td7.Run(path).evaluations) == len(evaluations) + 1
    (row,) = [line for line in out.splitlines() if line.startswith("│    0")]
    assert f"{100 * (last + 20.272305) / (3234.3 + 20.272305):.1f}" in row.split()[-2]


@pytest.mark.parametrize(
    ("task", "score"),
    [("Hopper-v4", "50.0"), ("toys:Hopper-v0", "50.0"), (POINT, None), ("", None)],
)
def test_only_tasks_with_reference_returns_have_scores(task: str, score: str | None) -> None:
    """For Hopper, -20.272305 scores 0 and 3234.3 scores 100: their middle scores 50."""
    columns = ["seed", "step", "episode", "return"]
    rows = [(0, 0, 0, 0.0), (0, 5, 0, 1607.0138475)]
    written = io.StringIO()
    table = evaluation_table(pd.DataFrame(rows, columns=columns), scored_task=task)
    Console(width=140, file=written).print(table)
    text = written.getvalue()
    assert ("D4RL score" in text) == (score is not None)
    assert score is None or score in text

"""`td7 export --format folder`: a run folder of one policy, which plays as the run's does."""

from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

import td7
import toys
from folders import two_policies
from td7.cli.main import main
from td7.rollouts.registration import make

assert toys  # registers the tasks
WALKING = {"Ant-v4": 4.0}  # reward per step, well below the mean of an evaluation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    return two_policies(tmp_path_factory.mktemp("two") / "run")


def test_the_policy_plays_as_in_its_run(
    run: td7.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "alone"
    assert (
        main(["export", str(run.path), "--seed", "5", "--format", "folder", "--out", str(out)]) == 0
    )
    assert capsys.readouterr().out == f"{out}\n"
    alone = td7.Run(out)
    assert alone.config["seeds"] == [5]
    pd.testing.assert_frame_equal(
        alone.evaluations, run.evaluations.query("seed == 5").reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(td7.evaluate(out), td7.evaluate(run.path, seed=5))
    assert td7.load(out).steps == td7.load(run.path, 5).steps


def test_a_kept_policy_comes_with_the_evaluations_up_to_it(run: td7.Run, tmp_path: Path) -> None:
    kept = run.path / "policies" / "000000040"
    out = td7.export(kept, tmp_path / "alone", seed=2, format="folder")
    assert set(td7.Run(out).evaluations["step"]) == {0, 40}
    pd.testing.assert_frame_equal(td7.evaluate(out), td7.evaluate(kept, seed=2))


def test_the_folder_is_by_default_beside_the_run(run: td7.Run) -> None:
    out = td7.export(run.path, seed=2, format="folder")
    assert out == run.path.with_name("run-seed-2")
    assert (out / "config.mac").exists()  # signed like the run


def test_an_exported_policy_is_not_trained_anew(
    run: td7.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no snapshot, so `td7 resume` would begin at step 0 and replace the policy."""
    out = td7.export(run.path, tmp_path / "alone", seed=2, format="folder")
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert main(["resume", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"td7: {out} holds a policy exported from the run 'run', and no snapshot; resume that run\n"
    )
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_folder_that_holds_something_is_refused(
    run: td7.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    words = ["export", str(run.path), "--seed", "2", "--format", "folder", "--out", str(tmp_path)]
    assert main(words) == 2
    assert capsys.readouterr().err == f"td7: {tmp_path} is not empty; give --out a new folder\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


POLICIES = sorted(
    path.parent for path in (Path(__file__).parents[1] / "policies").glob("*/config.json")
)


@pytest.mark.parametrize("folder", POLICIES, ids=lambda folder: folder.name)
def test_a_published_policy_walks(folder: Path) -> None:
    """For a hundred steps, and as in its last evaluation."""
    policy = td7.load(folder)
    with closing(make(policy.spec.task)) as environment:
        state, earned = environment.reset(seed=0), 0.0
        for _ in range(100):
            step = environment.step(policy.actor(state))
            state, earned = step.state, earned + step.reward
            assert not step.terminated
    assert earned > 100 * WALKING[folder.name]

"""What resuming refuses, and what it may change."""

import json
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import td7
from folders import SMALL, contents, differences, words
from interrupted_runs import (
    change_both,
    edit,
    files,
    refused,
    train_words,
)
from td7.cli.main import main
from td7.runs.record import FINISHED
from td7.studies.rows import STUDIES
from td7.training.loop import Loop
from td7.training.loops import loop_for
from td7.training.parts import RunSetup


@pytest.fixture
def stopped(tmp_path: Path, half: Path) -> Path:
    """A run that has a snapshot and has not ended."""
    path = tmp_path / "stopped"
    shutil.copytree(half, path)
    return path


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half") / "run"
    assert main([*train_words(path), "--quiet", "--steps", "60"]) == 0
    return path


CHANGES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda c: c["hyperparameters"].update(batch_size=32), "hyperparameters.batch_size is 16"),
    (lambda c: c["hyperparameters"].update(hidden_dim=8), "hyperparameters.hidden_dim is 16"),
    (lambda c: c["hyperparameters"].pop("embedding_dim"), "hyperparameters.embedding_dim is 8"),
    (lambda c: c.update(seeds=[0, 1, 2]), "seeds is [0, 1], given (0, 1, 2)"),
    (lambda c: c.update(seeds=[1, 0]), "seeds is [0, 1], given (1, 0)"),
    (lambda c: c.update(precision="float64"), "precision is 'float32', given 'float64'"),
    (lambda c: c.update(evaluate_every=50), "evaluate_every is 25, given 50"),
    (lambda c: c.update(evaluation_episodes=3), "evaluation_episodes is 2, given 3"),
    (lambda c: c.update(metrics_every=5), "metrics_every is 20, given 5"),
    (lambda c: c["task"]["kwargs"].update(at=9), "task.kwargs.at is None, given 9"),
    (lambda c: c["task"].update(id="toys:Count-v0"), "task.id is 'toys:Point-v0'"),
    (lambda c: c.update(steps=50), "steps=60 already; steps can only grow, given 50"),
]


@pytest.mark.parametrize(("change", "problem"), CHANGES)
def test_a_config_that_was_edited_is_refused(
    stopped: Path,
    change: Callable[[dict[str, Any]], None],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit(stopped, change)
    before = files(stopped)
    assert problem in refused(["resume", str(stopped)], capsys)
    assert files(stopped) == before


@pytest.fixture
def without_snapshot(stopped: Path) -> Path:
    """A finished run whose snapshots were removed to save space."""
    shutil.rmtree(stopped / "snapshot")
    return stopped


def test_a_finished_run_without_a_snapshot_stays_as_it_is(
    without_snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(without_snapshot)
    assert len(td7.resume(without_snapshot, quiet=True).evaluations) > 0
    line = refused(["resume", str(without_snapshot), "--steps", "80"], capsys)
    assert f"{without_snapshot} has no snapshot to continue from; it is finished, with 60" in line
    assert files(without_snapshot) == before


def test_a_run_older_than_a_config_field_resumes(stopped: Path) -> None:
    """A hyperparameter or setting that its snapshot lacks had its default."""

    def older(config: dict[str, Any]) -> None:
        del config["hyperparameters"]["assessments_end_early"], config["keep_policies"]

    change_both(stopped, older)
    td7.resume(stopped, steps=80, quiet=True)
    assert json.loads((stopped / "finished.json").read_text())["steps"] == 80


def test_a_run_older_than_a_metric_resumes(stopped: Path) -> None:
    """The metric's column is empty in the rows so far."""
    (stopped / FINISHED).unlink()  # such a run's had no checksums
    table = stopped / "metrics.csv"
    older = [line.rsplit(",", 1)[0] for line in table.read_text().splitlines()]
    table.write_text("\n".join(older) + "\n")
    td7.resume(stopped, steps=100, quiet=True)
    (header, *old), (_, *new) = older, table.read_text().splitlines()
    assert table.read_text().startswith(f"{header},max_priority\n")
    assert 0 < len(old) < len(new)
    for line in new:
        assert (line.rpartition(",")[0] in old) == line.endswith(",")


@pytest.mark.parametrize("variant", ["design/zs'a'", "design/a name of before", "gone/TD3"])
def test_a_changed_row_of_a_study_does_not_change_its_runs(stopped: Path, variant: str) -> None:
    """A run trains with its own config: rows are edited, renamed and removed."""
    config = json.loads((stopped / "config.json").read_text())
    row = STUDIES["design"].rows["zs'a'"]
    assert row.settings["checkpoints"] != config["hyperparameters"]["checkpoints"]
    change_both(stopped, lambda c: c.update(variant=variant))
    td7.resume(stopped, steps=80, quiet=True)
    now = json.loads((stopped / "config.json").read_text())
    assert now == {**config, "variant": variant, "steps": 80}


def test_a_refusal_leaves_no_worker_and_no_lock(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (stopped / "config.json").read_bytes()
    edit(stopped, lambda config: config.update(evaluate_every=50))
    refused(["resume", str(stopped), "--workers", "1"], capsys)
    assert not [p for p in multiprocessing.active_children() if p.name.startswith("td7-worker")]
    (stopped / "config.json").write_bytes(good)
    td7.resume(stopped, quiet=True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--set", "batch_size=32"], "batch_size is 16, given 32; `td7 train` starts a run"),
        (["--set", "batch_sise=32"], "did you mean 'batch_size'?"),
        (["--set", "batch_size=many"], "batch_size takes a whole number, given 'many'"),
        (["--set", "batch_size"], "--set takes field=value, given 'batch_size'"),
        (["--steps", "59"], "steps can only grow, given 59"),
        (["--steps", "some"], "steps takes a whole number, given 'some'"),
        (["--workers", "-1"], "--workers -1 must be at least 0"),
        (["--snapshot-every", "-1"], "--snapshot-every -1.0 must be at least 0"),
        (["--env", "Hopper-v4"], "--env: a resumed run keeps its settings, only --steps may grow"),
        (["--seeds=0-3"], "--seeds: a resumed run keeps its settings"),
        (["--batch-size", "32"], "--batch-size: a resumed run keeps its settings"),
        (["--set-size", "32"], "unknown option '--set-size'"),
    ],
)
def test_an_option_that_changes_a_run_is_refused(
    stopped: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(stopped)
    assert problem in refused(["resume", str(stopped), *options], capsys)
    assert files(stopped) == before


def test_the_same_settings_and_steps_are_accepted(stopped: Path) -> None:
    before = contents(stopped)
    same = ["--set", *words(SMALL), "--steps", "60", "--quiet"]
    assert main(["resume", str(stopped), *same]) == 0
    assert differences(contents(stopped), before) == []


def test_resume_shows_where_it_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a snapshot, or from the start if a kill came before the first."""
    path = tmp_path / "run"
    assert main(train_words(path)) == 0
    assert " steps, cpu, " in capsys.readouterr().err
    steps = td7.Run(path).config["steps"]
    assert main(["resume", str(path), "--steps", str(steps + 30)]) == 0
    assert f" {steps + 30} steps, resumed after " in capsys.readouterr().err
    shutil.rmtree(path / "snapshot")
    (path / "finished.json").unlink()
    assert main(["resume", str(path)]) == 0
    assert " steps, restarted because it has no snapshot, cpu, " in capsys.readouterr().err


def test_what_decides_no_result_is_as_before_unless_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    used: list[tuple[int, float, float]] = []

    def loop_with_note(setup: RunSetup) -> Loop:
        used.append((setup.workers, setup.snapshot_every, setup.step_timeout))
        return loop_for(setup)

    monkeypatch.setattr("td7.training.start.loop_for", loop_with_note)
    td7.train(
        env="toys:Point-v0",
        steps=20,
        out=str(path),
        quiet=True,
        workers="1",
        snapshot_every=7.0,
        step_timeout=70.0,
        set={**SMALL, "checkpoints": "none"},
    )
    td7.resume(path, quiet=True)
    assert main(["resume", str(path), "--quiet", "--workers", "0"]) == 0
    assert main(["resume", str(path), "--quiet", "--snapshot-every", "0"]) == 0
    assert main(["resume", str(path), "--quiet", "--step-timeout", "0"]) == 0
    assert used == [(1, 7, 70), (1, 7, 70), (0, 7, 70), (1, 0, 70), (1, 7, 0)]
    # A run of a version that did not record them takes the defaults.
    config = json.loads((path / "config.json").read_text())
    del config["workers"], config["snapshot_every"], config["step_timeout"]
    (path / "config.json").write_text(json.dumps(config))
    td7.resume(path, quiet=True)
    assert used[5:] == [(0, 5, 600)]

"""Runs that are older than a rule keep the rule they had; reports do not mix them with others."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from fake_runs import pair, write_run
from folders import SMALL, contents, differences
from interrupted_runs import change_both
from td7.reports.report import read_report
from td7.runs import record as record_module
from td7.runs.record import RunRecord
from td7.training.config import RunConfig, precision_settings

assert toys  # registers the tasks
TQC: dict[str, Any] = {
    "random_steps": 7,
    "actor_hidden_dim": 8,
    "critic_hidden_dim": 8,
    "batch_size": 8,
    "quantiles": 5,
    "critics": 2,
}


def train(algorithm: str, path: Path, **options: Any) -> td7.Run:
    return td7.train(
        algorithm,
        env="toys:Point-v0",
        seeds="0-1",
        evaluate_every=20,
        evaluation_episodes=1,
        quiet=True,
        out=str(path),
        **options,
    )


def forget(path: Path, *names: str) -> None:
    """Remove hyperparameters from a run's records, as if it were older than they are."""

    def change(config: dict[str, Any]) -> None:
        for name in names:
            del config["hyperparameters"][name]

    change_both(path, change)


def test_an_older_run_continues_by_the_rules_that_it_began_with(tmp_path: Path) -> None:
    """Exploring to the end of the episode, and not for exactly 7 steps."""
    old = {**TQC, "random_phase": "episode"}
    whole = train("tqc", tmp_path / "whole", steps=60, set=old)
    run = train("tqc", tmp_path / "run", steps=40, set=old)
    forget(run.path, "random_phase")
    td7.resume(run.path, steps=60, quiet=True, trust=True)
    assert differences(contents(run.path), contents(whole.path)) == []
    new = train("tqc", tmp_path / "new", steps=60, set=TQC)
    assert differences(contents(new.path), contents(whole.path)) != []


@pytest.mark.parametrize(
    ("algorithm", "name", "value"),
    [
        ("td7", "late_stage", "at_once"),
        ("tqc", "random_phase", "episode"),
        ("td7", "random_phase", "episode"),
        ("sac", "random_phase", "episode"),
    ],
)
def test_the_values_before_a_field_existed(
    algorithm: str, name: str, value: str, tmp_path: Path
) -> None:
    settings = TQC if algorithm == "tqc" else {"random_steps": 7}
    small = SMALL if algorithm == "td7" else settings
    run = train(algorithm, tmp_path / "run", steps=8, set=small)
    assert name in run.config["hyperparameters"]
    forget(run.path, name)
    config = RunConfig.from_record(RunRecord.read(run.path))
    assert getattr(config.hyperparameters, name) == value


def test_old_and_new_runs_of_tqc_are_not_pooled(tmp_path: Path) -> None:
    write_run(tmp_path / "old", pair(1000), algorithm="tqc", changed={"batch_size": 256})
    new = {"batch_size": 256, "random_phase": "steps"}
    both = {seed + 2: values for seed, values in pair(500).items()}
    write_run(tmp_path / "new", both, algorithm="tqc", changed=new)
    report = read_report([tmp_path])
    (result,) = report.results
    assert len(result.seeds) == 2
    assert any("differs" in note and "random_phase" in note for note in report.notes)


# -- precision -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "device", "recorded"),
    [
        ("auto", "cuda", ("float32", True)),
        ("auto", "cpu", ("float32", False)),
        ("float32", "cuda", ("float32", False)),
        ("float64", "cuda", ("float64", False)),
    ],
)
def test_precision_says_what_it_is(precision: str, device: str, recorded: tuple[str, bool]) -> None:
    settings = precision_settings(precision, device)
    assert (settings["precision"], settings["tf32"]) == recorded


@pytest.mark.parametrize(
    ("device", "precision", "tf32"),
    [("cuda", "float32", True), ("cuda", "float64", False), ("cpu", "float32", False)],
)
def test_older_runs_had_tf32_products_on_a_gpu(
    device: str, precision: str, tf32: bool, tmp_path: Path
) -> None:
    run = train("td7", tmp_path / "run", steps=8, set=SMALL)
    data = json.loads((run.path / "config.json").read_text())
    del data["tf32"]
    data.update(device=device, precision=precision)
    (run.path / "config.json").write_text(json.dumps(data))
    assert RunConfig.from_record(RunRecord.read(run.path)).tf32 is tf32


# -- commit ----------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *names, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "td7"
    (package / "runs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(record_module, "__file__", str(package / "runs" / "record.py"))
    assert record_module.commit.__wrapped__() is None
    git(tmp_path, "init", "-q")
    assert record_module.commit.__wrapped__() is None  # its files are not in the repository
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert record_module.commit.__wrapped__() == {"id": head, "is_clean": True}
    (package / "__init__.py").write_text("changed = True\n")
    assert record_module.commit.__wrapped__() == {"id": head, "is_clean": False}


def test_config_json_has_the_commit(tmp_path: Path) -> None:
    assert train("td7", tmp_path / "run", steps=8, set=SMALL).config["commit"] == (
        record_module.commit()
    )

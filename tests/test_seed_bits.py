"""Reset seeds of tasks that refuse those of 63 bits: shorter ones, wherever a task is played."""

import json
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from commands import FailingCommand
from folders import SMALL, results
from td7.cli.main import main
from td7.rollouts.registration import describe
from td7.seeding import Stream, derived_seed, reset_seed
from td7.training.config import check_same
from td7.types import Task

assert toys  # registers the tasks
LEGACY = "toys:Legacy-v0"


def train(out: Path, **more: Any) -> td7.Run:
    options = {"seeds": [2, 5], "steps": 60, "evaluate_every": 30, "evaluation_episodes": 2}
    return td7.train(env=LEGACY, quiet=True, out=str(out), **{**options, "set": SMALL, **more})


def seeds_of(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize(
    ("takes", "bits"), [(64, 63), (63, 63), (62, 32), (32, 32), (31, 31), (30, 63)]
)
def test_a_description_finds_out_the_bits(takes: int, bits: int) -> None:
    """The most that it takes; as ever, if its reset fails with any seed."""
    spec = describe(Task(LEGACY, {"bits": takes}))
    assert spec.task == Task(LEGACY, {"bits": takes}, seed_bits=bits)


def test_known_bits_stay(tmp_path: Path) -> None:
    """A run that resumes has the seeds it began with, and nothing is tried out."""
    log = tmp_path / "log"
    task = Task(LEGACY, {"log": str(log)}, seed_bits=31)
    assert describe(task).task == task
    assert not log.exists()


def test_a_short_seed_is_the_beginning_of_the_long_one() -> None:
    seed = derived_seed(3, Stream.EPISODE_RESET, 7)
    assert reset_seed(seed, 63) == seed
    assert f"{seed:063b}"[:32] == f"{reset_seed(seed, 32):032b}"
    assert reset_seed(2**63 - 1, 31) == 2**31 - 1


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_run_with_short_seeds(checkpoints: str, tmp_path: Path) -> None:
    """In both loops and their workers, in evaluations, videos and recorded datasets."""
    log, film = tmp_path / "log", tmp_path / "film.gif"
    more: dict[str, Any] = {"env_kwargs": {"log": str(log)}}
    more["set"] = {**SMALL, "checkpoints": checkpoints}
    run = train(tmp_path / "a", **more)
    assert run.config["task"]["seed_bits"] == 32
    policy = json.loads((run.path / "policy" / "policy.json").read_text())
    assert policy["task"]["task"] == run.config["task"]
    used = set(seeds_of(log)[1:])
    for seed in (2, 5):
        assert derived_seed(seed, Stream.EPISODE_RESET, 1) >> 31 in used
        assert derived_seed(seed, Stream.EVALUATION_RESET, 60, 1) >> 31 in used
    other = train(tmp_path / "b", **more, workers=2)
    assert results(other.path) == results(run.path)
    expected = run.evaluations.query("step == 60")["return"].tolist()
    log.unlink()
    table = td7.evaluate(run.path, episodes=2, video=str(film))
    assert table["return"].tolist() == expected
    filmed = derived_seed(2, Stream.EVALUATION_RESET, 60, 0) >> 31
    assert seeds_of(log).count(filmed) == 2  # in the film and in the evaluation
    words = ["--run", run.path, "--kind", "expert", "--rows", 30, "--out", tmp_path / "x.hdf5"]
    assert main(["dataset", "record", *map(str, words)]) == 0
    assert derived_seed(2, Stream.EPISODE_RESET, 1_000_000) >> 31 in seeds_of(log)


def test_a_run_with_short_seeds_resumes_exactly(tmp_path: Path) -> None:
    whole, stopped = train(tmp_path / "a", steps=90), train(tmp_path / "b")
    td7.resume(stopped.path, steps=90)
    assert results(stopped.path) == results(whole.path)


def test_a_snapshot_that_is_older_than_the_field_resumes() -> None:
    check_same({"task": {"id": "x", "seed_bits": 63}}, {"task": {"id": "x"}})


def test_a_policy_names_what_is_wrong_with_its_bits(
    tmp_path: Path, failing_command: FailingCommand
) -> None:
    run = train(tmp_path / "run").path
    config = json.loads((run / "config.json").read_text())
    config["task"]["seed_bits"] = "many"
    (run / "config.json").write_text(json.dumps(config))
    message = failing_command("evaluate", run)
    assert message.endswith("config.json is damaged: seed_bits takes a whole number, given 'many'")

"""Whatever a task raises, returns or changes: one line, which names the seed and the place."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import FailingCommand
from folders import SMALL, words
from hostile_tasks import RAISES, STEPS
from point_tasks import NETWORK, episode, evaluation
from td7.cli.main import main
from td7.errors import EnvironmentFault, InputError, warn_once
from td7.rollouts.episodes import Player
from td7.rollouts.pool import Pool
from td7.rollouts.registration import make
from td7.types import Task


def hostile(what: str, where: str = "step") -> Task:
    return Task("hostile_tasks:Hostile-v0", {"what": what, "where": where})


def fault(task: Task, *, evaluates: bool = False) -> str:
    with pytest.raises(EnvironmentFault) as caught:
        Player(task, NETWORK).run(evaluation(7) if evaluates else episode(7, 2))
    return str(caught.value)


@pytest.mark.parametrize("what", RAISES)
def test_anything_that_a_task_raises_is_one_line(what: str) -> None:
    message = f"the environment raised {RAISES[what][1]}"
    for evaluates, place in [(False, "episode 2"), (True, "evaluation at step 0, episode 0")]:
        line = fault(hostile(what), evaluates=evaluates)
        assert line.startswith(f"seed 7, {place}, step 3: {message}")
        assert line.isprintable()
        assert len(line) < 2_000
    assert fault(hostile(what, "reset")).startswith(f"seed 7, episode 2, reset: {message}")
    with pytest.raises(InputError, match="cannot be made with ") as caught:
        make(hostile(what, "init"))
    assert RAISES[what][1].partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("what", STEPS)
def test_anything_that_a_task_returns_is_checked(what: str) -> None:
    line = fault(hostile(what))
    assert line.startswith(f"seed 7, episode 2, step 3: the environment {STEPS[what][1]}")
    assert line.isprintable()


def test_a_reset_without_info_is_a_fault() -> None:
    message = "seed 7, episode 2, reset: the environment returned NoneType from reset(); allowed: "
    assert fault(hostile("None", "reset")) == f"{message}(observation, info)"


def test_what_a_worker_cannot_pickle_arrives_as_a_line() -> None:
    with closing(Pool(hostile("unpicklable"), NETWORK, 1)) as pool:
        pool.submit(episode(7, 2))
        with pytest.raises(EnvironmentFault, match=r"episode 2, step 3: .* UnpicklableError: x"):
            wait_for(pool)


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("where", ["init", "reset"])
def test_a_task_that_fails_at_its_beginning_names_the_remedy(
    where: str, workers: int, checkpoints: str, tmp_path: Path, failing_command: FailingCommand
) -> None:
    """The folder exists by now, and holds nothing but the config."""
    run, spent = tmp_path / "run", tmp_path / "spent"
    spent.touch()  # the first environment, which only describes the task, is made
    options = words({"what": "ValueError", "where": where, "first": spent})
    command = ["train", "--env", "hostile_tasks:Hostile-v0", "--env-kwargs", *options, "--quiet"]
    command += ["--steps", "40", "--workers", str(workers), "--out", str(run)]
    settings = words({**SMALL, "checkpoints": checkpoints})
    message = failing_command(*command, "--set", *settings, status=1)
    assert "ValueError" in message
    assert f"`td7 resume {run}` tries again ({run / 'error.txt'} has its traceback)" in message


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_an_interrupt_in_a_worker_is_the_tasks_own(
    checkpoints: str, tmp_path: Path, failing_command: FailingCommand
) -> None:
    """No signal reaches a worker, and its traceback belongs to nobody."""
    command = ["train", "--env", "hostile_tasks:Hostile-v0", "--env-kwargs", "what=interrupt"]
    command += ["--steps", "40", "--workers", "2", "--out", str(tmp_path / "run"), "--quiet"]
    settings = words({**SMALL, "checkpoints": checkpoints})
    message = failing_command(*command, "--set", *settings, status=1)
    assert message.startswith("seed")
    assert "the environment raised KeyboardInterrupt; everything trained so far is saved" in message


def wait_for(pool: Pool) -> None:
    while pool.pending:
        pool.completed(block=True)


def test_what_a_task_sets_does_not_reach_the_program() -> None:
    before, limit = np.geterr(), sys.getrecursionlimit()
    player = Player(hostile("settings"), NETWORK)
    player.run(episode(7, 2))
    assert (np.geterr(), sys.getrecursionlimit()) == (before, limit)
    player.close()


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("what", ["custom", "StopIteration"])
def test_a_close_that_raises_does_not_end_a_run(
    tmp_path: Path, what: str, checkpoints: str, capfd: pytest.CaptureFixture[str]
) -> None:
    warn_once.cache_clear()
    options = words({"what": what, "where": "close"})
    command = ["train", "--env", "hostile_tasks:Hostile-v0", "--env-kwargs", *options, "--quiet"]
    settings = words({**SMALL, "checkpoints": checkpoints})
    run = tmp_path / "run"
    assert main([*command, "--steps", "40", "--out", str(run), "--set", *settings]) == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"task hostile_tasks:Hostile-v0: its close() raised {RAISES[what][1]}"
    assert (run / "finished.json").exists()


def test_a_render_mode_belongs_to_evaluate(tmp_path: Path, failing_command: Any) -> None:
    """A window without a screen ends the process."""
    command = ["train", "--env", "HalfCheetah-v4", "--env-kwargs", "render_mode=human"]
    assert "`td7 evaluate RUN --video FILE`" in failing_command(*command, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recorded_render_mode_draws_nothing() -> None:
    assert make(Task("toys:Drawn-v0", {"render_mode": "human"})).env.render_mode is None
    assert make(Task("toys:Drawn-v0", {"render_mode": "human"}), render=True).env.render_mode

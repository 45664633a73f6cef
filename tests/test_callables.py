"""`td7.train(env=function)`: tasks that a Python program makes, also one without a file."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import td7
import toys
from commands import FailingCommand
from folders import SMALL, contents, differences
from td7.rollouts.callables import register_callable
from toy_wrappers import Scaled


def limited(steps: int = 20, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(toys.Point(**options), steps)


class Maker:
    """An object that makes a task."""

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return limited()


def train(path: Path, env: Any, **options: Any) -> td7.Run:
    return td7.train(
        **{
            "env": env,
            "seeds": "0-1",
            "steps": 60,
            "evaluate_every": 30,
            "evaluation_episodes": 2,
            "set": SMALL,
            "quiet": True,
            "out": str(path),
            **options,
        }
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    """The same task by its id."""
    return train(tmp_path_factory.mktemp("reference") / "run", "toys:Point-v0")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (limited, "test_callables.limited"),
        (lambda: limited(20), "test_callables.lambda"),
        (partial(partial(limited, steps=20), fault=""), "test_callables.limited"),
        (Maker(), "test_callables.Maker"),
    ],
    ids=["function", "lambda", "partial", "object"],
)
def test_what_makes_a_task_trains_it_in_any_process(
    function: Callable[..., Any], name: str, tmp_path: Path, reference: td7.Run
) -> None:
    run = train(tmp_path / "run", function, workers=1)
    assert run.config["task"]["id"] == f"callable/{name}"
    assert run.evaluations.equals(reference.evaluations)
    assert run.episodes.equals(reference.episodes)
    assert len(td7.evaluate(run, episodes=1)) == 2  # it is registered in this process


def test_a_class_is_called_with_the_arguments_of_the_task(tmp_path: Path) -> None:
    class Local(toys.Drawn):
        """Not in the module, so that its code is sent."""

    options: dict[str, Any] = {
        "env_kwargs": {"max_episode_steps": 7, "size": [8, 8]},
        "wrapper": Scaled,
    }
    alone = train(tmp_path / "alone", Local, **options)
    assert alone.episodes["length"].max() == 7
    assert alone.config["task"]["id"].endswith("with_the_arguments_of_the_task.locals.Local")
    shared = train(tmp_path / "shared", Local, **options, processes=2)
    assert shared.episodes.equals(alone.episodes)
    lockstep = {**options, "set": {**SMALL, "checkpoints": "none"}}
    a, b = (train(tmp_path / str(n), Local, **lockstep, workers=n) for n in (0, 1))
    assert a.episodes.equals(b.episodes)


def test_a_resumed_run_is_given_the_function_again(
    tmp_path: Path, reference: td7.Run, failing_command: FailingCommand
) -> None:
    whole = train(tmp_path / "whole", limited)
    run = train(tmp_path / "run", limited, steps=40)
    del gymnasium.registry["callable/test_callables.limited"]
    message = (
        "task 'callable/test_callables.limited' was made by a function in Python; give it again: "
        "td7.resume(RUN, env=…), td7.evaluate(RUN, env=…)"
    )
    for command in ("resume", "evaluate"):
        assert failing_command(command, run.path) == message
    td7.resume(run, env=lambda: limited(20), steps=60, quiet=True)
    assert differences(contents(whole.path), contents(run.path)) == []
    del gymnasium.registry["callable/test_callables.limited"]
    again = td7.evaluate(run, env=limited, episodes=2)["return"].tolist()
    assert again == run.evaluations.query("step == 60")["return"].tolist()
    for use in (td7.resume, td7.evaluate):
        with pytest.raises(td7.InputError, match=r"env has no effect: the task of .* is toys:Poi"):
            use(reference, env=limited)
        with pytest.raises(td7.InputError, match="env takes a function that makes the task, given"):
            use(run, env="toys:Point-v0")  # type: ignore[arg-type]


def test_what_makes_no_task_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(td7.InputError, match=r"cannot be made: TypeError: The environment must in"):
        td7.train(env=lambda: 3)  # type: ignore[arg-type,return-value]
    kept = toys.Point()
    with pytest.raises(
        (td7.InputError, td7.RunError), match="must be a new environment whenever td7 makes it"
    ):
        train(tmp_path / "run", lambda: kept)


def test_a_task_that_cannot_be_sent_stays_in_its_process(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked() -> gymnasium.Env[Any, Any]:
        with lock:
            return limited()

    with pytest.raises(td7.InputError, match=r"cannot be sent to them \(.*lock.* use workers=0"):
        train(tmp_path / "worker", locked, workers=1)
    assert train(tmp_path / "run", locked).path.is_dir()


def test_a_second_function_of_a_name_replaces_the_first() -> None:
    id = register_callable(lambda: limited(steps=1))
    assert register_callable(lambda: limited(steps=2)) == id
    assert gymnasium.make(id).spec.max_episode_steps == 2  # type: ignore[union-attr]


NOTEBOOK = """
import gymnasium, td7, toys

class Mine(toys.Point):
    limit = 20

def mine():
    return gymnasium.wrappers.TimeLimit(Mine(), Mine.limit)

gymnasium.register("Mine-v0", entry_point=mine)
"""


def test_a_task_of_a_notebook_trains_with_workers_and_processes(
    tmp_path: Path, reference: td7.Run
) -> None:
    """A program that Python reads from its standard input has no file either."""
    options: dict[str, Any] = {"steps": 60, "evaluate_every": 30, "evaluation_episodes": 2}
    options |= {"seeds": "0-1", "set": dict(SMALL), "quiet": True}
    runs = [
        (env, {more: 2, "out": f"{more}-{i}"})
        for i, env in enumerate(("'Mine-v0'", "mine", "lambda: mine()"))
        for more in ("workers", "processes")
    ]
    program = NOTEBOOK + "".join(
        f"td7.train(env={env}, **{ {**options, **more} })\n" for env, more in runs
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=program,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for _, more in runs:
        assert td7.Run(tmp_path / str(more["out"])).episodes.equals(reference.episodes)

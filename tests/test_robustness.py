"""`td7 evaluate --env-kwargs --fresh-seeds`: other conditions than those of the run."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import td7
import toys
from commands import TINY, FailingCommand, printed
from folders import SMALL, words
from td7.cli.main import main

assert toys  # registers the tasks


class Sized(toys.Count):
    """A task whose states have as many numbers as its arguments say."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.observation_space = Box(-9.0, 9.0, (size,), np.float64)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self.observation_space.low * 0.0, {}

    def step(self, action: Any) -> Any:
        return self.observation_space.low * 0.0, *super().step(action)[1:]


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("point") / "run"
    options = ["--env", "toys:Point-v0", *TINY, "--set", *words(SMALL)]
    assert main(["train", *options, "--env-kwargs", "at=7", "--out", str(path)]) == 0
    return path


def test_fresh_seeds_are_others_and_always_the_same(point: Path) -> None:
    usual, fresh, again = (
        td7.evaluate(point, episodes=5, fresh_seeds=f)["return"].tolist()
        for f in (False, True, True)
    )
    assert fresh == again
    assert not set(fresh) & set(usual)
    assert not set(fresh) & set(td7.Run(point).evaluations["return"])


def test_arguments_replace_those_of_the_run(point: Path) -> None:
    usual = td7.evaluate(point)
    # The fault comes at step 7, as in the run, unless `at` is replaced as well.
    with pytest.raises(td7.RunError, match="step 7: the environment raised ValueError: the motor"):
        td7.evaluate(point, env_kwargs={"fault": "raise"})
    with pytest.raises(td7.RunError, match="step 5: the environment raised"):
        td7.evaluate(point, env_kwargs=["fault=raise", "at=5"])
    short = td7.evaluate(point, env_kwargs={"max_episode_steps": 4})
    assert short["length"].tolist() == [4] * 10
    assert usual["length"].max() > 4
    assert short.attrs == {"env_kwargs": {"max_episode_steps": 4}, "fresh_seeds": False}


def test_the_output_names_the_conditions(point: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "returns\n" in printed(capsys, "evaluate", str(point)).replace(" ", "")
    words = ["--env-kwargs", "max_episode_steps=4", "at=[b]", "--fresh-seeds"]
    output = printed(capsys, "evaluate", str(point), *words)
    assert 'returns (max_episode_steps=4, at="[b]", fresh seeds)' in " ".join(output.split())


def test_a_video_shows_the_first_of_these_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[float] = []

    def render(env: toys.Drawn) -> None:
        frames.append(env._begin)

    run = td7.train(
        env="toys:Drawn-v0", steps=20, evaluate_every=10, set=SMALL, quiet=True, out=tmp_path / "r"
    )
    monkeypatch.setattr(toys.Drawn, "render", render)
    begins = []
    for fresh in (False, True):
        frames.clear()
        with pytest.raises(td7.RunError, match="its render"):
            td7.evaluate(run, video=str(tmp_path / "a.gif"), fresh_seeds=fresh)
        begins.append(frames[0])
    assert begins[0] != begins[1]


def test_a_mistake_is_one_line(point: Path, failing_command: FailingCommand) -> None:
    message = failing_command("evaluate", point, "--env-kwargs", "wings=2")
    assert message.startswith("task 'toys:Point-v0' cannot be made with {'at': 7, 'wings': 2}: ")
    message = failing_command("evaluate", point, "--env-kwargs", "wings")
    assert message == "--env-kwargs takes name=value, given 'wings'"


def test_a_task_of_another_size_is_refused(tmp_path: Path) -> None:
    gymnasium.register("Sized-v0", entry_point="test_robustness:Sized", max_episode_steps=5)
    run = td7.train(env="Sized-v0", steps=20, set=SMALL, quiet=True, out=tmp_path / "run")
    with pytest.raises(td7.InputError, match="Sized-v0 has states of 3 numbers, but the policy"):
        td7.evaluate(run, env_kwargs={"size": 3})
    del gymnasium.registry["Sized-v0"]

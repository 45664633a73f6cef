"""Tasks of dm_control, which shimmy registers in Gymnasium, and the line where it is missing."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import td7
from commands import FailingCommand, run_process
from folders import SMALL, words

WALKER = "dm_control/walker-walk-v0"
needs_dm_control = pytest.mark.skipif(
    not (importlib.util.find_spec("dm_control") and importlib.util.find_spec("shimmy")),
    reason="needs the extra `dm-control`",
)


@needs_dm_control
def test_walker_walk(tmp_path: Path) -> None:
    """Trained with a worker and evaluated, without a word of the packages'."""
    run = tmp_path / "run"
    options = ["--env", WALKER, "--env-kwargs", "max_episode_steps=10", "--workers", "1"]
    options += ["--evaluation-episodes", "2", "--evaluate-every", "20", "--quiet"]
    commands: list[list[str | Path]] = [
        ["train", *options, "--steps", "40", "--out", run, "--set", *words(SMALL)],
        ["evaluate", run, "--episodes", "2"],
    ]
    for command in commands:
        done = run_process(*command)
        assert (done.returncode, done.stderr) == (0, ""), command
    last = td7.Run(run).evaluations.query("step == 40")["return"]
    assert f"{last.mean():.1f}" in done.stdout
    task = json.loads((run / "config.json").read_text())["task"]
    assert (task["id"], task["seed_bits"]) == (WALKER, 32)
    policy = td7.load(run)
    shapes = {entry.path: entry.shape for entry in policy.spec.entries}
    assert shapes == {("height",): (), ("orientations",): (14,), ("velocity",): (9,)}
    observation = {"velocity": np.zeros(9), "orientations": np.ones(14), "height": 1.3}
    flat = np.concatenate([[1.3], np.ones(14), np.zeros(9)])
    assert policy.predict(observation)[0].tolist() == policy.predict(flat)[0].tolist()


CODE = f"""
from td7.errors import InputError
from td7.rollouts.registration import describe
from td7.types import Task

for id in ("dm_control/walker-wlk-v0", "dm_control/reach_site_vision-v0"):
    try:
        describe(Task(id))
    except InputError as error:
        print(error)
print(describe(Task("{WALKER}")).time_limit)
from dm_control import _render
print(_render.BACKEND)
"""


@needs_dm_control
def test_what_is_refused_and_how_frames_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    unknown, pixels, limit, backend = done.stdout.splitlines()
    assert unknown.startswith("unknown task 'dm_control/walker-wlk-v0'; did you mean")
    assert f"did you mean {WALKER!r}?" in unknown
    assert limit == "None"  # the task itself ends an episode
    assert backend != "glfw"  # which needs a screen
    if backend in ("egl", "osmesa"):
        assert "observes pixels (entry 'front_close'), uint8 of shape (1, 84, 84, 3)" in pixels


@pytest.mark.parametrize("package", ["dm_control", "shimmy"])
def test_without_the_package(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing_command: FailingCommand
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for registered in [id for id in gymnasium.registry if id.startswith("dm_control/")]:
        monkeypatch.delitem(gymnasium.registry, registered)  # by other tests of this process
    message = failing_command("train", "--env", WALKER, "--out", tmp_path / "run")
    assert message.startswith(f"task {WALKER!r} needs shimmy and dm-control, which the extra ")
    assert "pip install -e '.[dm-control]' in a clone, or pip install shimmy dm-control" in message
    assert not (tmp_path / "run").exists()

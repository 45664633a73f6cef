"""Frames: what a task draws, with or without a screen, and what cannot be drawn."""

import os
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from td7.errors import RunError
from td7.rollouts.registration import make
from td7.types import Task
from tiny_tasks import IgnoresRenderMode, NotRendered, RefusesRenderMode, Register, Tiny, refused


def test_render_returns_the_current_frame(register: Register) -> None:
    task = register()
    environment = make(task, render=True)
    environment.reset(seed=0)
    environment.step(np.zeros(1))
    np.testing.assert_array_equal(environment.render(), np.full((4, 5, 3), 1, np.uint8))
    with pytest.raises(RunError, match="made without render=True"):
        make(task).render()


def test_a_frame_that_cannot_be_drawn_is_a_fault(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(self: Tiny) -> None:
        raise OSError("no\ndisplay")

    monkeypatch.setattr(Tiny, "render", render)
    environment = make(register(), render=True)
    environment.reset(seed=0)
    with pytest.raises(RunError, match=r"^Td7Test0-v0: its render\(\) raised OSError: no display$"):
        environment.render()


# Gymnasium cannot free a viewer that it failed to make.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mujoco_that_cannot_draw_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = make(Task("InvertedPendulum-v5"), render=True)
    environment.reset(seed=0)
    monkeypatch.setenv("MUJOCO_GL", "crayons")
    expected = (
        r"^InvertedPendulum-v5: no frame with MUJOCO_GL=crayons \(.*MUJOCO_GL=egl.*\): .*crayons"
    )
    with pytest.raises(RunError, match=expected):
        environment.render()
    environment.close()


@pytest.mark.parametrize("image", [None, [], np.zeros((4, 5), np.uint8)])
def test_render_must_return_an_image(
    image: Any, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiny, "render", lambda _: image)
    environment = make(register(), render=True)
    environment.reset(seed=0)
    with pytest.raises(RunError, match=r"^Td7Test0-v0: its render\(\) returned no frame"):
        environment.render()


SCREEN_VARIABLES = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux does drawing need a screen")
@pytest.mark.parametrize(
    ("variables", "libraries", "backend"),
    [
        ({}, ("EGL", "OSMesa"), "egl"),
        ({}, ("OSMesa",), "osmesa"),
        ({}, (), "egl"),  # its error is one line, unlike GLFW's
        ({"MUJOCO_GL": "osmesa"}, ("EGL",), "osmesa"),
        ({"DISPLAY": ":0"}, ("EGL",), None),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ("EGL",), None),
    ],
)
def test_frames_are_drawn_without_a_screen(
    variables: dict[str, str],
    libraries: tuple[str, ...],
    backend: str | None,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SCREEN_VARIABLES:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    installed = {name: f"lib{name}.so" for name in libraries}
    monkeypatch.setattr("td7.rollouts.registration.find_library", installed.get)
    make(task := register())
    assert os.environ.get("MUJOCO_GL") == variables.get("MUJOCO_GL")  # unchanged without render
    make(task, render=True)
    assert os.environ.get("MUJOCO_GL") == backend


def test_a_task_that_draws_nothing_cannot_be_rendered(register: Register) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium warns of the same
        for entry_point in (NotRendered, IgnoresRenderMode):
            message = refused(register(entry_point), render=True)
            assert message.endswith("draws no frames: it has no 'rgb_array' render mode")
        assert "draws no frames: " in refused(register(RefusesRenderMode), render=True)
        broken = refused(Task(register(RefusesRenderMode).id, {"fails": "broken"}), render=True)
        assert "cannot be made with {'fails': 'broken'}: ValueError at " in broken
        assert broken.endswith(": broken")

"""A task that cannot be made, or has spaces that td7 does not take, is one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

from td7.types import PAPER_TASKS, Task
from tiny_tasks import Register, refused


@pytest.mark.parametrize(
    ("id", "nearest"),
    [
        ("HalfCheeta-v4", "HalfCheetah-v4"),
        ("hopper-v4", "Hopper-v4"),
        ("Hoper-v3", "Hopper-v5"),  # not Hopper-v3: Gymnasium lists it but cannot make it
        ("td7.types:Antt-v4", "Ant-v4"),
    ],
)
def test_an_unknown_task_names_the_nearest(id: str, nearest: str) -> None:
    message = refused(Task(id))
    assert message.startswith("unknown task ")
    assert f"did you mean {nearest!r}?" in message
    assert ", ".join(PAPER_TASKS) in message
    assert len(message) < 250


@pytest.mark.parametrize("id", ["HalfCheetah-v9", "HalfCheetah-v1", "HalfCheetah"])
def test_an_unknown_version_names_the_existing_ones(id: str) -> None:
    message = refused(Task(id))
    assert message.startswith(f"unknown task version {id!r};")
    allowed = "allowed: HalfCheetah-v4, HalfCheetah-v5"
    assert message.endswith(f"{allowed}; for your own task, use MODULE:ID, which imports MODULE")


@pytest.mark.parametrize("id", ["", " ", "nonsense", "two\nlines", "Hopper-v4 "])
def test_any_other_text_is_an_unknown_task(id: str) -> None:
    assert refused(Task(id)).startswith(f"unknown task {id!r}; ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\nimport td7_no_such_module",
            "ModuleNotFoundError at {}:2: No module named 'td7_no_such_module'",
        ),
        ("from td7.types import Nothing", "ImportError at {}:1: cannot import name 'Nothing'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError at {}:1: two lines"),
        ("raise KeyError('k')", "KeyError at {}:1: 'k'"),
        ("raise KeyError", "KeyError at {}:1"),
        ("import json\n\njson.loads('{')", "JSONDecodeError at {}:3: Expecting property name"),
        ("def", "SyntaxError: invalid syntax ({}, line 1)"),
        ("import sys; sys.exit(3)", "SystemExit at {}:1: 3"),
    ],
)
def test_a_module_that_cannot_be_imported(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the last line of the user's code, even if a library raised."""
    (tmp_path / "td7_broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    message = refused(Task("td7_broken_module:Td7Test-v0"))
    expected = expected.replace("{}", "td7_broken_module.py")
    assert f"module 'td7_broken_module' cannot be imported: {expected}" in message
    assert "current folder" not in message  # the module was found there


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("td7_no_such_module", "ModuleNotFoundError: No module named 'td7_no_such_module'"),
        ("td7_no_such_module.tasks", "ModuleNotFoundError: No module named 'td7_no_such_module'"),
        ("td7.no_such_module", "ModuleNotFoundError: No module named 'td7.no_such_module'"),
        (".relative", "TypeError: "),
        ("", "ValueError: Empty module name"),
    ],
)
def test_a_module_that_does_not_exist(module: str, expected: str) -> None:
    message = refused(Task(f"{module}:Hopper-v4"))
    assert f"cannot be imported: {expected}" in message
    is_missing = expected.startswith("ModuleNotFound")
    assert message.endswith(" (the current folder is searched as well)") == is_missing


def test_a_missing_dependency_is_named(register: Register) -> None:
    missing = "needs a package that is not installed: "
    assert f"'Hopper-v3' {missing}" in refused(Task("Hopper-v3"))
    assert f"{missing}`Pusher-v4`" in refused(Task("Pusher-v4"))

    def without_box2d(**_: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed,\nrun pip")

    message = refused(register(without_box2d))
    assert message.endswith(f"{missing}Box2D is not installed, run pip")
    message = refused(register("td7_no_such_module:Class"))
    assert message.endswith(f"{missing}No module named 'td7_no_such_module'")


@pytest.mark.parametrize(
    "space", [Discrete(2), MultiDiscrete([2, 3]), Dict(a=Box(-1, 1)), Tuple([Box(-1, 1)]), None]
)
def test_an_action_space_must_be_a_box(space: Space[Any] | None, register: Register) -> None:
    message = refused(register(action_space=space))
    assert message.endswith(f" has a {type(space).__name__} action space; allowed: a Box")


@pytest.mark.parametrize("kind", ["action", "observation"])
def test_an_empty_space_is_refused(kind: str, register: Register) -> None:
    message = refused(register(**{f"{kind}_space": Box(-1, 1, (3, 0))}))
    assert message.endswith(f" has an empty {kind} space, of shape (3, 0)")


PIXELS: Space[Any] = Box(0, 255, (4, 5, 3), np.uint8)
KEYS: Any = {(1, 2): Box(-1, 1)}
UNNAMED = Dict(KEYS)


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (Discrete(2), "a Discrete observation space; allowed: a Box, or a Dict or Tuple of Boxes"),
        (Dict(a=Box(-1, 1), b=Tuple([Discrete(2)])), "a Discrete observation space (entry 'b/0')"),
        (Dict(a=Dict(b=Box(-1, 1, (0,)))), "an empty observation space (entry 'a/b'), of shape"),
        (Dict(), "an empty observation space, Dict()"),
        (PIXELS, "pixels, uint8 of shape (4, 5, 3); td7's networks take vectors of numbers"),
        (Tuple([Box(-1, 1), PIXELS]), "pixels (entry '1'), uint8 of shape (4, 5, 3)"),
        (UNNAMED, "an observation with the key (1, 2); allowed: text"),
    ],
)
def test_an_observation_space_is_refused(
    space: Space[Any], problem: str, register: Register
) -> None:
    message = refused(register(observation_space=space))
    assert problem in message
    assert ("FlattenObservation" in message) == ("Discrete" in message)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ([-1, -1, -1], [1, 1, np.inf], "dimension 2 are not finite: [-1.0, inf]"),
        ([-1, -np.inf, -1], [1, 1, 1], "dimension 1 are not finite: [-inf, 1.0]"),
        ([-np.inf] * 3, [np.inf] * 3, "dimension 0 are not finite: [-inf, inf]"),
        ([-1, 0.5, -1], [1, 0.5, 1], "dimension 1 are equal: [0.5, 0.5]"),
    ],
)
def test_action_bounds_must_be_finite_and_distinct(
    low: list[float], high: list[float], expected: str, register: Register
) -> None:
    space = Box(np.array(low, np.float32), np.array(high, np.float32))
    assert f"the bounds of action {expected}; allowed: finite, low < high" in refused(
        register(action_space=space)
    )


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"bogus": 1}, "TypeError: Tiny.__init__() got an unexpected keyword argument 'bogus'"),
        ({"fails": "two\nlines"}, ": two lines"),
        ({"max_episode_steps": 0}, "Expect the `max_episode_steps` to be positive, actually: 0"),
        ({"id": "Hopper-v4"}, "TypeError: make() got multiple values for argument 'id'"),
        ({"ends_at": np.zeros((3, 3)), "bogus": 1}, "unexpected keyword argument 'bogus'"),
    ],
)
def test_wrong_arguments_of_a_task_are_one_line(
    kwargs: dict[str, Any], expected: str, register: Register
) -> None:
    message = refused(Task(register().id, kwargs))
    assert message.startswith("task 'Td7Test0-v0' cannot be made with {'")
    assert message.endswith(expected)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (lambda: sys.exit(3), "SystemExit at {}: 3"),
        (lambda: 1 / 0, "ZeroDivisionError at {}: division by zero"),
        (lambda: np.linalg.inv(np.zeros((2, 2))), "LinAlgError at {}: Singular matrix"),
        (lambda: json.loads("3")[0], "TypeError at {}: 'int' object is not subscriptable"),
    ],
)
def test_the_message_names_the_line_where_a_constructor_failed(
    broken: Callable[[], object], expected: str, register: Register
) -> None:
    message = refused(register(lambda **_: broken()))
    place = f"test_task_errors.py:{broken.__code__.co_firstlineno}"
    assert f"'Td7Test0-v0' cannot be made: {expected.format(place)}" in message

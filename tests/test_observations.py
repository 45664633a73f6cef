"""Observations of several Boxes: a task that splits its state trains as the one that does not."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import td7
import toys
from folders import SMALL, change_policy
from recorded_runs import Fields, assert_same, attributes, recorded
from td7.errors import InputError
from td7.rollouts.observations import boxes, flatten
from td7.rollouts.registration import describe, make
from td7.types import Entry, Task, Wrapper

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
ENTRIES = (Entry(("place", 0, "x"), ()), Entry(("velocity",), (1,)))
AS_JSON = [{"path": ["place", 0, "x"], "shape": []}, {"path": ["velocity"], "shape": [1]}]


def train(out: Path, env: str = "toys:Sensors-v0", **more: Any) -> td7.Run:
    options = {"seeds": [2, 5], "steps": 80, "evaluate_every": 40, "evaluation_episodes": 2}
    return td7.train(env=env, quiet=True, out=str(out), **{**options, "set": SMALL, **more})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    return train(tmp_path_factory.mktemp("sensors") / "run")


def results(run: td7.Run) -> dict[str, bytes]:
    """All that does not name the task."""
    files = [*run.path.glob("*.csv"), *(run.path / "policy").glob("*.safetensors")]
    return {file.name: file.read_bytes() for file in files if file.stem != "timings"}


# -- spaces and their entries ----------------------------------------------------------------------


def test_entries_are_in_the_order_of_their_names() -> None:
    """Not of the space, which another version of a task may list otherwise."""
    spec = describe(Task("toys:Sensors-v0"))
    assert list(toys.Sensors.observation_space) == ["velocity", "place"]
    assert spec.entries == ENTRIES
    assert (spec.state_shape, spec.state_dim) == ((2,), 2)
    numbers = Dict({str(n): Box(-1, 1) for n in (10, 9, 1)})
    assert [entry.path for entry, _ in boxes(numbers, "it")] == [("1",), ("10",), ("9",)]
    many = Tuple([Box(-1, 1)] * 11)
    assert [entry.path for entry, _ in boxes(many, "it")] == [(n,) for n in range(11)]
    assert describe(Task("toys:Point-v0")).entries == ()


def test_flattening_by_hand() -> None:
    entries = [Entry(("b", 0), (2, 2)), Entry(("b", 1), ()), Entry(("c",), (1,))]
    one = {"c": [7], "b": ([[1, 2], [3, 4]], 5.5)}
    assert flatten(entries, one).tolist() == [1, 2, 3, 4, 5.5, 7]
    batch = {"c": np.zeros((3, 1)), "b": (np.ones((3, 2, 2)), np.array([5, 6, 7]))}
    assert flatten(entries, batch).tolist() == [[1, 1, 1, 1, n, 0] for n in (5, 6, 7)]
    assert flatten(entries, {"c": np.zeros((0, 1)), "b": (np.ones((0, 2, 2)), [])}).shape == (0, 6)


@pytest.mark.parametrize(
    ("observation", "problem"),
    [
        ({"b": 1.0}, "it has no entry 'a'"),
        ({"a": []}, "it has no entry 'a/0'"),
        ({"a": 3.0}, "it has no entry 'a/0'"),
        ({"a": [1.0], "b": np.zeros(3)}, "its entry 'b' has the shape (3,), not (2,)"),
        ({"a": 0.5, "b": np.zeros((1, 1, 2))}, "it has no entry 'a/0'"),
        ({"a": [np.zeros(3)], "b": np.zeros(2)}, "its entries are batches of the shapes"),
    ],
)
def test_what_does_not_fit_is_named(observation: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared below
        flatten([Entry(("a", 0), ()), Entry(("b",), (2,))], observation)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [((np.float32, np.float32), np.float32), ((np.float32, np.float64), np.float64)],
)
def test_a_state_is_double_if_an_entry_is(
    dtypes: Any, expected: Any, register: Callable[..., Task]
) -> None:
    first, second = (Box(-9, 9, (1,), dtype) for dtype in dtypes)

    class Parts(toys.Sensors):
        observation_space = Dict(a=first, b=second)

        def _split(self, state: Any) -> dict[str, Any]:
            return {"a": state[:1], "b": state[1:]}

    with closing(make(register(Parts))) as environment:
        assert environment.reset(0).dtype == expected


def test_a_wrapper_flattens_what_td7_does_not(register: Callable[..., Task]) -> None:
    class Choice(toys.Sensors):
        observation_space = Dict(a=Discrete(3))

        def _split(self, state: Any) -> dict[str, Any]:
            return {"a": int(state[0] > 0)}

    task = register(Choice)
    with pytest.raises(InputError, match="the wrapper ") as caught:
        make(task)
    name = str(caught.value).partition("the wrapper ")[2].partition(" ")[0]
    with closing(make(replace(task, wrappers=(Wrapper(name),)))) as environment:
        assert sorted(environment.reset(0)) == [0, 0, 1]


@pytest.mark.parametrize("without", ["place", "velocity"])
def test_a_missing_entry_is_a_fault(without: str, tmp_path: Path) -> None:
    problem = f"reset: the environment returned a wrong observation: it has no entry '{without}'"
    with pytest.raises(td7.RunError, match=problem):
        train(tmp_path / "run", env_kwargs={"without": without})


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoints", "layout"),
    [
        ("minimum", {}),
        ("minimum", {"workers": 2}),
        ("minimum", {"processes": 2}),
        ("none", {"workers": 2}),
    ],
)
def test_a_run_equals_that_of_the_flat_task(
    checkpoints: str, layout: dict[str, Any], tmp_path: Path
) -> None:
    """Stopped and resumed, in this process and in others."""
    settings = {**SMALL, "checkpoints": checkpoints}
    whole = train(tmp_path / "flat", "toys:Point-v0", set=settings)
    run = train(tmp_path / "run", steps=45, set=settings, **layout)
    td7.resume(run.path, steps=80)
    assert results(run) == results(whole)
    assert td7.evaluate(run.path, episodes=2).equals(td7.evaluate(whole.path, episodes=2))


def test_predict_takes_what_the_task_observes(run: td7.Run) -> None:
    policy = td7.load(run.path, 5)
    assert policy.spec.entries == ENTRIES
    one = {"velocity": np.array([0.25]), "place": ({"x": 0.5},)}
    action, _ = policy.predict([0.5, 0.25])
    assert policy.predict(one)[0].tolist() == action.tolist()
    batch = {"velocity": np.full((3, 1), 0.25), "place": ({"x": np.full(3, 0.5)},)}
    actions, _ = policy.predict(batch)
    assert actions.shape == (3, 2)
    np.testing.assert_allclose(actions, [action] * 3, rtol=1e-6)
    with pytest.raises(InputError) as caught:
        policy.predict({"velocity": [0.25]})
    expected = "toys:Sensors-v0: an observation is wrong: it has no entry 'place'"
    assert str(caught.value) == expected


def test_the_order_is_recorded(run: td7.Run, tmp_path: Path) -> None:
    """In policy.json, in ONNX files and in datasets."""
    policy = json.loads((run.path / "policy" / "policy.json").read_text())
    assert policy["task"]["entries"] == AS_JSON
    td7.export(run.path, tmp_path / "policy.onnx", seed=2)
    model = onnx.load(tmp_path / "policy.onnx")
    (entries,) = [p.value for p in model.metadata_props if p.key == "entries"]
    assert json.loads(entries) == AS_JSON
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    state = np.array([[0.5, 0.25]], np.float32)
    (action,) = session.run(None, {"observation": state})
    np.testing.assert_allclose(action, td7.load(run.path, 2).predict(state)[0], atol=1e-5)


def test_a_dataset_of_such_a_run_is_flat(run: td7.Run, tmp_path: Path) -> None:
    """The same as that of the flat task, and both tasks learn from it."""
    flat = train(tmp_path / "flat", "toys:Point-v0")
    fields: dict[str, Fields] = {
        name: recorded(one.path, "expert", 30, tmp_path / f"{name}.hdf5")
        for name, one in {"entries": run, "flat": flat}.items()
    }
    assert_same(fields["entries"], fields["flat"])
    assert json.loads(attributes(tmp_path / "entries.hdf5")["td7.entries"]) == AS_JSON
    learned = td7.train(
        "td3+bc",
        dataset=str(tmp_path / "entries.hdf5"),
        steps=10,
        quiet=True,
        out=str(tmp_path / "r"),
    )
    assert learned.config["task"]["id"] == "toys:Sensors-v0"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (AS_JSON[:1], "its entries are not those of states of shape (2,)"),
        ([{"path": [], "shape": [2]}], "the path of an entry is []"),
        ([{"path": [None], "shape": [2]}], "the path of an entry is [None]"),
        (
            [{"path": ["x"], "shape": [-2]}],
            "shape must be a whole number, 1 to 10,000,000, given -2",
        ),
        ([{"path": ["x"]}], "it has no 'shape'"),
        (["x"], "entry must be an object, given 'x'"),
    ],
)
def test_entries_that_are_damaged(entries: Any, problem: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", seeds=[0], steps=10, evaluate_every=10).path
    change_policy(run / "policy", lambda data: data["task"].update(entries=entries))
    with pytest.raises(InputError, match=r"policy\.json is damaged: ") as caught:
        td7.load(run)
    assert problem in str(caught.value)

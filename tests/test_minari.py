"""Minari's datasets, written by Minari itself, against plain loops over their episodes."""

import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple
from numpy.testing import assert_allclose, assert_array_equal

from dataset_files import ACTIONS, STATES, Edit, refused, with_value
from td7.datasets.read import read
from td7.rollouts.environment import ActionMap
from td7.types import RowLayout

pytestmark = pytest.mark.usefixtures("minari_root")

FORMATS = ("hdf5", "arrow", "parquet")
FREE = Box(-np.inf, np.inf, (STATES,), np.float64)
PIXELS = Box(0, 255, (2, 3), np.uint8)
UNIT = Box(-1, 1, (ACTIONS,), np.float32)


def minari_episode(end: str, length: int, seed: int) -> dict[str, Any]:
    """One episode as Minari has it: `length` actions, one observation more."""
    random = np.random.default_rng(seed)
    last = np.arange(length) == length - 1
    return {
        "observations": random.normal(size=(length + 1, STATES)),
        "actions": random.uniform(-1, 1, (length, ACTIONS)).astype(np.float32),
        "rewards": random.normal(size=length),
        "terminations": last & (end in "TB"),
        "truncations": last & (end in "CB"),
    }


EPISODES = [
    minari_episode(end, length, seed)
    for seed, (end, length) in enumerate([("T", 4), ("C", 3), (".", 2), ("B", 1), ("C", 5)])
]


def save_minari(
    id: str,
    episodes: Sequence[dict[str, Any]],
    *,
    data_format: str = "hdf5",
    states: Space[Any] = FREE,
    actions: Space[Any] = UNIT,
    env: str | Env[Any, Any] | None = None,
) -> None:
    """A local Minari dataset, by Minari itself."""
    minari = pytest.importorskip("minari")
    buffers = pytest.importorskip("minari.data_collector.episode_buffer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for authors and a licence
        minari.create_dataset_from_buffers(
            id,
            [buffers.EpisodeBuffer(**episode) for episode in episodes],
            env=env,
            observation_space=states,
            action_space=actions,
            data_format=data_format,
        )


@pytest.fixture(params=FORMATS)
def data_format(request: pytest.FixtureRequest) -> str:
    if request.param != "hdf5":
        pytest.importorskip("pyarrow")
    return str(request.param)


def test_minari_rows_and_episodes(minari_root: Path, data_format: str) -> None:
    """All rows, those at a cut too; the episode without an end is in the rows alone."""
    save_minari("mujoco/hopper/some-v3", EPISODES, data_format=data_format, env="Hopper-v5")
    rows, returns, lengths = [], [], []
    for episode in EPISODES:
        for t, action in enumerate(episode["actions"]):
            states = episode["observations"][t : t + 2]
            alive = 0.0 if episode["terminations"][t] else 1.0
            rows.append([*states[0], *action, *states[1], episode["rewards"][t], alive])
        if episode["terminations"][-1] or episode["truncations"][-1]:
            returns.append(sum(float(np.float32(reward)) for reward in episode["rewards"]))
            lengths.append(len(episode["rewards"]))
    folder = minari_root / "mujoco" / "hopper" / "some-v3"
    for source in ("mujoco/hopper/some-v3", folder, folder / "data"):
        dataset = read(source)
        assert_array_equal(dataset.rows, np.array(rows, np.float32))
        assert dataset.rows.dtype == np.float32
        assert_allclose(dataset.returns, returns, rtol=1e-12)
        assert dataset.lengths.tolist() == lengths == [4, 3, 1, 5]
        assert dataset.layout == RowLayout(STATES, ACTIONS)
        assert dataset.source == str(source)
        assert (dataset.name, dataset.task_id) == ("mujoco/hopper/some-v3", "Hopper-v5")
        assert not dataset.self_collected
        assert not dataset.warnings


@pytest.mark.parametrize(
    ("made_with", "expected"),
    [
        ({}, {}),
        ({"render_mode": "rgb_array"}, {}),
        ({"forward_reward_weight": 50.0}, {"forward_reward_weight": 50.0}),
        ({"max_episode_steps": 200}, {"max_episode_steps": 200}),
        ({"max_episode_steps": 1000}, {}),
    ],
)
def test_minari_states_the_kwargs_of_its_task(
    made_with: dict[str, Any], expected: dict[str, Any]
) -> None:
    with closing(gymnasium.make("Hopper-v5", **made_with)) as env:
        save_minari("some-v0", EPISODES, env=env)
    data = read("some-v0")
    assert (data.task_id, data.task_kwargs) == ("Hopper-v5", expected)


def test_minari_actions_become_unit_actions(data_format: str) -> None:
    low, high = np.array([-0.4, 0.0], np.float32), np.array([0.4, 3.0], np.float32)
    own = [{**e, "actions": low + (e["actions"] + 1) / 2 * (high - low)} for e in EPISODES]
    save_minari("some-v0", own, data_format=data_format, actions=Box(low, high))
    dataset = read("some-v0")
    assert dataset.task_id == ""
    actions = dataset.rows[:, STATES : STATES + ACTIONS]
    assert_allclose(actions, np.concatenate([e["actions"] for e in EPISODES]), atol=1e-6)


def test_minari_actions_outside_their_bounds(data_format: str) -> None:
    half = Box(-0.5, 0.5, (ACTIONS,), np.float32)
    save_minari("some-v0", EPISODES, data_format=data_format, actions=half)
    refused("some-v0", "actions", "-0.5 to 0.5")
    assert_allclose(
        read("some-v0", bounds=ActionMap((-2.0, -2.0), (2.0, 2.0))).rows[0, STATES],
        EPISODES[0]["actions"][0, 0] / 2,
    )


@pytest.mark.parametrize(
    ("kind", "spaces", "values"),
    [
        ("observation", {"states": Dict({"x": Discrete(3)})}, {"x": np.array([0, 1, 2, 0, 0])}),
        ("observation", {"states": PIXELS}, np.zeros((5, 2, 3), np.uint8)),
        ("action", {"actions": Discrete(3)}, np.array([0, 1, 2, 0])),
        ("action", {"actions": Box(-1, 1, (1, 2))}, EPISODES[0]["actions"][:, None]),
    ],
)
def test_minari_spaces_that_are_refused(kind: str, spaces: Any, values: Any) -> None:
    save_minari("some-v0", [{**EPISODES[0], f"{kind}s": values}], **spaces)
    word = "pixels" if spaces.get("states") is PIXELS else f"the {kind} space is a "
    refused("some-v0", word)


def test_minari_states_of_several_boxes(data_format: str) -> None:
    """Entries of a Dict in the order of their names, each row by row; nested ones alike."""
    episodes = []
    for episode in EPISODES:
        states = episode["observations"]
        nested = {"z": states[:, :1], "a": (states[:, 1], states[:, 2:])}
        episodes.append({**episode, "observations": nested})
    boxes = [Box(-9, 9, shape, np.float64) for shape in [(), (1,)]]
    space = Dict({"z": boxes[1], "a": Tuple(boxes)})
    save_minari("flat-v0", EPISODES, data_format=data_format)
    save_minari("some-v0", episodes, states=space, data_format=data_format)
    flat, dataset = read("flat-v0"), read("some-v0")
    assert_array_equal(dataset.rows, flat.rows[:, [1, 2, 0, 3, 4, 6, 7, 5, 8, 9]])
    assert dataset.layout == flat.layout


def test_minari_actions_without_bounds() -> None:
    save_minari("some-v0", EPISODES, actions=Box(-np.inf, np.inf, (ACTIONS,), np.float32))
    refused("some-v0", "actions", "finite")
    assert len(read("some-v0", bounds=ActionMap((-1.0, -1.0), (1.0, 1.0))).rows) == 15


@pytest.mark.parametrize(
    ("name", "edit", "word"),
    [
        ("observations", with_value((2, 0), np.nan), "nan in row 2"),
        ("rewards", with_value(1, np.inf), "inf in row 1"),
        ("rewards", with_value(1, 1e300), "inf in row 1"),
        ("actions", with_value((0, 1), np.nan), "nan in row 0"),
        ("observations", lambda array: array[:-1], "(3, 3)"),
        ("truncations", lambda array: array[:-1], "(2,)"),
        ("rewards", lambda array: array[:-1], "(2,)"),
    ],
)
def test_a_bad_field_of_minari(name: str, edit: Edit, word: str) -> None:
    save_minari("some-v0", [EPISODES[0], {**EPISODES[1], name: edit(EPISODES[1][name])}])
    refused("some-v0", "episode 1", name, word)


def test_damaged_minari_data(minari_root: Path, data_format: str) -> None:
    save_minari("some-v0", EPISODES, data_format=data_format)
    places = minari_root.rglob("main_data.hdf5" if data_format == "hdf5" else f"*.{data_format}")
    for path in places:
        path.write_bytes(path.read_bytes()[:100])
    refused("some-v0", "cannot be read")


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("minari_version", "9.9", "9.9"),
        ("total_episodes", 0, "no rows"),
        ("total_episodes", 6, "episode 5 cannot be read"),
        ("total_steps", 16, "15 rows"),
    ],
)
def test_minari_metadata_that_do_not_fit(
    minari_root: Path, name: str, value: Any, word: str
) -> None:
    save_minari("some-v0", EPISODES)
    path = minari_root / "some-v0" / "data" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    refused("some-v0", word)


def test_a_minari_id_that_is_not_local() -> None:
    save_minari("mujoco/hopper/medium-v0", EPISODES)
    refused("mujoco/hoper/medium-v0", "did you mean 'mujoco/hopper/medium-v0'?")


@pytest.mark.parametrize("missing", ["minari", "pyarrow"])
def test_without_minari(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    save_minari("some-v0", EPISODES, data_format="arrow")
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "minari.dataset._storages.arrow_storage")
    refused("some-v0", "needs minari and pyarrow, which the extra 'minari' installs")

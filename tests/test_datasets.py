"""Offline data against plain loops over its episodes: rows, episodes, scores, and what is refused.

The ends of a file's rows are told by one letter each: T for a terminal, C for a cut by the time
limit, B for both at once, and a dot for neither.
"""

import hashlib
import json
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
import torch
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, Space
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from td7.datasets.dataset import Dataset, summary, task_mismatch
from td7.datasets.download import RemoteFile, identify
from td7.datasets.hdf5 import write_hdf5
from td7.datasets.read import read
from td7.datasets.scores import score
from td7.engine.replay import Replay
from td7.errors import InputError
from td7.rollouts.environment import ActionMap
from td7.types import RowLayout, Task

Fields = dict[str, NDArray[Any]]
Edit = Callable[[Any], Any]

STATES, ACTIONS = 3, 2
ENDS = ["...", "..T", "..T.", "..C..", "..B..", "TTT.", "..T...C.B..T..C....", "C.T.C..CC.", "B."]


@pytest.fixture(autouse=True)
def minari_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the datasets of whoever runs it."""
    root = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root


def fields_of(ends: str, *, next_observations: bool = True, seed: int = 0) -> Fields:
    """Random rows with these ends; observations go on where an episode does."""
    random = np.random.default_rng(seed)
    n = len(ends)
    observations = random.normal(size=(n, STATES)).astype(np.float32)
    following = np.roll(observations, -1, axis=0)
    for i, end in enumerate(ends):
        if end != "." or i == n - 1:
            following[i] = random.normal(size=STATES)
    fields = {
        "observations": observations,
        "actions": random.uniform(-1, 1, (n, ACTIONS)).astype(np.float32),
        "rewards": random.normal(size=n).astype(np.float32),
        "terminals": np.array([end in "TB" for end in ends]),
        "timeouts": np.array([end in "CB" for end in ends]),
    }
    return fields | ({"next_observations": following} if next_observations else {})


def save(path: Path, fields: Fields, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, **options)
    return path


def kept(ends: str, *, next_observations: bool) -> list[int]:
    """Which rows are kept, one by one."""
    last = len(ends) - 1
    return [i for i, end in enumerate(ends) if end != "C" and (next_observations or i < last)]


def rows_of(fields: Fields, ends: str) -> list[list[float]]:
    """The rows to keep, put together number by number."""
    rows = []
    for i in kept(ends, next_observations="next_observations" in fields):
        if "next_observations" in fields:
            next_state = fields["next_observations"][i]
        else:
            next_state = fields["observations"][i + 1]
        not_terminated = 0.0 if ends[i] in "TB" else 1.0
        state, action = fields["observations"][i], fields["actions"][i]
        rows.append([*state, *action, *next_state, fields["rewards"][i], not_terminated])
    return rows


def episodes_of(rewards: NDArray[Any], ends: str) -> tuple[list[float], list[int]]:
    """Returns and lengths of the complete episodes."""
    returns, lengths = [], []
    total, length = 0.0, 0
    for reward, end in zip(rewards, ends, strict=True):
        total, length = total + float(reward), length + 1
        if end != ".":
            returns.append(total)
            lengths.append(length)
            total, length = 0.0, 0
    return returns, lengths


def assert_holds(dataset: Dataset, fields: Fields, ends: str) -> None:
    assert dataset.layout == RowLayout(STATES, ACTIONS)
    assert dataset.rows.dtype == np.float32
    assert_array_equal(dataset.rows, np.array(rows_of(fields, ends), np.float32))
    returns, lengths = episodes_of(fields["rewards"], ends)
    assert_allclose(dataset.returns, returns, rtol=1e-12)
    assert dataset.lengths.tolist() == lengths


def refused(source: str | Path, *words: str, bounds: ActionMap | None = None) -> None:
    """Reading gives one line that names the source and says these words."""
    with pytest.raises(InputError) as error:
        read(source, bounds=bounds)
    message = str(error.value)
    assert "\n" not in message
    for word in (str(source), *words):
        assert word in message, message


# -- D4RL's files: rows and episodes -------------------------------------------------------------


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("next_observations", [True, False])
def test_rows_and_episodes(tmp_path: Path, ends: str, next_observations: bool) -> None:
    fields = fields_of(ends, next_observations=next_observations)
    dataset = read(save(tmp_path / "some.hdf5", fields))
    assert_holds(dataset, fields, ends)
    assert dataset.source == str(tmp_path / "some.hdf5")
    assert (dataset.name, dataset.task_id) == ("some", "")
    assert not dataset.self_collected
    assert not dataset.warnings


def test_rows_by_hand(tmp_path: Path) -> None:
    """States 1 to 5, cut after the second, an end after the fourth."""
    fields = {
        "observations": np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]),
        "actions": np.array([[0.1], [0.2], [0.3], [0.4], [0.5]]),
        "rewards": np.array([10.0, 20.0, 30.0, 40.0, 50.0]),
        "terminals": np.array([0, 0, 0, 1, 0]),
        "timeouts": np.array([0, 1, 0, 0, 0]),
    }
    dataset = read(save(tmp_path / "hand.hdf5", fields))
    expected = [[1, 0.1, 2, 10, 1], [3, 0.3, 4, 30, 1], [4, 0.4, 5, 40, 0]]
    assert_array_equal(dataset.rows, np.array(expected, np.float32))
    assert dataset.returns.tolist() == [30, 70]
    assert dataset.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("limit", [None, 200])
@pytest.mark.parametrize("next_observations", [True, False])
@pytest.mark.parametrize("terminals", [[], [299], [999], [299, 1299, 2298], [0, 1, 2499]])
def test_missing_timeouts(
    tmp_path: Path, terminals: list[int], next_observations: bool, limit: int | None
) -> None:
    """Every 1000th step of an episode is a cut, or what the task says, unless it ended there."""
    ends, steps = "", 0
    for i in range(2500):
        steps += 1
        ends += "T" if i in terminals else "C" if steps == (limit or 1000) else "."
        steps = steps if ends[-1] == "." else 0
    fields = fields_of(ends, next_observations=next_observations)
    stored = {name: array for name, array in fields.items() if name != "timeouts"}
    dataset = read(save(tmp_path / "old.hdf5", stored), time_limit=limit)
    assert_holds(dataset, fields, ends)
    (warning,) = dataset.warnings
    assert "timeouts" in warning
    assert f"{limit or 1000}th" in warning


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "gzip"},
        {"compression": "lzf", "shuffle": True},
        {"chunks": True, "fletcher32": True},
    ],
)
def test_any_compression(tmp_path: Path, options: dict[str, Any]) -> None:
    fields = fields_of(ENDS[6])
    assert_holds(read(save(tmp_path / "some.hdf5", fields, **options)), fields, ENDS[6])


def _double(fields: Fields) -> Fields:
    numbers = ("observations", "actions", "next_observations", "rewards")
    return {**fields, **{name: fields[name].astype(np.float64) for name in numbers}}


def _columns(fields: Fields) -> Fields:
    names = ("rewards", "terminals", "timeouts")
    return {**fields, **{name: fields[name][:, None] for name in names}}


def _float_flags(fields: Fields) -> Fields:
    return {**fields, **{name: fields[name] * 1.0 for name in ("terminals", "timeouts")}}


def _more_keys(fields: Fields) -> Fields:
    others = {"infos/qpos": np.zeros((3, 4)), "metadata/algorithm": np.array(b"SAC")}
    return {**fields, **others, "infos/goal": np.array(["a"], "S1")}


@pytest.mark.parametrize("form", [_double, _columns, _float_flags, _more_keys])
def test_other_forms_of_the_same_data(tmp_path: Path, form: Callable[[Fields], Fields]) -> None:
    fields = fields_of(ENDS[6])
    assert_holds(read(save(tmp_path / "some.hdf5", form(fields))), fields, ENDS[6])


def test_a_replay_takes_the_rows(tmp_path: Path) -> None:
    dataset = read(save(tmp_path / "some.hdf5", fields_of(ENDS[6])))
    n = len(dataset.rows)
    replay = Replay(dataset.layout, n, 1, torch.device("cpu"), torch.float32)
    replay.append(0, dataset.rows)
    batch = replay.batch(torch.arange(n)[None])
    assert_array_equal(batch.action[0].numpy(), dataset.rows[:, STATES : STATES + ACTIONS])
    assert_array_equal(batch.not_terminated[0, :, 0].numpy(), dataset.rows[:, -1])


def test_about_two_copies_in_memory(tmp_path: Path) -> None:
    """At HalfCheetah's sizes, of rows that are all kept."""
    n = 50_000
    arrays = [np.zeros((n, width)) for width in (17, 6, 17)]
    names = ("observations", "actions", "next_observations", "rewards", "terminals", "timeouts")
    fields = dict(zip(names, [*arrays, *np.zeros((3, n))], strict=True))
    path = save(tmp_path / "big.hdf5", fields)
    del arrays, fields
    tracemalloc.start()
    try:
        rows = read(path).rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.4 * rows.nbytes


# -- actions -------------------------------------------------------------------------------------


def test_actions_become_unit_actions(tmp_path: Path) -> None:
    """-2 to 4 and 0 to 1, the bounds given, by hand."""
    fields = fields_of("...")
    fields["actions"] = np.array([[-2.0, 1.0], [4.0, 0.0], [2.5, 0.25]], np.float32)
    dataset = read(save(tmp_path / "some.hdf5", fields), bounds=ActionMap((-2.0, 0.0), (4.0, 1.0)))
    actions = dataset.rows[:, STATES : STATES + ACTIONS]
    assert_array_equal(actions, np.array([[-1, 1], [1, -1], [0.5, -0.5]], np.float32))


def test_rounding_is_clipped_and_told(tmp_path: Path) -> None:
    fields = fields_of("....")
    fields["actions"][1, 0], fields["actions"][2] = 1.00005, -1.00002
    dataset = read(save(tmp_path / "some.hdf5", fields))
    fields["actions"] = fields["actions"].clip(-1, 1)
    assert_holds(dataset, fields, "....")
    (warning,) = dataset.warnings
    assert "2 actions" in warning
    assert "5.0e-05" in warning


def test_bounds_as_float32_rounds_them_are_no_warning(tmp_path: Path) -> None:
    fields = fields_of("..")
    fields["actions"][:] = np.float32(0.4)  # a little more than 0.4
    dataset = read(save(tmp_path / "some.hdf5", fields), bounds=ActionMap((-0.4,) * 2, (0.4,) * 2))
    assert not dataset.warnings
    assert_array_equal(dataset.rows[:, STATES : STATES + ACTIONS], 1)


@pytest.mark.parametrize("value", [1.001, -3.5])
def test_actions_outside_their_bounds(tmp_path: Path, value: float) -> None:
    """Named by their row in the file, also where that is not their row among those kept."""
    fields = fields_of(".C.....")
    fields["actions"][5, 1] = value
    words = ("actions", str(value), "row 5", "dimension 1", "-1.0 to 1.0")
    refused(save(tmp_path / "some.hdf5", fields), *words)


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        (ActionMap((-1.0,), (1.0,)), "2 dimensions, the task's 1"),
        (ActionMap((-1.0, -np.inf), (1.0, np.inf)), "finite"),
        (ActionMap((-1.0, 1.0), (1.0, 1.0)), "low < high"),
    ],
)
def test_bounds_that_are_none(tmp_path: Path, bounds: ActionMap, word: str) -> None:
    path = save(tmp_path / "some.hdf5", fields_of("..."))
    refused(path, "actions", word, bounds=bounds)


# -- tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("hopper_medium-v2", "Hopper-v4"),
        ("hopper-medium-v2", "Hopper-v4"),
        ("halfcheetah_medium_replay-v2", "HalfCheetah-v4"),
        ("walker2d-medium-expert-v2", "Walker2d-v4"),
        ("ant_mixed", "Ant-v4"),
        ("Ant_maze_u-maze_noisy_multistart_False_sparse", ""),
        ("antmaze-medium-play-v2", ""),
        ("bullet-hopper_medium", ""),
        ("hopper", ""),
    ],
)
def test_the_task_a_file_name_tells(tmp_path: Path, name: str, task: str) -> None:
    dataset = read(save(tmp_path / f"{name}.hdf5", fields_of("...")))
    assert (dataset.name, dataset.task_id) == (name, task)


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ENDS)
def test_what_is_written_is_read(tmp_path: Path, ends: str) -> None:
    fields, path = fields_of(ends), tmp_path / "walker2d_medium.hdf5"
    write_hdf5(
        path, **_double(fields), attributes={"task": "Hopper-v5", "kind": "medium", "seed": 3}
    )
    dataset = read(str(path))
    assert_holds(dataset, fields, ends)
    assert dataset.self_collected
    assert dataset.task_id == "Hopper-v5"  # not what the name tells
    with h5py.File(path) as file:
        attributes = {"self_collected": True, "task": "Hopper-v5", "kind": "medium", "seed": 3}
        assert dict(file.attrs) == {f"td7.{name}": value for name, value in attributes.items()}
        assert set(file) == set(fields)
        for name, array in fields.items():
            assert file[name].compression == "gzip"
            assert file[name].dtype == array.dtype
            assert_array_equal(file[name][...], array)


def test_a_written_file_states_its_bounds(tmp_path: Path) -> None:
    fields, path = fields_of("..."), tmp_path / "some.hdf5"
    bounds = {"action_low": (-0.5, -4.0), "action_high": (0.5, 4.0)}
    own = {**fields, "actions": fields["actions"] * np.array([0.5, 4.0], np.float32)}
    write_hdf5(path, **own, attributes={"task": "Some-v0", "kind": "random", **bounds})
    assert_holds(read(path), fields, "...")
    unit = ActionMap((-4.0, -4.0), (4.0, 4.0))  # what is given comes first
    actions = read(path, bounds=unit).rows[:, STATES : STATES + ACTIONS]
    assert_array_equal(actions, own["actions"] / 4)


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    path, attributes = tmp_path / "some.hdf5", {"task": "Some-v0", "kind": "random"}
    write_hdf5(path, **fields_of("..."), attributes=attributes)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_hdf5(path, **fields_of("...."), attributes={**attributes, "other": object()})
    with pytest.raises(ValueError, match="kind"):
        write_hdf5(path, **fields_of("...."), attributes={"task": "Some-v0"})
    short: Any = {**fields_of("..."), "actions": np.zeros((2, ACTIONS))}
    with pytest.raises(InputError, match=r"some\.hdf5: actions has 2 rows, observations 3"):
        write_hdf5(path, **short, attributes=attributes)
    huge: Any = {**fields_of("..."), "rewards": [0, 1e300, 0]}
    with pytest.raises(InputError, match=r"some\.hdf5: rewards holds inf in row 1"):
        write_hdf5(path, **huge, attributes=attributes)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# -- what is refused -----------------------------------------------------------------------------


def _set(index: Any, value: Any) -> Edit:
    def edit(array: NDArray[Any]) -> NDArray[Any]:
        changed = array.astype(np.float64)
        changed[index] = value
        return changed

    return edit


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminals"])
def test_a_missing_field(tmp_path: Path, name: str) -> None:
    fields = fields_of("....")
    del fields[name]
    refused(save(tmp_path / "some.hdf5", fields), f"no field {name!r}", "timeouts")


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("observations", _set((2, 1), np.nan), ["nan", "row 2"]),
        ("next_observations", _set((3, 0), -np.inf), ["-inf", "row 3"]),
        ("actions", _set((1, 1), np.nan), ["nan", "row 1"]),
        ("rewards", _set(0, np.inf), ["inf", "row 0"]),
        ("rewards", _set(2, 1e300), ["inf", "row 2"]),  # float32 does not hold it
        ("terminals", _set(2, 0.5), ["0.5", "row 2", "0 and 1"]),
        ("timeouts", _set(1, np.nan), ["nan", "row 1"]),
        ("observations", lambda array: array[:, 0], ["(4,)", "[rows, dimensions]"]),
        ("observations", lambda array: array[:, None], ["(4, 1, 3)"]),
        ("observations", lambda array: array[:, :0], ["(4, 0)"]),
        ("actions", lambda array: array[:, 0], ["(4,)"]),
        ("rewards", lambda array: np.stack([array, array], axis=1), ["(4, 2)", "[rows]"]),
        ("rewards", lambda array: array[0], ["()"]),
        ("next_observations", lambda array: array[:, :2], ["(4, 2)", "(4, 3)"]),
        ("actions", lambda array: array[:3], ["3 rows", "observations 4"]),
        ("rewards", lambda array: array[:3], ["3 rows"]),
        ("terminals", lambda array: array[:3], ["3 rows"]),
        ("timeouts", lambda array: array[:1], ["1 rows"]),
        ("next_observations", lambda array: array[:2], ["2 rows"]),
        ("rewards", lambda array: np.tile(array, 2), ["8 rows"]),
        ("timeouts", lambda array: np.tile(array, 2), ["8 rows"]),
        ("rewards", lambda array: h5py.Empty("f4"), ["()", "[rows]"]),
        ("observations", lambda array: h5py.Empty("f4"), ["()", "[rows, dimensions]"]),
        ("actions", lambda array: array.astype("S4"), ["|S4", "numbers"]),
    ],
)
def test_a_bad_field(tmp_path: Path, name: str, edit: Edit, words: Sequence[str]) -> None:
    fields = fields_of("....")
    fields[name] = edit(fields[name])
    refused(save(tmp_path / "some.hdf5", fields), name, *words)


def test_no_rows(tmp_path: Path) -> None:
    empty = {name: array[:0] for name, array in fields_of("..").items()}
    refused(save(tmp_path / "none.hdf5", empty), "observations", "(0, 3)")
    refused(save(tmp_path / "cut.hdf5", fields_of("CCC")), "none of the 3 rows", "observations")
    single = fields_of(".", next_observations=False)
    refused(save(tmp_path / "single.hdf5", single), "none of the 1 rows")


def test_a_group_in_the_place_of_a_field(tmp_path: Path) -> None:
    fields = fields_of("...")
    fields["actions/joint"] = fields.pop("actions")
    refused(save(tmp_path / "some.hdf5", fields), "actions", "group")


@pytest.mark.parametrize("content", [b"", b"observations,actions\n1,2\n"])
def test_no_hdf5_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some.hdf5"
    path.write_bytes(content)
    refused(path, "not an HDF5 file")


def test_a_truncated_file(tmp_path: Path) -> None:
    path = save(tmp_path / "some.hdf5", fields_of("." * 500))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(path, "cannot be read", "truncated")


@pytest.mark.parametrize("name", ["next_observations", "terminals"])
def test_a_damaged_field(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / "some.hdf5", fields_of("." * 500), compression="gzip")
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(0)
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    refused(path, name, "cannot be read")


def test_a_missing_file(tmp_path: Path, minari_root: Path) -> None:
    save(tmp_path / "hopper_medium-v2.hdf5", fields_of("..."))
    meant = f"did you mean {str(tmp_path / 'hopper_medium-v2.hdf5')!r}?"
    refused(tmp_path / "hoper_medium-v2.hdf5", meant)
    with pytest.raises(InputError, match=r"^[^;?]*$"):
        read(tmp_path / "nowhere" / "hopper_medium-v2.hdf5")
    with pytest.raises(InputError, match=r"^[^;?]*$"):
        read("mujoco/hopper/medium-v0")
    with pytest.raises(InputError) as told:
        read("/dev/null")  # it is there, but no file
    assert "'/dev/null'" not in str(told.value)
    refused("hopper-medium-v2", "; `td7 dataset fetch hopper-medium-v2` downloads D4RL's file")
    assert not minari_root.exists()


def test_a_folder_without_data(tmp_path: Path) -> None:
    refused(tmp_path, "folder", "metadata.json")


# -- Minari's ------------------------------------------------------------------------------------

FORMATS = ("hdf5", "arrow", "parquet")
FREE = Box(-np.inf, np.inf, (STATES,), np.float64)
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
def test_minari_tells_what_its_task_was_made_with(
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
        ("observation", {"states": Dict({"x": FREE})}, {"x": EPISODES[0]["observations"]}),
        ("observation", {"states": Box(-9, 9, (1, 3))}, EPISODES[0]["observations"][:, None]),
        ("action", {"actions": Discrete(3)}, np.array([0, 1, 2, 0])),
    ],
)
def test_minari_spaces_that_are_no_flat_box(kind: str, spaces: Any, values: Any) -> None:
    save_minari("some-v0", [{**EPISODES[0], f"{kind}s": values}], **spaces)
    refused("some-v0", f"the {kind} space", "flat Box")


def test_minari_actions_without_bounds() -> None:
    save_minari("some-v0", EPISODES, actions=Box(-np.inf, np.inf, (ACTIONS,), np.float32))
    refused("some-v0", "actions", "finite")
    assert len(read("some-v0", bounds=ActionMap((-1.0, -1.0), (1.0, 1.0))).rows) == 15


@pytest.mark.parametrize(
    ("name", "edit", "word"),
    [
        ("observations", _set((2, 0), np.nan), "nan in row 2"),
        ("rewards", _set(1, np.inf), "inf in row 1"),
        ("rewards", _set(1, 1e300), "inf in row 1"),
        ("actions", _set((0, 1), np.nan), "nan in row 0"),
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
    refused("some-v0", "pip install 'td7[minari]'")


# -- scores and summaries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("Hopper-v4", [-20.272305, 3234.3], [0, 100]),
        ("Hopper-v2", [1607.0138475], [50]),
        ("HalfCheetah-v4", [5000], [42.530026]),  # 5280.178953 / 12415.178953
        ("Walker2d-v5", [3000, -2293.706488], [65.314439, -50]),
        ("Ant-v3", [-325.6, 3879.7, 1777.05], [0, 100, 50]),
        ("gymnasium:Ant-v4", [-4530.9], [-100]),
    ],
)
def test_scores_by_hand(task: str, given: list[float], expected: list[float]) -> None:
    scores = score(task, given)
    assert scores is not None
    assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("task", ["", "Humanoid-v4", "AntMaze-v4", "Hopper2-v4"])
def test_tasks_without_a_score(task: str) -> None:
    assert score(task, [1.0]) is None


def test_a_summary_by_hand(tmp_path: Path) -> None:
    fields = fields_of("TC.TT.")
    fields["rewards"] = np.array([1, 3, 1, 1, 6, 9], np.float32)  # returns 1, 3, 2, 6
    path = save(tmp_path / "hopper_medium-v2.hdf5", fields)
    result = summary(read(path))
    scores = result.pop("scores")
    assert scores["mean"] == pytest.approx(100 * (3 + 20.272305) / 3254.572305)
    assert scores["max"] == pytest.approx(100 * (6 + 20.272305) / 3254.572305)
    sd = pytest.approx((14 / 3) ** 0.5)
    assert result == {
        "source": str(path),
        "name": "hopper_medium-v2",
        "task": "Hopper-v4",
        "task_kwargs": None,
        "self_collected": False,
        "d4rl": "",
        "rows": 5,
        "left_out": 1,
        "episodes": 4,
        "state_dim": STATES,
        "action_dim": ACTIONS,
        "returns": {"mean": 3, "sd": sd, "min": 1, "median": 2.5, "max": 6},
        "lengths": {"mean": 1.25, "sd": 0.5, "min": 1, "median": 1, "max": 2},
        "terminal_share": 0.6,
        "warnings": ["it has the name of D4RL's hopper-medium-v2, but not its SHA-256"],
    }


@pytest.mark.parametrize("ends", ["...", "..T"])
def test_a_summary_of_few_episodes(tmp_path: Path, ends: str) -> None:
    """It is JSON also where a statistic is not defined."""
    stored = {name: array for name, array in fields_of(ends).items() if name != "timeouts"}
    result = summary(read(save(tmp_path / "some.hdf5", stored)))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["scores"] is None
    assert len(result["warnings"]) == 1
    assert (result["returns"] is None) == (ends == "...")
    if ends == "..T":
        assert result["returns"]["sd"] is None


# -- whether they are a task's -------------------------------------------------------------------

SHORT = {"max_episode_steps": 200}


@pytest.mark.parametrize(
    ("name", "stamps", "task", "is_other"),
    [
        # D4RL's: the name tells the task, but neither its version nor how it was made.
        ("hopper_medium-v2", {}, Task("Hopper-v4"), False),
        ("hopper_medium-v2", {}, Task("Hopper-v5", SHORT), False),
        ("halfcheetah-medium-expert-v2", {}, Task("HalfCheetah-v5"), False),
        ("halfcheetah-medium-expert-v2", {}, Task("Walker2d-v4"), True),
        ("some", {}, Task("Walker2d-v4"), False),  # says nothing
        # One's own.
        ("a", {"task": "Hopper-v4", "task_kwargs": "{}"}, Task("Hopper-v4"), False),
        ("a", {"task": "gym:Hopper-v4", "task_kwargs": "{}"}, Task("Hopper-v4"), False),
        ("a", {"task": "Hopper-v4", "task_kwargs": "{}"}, Task("Hopper-v5"), True),
        ("a", {"task": "Hopper-v4", "task_kwargs": "{}"}, Task("Hopper-v4", SHORT), True),
        ("a", {"task": "Hopper-v4", "task_kwargs": json.dumps(SHORT)}, Task("Hopper-v4"), True),
        (
            "a",
            {"task": "Hopper-v4", "task_kwargs": json.dumps(SHORT)},
            Task("Hopper-v4", SHORT),
            False,
        ),
        ("a", {"task": "Hopper-v4"}, Task("Hopper-v4", SHORT), False),  # says not how
        ("hopper-medium", {"task": "Hopper-v4"}, Task("Hopper-v5"), True),
    ],
)
def test_data_of_another_task_are_told(
    name: str, stamps: dict[str, str], task: Task, is_other: bool, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.hdf5"
    if stamps:
        write_hdf5(path, **fields_of("..T"), attributes={"kind": "medium", **stamps})
    else:
        save(path, fields_of("..T"))
    told = task_mismatch(read(path), task)
    assert (told is not None) == is_other


def test_the_warning_names_both_tasks(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    stamps = {"task": "Hopper-v4", "kind": "medium", "task_kwargs": json.dumps(SHORT)}
    write_hdf5(path, **fields_of("..T"), attributes=stamps)
    assert task_mismatch(read(path), Task("Walker2d-v5")) == (
        "its data are of Hopper-v4 with max_episode_steps=200, but it is evaluated on Walker2d-v5"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("task_kwargs", text) for text in ("{", "3", "")),
        ("task", np.bytes_(b"\xff")),
        ("action_low", "low"),
        ("action_high", [[1.0, 1.0]]),
        ("action_low", h5py.Empty("f4")),
        ("self_collected", [True, False]),
        ("cut_rows", "all"),
    ],
)
def test_a_damaged_stamp_is_one_line(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_hdf5(path, **fields_of("..T"), attributes={"task": "Hopper-v4", "kind": "medium"})
    with h5py.File(path, "r+") as file:
        file.attrs[f"td7.{name}"] = value
    refused(path, "attributes cannot be read")


def test_a_stamp_may_be_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    write_hdf5(
        path, **fields_of("..T"), attributes={"task": np.bytes_("Hopper-v5"), "kind": "medium"}
    )
    assert read(path).task_id == "Hopper-v5"


@pytest.mark.parametrize("name", ["hopper_medium-v2.hdf5", "other.hdf5"])
def test_d4rls_files_are_known_by_their_sha256(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are called; and what has one of their names is not one of them by that."""
    path = save(tmp_path / name, fields_of("..T"))
    of_d4rls_name = name.startswith("hopper")
    assert read(path).d4rl == ""
    told = "it has the name of D4RL's hopper-medium-v2, but not its SHA-256"
    assert read(path).warnings == ((told,) if of_d4rls_name else ())
    content = path.read_bytes()
    known = RemoteFile("hopper_medium-v2.hdf5", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr("td7.datasets.download.DATASETS", {"hopper-medium-v2": known})
    assert (read(path).d4rl, read(path).warnings) == ("hopper-medium-v2", ())
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # of the same size
    assert identify(path) == ""

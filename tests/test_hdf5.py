"""HDF5 files of D4RL's layout against plain loops over their episodes, and what is refused."""

import hashlib
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dataset_files import ACTIONS, STATES, Edit, Fields, fields_of, refused, save, with_value
from td7.datasets.dataset import Dataset
from td7.datasets.download import RemoteFile, identify
from td7.datasets.hdf5 import write_hdf5
from td7.datasets.read import read
from td7.engine.replay import Replay
from td7.errors import InputError
from td7.rollouts.environment import ActionMap
from td7.types import RowLayout

pytestmark = pytest.mark.usefixtures("minari_root")
ENDS = ["...", "..T", "..T.", "..C..", "..B..", "TTT.", "..T...C.B..T..C....", "C.T.C..CC.", "B."]


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


def test_actions_past_their_bounds_by_rounding_are_clipped_with_a_warning(tmp_path: Path) -> None:
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
def test_d4rls_file_names_give_the_task(tmp_path: Path, name: str, task: str) -> None:
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


@pytest.mark.parametrize("side", ["low", "high"])
def test_stated_bounds_must_be_bounds(tmp_path: Path, side: str) -> None:
    """Even where the task's bounds replace them: the file is damaged."""
    path = tmp_path / "some.hdf5"
    stated = {"action_low": (-1.0, -1.0), "action_high": (1.0, 1.0)}
    for bad, word in (((np.nan, 0.0), "finite"), ((0.0,) * 3, "its bounds")):
        attributes = {"task": "Some-v0", "kind": "random", **stated, f"action_{side}": bad}
        write_hdf5(path, **fields_of("..."), attributes=attributes)
        for bounds in (None, ActionMap((-4.0, -4.0), (4.0, 4.0))):
            refused(path, "actions", word, bounds=bounds)


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


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminals"])
def test_a_missing_field(tmp_path: Path, name: str) -> None:
    fields = fields_of("....")
    del fields[name]
    refused(save(tmp_path / "some.hdf5", fields), f"no field {name!r}", "timeouts")


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("observations", with_value((2, 1), np.nan), ["nan", "row 2"]),
        ("next_observations", with_value((3, 0), -np.inf), ["-inf", "row 3"]),
        ("actions", with_value((1, 1), np.nan), ["nan", "row 1"]),
        ("rewards", with_value(0, np.inf), ["inf", "row 0"]),
        ("rewards", with_value(2, 1e300), ["inf", "row 2"]),  # float32 does not hold it
        ("terminals", with_value(2, 0.5), ["0.5", "row 2", "0 and 1"]),
        ("timeouts", with_value(1, np.nan), ["nan", "row 1"]),
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


# -- attributes ----------------------------------------------------------------------------------


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

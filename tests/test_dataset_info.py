"""`td7 dataset info`."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from recorded_runs import ENV, N, Says, attributes, recorded
from td7.datasets.dataset import summary
from td7.datasets.read import read as read_dataset


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file such as D4RL's, without timeouts: two episodes that end, and one more row."""
    path = tmp_path_factory.mktemp("data") / "hopper_medium-v2.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(66.0).reshape(6, 11)
        file["actions"] = np.zeros((6, 3))
        file["rewards"] = np.array([1000.0, 0, 500, 500, 1000, 7])
        file["terminals"] = np.array([0, 1, 0, 0, 1, 0])
    return path


def test_info_as_json_is_the_summary(
    hopper: Path, td3_run: Path, tmp_path: Path, dataset_prints: Says
) -> None:
    own = tmp_path / "own.hdf5"
    fields = recorded(td3_run, "replay", N, own)
    for path in (hopper, own):
        found = json.loads(dataset_prints("info", path, "--json"))
        assert found == summary(read_dataset(path))
    assert found["task"] == ENV
    assert found["self_collected"]
    *ends, last = np.flatnonzero(fields["terminals"] | fields["timeouts"])
    assert attributes(own)["td7.cut_rows"] == [int(last)] == [N - 1]
    assert found["lengths"]["mean"] * found["episodes"] == ends[-1] + 1
    found = json.loads(dataset_prints("info", hopper, "--json"))
    assert (found["task"], found["rows"], found["episodes"]) == ("Hopper-v4", 5, 2)
    assert (found["returns"]["mean"], found["lengths"]["max"]) == (1500, 3)
    assert found["scores"]["mean"] == pytest.approx(100 * 1520.272305 / 3254.572305)


def test_info_as_a_table(hopper: Path, td3_run: Path, tmp_path: Path, dataset_prints: Says) -> None:
    table, *warnings = dataset_prints("info", hopper).rstrip().rsplit("\n", 2)
    rows = {
        words[0]: words[1]
        for line in table.splitlines()
        if len(words := [word.strip() for word in line.strip("│").split("│")]) == 2
    }
    assert table.splitlines()[0].strip() == "hopper_medium-v2"
    for name, value in {
        "task": "Hopper-v4",
        "rows": "5",
        "episodes": "2",
        "state dimensions": "11",
        "action dimensions": "3",
        "rows that end for good": "40.00%",
        "return, mean": "1,500.0",
        "return, sd": "707.1",
        "return, min": "1,000.0",
        "return, max": "2,000.0",
        "length, median": "2.5",
        "D4RL score, mean": "46.7",
    }.items():
        assert rows[name] == value
    assert warnings[0].startswith("warning: no field timeouts")
    assert warnings[1].startswith("warning: it has the name of D4RL's hopper-medium-v2")
    recorded(td3_run, "expert", N, tmp_path / "own.hdf5")
    out = dataset_prints("info", tmp_path / "own.hdf5")
    assert out.startswith("own (self-collected)")
    assert "warning" not in out
    assert "score" not in out


def test_info_takes_the_tasks_bounds(
    tmp_path: Path, dataset_prints: Says, dataset_fails: Says
) -> None:
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((3, 2))
        file["actions"] = np.array([[3.0, -2.0]] * 3)
        file["rewards"] = np.zeros(3)
        file["terminals"] = np.zeros(3)
    assert (
        "actions holds 3.0 in row 0, dimension 0; allowed: -1.0 to 1.0, unless --env"
        in dataset_fails("info", path)
    )
    assert json.loads(dataset_prints("info", path, "--env", ENV, "--json"))["rows"] == 2
    assert "did you mean 'Point-v0'?" in dataset_fails("info", path, "--env", "toys:Pint-v0")


def test_info_of_bad_paths_gets_one_line(
    hopper: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    (empty_folder / "text.hdf5").write_text("text")
    (empty_folder / "folder").mkdir()
    whole = hopper.read_bytes()
    (empty_folder / "half.hdf5").write_bytes(whole[: len(whole) // 2])
    for more in ([], ["--json"]):
        message = dataset_fails("info", "text.hdf", *more)
        assert message.startswith(
            "text.hdf is neither a file nor a local Minari dataset; did you mean"
        )
        assert dataset_fails("info", "text.hdf5", *more) == "text.hdf5 is not an HDF5 file"
        assert "folder is a folder without a Minari dataset" in dataset_fails(
            "info", "folder", *more
        )
        assert dataset_fails("info", "half.hdf5", *more).startswith("half.hdf5 cannot be read: ")
    assert "required: DATASET" in dataset_fails("info")
    assert "unexpected argument 'more'" in dataset_fails("info", hopper, "more")
    assert "unknown option '--jsn'; did you mean '--json'?" in dataset_fails(
        "info", hopper, "--jsn"
    )

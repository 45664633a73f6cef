"""Datasets of any format: how they are found, summed up, scored, and compared with a task."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dataset_files import ACTIONS, STATES, fields_of, refused, save
from td7.datasets.dataset import summary, task_mismatch
from td7.datasets.hdf5 import write_hdf5
from td7.datasets.read import read
from td7.datasets.scores import score
from td7.errors import InputError
from td7.types import Task

pytestmark = pytest.mark.usefixtures("minari_root")


def test_a_missing_file(tmp_path: Path, minari_root: Path) -> None:
    save(tmp_path / "hopper_medium-v2.hdf5", fields_of("..."))
    meant = f"did you mean {str(tmp_path / 'hopper_medium-v2.hdf5')!r}?"
    refused(tmp_path / "hoper_medium-v2.hdf5", meant)
    with pytest.raises(InputError, match=r"^[^;?]*$"):
        read(tmp_path / "nowhere" / "hopper_medium-v2.hdf5")
    with pytest.raises(InputError, match=r"^[^;?]*$"):
        read("mujoco/hopper/medium-v0")
    with pytest.raises(InputError) as refusal:
        read("/dev/null")  # it is there, but no file
    assert "'/dev/null'" not in str(refusal.value)
    refused("hopper-medium-v2", "; `td7 dataset fetch hopper-medium-v2` downloads D4RL's file")
    assert not minari_root.exists()


def test_a_folder_without_data(tmp_path: Path) -> None:
    refused(tmp_path, "folder", "metadata.json")


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
        "task_wrappers": [],
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


# -- the dataset's task and another --------------------------------------------------------------

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
def test_data_of_another_task_give_a_warning(
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

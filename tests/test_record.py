"""config.json as `RunRecord`: typed fields, and one line for whatever is wrong in the file."""

import json
from pathlib import Path

import pytest

from fake_runs import dataset_fields, write_config
from td7.errors import InputError
from td7.runs.record import DatasetRecord, RunRecord, run_and_step
from td7.types import Task

NEEDED = (
    *("algorithm", "task", "seeds", "hyperparameters"),
    *("steps", "evaluate_every", "evaluation_episodes"),
)


def test_the_fields_have_types(tmp_path: Path) -> None:
    task = {"id": "toys:Point-v0", "kwargs": {"at": 5}}
    settings = {"batch_size": 8}
    write_config(tmp_path, seeds=[3, 1], task=task, hyperparameters=settings, command="td7 train")
    record = RunRecord.read(tmp_path)
    assert (record.folder, record.algorithm, record.variant) == (tmp_path, "td7", "")
    assert (record.task, record.seeds) == (Task("toys:Point-v0", {"at": 5}, seed_bits=63), (3, 1))
    assert (record.steps, record.evaluate_every, record.evaluation_episodes) == (1_000, 500, 2)
    assert (record.hyperparameters, record.dataset) == (settings, None)
    assert record.data == json.loads((tmp_path / "config.json").read_text())
    assert record.data["command"] == "td7 train"


def test_a_dataset_has_types(tmp_path: Path) -> None:
    write_config(tmp_path, dataset=dataset_fields("/data/x.hdf5", mean_return=2.5, d4rl="x-v2"))
    assert RunRecord.read(tmp_path).dataset == DatasetRecord(
        "/data/x.hdf5", 10, "0", self_collected=False, mean_return=2.5, d4rl="x-v2"
    )


def test_fields_that_are_newer_than_a_run_have_defaults(tmp_path: Path) -> None:
    write_config(tmp_path, dataset=dataset_fields("/data/x.hdf5"))
    data = json.loads((tmp_path / "config.json").read_text())
    del data["variant"], data["dataset"]["d4rl"], data["dataset"]["mean_return"]
    (tmp_path / "config.json").write_text(json.dumps(data))
    record = RunRecord.read(tmp_path)
    assert (record.variant, record.dataset) == (
        "",
        DatasetRecord("/data/x.hdf5", 10, "0", self_collected=False),
    )
    del data["dataset"]
    (tmp_path / "config.json").write_text(json.dumps(data))
    assert RunRecord.read(tmp_path).dataset is None


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_field_is_named(name: str, tmp_path: Path) -> None:
    write_config(tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    del data[name]
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        RunRecord.read(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'} is damaged: it has no {name!r}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("algorithm", None, "algorithm must be a string, given None"),
        ("variant", 3, "variant must be a string, given 3"),
        ("task", "Ant-v4", "task must be an object, given 'Ant-v4'"),
        ("task", {"id": 5, "kwargs": {}}, "task id must be a string, given 5"),
        ("task", {"id": "Ant-v4"}, "it has no 'kwargs'"),
        ("task", {"id": "Ant-v4", "kwargs": []}, "kwargs must be an object, given []"),
        (
            "task",
            {"id": "Ant-v4", "kwargs": {}, "seed_bits": 64},
            "seed_bits=64 must be at most 63",
        ),
        ("seeds", 5, "seeds must be a list, given 5"),
        ("seeds", [], "seeds is empty: at least one is needed"),
        ("seeds", [0.5], "seeds takes a whole number, given 0.5"),
        ("steps", "many", "steps takes a whole number, given 'many'"),
        ("evaluate_every", 0, "evaluate_every=0 must be at least 1"),
        ("hyperparameters", ["x"], "hyperparameters must be an object, given ['x']"),
        ("dataset", [1], "dataset must be an object, given [1]"),
        ("versions", 0.5, "versions must be an object, given 0.5"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: object, reason: str, tmp_path: Path) -> None:
    write_config(tmp_path, **{name: value})
    with pytest.raises(InputError) as caught:
        RunRecord.read(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'} is damaged: {reason}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("source", 3, "source must be a string, given 3"),
        ("sha256", None, "sha256 must be a string, given None"),
        ("rows", 0, "rows=0 must be at least 1"),
        ("self_collected", "no", "self_collected must be a truth value, given 'no'"),
        ("mean_return", "../../x", "mean_return takes a number, given '../../x'"),
        ("d4rl", 5, "d4rl must be a string, given 5"),
    ],
)
def test_a_wrong_value_of_a_dataset_is_named(
    name: str, value: object, reason: str, tmp_path: Path
) -> None:
    write_config(tmp_path, dataset={**dataset_fields("/data/x.hdf5"), name: value})
    with pytest.raises(InputError) as caught:
        RunRecord.read(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'} is damaged: {reason}"


def test_a_dataset_without_its_rows_is_one_line(tmp_path: Path) -> None:
    write_config(tmp_path, dataset={"source": "x.hdf5"})
    with pytest.raises(InputError, match=r"config\.json is damaged: .*'rows'") as caught:
        RunRecord.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_and_its_kept_policies_are_told_apart() -> None:
    assert run_and_step(Path("runs/a")) == (Path("runs/a"), None)
    assert run_and_step(Path("runs/a/policies/000000040")) == (Path("runs/a"), 40)
    assert run_and_step(Path("runs/a/policies")) == (Path("runs/a/policies"), None)

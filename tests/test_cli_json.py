"""`td7 list` and `td7 evaluate` with `--json`, and what `td7 list datasets` finds."""

import json
from pathlib import Path
from typing import Any

import pytest

import toys
from commands import FailingCommand, printed
from td7.algorithms import ALGORITHMS
from td7.cli.console import print_json
from td7.cli.main import main
from td7.datasets.download import DATASETS
from td7.rollouts.registration import mujoco_tasks
from td7.studies.rows import STUDIES
from td7.types import PAPER_TASKS

assert toys  # registers the tasks


def data(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    return json.loads(printed(capsys, *map(str, words), "--json"))


def test_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    listed = data(capsys, "list", "algorithms")
    assert {a["name"]: a["summary"] for a in listed} == {
        n: a.summary for n, a in ALGORITHMS.items()
    }
    td7 = data(capsys, "list", "algorithms", "TD7")
    assert (td7["name"], td7["summary"]) == ("td7", ALGORITHMS["td7"].summary)
    by_name = {h["name"]: h for h in td7["hyperparameters"]}
    assert by_name["batch_size"]["default"] == 256
    assert by_name["critic_inputs"]["default"] == ["zsa", "zs", "phi"]
    assert by_name["critic_inputs"]["group"] == "SALE"
    assert all(set(h) == {"name", "default", "group", "description"} for h in by_name.values())
    offline = {h["name"] for h in data(capsys, "list", "algorithms", "iql")["hyperparameters"]}
    assert "expectile" in offline
    assert "random_steps" not in offline  # which it refuses


def test_studies(capsys: pytest.CaptureFixture[str]) -> None:
    listed = data(capsys, "list", "studies")
    assert [(s["name"], s["rows"]) for s in listed] == [
        (n, len(s.rows)) for n, s in STUDIES.items()
    ]
    offline = data(capsys, "list", "studies", "offline")
    assert (offline["steps"], offline["step_unit"]) == (1_000_000, "updates")
    assert set(offline["datasets"]) <= set(DATASETS)
    design = data(capsys, "list", "studies", "design")
    (row,) = (row for row in design["rows"] if row["label"] == "zs'a'")
    assert (row["variant"], row["algorithm"]) == ("design/zs'a'", "td7")
    assert row["changes"] == STUDIES["design"].rows["zs'a'"].changes


def test_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    listed = data(capsys, "list", "tasks")
    assert [task["id"] for task in listed] == mujoco_tasks()
    assert {task["id"] for task in listed if task["in_paper"]} == set(PAPER_TASKS)


def test_datasets(
    working_folder: Path, minari_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4RL's by name, those that are here with their file; other files; Minari's by id."""
    here = working_folder / "datasets"
    here.mkdir()
    medium, replay = DATASETS["hopper-medium-v2"], DATASETS["hopper-medium-replay-v2"]
    with (here / medium.file).open("wb") as file:
        file.truncate(medium.bytes)  # takes no space
    (here / replay.file).write_bytes(b"of another size")
    (here / "own.hdf5").write_bytes(b"1234")
    (here / "own.hdf5.part").write_bytes(b"no dataset yet")
    content = minari_root / "mine" / "task" / "expert-v0" / "data"
    content.mkdir(parents=True)
    (content / "metadata.json").write_text("{}")
    (content / "main_data.hdf5").write_bytes(b"12345")
    listed = data(capsys, "list", "datasets")
    assert [d["name"] for d in listed if d["origin"] == "D4RL"] == list(DATASETS)
    d4rl_here = {"name": "hopper-medium-v2", "origin": "D4RL", "bytes": medium.bytes}
    others = [d for d in listed if d["origin"] != "D4RL" or d["path"]]
    assert others == [
        {**d4rl_here, "path": f"datasets/{medium.file}"},
        {"name": Path(replay.file).stem, "origin": "local", "bytes": 15} | at(replay.file),
        {"name": "own", "origin": "local", "bytes": 4} | at("own.hdf5"),
        {"name": "mine/task/expert-v0", "origin": "Minari", "bytes": 7}
        | {"path": str(content.parent)},
    ]
    lines = printed(capsys, "list", "datasets").splitlines()
    words = [line.split() for line in lines[: len(listed)]]
    fetch = ["td7", "dataset", "fetch", "halfcheetah-medium-v2"]
    assert words[0] == ["halfcheetah-medium-v2", "D4RL", "237.7", "MB", *fetch]
    assert ["hopper-medium-v2", "D4RL", "152.8", "MB", f"datasets/{medium.file}"] in words
    assert words[-1][:2] == ["mine/task/expert-v0", "Minari"]


def at(file: str) -> dict[str, str]:
    return {"path": f"datasets/{file}"}


@pytest.mark.usefixtures("minari_root", "working_folder")
def test_datasets_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert [d["path"] for d in data(capsys, "list", "datasets")] == [None] * len(DATASETS)


def test_only_algorithms_and_studies_have_details(failing_command: FailingCommand) -> None:
    for what in ("tasks", "datasets"):
        message = failing_command("list", what, "x", "--json")
        assert message == f"td7 list {what}: unexpected argument 'x'"


def test_evaluate(run_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With rows, means and conditions; notes are on standard error."""
    with (run_copy / "metrics.csv").open("a") as file:
        file.write("\n")
    words = ["evaluate", str(run_copy), "--episodes", "2", "--fresh-seeds", "--json"]
    assert main([*words, "--env-kwargs", "max_episode_steps=7"]) == 0
    out, err = capsys.readouterr()
    assert "metrics.csv was changed after the run had ended" in err
    result = json.loads(out)
    assert result["path"] == str(run_copy)
    assert result["env_kwargs"] == {"max_episode_steps": 7}
    assert result["fresh_seeds"] is True
    assert result["video"] is None
    episodes = result["episodes"]
    assert [(e["seed"], e["episode"], e["length"]) for e in episodes] == [
        (seed, episode, 7) for seed in (0, 3) for episode in (0, 1)
    ]
    for seed in result["seeds"]:
        a, b = (e["return"] for e in episodes if e["seed"] == seed["seed"])
        assert seed["mean"] == pytest.approx((a + b) / 2)
        assert seed["sd"] == pytest.approx(abs(a - b) / 2**0.5)
        assert (seed["episodes"], seed["min"], seed["max"]) == (2, min(a, b), max(a, b))
    assert result["mean"] == pytest.approx(sum(e["return"] for e in episodes) / 4)


def test_evaluate_with_one_episode_has_no_sd(
    finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = data(capsys, "evaluate", finished_run, "--seed", "3", "--episodes", "1")
    (seed,) = result["seeds"]
    assert (seed["seed"], seed["sd"], seed["mean"]) == (3, None, result["episodes"][0]["return"])
    assert (result["env_kwargs"], result["fresh_seeds"]) == ({}, False)


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1.5, float("nan"), {"b": float("inf")}], "c": (None, "nan", 2, True)})
    assert json.loads(capsys.readouterr().out) == {
        "a": [1.5, None, {"b": None}],
        "c": [None, "nan", 2, True],
    }

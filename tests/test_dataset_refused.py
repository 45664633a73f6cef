"""`td7 dataset record` refuses bad words and damaged runs in one line."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fake_runs import dataset_fields
from folders import change_policy
from recorded_runs import FIRST, SETTINGS, Says, everything, table, train, words_of
from td7.cli.main import main
from td7.datasets.record import FIRST_EPISODE, KINDS, record
from td7.errors import InputError


@pytest.mark.parametrize(
    ("kind", "rows", "more", "message"),
    [
        ("experts", "9", [], "unknown kind 'experts'; did you mean 'expert'? allowed: medium, "),
        ("medium-replay", "9", [], "unknown kind 'medium-replay'; did you mean 'medium-expert'?"),
        ("", "9", [], "an empty argument follows --kind"),
        ("../expert", "9", [], "unknown kind '../expert'; did you mean 'expert'?"),
        ("expert", "1", [], "--rows 1 must be at least 2"),
        ("medium-expert", "3", [], "--rows 3 must be at least 4"),
        ("expert", "0", [], "--rows 0 must be at least 2"),
        ("expert", "-5", [], "--rows -5 must be at least 2"),
        ("expert", "many", [], "rows takes a whole number, given 'many'"),
        ("expert", "9", ["--seed", "1"], "has no seed 1; allowed: 4, 5"),
        ("replay", "9", ["--seed", "1"], "has no seed 1; allowed: 4, 5"),
        ("expert", "9", ["--seed", "one"], "seed takes a whole number, given 'one'"),
        ("expert", "9", ["--workers", "-1"], "--workers -1 must be at least 0"),
        ("expert", "9", ["--workers", "1001"], "--workers 1001 must be at most 1000"),
        ("expert", "9", ["--workers", "two"], "workers takes a whole number, given 'two'"),
        ("expert", "9", ["--out", "no/where.hdf5"], "no is not a folder"),
        ("expert", "9", ["--out", "/proc/x.hdf5"], "cannot write to /proc/x.hdf5: No such file"),
        ("expert", "9", ["--out", "."], ". exists already"),
        ("replay", "161", [], "of seed 4, which made 160; asked for are the first 161"),
        ("expert", "9", ["more"], "unexpected argument 'more'"),
        ("expert", "9", ["--sed", "5"], "unknown option '--sed'; did you mean '--seed'?"),
    ],
)
def test_bad_words_get_one_line(
    kind: str,
    rows: str,
    more: list[str],
    message: str,
    td3_run: Path,
    empty_folder: Path,
    dataset_fails: Says,
) -> None:
    assert message in dataset_fails(*words_of(td3_run, kind, rows, *more))
    assert everything(empty_folder) == {}


@pytest.mark.parametrize("missing", ["--run", "--kind", "--rows"])
def test_run_kind_and_rows_are_needed(
    missing: str, td3_run: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    words = words_of(td3_run, "expert", 9)
    place = words.index(missing)
    message = dataset_fails(*words[:place], *words[place + 2 :])
    assert f"the following arguments are required: {missing}" in message
    assert everything(empty_folder) == {}


def test_a_file_that_is_there_stays(td3_run: Path, empty_folder: Path, dataset_fails: Says) -> None:
    (empty_folder / "Point-v0-expert.hdf5").write_text("mine")
    before = everything(empty_folder)
    assert dataset_fails(*words_of(td3_run, "expert", 9)) == "Point-v0-expert.hdf5 exists already"
    assert everything(empty_folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_no_run(kind: str, empty_folder: Path, dataset_fails: Says) -> None:
    assert dataset_fails(*words_of(Path("nowhere"), kind, 9)) == "nowhere does not exist"
    assert (
        dataset_fails(*words_of(empty_folder, kind, 9))
        == f"{empty_folder} holds no run: it has no config.json"
    )
    assert everything(empty_folder) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"task": {}}', '{"task": {"id": 5}}'])
def test_a_damaged_config(
    text: str, td3_copy: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    (td3_copy / "config.json").write_text(text)
    message = dataset_fails(*words_of(td3_copy, "expert", 9))
    assert message.startswith(f"{td3_copy / 'config.json'} ")
    assert everything(empty_folder) == {}


@pytest.mark.parametrize("kind", ["medium", "medium-expert"])
def test_no_kept_policies(
    kind: str, td3_copy: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    shutil.rmtree(td3_copy / "policies")
    message = f"{td3_copy} kept no policies of its middle: train it with --keep-policies"
    assert dataset_fails(*words_of(td3_copy, kind, 9)) == message
    assert everything(empty_folder) == {}
    assert main(list(map(str, ["dataset", *words_of(td3_copy, "expert", 9)]))) == 0


def test_a_run_without_a_snapshot(td3_copy: Path, empty_folder: Path, dataset_fails: Says) -> None:
    shutil.rmtree(td3_copy / "snapshot")
    message = f"{td3_copy} has no snapshot, which holds its transitions"
    assert dataset_fails(*words_of(td3_copy, "replay", 9)) == message
    assert everything(empty_folder) == {}
    assert main(list(map(str, ["dataset", *words_of(td3_copy, "expert", 9)]))) == 0


def test_a_run_without_a_policy(td3_copy: Path, empty_folder: Path, dataset_fails: Says) -> None:
    shutil.rmtree(td3_copy / "policy")
    message = dataset_fails(*words_of(td3_copy, "expert", 9))
    reason = "policy/policy.json is written with a run's first snapshot"
    assert message == f"{td3_copy} holds no policy: {reason}"
    assert everything(empty_folder) == {}


@pytest.mark.parametrize("kind", ["expert", "medium"])
def test_a_run_without_its_evaluations(
    kind: str, td3_copy: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    (td3_copy / "evaluations.csv").write_text("")
    if kind == "medium":
        assert f"{td3_copy / 'evaluations.csv'} " in dataset_fails(*words_of(td3_copy, kind, 9))
        (td3_copy / "evaluations.csv").unlink()
        assert f"{td3_copy / 'evaluations.csv'} " in dataset_fails(*words_of(td3_copy, kind, 9))
        assert everything(empty_folder) == {}
    else:
        assert main(list(map(str, ["dataset", *words_of(td3_copy, kind, 9)]))) == 0


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_replay_that_lost_its_first_rows(
    algorithm: str, tmp_path: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    run = train(tmp_path / "run", algorithm, steps=60, keep=0, replay_capacity=40)
    made = max(int(row["step"]) for row in table(run, "episodes") if row["seed"] == FIRST)
    made = 60 if algorithm == "td3" else made
    for rows in (2, 41):
        assert dataset_fails(*words_of(run, "replay", rows)) == (
            f"{run} holds the last 40 transitions of seed {FIRST}, which made {made}; "
            f"asked for are the first {rows}"
        )
    assert everything(empty_folder) == {}


def test_a_run_that_learned_from_data_has_no_replay_of_its_own(
    td3_copy: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    path = td3_copy / "config.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "dataset": dataset_fields("x.hdf5")}))
    message = dataset_fails(*words_of(td3_copy, "replay", 5))
    assert message == f"{td3_copy} learned from a dataset and collected no transitions"
    assert everything(empty_folder) == {}


def test_the_error_of_a_full_disk_names_the_file(
    td3_run: Path, empty_folder: Path, dataset_fails: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = dataset_fails(*words_of(td3_run, "expert", 9, "--out", "some.hdf5"), status=1)
    assert message == "some.hdf5: No space left on device"
    assert everything(empty_folder) == {}


def test_a_task_that_fails_is_status_1(
    tmp_path: Path, empty_folder: Path, dataset_fails: Says
) -> None:
    """The run's task works, the recording's does not."""
    run = train(tmp_path / "run", "td3", steps=20, keep=0)
    kwargs = {"fault": "raise", "at": 3}
    change_policy(run / "policy", lambda data: data["task"]["task"].update(kwargs=kwargs))
    message = dataset_fails(*words_of(run, "expert", 9), "--trust", status=1)
    where = f"seed {FIRST}, episode {FIRST_EPISODE}, step 3"
    assert message == f"{where}: the environment raised ValueError: the motor is on fire"
    assert everything(empty_folder) == {}


def test_python_gets_the_same_errors(td3_run: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"seed": None, "workers": 0, "report": lambda *_: None, "say": print}
    for kind, rows, out, message in (
        ("expret", 9, "a", "unknown kind 'expret'; did you mean 'expert'?"),
        ("expert", 1, "a", "rows=1 must be at least 2"),
        ("expert", 9, "a/b", f"{tmp_path / 'a'} is not a folder"),
        ("expert", 9, ".", f"{tmp_path} exists already"),
    ):
        with pytest.raises(InputError) as error:
            record(td3_run, kind, rows, tmp_path / out, **given)
        assert message in str(error.value)
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: ACTION"),
        (["inf"], "unknown action 'inf'; did you mean 'info'? allowed: info, fetch, record"),
        (["Record"], "unknown action 'Record'; did you mean 'record'?"),
        (["xyz"], "unknown action 'xyz'; allowed: info, fetch, record"),
        ([""], "an empty argument follows dataset"),
        (["--jsn"], "required: ACTION"),
    ],
)
def test_the_action_is_needed(
    words: list[str], message: str, empty_folder: Path, dataset_fails: Says
) -> None:
    assert message in dataset_fails(*words)
    assert everything(empty_folder) == {}


def test_help(dataset_prints: Says) -> None:
    assert dataset_prints("--help").startswith("usage: td7 dataset")
    for action, message in (
        ("info", "--json"),
        ("fetch", "hopper-medium-v2, hopper-medium-replay-v2"),
        ("record", "expert: episodes of the last policy"),
    ):
        out = dataset_prints(action, "--help")
        assert out.startswith(f"usage: td7 dataset {action}")
        assert message in " ".join(out.split())

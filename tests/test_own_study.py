"""A study in a module outside the package: every command takes it, and no file imports it."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import td7
import toys
from commands import FailingCommand, all_files
from folders import words
from td7.algorithms import ALGORITHMS
from td7.cli.main import main
from td7.errors import InputError
from td7.reports.compare import compare_folders
from td7.reports.report import read_report
from td7.runs.trust import SIGNATURE
from td7.studies.folder import RunState
from td7.studies.local import run_command
from td7.studies.rows import STUDIES, study
from td7.studies.run import make_plan, study_options

assert toys  # registers the tasks

# A study with an algorithm and a task that only its module registers. The labels are not in
# alphabetical order.
MODULE = """
from dataclasses import replace

import gymnasium

import toys
from td7.algorithms import ALGORITHMS
from td7.studies.rows import STUDIES
from td7.studies.rows.study import Study, rows

if "Own-v0" not in gymnasium.registry:
    gymnasium.register("Own-v0", entry_point=toys.Point, max_episode_steps=20)
ALGORITHMS["Mine"] = replace(ALGORITHMS["td7"], name="Mine")
ROWS = {
    "Default": {"Reference": ("td7", {}, "the defaults")},
    "Changes": {
        "a lower discount": ("td7", {"discount": 0.9}, "looks ahead less far"),
        "Mine": ("mine", {}, "an algorithm of the module"),
    },
}
OWN = Study("own", "A study of mine", "nowhere", 60, "", rows(ROWS, {}), ("Own-v0",))
STUDIES[OWN.name] = OWN
"""
LABELS = ["Reference", "a lower discount", "Mine"]
TINY = {
    **{"hidden_dim": 8, "embedding_dim": 8, "batch_size": 8},
    **{"random_steps": 30, "target_every": 25},
}
EVALUATION = ["--evaluate-every", "30", "--evaluation-episodes", "1"]
OPTIONS = ["--seeds", "0-1", *EVALUATION, "--engine", "eager", "--set", *words(TINY)]
REGISTRIES: tuple[dict[str, Any], ...] = (ALGORITHMS, STUDIES, gymnasium.registry)


@contextmanager
def working_in(folder: Path, module: str = MODULE) -> Iterator[None]:
    """In a folder with the module `own_study`, which nothing has imported yet."""
    (folder / "own_study.py").write_text(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, "own_study", raising=False)
        patch.setattr(sys, "dont_write_bytecode", True)  # tests list the folder's files
        before = [dict(registry) for registry in REGISTRIES]
        try:
            yield
        finally:
            sys.modules.pop("own_study", None)
            for registry, entries in zip(REGISTRIES, before, strict=True):
                registry.clear()
                registry.update(entries)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two rows, in another case and named before the study."""
    folder = tmp_path_factory.mktemp("own")
    with working_in(folder):
        rows = ["--rows", "REFERENCE", "mine"]
        assert main(["study", *rows, "own_study:OWN", *OPTIONS, "--at-once", "2"]) == 0
    return folder / "studies" / "own"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with working_in(tmp_path):
        yield tmp_path


def is_imported() -> bool:
    return "own_study" in sys.modules


def runs_of(out: Path) -> dict[str, dict[str, Any]]:
    """The config.json of each run, by its row's folder."""
    configs = sorted(out.glob("*/*/config.json"))
    return {path.parts[-3]: json.loads(path.read_text()) for path in configs}


# -- the command line ------------------------------------------------------------------------------


def test_each_run_names_the_module(finished: Path) -> None:
    """The module of an algorithm that is not td7's, too, so that `td7 resume` finds it."""
    runs = runs_of(finished)
    named = {row: (c["variant"], c["algorithm"]) for row, c in runs.items()}
    assert named == {
        "00-Reference": ("own_study:own/Reference", "td7"),
        "02-Mine": ("own_study:own/Mine", "own_study:Mine"),
    }
    log = (finished / "logs" / "02-Mine--Own-v0.log").read_text()
    assert log.startswith("$ td7 train --variant own_study:own/Mine --env Own-v0 --steps 60 ")
    request = json.loads((finished / "study.json").read_text())
    assert (request["name"], request["rows"]) == ("own_study:own", ["Reference", "Mine"])
    assert (request["tasks"], request["steps"]) == (["Own-v0"], 60)


def test_the_same_command_continues(
    here: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a finished run, one to extend, whose task only the module registers, and a new one."""
    out = here / "studies" / "own"
    shutil.copytree(finished, out)
    command = ["study", "own_study:own", *OPTIONS]
    assert main([*command, "--rows", "Reference", "Mine"]) == 0
    assert "all 2 runs are done" in capsys.readouterr().out
    request = {"name": "own_study:own", "rows": "Mine", "steps": 70, **SHARED}
    ((run, state),) = make_plan(study_options(request)).states.items()
    assert state is RunState.INTERRUPTED
    assert run_command(run)[-3:] == ["--import", "own_study", "--trust"]
    longer = ["--steps", "70", "--at-once", "2", "--rows", "A Lower Discount", "MINE"]
    assert main([*command, *longer]) == 0
    runs = runs_of(out)
    assert [(row, c["steps"]) for row, c in runs.items()] == [
        ("00-Reference", 60),
        ("01-a_lower_discount", 70),
        ("02-Mine", 70),
    ]
    assert runs["01-a_lower_discount"]["hyperparameters"]["discount"] == 0.9


SHARED: dict[str, Any] = {
    **{"seeds": range(2), "engine": "eager", "set": TINY},
    **{"evaluate_every": 30, "evaluation_episodes": 1},
}


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_it_is_listed(
    json_option: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "studies", "own_study:OWN", *json_option]) == 0
    listing = capsys.readouterr().out
    assert all(label in listing for label in LABELS)
    assert "own_study:own/a lower discount" in listing


def test_a_study_of_one_row_and_a_dataset_of_yours_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = 'rows({"": {"IQL": ("iql", {}, "")}}, {}), (), ("my.hdf5",))'
    module = MODULE.replace('rows(ROWS, {}), ("Own-v0",))', one)
    with working_in(tmp_path, module):
        assert main(["list", "studies", "own_study:own"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Train one row: td7 train --variant 'own_study:own/IQL' --dataset my.hdf5"


def test_train_takes_a_row_and_resume_finds_its_algorithm(here: Path) -> None:
    """`resume` imports the module for the algorithm; for the row alone, nothing ever does."""
    small = ["--steps", "40", *EVALUATION, "--env", "toys:Point-v0", "--quiet"]
    small += ["--set", *words(TINY)]
    for row in ("mine", "reference"):
        assert main(["train", "--variant", f"own_study:Own/{row}", "--out", row, *small]) == 0
    (here / "reference" / SIGNATURE).unlink()
    for row, name in (("mine", "own_study:Mine"), ("reference", "td7")):
        with working_in(here):
            assert main(["resume", row, "--steps", "50", "--quiet"]) == 0
            assert is_imported() == (row == "mine")
        config = td7.Run(row).config
        assert (config["algorithm"], config["steps"]) == (name, 50)
    with working_in(here):
        assert main(["resume", "reference", "--steps", "60", "--quiet", "--trust"]) == 0
        assert not is_imported()


# -- Python ----------------------------------------------------------------------------------------


def test_runs_find_a_module_that_only_python_finds(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a folder on sys.path, such as that of the script, and not in the current one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    status = td7.study("own_study:own", rows="a lower discount", quiet=True, **SHARED)
    assert status.failed == {}
    assert [run.label for run in status.done] == ["a lower discount"]
    assert here not in status.done[0].folder.resolve().parents


def test_a_study_without_its_module_is_refused(here: Path) -> None:
    """It is registered here, but the processes of its runs would not find it."""
    assert study("own_study:own").name == "own_study:own"
    assert study("own").name == "own"
    with pytest.raises(InputError, match="study 'own': name it as MODULE:own, so that the process"):
        td7.study("own", **SHARED)
    assert not (here / "studies").exists()


# -- reports ---------------------------------------------------------------------------------------


def test_a_report_needs_no_import(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in the study's order, and the report says which runs are missing."""
    out = tmp_path / "own"
    shutil.copytree(finished, out)
    shutil.copytree(out / "02-Mine", out / "03-A_last_row")
    change(out / "03-A_last_row" / "Own-v0" / "config.json", variant="own_study:own/A last row")
    report = read_report([out])
    rows = [(r.study, r.label, r.requested, r.seeds) for r in report.results]
    assert rows == [
        ("own", label, "Own-v0", (0, 1)) for label in ("Reference", "Mine", "A last row")
    ]
    assert not any("no row" in note or "differs" in note for note in report.notes)
    assert {table.title for table in report.tables} == {"Returns: own", "Run time: own"}
    assert compare_folders([out], None).comparisons[0].baseline == "Reference"
    shutil.rmtree(out / "02-Mine")
    assert "own: Mine on Own-v0: not started" in read_report([out]).notes
    assert not is_imported()


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_report_in_python_uses_an_imported_study(finished: Path, here: Path) -> None:
    study("own_study:own")
    report = read_report([finished])
    assert [r.label for r in report.results] == ["Reference", "Mine"]
    assert report.tables[0].title == "Returns: A study of mine (nowhere)"


# -- mistakes --------------------------------------------------------------------------------------

COMMANDS = [
    ["study", "NAME", *OPTIONS],
    ["list", "studies", "NAME"],
    ["train", "--variant", "NAME/Mine", "--env", "toys:Point-v0"],
]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:own", "study 'nowhere:own': module 'nowhere' cannot be imported: ModuleNotFound"),
        ("own_study:owm", "unknown study 'owm'; did you mean 'own'? allowed: own"),
        ("json:design", "study 'json:design': module 'json' registers no study"),
        ("own", "unknown study 'own'; allowed: online, offline, design, "),
    ],
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_name_without_a_study_is_one_line(
    command: list[str], name: str, message: str, here: Path, failing_command: FailingCommand
) -> None:
    before = all_files(here)
    assert message in failing_command(*(word.replace("NAME", name) for word in command))
    assert all_files(here) == before


def test_a_label_may_look_like_a_study(here: Path, failing_command: FailingCommand) -> None:
    message = failing_command("study", "own_study:own", "--rows", "mine", "own_study:own")
    assert message.startswith("unknown row of own_study:own 'own_study:own'; ")


DISCOUNT = '{"discount": 0.9}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '("td7", {}, "the defaults")',
            '("td77", {}, "")',
            "own_study:own/Reference: unknown algorithm 'td77'; did you mean 'td7'?",
        ),
        (
            DISCOUNT,
            '{"discuont": 0.9}',
            "own_study:own/a lower discount: unknown hyperparameter 'discuont'; did you mean "
            "'discount'?",
        ),
        (DISCOUNT, '{"discount": "much"}', "own/a lower discount: discount takes a number, given"),
        ('"Mine": (', '"Reference": (', "row 'Reference' is in two groups: 'Default', 'Changes'"),
        ('"Mine": (', '"a_lower?discount": (', "'a_lower?discount' of own_study:own would share"),
        ('Study("own"', 'Study("design"', "replaces td7's study 'design'; give it another name"),
        ("rows(ROWS, {})", "{}", "registers 'own'; a study has rows, and no / or : in its name"),
        (
            '("Own-v0",))',
            '(), ("hopper-medium-v2",))\nROWS["Default"] = {"TD3": ("td3", {}, "")}',
            "own_study:own/Mine: Mine does not learn from a dataset",
        ),
        ("OWN = ", "1 / 0\nOWN = ", "cannot be imported: ZeroDivisionError at own_study.py:21: "),
        (
            "OWN = ",
            "import td7; td7.train(env='toys:Point-v0')\nOWN = ",
            "study 'own_study:own': module 'own_study' uses td7 when it is imported: put that",
        ),
    ],
)
def test_a_faulty_study_is_one_line(
    old: str, new: str, message: str, tmp_path: Path, failing_command: FailingCommand
) -> None:
    assert MODULE.count(old) == 1
    module = MODULE.replace(old, new)
    if "hopper" in new:
        module = module.replace('name="Mine")', 'name="Mine", offline=None)')
    with working_in(tmp_path, module):
        before = all_files(tmp_path)
        assert message in failing_command("study", "own_study:own", *OPTIONS)
        assert all_files(tmp_path) == before


def test_a_row_names_itself_in_the_error_of_its_training(
    tmp_path: Path, failing_command: FailingCommand
) -> None:
    with working_in(tmp_path, MODULE.replace(DISCOUNT, '{"discuont": 0.9}')):
        command = ["train", "--env", "toys:Point-v0", "--variant"]
        error = failing_command(*command, "own_study:own/A Lower Discount")
        assert error.startswith("own_study:own/a lower discount: unknown hyperparameter")
        with pytest.raises(InputError, match="unknown hyperparameter 'discuont'"):
            td7.train(variant="own_study:own/a lower discount", env="toys:Point-v0", out="run")
        assert not (tmp_path / "run").exists()


# -- a stranger's folder ---------------------------------------------------------------------------


def test_a_strangers_study_is_not_imported(
    finished: Path, here: Path, failing_command: FailingCommand
) -> None:
    """Neither for what only reads, nor to resume; the user may import it."""
    out = here / "own"
    shutil.copytree(finished, out)
    for signature in out.rglob(SIGNATURE):
        signature.unlink()
    run = out / "02-Mine" / "Own-v0"
    assert read_report([out]).results
    assert td7.load(run, 0).spec.task.id == "Own-v0"
    td7.export(run, here / "policy", seed=0, format="folder")
    message = failing_command("study", "design", "--out", out, "--dry-run")
    assert message == f"{out} holds the study own_study:own; use another folder (--out)"
    message = failing_command("resume", run, "--steps", "70")
    assert message.endswith("names the module 'own_study': add --import own_study if you trust it")
    assert not is_imported()
    assert main(["resume", str(run), "--steps", "70", "--quiet", "--import", "own_study"]) == 0

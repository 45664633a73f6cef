"""What a stranger's folder or dataset names is neither imported nor read; one's own is signed."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from commands import TINY, FailingCommand, all_files
from dataset_files import fields_of
from fake_runs import write_config
from folders import SMALL, change_policy, words
from td7.cli.main import main
from td7.datasets.hdf5 import write_hdf5
from td7.errors import InputError
from td7.reports.report import read_report
from td7.runs import folder as run_folder
from td7.runs.trust import SIGNATURE, is_signed, sign
from td7.studies.folder import run_state
from td7.studies.local import run_command
from td7.studies.plan import plan_runs
from td7.types import Probe
from test_plan import request

assert toys  # registers the tasks

MODULE = """
import gymnasium, toys
if "Strange-v0" not in gymnasium.registry:
    gymnasium.register("Strange-v0", entry_point=toys.Configurable, max_episode_steps=20)
"""
STRANGE: dict[str, Any] = {"id": "stranger:Strange-v0", "kwargs": {}}


@pytest.fixture(scope="module")
def strange_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run whose task is in a module that can be imported."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "stranger.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    path = folder / "run"
    options = ["--env", STRANGE["id"], *TINY, "--out", str(path), "--set", *words(SMALL)]
    assert main(["train", *options]) == 0
    yield path
    sys.path.remove(str(folder))
    sys.modules.pop("stranger", None)  # which other tests expect not to be imported


@pytest.fixture(autouse=True)
def not_imported(strange_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stranger", raising=False)


def change(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(file.read_text())
    edit(data)
    file.write_text(json.dumps(data))


def name_task(run: Path, task: dict[str, Any]) -> None:
    change(run / "config.json", lambda data: data.update(task=task))
    change_policy(run / "policy", lambda data: data["task"].update(task=task))


@pytest.fixture
def strangers_run(strange_run: Path, tmp_path: Path) -> Path:
    """The same from another user, who signed it with another key."""
    path = tmp_path / "strangers"
    shutil.copytree(strange_run, path)
    (path / SIGNATURE).write_text("0" * 64)
    return path


def commands(run: Path, out: Path) -> list[list[str]]:
    record = ["dataset", "record", "--run", str(run), "--kind", "expert", "--rows", "4"]
    evaluate = ["evaluate", str(run), "--episodes", "1"]
    return [evaluate, [*record, "--out", str(out)], ["resume", str(run), "--quiet"]]


def test_a_strangers_module_is_not_imported(
    strangers_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = all_files(strangers_run)
    remedy = "names the module 'stranger': add --import stranger if you trust it"
    for command in commands(strangers_run, tmp_path / "a.hdf5"):
        assert main(command) == 2
        message = capfd.readouterr().err.splitlines()[-1]
        assert message == f"td7: {strangers_run} is not signed with your key and {remedy}"
    assert "stranger" not in sys.modules
    assert all_files(strangers_run) == before


def test_the_user_may_import_it(strangers_run: Path, tmp_path: Path) -> None:
    for command in commands(strangers_run, tmp_path / "a.hdf5"):
        assert main([*command, "--import", "stranger"]) == 0
    assert not is_signed(strangers_run)


@pytest.mark.parametrize("index", range(3))
def test_trust_covers_everything_and_lasts(
    index: int, strangers_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(strangers_run, tmp_path / "a.hdf5")[index]
    assert main([*command, "--trust"]) == 0
    monkeypatch.delitem(sys.modules, "stranger")
    assert main(commands(strangers_run, tmp_path / "b.hdf5")[index]) == 0


def test_a_strangers_algorithm_is_not_imported(run_copy: Path) -> None:
    change(run_copy / "config.json", lambda data: data.update(algorithm="stranger:strange"))
    with pytest.raises(InputError, match="names the module 'stranger'"):
        td7.resume(run_copy, quiet=True)
    assert "stranger" not in sys.modules
    assert len(td7.evaluate(run_copy, episodes=1)) == 2  # which makes only the task


def test_the_signature_of_a_run_does_not_cover_a_policy_of_another_task(run_copy: Path) -> None:
    assert is_signed(run_copy)
    change_policy(run_copy / "policy", lambda data: data["task"].update(task=STRANGE))
    with pytest.raises(InputError, match="names the module 'stranger'"):
        td7.evaluate(run_copy)


@pytest.mark.parametrize("value", ["/etc/hostname", ["a"], {"a": [{"b": "c"}]}])
def test_text_for_a_strangers_task_needs_trust(value: object, run_copy: Path) -> None:
    name_task(run_copy, {"id": "toys:Configurable-v0", "kwargs": {"file": value, "n": 3}})
    for command in (td7.evaluate, td7.resume):
        with pytest.raises(InputError, match=r"passes its task the text file=.*: add --trust"):
            command(run_copy)
    assert len(td7.evaluate(run_copy, trust=True)) == 20


def test_a_strangers_run_does_not_choose_the_dataset_to_read(
    run_copy: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.hdf5"
    fields = {"rows": 1, "sha256": "", "self_collected": False, "source": str(secret)}
    change(run_copy / "config.json", lambda data: data.update(dataset=fields))
    with pytest.raises(InputError, match=f"reads a dataset: add dataset={secret}"):
        td7.resume(run_copy)
    with pytest.raises(InputError, match="neither a file nor a local Minari dataset"):
        td7.resume(run_copy, dataset=str(secret))


# -- signatures ------------------------------------------------------------------------------------


def test_a_kill_while_config_json_is_rewritten_loses_no_signature(run_copy: Path) -> None:
    file = run_copy / "config.json"
    old, new = file.read_bytes(), file.read_bytes() + b"\n"
    sign(run_copy, new)
    assert is_signed(run_copy)
    file.write_bytes(new)
    assert is_signed(run_copy)
    file.write_bytes(old + b" ")
    assert not is_signed(run_copy)


def test_an_extended_run_stays_signed_and_a_strangers_unsigned(
    run_copy: Path, tmp_path: Path
) -> None:
    td7.resume(run_copy, steps=31, quiet=True)
    assert is_signed(run_copy)
    (run_copy / SIGNATURE).unlink()
    td7.resume(run_copy, steps=32, quiet=True)
    assert not (run_copy / SIGNATURE).exists()


def test_the_key_is_the_users_alone(config_home: Path, finished_run: Path) -> None:
    assert is_signed(finished_run)
    key = config_home / "td7" / "key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    assert list(key.parent.iterdir()) == [key]


def test_a_run_without_a_key_stays_unsigned(
    run_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    (run_copy / SIGNATURE).unlink()
    sign(run_copy)
    assert not (run_copy / SIGNATURE).exists()
    assert not is_signed(run_copy)


# -- commands that only read -----------------------------------------------------------------------


def test_load_report_and_export_import_nothing(strangers_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    change(strangers_run / "config.json", lambda data: data.update(algorithm="stranger:strange"))
    assert td7.load(strangers_run, 0).spec.task.id == "stranger:Strange-v0"
    assert td7.export(strangers_run, tmp_path / "a.onnx", seed=0).is_file()
    assert read_report([strangers_run]).results[0].task.id == "stranger:Strange-v0"
    assert "stranger" not in sys.modules


# -- datasets and studies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "kwargs", "message"),
    [
        (
            "stranger:Strange-v0",
            {},
            "its module is imported only if you give --env stranger:Strange-v0",
        ),
        ("toys:Configurable-v0", {"file": "/etc/hostname"}, "the text file='/etc/hostname'"),
    ],
)
def test_a_dataset_chooses_neither_modules_nor_files(
    task: str, kwargs: dict[str, str], message: str, tmp_path: Path, failing_command: FailingCommand
) -> None:
    path = tmp_path / "a.hdf5"
    attributes = {"task": task, "task_kwargs": json.dumps(kwargs), "kind": "medium"}
    write_hdf5(path, **fields_of("..T"), attributes=attributes)
    assert message in failing_command("train", "iql", "--dataset", path, "--out", tmp_path / "run")
    assert "stranger" not in sys.modules
    assert not (tmp_path / "run").exists()


def test_a_study_vouches_for_runs_of_its_own_task(tmp_path: Path) -> None:
    (run,) = plan_runs(request(), tmp_path, Path())
    own = {"variant": run.options.variant, "seeds": list(run.options.seeds)}
    counts = {n: getattr(run.options, n) for n in ("evaluate_every", "evaluation_episodes")}
    algorithm = {"algorithm": run.algorithm}
    write_config(run.folder, **own, **counts, **algorithm, task={"id": run.task, "kwargs": {}})
    assert run_command(run)[-1] == "--trust"
    shutil.rmtree(run.folder)
    write_config(run.folder, **own, **counts, **algorithm, task=STRANGE)
    with pytest.raises(InputError, match='env="stranger:Strange-v0", but this study needs'):
        run_state(run)


def test_a_probe_is_recorded_and_signed_whatever_the_disk_returns(tmp_path: Path) -> None:
    """From what the process wrote: a read that is cut short would cost the signature."""
    record: dict[str, Any] = {"seeds": [0], "fingerprint": {"modules": {}, "probe": None}}
    run_folder.write_config(tmp_path, record)
    (tmp_path / "config.json").write_text("{")
    run_folder.record_probe(tmp_path, record, Probe(((1.0,),), ()))
    assert json.loads((tmp_path / "config.json").read_text())["fingerprint"]["probe"]
    assert is_signed(tmp_path)

"""`--wrapper MODULE:CLASS[:JSON]`: wherever a task is made, its wrappers are around it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import td7
import toys
from commands import ENV, TINY, FailingCommand
from folders import SMALL, change_policy, contents, differences, words
from interrupted_runs import change_both
from td7.cli.main import main
from td7.datasets.read import read
from td7.reports.report import read_report
from td7.rollouts.registration import make
from td7.runs.trust import SIGNATURE
from td7.training.resolve import read_dataset
from td7.types import Task, Wrapper
from toy_wrappers import Outer, Scaled

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
POINT = "toys:Point-v0"
SCALED = 'toy_wrappers:Scaled:{"scale": 4.0}'


def train(path: Path, **options: Any) -> td7.Run:
    return td7.train(
        **{
            "env": POINT,
            "wrapper": SCALED,
            "seeds": "0-1",
            "steps": 60,
            "evaluate_every": 30,
            "evaluation_episodes": 2,
            "set": SMALL,
            "quiet": True,
            "out": str(path),
            **options,
        }
    )


def recorded(path: Path) -> list[dict[str, Any]]:
    wrappers: list[dict[str, Any]] = json.loads((path / "config.json").read_text())["task"][
        "wrappers"
    ]
    return wrappers


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a wrapped task."""
    path = tmp_path_factory.mktemp("wrapped") / "run"
    train(path)
    return path


def test_the_task_is_wrapped_in_training_and_in_evaluation(tmp_path: Path, wrapped: Path) -> None:
    assert recorded(wrapped) == [{"name": "toy_wrappers:Scaled", "kwargs": {"scale": 4.0}}]
    plain = train(tmp_path / "plain", wrapper=())
    # Before the first update both act alike, and 4 is a power of two.
    scaled = td7.Run(wrapped)
    for table in ("episodes", "evaluations"):
        ours, theirs = getattr(scaled, table), getattr(plain, table)
        first = ours["step"] <= 30
        assert (ours["return"][first] == 4 * theirs["return"][first]).all()
    last = scaled.evaluations[scaled.evaluations["step"] == 60].reset_index()
    again = td7.evaluate(wrapped, episodes=2)
    assert again["return"].tolist() == last["return"].tolist()


@pytest.mark.parametrize("options", [{"workers": 1}, {"processes": 2}], ids=["worker", "processes"])
def test_other_processes_wrap_it_as_well(
    options: dict[str, int], tmp_path: Path, wrapped: Path
) -> None:
    run = train(tmp_path / "run", **options)
    assert run.episodes.equals(td7.Run(wrapped).episodes)


def test_workers_in_lockstep_wrap_it_as_well(tmp_path: Path) -> None:
    alone, worker = (
        train(tmp_path / str(n), workers=n, set={**SMALL, "checkpoints": "none"}) for n in (0, 1)
    )
    assert alone.episodes.equals(worker.episodes)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, wrapped: Path) -> None:
    run = train(tmp_path / "run", steps=40)
    td7.resume(run.path, steps=60, quiet=True)
    assert differences(contents(wrapped), contents(run.path)) == []


def test_a_run_that_is_older_than_wrappers_resumes(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", wrapper=())
    run = train(tmp_path / "run", wrapper=(), steps=40)
    change_both(run.path, lambda config: config["task"].pop("wrappers"))
    change_policy(run.path / "policy", lambda data: data["task"]["task"].pop("wrappers"))
    assert len(td7.evaluate(run.path)) == 20
    td7.resume(run.path, steps=60, quiet=True, trust=True)
    assert differences(contents(whole.path), contents(run.path)) == []


def test_the_first_wrapper_is_the_innermost() -> None:
    double = Wrapper("toy_wrappers:Scaled", {"scale": 2.0})
    add = Wrapper("toy_wrappers:Outer.Inner", {"scale": 1.0, "shift": 1.0})

    def first_reward(*wrappers: Wrapper) -> float:
        environment = make(Task(POINT, {}, wrappers))
        environment.reset(0)
        reward = environment.step(environment.action_map.to_unit([0.0, 0.0])).reward
        environment.close()
        return reward

    plain = first_reward()
    assert first_reward(double, add) == 2 * plain + 1
    assert first_reward(add, double) == 2 * (plain + 1)


def test_a_wrapper_may_set_the_time_limit_and_is_there_in_videos() -> None:
    short = Wrapper("gymnasium.wrappers:TimeLimit", {"max_episode_steps": 7})
    environment = make(Task("toys:Drawn-v0", {}, (short,)), render=True)
    assert environment.spec.time_limit == 7
    assert isinstance(environment.env, gymnasium.wrappers.TimeLimit)
    environment.close()


def test_the_command_line_and_classes_name_the_same_wrappers(tmp_path: Path) -> None:
    command = ["train", *ENV, *TINY, "--set", *words(SMALL), "--out", str(tmp_path / "run")]
    command += ["--wrapper", SCALED, "--wrapper", "toy_wrappers:Outer.Inner"]
    assert main(command) == 0
    run = train(tmp_path / "again", wrapper=[SCALED, Outer.Inner], steps=30)
    assert recorded(tmp_path / "run") == recorded(run.path)
    assert [wrapper["name"] for wrapper in recorded(run.path)] == [
        "toy_wrappers:Scaled",
        "toy_wrappers:Outer.Inner",
    ]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("Scaled", "--wrapper takes MODULE:CLASS or MODULE:CLASS:JSON, given 'Scaled'"),
        (
            "toy_wrappers:Scaled:{scale: 2}",
            "--wrapper toy_wrappers:Scaled takes its arguments as a JSON object, such as "
            "toy_wrappers:Scaled:{\"scale\": 0.1}, given '{scale: 2}'",
        ),
        ("toy_wrappers:Scaled:[2]", "as a JSON object, such as"),
        ("toy_wrapers:Scaled", "wrapper 'toy_wrapers:Scaled': module 'toy_wrapers' cannot be"),
        (
            "toy_wrappers:Scale",
            "unknown wrapper of the module 'toy_wrappers', 'Scale'; did you mean 'Scaled'? "
            "allowed: Broken, Scaled",
        ),
        (
            "toy_wrappers:NoWrapper",
            "wrapper 'toy_wrappers:NoWrapper' must be a subclass of gymnasium.Wrapper; it is not",
        ),
        (
            "toys:Mine",
            "wrapper 'toys:Mine' must be a subclass of gymnasium.Wrapper; 'toys' has no class",
        ),
        ("toy_wrappers:Broken", "wrapper 'toy_wrappers:Broken' cannot be made: ValueError"),
        ('toy_wrappers:Scaled:{"by": 2}', "cannot be made: TypeError"),
    ],
)
def test_a_wrapper_that_cannot_be_used_is_one_line(
    word: str, message: str, tmp_path: Path, failing_command: FailingCommand
) -> None:
    out = tmp_path / "run"
    assert message in failing_command("train", *ENV, "--wrapper", word, "--out", out)
    assert not out.exists()


def test_a_class_of_a_program_cannot_be_named() -> None:
    class Local(Scaled):
        pass

    with pytest.raises(td7.InputError, match=r"given .*Local, which a program or a function def"):
        td7.train(env=POINT, wrapper=[Local])
    # Its name would be found here, but not in worker processes.
    with pytest.raises(td7.InputError, match=r"given Local, which a program or a function def"):
        td7.train(env=POINT, wrapper=["__main__:Local"])
    with pytest.raises(td7.InputError, match="wrapper takes MODULE:CLASS"):
        td7.train(env=POINT, wrapper=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ({"name": "stranger:Wrapper", "kwargs": {}}, "names the module 'stranger': add --import"),
        ({"name": "os:system", "kwargs": {"command": "ls"}}, "the text command='ls': add --trust"),
        ({"name": "os:getcwd", "kwargs": {}}, "must be a subclass of gymnasium.Wrapper; it is not"),
        ({"name": 3, "kwargs": {}}, "config.json is damaged: wrapper must be a string, given 3"),
    ],
)
def test_what_a_stranger_names_as_a_wrapper_is_neither_imported_nor_called(
    wrapper: dict[str, Any], message: str, tmp_path: Path, wrapped: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(wrapped, run)
    (run / SIGNATURE).write_text("0" * 64)
    task = {"id": POINT, "kwargs": {}, "wrappers": [wrapper]}
    change_both(run, lambda config: config.update(task=task))
    if isinstance(wrapper["name"], str):
        change_policy(run / "policy", lambda data: data["task"].update(task=task))
    commands: list[Callable[..., object]] = [td7.evaluate, td7.resume]
    for command in commands:
        with pytest.raises(td7.InputError, match=message):
            command(run)


def test_a_dataset_states_its_wrappers(
    tmp_path: Path, wrapped: Path, failing_command: FailingCommand
) -> None:
    file = tmp_path / "data.hdf5"
    command = ["dataset", "record", "--run", wrapped, "--seed", "0", "--kind", "expert"]
    assert main([*map(str, command), "--rows", "20", "--out", str(file)]) == 0
    expected = (Wrapper("toy_wrappers:Scaled", {"scale": 4.0}),)
    assert read(str(file)).task.wrappers == expected
    assert read_dataset(str(file), Task(POINT, {}, expected)).warnings == ()
    (warning,) = read_dataset(str(file), Task(POINT)).warnings
    assert warning == f"its data are of {POINT} with {SCALED}, but it is evaluated on {POINT}"
    run = td7.train("td3+bc", dataset=str(file), steps=2, quiet=True, out=str(tmp_path / "run"))
    assert recorded(run.path) == recorded(wrapped)


def test_a_dataset_does_not_choose_modules_of_wrappers(
    tmp_path: Path, failing_command: FailingCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataset_files import fields_of
    from td7.datasets.hdf5 import write_hdf5

    wrappers = json.dumps([{"name": "stranger:Wrapper", "kwargs": {}}])
    attributes = {"task": POINT, "kind": "medium", "task_wrappers": wrappers}
    write_hdf5(tmp_path / "a.hdf5", **fields_of("..T"), attributes=attributes)
    message = failing_command("train", "iql", "--dataset", tmp_path / "a.hdf5")
    assert "with a wrapper of the module 'stranger', which is imported only if you give" in message


def test_a_report_never_pools_wrapped_tasks_with_others(tmp_path: Path, wrapped: Path) -> None:
    train(tmp_path / "plain", wrapper=())
    shutil.copytree(wrapped, tmp_path / "wrapped")
    assert len({r.place for r in read_report([tmp_path]).results}) == 2

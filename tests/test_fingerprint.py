"""A run notices that its task has changed, and says where a missing module was."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import td7
import toys
from commands import TINY, FailingCommand
from fake_runs import pair, write_config, write_run
from folders import SMALL, words
from td7.cli.main import main
from td7.errors import InputError
from td7.reports.report import read_report
from td7.rollouts import fingerprint as taking
from td7.rollouts.fingerprint import probe, take
from td7.rollouts.registration import describe, described
from td7.runs.fingerprint import change_warning, differences, read_fingerprint
from td7.runs.record import RunRecord
from td7.runs.trust import is_signed, sign
from td7.types import Fingerprint, ModuleSource, Probe, Task, Wrapper
from tiny_tasks import Register, Tiny

assert toys  # registers the tasks
POINT = Task("toys:Point-v0")
BRIEF = {**SMALL, "random_steps": 10}
REACH = """
import gymnasium, toys

class Reach(toys.Point):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, 1.0 * reward, *rest)

if "Reach-v0" not in gymnasium.registry:
    gymnasium.register("Reach-v0", entry_point=lambda: Reach(), max_episode_steps=20)
"""


def fingerprint(task: Task, *more_modules: str) -> Fingerprint:
    with described(task) as environment:
        return take(environment, more_modules)


def any_probe(task: Task) -> Probe | None:
    with described(task) as environment:
        return probe(environment)


def probe_of(task: Task) -> Probe:
    found = any_probe(task)
    assert found is not None
    return found


# -- taking one ------------------------------------------------------------------------------------


def test_the_probe_is_what_the_task_does(register: Register) -> None:
    """The toy observes the number of steps in every entry, and every step is worth 0.5."""
    assert probe_of(register()) == Probe(tuple((i, i) for i in range(6)), (0.5,) * 5)
    assert probe_of(register(ends_at=1)) == Probe(((0, 0), (1, 1)), (0.5,))
    many = gymnasium.spaces.Box(-1, 1, (4, 25), np.float64)
    assert probe_of(register(observation_space=many)).observations[2] == (2,) * 8


def test_the_probe_acts(register: Register) -> None:
    actions: list[Any] = []

    class Recorded(Tiny):
        def step(self, action: Any) -> Any:
            actions.append(action.tolist())
            return super().step(action)

    probe_of(register(Recorded))
    assert actions == 2 * [[np.cos(np.float32(i))] for i in range(5)]


def test_a_task_that_is_not_the_same_twice_has_no_probe(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Tiny):
        total = 0

        def step(self, action: Any) -> Any:
            Counting.total += 1
            observation, _, *rest = super().step(action)
            return (observation, Counting.total, *rest)

    class Failing(Tiny):
        def step(self, action: Any) -> Any:
            raise ValueError

    for cls in (Counting, Failing):
        assert any_probe(register(cls)) is None
    monkeypatch.setattr(taking, "SECONDS", -1.0)
    assert any_probe(POINT) is None  # it takes too long


def test_a_probe_does_not_depend_on_where_it_is_taken() -> None:
    """A run finds out the bits of reset seeds, and its evaluation knows them."""
    task = Task("toys:Legacy-v0", {"bits": 32})
    assert probe_of(task) == probe_of(describe(task).task)
    assert probe_of(task) != probe_of(replace(describe(task).task, seed_bits=31))


def test_the_modules_are_those_of_classes_and_names() -> None:
    scaled = Task("toys:Point-v0", wrappers=(Wrapper("toy_wrappers:Scaled"),))
    here = str(Path(__file__).parent)
    assert {name: s.folder for name, s in fingerprint(scaled).modules.items()} == {
        "toys": here,
        "toy_wrappers": here,
    }
    assert fingerprint(Task("HalfCheetah-v4")).modules == {}
    assert list(fingerprint(POINT, "fake_runs", "torch").modules) == [
        "toys",
        "fake_runs",
    ]


def test_a_module_in_a_package_is_found_from_its_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "arms").mkdir()
    for name in ("__init__", "reach"):
        (tmp_path / "arms" / f"{name}.py").write_text(REACH.replace("Reach-v0", "Arms-v0"))
    monkeypatch.syspath_prepend(tmp_path)
    for task in ("arms:Arms-v0", "arms.reach:Arms-v0"):
        found = fingerprint(Task(task)).modules
        assert {found[name].folder for name in found if name != "toys"} == {str(tmp_path)}
        assert task.partition(":")[0] in found


def test_packages_are_known_by_their_versions() -> None:
    pytest.importorskip("shimmy")
    packages = fingerprint(Task("dm_control/pendulum-swingup-v0")).packages
    assert set(packages) == {"shimmy", "dm_control"}


# -- comparing -------------------------------------------------------------------------------------

BASE = Fingerprint(
    {"reach": ModuleSource("a" * 16, "/x")},
    {"shimmy": "2.0"},
    Probe(((0.5, 1e-9), (1.0, 2e-9), (100.0, 0.0)), (1.0, 1e-3)),
)


def with_probe(observations: Any = None, rewards: Any = None) -> Fingerprint:
    probe = BASE.probe
    assert probe is not None
    return replace(BASE, probe=Probe(observations or probe.observations, rewards or probe.rewards))


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (BASE, []),
        (with_probe(((0.5001, -1e-8), (1.0, 5e-9), (100.009, 0.0)), (1.00009, 1e-3)), []),
        (
            with_probe(((0.5, 0), (1.0, 0), (101.5, 0.0))),
            ["the observation at step 2 of an episode (by 1.5)"],
        ),
        (with_probe(rewards=(1.5, 2e-3)), ["the reward at step 1 of an episode (by 0.5)"]),
        (
            with_probe(((0.5,), (1.0,), (100.0,)), (1.0,)),
            [
                f"the number of {name}s in the first steps of an episode"
                for name in ("observation", "reward")
            ],
        ),
        (
            replace(BASE, modules={"reach": ModuleSource("b" * 16, "/y")}),
            ["the source of module 'reach', but not the first steps of an episode"],
        ),
        (
            replace(BASE, packages={"shimmy": "2.1"}, probe=None),
            ["the version of shimmy (2.0 → 2.1)"],
        ),
        (replace(BASE, modules={"other": ModuleSource("b" * 16, "/y")}, packages={}), []),
        (replace(BASE, probe=None), []),
        (None, []),
    ],
)
def test_what_differs_is_named(now: Fingerprint | None, changes: list[str]) -> None:
    """Rounding is no difference: 1e-4 of the largest number of its kind, or 1e-6."""
    assert differences(BASE, now) == changes
    assert bool(change_warning(BASE, now)) == bool(changes)


def test_config_json_has_it(tmp_path: Path) -> None:
    assert read_fingerprint(json.loads(json.dumps(asdict(BASE)))) == BASE
    write_config(tmp_path)
    assert RunRecord.read(tmp_path).fingerprint is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: "x", "fingerprint must be an object, given 'x'"),
        (lambda data: data.pop("modules") and data, "it has no 'modules'"),
        (lambda data: {**data, "modules": {"a": 1}}, "a module must be an object, given 1"),
        (
            lambda data: {**data, "modules": {"a": {"sha256": 1, "folder": ""}}},
            "sha256 must be a string, given 1",
        ),
        (lambda data: {**data, "packages": {"a": 1}}, "a version must be a string, given 1"),
        (lambda data: {**data, "probe": []}, "probe must be an object, given []"),
        (
            lambda data: {**data, "probe": {"observations": [1], "rewards": []}},
            "observations must be a list, given 1",
        ),
        (
            lambda data: {**data, "probe": {"observations": [], "rewards": ["much"]}},
            "rewards takes a number, given 'much'",
        ),
    ],
)
def test_a_damaged_one_is_one_line(
    change: Callable[[Any], Any], reason: str, tmp_path: Path
) -> None:
    write_config(tmp_path, fingerprint=change(json.loads(json.dumps(asdict(BASE)))))
    with pytest.raises(InputError) as caught:
        RunRecord.read(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'} is damaged: {reason}"


def test_a_report_names_it(tmp_path: Path) -> None:
    both, other = pair(1000), with_probe(rewards=(2.0, 1e-3))
    write_run(tmp_path / "a", {0: both[0]}, also={"fingerprint": asdict(BASE)})
    write_run(tmp_path / "b", {1: both[1]}, also={"fingerprint": asdict(other)})
    report = read_report([tmp_path])
    assert [result.seeds for result in report.results] == [(0, 1)]
    (note,) = (note for note in report.notes if "pools" in note)
    assert note.endswith("which differ: the reward at step 1 of an episode (by 1)")


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reaching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a task's module, and of a run of the task."""
    folder = tmp_path_factory.mktemp("reach")
    (folder / "reach.py").write_text(REACH)
    before = Path.cwd()
    os.chdir(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        options = [*TINY, "--out", "run", "--set", *words(BRIEF)]
        assert main(["train", "--env", "reach:Reach-v0", *options]) == 0
    os.chdir(before)
    yield folder
    forget()


def forget() -> None:
    sys.modules.pop("reach", None)
    gymnasium.registry.pop("Reach-v0", None)


@pytest.fixture
def change(reaching: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A function that replaces text of the module, which Python finds."""
    monkeypatch.syspath_prepend(reaching)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = reaching / "reach.py"

    def change(old: str, new: str) -> None:
        assert old in REACH
        module.write_text(REACH.replace(old, new))
        forget()

    yield change
    module.write_text(REACH)
    forget()


SOURCE = "changed since the run began: the source of module 'reach'"
REWARD = "the reward at step 5 of an episode (by 0.32)"
END = "; results may not be comparable"


def test_evaluate_notices_a_changed_task(
    reaching: Path, change: Callable[[str, str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """In one line; it does not refuse."""
    run = reaching / "run"
    for old, new, line in (
        ("1.0 *", "1.0 *", ""),
        ("1.0 *", "2.0 *", f"{run}: {SOURCE}, {REWARD}{END}\n"),
        ("Reach", "Reach", ""),
        (
            "import gymnasium, toys",
            "import toys, gymnasium",
            f"{run}: {SOURCE}, but not the first steps of an episode{END}\n",
        ),
    ):
        change(old, new)
        assert main(["evaluate", str(run), "--episodes", "1"]) == 0
        assert capfd.readouterr().err == line
    with pytest.warns(UserWarning, match="changed since the run began") as warned:
        td7.evaluate(run, episodes=1)
    assert [warning.filename for warning in warned] == [__file__]


def test_resume_notices_a_changed_task(
    tmp_path: Path,
    reaching: Path,
    change: Callable[[str, str], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The source at once, and what the task does with the first evaluation, once."""
    change("1.0 *", "1.0 *")
    run = tmp_path / "run"
    options = [*TINY, "--seeds", "0,1", "--set", *words(BRIEF)]
    assert main(["train", "--env", "reach:Reach-v0", "--out", str(run), *options]) == 0
    recorded = RunRecord.read(run).fingerprint
    assert recorded == RunRecord.read(reaching / "run").fingerprint
    assert recorded is not None
    assert recorded.probe is not None
    assert is_signed(run)
    capfd.readouterr()
    change("1.0 *", "2.0 *")
    assert main(["resume", str(run), "--quiet", "--steps", "60"]) == 0
    assert sorted(capfd.readouterr().err.splitlines()) == [
        f"changed since the run began: {REWARD}{END}",
        f"{SOURCE}{END}",
    ]
    assert RunRecord.read(run).fingerprint == recorded


def test_other_arguments_are_no_change_of_the_task(
    reaching: Path, change: Callable[[str, str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    change("lambda: Reach()", "lambda at=3: Reach(at=at)")
    assert main(["evaluate", str(reaching / "run"), "--episodes=1", "--env-kwargs", "at=4"]) == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert "the source of module 'reach'; results" in line  # as it really has changed


def test_a_run_without_a_fingerprint_is_silent(
    reaching: Path,
    change: Callable[[str, str], None],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    change("1.0 *", "2.0 *")
    run = tmp_path / "run"
    shutil.copytree(reaching / "run", run)
    config = json.loads((run / "config.json").read_text())
    del config["fingerprint"]
    (run / "config.json").write_text(json.dumps(config))
    sign(run)
    (run / "finished.json").unlink()
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    assert main(["resume", str(run), "--quiet"]) == 0
    assert capfd.readouterr().err == ""


def test_a_missing_module_is_looked_for_where_it_was(
    reaching: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    forget()
    run, out = str(reaching / "run"), str(tmp_path / "x.hdf5")
    record = ["dataset", "record", "--run", run, "--kind", "expert", "--rows", "4", "--out", out]
    for command in (["evaluate", run], ["resume", run], record):
        assert main(command) == 2
        message = capfd.readouterr().err.splitlines()[-1]
        assert message.startswith("td7: task 'reach:Reach-v0': module 'reach' cannot be imported")
        assert message.endswith(
            f"when the run began it was in {reaching}: change to that folder, or set "
            f"PYTHONPATH={reaching}"
        )


def test_so_are_the_modules_of_an_algorithm_and_of_a_task_without_one(
    reaching: Path, tmp_path: Path, failing_command: FailingCommand
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reaching / "run", run)
    config = json.loads((run / "config.json").read_text())
    config["fingerprint"]["modules"]["ddpgx"] = {"sha256": "0", "folder": "/x y"}

    def rewrite(**changes: Any) -> None:
        (run / "config.json").write_text(json.dumps({**config, **changes}))
        sign(run)

    rewrite(algorithm="ddpgx:ddpg", task={**config["task"], "id": "toys:Point-v0"})
    message = failing_command("resume", run)
    assert message.startswith("algorithm 'ddpgx:ddpg': module 'ddpgx' cannot be imported")
    assert message.endswith("it was in /x y: change to that folder, or set PYTHONPATH='/x y'")
    forget()
    rewrite(task={**config["task"], "id": "Reach-v0"})
    message = failing_command("resume", run)
    assert message.endswith(
        f"; when the run began it used the module 'reach' in {reaching}; for your own task, "
        "use --import MODULE, which registers it"
    )

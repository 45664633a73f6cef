"""Where hyperparameters vary, a member that diverges ends, and the others train on as before."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import td7
import toys
from folders import SMALL, TABLES, all_contents, differences, newest, rows, words
from offline_runs import BOUNDS, TINY, point_fields, save
from point_tasks import NETWORK, POINT, episode, evaluation
from td7.cli.main import main
from td7.engine.cuda import Fetch
from td7.engine.engine import Engine
from td7.errors import ActionFault, NoMemberLeftError, RunError
from td7.rollouts import episodes
from td7.rollouts.episodes import (
    AnyTask,
    DivergedResult,
    EpisodeTask,
    EvaluationTask,
    Player,
    TaskResult,
    play,
)
from td7.rollouts.vector import SerialVectorEnvironment
from td7.runs.members import Members
from td7.runs.policies import load
from td7.runs.snapshots import process_folders
from td7.training.member import Origin
from td7.training.progress import QuietProgress
from td7.training.resolve import train_options
from td7.training.start import Stack, start
from td7.types import AnyFloat
from test_stacking import engine_of

assert toys  # registers the tasks
HEALTHY, OTHER, WILD = 1e-3, 3e-4, 1e30
STEPS = 80
CHECKPOINTED: Mapping[str, Any] = {"algorithm": "td7", "env": "toys:Point-v0", "set": SMALL}
LOCKSTEP: Mapping[str, Any] = {
    **CHECKPOINTED,
    "algorithm": "td3",
    "set": {name: value for name, value in SMALL.items() if "embedding" not in name},
}
OFFLINE: Mapping[str, Any] = {"algorithm": "iql", "set": TINY["iql"]}
SETTINGS = {"checkpointed": CHECKPOINTED, "lockstep": LOCKSTEP, "offline": OFFLINE}
each_loop = pytest.mark.parametrize("loop", SETTINGS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("data") / "point.hdf5", point_fields(), **BOUNDS)


def options(loop: str, data: Path, **others: Any) -> dict[str, Any]:
    values = {
        "steps": STEPS,
        "evaluate_every": 10,
        "evaluation_episodes": 1,
        "metrics_every": 7,
        "keep_policies": 20,
        "snapshot_every": 0,
        "device": "cpu",
        "quiet": True,
        **SETTINGS[loop],
        **({"dataset": str(data)} if loop == "offline" else {}),
    }
    return {**values, **others}


def train(
    out: Path,
    loop: str,
    data: Path,
    rates: Sequence[float],
    seeds: Sequence[int] = (2,),
    **rest: Any,
) -> Path:
    """A run of members with these learning rates, with each of the seeds."""
    varied = [(rate, seed) for rate in rates for seed in seeds]
    return stacked(out, loop, data, varied, **rest)


def stacked(
    out: Path, loop: str, data: Path, pairs: Sequence[tuple[float, int]], **rest: Any
) -> Path:
    rates, seeds = zip(*pairs, strict=True)
    members = Members(seeds, {"learning_rate": rates}, tuple(range(len(pairs))))
    origins = rest.pop("origins", ())
    chosen = train_options(options(loop, data, out=str(out), **rest))
    return start(chosen, stack=Stack(members, origins=origins))


def of_member(run: Path, id: int) -> dict[str, Any]:
    """What a member has in the tables, in policy/ and in the newest snapshot of its process."""
    found: dict[str, Any] = {
        name: [line for line in (run / name).read_text().splitlines() if line.startswith(f"{id},")]
        for name in TABLES
    }
    found["policy"] = load(run, member=id).flat
    for folder in process_folders(run):
        record = json.loads((newest(folder) / "members.json").read_text())
        if id not in record["seeds"]:
            continue
        m = record["seeds"].index(id)
        found["record"] = record["members"][m], record["updates"][m]
        found["rows"] = rows(folder, id)
        tensors = safetensors.torch.load_file(newest(folder) / "state.safetensors")
        for name, tensor in tensors.items():
            if name.startswith(("learner.", "engine.")):
                found[name] = tensor[m].numpy()
            elif name.endswith(f".{id}"):
                found[name] = tensor.numpy()
    return found


def check_same(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Bit for bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert actual[name].tobytes() == value.tobytes(), name
        else:
            assert actual[name] == value, name


def steps_of(run: Path, table: str, id: int) -> list[int]:
    """The steps in a member's rows."""
    return [int(line.split(",")[1]) for line in of_member(run, id)[table]]


def kept(run: Path, *steps: int) -> list[Path]:
    return [run / "policies" / str(step) for step in steps]


@each_loop
def test_the_others_are_as_with_a_healthy_neighbour(
    loop: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = train(tmp_path / "sick", loop, data, (WILD, HEALTHY), (2, 5))
    (*warnings,) = capsys.readouterr().err.splitlines()
    healthy = train(tmp_path / "healthy", loop, data, (OTHER, HEALTHY), (2, 5))
    assert len(warnings) == 2
    for m, (line, seed) in enumerate(zip(sorted(warnings), (2, 5), strict=True)):
        assert f"member {m} (seed {seed}), by update " in line
        assert line.endswith(" is not finite; it ends, the others continue")
    for id in (2, 3):
        check_same(of_member(sick, id), of_member(healthy, id))
        assert steps_of(sick, "evaluations.csv", id)[-1] == STEPS
    assert json.loads((sick / "finished.json").read_text())["steps"] == STEPS


@each_loop
def test_what_remains_of_a_member_that_has_ended(loop: str, data: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", loop, data, (WILD, HEALTHY))
    member = of_member(run, 0)
    record, updates = member["record"]
    assert record["fault"].endswith("is not finite")
    assert record["owed"] == 0
    assert "fault" not in of_member(run, 1)["record"][0]
    assert 0 < updates < of_member(run, 1)["record"][1]
    assert np.isfinite(member["replay.priorities.0"]).all()
    assert np.isfinite(member["replay.max_priority.0"])
    for table in TABLES:  # rows of a healthy time
        assert "nan" not in (run / table).read_text()
        assert len(member[table]) < len(of_member(run, 1)[table]) or not of_member(run, 1)[table]
    policy, last = load(run, member=0), steps_of(run, "evaluations.csv", 0)[-1]
    assert np.isfinite(policy.flat).all()
    np.testing.assert_array_equal(policy.flat, member["checkpoint.0"])
    if loop == "checkpointed":
        assert policy.steps == record["steps"]
    else:
        assert policy.steps == last


@each_loop
def test_a_run_that_is_extended_equals_a_longer_one(loop: str, data: Path, tmp_path: Path) -> None:
    """Members that have ended stay so."""
    short = train(tmp_path / "short", loop, data, (HEALTHY, WILD), steps=60)
    long = train(tmp_path / "long", loop, data, (HEALTHY, WILD), steps=100)
    assert of_member(short, 1)["record"][0]["fault"]
    td7.resume(short, steps=100, quiet=True)
    assert differences(all_contents(short), all_contents(long)) == []


def test_units_of_updates_do_not_wait_for_members_that_have_ended(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they ended now or before the run was resumed."""
    for retired, updates in (([], 10), ([1], 20)):
        engine = engine_of((0, 1))
        engine.units = [20, 10]
        for member in retired:
            engine.retire(member)
        engine.advance([20, 0])
        assert engine.updates == [updates, 0]
    run = train(tmp_path / "run", "checkpointed", data, (HEALTHY, WILD), steps=60)
    ended: list[int] = []
    monkeypatch.setattr(Engine, "retire", lambda _, member: ended.append(member))
    td7.resume(run, steps=80, quiet=True)
    assert ended == [1]


class Stop:
    """A listener that ends the run with a row of a member from this step on."""

    def __init__(self, member: int, step: int) -> None:
        self._key = member, step

    def __call__(self, table: str, new: Sequence[Mapping[str, Any]]) -> None:
        member, step = self._key
        if any(row["member"] == member and row["step"] >= step for row in new):
            raise KeyboardInterrupt


@each_loop
@pytest.mark.parametrize("step", [20, 80])
def test_a_run_that_is_stopped_continues_as_if_it_were_not(
    loop: str, step: int, data: Path, tmp_path: Path
) -> None:
    """Before and after a member has ended."""
    vary = {"learning_rate": [HEALTHY, WILD]}
    chosen = options(loop, data, seeds=[2], vary=vary, steps=100)
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    td7.train(out=str(whole), **chosen)
    with pytest.raises(KeyboardInterrupt):
        td7.train(out=str(stopped), listener=Stop(0, step), **chosen)
    record = json.loads((newest(stopped) / "members.json").read_text())
    assert ("fault" in record["members"][1]) == (step == 80 or loop == "offline")
    td7.resume(stopped, quiet=True)
    assert differences(all_contents(stopped), all_contents(whole)) == []


def test_each_of_several_processes_ends_its_own(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All members of the second process end."""
    run = train(tmp_path / "run", "checkpointed", data, (HEALTHY, WILD), processes=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "member 1 (seed 2), by update " in line
    assert line.endswith("is not finite; it ends")
    alone = train(tmp_path / "alone", "checkpointed", data, (HEALTHY,))
    check_same(of_member(run, 0), of_member(alone, 0))
    assert (run / "finished.json").exists()
    assert np.isfinite(load(run, member=1).flat).all()
    longer = train(
        tmp_path / "longer", "checkpointed", data, (HEALTHY, WILD), processes=2, steps=100
    )
    td7.resume(run, steps=100, quiet=True)
    assert differences(all_contents(run), all_contents(longer)) == []


@pytest.mark.parametrize(
    ("loop", "processes"),
    [("checkpointed", 1), ("lockstep", 1), ("offline", 1), ("checkpointed", 2)],
)
def test_a_run_of_which_no_member_is_left_is_an_error(
    loop: str, processes: int, data: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    message = (
        r"^all members have diverged, the first of them member 0 \(seed 2\): \w+ is not finite; "
        "start a run with other values$"
    )
    with pytest.raises(NoMemberLeftError, match=message):
        train(run, loop, data, (WILD, 1e29), processes=processes)
    assert not (run / "finished.json").exists()
    before = [of_member(run, id) for id in (0, 1)]
    with pytest.raises(NoMemberLeftError, match=message):
        td7.resume(run, quiet=True)
    for id in (0, 1):
        check_same(of_member(run, id), before[id])


@each_loop
def test_where_nothing_varies_the_run_ends(loop: str, data: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS[loop]["set"], "learning_rate": WILD}
    message = r"^seed [25], .* not finite; .*there is no snapshot yet, `td7 resume .*` starts anew$"
    with pytest.raises(RunError, match=message):
        td7.train(out=str(tmp_path / "run"), **options(loop, data, seeds=[2, 5], set=settings))


def test_progress_shows_why_a_member_has_ended(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: list[Any] = []
    monkeypatch.setattr(QuietProgress, "show", lambda _, status, final=False: last.append(status()))
    train(tmp_path / "run", "checkpointed", data, (WILD, HEALTHY))
    ended, finished = last[-1].members
    assert ended.activity == "ended: encoder_loss is not finite"
    assert ended.steps < STEPS
    assert finished.activity == "finished"
    assert last[-1].fraction == 1.0
    assert last[-1].updates_left == 0
    assert last[-1].fewest_steps == STEPS


def test_the_command_exits_as_after_any_run(tmp_path: Path) -> None:
    chosen = ("td7", "--env", "toys:Point-v0", "--seeds", "2", "--steps", "60", "--device", "cpu")
    settings = ("--set", *words(SMALL), "--vary", "learning_rate=1e-3,1e30")
    run = tmp_path / "run"
    assert main(["train", *chosen, "--quiet", *settings, "--out", str(run)]) == 0
    assert main(["resume", str(run), "--quiet"]) == 0


def test_a_member_that_has_ended_stays_so_in_another_run(data: Path, tmp_path: Path) -> None:
    first = train(tmp_path / "first", "checkpointed", data, (WILD, HEALTHY))
    origins = [Origin(first, 1), Origin(first, 0)]
    again = stacked(
        tmp_path / "again",
        "checkpointed",
        data,
        [(HEALTHY, 2), (WILD, 2)],
        steps=100,
        origins=origins,
    )
    before, after = of_member(first, 0), of_member(again, 1)
    assert after["record"][0] == {**before["record"][0], "seed": 1}
    assert len(after["evaluations.csv"]) == len(before["evaluations.csv"])
    assert of_member(again, 0)["record"][1] > of_member(first, 1)["record"][1]


# -- what only a policy shows ----------------------------------------------------------------------


@pytest.mark.parametrize("task", [episode(), evaluation()])
def test_a_policy_that_overflows_is_a_result_only_where_members_have_numbers(task: AnyTask) -> None:
    spoilt = replace(task, policy=np.full_like(task.policy, 1e30))  # products of two overflow
    player = Player(POINT, NETWORK)
    numbered = replace(spoilt, number=3)
    assert player.run(numbered) == DivergedResult(numbered)
    with pytest.raises(ActionFault, match=r"received an action that is not finite$"):
        player.run(spoilt)
    player.close()


@pytest.mark.parametrize("kind", [EpisodeTask, EvaluationTask])
def test_a_member_whose_tasks_diverge_ends(
    kind: type, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task = Player.run

    def run(player: Player, task: AnyTask) -> TaskResult:
        index = task.step // 20 if isinstance(task, EvaluationTask) else task.episode
        is_spoilt = isinstance(task, kind) and task.number == 0 and index >= 2
        return DivergedResult(task) if is_spoilt else run_task(player, task)

    healthy = train(tmp_path / "healthy", "checkpointed", data, (OTHER, HEALTHY))
    monkeypatch.setattr(Player, "run", run)
    sick = train(tmp_path / "sick", "checkpointed", data, (OTHER, HEALTHY))
    assert of_member(sick, 0)["record"][0]["fault"] == "an action is not finite"
    assert max(steps_of(sick, "evaluations.csv", 0)) < 60
    assert max(steps_of(sick, "episodes.csv", 0)) == 40  # and none that had begun
    check_same(of_member(sick, 1), of_member(healthy, 1))


def test_no_environment_gets_an_action_that_is_not_finite(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From time step 65 on a member's actions are NaN; its losses are finite."""
    step, advance = Engine.step, SerialVectorEnvironment.step
    taken: list[AnyFloat] = []

    def spoil(engine: Engine, *arguments: Any) -> AnyFloat:
        actions = step(engine, *arguments)
        if len(taken) >= 65:
            actions[0] = np.nan
        return actions

    def take(environment: Any, actions: AnyFloat, *rest: Any) -> Any:
        taken.append(actions)
        return advance(environment, actions, *rest)

    healthy = train(tmp_path / "healthy", "lockstep", data, (OTHER, HEALTHY))
    monkeypatch.setattr(Engine, "step", spoil)
    monkeypatch.setattr(SerialVectorEnvironment, "step", take)
    sick = train(tmp_path / "sick", "lockstep", data, (OTHER, HEALTHY))
    assert len(taken) == STEPS
    assert np.isfinite(taken).all()
    assert all((actions[0] == 0).all() == (i >= 65) for i, actions in enumerate(taken))
    assert of_member(sick, 0)["record"][0]["fault"] == "an action is not finite"
    assert max(steps_of(sick, "episodes.csv", 0)) <= 65
    assert steps_of(sick, "evaluations.csv", 0)[-1] == 60
    last, at_60, at_0 = (load(each, member=0) for each in (sick, *kept(sick, 60, 0)))
    assert last.steps == 60
    assert (last.flat == at_60.flat).all()
    assert (last.flat != at_0.flat).any()
    check_same(of_member(sick, 1), of_member(healthy, 1))


@each_loop
def test_a_policy_that_is_not_finite_acts_no_more(
    loop: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the losses of the last update are finite."""
    fetch = Engine.fetch_policy

    def spoil(engine: Engine, member: int) -> Fetch:
        is_spoilt = member == 0 and engine.updates[0] >= 8
        fetched = fetch(engine, member)
        return Fetch(torch.full((1,), torch.inf)) if is_spoilt else fetched

    played: list[int] = []

    def play_and_note(environment: Any, network: Any, task: EpisodeTask) -> Any:
        played.append(task.member)
        return play(environment, network, task)

    monkeypatch.setattr(Engine, "fetch_policy", spoil)
    monkeypatch.setattr(episodes, "play", play_and_note)
    run = train(tmp_path / "run", loop, data, (OTHER, HEALTHY))
    if loop == "checkpointed":
        assert played.count(0) == len(steps_of(run, "episodes.csv", 0))
    assert of_member(run, 0)["record"][0]["fault"] == "the policy is not finite"
    assert np.isfinite(load(run, member=0).flat).all()
    assert steps_of(run, "evaluations.csv", 1)[-1] == STEPS

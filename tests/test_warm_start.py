"""`--start-from RUN`: what a run takes over from another one, and what it refuses."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file, save_file
from torch import Tensor

import td7
import toys
from commands import FailingCommand, all_files
from fake_runs import pair, write_config, write_run
from folders import SMALL, contents, differences, newest, results, rows
from offline_runs import BOUNDS, TINY, point_fields, save
from offline_runs import train as train_offline
from snapshot_store import edit_manifest, edit_members
from td7.algorithms import ALGORITHMS
from td7.algorithms.iql import IQL, IQLConfig
from td7.algorithms.normalisation import LAYER
from td7.errors import InputError, RunError
from td7.files import FileDigest
from td7.networks.description import Network
from td7.networks.numpy_actor import Actor
from td7.networks.optimiser import MOMENTS
from td7.options import TrainOptions, to_words
from td7.reports.report import read_report
from td7.rollouts.registration import describe
from td7.runs.record import RunRecord, StartRecord
from td7.runs.trust import SIGNATURE
from td7.training.config import RunConfig
from td7.training.parts import build_learner
from td7.training.warm_start import SeedState, WarmStart
from td7.types import RowLayout, Task
from test_fields_matter import BASE, MATTERS

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
POINT = "toys:Point-v0"
SETTINGS: Mapping[str, Mapping[str, Any]] = {  # one loop has checkpoints, the other has none
    "td7": {**SMALL, "early_assessment_episodes": 1},
    "td3": {name: SMALL[name] for name in ("random_steps", "hidden_dim", "batch_size")},
}
STATES = np.random.default_rng(0).standard_normal((20, 2))
LAYOUT, CPU = RowLayout(2, 2), torch.device("cpu")


def train(path: Path, name: str = "td7", **options: Any) -> Path:
    defaults: dict[str, Any] = {
        "env": POINT,
        "steps": 80,
        "seeds": (0, 1),
        "set": SETTINGS[name],
        "evaluate_every": 30,
        "evaluation_episodes": 2,
        "metrics_every": 10,
        "quiet": True,
    }
    return td7.train(name, out=str(path), **{**defaults, **options}).path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Runs to start from, which nobody changes."""
    folder = tmp_path_factory.mktemp("sources")
    data = save(folder / "point.hdf5", point_fields(), **BOUNDS)
    offline: dict[str, Any] = {"seeds": (0, 1), "precision": "auto", "steps": 30}
    offline["set"] = {name: SMALL[name] for name in TINY["td7"]}
    return {
        "td7": train(folder / "td7"),
        "td3": td7.resume(train(folder / "td3", "td3", steps=40), steps=80, quiet=True).path,
        "one seed": train(folder / "one", "td3", seeds=5, steps=60),
        "offline": train_offline("td7", folder / "offline", data, **offline).path,
        "normalised": train(folder / "normalised", "td3", normalise_observations=True),
    }


@pytest.fixture
def copy(sources: Mapping[str, Path], tmp_path: Path) -> Path:
    """A copy of a run to start from, which a test may change."""
    return Path(shutil.copytree(sources["td3"], tmp_path / "copy"))


def first_snapshot(run: Path) -> Path:
    return run / "snapshot" / "000001"


def learner_of(snapshot: Path) -> dict[str, Tensor]:
    tensors = load_file(snapshot / "state.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith("learner.")}


def members_of(snapshot: Path) -> dict[str, Any]:
    members: dict[str, Any] = json.loads((snapshot / "members.json").read_text())
    return members


# -- what carries over -----------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "name"), [("td7", "td7"), ("td3", "td3"), ("offline", "td7")])
def test_the_first_policy_is_the_last_one_of_the_other_run(
    source: str, name: str, sources: Mapping[str, Path], tmp_path: Path
) -> None:
    """And so is the whole learner, while counters, replay and best return are new."""
    run = train(tmp_path / "run", name, start_from=sources[source], keep_policies=30)
    for seed in (0, 1):
        before = td7.load(sources[source], seed)
        assert_array_equal(
            td7.load(run / "policies" / "0", seed).predict(STATES)[0], before.predict(STATES)[0]
        )
    then, now = learner_of(newest(sources[source])), learner_of(first_snapshot(run))
    assert then.keys() == now.keys()
    after = learner_of(newest(run))["learner.actor.parameters"]
    assert (after != now["learner.actor.parameters"]).any(dim=1).all()  # it trains
    for tensor, expected in now.items():
        if not tensor.endswith(".step_size"):
            assert torch.equal(then[tensor], expected), tensor
        assert_allclose(then[tensor], expected, rtol=1e-6)
    members = members_of(first_snapshot(run))
    assert (members["updates"], members["rows_added"]) == ([0, 0], [0, 0])
    assert [m["steps"] for m in members["members"]] == [0, 0]
    assert [m["assessment"]["best"] for m in members["members"]] == [-np.inf] * 2


def test_a_run_of_one_seed_starts_any(sources: Mapping[str, Path], tmp_path: Path) -> None:
    run = train(tmp_path / "run", "td3", seeds=(3, 5), steps=30, start_from=sources["one seed"])
    first = learner_of(first_snapshot(run))["learner.actor.parameters"]
    assert torch.equal(first[0], first[1])
    record = RunRecord.read(run).start_from
    assert record is not None
    assert (record.seeds, record.steps) == ((5, 5), (60, 60))


def test_seeds_begin_with_themselves(sources: Mapping[str, Path], tmp_path: Path) -> None:
    run = train(tmp_path / "run", "td3", seeds=1, steps=30, start_from=sources["td3"])
    name = "learner.actor.parameters"
    then, now = learner_of(newest(sources["td3"])), learner_of(first_snapshot(run))
    assert torch.equal(now[name][0], then[name][1])


@pytest.mark.parametrize("name", ["td7", "td3"])
def test_its_policy_acts_before_training(
    name: str, sources: Mapping[str, Path], tmp_path: Path
) -> None:
    """Without noise, every action before the first update is the policy's."""
    settings = {**SETTINGS[name], "exploration_noise": 0.0}
    run = train(tmp_path / "run", name, steps=60, start_from=sources[name], set=settings)
    learner = build_learner(
        RunConfig.from_record(RunRecord.read(run)),
        describe(Task(POINT)),
        CPU,
        torch.float32,
    )
    for tensor_name, tensor in learner.state().items():
        tensor.copy_(learner_of(first_snapshot(run))[f"learner.{tensor_name}"])
    policy = Actor(learner.policy_network, learner.policies()[1].numpy())
    parts = LAYOUT.split(rows(run, 1)[:20])
    assert_allclose(parts.action, policy(parts.state), atol=1e-6)
    assert td7.Run(run).metrics["step"].min() >= 30


def test_the_learning_rate_is_its_own(sources: Mapping[str, Path], tmp_path: Path) -> None:
    settings = {**SETTINGS["td3"], "learning_rate": 3e-5}  # a tenth of the default
    run = train(tmp_path / "run", "td3", steps=30, start_from=sources["td3"], set=settings)
    name = "learner.actor.step_size"
    then, now = learner_of(newest(sources["td3"])), learner_of(first_snapshot(run))
    assert_allclose(10 * now[name], then[name], rtol=1e-6)


def test_a_schedule_begins_anew() -> None:
    """IQL's actor has a learning rate that falls to 0, and so its optimiser is new."""
    config, spec = IQLConfig(hidden_dim=8), describe(Task(POINT))
    trained, new, fresh = (IQL(config, spec, [s], CPU, torch.float32) for s in (0, 1, 1))
    for tensor in trained.state().values():
        tensor.fill_(0.5)
    arrays = {name: tensor[0].numpy() for name, tensor in trained.state().items()}
    record = StartRecord("x", "", "", None, (0,), (9,))
    WarmStart(record, {1: SeedState(9, arrays, None)}).fill(new, [1])
    for name, tensor in new.state().items():
        if name in {f"actor.{moment}" for moment in MOMENTS}:
            assert torch.equal(tensor, fresh.state()[name])
        elif not name.endswith(".step_size"):
            assert (tensor == 0.5).all()


def test_statistics_of_observations_carry_over(sources: Mapping[str, Path], tmp_path: Path) -> None:
    """The new rows add to them."""
    options: dict[str, Any] = {"start_from": sources["normalised"], "normalise_observations": True}
    run = train(tmp_path / "run", "td3", steps=50, **options)
    count = "learner.observations.count"
    then, now = learner_of(newest(sources["normalised"])), learner_of(first_snapshot(run))
    assert torch.equal(then[count], now[count])
    assert torch.equal(learner_of(newest(run))[count], then[count] + 50)
    assert (
        LAYER
        in json.loads((run / "policy" / "policy.json").read_text())["network"]["layers"][0][
            "output"
        ]
    )


# -- exactness -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "name"), [("td3", "td3"), ("offline", "td7")])
def test_it_resumes_exactly_without_the_other_run(
    source: str, name: str, sources: Mapping[str, Path], tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(sources[source], tmp_path / "moved"))
    whole = train(tmp_path / "whole", name, start_from=moved)
    half = train(tmp_path / "half", name, start_from=moved, steps=40)
    shutil.rmtree(moved)
    td7.resume(half, steps=80, quiet=True)
    assert differences(contents(whole), contents(half)) == []
    # Killed before its first snapshot, it begins anew.
    shutil.copytree(sources[source], moved)
    shutil.rmtree(half / "snapshot")
    (half / "finished.json").unlink()
    td7.resume(half, quiet=True)
    assert differences(contents(whole), contents(half)) == []


def test_it_needs_the_other_run_until_its_first_snapshot(
    copy: Path, tmp_path: Path, failing_command: FailingCommand
) -> None:
    run = train(tmp_path / "run", "td3", steps=30, start_from=copy)
    shutil.rmtree(run / "snapshot")
    (run / "finished.json").unlink()
    problem = f"{run} has no snapshot yet and begins with the learner of {copy}"
    td7.resume(copy, steps=100, quiet=True)
    message = failing_command("resume", run)
    assert message == f"{problem}, which has been trained further since: start a new run"
    shutil.rmtree(copy)
    assert failing_command("resume", run) == f"{problem}: {copy} does not exist"
    (run / SIGNATURE).unlink()
    assert failing_command("resume", run).startswith(f"{problem}, but it is not signed")


def test_processes_change_nothing(sources: Mapping[str, Path], tmp_path: Path) -> None:
    """Neither those of the run nor those of the one that it starts from."""
    options = {"start_from": sources["td3"], "steps": 50}
    one = train(tmp_path / "one", "td3", **options)
    two = train(tmp_path / "two", "td3", **options, processes=2)
    assert results(one) == results(two)
    fingerprints = [RunRecord.read(run).fingerprint for run in (one, two)]
    assert fingerprints[0] == fingerprints[1]
    assert fingerprints[0] is not None
    assert fingerprints[0].probe is not None
    shutil.rmtree(two / "snapshot" / "process-1" / "snapshot")  # killed before its first one
    (two / "finished.json").unlink()
    td7.resume(two, quiet=True)
    assert results(one) == results(two)
    after = [
        train(run.with_name(f"after-{run.name}"), "td3", steps=20, start_from=run)
        for run in (one, two)
    ]
    assert results(after[0]) == results(after[1])
    first, second = (RunRecord.read(run).data["start_from"] for run in after)
    assert first["sha256"] == second["sha256"]


def test_a_run_without_it_records_none(sources: Mapping[str, Path]) -> None:
    record = RunRecord.read(sources["td3"])
    assert record.start_from is None
    assert record.data["start_from"] is None
    assert "start_from" in members_of(newest(sources["td3"]))["config"]


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            "td7",
            {},
            "trained 'td7', given 'td3': a run starts from one of the same algorithm",
        ),
        (
            "td3",
            {"seeds": (1, 4)},
            "has no seed 4 to start from; allowed: 0, 1 (a run with one seed starts all)",
        ),
        (
            "td3",
            {"set": {**SETTINGS["td3"], "hidden_dim": 32, "critic_activation": "elu"}},
            "was trained with hidden_dim=16 critic_activation=relu, given hidden_dim=32 "
            "critic_activation=elu: its networks do not fit others",
        ),
        (
            "td3",
            {"env": "Pendulum-v1"},
            "has states of 2 numbers, but Pendulum-v1 has states of 3: a run starts from one with "
            "the same sizes",
        ),
        (
            "td3",
            {"normalise_observations": True},
            "does not normalise observations, and its networks fit no run with "
            "normalise_observations",
        ),
        (
            "normalised",
            {},
            "normalises observations, and its networks fit only a run with normalise_observations",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    source: str,
    options: dict[str, Any],
    message: str,
    sources: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError) as caught:
        train(tmp_path / "run", "td3", start_from=sources[source], **options)
    assert str(caught.value) == f"{sources[source]} {message}"
    assert all_files(tmp_path) == {}


def meaning(algorithm: str, settings: Mapping[str, Any]) -> tuple[object, ...]:
    """What weights mean to a learner with these hyperparameters: shapes, networks, a policy."""
    chosen = ALGORITHMS[algorithm]
    known = chosen.config.__dataclass_fields__
    config = chosen.config(**{name: v for name, v in {**BASE, **settings}.items() if name in known})
    learner = chosen.learner(config, describe(Task(POINT)), [0], CPU, torch.float32)
    state = learner.state()
    for name, tensor in state.items():
        tensor.fill_(0.01 * len(name))
    networks = [value for value in vars(learner).values() if isinstance(value, Network)]
    shapes = {name: tensor.shape for name, tensor in state.items()}
    return shapes, networks, learner.policies().tolist()


@pytest.mark.parametrize("algorithm", MATTERS)
def test_hyperparameters_that_make_the_networks_are_structural(algorithm: str) -> None:
    fields = ALGORITHMS[algorithm].config.__dataclass_fields__
    for name, (value, _, *more) in MATTERS[algorithm].items():
        before = more[0] if more else {}
        if meaning(algorithm, before) != meaning(algorithm, {**before, name: value}):
            assert fields[name].metadata["structural"], name


def test_what_is_no_run_is_one_line(
    copy: Path, tmp_path: Path, failing_command: FailingCommand
) -> None:
    command = ("train", "td3", "--env", POINT, "--out", tmp_path / "run")
    assert (
        failing_command(*command, "--start-from", tmp_path / "no")
        == f"{tmp_path / 'no'} does not exist"
    )
    assert failing_command(*command, "--pretrained", copy).startswith(
        "unknown option '--pretrained'; did you mean '--start-from'?"
    )
    with pytest.raises(InputError, match="start_from takes the folder of a run, given 5"):
        train(tmp_path / "run", "td3", start_from=5)
    shutil.rmtree(copy / "snapshot")
    message = f"{copy} has no snapshot, which holds the learner: it was exported, or its snapshots "
    message += "were deleted; a run can only start from one that can be resumed"
    with pytest.raises(InputError) as caught:
        train(tmp_path / "run", "td3", start_from=copy)
    assert str(caught.value) == message
    assert not (tmp_path / "run").exists()


def spoil(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    """Change the tensors of a snapshot, and the hash of their file."""

    def spoil(snapshot: Path) -> None:
        file = snapshot / "state.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)
        name, digest = f"{snapshot.name}/{file.name}", FileDigest.of(file)._asdict()
        edit_manifest(snapshot, lambda m: m["files"].update({name: digest}))

    return spoil


def members(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda snapshot: edit_members(snapshot, change)


ACTOR = "learner.actor.parameters"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda snapshot: (snapshot / "state.safetensors").write_bytes(b""), "has 0 bytes"),
        (spoil(lambda t: t[ACTOR].fill_(np.nan)), f"{ACTOR!r} does not hold numbers"),
        (spoil(lambda t: t.update({ACTOR: t[ACTOR].bfloat16()})), "does not hold numbers"),
        (members(lambda m: m.pop("seeds")), "'seeds' are not those of the run"),
        (members(lambda m: m.update(seeds=[0, -1])), "'seeds' are not those of the run"),
        (members(lambda m: m["members"].pop()), "'members' does not have the seeds"),
        (members(lambda m: m["members"][0].update(steps=-1)), "does not have the steps"),
        (members(lambda m: m.update(members=[1, 2])), "does not have the steps"),
    ],
)
def test_a_damaged_snapshot_gives_way_to_the_one_before(
    damage: Callable[[Path], None],
    problem: str,
    copy: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.rmtree(copy / "snapshot" / "replay")  # which is not needed
    damage(copy / "snapshot" / "000002")
    run = train(tmp_path / "run", "td3", steps=30, start_from=copy)
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "damaged" in line)
    assert problem in line
    assert line.startswith(f"{copy}: snapshot 000002 is damaged")
    record = RunRecord.read(run).start_from
    assert record is not None
    assert record.steps == (40, 40)
    damage(copy / "snapshot" / "000001")
    with pytest.raises(RunError, match="no usable snapshot"):
        train(tmp_path / "other", "td3", start_from=copy)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t.pop(ACTOR), f"has no {ACTOR!r}, which its algorithm needs now"),
        (
            lambda t: t.update({ACTOR: t[ACTOR][:, 1:].contiguous()}),
            f"{ACTOR!r} has the shape [2, 639], which must be [2, 640]",
        ),
    ],
)
def test_other_networks_are_one_line(
    change: Callable[[dict[str, Tensor]], object], problem: str, copy: Path, tmp_path: Path
) -> None:
    spoil(change)(newest(copy))
    with pytest.raises(InputError) as caught:
        train(tmp_path / "run", "td3", start_from=copy)
    assert problem in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_strangers_run_has_nothing_imported(copy: Path, tmp_path: Path) -> None:
    """Only the name of its algorithm counts, and its weights are numbers."""
    config = json.loads((copy / "config.json").read_text())
    config.update(algorithm="stranger:td3", task={"id": "stranger:Strange-v0", "kwargs": {}})
    (copy / "config.json").write_text(json.dumps(config))
    (copy / SIGNATURE).unlink()
    train(tmp_path / "run", "td3", steps=20, start_from=copy)
    assert "stranger" not in sys.modules


# -- what is recorded ------------------------------------------------------------------------------

RECORD = StartRecord("/runs/a", "00ff", "11ee", None, (0, 1), (500, 500))


def test_config_json_has_it(sources: Mapping[str, Path], tmp_path: Path) -> None:
    write_config(tmp_path, start_from=asdict(RECORD))
    assert RunRecord.read(tmp_path).start_from == RECORD
    run = train(tmp_path / "run", "td3", steps=30, start_from=td7.Run(sources["td3"]))
    record = RunRecord.read(run).start_from
    assert record is not None
    assert (record.source, record.seeds, record.steps) == (str(sources["td3"]), (0, 1), (80, 80))
    config = (sources["td3"] / "config.json").read_bytes()
    assert record.config_sha256 == sha256(config).hexdigest()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("source", 5, "source must be a string, given 5"),
        ("sha256", None, "sha256 must be a string, given None"),
        ("config_sha256", [], "config_sha256 must be a string, given []"),
        ("commit", 1, "commit must be a string, given 1"),
        ("seeds", 0, "seeds must be a list, given 0"),
        ("seeds", [-1], "seeds=-1 must be at least 0"),
        ("steps", ["x"], "steps takes a whole number, given 'x'"),
    ],
)
def test_a_damaged_record_is_one_line(
    name: str, value: object, reason: str, tmp_path: Path
) -> None:
    write_config(tmp_path, start_from={**asdict(RECORD), name: value})
    with pytest.raises(InputError) as caught:
        RunRecord.read(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'config.json'} is damaged: {reason}"


def test_a_report_shows_it_as_another_row(tmp_path: Path) -> None:
    """Runs that start from the same one are pooled, others are not."""
    other = {**asdict(RECORD), "sha256": "22dd"}
    starts: list[Any] = [None, asdict(RECORD), asdict(RECORD), other]
    for seed, start in enumerate(starts):
        returns = {seed: pair(1000)[0]}
        write_run(tmp_path / str(seed), returns, also={"start_from": start})
    report = read_report([tmp_path])
    assert [(r.label, r.seeds) for r in report.results] == [
        ("TD7", (0,)),
        ("TD7, warm start", (1, 2)),
    ]
    assert any("3 left out: it differs from" in note for note in report.notes)


def test_options_are_words(tmp_path: Path) -> None:
    options = TrainOptions(start_from=tmp_path)
    assert to_words(options) == ["--start-from", str(tmp_path)]

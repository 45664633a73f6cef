"""`--normalise-observations`: its statistics by hand, in every loop, resumed, and acted with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file

import td7
import toys
from engines import LAYOUT, TASK, check_close, check_time_steps, run
from engines import SMALL as TD7_SMALL
from fake_runs import pair, write_run
from folders import SMALL, all_contents, contents, differences, newest, rows
from offline_runs import BOUNDS, TINY, point_fields, save
from offline_runs import train as train_offline
from td7.algorithms import ALGORITHMS
from td7.algorithms.learner import Batch, Learner
from td7.algorithms.normalisation import LAYER, NormalisedLearner
from td7.algorithms.td3 import TD3, TD3Config
from td7.algorithms.td7 import TD7
from td7.cli.main import main
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.networks.description import Layout
from td7.networks.numpy_actor import Actor, unflatten
from td7.reports.report import read_report
from td7.runs.export import write_onnx
from td7.runs.policies import Policy
from td7.types import Float32, RowLayout

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
CPU = torch.device("cpu")
SETTINGS: Mapping[str, Mapping[str, Any]] = {  # one loop has checkpoints, the other has none
    "td7": SMALL,
    "td3": {name: SMALL[name] for name in ("random_steps", "hidden_dim", "batch_size")},
}
SHIFT = np.array([100.0, -3.0, 0.0, 5.0, 1e-6])
SCALE = 2.0 ** np.array([-7, 17, -24, 0, -27])  # powers of two, which round nothing


def train(path: Path, name: str = "td7", **options: Any) -> td7.Run:
    defaults: dict[str, Any] = {
        "env": "toys:Point-v0",
        "steps": 240,
        "seeds": (0, 1),
        "set": SETTINGS[name],
        "evaluate_every": 80,
        "evaluation_episodes": 2,
        "metrics_every": 10,
        "normalise_observations": True,
        "quiet": True,
    }
    return td7.train(name, out=str(path), **{**defaults, **options})


def td7_learner(members: int) -> NormalisedLearner:
    return NormalisedLearner(TD7(TD7_SMALL, TASK, range(members), CPU, torch.float64), 5)


def engine_of(learner: Learner, mode: str = "eager", *, scaled: bool = False) -> Engine:
    """With rows of three members, which learned nothing yet."""
    replay = Replay(LAYOUT, 300, 3, CPU, torch.float64)
    engine = Engine(learner, replay, TD7_SMALL.batch_size, range(3), mode, pytest.fail)
    for m in range(3):
        made = np.random.default_rng(m).standard_normal((200, LAYOUT.width))
        made[:, -1] = made[:, -1] > -1
        for states in (parts := LAYOUT.split(made)).state, parts.next_state:
            states[:] = states * SCALE if scaled else states
        engine.append(m, made[:150].astype(np.float32))
        engine.append(m, made[150:].astype(np.float32))
    return engine


def statistics(policy: Policy) -> tuple[Float32, Float32]:
    weights = unflatten(Layout.of(policy.network), policy.flat)
    return weights[f"{LAYER}.mean"], weights[f"{LAYER}.std"]


# -- the statistics --------------------------------------------------------------------------------


def test_statistics_are_those_of_all_rows_of_the_active_members() -> None:
    """In parts of several sizes, against NumPy; a constant observation is only centred."""
    learner = td7_learner(2)
    random = np.random.default_rng(0)
    states = random.standard_normal((2, 40, 5)) * SCALE + SHIFT
    states[:, :, 3] = 1e6 + 1e-3 * states[:, :, 3]  # what float32 rounds away
    begin = 0
    for size in (1, 2, 30, 7):
        part = torch.from_numpy(states[:, begin : begin + size])
        learner.observe(part, None)
        begin += size
    learner.observe(torch.from_numpy(states[:1, :9]), torch.tensor([False, True]))
    expected = [states[0], np.concatenate([states[1], states[0, :9]])]
    for m, seen in enumerate(expected):
        assert learner.count[m].item() == len(seen)
        assert_allclose(learner.mean[m], seen.mean(axis=0), rtol=1e-12)
        assert_allclose((learner.squares[m] / len(seen)).sqrt(), seen.std(axis=0), rtol=1e-6)
    state, nothing = torch.from_numpy(states[:, :4]), torch.zeros(2, 4, 1)
    far = Batch(state, nothing, torch.full_like(state, -1e9), nothing, nothing)
    normalised = learner._normalised_batch(far, torch.tensor([True, False]))
    std = np.where([1, 1, 1, 0, 1], expected[0].std(axis=0), 1.0)
    by_hand = (states[0, :4] - expected[0].mean(axis=0)) / std
    assert_allclose(normalised.state[0], by_hand, rtol=1e-6, atol=1e-9)
    assert_array_equal(normalised.state[1], states[1, :4].clip(-10, 10))  # it was not its turn
    assert (normalised.next_state == -10.0).all()


def test_the_scale_of_observations_does_not_matter() -> None:
    """Rows times powers of two, which without normalising train other networks."""
    learner, other = td7_learner(3), td7_learner(3)
    engine, scaled = engine_of(learner), engine_of(other, scaled=True)
    run(engine, [25, 7, 0])
    run(scaled, [25, 7, 0])
    for name, tensor in learner.learner.state().items():
        assert torch.allclose(tensor, other.learner.state()[name], rtol=1e-9, atol=1e-12), name
    plain = engine_of(td7_learner(3).learner, scaled=True)
    run(plain, [25, 7, 0])
    difference = plain.learner.state()["critic.parameters"] - learner.state()["critic.parameters"]
    assert difference.abs().max() > 1e-3


def test_stacked_members_train_as_alone() -> None:
    """Each with its own rows and statistics."""
    together = td7_learner(3)
    run(engine_of(together), [25, 7, 12])
    for m, count in enumerate((25, 7, 12)):
        learner = NormalisedLearner(TD7(TD7_SMALL, TASK, [m], CPU, torch.float64), 5)
        replay = Replay(LAYOUT, 300, 1, CPU, torch.float64)
        alone = Engine(learner, replay, TD7_SMALL.batch_size, [m])
        made = engine_of(td7_learner(3)).replay.rows[m, :200].numpy()
        alone.append(0, made[:150])
        alone.append(0, made[150:])
        run(alone, [count])
        for name, tensor in learner.state().items():
            assert torch.allclose(tensor[0], together.state()[name][m], rtol=1e-7), name


@pytest.mark.usefixtures("traced")
def test_compiled_equals_eager() -> None:
    """In units of updates and in time steps; a TD3 with updates of one kind is traced fastest."""
    config = TD3Config(hidden_dim=16, batch_size=32, actor_every=1)

    def engine(mode: str) -> Engine:
        learner = TD3(config, TASK, range(3), CPU, torch.float64)
        return engine_of(NormalisedLearner(learner, 5), mode)

    eager, compiled = engine("eager"), engine("compiled")
    run(eager, [5, 7, 12])
    run(compiled, [5, 7, 12])
    check_close(compiled, eager, 1e-9)
    check_time_steps(compiled, eager)
    assert eager.learner.state()["observations.count"].flatten().tolist() == [228] * 3


# -- policies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "td3+bc"])
def test_policies_of_every_algorithm_read_raw_observations(name: str, tmp_path: Path) -> None:
    """NumPy, PyTorch and ONNX do what the learner's own policy does on normalised ones."""
    chosen = ALGORITHMS[name]
    learner = NormalisedLearner(chosen.learner(chosen.config(), TASK, [0], CPU, torch.float32), 5)
    states = np.random.default_rng(0).standard_normal((60, 5)) * SCALE + SHIFT
    learner.observe(torch.from_numpy(states[None]), None)
    assert_array_equal(learner.policies()[0, :5], np.zeros(5))  # until the first update
    batch = Batch(*(torch.zeros(1, 4, n) for n in (5, 2, 5, 1, 1)))
    learner._normalised_batch(batch, None)
    raw = (states[:9] + 20 * SCALE * np.eye(9, 5)).astype(np.float32)  # some beyond the clip
    own = (raw - states.mean(axis=0).astype(np.float32)) / states.std(axis=0).astype(np.float32)
    inner = Actor(learner.learner.policy_network, learner.learner.policies()[0].numpy())
    expected = inner(own.clip(-10, 10))
    flat = learner.policies()[0].numpy()
    assert_allclose(Actor(learner.policy_network, flat)(raw), expected, atol=1e-4)
    explored = learner.explore(torch.from_numpy(raw[None]), torch.zeros(1, 9, 2))
    assert_allclose(explored[0], expected, atol=1e-4)
    policy = Policy(TASK, learner.policy_network, flat, learner.exploration)
    write_onnx(policy, tmp_path / "policy.onnx", {})
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (actions,) = session.run(["action"], {"observation": raw})
    assert_allclose(actions, expected, atol=1e-4)


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SETTINGS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> td7.Run:
    path = tmp_path_factory.mktemp("normalised") / "run"
    return train(path, request.param, keep_policies=80)


def test_a_run_records_it_and_acts_with_its_statistics(finished: td7.Run) -> None:
    """Those of the rows in the replay when the policy was last trained."""
    assert finished.config["normalise_observations"] is True
    name = finished.config["algorithm"]
    saved = load_file(newest(finished.path) / "state.safetensors")
    layout = RowLayout(2, 2)
    for m, seed in enumerate((0, 1)):
        states = layout.split(rows(finished.path, seed)).state
        assert saved["learner.observations.count"][m].item() == len(states)
        assert_allclose(saved["learner.observations.mean"][m], states.mean(axis=0), rtol=1e-5)
        mean, std = statistics(td7.load(finished.path, seed))
        if name == "td3":  # TD7's checkpoint is older
            assert_allclose(mean, states.mean(axis=0), rtol=1e-5)
            assert_allclose(std, states.std(axis=0), rtol=1e-5)
        # Earlier policies have earlier ones.
        kept = [statistics(td7.load(finished.path / "policies" / str(s), seed)) for s in (80, 240)]
        assert not np.array_equal(kept[0][0], kept[1][0])
    again = td7.evaluate(finished.path, episodes=2)
    last = finished.evaluations.query("step == 240")
    assert_allclose(again["return"], last["return"])


def test_a_stopped_run_resumes_exactly(finished: td7.Run, tmp_path: Path) -> None:
    """Stopped while TD7 assesses a policy over several episodes."""

    def stop(table: str, new: list[dict[str, Any]]) -> None:
        if table == "episodes" and any(row["step"] > 100 for row in new):
            raise KeyboardInterrupt

    path, name = tmp_path / "run", finished.config["algorithm"]
    with pytest.raises(KeyboardInterrupt):
        train(path, name, keep_policies=80, listener=stop)
    assert td7.Run(path).episodes["step"].max() < 200
    td7.resume(path, quiet=True)
    assert differences(contents(path), contents(finished.path)) == []


def test_several_processes_give_the_same(finished: td7.Run, tmp_path: Path) -> None:
    divided = train(
        tmp_path / "run", finished.config["algorithm"], keep_policies=80, processes=2
    ).path
    for seed in (0, 1):
        a, b = td7.load(divided, seed), td7.load(finished.path, seed)
        assert_allclose(a.flat, b.flat, rtol=1e-5)


def test_a_dataset_is_normalised_by_its_own_statistics(tmp_path: Path) -> None:
    fields = point_fields()
    data = save(tmp_path / "point.hdf5", fields, **BOUNDS)
    whole = train_offline("td7", tmp_path / "run", data, normalise_observations=True)
    last_of_cut = fields["timeouts"] & ~fields["terminals"]
    states = fields["observations"][~last_of_cut].astype(np.float32)
    for seed in (0, 1):
        mean, std = statistics(td7.load(whole.path, seed))
        assert_allclose(mean, states.mean(axis=0), rtol=1e-6)
        assert_allclose(std, states.std(axis=0), rtol=1e-6)
    half = train_offline("td7", tmp_path / "half", data, normalise_observations=True, steps=30)
    td7.resume(half.path, steps=60, quiet=True)
    assert differences(all_contents(half.path), all_contents(whole.path)) == []


@pytest.mark.parametrize("name", [name for name in TINY if name != "td3+bc"])
def test_every_offline_algorithm_can(name: str, tmp_path: Path) -> None:
    data = save(tmp_path / "point.hdf5", point_fields(), **BOUNDS)
    options = {"seeds": "0", "steps": 20, "normalise_observations": True}
    made = train_offline(name, tmp_path / "run", data, **options)
    assert td7.load(made.path).network.layers[0].output == LAYER


def test_it_is_refused_where_the_algorithm_does_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = save(tmp_path / "point.hdf5", point_fields(), **BOUNDS)
    out = tmp_path / "run"
    words = ["td3+bc", "--dataset", str(data), "--normalise-observations", "--out", str(out)]
    assert main(["train", *words]) == 2
    line = "td7: --normalise-observations has no effect: td3+bc normalises observations itself\n"
    assert capsys.readouterr().err == line
    assert not out.exists()


def test_reports_do_not_mix_normalised_runs_with_others(tmp_path: Path) -> None:
    write_run(tmp_path / "plain", pair(1000))
    also = {"normalise_observations": True}
    write_run(tmp_path / "normalised", {2: pair(500)[0]}, also=also)
    labels = {result.label for result in read_report([tmp_path]).results}
    assert labels == {"TD7", "TD7, normalised observations"}

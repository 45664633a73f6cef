"""`td7 dataset`: what a run did or can do, in D4RL's layout, against plain loops over the task."""

import csv
import errno
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import td7
import toys
from fake_runs import dataset_fields
from folders import SMALL, newest
from folders import rows as replay_rows
from td7.cli.main import main
from td7.datasets.dataset import summary
from td7.datasets.download import DATASETS, URL_VARIABLE, RemoteFile
from td7.datasets.read import read as read_dataset
from td7.datasets.record import FIRST_EPISODE, KINDS, record
from td7.errors import InputError, Stopped
from td7.runs import policies
from td7.seeding import Stream, derived_seed, generator

assert toys  # registers the tasks

Fields = dict[str, NDArray[Any]]

ENV = "toys:Point-v0"
MIDDLE, HALF_WIDTH = np.array([1.0, 0.0]), np.array([2.0, 2.0])  # of its actions' bounds
LIMIT = 30  # steps of an episode: some episodes of these seeds end before
SEEDS = FIRST, OTHER = (4, 5)
STEPS, KEEP, EPISODES = 160, 40, 2
N = 51  # rows: odd, and in the middle of an episode
SETTINGS: Mapping[str, Mapping[str, object]] = {  # one loop has checkpoints, the other has none
    "td7": {**SMALL, "early_assessment_episodes": 1},
    "td3": {name: SMALL[name] for name in ("random_steps", "hidden_dim", "batch_size")},
}


def train(path: Path, algorithm: str, *, steps: int = STEPS, keep: int = KEEP, **more: int) -> Path:
    td7.train(
        algorithm,
        env=ENV,
        env_kwargs={"max_episode_steps": LIMIT},
        steps=steps,
        seeds=SEEDS,
        evaluate_every=20,
        evaluation_episodes=EPISODES,
        keep_policies=keep,
        set={**SETTINGS[algorithm], **more},
        quiet=True,
        out=str(path),
    )
    return path


@pytest.fixture(scope="module", params=SETTINGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that nobody changes, in each of the two loops."""
    return train(tmp_path_factory.mktemp("runs") / request.param, request.param)


@pytest.fixture(scope="module")
def only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, for what does not depend on the loop."""
    return train(tmp_path_factory.mktemp("only") / "run", "td3")


@pytest.fixture
def spoilt(only: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(only, tmp_path / "spoilt"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, and no datasets of whoever runs the tests."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return folder


Says = Callable[..., str]


@pytest.fixture
def failing(capfd: pytest.CaptureFixture[str]) -> Says:
    """Runs `td7 dataset` with words that must fail; gives back its one line."""

    def failing(*words: object, status: int = 2) -> str:
        capfd.readouterr()
        assert main(["dataset", *map(str, words)]) == status
        out, err = capfd.readouterr()
        assert out == ""
        *before, line = err.splitlines()
        assert not before or status == 1  # what it did until it failed
        assert line.startswith("td7: ")
        return line.removeprefix("td7: ")

    return failing


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Says:
    """Runs `td7 dataset`; gives back what it prints."""

    def said(*words: object) -> str:
        capfd.readouterr()
        assert main(["dataset", *map(str, words)]) == 0
        return capfd.readouterr().out

    return said


def words_of(run: Path, kind: str, rows: object, *more: object) -> list[object]:
    return ["record", "--run", run, "--kind", kind, "--rows", rows, *more]


def recorded(run: Path, kind: str, rows: int, out: Path, *more: object) -> Fields:
    """The fields of a dataset that the command line recorded."""
    words = words_of(run, kind, rows, "--out", out, *more)
    assert main(["dataset", *map(str, words)]) == 0
    with h5py.File(out) as file:
        return {name: field[...] for name, field in file.items()}


def attributes(path: Path) -> dict[str, Any]:
    with h5py.File(path) as file:
        return {name: np.asarray(value).tolist() for name, value in file.attrs.items()}


def table(run: Path, name: str) -> list[dict[str, float]]:
    with (run / f"{name}.csv").open() as file:
        return [{key: float(v) for key, v in row.items()} for row in csv.DictReader(file)]


def kept(run: Path, step: int) -> Path:
    return run / "policies" / f"{step:09d}"


# -- plain loops ---------------------------------------------------------------------------------


class Step(NamedTuple):
    state: NDArray[np.float64]
    action: NDArray[np.float64]  # the task's own
    next_state: NDArray[np.float64]
    reward: float
    terminated: bool


def episode(
    act: Callable[[NDArray[np.float64]], NDArray[np.floating[Any]]], reset_seed: int
) -> list[Step]:
    """Play one episode in a new environment."""
    steps: list[Step] = []
    env = gymnasium.make("Point-v0", max_episode_steps=LIMIT)
    state, _ = env.reset(seed=reset_seed)
    ended = False
    while not ended:
        action = MIDDLE + HALF_WIDTH * act(state).astype(np.float64)
        next_state, reward, terminated, truncated, _ = env.step(action)
        steps.append(Step(state, action, next_state, float(reward), terminated))
        state, ended = next_state, terminated or truncated
    env.close()
    return steps


def explored(policy: td7.Policy, noise: float, seed: int, first: int, rows: int) -> Fields:
    """What a policy with added noise does in episodes `first`, `first` + 1, ..., cut at `rows`."""
    steps: list[Step] = []
    lasts: list[int] = []
    while len(steps) < rows:
        number = first + len(lasts)
        random = generator(seed, Stream.EXPLORATION, number)

        def act(
            state: NDArray[np.float64], random: np.random.Generator = random
        ) -> NDArray[np.float32]:
            action = policy.actor(state) + noise * random.standard_normal(2)
            return np.clip(action, -1, 1).astype(np.float32)

        steps += episode(act, derived_seed(seed, Stream.EPISODE_RESET, number))
        lasts.append(len(steps) - 1)
    lasts[-1] = rows - 1
    return fields_of(steps[:rows], lasts)


def fields_of(steps: Sequence[Step], lasts: Sequence[int]) -> Fields:
    """D4RL's, of steps in episodes with these last ones."""
    states, actions, next_states, rewards, terminals = zip(*steps, strict=True)
    ends = np.isin(np.arange(len(steps)), lasts)
    numbers = {
        "observations": states,
        "actions": actions,
        "next_observations": next_states,
        "rewards": rewards,
    }
    return {
        **{name: np.array(values, np.float32) for name, values in numbers.items()},
        "terminals": np.array(terminals),
        "timeouts": ends & ~np.array(terminals),
    }


def noise_of(run: Path) -> float:
    return float(td7.Run(run).config["hyperparameters"]["exploration_noise"])


def joined(*parts: Fields) -> Fields:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def assert_same(a: Fields, b: Fields) -> None:
    assert set(a) == set(b)
    for name, array in a.items():
        assert array.dtype == b[name].dtype, name
        assert_array_equal(array, b[name], err_msg=name)


def assert_of_the_task(fields: Fields) -> None:
    """What the task's own rules say: episodes hang together, ends are ends, none is too long."""
    states, next_states = fields["observations"], fields["next_observations"]
    ends = fields["terminals"] | fields["timeouts"]
    assert ends[-1]
    assert not (fields["terminals"] & fields["timeouts"]).any()
    assert_array_equal(next_states[:-1][~ends[:-1]], states[1:][~ends[:-1]])
    assert (next_states[:-1][ends[:-1]] != states[1:][ends[:-1]]).any(axis=1).all()
    assert_array_equal(fields["terminals"], np.abs(next_states[:, 0]) > 2.0)
    assert np.diff(np.flatnonzero(ends), prepend=-1).max() <= LIMIT
    np.testing.assert_allclose(fields["rewards"], 1 - np.abs(states[:, 0]), atol=1e-6)
    unit = (fields["actions"] - MIDDLE) / HALF_WIDTH
    assert np.abs(unit).max() <= 1


# -- what is recorded ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_d4rls_and_says_where_it_comes_from(
    kind: str, run: Path, tmp_path: Path, said: Says
) -> None:
    out = tmp_path / "some.hdf5"
    assert said(*words_of(run, kind, N, "--out", out, "--seed", OTHER)) == f"{out}\n"
    with h5py.File(out) as file:
        fields = {name: field[...] for name, field in file.items()}
    shapes = {name: (field.shape, str(field.dtype)) for name, field in fields.items()}
    assert shapes == {
        "observations": ((N, 2), "float32"),
        "actions": ((N, 2), "float32"),
        "next_observations": ((N, 2), "float32"),
        "rewards": ((N,), "float32"),
        "terminals": ((N,), "bool"),
        "timeouts": ((N,), "bool"),
    }
    assert_of_the_task(fields)
    ends = np.flatnonzero(fields["terminals"] | fields["timeouts"])
    lengths = np.diff(ends, prepend=-1)
    is_cut = fields["timeouts"][ends] & (lengths < LIMIT)
    assert is_cut.sum() <= (2 if kind == "medium-expert" else 1)
    stamps = attributes(out)
    assert stamps.pop("td7.cut_rows") == ends[is_cut].tolist()
    message = stamps.pop("td7.policies")
    own = json.loads((run / "policy" / "policy.json").read_text())["steps"][1]
    medium = stamps["td7.policy_steps"][0]
    steps = {
        "expert": [own],
        "medium": [medium],
        "medium-expert": [medium, own],
        "replay": [0, N],
    }
    assert stamps == {
        "td7.self_collected": True,
        "td7.task": ENV,
        "td7.task_kwargs": f'{{"max_episode_steps": {LIMIT}}}',
        "td7.kind": kind,
        "td7.algorithm": run.name,
        "td7.seed": OTHER,
        "td7.policy_steps": steps[kind],
        "td7.action_low": [-1, -2],
        "td7.action_high": [3, 2],
    }
    assert kind not in ("medium", "medium-expert") or medium in range(KEEP, STEPS + 1, KEEP)
    expert = f"expert: the policy of step {own}, the run's last"
    assert re.fullmatch(
        {
            "expert": expert,
            "medium": (taken := rf"medium: the policy of step {medium}, return \S+ \(.*\)"),
            "medium-expert": f"{taken}; {expert}",
            "replay": f"replay: the run's first {N} steps",
        }[kind],
        message,
    )

    dataset = read_dataset(out)
    assert (dataset.task_id, dataset.self_collected, dataset.warnings) == (ENV, True, ())
    assert dataset.task_kwargs == {"max_episode_steps": LIMIT}
    stays = ~fields["timeouts"]
    unit = (fields["actions"].astype(np.float64) - MIDDLE) / HALF_WIDTH
    columns = (fields["observations"], unit, fields["next_observations"], fields["rewards"])
    expected = np.column_stack([*columns, ~fields["terminals"]])[stays].astype(np.float32)
    assert_array_equal(dataset.rows, expected)
    assert dataset.lengths.tolist() == lengths[~is_cut].tolist()
    returns = [own.sum(dtype=np.float64) for own in np.split(fields["rewards"], ends + 1)[:-1]]
    np.testing.assert_allclose(dataset.returns, np.array(returns)[~is_cut], rtol=1e-6)


def test_expert_is_what_the_last_policy_does(run: Path, tmp_path: Path) -> None:
    for seed in SEEDS:
        fields = recorded(run, "expert", N, tmp_path / f"{seed}.hdf5", "--seed", seed)
        policy = td7.load(run, seed)
        assert_same(fields, explored(policy, noise_of(run), seed, FIRST_EPISODE, N))
    default = recorded(run, "expert", N, tmp_path / "default.hdf5")
    assert_same(default, recorded(run, "expert", N, tmp_path / "first.hdf5", "--seed", FIRST))


def test_medium_is_what_a_kept_policy_does(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "medium.hdf5"
    fields = recorded(run, "medium", N, out, "--seed", OTHER)
    (step,) = attributes(out)["td7.policy_steps"]
    policy = td7.load(kept(run, step), OTHER)
    assert_same(fields, explored(policy, noise_of(run), OTHER, FIRST_EPISODE, N))


@pytest.mark.parametrize("rows", [4, N, 60])
def test_medium_expert_is_half_and_half_with_a_cut_between(
    rows: int, run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "both.hdf5"
    fields = recorded(run, "medium-expert", rows, out, "--seed", OTHER)
    step, _ = attributes(out)["td7.policy_steps"]
    medium, expert = td7.load(kept(run, step), OTHER), td7.load(run, OTHER)
    half, noise = rows // 2, noise_of(run)
    expected = joined(
        explored(medium, noise, OTHER, FIRST_EPISODE, half),
        explored(expert, noise, OTHER, 2 * FIRST_EPISODE, rows - half),
    )
    assert_same(fields, expected)
    assert (fields["terminals"] | fields["timeouts"])[half - 1]


def test_other_seeds_and_kinds_are_other_data(run: Path, tmp_path: Path) -> None:
    expert = recorded(run, "expert", N, tmp_path / "expert.hdf5")
    other = recorded(run, "expert", N, tmp_path / "other.hdf5", "--seed", OTHER)
    both = recorded(run, "medium-expert", 2 * N, tmp_path / "both.hdf5")
    again = {tuple(row) for row in both["observations"][N:]}
    for states in (other["observations"], both["observations"][N:]):
        assert not {tuple(row) for row in expert["observations"]} & {tuple(s) for s in states}
    assert len(again) == N, "a state that comes twice"


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_is_what_the_run_did(seed: int, run: Path, tmp_path: Path) -> None:
    """From the snapshot's rows, row by row, cut within an episode, at its end, and nowhere."""
    rows = replay_rows(run, seed)
    ended = [int(row["step"]) for row in table(run, "episodes") if row["seed"] == seed]
    assert len(ended) > 3
    for count in (ended[2], ended[2] + 1, ended[3] - 1, len(rows)):
        fields = recorded(run, "replay", count, tmp_path / f"{count}.hdf5", "--seed", seed)
        assert_of_the_task(fields)
        assert len(fields["rewards"]) == count
        for i in range(count):
            row = rows[i]
            assert_array_equal(fields["observations"][i], row[:2])
            task_action = MIDDLE + HALF_WIDTH * row[2:4].astype(np.float64)
            assert_array_equal(fields["actions"][i], task_action.astype(np.float32))
            assert_array_equal(fields["next_observations"][i], row[4:6])
            assert fields["rewards"][i] == row[6]
            terminal = row[7] == 0
            assert fields["terminals"][i] == terminal
            is_last = i + 1 in ended or i + 1 == count
            assert fields["timeouts"][i] == (is_last and not terminal)
    returns = [row["return"] for row in table(run, "episodes") if row["seed"] == seed]
    for count in (len(rows), ended[2] + 1):  # one step of the episode after the third is none
        whole = read_dataset(tmp_path / f"{count}.hdf5").returns
        expected = returns if count == len(rows) else returns[:3]
        np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5)


def test_the_runs_have_both_kinds_of_ends(run: Path) -> None:
    """Without both, the tests above would show little."""
    rows = replay_rows(run, OTHER)
    lengths = [row["length"] for row in table(run, "episodes") if row["seed"] == OTHER]
    assert LIMIT in lengths
    assert 0 < min(lengths) < LIMIT
    assert np.count_nonzero(rows[:, -1] == 0) >= sum(length < LIMIT for length in lengths) > 0


def test_workers_do_not_matter(run: Path, tmp_path: Path) -> None:
    alone = recorded(run, "medium-expert", N, tmp_path / "alone.hdf5", "--workers", 0)
    assert_same(recorded(run, "medium-expert", N, tmp_path / "two.hdf5", "--workers", 2), alone)


@pytest.mark.parametrize("kind", KINDS)
def test_progress_counts_all_rows(kind: str, only: Path, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    out = tmp_path / "some.hdf5"
    given: dict[str, Any] = {"seed": None, "workers": 0, "say": print}
    record(only, kind, N, out, report=lambda *now: shown.append(now), **given)
    assert {total for _, total in shown} <= {N}
    assert shown == sorted(shown)
    assert kind == "replay" or shown[-1] == (N, N)


def test_the_default_name_is_the_tasks_and_the_kinds(only: Path, here: Path, said: Says) -> None:
    assert said(*words_of(only, "expert", "1e1")) == "Point-v0-expert.hdf5\n"
    assert [path.name for path in here.iterdir()] == ["Point-v0-expert.hdf5"]
    with h5py.File("Point-v0-expert.hdf5") as file:
        assert len(file["rewards"]) == 10


def test_recording_leaves_the_run_alone(spoilt: Path, tmp_path: Path) -> None:
    before = everything(spoilt)
    for kind in KINDS:
        recorded(spoilt, kind, N, tmp_path / f"{kind}.hdf5")
    assert everything(spoilt) == before


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


# -- medium --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "step"),
    [
        # Kept are 0, 40, 80, 120 and 160; wanted is the first and a third of the way to the best.
        ([10, 100, 36, 0, 41, 0, 70, 0, 0], 80),
        ([10, 0, 39, 0, 42, 100, 70, 0, 0], 40),
        ([10, 0, 100, 0, 25, 0, 69, 0, 0], 80),
        ([10, 100, 0, 40, 0, 40, 99, 40, 0], 120),  # those at 60, 100 and 140 were not kept
        ([10, 0, 100, 0, 100, 0, 90, 0, 100], 120),  # nearer is only the untrained one
        ([10, -900, 90, 0, 91, 0, 40, 0, 0], 120),  # the first counts, not the lowest
        ([-90, 0, -20, 0, -63, 0, 0, 0, -55], 80),
        ([-90, 0, -20, 0, -66, 0, 0, 0, -55], 160),
        ([5, 5, 5, 5, 5, 5, 5, 5, 5], 40),  # the first of equals that is trained
        ([50, 40, 30, 20, 10, 0, -10, -20, 50], 160),
    ],
)
def test_medium_is_nearest_to_a_third_of_the_way_up(
    returns: list[float],
    step: int,
    spoilt: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_evaluations(spoilt, returns)
    out = tmp_path / "medium.hdf5"
    fields = recorded(spoilt, "medium", N, out, "--seed", OTHER)
    stamps = attributes(out)
    assert stamps["td7.policy_steps"] == [step]
    message = f"medium: the policy of step {step}, return {returns[step // 20]:.1f} (untrained "
    assert stamps["td7.policies"] == f"{message}{returns[0]:.1f}, best {max(returns):.1f})"
    assert stamps["td7.policies"] in capfd.readouterr().err.splitlines()
    policy = td7.load(kept(spoilt, step), OTHER)
    assert_same(fields, explored(policy, noise_of(spoilt), OTHER, FIRST_EPISODE, N))


def test_medium_is_not_a_checkpoint_that_is_still_the_first_policy(
    spoilt: Path, tmp_path: Path
) -> None:
    write_evaluations(spoilt, [10, 0, 40, 0, 90, 0, 100, 0, 100])
    file = f"seed-{OTHER}.safetensors"
    shutil.copy(kept(spoilt, 0) / file, kept(spoilt, 40) / file)
    out = tmp_path / "medium.hdf5"
    recorded(spoilt, "medium", N, out, "--seed", OTHER)
    assert attributes(out)["td7.policy_steps"] == [80]


def write_evaluations(run: Path, returns: Sequence[float]) -> None:
    """Means of two episodes; the other seed has none of it."""
    lines = ["seed,step,episode,return,length"]
    for i, value in reversed(list(enumerate(returns))):  # a run that was stopped has no order
        for number, apart in enumerate((-1000, 1000)):
            lines.append(f"{OTHER},{20 * i},{number},{value + apart},30")
            lines.append(f"{FIRST},{20 * i},{number},{1000 * (i == 2)},30")
    (run / "evaluations.csv").write_text("\n".join(lines) + "\n")


# -- kept policies -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, but stopped in the middle, right after a policy was kept."""
    path = tmp_path_factory.mktemp("stopped") / run.name
    save = policies.save

    def save_and_stop(folder: Path, *given: Any) -> None:
        save(folder, *given)
        if folder == kept(path, 80):
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "save", save_and_stop)
        with pytest.raises(Stopped):
            train(path, run.name)
    return path


def assert_kept_as_evaluated(run: Path, steps: Sequence[int]) -> None:
    """Every kept policy, played again, has the returns and lengths of evaluations.csv."""
    assert sorted(path.name for path in (run / "policies").iterdir()) == [
        f"{step:09d}" for step in steps
    ]
    evaluated = [
        (row["seed"], row["step"], row["episode"], row["return"], row["length"])
        for row in table(run, "evaluations")
        if row["step"] in steps
    ]
    played = []
    for seed in SEEDS:
        for step in steps:
            policy = policies.load(kept(run, step), seed)
            for i in range(EPISODES):
                reset_seed = derived_seed(seed, Stream.EVALUATION_RESET, step, i)
                found = episode(policy.actor, reset_seed)
                played.append((seed, step, i, sum(s.reward for s in found), len(found)))
    assert sorted(evaluated) == played
    for step in steps:
        assert json.loads((kept(run, step) / "policy.json").read_text())["steps"] == step


def test_kept_policies_are_those_evaluated(run: Path) -> None:
    assert_kept_as_evaluated(run, range(0, STEPS + 1, KEEP))
    for seed in SEEDS:
        weights = [td7.load(kept(run, step), seed).flat.tobytes() for step in (0, STEPS)]
        assert len(set(weights)) > 1, "policies that never change show nothing"


def test_after_a_resume_they_are_the_same(run: Path, stopped: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(stopped, tmp_path / "run"))
    assert not kept(path, 120).exists()
    td7.resume(path, quiet=True)
    assert_kept_as_evaluated(path, range(0, STEPS + 1, KEEP))
    for file in (run / "policies").rglob("*.*"):
        assert (path / file.relative_to(run)).read_bytes() == file.read_bytes(), file


def test_after_an_extension_there_are_more(run: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(run, tmp_path / "run"))
    td7.resume(path, steps=STEPS + KEEP, quiet=True)
    assert_kept_as_evaluated(path, range(0, STEPS + KEEP + 1, KEEP))


def test_an_unfinished_run_is_stamped_with_the_steps_it_made(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "expert.hdf5"
    fields = recorded(stopped, "expert", N, out)
    saved = json.loads((newest(stopped) / "members.json").read_text())["members"][0]
    assert attributes(out)["td7.policy_steps"] == [saved["steps"]]
    assert 0 < saved["steps"] < STEPS
    policy = td7.load(stopped, FIRST)
    assert_same(fields, explored(policy, noise_of(stopped), FIRST, FIRST_EPISODE, N))


# -- what cannot be recorded ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rows", "more", "message"),
    [
        ("experts", "9", [], "unknown kind 'experts'; did you mean 'expert'? allowed: medium, "),
        ("medium-replay", "9", [], "unknown kind 'medium-replay'; did you mean 'medium-expert'?"),
        ("", "9", [], "unknown kind ''; allowed: medium, replay, expert, medium-expert"),
        ("../expert", "9", [], "unknown kind '../expert'; did you mean 'expert'?"),
        ("expert", "1", [], "rows=1 must be at least 2"),
        ("medium-expert", "3", [], "rows=3 must be at least 4"),
        ("expert", "0", [], "rows=0 must be at least 2"),
        ("expert", "-5", [], "rows=-5 must be at least 2"),
        ("expert", "many", [], "rows takes a whole number, given 'many'"),
        ("expert", "9", ["--seed", "1"], "has no seed 1; allowed: 4, 5"),
        ("replay", "9", ["--seed", "1"], "has no seed 1; allowed: 4, 5"),
        ("expert", "9", ["--seed", "one"], "seed takes a whole number, given 'one'"),
        ("expert", "9", ["--workers", "-1"], "workers=-1 must be at least 0"),
        ("expert", "9", ["--workers", "1001"], "workers=1001 must be at most 1000"),
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
    kind: str, rows: str, more: list[str], message: str, only: Path, here: Path, failing: Says
) -> None:
    assert message in failing(*words_of(only, kind, rows, *more))
    assert everything(here) == {}


@pytest.mark.parametrize("missing", ["--run", "--kind", "--rows"])
def test_run_kind_and_rows_are_needed(missing: str, only: Path, here: Path, failing: Says) -> None:
    words = words_of(only, "expert", 9)
    place = words.index(missing)
    message = failing(*words[:place], *words[place + 2 :])
    assert f"the following arguments are required: {missing}" in message
    assert everything(here) == {}


def test_a_file_that_is_there_stays(only: Path, here: Path, failing: Says) -> None:
    (here / "Point-v0-expert.hdf5").write_text("mine")
    before = everything(here)
    assert failing(*words_of(only, "expert", 9)) == "Point-v0-expert.hdf5 exists already"
    assert everything(here) == before


@pytest.mark.parametrize("kind", KINDS)
def test_no_run(kind: str, here: Path, failing: Says) -> None:
    assert failing(*words_of(Path("nowhere"), kind, 9)) == "nowhere does not exist"
    assert failing(*words_of(here, kind, 9)) == f"{here} holds no run: it has no config.json"
    assert everything(here) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"task": {}}', '{"task": {"id": 5}}'])
def test_a_damaged_config(text: str, spoilt: Path, here: Path, failing: Says) -> None:
    (spoilt / "config.json").write_text(text)
    message = failing(*words_of(spoilt, "expert", 9))
    assert message.startswith(f"{spoilt / 'config.json'} ")
    assert everything(here) == {}


@pytest.mark.parametrize("kind", ["medium", "medium-expert"])
def test_no_kept_policies(kind: str, spoilt: Path, here: Path, failing: Says) -> None:
    shutil.rmtree(spoilt / "policies")
    message = f"{spoilt} kept no policies of its middle: train it with --keep-policies"
    assert failing(*words_of(spoilt, kind, 9)) == message
    assert everything(here) == {}
    assert main(list(map(str, ["dataset", *words_of(spoilt, "expert", 9)]))) == 0


def test_a_run_without_a_snapshot(spoilt: Path, here: Path, failing: Says) -> None:
    shutil.rmtree(spoilt / "snapshot")
    message = f"{spoilt} has no snapshot, which holds its transitions"
    assert failing(*words_of(spoilt, "replay", 9)) == message
    assert everything(here) == {}
    assert main(list(map(str, ["dataset", *words_of(spoilt, "expert", 9)]))) == 0


def test_a_run_without_a_policy(spoilt: Path, here: Path, failing: Says) -> None:
    shutil.rmtree(spoilt / "policy")
    message = failing(*words_of(spoilt, "expert", 9))
    reason = "policy/policy.json is written with a run's first snapshot"
    assert message == f"{spoilt} holds no policy: {reason}"
    assert everything(here) == {}


@pytest.mark.parametrize("kind", ["expert", "medium"])
def test_a_run_without_its_evaluations(kind: str, spoilt: Path, here: Path, failing: Says) -> None:
    (spoilt / "evaluations.csv").write_text("")
    if kind == "medium":
        assert f"{spoilt / 'evaluations.csv'} " in failing(*words_of(spoilt, kind, 9))
        (spoilt / "evaluations.csv").unlink()
        assert f"{spoilt / 'evaluations.csv'} " in failing(*words_of(spoilt, kind, 9))
        assert everything(here) == {}
    else:
        assert main(list(map(str, ["dataset", *words_of(spoilt, kind, 9)]))) == 0


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_a_replay_that_lost_its_first_rows(
    algorithm: str, tmp_path: Path, here: Path, failing: Says
) -> None:
    run = train(tmp_path / "run", algorithm, steps=60, keep=0, replay_capacity=40)
    made = max(int(row["step"]) for row in table(run, "episodes") if row["seed"] == FIRST)
    made = 60 if algorithm == "td3" else made
    for rows in (2, 41):
        assert failing(*words_of(run, "replay", rows)) == (
            f"{run} holds the last 40 transitions of seed {FIRST}, which made {made}; "
            f"asked for are the first {rows}"
        )
    assert everything(here) == {}


def test_a_run_that_learned_from_data_has_no_replay_of_its_own(
    spoilt: Path, here: Path, failing: Says
) -> None:
    path = spoilt / "config.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "dataset": dataset_fields("x.hdf5")}))
    message = failing(*words_of(spoilt, "replay", 5))
    assert message == f"{spoilt} learned from a dataset and collected no transitions"
    assert everything(here) == {}


def test_the_error_of_a_full_disk_names_the_file(
    only: Path, here: Path, failing: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = failing(*words_of(only, "expert", 9, "--out", "some.hdf5"), status=1)
    assert message == "[Errno 28] No space left on device: 'some.hdf5'"
    assert everything(here) == {}


def test_a_task_that_fails_is_status_1(tmp_path: Path, here: Path, failing: Says) -> None:
    """The run's task works, the recording's does not."""
    run = train(tmp_path / "run", "td3", steps=20, keep=0)
    path = run / "policy" / "policy.json"
    data = json.loads(path.read_text())
    data["task"]["task"]["kwargs"] = {"fault": "raise", "at": 3}
    path.write_text(json.dumps(data))
    message = failing(*words_of(run, "expert", 9), status=1)
    where = f"seed {FIRST}, episode {FIRST_EPISODE}"
    assert message == f"{where}: the environment raised ValueError: the motor is on fire"
    assert everything(here) == {}


def test_python_gets_the_same_errors(only: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"seed": None, "workers": 0, "report": lambda *_: None, "say": print}
    for kind, rows, out, message in (
        ("expret", 9, "a", "unknown kind 'expret'; did you mean 'expert'?"),
        ("expert", 1, "a", "rows=1 must be at least 2"),
        ("expert", 9, "a/b", f"{tmp_path / 'a'} is not a folder"),
        ("expert", 9, ".", f"{tmp_path} exists already"),
    ):
        with pytest.raises(InputError) as error:
            record(only, kind, rows, tmp_path / out, **given)
        assert message in str(error.value)
    assert everything(tmp_path) == {}


# -- td7 dataset info ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file such as D4RL's, without timeouts: two episodes that end, and one more row."""
    path = tmp_path_factory.mktemp("data") / "hopper_medium-v2.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(66.0).reshape(6, 11)
        file["actions"] = np.zeros((6, 3))
        file["rewards"] = np.array([1000.0, 0, 500, 500, 1000, 7])
        file["terminals"] = np.array([0, 1, 0, 0, 1, 0])
    return path


def test_info_as_json_is_the_summary(hopper: Path, only: Path, tmp_path: Path, said: Says) -> None:
    own = tmp_path / "own.hdf5"
    fields = recorded(only, "replay", N, own)
    for path in (hopper, own):
        found = json.loads(said("info", path, "--json"))
        assert found == summary(read_dataset(path))
    assert found["task"] == ENV
    assert found["self_collected"]
    *ends, last = np.flatnonzero(fields["terminals"] | fields["timeouts"])
    assert attributes(own)["td7.cut_rows"] == [int(last)] == [N - 1]
    assert found["lengths"]["mean"] * found["episodes"] == ends[-1] + 1
    found = json.loads(said("info", hopper, "--json"))
    assert (found["task"], found["rows"], found["episodes"]) == ("Hopper-v4", 5, 2)
    assert (found["returns"]["mean"], found["lengths"]["max"]) == (1500, 3)
    assert found["scores"]["mean"] == pytest.approx(100 * 1520.272305 / 3254.572305)


def test_info_as_a_table(hopper: Path, only: Path, tmp_path: Path, said: Says) -> None:
    table, *warnings = said("info", hopper).rstrip().rsplit("\n", 2)
    rows = {
        words[0]: words[1]
        for line in table.splitlines()
        if len(words := [word.strip() for word in line.strip("│").split("│")]) == 2
    }
    assert table.splitlines()[0].strip() == "hopper_medium-v2"
    for name, value in {
        "task": "Hopper-v4",
        "rows": "5",
        "episodes": "2",
        "state dimensions": "11",
        "action dimensions": "3",
        "rows that end for good": "40.00%",
        "return, mean": "1,500.0",
        "return, sd": "707.1",
        "return, min": "1,000.0",
        "return, max": "2,000.0",
        "length, median": "2.5",
        "D4RL score, mean": "46.7",
    }.items():
        assert rows[name] == value
    assert warnings[0].startswith("warning: no field timeouts")
    assert warnings[1].startswith("warning: it has the name of D4RL's hopper-medium-v2")
    recorded(only, "expert", N, tmp_path / "own.hdf5")
    out = said("info", tmp_path / "own.hdf5")
    assert out.startswith("own (self-collected)")
    assert "warning" not in out
    assert "score" not in out


def test_info_takes_the_tasks_bounds(tmp_path: Path, said: Says, failing: Says) -> None:
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.zeros((3, 2))
        file["actions"] = np.array([[3.0, -2.0]] * 3)
        file["rewards"] = np.zeros(3)
        file["terminals"] = np.zeros(3)
    assert "actions holds 3.0 in row 0, dimension 0; allowed: -1.0 to 1.0, unless --env" in failing(
        "info", path
    )
    assert json.loads(said("info", path, "--env", ENV, "--json"))["rows"] == 2
    assert "did you mean 'Point-v0'?" in failing("info", path, "--env", "toys:Pint-v0")


def test_info_of_bad_paths_gets_one_line(hopper: Path, here: Path, failing: Says) -> None:
    (here / "text.hdf5").write_text("text")
    (here / "folder").mkdir()
    whole = hopper.read_bytes()
    (here / "half.hdf5").write_bytes(whole[: len(whole) // 2])
    for more in ([], ["--json"]):
        message = failing("info", "text.hdf", *more)
        assert message.startswith(
            "text.hdf is neither a file nor a local Minari dataset; did you mean"
        )
        assert failing("info", "text.hdf5", *more) == "text.hdf5 is not an HDF5 file"
        assert "folder is a folder without a Minari dataset" in failing("info", "folder", *more)
        assert failing("info", "half.hdf5", *more).startswith("half.hdf5 cannot be read: ")
    assert "required: DATASET" in failing("info")
    assert "unexpected argument 'more'" in failing("info", hopper, "more")
    assert "unknown option '--jsn'; did you mean '--json'?" in failing("info", hopper, "--jsn")


# -- td7 dataset fetch ---------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


CONTENT = b"data" * 1000


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a server on this machine with a good file, a wrong one, and one too few."""
    folder = tmp_path / "served" / "v2"
    folder.mkdir(parents=True)
    for name, content in (("good", CONTENT), ("wrong", CONTENT[::-1])):
        (folder / f"toy_{name}-v2.hdf5").write_bytes(content)
    digest = sha256(CONTENT).hexdigest()
    for name in ("good", "wrong", "absent"):
        file = RemoteFile(f"toy_{name}-v2.hdf5", len(CONTENT), digest)
        monkeypatch.setitem(DATASETS, f"toy-{name}-v2", file)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    handler = partial(Quiet, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2"
        server.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def test_fetch(url: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["dataset", "fetch", "toy-good-v2", "--url", f"{url}/", "--out", "a/b"]
    for message in ("bytes from", "exists already"):
        assert main(words) == 0
        out, err = capfd.readouterr()
        assert out == "a/b/toy_good-v2.hdf5\n"
        assert message in err
        assert (here / "a" / "b" / "toy_good-v2.hdf5").read_bytes() == CONTENT
        assert names(here / "a" / "b") == ["toy_good-v2.hdf5"]


def test_fetch_by_the_environments_address(
    url: str, here: Path, monkeypatch: pytest.MonkeyPatch, said: Says
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    assert said("fetch", "toy-good-v2") == "datasets/toy_good-v2.hdf5\n"
    assert (here / "datasets" / "toy_good-v2.hdf5").read_bytes() == CONTENT


def test_fetch_replaces_a_file_only_with_replace(
    url: str, here: Path, failing: Says, said: Says
) -> None:
    file = here / "toy_good-v2.hdf5"
    file.write_text("mine")
    words = ("fetch", "toy-good-v2", "--url", url, "--out", ".")
    assert "--replace" in failing(*words)
    assert file.read_text() == "mine"
    said(*words, "--replace")
    assert file.read_bytes() == CONTENT


def test_what_cannot_be_fetched_is_status_1(
    url: str, here: Path, failing: Says, capfd: pytest.CaptureFixture[str]
) -> None:
    message = failing("fetch", "toy-absent-v2", "--url", url, status=1)
    assert message.startswith(f"{url}/toy_absent-v2.hdf5: 404 ")
    assert main(["dataset", "fetch", "toy-wrong-v2", "--url", url]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "wrong SHA-256" in err
    assert err.splitlines()[-1].startswith(f"td7: {url}/toy_wrong-v2.hdf5: the SHA-256 should be")
    assert names(here / "datasets") == []


def test_bad_words_to_fetch_get_one_line(url: str, here: Path, failing: Says) -> None:
    message = failing("fetch", "toy-god-v2", "--url", url)
    assert message.startswith("unknown dataset 'toy-god-v2'; did you mean 'toy-good-v2'? allowed: ")
    assert "is not an HTTP address" in failing("fetch", "toy-good-v2", "--url", "ftp://a")
    assert "required: ID" in failing("fetch")
    assert "unknown option '--urls'; did you mean '--url'?" in failing("fetch", "a", "--urls=b")
    assert everything(here) == {}
    (here / "file").write_text("")
    message = failing("fetch", "toy-good-v2", "--url", url, "--out", "file")
    assert message == "cannot write to file: File exists"
    assert names(here) == ["file"]


# -- td7 dataset ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: ACTION"),
        (["inf"], "unknown action 'inf'; did you mean 'info'? allowed: info, fetch, record"),
        (["Record"], "unknown action 'Record'; did you mean 'record'?"),
        (["xyz"], "unknown action 'xyz'; allowed: info, fetch, record"),
        ([""], "unknown action ''; allowed: info, fetch, record"),
        (["--jsn"], "required: ACTION"),
    ],
)
def test_the_action_is_needed(words: list[str], message: str, here: Path, failing: Says) -> None:
    assert message in failing(*words)
    assert everything(here) == {}


def test_help(said: Says) -> None:
    assert said("--help").startswith("usage: td7 dataset")
    for action, message in (
        ("info", "--json"),
        ("fetch", "hopper-medium-v2, hopper-medium-replay-v2"),
        ("record", "expert: episodes of the last policy"),
    ):
        out = said(action, "--help")
        assert out.startswith(f"usage: td7 dataset {action}")
        assert message in " ".join(out.split())

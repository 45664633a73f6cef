"""Runs for `td7 dataset record`, and plain loops over their task to compare with."""

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import td7
import toys
from folders import SMALL
from td7.cli.main import main
from td7.seeding import Stream, derived_seed, generator

assert toys  # registers the tasks


Fields = dict[str, NDArray[Any]]
Says = Callable[..., str]

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


@pytest.fixture(scope="session", params=SETTINGS)
def run_with_policies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A finished run that nobody changes, in each of the two loops."""
    return train(tmp_path_factory.mktemp("runs") / request.param, request.param)


@pytest.fixture(scope="session")
def td3_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, for what does not depend on the loop."""
    return train(tmp_path_factory.mktemp("only") / "run", "td3")


@pytest.fixture
def td3_copy(td3_run: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(td3_run, tmp_path / "spoilt"))


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, and no datasets of whoever runs the tests."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return folder


@pytest.fixture
def dataset_fails(capfd: pytest.CaptureFixture[str]) -> Says:
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
def dataset_prints(capfd: pytest.CaptureFixture[str]) -> Says:
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


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}

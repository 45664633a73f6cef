"""Configs: words to values, one-line errors, and that every field matters."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import td7
from td7 import cli
from td7.algorithms import ALGORITHMS
from td7.algorithms.td7 import TD7Config
from td7.api import TrainOptions, parse_seeds, train_options
from td7.asynchronous import AsynchronousTraining
from td7.configs import described, parse, with_settings, with_values
from td7.environments import describe
from td7.errors import InputError
from td7.progress import QuietProgress, Status
from td7.training import RunConfig
from td7.types import Task

# -- words to values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "value"),
    [
        ("1e6", int, 1_000_000),
        ("25_000", int, 25_000),
        ("9007199254740993", int, 2**53 + 1),  # no float holds it
        (1e3, int, 1000),
        (np.int64(7), int, 7),
        ("0", int, 0),
        ("3e-4", float, 0.0003),
        (1, float, 1.0),
        ("true", bool, True),
        ("False", bool, False),
        (True, bool, True),
        ("cuda", str, "cuda"),
    ],
)
def test_parse(given: object, kind: type, value: object) -> None:
    parsed = parse("field", given, kind)
    assert parsed == value
    assert type(parsed) is kind


@pytest.mark.parametrize("given", ["1.5", 2.5, "many", "", "nan", "inf", "1e400", True, None, [1]])
def test_what_is_no_whole_number(given: object) -> None:
    with pytest.raises(InputError) as error:
        parse("batch_size", given, int)
    assert str(error.value) == f"batch_size takes a whole number, given {given!r}"


@pytest.mark.parametrize("given", ["", "x", "nan", "-inf", False, None, math.inf])
def test_what_is_no_number(given: object) -> None:
    with pytest.raises(InputError) as error:
        parse("discount", given, float)
    assert str(error.value) == f"discount takes a number, given {given!r}"


@pytest.mark.parametrize("given", ["1", "yes", "", 1, 0, None])
def test_what_is_no_truth(given: object) -> None:
    with pytest.raises(InputError, match="quiet takes true or false, given"):
        parse("quiet", given, bool)


def test_settings() -> None:
    config = with_settings(TD7Config, ["batch_size=1_28", " discount = 0.9 ", "hidden_dim=1e2"])
    assert config == TD7Config(batch_size=128, discount=0.9, hidden_dim=100)
    assert with_settings(TD7Config, []) == TD7Config()
    assert with_values(TD7Config, {"batch_size": 128}) == TD7Config(batch_size=128)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["batch_size"], "--set takes field=value, given 'batch_size'"),
        (["batch_size=1", "batch_size=2"], "--set names batch_size twice"),
        (["batch_size=1", " batch_size =1"], "--set names batch_size twice"),
        (["batch_size=1=2"], "batch_size takes a whole number, given '1=2'"),
        (["batch_size="], "batch_size takes a whole number, given ''"),
        (["discount=1.5"], "discount=1.5 must be at most 1"),
        (["discount=-0.1"], "discount=-0.1 must be at least 0"),
        (["learning_rate=0"], "learning_rate=0.0 must be above 0"),
        (["batch_size=0"], "batch_size=0 must be at least 1"),
    ],
)
def test_bad_settings(words: Sequence[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        with_settings(TD7Config, words)
    assert str(error.value) == message


def test_an_unknown_field_gets_the_nearest_and_all_names() -> None:
    with pytest.raises(InputError) as error:
        with_settings(TD7Config, ["batchsize=3"])
    message = str(error.value)
    assert message.startswith(
        "unknown hyperparameter 'batchsize'; did you mean 'batch_size'? allowed: "
    )
    for f in dataclasses.fields(TD7Config):
        assert f.name in message
    with pytest.raises(InputError, match="'zzz'; allowed: "):
        with_settings(TD7Config, ["zzz=3"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_field_has_a_range_a_doc_and_a_place(name: str) -> None:
    config = ALGORITHMS[name].config
    fields = [f.name for f in dataclasses.fields(config)]
    for field in fields:
        for bad in (-1, math.nan):
            values: dict[str, Any] = {field: bad}
            with pytest.raises(InputError, match=rf"{field}={bad} must be|unknown {field} '{bad}'"):
                config(**values)
    groups = described(config)
    listed = [row for rows in groups.values() for row in rows]
    assert sorted(row[0] for row in listed) == sorted(fields)
    assert all(doc for _, _, doc in listed)


def test_td7s_groups_come_before_the_common_ones() -> None:
    groups = list(described(TD7Config))
    assert groups.index("SALE") < groups.index("LAP") < groups.index("Common")


def test_a_config_is_never_written_back() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TD7Config().batch_size = 3  # type: ignore[misc]  # on purpose


# -- every field matters -------------------------------------------------------------------------


class Metronome(gymnasium.Env[Any, Any]):
    """Random states; rewards 2, -1, 2, -1, 2 whatever is done, and a little by chance.

    So episodes return 4 to 4.5, and values stay within the clip, where the noise can be seen.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._luck = self.np_random.uniform(0.0, 0.1)
        return self.np_random.standard_normal(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        reward = self._luck + (2.0 if self._steps % 2 else -1.0)
        return self.np_random.standard_normal(2), reward, False, False, {}


gymnasium.register("Metronome-v0", entry_point=f"{__name__}:Metronome", max_episode_steps=5)

# Small, and so that everything happens within ten episodes: a random one, the first checkpoint,
# the late stage from the fourth update on, target copies every three.
BASE: Mapping[str, Any] = {
    "random_steps": 5,
    "batch_size": 8,
    "target_every": 3,
    "embedding_dim": 4,
    "hidden_dim": 8,
    "late_assessment_episodes": 2,
    "early_updates": 4,
}


class Watch(QuietProgress):
    """Remembers each different state of a run's only seed that it was shown."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int, float], None] = {}  # steps, updates, best

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        (seed,) = status().members
        self.seen[seed.steps, seed.updates, seed.best] = None


# What a finished run of one seed shows.
SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "updates": lambda run: run.engine.updates,
    "actor steps": lambda run: run.learner.state()["actor.steps"].tolist(),
    "encoder": lambda run: run.learner.state()["encoder.parameters"].tolist(),
    "critics": lambda run: run.learner.state()["critic.parameters"].tolist(),
    "actor": lambda run: run.learner.state()["actor.parameters"].tolist(),
    "target critics": lambda run: run.learner.state()["target_critic.parameters"].tolist(),
    "width of zs": lambda run: run.learner.policy_network.widths()["zs"],
    "width of phi": lambda run: run.learner.policy_network.widths()["phi"],
    "rows": lambda run: run.replay.rows.tolist(),
    "capacity": lambda run: run.replay.capacity,
    "priorities": lambda run: run.replay.leaves.tolist(),
    "late": lambda run: run.members[0].assessment.late,
    "when it trains": lambda run: [(steps, updates) for steps, updates, _ in run.progress.seen],
    "best": lambda run: [best for _, _, best in run.progress.seen],
    "tested": lambda run: run._test_policy(0).tolist(),
}

# Field: another value, and what that must change. A new field needs a row.
MATTERS: Mapping[str, tuple[Any, str]] = {
    "random_steps": (6, "updates"),  # the second episode is random too
    "exploration_noise": (0.3, "rows"),
    "discount": (0.5, "critics"),
    "replay_capacity": (20, "capacity"),
    "batch_size": (9, "encoder"),
    "target_every": (4, "target critics"),
    "learning_rate": (1e-3, "encoder"),
    "embedding_dim": (5, "width of zs"),
    "hidden_dim": (9, "width of phi"),
    "target_noise": (0.1, "critics"),
    "target_noise_clip": (0.1, "critics"),
    "actor_every": (3, "actor steps"),
    "priority_exponent": (0.7, "priorities"),
    "min_priority": (0.5, "priorities"),
    "cloning_weight": (0.5, "actor"),
    "early_assessment_episodes": (2, "when it trains"),
    "late_assessment_episodes": (3, "when it trains"),
    "early_updates": (1000, "late"),
    "criterion_reset_weight": (0.1, "best"),
    "checkpoints": ("mean", "best"),
    "assessments_end_early": (False, "when it trains"),
    "test_policy": ("current", "tested"),
}


@cache
def shown(**changed: Any) -> dict[str, Any]:
    """What a run with BASE and these changes shows at its end."""
    task = Task("Metronome-v0")
    config = RunConfig(
        algorithm="td7",
        task=task,
        seeds=(0,),
        steps=50,
        hyperparameters=TD7Config(**{**BASE, **changed}),
        evaluate_every=1000,
        evaluation_episodes=1,
        metrics_every=1000,
        device="cpu",
        replay_device="cpu",
        precision="float64",
        engine="eager",
        threads=1,
    )
    with TemporaryDirectory() as folder:
        path = Path(folder)
        run = AsynchronousTraining(
            config, describe(task), path, Watch(), workers=0, snapshot_every=0
        )
        run.run()
    return {name: show(run) for name, show in SHOWN.items()}


def test_every_field_is_in_the_table() -> None:
    assert MATTERS.keys() == {f.name for f in dataclasses.fields(TD7Config)}


@pytest.mark.parametrize("field", MATTERS)
def test_every_field_matters(field: str) -> None:
    value, what = MATTERS[field]
    assert shown(**{field: value})[what] != shown()[what]


def test_a_run_is_a_function_of_its_config() -> None:
    """Otherwise the test before this one would say nothing."""
    assert shown(discount=0.99) == shown()


# -- seeds and options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("0-9", tuple(range(10))),
        ("0,3,7", (0, 3, 7)),
        (" 7 , 1 - 3 ", (7, 1, 2, 3)),
        ("5-5", (5,)),
        (4, (4,)),
        ([2, 0], (2, 0)),
        (range(3), (0, 1, 2)),
        (np.arange(2), (0, 1)),
        (["1", 2.0], (1, 2)),
    ],
)
def test_seeds(given: Any, seeds: tuple[int, ...]) -> None:
    parsed = parse_seeds(given)
    assert parsed == seeds
    assert {type(seed) for seed in parsed} == {int}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("3-1", "seeds 3-1 runs backwards"),
        ("0-2,1", "seed 1 is given twice"),
        ([4, 4], "seed 4 is given twice"),
        ("", "seeds takes 0-9 or 0,3,7, given ''"),
        ("-1", "seeds takes 0-9 or 0,3,7, given '-1'"),
        ("1.5", "seeds takes 0-9 or 0,3,7, given '1.5'"),
        ("0,", "seeds takes 0-9 or 0,3,7, given '0,'"),
        (-1, "seeds must be at least 0, given -1"),
        ([], "seeds is empty: at least one is needed"),
        (True, "seeds takes a whole number, given True"),
        ([0.5], "seeds takes a whole number, given 0.5"),
        (0.5, "seeds takes whole numbers, given 0.5"),
        (None, "seeds takes whole numbers, given None"),
    ],
)
def test_bad_seeds(given: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_seeds(given)
    assert str(error.value) == message


def test_python_and_the_command_line_have_the_same_options() -> None:
    signature = inspect.signature(td7.train)
    fields = {f.name: f.default for f in dataclasses.fields(TrainOptions)}
    assert {name: p.default for name, p in signature.parameters.items()} == fields
    assert next(iter(signature.parameters)) == "algorithm"

    parser, _ = cli._parser("train")
    given = vars(parser.parse_args(["train"]))
    assert given.keys() - {"command"} == fields.keys()
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    assert {**given, **lists, "command": None} == {**fields, "command": None}


def test_words_and_values_are_the_same_options() -> None:
    parser, _ = cli._parser("train")
    words = "train td7 --env X-v0 --steps 1e3 --snapshot-every 0.5 --quiet --set a=1 b=2 --set c=3"
    given = vars(parser.parse_args(words.split()))
    del given["command"]
    assert train_options({**given, "env_kwargs": ()}) == TrainOptions(
        env="X-v0", steps=1000, snapshot_every=0.5, quiet=True, set=["a=1", "b=2", "c=3"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 5}, "unknown option 'step'; did you mean 'steps'?"),
        ({"steps": "many"}, "steps takes a whole number, given 'many'"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"workers": -1}, "workers=-1 must be at least 0"),
        ({"snapshot_every": "nan"}, "snapshot_every takes a number, given 'nan'"),
        ({"quiet": "maybe"}, "quiet takes true or false, given 'maybe'"),
    ],
)
def test_bad_options(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        td7.train(**{"env": "toys:Point-v0", **options})
    assert str(error.value).startswith(message)

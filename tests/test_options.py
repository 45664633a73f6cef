"""Options: words become options, options become words, and neither loses anything on the way."""

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from td7.algorithms import ALGORITHMS
from td7.cli.main import build_parser
from td7.configs import build_config
from td7.errors import InputError
from td7.option_values import parse_env_kwargs, parse_seeds
from td7.options import RUN_OPTIONS, StudyOptions, TrainOptions, options_from, to_words
from td7.types import Wrapper

VALUES = [
    True,
    False,
    None,
    0,
    -3,
    10**20,
    -0.5,
    1e-05,
    float("inf"),
    float("nan"),
    "",
    "cpu",
    "two words",
    " padded ",
    'it\'s "quoted"',
    "a=b",
    "--steps",
    "-1",
    "12",
    "1e3",
    "true",
    "False",
    "null",
    "NaN",
    '"text"',
    '{"not": JSON',
    "[1, 2]",
    "größe 機",
    "two\nlines",
    "\0",
    "\ud800",
    [],
    [0.5, 1.0],
    ["a", None, [True, "1"]],
    {},
    {"x": {"y": [1, "2", False]}, "größe": ""},
]


def parsed(words: list[str]) -> TrainOptions:
    """The options that `td7 train` gets from these words."""
    words = ["train", *words]
    values = vars(build_parser(words)[0].parse_args(words))
    return options_from(TrainOptions, {f.name: values[f.name] for f in fields(TrainOptions)})


def same(a: object, b: object) -> bool:
    """Whether two values are equal and of the same types, all the way down."""
    return json.dumps(a) == json.dumps(b)


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_a_keyword_argument_of_a_task_survives_the_command_line(value: Any) -> None:
    options = TrainOptions(env_kwargs={"name": value, "other": value})
    words = to_words(options)
    assert words[0] == "--env-kwargs"
    assert not any("\0" in word or "\ud800" in word for word in words)  # no process takes these
    assert same(parsed(words).env_kwargs, options.env_kwargs)
    assert to_words(parsed(words)) == words


@pytest.mark.parametrize(
    ("words", "kwargs"),
    [
        (["terminate_when_unhealthy=false"], {"terminate_when_unhealthy": False}),
        (["healthy_z_range=[0.5,1.0]"], {"healthy_z_range": [0.5, 1.0]}),
        (
            ["xml_file=my ant.xml", 'name="12"', "n=12"],
            {"xml_file": "my ant.xml", "name": "12", "n": 12},
        ),
    ],
)
def test_words_keep_their_meaning_on_the_way_to_another_process(
    words: list[str], kwargs: dict[str, Any]
) -> None:
    """As from `td7 study` to its runs."""
    options = parsed(["--env-kwargs", *words])
    assert same(options.env_kwargs, kwargs)
    assert same(parsed(to_words(options)).env_kwargs, kwargs)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hyperparameters_survive_the_command_line(name: str) -> None:
    """Every default of every algorithm, as a value and as text."""
    config = ALGORITHMS[name].config
    defaults = {f.name: f.default for f in fields(config)}
    options = parsed(to_words(TrainOptions(set=defaults)))
    assert list(options.set) == list(defaults)
    assert build_config(config, options.set) == build_config(config, defaults)
    assert parsed(to_words(options)) == options


def test_numbers_of_numpy_keep_their_exact_value() -> None:
    """float32 prints as 0.001, which is another number."""
    rate = np.float32(1e-3)
    options = parsed(to_words(TrainOptions(set={"learning_rate": rate, "batch_size": np.int64(8)})))
    config = build_config(ALGORITHMS["td7"].config, options.set)
    assert (config.learning_rate, config.batch_size) == (float(rate), 8)
    assert same(parse_env_kwargs({"range": np.array([1, 2])}), {"range": [1, 2]})


CHANGED: dict[str, Any] = {
    "algorithm": "sac",
    "variant": "design/Q, zsa only",
    "env": "toys:Point-v0",
    "env_kwargs": {"at": 7},
    "wrapper": [Wrapper("toy_wrappers:Scaled", {"scale": 2.0})],
    "dataset": "my data/own.hdf5",
    "steps": 1_234_567,
    "seeds": (7, 3, 2**63 - 1),
    "set": {"batch_size": "8"},
    "vary": {"discount": ("0.9", "0.99"), "learning_rate": ("1e-3", "3e-4")},
    "start_from": "runs/before",
    "normalise_observations": True,
    "evaluate_every": 250,
    "evaluation_episodes": 3,
    "metrics_every": 10,
    "keep_policies": 500,
    "out": "-odd/folder's name",
    "snapshot_every": 0.1,
    "tensorboard": True,
    "wandb": "team/cheetah",
    "mlflow": "file:///tmp/mlruns",
    "quiet": True,
    "device": "cuda",
    "replay_device": "cpu",
    "workers": "3",
    "step_timeout": 0.5,
    "processes": "2",
    "threads": "4",
    "precision": "float64",
    "engine": "eager",
}


def test_every_option_survives_the_command_line() -> None:
    defaults = TrainOptions()
    assert to_words(defaults) == []
    assert parsed([]) == defaults
    assert set(CHANGED) == {f.name for f in fields(TrainOptions)}
    for name, value in CHANGED.items():
        options = TrainOptions(**{name: value})
        assert options != defaults
        assert parsed(to_words(options)) == options
    options = TrainOptions(**CHANGED)
    assert parsed(to_words(options)) == options


def test_named_options_have_words_even_at_their_defaults() -> None:
    assert to_words(TrainOptions(), ["steps", "workers", "quiet", "set"]) == [
        *("--steps", "1_000_000"),
        *("--workers", "auto"),
    ]


def test_a_study_passes_on_every_option_that_a_run_has_as_well() -> None:
    """All but those that the plan decides for each run."""
    shared = {f.name for f in fields(TrainOptions)} & {f.name for f in fields(StudyOptions)}
    assert set(RUN_OPTIONS) == shared - {"env", "steps", "out", "quiet"}
    changed = {name: CHANGED[name] for name in RUN_OPTIONS}
    assert StudyOptions(**changed).run_options == TrainOptions(**changed)


def test_words_and_python_values_are_the_same_options_of_a_study() -> None:
    words = {"env": "A-v0,B-v0", "rows": ["TD7"], "seeds": "0-2", "set": ["a=1"]}
    values = {"env": ("A-v0", "B-v0"), "rows": "TD7", "seeds": range(3), "set": {"a": "1"}}
    options = options_from(StudyOptions, words)
    assert options == options_from(StudyOptions, values)
    assert options.env == ("A-v0", "B-v0")
    assert to_words(options, ["env", "rows"]) == ["--rows", "TD7", "--env", "A-v0,B-v0"]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"env_kwargs: name is .*; allowed: what JSON can hold"):
        TrainOptions(env_kwargs={"name": value})


def test_seeds_are_whole_numbers_in_the_order_given() -> None:
    assert parse_seeds("5,0-2") == (5, 0, 1, 2) == TrainOptions(seeds=[5, 0, 1, 2]).seeds

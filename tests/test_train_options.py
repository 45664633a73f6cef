"""Options of `td7 train` and `td7.train`: seeds, and the same names in both."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import td7
from td7.cli.main import build_parser
from td7.errors import InputError
from td7.option_values import parse_seeds
from td7.options import TrainOptions
from td7.training.resolve import train_options

OF_THE_COMMAND = {"command", "parser", "whole_parser", "modules"}  # no options of a run


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
        ("", "seeds is empty: at least one is needed"),
        ("-1", "seeds takes 0-9, 0,3,7 or 0 3 7, given '-1'"),
        ("1.5", "seeds takes 0-9, 0,3,7 or 0 3 7, given '1.5'"),
        (-1, "seeds must be at least 0, given -1"),
        (2**63, f"seeds must be at most {2**63 - 1}, given {2**63}"),
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
    arguments = {name: p.default for name, p in signature.parameters.items()}
    only_python = {"listener": None, "hyperparameters": inspect.Parameter.empty}
    assert arguments == {**fields, **only_python}
    assert next(iter(signature.parameters)) == "algorithm"

    parser, _ = build_parser(["train"])
    given = vars(parser.parse_args(["train"]))
    given = {name: value for name, value in given.items() if name not in OF_THE_COMMAND}
    assert given.keys() == fields.keys()
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    assert {**given, **lists} == fields


def test_words_and_values_are_the_same_options() -> None:
    parser, _ = build_parser(["train"])
    words = "train td7 --env X-v0 --steps 1e3 --snapshot-every 0.5 --quiet --set a=1 b=2 --set c=3"
    given = vars(parser.parse_args(words.split()))
    given = {name: value for name, value in given.items() if name not in OF_THE_COMMAND}
    assert train_options({**given, "env_kwargs": ()}) == TrainOptions(
        algorithm="td7",
        env="X-v0",
        steps=1000,
        snapshot_every=0.5,
        quiet=True,
        set=["a=1", "b=2", "c=3"],
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

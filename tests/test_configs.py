"""Configs are parsed from words, and errors are one line."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from td7.algorithms import ALGORITHMS
from td7.algorithms.td7 import TD7Config
from td7.configs import build_config, describe_fields, parse, parse_settings, setting
from td7.errors import InputError


def from_words(cls: Any, words: Sequence[str]) -> Any:
    return build_config(cls, parse_settings(words))


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
def test_words_and_numbers_are_parsed_to_the_fields_type(
    given: object, kind: type, value: object
) -> None:
    parsed = parse("field", given, kind)
    assert parsed == value
    assert type(parsed) is kind


@pytest.mark.parametrize("given", ["1.5", 2.5, "many", "", "nan", "inf", "1e400", True, None, [1]])
def test_anything_but_a_whole_number_is_refused(given: object) -> None:
    with pytest.raises(InputError) as error:
        parse("batch_size", given, int)
    assert str(error.value) == f"batch_size takes a whole number, given {given!r}"


@pytest.mark.parametrize("given", ["", "x", "nan", "-inf", False, None, math.inf])
def test_anything_but_a_number_is_refused(given: object) -> None:
    with pytest.raises(InputError) as error:
        parse("discount", given, float)
    assert str(error.value) == f"discount takes a number, given {given!r}"


@pytest.mark.parametrize("given", ["1", "yes", "", 1, 0, None])
def test_anything_but_true_or_false_is_refused(given: object) -> None:
    with pytest.raises(InputError, match="quiet takes true or false, given"):
        parse("quiet", given, bool)


@pytest.mark.parametrize("given", [None, True, False])
def test_values_that_are_no_text_are_refused(given: object) -> None:
    """`out=None` made a folder None, `wandb=True` logged to a project True."""
    with pytest.raises(InputError) as error:
        parse("wandb", given, str)
    assert str(error.value) == f"wandb takes text, given {given!r}"


def test_settings_become_fields() -> None:
    config = from_words(TD7Config, ["batch_size=1_28", " discount = 0.9 ", "hidden_dim=1e2"])
    assert config == TD7Config(batch_size=128, discount=0.9, hidden_dim=100)
    assert from_words(TD7Config, "batch_size=128") == TD7Config(batch_size=128)  # a single one
    assert from_words(TD7Config, []) == TD7Config()
    assert build_config(TD7Config, {"batch_size": 128}) == TD7Config(batch_size=128)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["batch_size"], "set takes field=value, given 'batch_size'"),
        (5, "set takes text, given 5"),
        (None, "set takes text, given None"),
        ([5], "set takes text, given [5]"),
        (["batch_size=1", "batch_size=2"], "set names batch_size twice"),
        (["batch_size=1", " batch_size =1"], "set names batch_size twice"),
        (["batch_size=1=2"], "batch_size takes a whole number, given '1=2'"),
        (["batch_size="], "batch_size takes a whole number, given ''"),
        (["discount=1.5"], "discount=1.5 must be at most 1"),
        (["discount=-0.1"], "discount=-0.1 must be at least 0"),
        (["learning_rate=0"], "learning_rate=0.0 must be above 0"),
        (["batch_size=0"], "batch_size=0 must be at least 1"),
        (
            ["critic_inputs=zs"],
            "critic_inputs=zs must have one of zsa, phi, sa: a critic reads the action",
        ),
    ],
)
def test_a_bad_setting_is_one_line(words: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        from_words(TD7Config, words)
    assert str(error.value) == message


def test_an_input_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match="critic_inputs=zsa,phi,phi names phi twice"):
        TD7Config(critic_inputs=("zsa", "phi", "phi"))


def test_an_unknown_field_gets_the_nearest_and_all_names() -> None:
    with pytest.raises(InputError) as error:
        from_words(TD7Config, ["batchsize=3"])
    message = str(error.value)
    assert message.startswith(
        "unknown hyperparameter 'batchsize'; did you mean 'batch_size'? allowed: "
    )
    for f in dataclasses.fields(TD7Config):
        assert f.name in message
    with pytest.raises(InputError, match="'zzz'; allowed: "):
        from_words(TD7Config, ["zzz=3"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_field_has_a_range_a_doc_and_a_group(name: str) -> None:
    config = ALGORITHMS[name].config
    fields = [f.name for f in dataclasses.fields(config)]
    for field in fields:
        may_be_negative = field in ("target_entropy_per_dimension", "dropped_quantiles")
        for bad in (math.nan,) if may_be_negative else (-1, math.nan):
            values: dict[str, Any] = {field: bad}
            with pytest.raises(InputError, match=rf"{field}={bad} must be|unknown {field} '{bad}'"):
                config(**values)
    groups = describe_fields(config)
    listed = [row for rows in groups.values() for row in rows]
    assert sorted(row[0] for row in listed) == sorted(fields)
    assert all(doc for _, _, doc in listed)


def test_td7s_groups_come_before_the_common_ones() -> None:
    groups = list(describe_fields(TD7Config))
    assert groups.index("SALE") < groups.index("LAP") < groups.index("Common")


def test_fields_are_listed_where_annotations_are_lazy() -> None:
    """As they are from Python 3.14 on."""

    @dataclasses.dataclass(frozen=True)
    class Own(TD7Config):
        added: int = setting(1, "one more", group="Own")

    del Own.__annotations__
    assert next(iter(describe_fields(Own).items())) == ("Own", [("added", 1, "one more")])


def test_a_config_is_never_written_back() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TD7Config().batch_size = 3  # type: ignore[misc]  # on purpose

"""Configs as data: their fields are declared, checked, listed and set from `name=value` words."""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, get_type_hints

from td7.errors import InputError, Option, assigned, unknown

Config = TypeVar("Config")
Number = TypeVar("Number", int, float)
SET = Option("set")


def setting(
    default: Any,
    doc: str,
    *,
    group: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] | None = None,
    before: Any = None,
    structural: bool = False,
    needs: Mapping[str, Sequence[Any]] | None = None,
    per_member: bool = False,
    search: str = "",
    metavar: str = "NAME=VALUE",
    values: str = "",
) -> Any:
    """Declare a dataclass field with its description, the group it is listed in, and its range.

    `before` is the value of runs that are older than the field, if it is not the default.
    `structural`: weights that were trained with one value mean nothing with another. `needs` has,
    for other fields, the values with which this one has an effect (of several values: one of them).
    `per_member`: members of one run may have different values; a learner then reads a tensor [S]
    (see `td7.networks.scalars`). `search` is what `td7 tune` searches by default, as in --search.
    Of an option that takes several values, `metavar` is what the help calls one of them, and
    `values` their kind, if it is not the option's name: see `td7.option_values`.
    """
    if choices is not None:
        doc = f"{doc} ({', '.join(choices)})"
    limits = {"at_least": at_least, "above": above, "at_most": at_most, "choices": choices}
    texts = {"doc": doc, "group": group, "metavar": metavar, "values": values}
    flags = {"structural": structural, "per_member": per_member, "search": search}
    metadata = {**texts, "before": before, "needs": needs, **flags, **limits}
    return dataclasses.field(default=default, metadata=metadata)


_COMPARISONS: dict[str, Callable[[Any, float], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
}


def check_fields(config: Any, spelled: Callable[[str], str] = str) -> None:
    """Raise an InputError for the first field outside its range; `spelled` makes its name."""
    for f in dataclasses.fields(config):
        name, value = spelled(f.name), getattr(config, f.name)
        if hasattr(value, "shape"):  # a number per member, each of which was checked by itself
            continue
        choices = f.metadata.get("choices")
        if choices is not None:
            for word in value if isinstance(value, tuple) else (value,):
                if word not in choices:
                    raise unknown(name, str(word), choices, shown=len(choices))
        if choices is not None and isinstance(value, tuple) and len(set(value)) < len(value):
            twice = next(word for word in value if value.count(word) > 1)
            raise InputError(f"{assigned(name, ','.join(value))} names {twice} twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{assigned(name, value)} must be a finite number")
        if f.type is bool and not isinstance(value, bool):
            raise InputError(f"{assigned(name, value)} must be true or false")
        _check_limits(name, value, {word: f.metadata.get(word) for word in _COMPARISONS})


def _check_limits(name: str, value: float, limits: Mapping[str, float | None]) -> None:
    for word, bound in limits.items():
        if bound is not None and not _COMPARISONS[word](value, bound):  # NaN fails as well
            raise InputError(f"{assigned(name, value)} must be {word.replace('_', ' ')} {bound:g}")


def parse_number(
    name: str, value: Any, kind: type[Number], *, otherwise: str = "", **limits: float
) -> Number:
    """Return `value` as `kind`; raise an InputError outside limits such as `at_least`.

    `otherwise` is a word that the caller accepts as well.
    """
    number: Number = parse(name, value, kind, otherwise=otherwise)
    _check_limits(name, number, limits)
    return number


def as_words(option: str, value: Any) -> list[str]:
    """Return the words of an option that takes one or several."""
    words = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{option} takes text, given {value!r}")
    return words


def parse_settings(
    settings: Sequence[str], option: Option = SET, form: str = "field=value"
) -> dict[str, str]:
    """Return {name: value} from words such as `batch_size=128`."""
    values: dict[str, str] = {}
    for word in as_words(option, settings):
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{option} takes {form}, given {word!r}")
        if name.strip() in values:
            raise InputError(f"{option} names {name.strip()} twice")
        values[name.strip()] = value.strip()
    return values


def build_config(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Return a config with these values, each parsed to the type of its field."""
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # a dataclass
    parsed = {}
    for name, value in values.items():
        if name not in names:
            raise unknown("hyperparameter", name, names, shown=len(names))
        parsed[name] = parse(name, value, hints[name])
    return cls(**parsed)


def complete(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded values, with those of fields that are newer than the record."""
    newer = {f.name: f.metadata.get("before") for f in dataclasses.fields(cls)}
    return {**{name: v for name, v in newer.items() if v is not None}, **values}


def parse_field(cls: type, name: str, value: Any) -> Any:
    """Return a field's value as the config `cls` would hold it."""
    return getattr(build_config(cls, {name: value}), name)


def parse(name: str, value: Any, kind: type, *, otherwise: str = "") -> Any:
    """Return `value` as `kind`; whole numbers may be written 1e6, 25_000, 100k or 1M."""
    description, convert = _PARSERS[kind]
    try:
        return convert(value)
    except (ArithmeticError, TypeError, ValueError):
        description = f"{otherwise} or {description}" if otherwise else description
        raise InputError(f"{name} takes {description}, given {value!r}") from None


def _float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError
    return number


_THOUSANDS = {"k": 1_000, "m": 1_000_000}


def _int(value: Any) -> int:
    if isinstance(value, str) and (factor := _THOUSANDS.get(value[-1:].lower())):
        value = str(Decimal(value[:-1]) * factor)
    if _float(value) != int(_float(value)):
        raise ValueError
    try:
        return int(value)  # exact for numbers that no float holds
    except ValueError:
        return int(_float(value))


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):  # not "None", nor "True"
        raise ValueError
    return str(value)


def _bool(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError
    return str(value).lower() == "true"


def _distinct_words(value: Any) -> tuple[str, ...]:
    words = tuple(value.split(",") if isinstance(value, str) else value)
    if not words or len(set(words)) < len(words):
        raise ValueError
    return tuple(str(word).strip() for word in words)


# type: (what it takes, for error messages; parser)
_PARSERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    int: ("a whole number", _int),
    float: ("a number", _float),
    bool: ("true or false", _bool),
    str: ("text", _text),
    tuple[str, ...]: ("distinct words such as a,b", _distinct_words),
}


def describe_fields(cls: type) -> dict[str, list[tuple[str, Any, str]]]:
    """Return {group: [(name, default, doc), …]}, a class's own groups before those of its bases."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    # Defaults and not annotations, which `vars` does not list from Python 3.14 on.
    names = [name for base in cls.__mro__ for name in vars(base)]
    groups: dict[str, list[tuple[str, Any, str]]] = {}
    for name in dict.fromkeys(name for name in names if name in fields):
        f = fields[name]
        groups.setdefault(f.metadata["group"], []).append((name, f.default, f.metadata["doc"]))
    return groups

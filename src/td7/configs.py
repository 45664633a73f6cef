"""Configs as data: how a field is declared, checked, listed and set from `name=value` words."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from td7.errors import InputError, unknown

Config = TypeVar("Config")
Number = TypeVar("Number", int, float)


def setting(
    default: Any,
    doc: str,
    *,
    group: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] | None = None,
) -> Any:
    """A dataclass field that knows what it is, where the idea comes from, and its legal range."""
    if choices is not None:
        doc = f"{doc} ({', '.join(choices)})"
    limits = {"at_least": at_least, "above": above, "at_most": at_most, "choices": choices}
    return dataclasses.field(default=default, metadata={"doc": doc, "group": group, **limits})


_BREAKS: dict[str, Callable[[Any, float], bool]] = {
    "at_least": lambda value, bound: not value >= bound,
    "above": lambda value, bound: not value > bound,
    "at_most": lambda value, bound: not value <= bound,
}


def check_fields(config: Any) -> None:
    """Raises for the first field outside its range."""
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        choices = f.metadata.get("choices")
        if choices is not None:
            for word in value if isinstance(value, tuple) else (value,):
                if word not in choices:
                    raise unknown(f.name, str(word), choices, shown=len(choices))
        if isinstance(value, tuple) and len(set(value)) < len(value):
            raise InputError(f"{f.name}={','.join(map(str, value))} has one of them twice")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{f.name}={value} must be a finite number")
        if f.type is bool and not isinstance(value, bool):
            raise InputError(f"{f.name}={value} must be true or false")
        _check_limits(f.name, value, {word: f.metadata.get(word) for word in _BREAKS})


def _check_limits(name: str, value: float, limits: Mapping[str, float | None]) -> None:
    for word, bound in limits.items():
        if bound is not None and _BREAKS[word](value, bound):
            raise InputError(f"{name}={value} must be {word.replace('_', ' ')} {bound:g}")


def parse_number(name: str, value: Any, kind: type[Number], **limits: float) -> Number:
    """`value` as `kind`, within limits such as `at_least`."""
    found: Number = parse(name, value, kind)
    _check_limits(name, found, limits)
    return found


def as_words(option: str, given: Any) -> list[str]:
    """Some words, or a single one."""
    words = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{option} takes words, given {given!r}")
    return words


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """name: value of words such as `batch_size=128`."""
    values: dict[str, str] = {}
    for word in as_words("--set", settings):
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set takes field=value, given {word!r}")
        if name.strip() in values:
            raise InputError(f"--set names {name.strip()} twice")
        values[name.strip()] = value.strip()
    return values


def build_config(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """A config with these fields; strings are parsed to the field's type."""
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # a dataclass
    parsed = {}
    for name, value in values.items():
        if name not in names:
            raise unknown("hyperparameter", name, names, shown=len(names))
        parsed[name] = parse(name, value, hints[name])
    return cls(**parsed)


def parse_field(cls: type, name: str, value: Any) -> Any:
    """A field's value as the config `cls` would have it."""
    return getattr(build_config(cls, {name: value}), name)


def parse(name: str, value: Any, kind: type) -> Any:
    """`value` as `kind`; whole numbers may be written 1e6 or 25_000."""
    words, convert = _KINDS[kind]
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} takes {words}, given {value!r}") from None


def _float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError
    return number


def _int(value: Any) -> int:
    if _float(value) != int(_float(value)):
        raise ValueError
    try:
        return int(value)  # exact also where a float is not
    except ValueError:
        return int(_float(value))


def _bool(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError
    return str(value).lower() == "true"


def _words(value: Any) -> tuple[str, ...]:
    found = tuple(value.split(",") if isinstance(value, str) else value)
    if not found or len(set(found)) < len(found):
        raise ValueError
    return tuple(str(word).strip() for word in found)


_KINDS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    int: ("a whole number", _int),
    float: ("a number", _float),
    bool: ("true or false", _bool),
    str: ("text", str),
    tuple[str, ...]: ("words as a,b", _words),
}


def describe_fields(cls: type) -> dict[str, list[tuple[str, Any, str]]]:
    """group: (name, default, doc) of its fields; a class's own groups before its base's."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    # By their defaults: annotations are not among a class's names from Python 3.14 on.
    declared = [name for base in cls.__mro__ for name in vars(base)]
    groups: dict[str, list[tuple[str, Any, str]]] = {}
    for name in dict.fromkeys(name for name in declared if name in fields):
        f = fields[name]
        groups.setdefault(f.metadata["group"], []).append((name, f.default, f.metadata["doc"]))
    return groups

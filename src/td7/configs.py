"""Configs as data: how a field is declared, checked, listed and set from `name=value` words."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from td7.errors import InputError, unknown

Config = TypeVar("Config")


def hyper(
    default: Any,
    doc: str,
    *,
    group: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A dataclass field that knows what it is, where the idea comes from, and its legal range."""
    bounds = {"at_least": at_least, "above": above, "at_most": at_most}
    return dataclasses.field(default=default, metadata={"doc": doc, "group": group, **bounds})


def check(config: Any) -> None:
    """Raises for the first field outside its range."""
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        for word, breaks in (
            ("at_least", lambda value, bound: not value >= bound),
            ("above", lambda value, bound: not value > bound),
            ("at_most", lambda value, bound: not value <= bound),
        ):
            bound = f.metadata.get(word)
            if bound is not None and breaks(value, bound):
                raise InputError(f"{f.name}={value} must be {word.replace('_', ' ')} {bound:g}")


def with_settings(cls: type[Config], settings: Sequence[str]) -> Config:
    """A config from words such as `batch_size=128`."""
    values: dict[str, str] = {}
    for word in settings:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set takes field=value, given {word!r}")
        if name.strip() in values:
            raise InputError(f"--set names {name.strip()} twice")
        values[name.strip()] = value.strip()
    return with_values(cls, values)


def with_values(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """A config with these fields; strings are parsed to the field's type."""
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # a dataclass
    parsed = {}
    for name, value in values.items():
        if name not in names:
            raise unknown("hyperparameter", name, names, shown=len(names))
        parsed[name] = parse(name, value, hints[name])
    return cls(**parsed)


def parse(name: str, value: Any, kind: type) -> Any:
    """`value` as `kind`; whole numbers may be written 1e6 or 25_000."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    fits: Any = None
    if kind is bool:
        fits = {"true": True, "false": False}.get(str(value).lower())
    elif kind is str:
        fits = str(value)
    elif not isinstance(value, bool):
        try:
            fits = kind(value)
        except (TypeError, ValueError, OverflowError):
            fits = _number(value)
        if kind is int and fits is not None and fits != _number(value):
            fits = None
    if fits is None:
        raise InputError(f"{name} takes {words[kind]}, given {value!r}")
    return kind(fits)


def _number(value: Any) -> float | None:
    """A finite number that is whole if asked as an int later on, or nothing."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None


def described(cls: type) -> Iterator[tuple[str, str, Any, str]]:
    """(group, name, default, doc) of every field, in order."""
    for f in dataclasses.fields(cls):
        yield f.metadata["group"], f.name, f.default, f.metadata["doc"]

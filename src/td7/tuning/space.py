"""What a search varies: hyperparameters, each with a range or with choices.

    learning_rate=1e-4..1e-3:log    a range, here on a logarithmic scale
    discount=0.97,0.99,0.995        choices

No Optuna here: the space is checked, and printed, where it is not installed.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from td7.algorithms import Algorithm
from td7.algorithms.config import LearnerConfig, without_effect
from td7.configs import build_config, parse
from td7.errors import InputError, Option, unknown

SEARCH = Option("search")
RANGE = re.compile(r"(?P<low>[^.,:]*(?:\.\d+)?[^.,:]*)\.\.(?P<high>[^,:]+?)(?P<log>:log)?")
FORM = "LOW..HIGH, LOW..HIGH:log or choices as A,B"


@dataclass(frozen=True)
class Dimension:
    """A hyperparameter, and the values that it may take: a range or some choices."""

    name: str
    text: str  # as in --search
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    choices: tuple[Any, ...] = ()  # empty: a range
    is_whole: bool = False
    per_member: bool = True  # or else trials with different values train in different runs

    def __contains__(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return bool(self.low <= value <= self.high)


Space = Mapping[str, Dimension]  # by the names of the hyperparameters


def read_dimension(cls: type[LearnerConfig], name: str, given: Any) -> Dimension:
    """Read a dimension from text, or from a sequence of choices; raise for values out of bounds."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]
    if name not in known:
        raise unknown("hyperparameter", name, known, shown=len(known))
    kind = hints[name]
    if kind not in (int, float, bool, str):
        raise InputError(f"{SEARCH}: {name} holds several words, which cannot be searched")
    per_member = bool(cls.__dataclass_fields__[name].metadata.get("per_member"))
    text = given if isinstance(given, str) else ",".join(map(str, given))
    match = RANGE.fullmatch(text.strip())
    if match is None:
        values = [_value(cls, name, word.strip(), kind) for word in text.split(",")]
        if len(set(values)) < max(2, len(values)):
            raise InputError(f"{SEARCH}: {name}={text} takes {FORM}: two or more different values")
        return Dimension(name, text, choices=tuple(values), per_member=per_member)
    if kind not in (int, float):
        raise InputError(f"{SEARCH}: {name} has no range, given {text!r}; allowed: choices as A,B")
    low, high = (_value(cls, name, match[end].strip(), kind) for end in ("low", "high"))
    if not low < high:
        raise InputError(f"{SEARCH}: {name}={text} is empty: the first number must be the smaller")
    if match["log"] and low <= 0:
        raise InputError(f"{SEARCH}: {name}={text} needs positive numbers for a logarithmic scale")
    return Dimension(
        name, text, low, high, bool(match["log"]), is_whole=kind is int, per_member=per_member
    )


def _value(cls: type[LearnerConfig], name: str, word: str, kind: type) -> Any:
    """The value that a config holds; raise if it may not."""
    value = parse(f"{SEARCH}: {name}", word, kind)
    build_config(cls, {name: value})
    return value


def search_space(
    algorithm: Algorithm,
    config: LearnerConfig,
    given: Mapping[str, Any],
    fixed: Mapping[str, Any],
    *,
    with_defaults: bool,
    is_offline: bool,
) -> dict[str, Dimension]:
    """The space of `given` dimensions and, with `with_defaults`, of the algorithm's usual ones.

    `config` has the values at hand, of which `fixed` are the user's own. A usual dimension counts
    if it has an effect and contains the value at hand.
    """
    cls = algorithm.config
    space = {name: read_dimension(cls, name, text) for name, text in given.items()}
    for name in space:
        if name in fixed:
            raise InputError(f"{name} is given twice: in {Option('set')} and in {SEARCH}")
    values = {f.name: getattr(config, f.name) for f in fields(cls)}
    offline = algorithm.offline if is_offline else None

    def useless(dimension: Dimension) -> str:
        """Why it changes nothing; empty if it does, or if that depends on another dimension."""
        name, probes = dimension.name, dimension.choices or (dimension.low, dimension.high)
        needs = cls.__dataclass_fields__[name].metadata.get("needs") or {}
        if needs.keys() & space.keys():
            return ""
        reasons = [
            without_effect(cls, {**values, name: probe}, [name], offline=offline).get(name)
            for probe in probes
        ]
        return next((reason for reason in reasons if reason), "")

    for name, dimension in space.items():
        if why := useless(dimension):
            raise InputError(f"{SEARCH}: {name} has no effect {why}")
    for f in fields(cls) if with_defaults else ():
        text = f.metadata.get("search")
        if not text or f.name in space or f.name in fixed:
            continue
        dimension = read_dimension(cls, f.name, text)
        if values[f.name] in dimension and not useless(dimension):
            space[f.name] = dimension
    if not space:
        raise InputError(f"nothing to search: give {SEARCH} NAME={FORM}")
    return space


def scaled(dimension: Dimension, value: float) -> float:
    """Where a value lies within a range: from 0 to 1, on its scale."""
    low, high = dimension.low, dimension.high
    if dimension.is_log:
        low, high, value = (math.log(number) for number in (low, high, value))
    return (value - low) / (high - low)

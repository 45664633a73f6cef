"""Who the members of a run are: seeds or, where hyperparameters vary, seeds with values of these.

A member is known by its id: its seed or, where hyperparameters vary, its number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from td7.configs import parse, parse_number
from td7.errors import InputError, Option
from td7.files import typed
from td7.option_values import LARGEST_SEED, MOST_SEEDS, parse_seeds

Numbers = Mapping[str, tuple[float, ...]]  # hyperparameter: its value in each member


@dataclass(frozen=True)
class Members:
    seeds: tuple[int, ...]  # of each member; different ones, unless hyperparameters vary
    # The hyperparameters that vary, with their values in each member.
    varied: Numbers = field(default_factory=dict)
    numbers: tuple[int, ...] = ()  # of each member; empty if nothing varies

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def ids(self) -> tuple[int, ...]:
        return self.numbers or self.seeds

    @property
    def kind(self) -> str:
        """What an id is, also the name of the column that holds it."""
        return "member" if self.numbers else "seed"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tables have in addition, if hyperparameters vary."""
        return ("seed", *self.varied) if self.numbers else ()

    def cells(self, id: int) -> tuple[object, ...]:
        """What a member's rows have in these columns."""
        m = self.ids.index(id)
        return (self.seeds[m], *map(repr, self.values(m).values())) if self.numbers else ()

    def number(self, m: int) -> int | None:
        """The m-th member's, if members have numbers."""
        return self.numbers[m] if self.numbers else None

    def values(self, m: int) -> dict[str, float]:
        """The values of the m-th member."""
        return {name: values[m] for name, values in self.varied.items()}

    def description(self, m: int) -> str:
        """The m-th member's values and seed: `discount=0.9, seed 3`; empty if nothing varies."""
        if not self.numbers:
            return ""
        values = [f"{name}={value:g}" for name, value in self.values(m).items()]
        return ", ".join([*values, f"seed {self.seeds[m]}"])

    def name(self, id: int) -> str:
        """As messages name a member: `seed 3`, `member 7 (seed 3)`."""
        if not self.numbers:
            return f"seed {id}"
        return f"member {id} (seed {self.seeds[self.ids.index(id)]})"

    def chosen(self, path: object, seed: Any, number: Any = None) -> int:
        """The id of the member of a run or folder that a user chose, by seed or by number.

        The only one needs no choice.
        """
        if number is not None and not self.numbers:
            raise InputError(
                f"{path} has no member {number}, because nothing varies between its seeds; choose "
                f"one of the seeds {', '.join(map(str, self.seeds))}"
            )
        what, wanted = ("seed", seed) if number is None else ("member", number)
        column = self.seeds if number is None else self.numbers
        if wanted is not None:
            wanted = parse(Option(what), wanted, int)
        pairs = zip(self.ids, column, strict=True)
        matching = [id for id, value in pairs if wanted in (None, value)]
        if not matching:
            allowed = ", ".join(map(str, dict.fromkeys(column)))
            raise InputError(f"{path} has no {what} {wanted}; allowed: {allowed}")
        if len(matching) > 1:
            of = "" if wanted is None else f" with {what} {wanted}"
            raise InputError(
                f"{path} has several {self.kind}s{of}: choose one of "
                f"{', '.join(map(str, matching))}"
            )
        return matching[0]

    def configurations(self) -> list[list[int]]:
        """The members, by position, that differ in their seeds alone, in order."""
        groups: dict[tuple[float, ...], list[int]] = {}
        for m in range(len(self)):
            groups.setdefault(tuple(self.values(m).values()), []).append(m)
        return list(groups.values())

    def take(self, positions: Sequence[int]) -> "Members":
        """Some of them, by position; they keep their ids."""

        def taken(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(values[m] for m in positions)

        varied = {name: taken(values) for name, values in self.varied.items()}
        return Members(taken(self.seeds), varied, taken(self.numbers) if self.numbers else ())

    def to_json(self) -> dict[str, Any]:
        if not self.numbers:
            return {"seeds": list(self.seeds)}
        varied = {name: list(values) for name, values in self.varied.items()}
        return {"seeds": list(self.seeds), "numbers": list(self.numbers), "varied": varied}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Members":
        """Read what config.json or policy.json says of members; raise ValueError if it cannot be.

        Runs in which nothing varies have different seeds and no numbers.
        """
        seeds = typed("seeds", data["seeds"], list)
        listed = typed("numbers", data.get("numbers") or [], list)
        varied = typed("varied", data.get("varied") or {}, dict)
        if not listed:
            if varied:
                raise InputError("'varied' is given without 'numbers'")
            return cls(parse_seeds(seeds))
        numbers = _whole("numbers", listed)
        if len(set(numbers)) < len(numbers) or len(numbers) > MOST_SEEDS:
            raise InputError(f"'numbers' must be at most {MOST_SEEDS:,} different ones")
        columns = {name: typed(name, values, list) for name, values in varied.items()}
        if any(len(values) != len(numbers) for values in (seeds, *columns.values())):
            raise InputError("'numbers', 'seeds' and 'varied' must have one value per member")
        return cls(
            _whole("seeds", seeds),
            {name: tuple(_number(name, v) for v in values) for name, values in columns.items()},
            numbers,
        )


def _whole(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(parse_number(name, v, int, at_least=0, at_most=LARGEST_SEED) for v in values)


def _number(name: str, value: Any) -> float:
    kind = int if isinstance(value, int) else float
    number: float = parse(name, value, kind)
    return number

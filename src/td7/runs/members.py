"""Who the members of a run are: seeds or, where hyperparameters vary, seeds with values of these.

A member is known by its id: its seed or, where hyperparameters vary, its number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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

    def column_values(self) -> dict[str, dict[int, float]]:
        """The columns that tables have in addition, each with the value per id."""
        values = {"seed": self.seeds, **self.varied}
        return {name: dict(zip(self.ids, values[name], strict=True)) for name in self.columns}

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

    def seed(self, id: int) -> int:
        return self.seeds[self.ids.index(id)]

    def matching(self, path: object, seed: Any = None, number: Any = None) -> list[int]:
        """The ids of the members that a user chose, by seed, by number or by both; at least one.

        `path` is their run or folder, for messages.
        """
        if number is not None and not self.numbers:
            raise InputError(
                f"{path} has no member {number}, because nothing varies between its seeds; choose "
                f"one of the seeds {', '.join(map(str, self.seeds))}"
            )
        wanted = {
            what: parse(Option(what), value, int)
            for what, value in (("member", number), ("seed", seed))
            if value is not None
        }
        columns = {"member": self.numbers, "seed": self.seeds}
        positions = list(range(len(self)))
        for what, value in wanted.items():
            matching = [m for m in positions if columns[what][m] == value]
            if not matching:
                allowed = listed(dict.fromkeys(columns[what][m] for m in positions))
                owner = path if len(positions) == len(self) else f"member {number} of {path}"
                raise InputError(f"{owner} has no {what} {value}; allowed: {allowed}")
            positions = matching
        return [self.ids[m] for m in positions]

    def chosen(self, path: object, seed: Any, number: Any = None) -> int:
        """The only member that matches; the only one of all needs no choice."""
        matching = self.matching(path, seed, number)
        if len(matching) > 1:
            of = "" if seed is None else f" with seed {seed}"
            raise InputError(
                f"{path} has several {self.kind}s{of}: choose one of {listed(matching)}"
            )
        return matching[0]

    def configurations(self) -> list[list[int]]:
        """The members, by position, that differ in their seeds alone, in order.

        One that has the values and the seed of another belongs to a configuration of its own.
        """
        groups: dict[object, list[int]] = {}
        times: Counter[object] = Counter()
        for m, seed in enumerate(self.seeds):
            values = tuple(self.values(m).values())
            groups.setdefault((values, times[values, seed]), []).append(m)
            times[values, seed] += 1
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
        numbered = typed("numbers", data.get("numbers", []), list)
        varied = typed("varied", data.get("varied", {}), dict)
        if not numbered:
            if varied:
                raise InputError("'varied' is given without 'numbers'")
            return cls(parse_seeds(seeds))
        numbers = _whole("numbers", numbered)
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


def listed(numbers: Iterable[int]) -> str:
    """`0, 3`, or `0–7, 9`: three or more in a row are a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(text for part in parts for text in part)


def _whole(name: str, values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(parse_number(name, v, int, at_least=0, at_most=LARGEST_SEED) for v in values)


def _number(name: str, value: Any) -> float:
    kind = int if isinstance(value, int) else float
    number: float = parse(name, value, kind)
    return number

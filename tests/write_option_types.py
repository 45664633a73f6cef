"""Writes src/td7/option_types.py: `make option-types`, after a change of options or configs."""

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

from td7.algorithms import ALGORITHMS
from td7.cli.parser import with_default
from td7.option_values import to_word
from td7.options import StudyOptions, TrainOptions, in_python, kind_of_values
from td7.tuning.options import TuneOptions

FILE = Path(__file__).parents[1] / "src" / "td7" / "option_types.py"
HEAD = '''\
"""Every option and hyperparameter as a typed keyword argument, for editors and type checkers.

`make option-types` writes this file from the options and the algorithms' configs.
"""

from collections.abc import Iterable
from typing import TypedDict

from td7.rollouts.callables import MakeTask
from td7.types import AnyPath, Settings, Space, Varied, Wrapper
'''

# What Python callers may give besides a value of the field's own type, by the kind of its values.
ACCEPTED = {
    "env": "str | MakeTask",
    "env_kwargs": "Settings",
    "wrapper": "str | type | Wrapper | Iterable[str | type | Wrapper]",
    "seeds": "int | str | Iterable[int]",
    "set": "Settings",
    "vary": "Varied",
    "search": "Space",
    "rows": "str | Iterable[str]",
    "tasks": "str | Iterable[str]",
    **dict.fromkeys(("dataset", "datasets", "out", "start_from"), "AnyPath"),
    **dict.fromkeys(("workers", "processes", "threads", "wave"), "int | str"),
    "gpus": "float | str",
}
NAMES: dict[object, str] = {
    **{kind: kind.__name__ for kind in (bool, int, float, str)},
    tuple[str, ...]: "str | Iterable[str]",  # as words a,b or one by one
}


def text() -> str:
    """Return what the file should hold."""
    return "\n\n".join(
        [
            HEAD,
            _class("Hyperparameters", "TypedDict", "The union over all algorithms.", _settings()),
            _class("TrainKeywords", "Hyperparameters", "Of `td7.train`.", _options(TrainOptions)),
            _class("StudyKeywords", "Hyperparameters", "Of `td7.study`.", _options(StudyOptions)),
            _class("TuneKeywords", "Hyperparameters", "Of `td7.tune`.", _options(TuneOptions)),
        ]
    )


def _class(name: str, base: str, doc: str, fields: list[str]) -> str:
    return f'class {name}({base}, total=False):\n    """{doc}"""\n\n' + "".join(fields)


def _options(options: type) -> list[str]:
    """Return the fields of a class of options but for the first, which needs no keyword."""
    return [
        _field(f.name, _type(f), with_default(in_python(f.metadata["doc"]), _default(f.default)))
        for f in dataclasses.fields(options)[1:]
    ]


def _settings() -> list[str]:
    """Return a field per hyperparameter, which names the algorithms unless all have it."""
    by_name: dict[str, dict[str, Any]] = {}
    for algorithm in ALGORITHMS.values():
        for f in dataclasses.fields(algorithm.config):
            by_name.setdefault(f.name, {})[algorithm.name] = f
    result = []
    for name, fields in by_name.items():
        types = " | ".join(dict.fromkeys(map(_type, fields.values())))
        docs = dict.fromkeys(f.metadata["doc"] for f in fields.values())
        owners = {doc: [a for a, f in fields.items() if f.metadata["doc"] == doc] for doc in docs}
        lines = [
            doc if len(names) == len(ALGORITHMS) else f"{doc} – {', '.join(names)}"
            for doc, names in owners.items()
        ]
        result.append(_field(name, types, "; ".join(lines)))
    return result


def _type(field: "dataclasses.Field[Any]") -> str:
    if "values" in field.metadata and (kind := kind_of_values(field)) in ACCEPTED:
        return ACCEPTED[kind]
    return NAMES[field.type]


def _default(value: Any) -> str:
    return "" if isinstance(value, bool) or not value else to_word(value)


def _field(name: str, kind: str, doc: str) -> str:
    lines = textwrap.wrap(f'"""{doc}"""', 96)
    return "".join(f"    {line}\n" for line in (f"{name}: {kind}", *lines))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

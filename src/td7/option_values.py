"""Values of options that are more than one word or number: read from words, written as words."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from td7.configs import as_words, parse, parse_settings
from td7.errors import InputError, Option
from td7.types import Wrapper

MOST_SEEDS = 1_000  # more are probably a typing error
LARGEST_SEED = 2**63 - 1
MOST_DEPTH = 50  # levels of lists and objects in an argument of a task
SEEDS, ENV, ENV_KWARGS, WRAPPER, ROWS, START_FROM, VARY, SEARCH = map(
    Option, ("seeds", "env", "env_kwargs", "wrapper", "rows", "start_from", "vary", "search")
)


# -- words → values ------------------------------------------------------------------------------


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Return distinct seeds, at least 0, from 0-9, 0,3,7 or 0 3 7, an int, or ints."""
    if isinstance(value, str):
        seeds: list[int] = []
        for part in re.sub(r"\s*-\s*", "-", value.strip()).replace(",", " ").split():
            match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
            if not match:
                raise InputError(f"{SEEDS} takes 0-9, 0,3,7 or 0 3 7, given {value!r}")
            first, last = (parse(SEEDS, digits, int) for digits in (match[1], match[2] or match[1]))
            if last < first:
                raise InputError(f"{SEEDS} {part} runs backwards")
            end = min(last + 1, first + MOST_SEEDS + 1)  # one too many is enough for the check
            seeds.extend(range(first, end))
    else:
        items = [value] if isinstance(value, int) else value
        if not isinstance(items, Iterable):
            raise InputError(f"{SEEDS} takes whole numbers, given {value!r}")
        seeds = [parse(SEEDS, seed, int) for seed in islice(items, MOST_SEEDS + 1)]
    if not seeds:
        raise InputError(f"{SEEDS} is empty: at least one is needed")
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"at most {MOST_SEEDS:,} seeds can be trained at once")
    if min(seeds) < 0:
        raise InputError(f"{SEEDS} must be at least 0, given {min(seeds)}")
    if max(seeds) > LARGEST_SEED:
        raise InputError(f"{SEEDS} must be at most {LARGEST_SEED}, given {max(seeds)}")
    repeated = [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]
    if repeated:
        raise InputError(f"seed {repeated[0]} is given twice")
    return tuple(seeds)


def parse_env_kwargs(value: Any) -> dict[str, Any]:
    """Return keyword arguments from a mapping, or from words name=value with JSON or text."""
    if isinstance(value, Mapping):
        kwargs = {str(name): _json_value(str(name), v) for name, v in value.items()}
    else:
        kwargs = {}
        for word in as_words(ENV_KWARGS, value):
            name, equals, text = word.partition("=")
            if not equals:
                raise InputError(f"{ENV_KWARGS} takes name=value, given {word!r}")
            kwargs[name] = _from_json(name, text)
    if "render_mode" in kwargs:
        raise InputError(
            f"{ENV_KWARGS}: remove render_mode, as training draws nothing; "
            "`td7 evaluate RUN --video FILE` records a video"
        )
    return kwargs


def parse_wrappers(value: Any) -> list[Wrapper]:
    """Return wrappers from words `module:Class` or `module:Class:JSON`, or from classes."""
    words = [value] if isinstance(value, str | type | Wrapper) else value
    if not isinstance(words, Iterable):
        raise InputError(f"{WRAPPER} takes MODULE:CLASS, given {value!r}")
    return [word if isinstance(word, Wrapper) else _parse_wrapper(word) for word in words]


def _parse_wrapper(word: Any) -> Wrapper:
    if isinstance(word, type):
        if word.__module__ == "__main__" or "<locals>" in word.__qualname__:
            raise _not_of_a_module(word.__qualname__)
        return Wrapper(f"{word.__module__}:{word.__qualname__}")
    match = re.fullmatch(r"([\w.]+:[\w.]+)(?::(.*))?", str(word), re.DOTALL)
    if not match:
        raise InputError(f"{WRAPPER} takes MODULE:CLASS or MODULE:CLASS:JSON, given {word!r}")
    name, text = match.groups()
    if name.startswith("__main__:"):
        raise _not_of_a_module(name.partition(":")[2])
    try:
        kwargs = json.loads(text or "{}")
    except (ValueError, RecursionError):
        kwargs = None
    if not isinstance(kwargs, dict):
        raise InputError(
            f"{WRAPPER} {name} takes its arguments as a JSON object, such as "
            f'{name}:{{"scale": 0.1}}, given {text!r}'
        )
    return Wrapper(name, {n: _json_value(n, v, f"{WRAPPER} {name}") for n, v in kwargs.items()})


def _not_of_a_module(name: str) -> InputError:
    """Worker processes would not find it."""
    return InputError(
        f"{WRAPPER} takes a class of a module, given {name}, which a program or a function "
        "defines; let env be a function that returns the wrapped task"
    )


def _from_json(name: str, text: str) -> Any:
    """Return the value that `text` is as JSON, otherwise the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    except RecursionError:
        raise _too_deep(ENV_KWARGS, name) from None
    return _json_value(name, value)


def _json_value(name: str, value: Any, option: str = ENV_KWARGS) -> Any:
    """Return `value` without NumPy types; raise if config.json cannot hold it."""
    builtin = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    try:
        json.dumps(builtin)
    except (TypeError, ValueError):
        raise InputError(f"{option}: {name} is {value!r}; allowed: what JSON can hold") from None
    except RecursionError:
        raise _too_deep(option, name) from None
    if _is_deeper(builtin, MOST_DEPTH):  # Python's functions for copies and JSON are recursive
        raise _too_deep(option, name)
    return builtin


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        containers = [v for v in level if isinstance(v, dict | list | tuple)]
        level = [c for v in containers for c in (v.values() if isinstance(v, dict) else v)]
    return any(isinstance(v, dict | list | tuple) for v in level)


def _too_deep(option: str, name: str) -> InputError:
    return InputError(f"{option}: {name} is nested more than {MOST_DEPTH} levels deep")


def _read_settings(value: Any) -> dict[str, Any]:
    settings = value if isinstance(value, Mapping) else parse_settings(value)
    # As Python's own numbers: NumPy's float32 prints rounded, and JSON does not take it.
    return {n: v.item() if isinstance(v, np.generic) else v for n, v in settings.items()}


def _read_varied(value: Any) -> dict[str, tuple[Any, ...]]:
    """Return {name: values} from words `name=a,b`, or from a mapping to sequences."""
    if not isinstance(value, Mapping):
        words = parse_settings(value, VARY, "name=value,value")
        return {name: tuple(text.split(",")) for name, text in words.items()}
    varied = {}
    for name, values in value.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"{VARY}: {name} takes several values, given {values!r}")
        varied[name] = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    return varied


def _read_search(value: Any) -> dict[str, str]:
    """Return {name: text of a range or of choices} from words, or from a mapping."""
    if not isinstance(value, Mapping):
        return parse_settings(value, SEARCH, "name=LOW..HIGH or name=A,B")
    return {
        name: given if isinstance(given, str) else to_word([_plain(one) for one in given])
        for name, given in value.items()
    }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _read_tasks(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else as_words(ENV, value)
    tasks = tuple(word for word in words if word)
    repeated = [task for i, task in enumerate(tasks) if task in tasks[:i]]
    if repeated:
        raise InputError(f"{repeated[0]} is given twice")
    return tasks


def _read_run(value: Any) -> str:
    """Return the path of a run, which may be a `td7.Run`."""
    try:
        return os.fsdecode(value)
    except TypeError:
        raise InputError(f"{START_FROM} takes the folder of a run, given {value!r}") from None


# Kinds of options whose values are more than one word or number: how values are read, ...
READERS: dict[str, Callable[[Any], Any]] = {
    "env_kwargs": parse_env_kwargs,
    "wrapper": parse_wrappers,
    "seeds": parse_seeds,
    "set": _read_settings,
    "vary": _read_varied,
    "search": _read_search,
    "rows": lambda value: tuple(dict.fromkeys(as_words(ROWS, value))),
    "tasks": _read_tasks,
    "start_from": _read_run,
}

# ... and which words of the command line are further values, and not the command's argument.
IS_FURTHER_VALUE: dict[str, Callable[[str], bool]] = {
    "env_kwargs": lambda word: "=" in word,
    "seeds": lambda word: re.fullmatch(r"[\d,\s-]+", word) is not None,
    "set": lambda word: "=" in word,
    "vary": lambda word: "=" in word,
    "search": lambda word: "=" in word,
    "tasks": lambda word: re.fullmatch(r".+(-v\d+|\.hdf5),?", word) is not None,
}
COMMA_SEPARATED = ("seeds", "tasks")  # further values are joined to one word


# -- values → words ------------------------------------------------------------------------------


def to_word(value: Any) -> str:
    """Return the word that `td7.configs.parse` reads back as this value."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


def _json_word(value: Any) -> str:
    """Return the word that `parse_env_kwargs` reads back as this value."""
    if isinstance(value, str) and value.isprintable():
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value)


def one_word(value: Any) -> list[str]:
    return [to_word(value)]


# ... and how they are written as words.
WRITERS: dict[str, Callable[[Any], list[str]]] = {
    "env_kwargs": lambda kwargs: [f"{name}={_json_word(v)}" for name, v in kwargs.items()],
    "wrapper": lambda wrappers: list(map(str, wrappers)),
    "seeds": lambda seeds: [",".join(map(str, seeds))],
    "set": lambda settings: [f"{name}={to_word(value)}" for name, value in settings.items()],
    "vary": lambda varied: [f"{name}={to_word(values)}" for name, values in varied.items()],
    "search": lambda space: [f"{name}={to_word(values)}" for name, values in space.items()],
    "rows": list,
    "tasks": lambda tasks: [",".join(tasks)],
}

"""What rows are called: as the paper calls them, and by what differs from other rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from td7.configs import complete
from td7.reports.result import Result, paper_places, plain
from td7.runs.record import RunRecord
from td7.types import Task

# Options that no run of the paper has.
OPTIONS = OBSERVATIONS, WARM_START = "normalised observations", "warm start"
FEWEST_DIGITS = 3


def hyperparameters(record: RunRecord) -> Mapping[str, Any]:
    """With those that are newer than the run."""
    from td7.algorithms import ALGORITHMS

    if record.algorithm not in ALGORITHMS:  # a user's algorithm, which is not registered here
        return record.hyperparameters
    return complete(ALGORITHMS[record.algorithm].config, record.hyperparameters)


def changes(record: RunRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """name: value of what is neither the algorithm's nor the row's (`settings`)."""
    defaults = _defaults_of(record, settings) or {}
    changed = {
        name: value
        for name, value in record.hyperparameters.items()
        if name in defaults and _text(defaults[name]) != _text(value)
    }
    return {**changed, **{name: True for name, is_on in _options(record).items() if is_on}}


def _options(record: RunRecord) -> dict[str, bool]:
    return {
        OBSERVATIONS: record.normalise_observations,
        WARM_START: record.start_from is not None,
    }


def changes_text(changed: Mapping[str, Any]) -> tuple[str, ...]:
    """name=value, as `--set` takes them."""
    return tuple(n if n in OPTIONS else f"{n}={value}" for n, value in changed.items())


def _defaults_of(record: RunRecord, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The hyperparameters of a run that changes nothing; None for a user's algorithm."""
    from td7.algorithms import ALGORITHMS

    if record.algorithm not in ALGORITHMS:
        return None
    return _defaults(
        record.algorithm, tuple(settings.items()), record.dataset is not None, record.task.id
    )


@cache
def _defaults(
    name: str, settings: tuple[tuple[str, Any], ...], offline: bool, task: str
) -> dict[str, Any]:
    from td7.algorithms import algorithm
    from td7.configs import build_config

    chosen = algorithm(name)
    offline_settings = dict(chosen.offline or {}) if offline else {}
    config = build_config(chosen.config, {**offline_settings, **dict(settings)})
    return vars(config.for_task(Task(task)))


# -- sweeps --------------------------------------------------------------------------------------


def name_rows(results: Sequence[Result]) -> list[Result]:
    """Extend the labels of runs that name no row, by what differs among those of an algorithm.

    What these have in common, unlike the algorithm's defaults, becomes `shared`.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.label == result.algorithm_label:
            groups.setdefault((result.study, result.label), []).append(result)
    named: dict[Result, Result] = {}
    for group in groups.values():
        named |= _name_group(group)
    return [named.get(result, result) for result in results]


def _name_group(group: Sequence[Result]) -> dict[Result, Result]:
    """The results of one algorithm that name no row, with their labels."""
    settings = {result: _settings(result.record) for result in group}
    changed = {result: changes(result.record, {}) for result in group}
    differing = _differing(settings, changed)
    digits = {name: _digits([own.get(name) for own in settings.values()]) for name in differing}
    # Without changes, a label would be that of the paper's row, and compared with its numbers.
    is_the_papers = any(r.record.variant or r.place in paper_places(r.study) for r in group)
    named = {}
    for result in (result for result in group if not result.record.variant):
        own = changed[result]
        names = differing or (list(own) if is_the_papers else [])
        if is_the_papers and not own and _defaults_of(result.record, {}):
            names = []
        texts = [setting_text(n, settings[result].get(n), digits.get(n)) for n in names]
        label = plain(", ".join([result.label, *filter(None, texts)]))
        shared = tuple(setting_text(name, own[name]) for name in own if name not in names)
        named[result] = replace(result, label=label, shared=shared)
    return named


def _differing(
    settings: Mapping[Result, Mapping[str, Any]], changed: Mapping[Result, Mapping[str, Any]]
) -> list[str]:
    """The settings that have several values; of a registered algorithm, only changed ones."""
    names: dict[str, None] = {}
    for result, own in settings.items():
        names |= dict.fromkeys(changed[result] if _defaults_of(result.record, {}) else own)
    return [n for n in names if len({_text(own.get(n)) for own in settings.values()}) > 1]


def _settings(record: RunRecord) -> dict[str, Any]:
    defaults = _defaults_of(record, {}) or {}
    return {**defaults, **record.hyperparameters, **_options(record)}


def setting_text(name: str, value: Any, digits: int | None = None) -> str:
    """`learning_rate 0.0003`; "" for an option that is off."""
    if name in OPTIONS:
        return name if value else ""
    return f"{name} {_text(value, digits or _digits([value]))}"


def value_texts(values: Sequence[Any]) -> list[str]:
    """Values as labels show them, with the fewest digits that tell them apart, at least three."""
    digits = _digits(values)
    return [_text(value, digits) for value in values]


def _digits(values: Sequence[Any]) -> int:
    """The fewest digits, at least three, that tell the values apart."""
    apart = len({_text(value) for value in values})
    return next(
        digits
        for digits in range(FEWEST_DIGITS, 18)
        if digits == 17 or len({_text(value, digits) for value in values}) == apart
    )


def _text(value: Any, digits: int = 17) -> str:
    """A number with this many digits; other values as JSON, a text without quotes."""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(_text(one, digits) for one in value)})"
    return value if isinstance(value, str) else json.dumps(value, default=str)

"""Whether a run's task, as it is now, is the one that the run began with.

config.json keeps a fingerprint of the task. Where it differs, results may not be comparable, which
a command says in one line; it never refuses.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from td7.configs import parse_number
from td7.errors import MissingModule, UnknownTask, one_line
from td7.files import typed
from td7.types import Fingerprint, ModuleSource, Probe

# Machines and versions of libraries round differently, which is no change of a task.
RELATIVE, ABSOLUTE = 1e-4, 1e-6


# -- config.json -----------------------------------------------------------------------------------


def read_fingerprint(data: Mapping[str, Any]) -> Fingerprint:
    """Return the fingerprint that `asdict` turned into JSON."""
    modules = typed("modules", data["modules"], dict)
    packages = typed("packages", data["packages"], dict)
    probe = data["probe"]
    return Fingerprint(
        {name: _source(typed("a module", source, dict)) for name, source in modules.items()},
        {name: typed("a version", version, str) for name, version in packages.items()},
        None if probe is None else _probe(typed("probe", probe, dict)),
    )


def _source(data: Mapping[str, Any]) -> ModuleSource:
    return ModuleSource(*(typed(name, data[name], str) for name in ("sha256", "folder")))


def _probe(data: Mapping[str, Any]) -> Probe:
    observations = typed("observations", data["observations"], list)
    return Probe(
        tuple(_numbers("observations", observation) for observation in observations),
        _numbers("rewards", data["rewards"]),
    )


def _numbers(name: str, data: Any) -> tuple[float, ...]:
    return tuple(parse_number(name, number, float) for number in typed(name, data, list))


# -- what differs ----------------------------------------------------------------------------------


def differences(then: Fingerprint | None, now: Fingerprint | None) -> list[str]:
    """Return what differs, in words; only what both know is compared."""
    if then is None or now is None:
        return []
    modules = [
        f"the source of module {name!r}"
        for name, source in now.modules.items()
        if name in then.modules and then.modules[name].sha256 != source.sha256
    ]
    packages = [
        f"the version of {name} ({one_line(then.packages[name], 40)} → {version})"
        for name, version in now.packages.items()
        if name in then.packages and then.packages[name] != version
    ]
    if then.probe is None or now.probe is None:
        return modules + packages
    played = [
        *_differing("observation", 0, then.probe.observations, now.probe.observations),
        *_differing("reward", 1, _rows(then.probe.rewards), _rows(now.probe.rewards)),
    ]
    found = modules + packages
    if found and not played:
        return [*found[:-1], f"{found[-1]}, but not the first steps of an episode"]
    return found + played


def _rows(numbers: Sequence[float]) -> list[tuple[float, ...]]:
    return [(number,) for number in numbers]


def _differing(
    name: str,
    first_step: int,
    then: Sequence[Sequence[float]],
    now: Sequence[Sequence[float]],
) -> Iterator[str]:
    """Yield where rows of a probe differ most, if they do by more than rounding."""
    if [len(row) for row in then] != [len(row) for row in now]:
        yield f"the number of {name}s in the first steps of an episode"
        return
    before, after = np.array(then, np.float64), np.array(now, np.float64)
    difference = np.abs(after - before)
    scale = np.maximum(np.abs(before), np.abs(after)).max(axis=0)
    difference[difference <= ABSOLUTE + RELATIVE * scale] = 0
    if difference.any():
        step = first_step + int(difference.max(axis=1).argmax())
        yield f"the {name} at step {step} of an episode (by {difference.max():.2g})"


def change_warning(then: Fingerprint | None, now: Fingerprint | None) -> str:
    """Return a line for a run whose task is not as it was; "" if nothing differs."""
    changes = differences(then, now)
    if not changes:
        return ""
    return f"changed since the run began: {', '.join(changes)}; results may not be comparable"


class ProbeCheck:
    """Warns of a resumed run whose probe is not as it was; the first of its probes counts."""

    def __init__(self, then: Fingerprint | None, warn: Callable[[str], None]) -> None:
        self._then = then
        self._warn = warn

    def __call__(self, probe: Probe) -> None:
        then, self._then = self._then, None
        if then is not None:
            warning = change_warning(Fingerprint({}, {}, then.probe), Fingerprint({}, {}, probe))
            if warning:
                self._warn(warning)


# -- modules that are missing ----------------------------------------------------------------------


@contextmanager
def folders_named(fingerprint: Fingerprint | None) -> Iterator[None]:
    """Errors about a missing module say where it was when the run began."""
    modules = {} if fingerprint is None else fingerprint.modules
    try:
        yield
    except MissingModule as error:
        if error.module in modules:
            folder = one_line(modules[error.module].folder)
            error.args = (
                f"{error}; when the run began it was in {folder}: change to that folder, or set "
                f"PYTHONPATH={shlex.quote(folder)}",
            )
        raise
    except UnknownTask as error:
        if modules:
            name, source = next(iter(modules.items()))
            where = f"module {one_line(name)!r} in {one_line(source.folder)}"
            error.args = (f"{error.args[0]}; when the run began it used the {where}",)
        raise

"""What a run folder records about its run: config.json, how the run ended, software versions."""

import csv
import hashlib
import importlib.metadata
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from td7 import __version__
from td7.configs import parse_number
from td7.errors import InputError, one_line
from td7.files import FileDigest, check_no_links, read_json, read_sealed, typed, write_sealed
from td7.options import parse_seeds
from td7.types import Task

FINISHED = "finished.json"
SEALED = ("config.json", "evaluations.csv", "episodes.csv", "metrics.csv", "timings.csv")
# What a folder holds before it has its config.json.
BEFORE_CONFIG = {".lock", "config.mac", ".config.mac.tmp", ".config.json.tmp"}


@dataclass(frozen=True)
class DatasetRecord:
    """The data that a run learns from."""

    source: str  # a path, or Minari's id
    rows: int
    sha256: str  # of the rows
    self_collected: bool  # by this package, not D4RL's or Minari's
    mean_return: float | None = None  # of its complete episodes, if it has any
    d4rl: str | None = None  # D4RL's name of the file, "" if it has none; None: not checked


@dataclass(frozen=True)
class RunRecord:
    """config.json of a run folder, as all readers need it; `RunConfig` adds the learner's types."""

    folder: Path
    algorithm: str
    variant: str  # STUDY/LABEL that the hyperparameters come from, if any
    task: Task
    seeds: tuple[int, ...]
    hyperparameters: Mapping[str, Any]
    dataset: DatasetRecord | None  # None: the run collects its own data
    steps: int
    evaluate_every: int
    evaluation_episodes: int
    data: dict[str, Any]  # the whole file

    @classmethod
    def read(cls, folder: Path) -> "RunRecord":
        """Read `folder`/config.json; an `InputError` says what is missing or wrong in it."""
        data = _read_config(folder)
        try:
            return cls(folder, **_fields(data), data=data)
        except (KeyError, TypeError, ValueError) as error:
            raise config_error(folder, error) from None


def config_error(folder: Path, error: Exception) -> InputError:
    """Return the one-line error of a reader that does not find what it needs in config.json."""
    reason = f"it has no {error}" if isinstance(error, KeyError) else one_line(error)
    return InputError(f"{folder / 'config.json'} is damaged: {reason}")


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise InputError(f"{folder} does not exist")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a run folder")
    check_no_links(folder)
    try:
        data: dict[str, Any] = read_json(folder / "config.json")
        return data
    except FileNotFoundError:
        names = {entry.name for entry in folder.iterdir()}
    if names and names <= BEFORE_CONFIG:
        raise InputError(
            f"{folder} holds a run that never began; start it with `td7 train … --out {folder}`"
        )
    raise InputError(f"{folder} holds no run: it has no config.json")


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed fields; `variant` and `dataset` are newer than some runs."""
    task, dataset = typed("task", data["task"], dict), data.get("dataset")
    counts = ("steps", "evaluate_every", "evaluation_episodes")
    return {
        "algorithm": typed("algorithm", data["algorithm"], str),
        "variant": typed("variant", data.get("variant", ""), str),
        "task": Task(typed("task id", task["id"], str), typed("kwargs", task["kwargs"], dict)),
        "seeds": parse_seeds(typed("seeds", data["seeds"], list)),
        "hyperparameters": typed("hyperparameters", data["hyperparameters"], dict),
        "dataset": DatasetRecord(**typed("dataset", dataset, dict)) if dataset else None,
        **{name: parse_number(name, data[name], int, at_least=1) for name in counts},
    }


def run_and_step(path: Path) -> tuple[Path, int | None]:
    """Split RUN/policies/STEP into the run folder and the step; of RUN, the step is None."""
    # At most 18 digits: int() refuses thousands of them.
    is_kept = path.parent.name == "policies" and re.fullmatch("[0-9]{1,18}", path.name)
    return (path.parent.parent, int(path.name)) if is_kept else (path, None)


def finish(path: Path, steps: int) -> None:
    """Mark a run as finished; what it recorded has checksums from now on."""
    # The folder of one of several processes has no config.json.
    names = [name for name in SEALED if (path / name).exists()]
    files = {name: FileDigest.of(path / name)._asdict() for name in names}
    write_sealed(path / FINISHED, {"steps": steps, "files": files})


def finished_steps(path: Path) -> int | None:
    """Return the steps that a finished run made; None if it is not finished."""
    try:
        return parse_number("steps", read_sealed(path / FINISHED)["steps"], int, at_least=1)
    except FileNotFoundError:
        return None
    except KeyError:
        raise InputError(f"{path / FINISHED} is damaged: it has no 'steps'") from None


def changes_since_finish(path: Path) -> list[str]:
    """Return a line per file of a finished run that is not as it was when the run ended."""
    try:
        files = read_sealed(path / FINISHED).get("files", {})  # runs before had no checksums
        digests = {path / name: FileDigest(**digest) for name, digest in files.items()}
    except FileNotFoundError:
        return []
    except (TypeError, AttributeError):
        raise InputError(f"{path / FINISHED} is damaged: its files have no checksums") from None
    return [
        f"{file.name} was changed after the run had ended"
        for file, digest in digests.items()
        if digest.mismatch(file)
    ]


def total_seconds(path: Path) -> float | None:
    """Return how long a finished run took; None if it is not finished or its time is unknown."""
    if finished_steps(path) is None:
        return None
    with (path / "timings.csv").open() as file:
        seconds = {row["phase"]: float(row["seconds"]) for row in csv.DictReader(file)}
    return seconds.get("total")


def versions() -> dict[str, str]:
    """Return the versions of the software that a result depends on."""
    packages = ("torch", "numpy", "gymnasium", "mujoco")
    return {
        "td7": __version__,
        "source": source(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


@cache
def source() -> str:
    """Return a digest of the package's Python files: it tells edited copies of a version apart."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def command_line() -> str:
    """Return the command of this process for a shell; `python -m td7` becomes `td7`."""
    name = Path(sys.argv[0])
    is_module = name.name == "__main__.py" and name.parent.name == "td7"
    return shlex.join(["td7" if is_module else name.name, *sys.argv[1:]])

"""What a run folder records about its run: config.json, how the run ended, software versions."""

import csv
import hashlib
import importlib.metadata
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from td7 import __version__
from td7.configs import parse_number
from td7.errors import InputError, one_line
from td7.files import FileDigest, check_no_links, read_json, read_sealed, typed, write_sealed
from td7.runs.fingerprint import read_fingerprint
from td7.runs.members import Members
from td7.seeding import SEED_BITS
from td7.types import Fingerprint, Task, Wrapper

FINISHED = "finished.json"
TABLES = ("evaluations.csv", "episodes.csv", "metrics.csv")
SEALED = ("config.json", *TABLES, "timings.csv")
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
class StartRecord:
    """The run whose learner another one begins with."""

    source: str  # its folder
    sha256: str  # of its learner's state, all seeds
    config_sha256: str  # of its config.json
    commit: str | None  # of td7 when it began, if it is known
    seeds: tuple[int, ...]  # of it, one per seed of the run that begins
    steps: tuple[int, ...]  # that these were trained for; updates if it learned from a dataset


@dataclass(frozen=True)
class RunRecord:
    """config.json of a run folder, as all readers need it; `RunConfig` adds the learner's types."""

    folder: Path
    algorithm: str
    variant: str  # STUDY/LABEL that the hyperparameters come from, if any
    task: Task
    members: Members
    hyperparameters: Mapping[str, Any]  # but for those that vary between members
    dataset: DatasetRecord | None  # None: the run collects its own data
    start_from: StartRecord | None  # None: with new networks
    normalise_observations: bool
    fingerprint: Fingerprint | None  # of the task when the run began; older runs have none
    steps: int
    evaluate_every: int
    evaluation_episodes: int
    versions: Mapping[str, Any]  # of the software; empty if they are not recorded
    hardware: Mapping[str, Any]  # likewise
    data: dict[str, Any]  # the whole file

    @property
    def seeds(self) -> tuple[int, ...]:
        """The members' seeds, each once."""
        return tuple(dict.fromkeys(self.members.seeds))

    def configurations(self) -> list["RunRecord"]:
        """A record per configuration, as of a run of these hyperparameters and members alone.

        Of a run in which nothing varies, this is the record itself.
        """
        members = self.members
        return [
            replace(
                self,
                members=replace(members.take(positions), varied={}),
                hyperparameters={**self.hyperparameters, **members.values(positions[0])},
            )
            for positions in (members.configurations() if members.numbers else ())
        ] or [self]

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
    """Return the typed fields; some are newer than some runs."""
    task, dataset = typed("task", data["task"], dict), data.get("dataset")
    start, fingerprint = data.get("start_from"), data.get("fingerprint")
    counts = ("steps", "evaluate_every", "evaluation_episodes")
    members = Members.from_json(data)
    hyperparameters = typed("hyperparameters", data["hyperparameters"], dict)
    for name in members.varied:
        if type(hyperparameters.get(name)) not in (int, float):
            raise InputError(f"'varied' has {name!r:.99}, which is no number of 'hyperparameters'")
    return {
        "algorithm": typed("algorithm", data["algorithm"], str),
        "variant": typed("variant", data.get("variant", ""), str),
        "task": read_task(task),
        "members": members,
        "hyperparameters": hyperparameters,
        "dataset": _dataset(typed("dataset", dataset, dict)) if dataset else None,
        "start_from": None if start is None else _start(typed("start_from", start, dict)),
        "normalise_observations": typed(
            "normalise_observations", data.get("normalise_observations", False), bool
        ),
        "fingerprint": (
            None
            if fingerprint is None
            else read_fingerprint(typed("fingerprint", fingerprint, dict))
        ),
        **{name: parse_number(name, data[name], int, at_least=1) for name in counts},
        **{name: typed(name, data.get(name, {}), dict) for name in ("versions", "hardware")},
    }


def read_task(data: Mapping[str, Any]) -> Task:
    """Return a task that `asdict` turned into JSON; older ones have no wrappers, and long seeds."""
    bits = data.get("seed_bits", SEED_BITS[0])
    return Task(
        typed("task id", data["id"], str),
        typed("kwargs", data["kwargs"], dict),
        read_wrappers(data.get("wrappers", [])),
        parse_number("seed_bits", bits, int, at_least=1, at_most=SEED_BITS[0]),
    )


def read_wrappers(data: Any) -> tuple[Wrapper, ...]:
    """Return wrappers that `asdict` turned into JSON."""
    return tuple(
        Wrapper(typed("wrapper", w["name"], str), typed("kwargs", w["kwargs"], dict))
        for w in (typed("wrapper", w, dict) for w in typed("wrappers", data, list))
    )


def _dataset(data: Mapping[str, Any]) -> DatasetRecord:
    record = DatasetRecord(**data)
    for name in ("source", "sha256"):
        typed(name, data[name], str)
    if record.d4rl is not None:
        typed("d4rl", record.d4rl, str)
    typed("self_collected", record.self_collected, bool)
    parse_number("rows", record.rows, int, at_least=1)
    if record.mean_return is not None:
        parse_number("mean_return", record.mean_return, float)
    return record


def _start(data: Mapping[str, Any]) -> StartRecord:
    def numbers(name: str) -> tuple[int, ...]:
        values = typed(name, data[name], list)
        return tuple(parse_number(name, value, int, at_least=0) for value in values)

    return StartRecord(
        source=typed("source", data["source"], str),
        sha256=typed("sha256", data["sha256"], str),
        config_sha256=typed("config_sha256", data["config_sha256"], str),
        commit=None if data["commit"] is None else typed("commit", data["commit"], str),
        seeds=numbers("seeds"),
        steps=numbers("steps"),
    )


def uses_tf32(data: Mapping[str, Any]) -> bool:
    """Whether a GPU's products of float32 matrices are TF32, as in every run before it was said."""
    usual = data.get("device") == "cuda" and data.get("precision") == "float32"
    return typed("tf32", data.get("tf32", usual), bool)


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
        return parse_number("steps", _read_finish(path)["steps"], int, at_least=1)
    except FileNotFoundError:
        return None
    except KeyError:
        raise InputError(f"{path / FINISHED} is damaged: it has no 'steps'") from None


def changes_since_finish(path: Path) -> list[str]:
    """Return a line per file of a finished run that is there, but not as when the run ended."""
    return [
        f"{name} was changed after the run had ended"
        for name in _changed(path)
        if (path / name).exists()
    ]


def check_tables(path: Path) -> None:
    """Raise if a table of a finished run was changed: it would get the checksum of a good one."""
    for name in _changed(path):
        if name in TABLES:
            raise InputError(
                f"{path / name} was changed after the run had ended; put it back, or delete "
                f"{path / FINISHED} to continue with the table as it is"
            )


def _changed(path: Path) -> list[str]:
    try:
        # Runs before had no checksums.
        files = typed("its files", _read_finish(path).get("files", {}), dict)
        digests = {name: FileDigest(**digest) for name, digest in files.items()}
    except FileNotFoundError:
        return []
    except (TypeError, InputError):
        raise InputError(f"{path / FINISHED} is damaged: its files have no checksums") from None
    if unknown := digests.keys() - set(SEALED):  # perhaps a path outside the folder
        raise InputError(
            f"{path / FINISHED} is damaged: {min(unknown)!r:.99} is not a file of a run"
        )
    return [name for name, digest in digests.items() if digest.mismatch(path / name)]


def _read_finish(path: Path) -> dict[str, Any]:
    return read_sealed(path / FINISHED, "files")


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


@cache
def commit() -> dict[str, Any] | None:
    """Return the commit of the package's files, and whether they equal it; None if unknown."""
    folder = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # or it only lies in a repository
        return {"id": git("rev-parse", "HEAD"), "is_clean": not git("status", "--porcelain", ".")}
    except (OSError, subprocess.SubprocessError):
        return None


def command_line() -> str:
    """Return the command of this process for a shell; `python -m td7` becomes `td7`."""
    name = Path(sys.argv[0])
    is_module = name.name == "__main__.py" and name.parent.name == "td7"
    return shlex.join(["td7" if is_module else name.name, *sys.argv[1:]])

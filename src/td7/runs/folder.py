"""The run folder: what is in it, and how its files are written and cut back."""

import csv
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from td7 import __version__
from td7.errors import InputError, RunError
from td7.files import write, write_json, writing_to

EVALUATIONS = ("seed", "step", "episode", "return", "length")
EPISODES = ("seed", "step", "episode", "return", "length")
TIMINGS = ("phase", "seconds", "times")
FINISHED = "finished.json"
ERROR = "error.txt"
IN_USE = "is in use by another td7 process"  # a run folder, for one who comes second


Keep = Callable[[int, int, int], bool]  # of a row's first three columns


class Table:
    """An append-only CSV file that begins with the seed and two more whole numbers."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.counts: Counter[int] = Counter()  # rows so far, a seed
        self.listeners: list[Callable[[Sequence[str], Sequence[Sequence[object]]], None]] = []
        self._file: IO[str] | None = None

    def append(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            writer.writerow(row)
            self.counts[int(str(row[0]))] += 1
        if self._file is None:
            self._file = self.path.open("a", encoding="utf-8", newline="")
        self._file.write(text.getvalue())
        self._file.flush()
        for listener in self.listeners:
            listener(self.columns, rows)

    def cut_back(self, keep: Keep, counts: Mapping[int, int]) -> None:
        """Forgets all rows but those that `keep` says; they must be as many as `counts`."""
        kept = [",".join(self.columns)]
        self.counts = Counter()
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        header, *lines = text.splitlines() or [""]
        columns = tuple(header.split(","))
        missing = self.columns[len(columns) :]  # newer than the file: empty in its rows
        for line in lines if (*columns, *missing) == self.columns else ():
            words = line.split(",")
            # A row that a crash cut short or spoilt is always among those to forget.
            whole = len(words) == len(columns) and all(w.isdecimal() for w in words[:3])
            if whole and keep(*map(int, words[:3])):
                self.counts[int(words[0])] += 1
                kept.append(line + "," * len(missing))
        if any(self.counts[seed] != count for seed, count in counts.items()):
            raise InputError(f"{self.path} has other rows than its snapshot knows of")
        self._rewrite(kept)

    def gather(self, files: Sequence[Path]) -> None:
        """The rows of these files, which have the same columns, instead of its own."""
        found = [line for file in files for line in file.read_text().splitlines()[1:]]
        self.counts = Counter(int(line.partition(",")[0]) for line in found)
        self._rewrite([",".join(self.columns), *found])

    def sort(self) -> None:
        """Rows by their first three columns: the same file whatever the timing was."""
        header, *lines = self.path.read_text().splitlines()
        lines.sort(key=lambda line: [int(number) for number in line.split(",", 3)[:3]])
        self._rewrite([header, *lines])

    def _rewrite(self, lines: Sequence[str]) -> None:
        self.close()
        write(self.path, "".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class RunFolder:
    """One run's files. Only one process at a time may write to it."""

    def __init__(self, path: Path, *, scored: bool) -> None:
        self.path = path
        evaluations = (*EVALUATIONS, "score") if scored else EVALUATIONS
        self.tables = {
            "evaluations": Table(path / "evaluations.csv", evaluations),
            "episodes": Table(path / "episodes.csv", EPISODES),
        }
        with writing_to(path):
            self._lock = (path / ".lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError(f"{path} {IN_USE}") from None

    def listen(self, listener: Callable[..., None]) -> None:
        """Has every table's name, columns and new rows told, as they come."""
        for name, table in self.tables.items():
            table.listeners.append(partial(listener, name))

    def add_metrics(self, names: Sequence[str]) -> None:
        """The table of these."""
        columns = ("seed", "step", "update", *names)
        self.tables["metrics"] = Table(self.path / "metrics.csv", columns)

    def cut_back(self, keep: Mapping[str, Keep], counts: Mapping[str, Mapping[str, int]]) -> None:
        """All tables as a snapshot knew them; those without a `keep`, empty."""
        for name, table in self.tables.items():
            known = {int(seed): n for seed, n in counts.get(name, {}).items()}
            table.cut_back(keep.get(name, lambda *_: False), known)

    def gather(self, folders: Sequence[Path]) -> None:
        """All tables, from those of other run folders."""
        for table in self.tables.values():
            table.gather([folder / table.path.name for folder in folders])

    def counts(self) -> dict[str, dict[str, int]]:
        """Rows a table and seed, all of them safely on the disk."""
        for table in self.tables.values():
            table.sync()
        return {
            name: {str(seed): n for seed, n in table.counts.items()}
            for name, table in self.tables.items()
        }

    def write_timings(self, seconds: Mapping[str, float], times: Mapping[str, int]) -> None:
        rows = [TIMINGS, *((phase, f"{s:.3f}", times[phase]) for phase, s in seconds.items())]
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        write(self.path / "timings.csv", text.encode())

    def begin(self) -> None:
        """What told how the run ended is no longer true."""
        for name in (FINISHED, ERROR):
            (self.path / name).unlink(missing_ok=True)

    def finish(self, steps: int) -> None:
        """The last thing that a run does."""
        for table in self.tables.values():
            table.sort()
        write_json(self.path / FINISHED, {"steps": steps})

    def close(self) -> None:
        for table in self.tables.values():
            table.close()
        self._lock.close()


def with_details_kept(error: RunError, path: Path) -> RunError:
    """The error that ended a run, its details in the run folder, which its line then names."""
    if not error.details:
        return error
    file = path / ERROR
    try:
        write(file, error.details.encode(errors="backslashreplace"))
    except OSError:  # the line matters more than what it would name
        return error
    return RunError(f"{error} ({file} has its traceback)", error.details)


def create(path: Path, record: Mapping[str, Any]) -> None:
    """A new run folder with its config.json; refuses one that holds anything."""
    if (path / "config.json").exists():
        raise InputError(f"{path} already holds a run; `td7 resume {path}` goes on with it")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, not a folder")
    with writing_to(path):
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise InputError(f"{path} is not empty; give --out a new folder")
    write_config(path, record)


def folder_of(path: Path) -> tuple[Path, int | None]:
    """A run folder, and the step of policies that it kept, if they are meant."""
    is_kept = path.parent.name == "policies" and path.name.isdigit()
    return (path.parent.parent, int(path.name)) if is_kept else (path, None)


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a run folder."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_dir():
        raise InputError(f"{path} is a file, not a run folder")
    file = path / "config.json"
    try:
        data = json.loads(file.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} holds no run: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{file} is damaged: it holds no JSON object")
    return data


def finished_steps(path: Path) -> int | None:
    """The steps that a finished run made; None for others."""
    try:
        return int(json.loads((path / FINISHED).read_text())["steps"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / FINISHED} is damaged: {error}") from None


def total_seconds(path: Path) -> float | None:
    """How long a finished run took; None for others."""
    if finished_steps(path) is None:
        return None
    with (path / "timings.csv").open() as file:
        found = {row["phase"]: float(row["seconds"]) for row in csv.DictReader(file)}
    return found.get("total")


def write_config(path: Path, record: Mapping[str, Any]) -> None:
    with writing_to(path):
        write_json(path / "config.json", record)


def versions() -> dict[str, str]:
    """What a result depends on besides its config."""
    packages = ("torch", "numpy", "gymnasium", "mujoco")
    found = {name: importlib.metadata.version(name) for name in packages}
    own = {"td7": __version__, "source": source(), "python": platform.python_version()}
    return {**own, **found}


@cache
def source() -> str:
    """Tells this program from an edited one of the same version: a digest of its Python files."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def command() -> str:
    """What started this, to be given to a shell again, whether by `td7` or by `python -m td7`."""
    name = Path(sys.argv[0])
    is_module = name.name == "__main__.py" and name.parent.name == "td7"
    return shlex.join(["td7" if is_module else name.name, *sys.argv[1:]])

"""The run folder: its tables, lock and markers, and how they are written and truncated."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from td7.errors import InputError, RunError, one_line
from td7.files import (
    FolderLock,
    as_json,
    check_no_links,
    make_folder,
    open_for_appending,
    write,
    writing_to,
)
from td7.runs.members import Members
from td7.runs.record import BEFORE_CONFIG, FINISHED, finish
from td7.runs.trust import sign
from td7.types import Probe

# After the first column, which holds the id of the member: its seed, or its number.
EVALUATIONS = ("step", "episode", "return", "length")
EPISODES = ("step", "episode", "return", "length")
TIMINGS = ("phase", "seconds", "times")
ERROR = "error.txt"

Key = tuple[int, int, int]  # a row's first three columns, which are its own
Keep = Callable[[int, int, int], bool]  # whether to keep a row with these first three columns
TableListener = Callable[[Sequence[str], Sequence[Sequence[object]]], None]  # columns, new rows


class Table:
    """An append-only CSV file whose first three columns are a member's id and two more integers."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.counts: Counter[int] = Counter()  # rows per member
        self.listeners: list[TableListener] = []
        self._file: FileIO | None = None

    def append(self, rows: Sequence[Sequence[object]]) -> None:
        """Write rows, so that other processes can read them, and pass them to the listeners.

        After an error, of a listener or of a full disk, the table is as before.
        """
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        if self._file is None:
            self._file = open_for_appending(self.path)
        before = self._file.seek(0, os.SEEK_END)
        try:
            _write_all(self._file, text.getvalue().encode())
            for listener in self.listeners:
                listener(self.columns, rows)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                self._file.truncate(before)
            raise
        self.counts.update(int(str(row[0])) for row in rows)

    def cut_back(self, keep: Keep, counts: Mapping[int, int]) -> None:
        """Remove the rows that are newer than a snapshot, which knows `counts` rows per seed."""
        lines, self.counts = self._older(keep, counts)
        self._rewrite([",".join(self.columns), *lines])

    def check(self, keep: Keep, counts: Mapping[int, int]) -> None:
        """Raise an InputError if the table cannot be cut back to a snapshot."""
        self._older(keep, counts)

    def _older(self, keep: Keep, counts: Mapping[int, int]) -> tuple[list[str], Counter[int]]:
        """Return the rows that are older than a snapshot, and how many each seed has."""
        kept: list[str] = []
        kept_counts: Counter[int] = Counter()
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        header, *lines = text.splitlines() or [""]
        columns = tuple(header.split(","))
        missing = self.columns[len(columns) :]  # newer than the file; empty in its rows
        for line in lines if (*columns, *missing) == self.columns else ():
            # A row that a crash cut short or damaged is newer than the snapshot, and so is one of
            # a seed of which the snapshot counts none.
            key = _key(line, len(columns))
            if key is not None and key[0] in counts and keep(*key):
                kept_counts[key[0]] += 1
                kept.append(line + "," * len(missing))
        if any(kept_counts[seed] != count for seed, count in counts.items()):
            raise InputError(f"{self.path} does not hold the rows that its snapshot counts")
        return kept, kept_counts

    def gather(self, files: Sequence[Path]) -> None:
        """Replace the rows by those of `files`, which have the same columns."""
        rows = [row for file in files for row in self._rows(file)]
        self.counts = Counter(seed for (seed, _, _), _ in rows)
        self._rewrite([",".join(self.columns), *(line for _, line in rows)])

    def adopt(self, sources: Iterable[tuple[int, Path, int]]) -> None:
        """Replace the rows by those of other runs: (id, file, id there) of each member."""
        lines = []
        self.counts = Counter()
        for id, file, there in sources:
            own = [line.partition(",")[2] for key, line in self._rows(file) if key[0] == there]
            lines += [f"{id},{rest}" for rest in own]
            self.counts[id] = len(own)
        self._rewrite([",".join(self.columns), *lines])

    def read(self) -> list[list[str]]:
        """Return all rows, in the order in which they were written."""
        return [line.split(",") for _, line in self._rows(self.path)]

    def sort(self) -> None:
        """Sort rows by their first three columns, so that the file does not depend on timing."""
        rows = sorted(self._rows(self.path), key=lambda row: row[0])
        self._rewrite([",".join(self.columns), *(line for _, line in rows)])

    def _rows(self, file: Path) -> list[tuple[Key, str]]:
        """Return the rows of a file of this process's own, each with its first three columns."""
        rows = []
        for line in file.read_text(errors="replace").splitlines()[1:]:
            key = _key(line, len(self.columns))
            if key is None:  # another program has written to it
                raise InputError(f"{file} is damaged: it has the row {one_line(line, 80)!r}")
            rows.append((key, line))
        return rows

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


def _key(line: str, columns: int) -> Key | None:
    """Return the first three columns of a row of numbers; None if it is damaged."""
    words = line.split(",")
    if len(words) != columns or not all(map(_is_number, words[3:])):
        return None
    # At most 18 digits: int() refuses thousands of them.
    seed, step, number = (int(w) if re.fullmatch("[0-9]{1,18}", w) else None for w in words[:3])
    return None if seed is None or step is None or number is None else (seed, step, number)


# As td7 writes it. Python would also take 1_000 and other digits, which readers do not.
NUMBER = re.compile(r"-?([0-9]{1,19}(\.[0-9]+)?(e[-+]?[0-9]+)?|inf)|nan")


def _is_number(word: str) -> bool:
    """Whether a column holds a number, or nothing, as a column that is newer than the row does."""
    return not word or NUMBER.fullmatch(word) is not None


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # a write may be short
        rest = rest[file.write(rest) :]


class RunFolder:
    """The files of one run, locked for this process as long as it is open."""

    def __init__(
        self, path: Path, members: Members, *, scored: bool, lock: FolderLock | None = None
    ) -> None:
        """`lock` is the folder's, if this process has locked it already."""
        self.path = path
        self.members = members
        evaluations = (*EVALUATIONS, "score") if scored else EVALUATIONS
        self.tables = {
            "evaluations": self._table("evaluations", evaluations),
            "episodes": self._table("episodes", EPISODES),
        }
        check_no_links(path)
        self._lock = lock or FolderLock(path)

    def listen(self, listener: Callable[..., None]) -> None:
        """Call `listener(name, columns, rows)` for new rows of every table."""
        for name, table in self.tables.items():
            table.listeners.append(partial(listener, name))

    def add_metrics(self, names: Sequence[str]) -> None:
        """Add metrics.csv with these columns, which only the learner knows."""
        self.tables["metrics"] = self._table("metrics", ("step", "update", *names))

    def _table(self, name: str, columns: Sequence[str]) -> Table:
        members = self.members
        columns = (members.kind, *columns, *members.columns)
        return Table(self.path / f"{name}.csv", columns)

    def cut_back(self, keep: Mapping[str, Keep], counts: Mapping[str, Mapping[str, int]]) -> None:
        """Cut all tables back to a snapshot; a table without a `keep` becomes empty."""
        for name, table in self.tables.items():
            table.cut_back(keep.get(name, lambda *_: False), _by_id(counts.get(name, {})))

    def check(self, keep: Mapping[str, Keep], counts: Mapping[str, Mapping[str, int]]) -> None:
        """Raise an InputError if `cut_back` with these would."""
        for name, table_keep in keep.items():
            self.tables[name].check(table_keep, _by_id(counts.get(name, {})))

    def gather(self, folders: Sequence[Path]) -> None:
        """Replace the rows of all tables by those of other run folders."""
        for table in self.tables.values():
            table.gather([folder / table.path.name for folder in folders])

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the rows per table and member, after flushing them to the disk."""
        for table in self.tables.values():
            table.sync()
        return {
            name: {str(id): n for id, n in table.counts.items()}
            for name, table in self.tables.items()
        }

    def write_timings(self, seconds: Mapping[str, float], times: Mapping[str, int]) -> None:
        rows = [TIMINGS, *((phase, f"{s:.3f}", times[phase]) for phase, s in seconds.items())]
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        write(self.path / "timings.csv", text.encode())

    def begin(self) -> None:
        """Remove the markers of how an earlier process ended."""
        for name in (FINISHED, ERROR):
            (self.path / name).unlink(missing_ok=True)

    def finish(self, steps: int) -> None:
        """Sort the tables and mark the run as finished."""
        for table in self.tables.values():
            table.sort()
        finish(self.path, steps)

    def close(self) -> None:
        for table in self.tables.values():
            table.close()
        self._lock.close()


def _by_id(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(id): count for id, count in counts.items()}


def keep_details(error: RunError, path: Path) -> RunError:
    """Write the error's details to the run folder, and return an error that names the file."""
    if not error.details:
        return error
    file = path / ERROR
    try:
        write(file, error.details.encode(errors="backslashreplace"))
    except OSError:  # a disk that is full must not hide the error itself
        return error
    return RunError(f"{error} ({file} has its traceback)", error.details)


def create_folder(path: Path, record: Mapping[str, Any]) -> FolderLock:
    """Create a run folder with its config.json, and return its lock."""
    check_new(path)
    make_folder(path)
    lock = FolderLock(path)
    try:
        check_new(path)  # another process may have had the lock until now
        write_config(path, record)
    except BaseException:
        lock.close()
        raise
    return lock


def check_new(path: Path) -> None:
    """Raise if a folder holds more than a run leaves that was killed before its config.json."""
    with writing_to(path):
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file, not a folder")
    if "config.json" in names:
        raise InputError(f"{path} already holds a run; `td7 resume {path}` continues it")
    if names - BEFORE_CONFIG:
        raise InputError(f"{path} is not empty; give --out a new folder")


def record_probe(path: Path, record: dict[str, Any], probe: Probe) -> None:
    """Add the probe of a new run's task to config.json, which any evaluation may be first to do.

    `record` is what this process has written there, so nothing is read back.
    """
    fingerprint = record["fingerprint"]
    if fingerprint["probe"] is None and (path / "config.json").exists():
        record["fingerprint"] = {**fingerprint, "probe": asdict(probe)}
        write_config(path, record)


def write_config(path: Path, record: Mapping[str, Any], *, signed: bool = True) -> None:
    """Write config.json, with this user's signature unless it is a stranger's."""
    content = as_json(record)
    with writing_to(path):
        if signed:
            sign(path, content)
        write(path / "config.json", content)

"""D4RL's files, fetched: a cut transfer goes on, and only the known SHA-256 counts."""

import csv
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from td7.errors import InputError, RunError, one_line, unknown
from td7.files import sync_folder, writing_to

URL = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2"  # D4RL's own
URL_VARIABLE = "TD7_DATASETS_URL"  # of the environment: another address of the same files
TIMEOUT = 30.0  # seconds without a byte
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between the tries of a transfer that is cut
CHUNK = 1 << 20  # bytes

Report = Callable[[int, int], None]  # of the bytes done, and of all
Say = Callable[[str], None]


class Dataset(NamedTuple):
    """A file and what it must hold."""

    file: str
    bytes: int
    sha256: str


def _table() -> dict[str, Dataset]:
    with (files("td7.datasets") / "d4rl.csv").open() as file:
        return {
            row["name"]: Dataset(row["file"], int(row["bytes"]), row["sha256"])
            for row in csv.DictReader(file)
        }


# Sizes and checksums are those TensorFlow Datasets lists for the addresses under URL:
# github.com/tensorflow/datasets, tensorflow_datasets/d4rl/d4rl_mujoco_*/checksums.tsv
DATASETS: Mapping[str, Dataset] = _table()


def fetch(
    name: str,
    folder: Path,
    *,
    report: Report,
    say: Say,
    base_url: str | None = None,
    replace: bool = False,
    datasets: Mapping[str, Dataset] = DATASETS,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """The dataset's file in `folder`, whole and checked; a good one that is there is left alone.

    A file of the same name with other content gives way only if `replace`, and only to a good one.
    """
    if name not in datasets:
        raise unknown("dataset", name, datasets)
    dataset = datasets[name]
    url = f"{_base(base_url)}/{dataset.file}"
    path = folder / dataset.file
    if _is_there(path, dataset, replace=replace):
        say(f"{path} is there already, and its SHA-256 is right")
        return path
    with _alone(path):
        if not _is_there(path, dataset, replace=replace):  # it may have come meanwhile
            part = _Part(path)
            _check_space(part, dataset)
            _Transfer(url, part, dataset, report, say, sleep).fetch()
            part.move_to(path)
            say(f"{path}: {dataset.bytes:,} bytes from {url}, SHA-256 checked")
    return path


def _base(given: str | None) -> str:
    base = given or os.environ.get(URL_VARIABLE) or URL
    try:
        split = urlsplit(base)
        usable = split.scheme in {"http", "https"} and split.hostname and split.port != 0
    except ValueError:  # a port that is no number, say
        usable = False
    if not usable:
        raise InputError(f"{base!r} is not an address of datasets, such as {URL}")
    return base.rstrip("/")


def identified(path: Path) -> str:
    """The name of the dataset that a file is, by its SHA-256; empty if it is none."""
    size = path.stat().st_size
    found = [name for name, dataset in DATASETS.items() if dataset.bytes == size]
    digest = _sha256(path) if found else ""
    return next((name for name in found if DATASETS[name].sha256 == digest), "")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_there(path: Path, dataset: Dataset, *, replace: bool) -> bool:
    """Whether a good file is; a bad one must be allowed to be replaced."""
    if not path.exists():
        return False
    found = _sha256(path)
    if found != dataset.sha256 and not replace:
        raise InputError(
            f"{path} is there, but its SHA-256 is {found} and not {dataset.sha256}; "
            "move it away, or let --replace fetch a good one in its place"
        )
    return found == dataset.sha256


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time fetches a file."""
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path} is being fetched by another td7 process") from None
        yield


class _Part:
    """What has come of a file so far and, beside it, of which version of the remote file."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.part")
        self._version = path.with_name(f"{path.name}.part.version")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def version(self) -> str:
        return self._version.read_text() if self._version.exists() else ""

    def begin(self, version: str) -> None:
        self.path.write_bytes(b"")  # first, so that old bytes never pass for the new version's
        self._version.write_text(version)

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def move_to(self, path: Path) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(path)
        self.drop()
        sync_folder(path.parent)


def _check_space(part: _Part, dataset: Dataset) -> None:
    folder = part.path.parent
    missing, free = dataset.bytes - part.size, shutil.disk_usage(folder).free
    if missing > free:
        raise RunError(
            f"{dataset.file} needs {missing:,} bytes more, but {folder} has {free:,} free"
        )


class _NetworkError(Exception):
    """A fault that another try may get past."""


@contextmanager
def _network() -> Iterator[None]:
    """Tells the network's faults from the disk's, which are OSErrors as well."""
    try:
        yield
    except (OSError, HTTPException, UnicodeError) as error:
        raise _NetworkError(one_line(getattr(error, "reason", error))) from error


@dataclass(frozen=True)
class _Transfer:
    """A file on its way from an address into its part."""

    url: str
    part: _Part
    dataset: Dataset
    report: Report
    say: Say
    sleep: Callable[[float], None]

    def fetch(self) -> None:
        """All bytes, checked; what comes corrupt is fetched once more, from its beginning."""
        found = ""
        for _ in range(2):
            self._fill()
            found = _sha256(self.part.path)
            if found == self.dataset.sha256:
                return
            self.part.drop()
            self.say(f"what came from {self.url} has the wrong SHA-256, and is thrown away")
        raise RunError(f"{self.url}: the SHA-256 should be {self.dataset.sha256}, but is {found}")

    def _fill(self) -> None:
        """All bytes; once the address has answered, faults are waited out."""
        part, size = self.part, self.dataset.bytes
        answered, waits, before = False, iter(WAITS), part.size
        while part.size < size:
            try:
                with self._ask() as response:
                    answered = True
                    self._receive(response)
            except _NetworkError as error:
                if not answered:
                    raise RunError(f"{self.url}: {error}") from error
                if part.size > before:  # slowly, but it comes
                    waits = iter(WAITS)
                before = part.size
                got = f"{part.size:,} of {size:,} bytes"
                if (wait := next(waits, None)) is None:
                    raise RunError(
                        f"{self.url}: {error}; {got} are kept, "
                        "and the same command goes on from there"
                    ) from error
                self.say(f"{error}; {got} have come, going on in {wait:g} s")
                self.sleep(wait)

    def _ask(self) -> HTTPResponse:
        """The answer to a request for what the part does not have yet."""
        headers = {"User-Agent": "td7"}
        if self.part.size:
            headers["Range"] = f"bytes={self.part.size}-"
            if self.part.version:
                headers["If-Range"] = self.part.version
        with _network():
            try:
                response: HTTPResponse = urlopen(
                    Request(self.url, headers=headers), timeout=TIMEOUT
                )
            except HTTPError as error:
                error.close()
                if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and self.part.size:
                    self.part.drop()  # of a longer file than there is now
                    return self._ask()
                raise _NetworkError(f"{error.code} {error.reason}") from error
        return response

    def _receive(self, response: HTTPResponse) -> None:
        """Adds an answer to the part, or begins it anew if the answer does not go on with it."""
        part, size = self.part, self.dataset.bytes
        begin, total = _span(response)
        if total not in {"", "*", str(size)}:  # before a good part is given up for it
            raise RunError(f"{self.url} has {total} bytes, but {self.dataset.file} has {size}")
        version = _version(response)
        if begin == 0:
            if part.size:
                self.say("the server does not go on with the bytes that are here; beginning anew")
            part.begin(version)
        elif (begin, version) != (part.size, part.version):
            part.drop()
            raise _NetworkError("the file at the address is another one now")
        with part.path.open("ab") as file:
            self.report(file.tell(), size)
            while missing := size - file.tell():
                with _network():
                    data = response.read1(min(CHUNK, missing))
                if not data:
                    raise _NetworkError("the connection was cut")
                file.write(data)
                self.report(file.tell(), size)


def _span(response: HTTPResponse) -> tuple[int, str]:
    """Where an answer begins in the file (-1: nobody knows), and the file's size, if it says so."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return 0, response.headers.get("Content-Length", "")
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    return (int(span[1]), span[2]) if span else (-1, "")


def _version(response: HTTPResponse) -> str:
    """What If-Range takes: a strong ETag, or else a date."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")

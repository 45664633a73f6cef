"""Download D4RL's files: interrupted transfers continue, and every file's SHA-256 is checked."""

import csv
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
from td7.files import make_folder, sync_folder, try_lock, writing_to

URL = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2"  # D4RL's own
URL_VARIABLE = "TD7_DATASETS_URL"  # environment variable with another address of the same files
TIMEOUT = 30.0  # seconds without a byte
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds before the retries of an interrupted transfer
CHUNK = 1 << 20  # bytes

ReportProgress = Callable[[int, int], None]  # receives the bytes so far and the total
Say = Callable[[str], None]


class RemoteFile(NamedTuple):
    """A file's name and what it must contain."""

    file: str
    bytes: int
    sha256: str


def _read_table() -> dict[str, RemoteFile]:
    with (files("td7.datasets") / "d4rl.csv").open() as file:
        return {
            row["name"]: RemoteFile(row["file"], int(row["bytes"]), row["sha256"])
            for row in csv.DictReader(file)
        }


# TensorFlow Datasets lists these sizes and checksums for the addresses under URL:
# github.com/tensorflow/datasets, tensorflow_datasets/d4rl/d4rl_mujoco_*/checksums.tsv
DATASETS: Mapping[str, RemoteFile] = _read_table()


def fetch(
    name: str,
    folder: Path,
    *,
    report: ReportProgress,
    say: Say,
    base_url: str | None = None,
    replace: bool = False,
    datasets: Mapping[str, RemoteFile] = DATASETS,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Return the dataset's checked file in `folder`, downloaded unless it is there already.

    `replace` allows a file of the same name with other content to be replaced, once the new one has
    been checked.
    """
    if name not in datasets:
        raise unknown("dataset", name, datasets)
    dataset = datasets[name]
    url = f"{_base_url(base_url)}/{dataset.file}"
    path = folder / dataset.file
    if _exists(path, dataset, replace=replace):
        say(f"{path} exists already, and its SHA-256 is correct")
        return path
    with _exclusive(path):
        if not _exists(path, dataset, replace=replace):  # another process may have fetched it
            part = _PartialFile(path)
            _check_space(part, dataset)
            _Transfer(url, part, dataset, report, say, sleep).fetch()
            part.move_to(path)
            say(f"{path}: {dataset.bytes:,} bytes from {url}, SHA-256 checked")
    return path


def _base_url(option: str | None) -> str:
    base = option or os.environ.get(URL_VARIABLE) or URL
    try:
        split = urlsplit(base)
        usable = split.scheme in {"http", "https"} and split.hostname and split.port != 0
        (split.hostname or "").encode("idna")
    except ValueError:  # such as a port that is not a number, or a name that is too long
        usable = False
    if not usable or not re.fullmatch("[!-~]+", base):  # no spaces, line breaks or accents
        raise InputError(f"{base!r} is not an HTTP address, such as {URL}")
    return base.rstrip("/")


def identify(path: Path) -> str:
    """Return the name of the D4RL dataset with this file's SHA-256; empty if there is none."""
    size = path.stat().st_size
    candidates = [name for name, dataset in DATASETS.items() if dataset.bytes == size]
    digest = _sha256(path) if candidates else ""
    return next((name for name in candidates if DATASETS[name].sha256 == digest), "")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _exists(path: Path, dataset: RemoteFile, *, replace: bool) -> bool:
    """Whether the right file is there; raise if another one is that must not be replaced."""
    if not path.exists():
        return False
    digest = _sha256(path)
    if digest != dataset.sha256 and not replace:
        raise InputError(
            f"{path} exists, but its SHA-256 is {digest} and not {dataset.sha256}; "
            "move it away, or replace it with --replace"
        )
    return digest == dataset.sha256


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time download a file."""
    make_folder(path.parent)
    with writing_to(path.parent):
        file = path.with_name(f".{path.name}.lock").open("a")
    with file:
        if not try_lock(file):
            raise InputError(f"{path} is being downloaded by another td7 process")
        yield


class _PartialFile:
    """The bytes received so far and, in a second file, the version of the remote file."""

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
        self.path.write_bytes(b"")  # first: old bytes must never count as the new version's
        self._version.write_text(version)

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)

    def move_to(self, path: Path) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(path)
        self.delete()
        sync_folder(path.parent)


def _check_space(part: _PartialFile, dataset: RemoteFile) -> None:
    folder = part.path.parent
    missing, free = dataset.bytes - part.size, shutil.disk_usage(folder).free
    if missing > free:
        raise RunError(
            f"{dataset.file} needs {missing:,} bytes more, but {folder} has {free:,} free"
        )


class _NetworkError(Exception):
    """A failure that a retry may overcome."""


@contextmanager
def _network() -> Iterator[None]:
    """Distinguish errors of the network from errors of the disk, which are OSErrors as well."""
    try:
        yield
    except (OSError, HTTPException, UnicodeError) as error:
        raise _NetworkError(one_line(getattr(error, "reason", error))) from error


@dataclass(frozen=True)
class _Transfer:
    """The download of one file from an address."""

    url: str
    part: _PartialFile
    dataset: RemoteFile
    report: ReportProgress
    say: Say
    sleep: Callable[[float], None]

    def fetch(self) -> None:
        """Download all bytes and check them; after a wrong SHA-256, start over once."""
        digest = ""
        for _ in range(2):
            self._download()
            digest = _sha256(self.part.path)
            if digest == self.dataset.sha256:
                return
            self.part.delete()
            self.say(f"the file from {self.url} has the wrong SHA-256 and is deleted")
        raise RunError(f"{self.url}: the SHA-256 should be {self.dataset.sha256}, but is {digest}")

    def _download(self) -> None:
        """Download all bytes; once the server has responded, wait and retry after errors."""
        part, size = self.part, self.dataset.bytes
        responded, waits, before = False, iter(WAITS), part.size
        while part.size < size:
            try:
                with self._request() as response:
                    responded = True
                    self._receive(response)
            except _NetworkError as error:
                if not responded:
                    raise RunError(f"{self.url}: {error}") from error
                if part.size > before:  # there is progress, so all retries are left
                    waits = iter(WAITS)
                before = part.size
                amount = f"{part.size:,} of {size:,} bytes"
                if (wait := next(waits, None)) is None:
                    raise RunError(
                        f"{self.url}: {error}; {amount} are kept, "
                        "and the same command continues from there"
                    ) from error
                self.say(f"{error}; {amount} are received, continuing in {wait:g} s")
                self.sleep(wait)

    def _request(self) -> HTTPResponse:
        """Request the bytes that are still missing."""
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
                    self.part.delete()  # it belongs to a longer file than the server's
                    return self._request()
                raise _NetworkError(f"{error.code} {error.reason}") from error
        return response

    def _receive(self, response: HTTPResponse) -> None:
        """Append the response to the partial file, or start over if it does not continue it."""
        part, size = self.part, self.dataset.bytes
        begin, total = _span(response)
        if total not in {"", "*", str(size)}:  # checked before the partial file is overwritten
            raise RunError(f"{self.url} has {total} bytes, but {self.dataset.file} has {size}")
        version = _version(response)
        if begin == 0:
            if part.size:
                self.say("the server cannot continue the partial file; starting over")
            part.begin(version)
        elif (begin, version) != (part.size, part.version):
            part.delete()
            raise _NetworkError("the file at the address has changed")
        with part.path.open("ab") as file:
            self.report(file.tell(), size)
            while missing := size - file.tell():
                with _network():
                    data = response.read1(min(CHUNK, missing))
                if not data:
                    raise _NetworkError("the connection was closed early")
                file.write(data)
                self.report(file.tell(), size)


def _span(response: HTTPResponse) -> tuple[int, str]:
    """Return where the response begins in the file (-1: unknown) and the file's size, or ""."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return 0, response.headers.get("Content-Length", "")
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    return (int(span[1]), span[2]) if span else (-1, "")


def _version(response: HTTPResponse) -> str:
    """Return the response's version for If-Range: a strong ETag, or else a date."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")

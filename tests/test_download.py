"""Downloads from a local server that cuts, corrupts, forgets or refuses as a test orders."""

import hashlib
import os
import random
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, NamedTuple

import pytest

from td7 import files
from td7.datasets import download
from td7.datasets.download import DATASETS, URL_VARIABLE, WAITS, RemoteFile, fetch
from td7.errors import InputError, RunError

NAME, FILE = "toy-medium-v2", "toy_medium-v2.hdf5"
SIZE, CUT = 200_000, 70_000
GOOD, OTHER = (random.Random(seed).randbytes(SIZE) for seed in (0, 1))
DATE, LATER = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"
CLOSED = "http://127.0.0.1:1"  # where nobody listens


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Answer:
    """How the server answers one request; by default, well."""

    status: int = 0  # an error's; 0: none
    cut: int = SIZE  # bytes sent before the connection ends
    stall: Event | None = None  # waited for before the end
    reset: bool = False  # whether the end is an abrupt one
    content: bytes = GOOD
    tags: tuple[tuple[str, str], ...] = (("ETag", '"good"'),)
    ranges: bool = True
    if_range: bool = True


class Asked(NamedTuple):
    path: str
    range: str | None
    if_range: str | None


class Server(ThreadingHTTPServer):
    """Gives the answers that the test queued, then good ones."""

    daemon_threads = False  # closing waits for them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = Asked(self.path, self.headers["Range"], self.headers["If-Range"])
        self.server.asked.append(asked)
        answer = self.server.answers.pop(0) if self.server.answers else Answer()
        content = answer.content
        same = not answer.if_range or asked.if_range in {None, *dict(answer.tags).values()}
        begin = 0
        if asked.range and answer.ranges and same:
            begin = int(asked.range.removeprefix("bytes=").removesuffix("-"))
        status = answer.status or (416 if begin >= len(content) else 206 if begin else 200)
        self.send_response(status)
        if status in {301, 302}:
            self.send_header("Location", f"{self.server.url}/elsewhere/{FILE}")
        if status not in {200, 206}:
            return self.end_headers()
        if begin:
            span = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", span)
        self.send_header("Content-Length", str(len(content) - begin))
        for tag in answer.tags:
            self.send_header(*tag)
        self.end_headers()
        with suppress(ConnectionError):  # the client may have seen enough
            self.wfile.write(content[begin:][: answer.cut])
        if answer.stall:
            answer.stall.wait(60)
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        return None

    def finish(self) -> None:
        with suppress(OSError):  # a connection that was reset
            super().finish()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with Server() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@dataclass
class Client:
    """A folder to download into, with the messages and progress of all downloads."""

    folder: Path
    server: Server
    waited: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    reported: list[tuple[int, int]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / FILE

    @property
    def part(self) -> Path:
        return self.folder / f"{FILE}.part"

    def report(self, done: int, total: int) -> None:
        self.reported.append((done, total))

    def fetch(self, *answers: Answer, **options: Any) -> Path:
        self.server.answers = list(answers)
        self.server.asked.clear()
        given = {
            "base_url": self.server.url,
            "report": self.report,
            "say": self.said.append,
            "datasets": {NAME: RemoteFile(FILE, SIZE, digest(GOOD))},
            "sleep": self.waited.append,
        }
        return fetch(NAME, self.folder, **{**given, **options})

    def fails(self, *answers: Answer, **options: Any) -> str:
        """The one line of an error while running."""
        with pytest.raises(RunError) as caught:
            self.fetch(*answers, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def interrupted(self, *answers: Answer) -> int:
        """Bytes kept of a fetch that is interrupted when the connection is cut."""

        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.fetch(*answers, sleep=interrupt)
        return self.part.stat().st_size

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.suffix != ".lock"}


@pytest.fixture
def client(tmp_path: Path, server: Server) -> Client:
    return Client(tmp_path / "new" / "datasets", server)


def test_the_table_is_d4rls() -> None:
    tasks, kinds = (
        ("halfcheetah", "hopper", "walker2d"),
        ("medium", "medium-replay", "medium-expert"),
    )
    assert list(DATASETS) == [f"{task}-{kind}-v2" for task in tasks for kind in kinds]
    for name, dataset in DATASETS.items():
        assert dataset.file == name.removesuffix("-v2").replace("-", "_") + "-v2.hdf5"
        assert len(bytes.fromhex(dataset.sha256)) == 32
        assert 50_000_000 < dataset.bytes < 500_000_000
    assert len({dataset.sha256 for dataset in DATASETS.values()}) == 9
    assert DATASETS["hopper-medium-v2"].bytes == 152_756_557


def test_a_file_comes_whole(client: Client) -> None:
    assert client.fetch() == client.path
    assert client.path.read_bytes() == GOOD
    assert client.names() == {FILE}
    assert client.server.asked == [Asked(f"/{FILE}", None, None)]
    assert client.reported[0] == (0, SIZE)
    assert client.reported[-1] == (SIZE, SIZE)
    assert client.reported == sorted(client.reported)
    assert "SHA-256 checked" in client.said[-1]


def test_a_good_file_is_left_alone(client: Client) -> None:
    client.fetch()
    before = client.path.stat()
    for replace in (False, True):
        assert client.fetch(base_url=CLOSED, replace=replace) == client.path
        assert "exists already" in client.said[-1]
    after = client.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_bad_file_is_replaced_only_with_replace_and_only_by_a_good_one(client: Client) -> None:
    client.folder.mkdir(parents=True)
    client.path.write_bytes(b"mine")
    with pytest.raises(InputError, match=f"{digest(b'mine')} and not {digest(GOOD)}.*--replace"):
        client.fetch()
    assert client.server.asked == []
    client.fails(Answer(status=404), replace=True)
    client.fails(*[Answer(content=OTHER)] * 2, replace=True)
    assert client.path.read_bytes() == b"mine"
    client.fetch(replace=True)
    assert client.path.read_bytes() == GOOD


def test_an_interrupted_transfer_continues_where_it_stopped(client: Client) -> None:
    cut = Answer(cut=CUT)
    client.fetch(cut, cut)
    assert client.path.read_bytes() == GOOD
    assert [asked.range for asked in client.server.asked] == [
        None,
        "bytes=70000-",
        "bytes=140000-",
    ]
    assert client.waited == [1, 1]  # bytes come: the waits begin anew
    assert client.reported == sorted(client.reported)
    assert "70,000 of 200,000 bytes are received, continuing in 1 s" in client.said[0]


def test_a_transfer_that_always_breaks_ends_and_the_next_continues(client: Client) -> None:
    message = client.fails(*[Answer(cut=10_000)] * 3, *[Answer(cut=0)] * 9)
    assert (
        "closed early; 30,000 of 200,000 bytes are kept, and the same command continues" in message
    )
    assert client.server.url in message
    assert client.waited == [1, 1, 1, *WAITS[1:]]
    assert not client.path.exists()
    client.fetch()
    assert client.server.asked == [Asked(f"/{FILE}", "bytes=30000-", '"good"')]
    assert client.path.read_bytes() == GOOD
    assert client.names() == {FILE}


@pytest.mark.parametrize("bytes_sent", [0, CUT])
def test_a_reset_connection_is_waited_out(client: Client, bytes_sent: int) -> None:
    begun = Event()
    answer = Answer(cut=bytes_sent, stall=begun, reset=True)
    client.fetch(answer, report=lambda *_: begun.set())
    assert client.path.read_bytes() == GOOD
    assert client.waited == [1]
    assert "reset" in client.said[0]


def test_a_silent_server_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.datasets.download.TIMEOUT", 0.1)
    silence = Event()
    client.fetch(Answer(cut=CUT, stall=silence))
    silence.set()
    assert client.path.read_bytes() == GOOD
    assert client.server.asked[1].range == f"bytes={CUT}-"
    assert "timed out" in client.said[0]


def test_a_server_that_restarts_meanwhile_is_waited_for(client: Client) -> None:
    client.fetch(Answer(cut=CUT), Answer(status=503))
    assert client.path.read_bytes() == GOOD
    assert client.waited == [1, 2]
    assert "503" in client.said[1]


def test_an_interrupted_command_continues(client: Client) -> None:
    def interrupt(done: int, _: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.fetch(Answer(cut=CUT), report=interrupt)
    kept = client.part.stat().st_size
    assert 0 < kept <= CUT
    client.fetch()
    assert client.path.read_bytes() == GOOD
    assert client.server.asked[0].range == f"bytes={kept}-"


def test_a_server_without_ranges_starts_over(client: Client) -> None:
    client.fetch(Answer(cut=CUT), Answer(ranges=False))
    assert client.path.read_bytes() == GOOD
    assert len(client.server.asked) == 2
    assert "starting over" in client.said[1]


@pytest.mark.parametrize("honest", [True, False], ids=["If-Range", "no If-Range"])
@pytest.mark.parametrize(
    ("before", "after", "if_range"),
    [
        ((("ETag", '"old"'),), (("ETag", '"new"'),), '"old"'),
        ((("Last-Modified", DATE),), (("Last-Modified", LATER),), DATE),
        ((("ETag", 'W/"old"'), ("Last-Modified", DATE)), (("Last-Modified", LATER),), DATE),
    ],
    ids=["strong tag", "date", "weak tag"],
)
def test_a_part_of_another_version_is_not_continued(
    client: Client,
    before: tuple[tuple[str, str], ...],
    after: tuple[tuple[str, str], ...],
    if_range: str,
    honest: bool,
) -> None:
    """As the version shows, before any checksum does: nothing is fetched in vain."""
    assert client.interrupted(Answer(content=OTHER, tags=before, cut=CUT)) == CUT
    now = Answer(tags=after, if_range=honest)
    client.fetch(now, now)
    assert client.path.read_bytes() == GOOD
    assert client.server.asked[0] == Asked(f"/{FILE}", f"bytes={CUT}-", if_range)
    assert [asked.range for asked in client.server.asked[1:]] == ([] if honest else [None])
    assert not any("wrong SHA-256" in line for line in client.said)


def test_without_versions_the_checksum_finds_the_other_part(client: Client) -> None:
    client.interrupted(Answer(content=OTHER, tags=(), cut=CUT))
    client.fetch(Answer(tags=()))
    assert client.path.read_bytes() == GOOD
    assert [asked[1:] for asked in client.server.asked] == [(f"bytes={CUT}-", None), (None, None)]


def test_a_part_past_the_end_is_dropped(client: Client) -> None:
    client.interrupted(Answer(cut=CUT))
    client.fetch(Answer(status=416))
    assert [asked.range for asked in client.server.asked] == [f"bytes={CUT}-", None]
    client.path.unlink()
    client.part.write_bytes(GOOD + b"more")
    client.fetch()
    assert [asked.range for asked in client.server.asked] == [None]
    assert client.path.read_bytes() == GOOD


def test_a_whole_part_only_needs_its_check(client: Client) -> None:
    client.folder.mkdir(parents=True)
    client.part.write_bytes(GOOD)
    client.fetch(base_url=CLOSED)
    assert client.path.read_bytes() == GOOD
    assert client.names() == {FILE}


def test_what_comes_corrupt_is_fetched_once_more_from_its_beginning(client: Client) -> None:
    corrupt = Answer(content=GOOD[:-1] + bytes([GOOD[-1] ^ 1]))
    client.fetch(Answer(cut=CUT), corrupt)
    assert client.path.read_bytes() == GOOD
    assert [asked.range for asked in client.server.asked] == [None, f"bytes={CUT}-", None]


def test_what_always_comes_corrupt_never_counts(client: Client) -> None:
    message = client.fails(*[Answer(content=OTHER)] * 9)
    assert f"should be {digest(GOOD)}, but is {digest(OTHER)}" in message
    assert len(client.server.asked) == 2
    assert client.names() == set()


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "404 Not Found"), (500, "500 Internal Server Error")]
)
def test_errors_of_the_server_are_not_retried(client: Client, status: int, reason: str) -> None:
    assert client.fails(Answer(status=status)) == f"{client.server.url}/{FILE}: {reason}"
    assert client.waited == []
    assert client.names() == set()


@pytest.mark.parametrize(
    ("base_url", "reason"),
    [
        (CLOSED, "Connection refused"),
    ],
)
def test_an_unreachable_address_is_not_retried(client: Client, base_url: str, reason: str) -> None:
    message = client.fails(base_url=base_url)
    assert message.startswith(f"{base_url}/{FILE}: ")
    assert reason in message
    assert client.waited == []


@pytest.mark.parametrize("status", [301, 302])
def test_a_moved_file_is_followed_to_its_place(client: Client, status: int) -> None:
    client.interrupted(Answer(cut=CUT))
    client.fetch(Answer(status=status))
    assert client.server.asked[1] == Asked(f"/elsewhere/{FILE}", f"bytes={CUT}-", '"good"')
    assert client.path.read_bytes() == GOOD


@pytest.mark.parametrize("ranges", [True, False])
def test_a_page_in_place_of_the_file_does_not_cost_the_part(client: Client, ranges: bool) -> None:
    client.interrupted(Answer(cut=CUT))
    message = client.fails(Answer(content=OTHER[: CUT + 500], ranges=ranges))
    assert f"has 70500 bytes, but {FILE} has 200000" in message
    assert client.part.read_bytes() == GOOD[:CUT]


def test_space_is_checked_first(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.interrupted(Answer(cut=CUT))
    room = shutil.disk_usage(client.folder)
    needed = SIZE - CUT
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room._replace(free=needed - 1))
    message = client.fails()
    assert message == f"{FILE} needs 130,000 bytes more, but {client.folder} has 129,999 free"
    assert client.server.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room._replace(free=needed))
    client.fetch()


def test_a_full_disk_is_not_the_networks_fault(client: Client) -> None:
    client.folder.mkdir(parents=True)
    client.part.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        client.fetch()
    assert client.waited == []


def test_a_folder_that_cannot_be_is_the_users_mistake(client: Client, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("a file")
    with pytest.raises(InputError, match=r"cannot write to .*new/datasets: Not a directory"):
        client.fetch()


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown dataset .* did you mean 'hopper-medium-v2'"):
        fetch("hoper-medium-v2", Path("unused"), report=print, say=print)


def test_the_address_is_the_argument_or_the_environments(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"{client.server.url}/mirror/")
    client.fetch(base_url=None)
    assert client.server.asked[0].path == f"/mirror/{FILE}"
    client.path.unlink()
    client.fetch()
    assert client.server.asked[0].path == f"/{FILE}"


def test_without_either_it_is_d4rls(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(request: Any, **_: Any) -> None:
        raise OSError(request.full_url)

    monkeypatch.setattr("td7.datasets.download.urlopen", unreachable)
    url = f"http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/{FILE}"
    assert client.fails(base_url=None) == f"{url}: {url}"


@pytest.mark.parametrize(
    "base_url",
    [
        *("localhost:80", "ftp://a", "/data", "http://", "http://a:b", "http://[1"),
        *("http://a..b", "http://127.0.0.1:1/a b"),
    ],
)
def test_an_address_is_of_http(client: Client, base_url: str) -> None:
    with pytest.raises(InputError, match="is not an HTTP address, such as http"):
        client.fetch(base_url=base_url)


def test_one_at_a_time_fetches_a_file(client: Client) -> None:
    """The second is turned away while the first is in the middle; the first is not disturbed."""
    begun, go_on = Event(), Event()

    def report(done: int, _: int) -> None:
        if done:
            begun.set()
            assert go_on.wait(60)

    first = Thread(target=client.fetch, kwargs={"report": report})
    first.start()
    try:
        assert begun.wait(60)
        second = Client(client.folder, client.server)
        with pytest.raises(InputError, match="is being downloaded by another td7 process"):
            second.fetch()
    finally:
        go_on.set()
        first.join()
    assert client.path.read_bytes() == GOOD


def test_a_file_that_came_meanwhile_is_left_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ends its fetch between this one's first look and its lock."""
    lock = files.try_lock

    def late(file: IO[Any]) -> bool:
        is_locked = lock(file)
        client.path.write_bytes(GOOD)
        return is_locked

    monkeypatch.setattr(download, "try_lock", late)
    assert client.fetch() == client.path
    assert client.server.asked == []


def test_the_file_is_on_the_disk_before_it_has_its_name(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("sync")
        sync(descriptor)

    def replace(path: Path, target: Path) -> Path:
        steps.append(f"{path.name} -> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    client.fetch()
    assert steps == ["sync", f"{FILE}.part -> {FILE}", "sync"]

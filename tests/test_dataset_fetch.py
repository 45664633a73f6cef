"""`td7 dataset fetch`, from a server on this machine."""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from recorded_runs import Says, everything
from td7.cli.main import main
from td7.datasets.download import DATASETS, URL_VARIABLE, RemoteFile


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


CONTENT = b"data" * 1000


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a server on this machine with a good file, a wrong one, and one too few."""
    folder = tmp_path / "served" / "v2"
    folder.mkdir(parents=True)
    for name, content in (("good", CONTENT), ("wrong", CONTENT[::-1])):
        (folder / f"toy_{name}-v2.hdf5").write_bytes(content)
    digest = sha256(CONTENT).hexdigest()
    for name in ("good", "wrong", "absent"):
        file = RemoteFile(f"toy_{name}-v2.hdf5", len(CONTENT), digest)
        monkeypatch.setitem(DATASETS, f"toy-{name}-v2", file)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    handler = partial(Quiet, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2"
        server.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def test_fetch(url: str, empty_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["dataset", "fetch", "toy-good-v2", "--url", f"{url}/", "--out", "a/b"]
    for message in ("bytes from", "exists already"):
        assert main(words) == 0
        out, err = capfd.readouterr()
        assert out == "a/b/toy_good-v2.hdf5\n"
        assert message in err
        assert (empty_folder / "a" / "b" / "toy_good-v2.hdf5").read_bytes() == CONTENT
        assert names(empty_folder / "a" / "b") == ["toy_good-v2.hdf5"]


def test_fetch_by_the_environments_address(
    url: str, empty_folder: Path, monkeypatch: pytest.MonkeyPatch, dataset_prints: Says
) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    assert dataset_prints("fetch", "toy-good-v2") == "datasets/toy_good-v2.hdf5\n"
    assert (empty_folder / "datasets" / "toy_good-v2.hdf5").read_bytes() == CONTENT


def test_fetch_replaces_a_file_only_with_replace(
    url: str, empty_folder: Path, dataset_fails: Says, dataset_prints: Says
) -> None:
    file = empty_folder / "toy_good-v2.hdf5"
    file.write_text("mine")
    words = ("fetch", "toy-good-v2", "--url", url, "--out", ".")
    assert "--replace" in dataset_fails(*words)
    assert file.read_text() == "mine"
    dataset_prints(*words, "--replace")
    assert file.read_bytes() == CONTENT


def test_what_cannot_be_fetched_is_status_1(
    url: str, empty_folder: Path, dataset_fails: Says, capfd: pytest.CaptureFixture[str]
) -> None:
    message = dataset_fails("fetch", "toy-absent-v2", "--url", url, status=1)
    assert message.startswith(f"{url}/toy_absent-v2.hdf5: 404 ")
    assert main(["dataset", "fetch", "toy-wrong-v2", "--url", url]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "wrong SHA-256" in err
    assert err.splitlines()[-1].startswith(f"td7: {url}/toy_wrong-v2.hdf5: the SHA-256 should be")
    assert names(empty_folder / "datasets") == []


def test_bad_words_to_fetch_get_one_line(url: str, empty_folder: Path, dataset_fails: Says) -> None:
    message = dataset_fails("fetch", "toy-god-v2", "--url", url)
    assert message.startswith("unknown dataset 'toy-god-v2'; did you mean 'toy-good-v2'? allowed: ")
    assert "is not an HTTP address" in dataset_fails("fetch", "toy-good-v2", "--url", "ftp://a")
    assert "required: ID" in dataset_fails("fetch")
    assert "unknown option '--urls'; did you mean '--url'?" in dataset_fails(
        "fetch", "a", "--urls=b"
    )
    assert everything(empty_folder) == {}
    (empty_folder / "file").write_text("")
    message = dataset_fails("fetch", "toy-good-v2", "--url", url, "--out", "file")
    assert message == "cannot write to file: File exists"
    assert names(empty_folder) == ["file"]

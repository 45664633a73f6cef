"""Snapshots: what goes in comes out; damage is found out; a crash leaves a good one."""

import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

import td7
import toys
from folders import SMALL, contents, differences, newest
from snapshot_store import SEEDS, Store, cut, empty, flip
from td7.errors import InputError, RunError
from td7.files import write
from td7.runs.manifest import Manifest, UnreadableError
from td7.runs.record import FINISHED
from td7.runs.snapshots import KEPT, ROWS, Snapshots
from td7.types import Float32

assert toys  # registers the tasks


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two snapshots, of the values 1 and 2."""
    store = Store(tmp_path / "snapshot")
    store.add(4, 2)
    store.save(1.0)
    store.add(3, 1)
    store.save(2.0)
    return store


def rows(store: Store, seed: int) -> Float32:
    loaded = store.snapshots.load()
    assert loaded is not None
    return np.concatenate(store.snapshots.rows(loaded, seed))


# Round trips


def test_what_goes_in_comes_out(store: Store) -> None:
    other = store.again()
    loaded = other.snapshots.load()
    assert loaded is not None
    assert set(loaded.tensors) == {"float", "count"}
    assert loaded.tensors["float"].dtype == torch.float32
    assert loaded.tensors["count"].dtype == torch.int8
    assert torch.equal(loaded.tensors["float"], torch.full((2, 3), 2.0))
    assert loaded.members == {"seeds": [3, 8], "value": 2.0, "added": [7, 3]}
    np.testing.assert_array_equal(rows(other, 3)[:, 0], range(7))
    np.testing.assert_array_equal(rows(other, 8)[:, 0], range(1_000, 1_003))
    assert other.warnings == []


def test_no_snapshot_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "snapshot")
    assert store.snapshots.load() is None
    store.folder.mkdir()
    (store.folder / ".000001.tmp").mkdir()  # one that was never finished
    assert store.snapshots.load() is None


def test_a_replay_comes_back_as_it_was(store: Store) -> None:
    """Also where the ring has wrapped, in the middle of a shard."""
    store.add(9, 20)
    store.save(3.0)
    other = store.again()
    loaded = other.snapshots.load()
    assert loaded is not None
    for member, seed in enumerate(SEEDS):
        size = store.replay.size(member)
        priorities = torch.rand(size, dtype=torch.float64)
        other.replay.restore(
            member,
            other.snapshots.rows(loaded, seed),
            loaded.members["added"][member],
            priorities,
            torch.tensor(2.5),
        )
        assert torch.equal(other.replay.leaves[member, :size], priorities)
        assert other.replay.max_priority[member] == 2.5
    assert other.replay.added == store.replay.added == [16, 23]
    assert torch.equal(other.replay.rows, store.replay.rows)
    # And it goes on as the first would.
    for each in (store, other):
        each.add(4, 4)
    assert torch.equal(other.replay.rows, store.replay.rows)


@pytest.mark.parametrize("tensor", [torch.zeros(3, 2).t(), torch.arange(6).view(2, 3)[:, 1:]])
def test_views_are_saved_by_value(tmp_path: Path, tensor: Tensor) -> None:
    store = Store(tmp_path / "snapshot")
    store.snapshots.save({"view": tensor}, {"seeds": []}, store.replay)
    loaded = store.again().snapshots.load()
    assert loaded is not None
    assert torch.equal(loaded.tensors["view"], tensor)


def test_two_names_for_one_tensor_are_two_tensors(store: Store) -> None:
    """A checkpoint whose evaluation is still to come is both."""
    tensor = torch.arange(3.0)
    store.snapshots.save({"a": tensor, "b": tensor}, {"seeds": []}, store.replay)
    loaded = store.again().snapshots.load()
    assert loaded is not None
    assert torch.equal(loaded.tensors["a"], tensor)
    assert torch.equal(loaded.tensors["b"], tensor)


# Damage


FILES = [
    "000002/state.safetensors",
    "000002/members.json",
    "000002/manifest.json",
]


@pytest.mark.parametrize("damage", [flip, cut, empty, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_snapshot_is_passed_over(
    store: Store, name: str, damage: Callable[[Path], None]
) -> None:
    damage(store.folder / name)
    other = store.again()
    assert other.value() == 1.0
    (told,) = other.warnings
    assert told.startswith("snapshot 000002 is damaged (")
    assert Path(name).name in told or "manifest" in name  # which names them all
    assert told.endswith("trying the one before")
    assert "\n" not in told
    np.testing.assert_array_equal(rows(other, 3)[:, 0], range(4))


def test_no_byte_of_a_manifest_can_be_wrong_unnoticed(store: Store) -> None:
    """Whatever is wrong with it, a snapshot is either found damaged or is the same."""
    manifest = store.folder / "000002" / "manifest.json"
    good = manifest.read_bytes()
    random = np.random.default_rng(0)
    values = []
    for place in random.choice(len(good), 60, replace=False):
        data = bytearray(good)
        data[place] = random.integers(256)
        other = store.again()
        manifest.write_bytes(data)
        values.append(other.value())
        manifest.write_bytes(good)
    assert set(values) <= {1.0, 2.0}
    assert values.count(1.0) > 30  # but for blanks, which matter little


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99, "files": {}}', "null", "ä"])
def test_a_manifest_of_something_else_is_damage(store: Store, text: str) -> None:
    (store.folder / "000002" / "manifest.json").write_text(text, encoding="latin-1")
    assert store.again().value() == 1.0


def test_an_earlier_format_is_named_and_its_rows_are_read(store: Store) -> None:
    """Weights lie otherwise in it, rows do not. Where one is as it should be, another is damage."""
    text = '"format": 3'
    for number in ("000002", "000001"):
        if number == "000001":
            assert store.again().value() == 1.0
        file = store.folder / number / "manifest.json"
        assert text in file.read_text()
        file.write_text(file.read_text().replace(text, '"format": 2'))
    with pytest.raises(InputError, match="is from an earlier version of td7: its policies can be"):
        store.again().value()
    assert Snapshots(store.folder, pytest.fail, ROWS).load()


def test_a_file_that_cannot_be_read_is_damage(store: Store) -> None:
    file = store.folder / "000002" / "members.json"
    file.unlink()
    file.symlink_to(file)  # the error of a bad disk is OSError too
    other = store.again()
    assert other.value() == 1.0
    assert "members.json cannot be read" in other.warnings[0]


def test_reading_changes_no_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """`td7 dataset record` reads snapshots of runs that go on: one written meanwhile is good."""
    flip(store.folder / "000002" / "state.safetensors")
    read = Manifest.read

    def meanwhile(folder: Path) -> Manifest:
        if not (store.folder / "000003").exists():
            shutil.copytree(store.folder / "000001", store.folder / "000003")
        return read(folder)

    other = store.again()
    monkeypatch.setattr(Manifest, "read", meanwhile)
    assert other.value() == 1.0
    names = [path.name for path in store.folder.iterdir()]
    assert sorted(names) == ["000001", "000002", "000003", "replay"]


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_damage_to_the_older_one_does_not_end_a_run(
    store: Store, damage: Callable[[Path], None]
) -> None:
    damage(store.folder / "000002" / "manifest.json")
    store.add(1, 1)
    store.save(3.0)
    assert store.again().value() == 3.0
    assert (store.folder / "damaged-000002").is_dir()


def test_a_run_continues_after_damage_and_again_after_more(store: Store) -> None:
    for value in (20.0, 30.0):
        flip(store.folder / "000002" / "state.safetensors")
        store = store.resumed()
        store.add(1, 1)
        store.save(value)
        assert store.again().value() == value
        assert (store.folder / "damaged-000002").is_dir()


# Space


def shards_of_one_row(seed: int, *numbers: int) -> list[str]:
    return [f"replay/seed-{seed}/{i:012d}-{i + 1:012d}.npy" for i in numbers]


def test_shards_are_written_once(store: Store) -> None:
    first = store.folder / shards_of_one_row(3, 0)[0]
    before = first.stat()
    store.add(2, 0)
    store.save()
    after = first.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert store.shards() == [*shards_of_one_row(3, *range(9)), *shards_of_one_row(8, 0, 1, 2)]


def test_shards_are_also_written_once_after_a_restart(store: Store) -> None:
    other = store.resumed()
    other.add(2, 0)
    before = {name: (other.folder / name).stat().st_ino for name in other.files()}
    other.save()
    after = {name: (other.folder / name).stat().st_ino for name in other.files()}
    assert before.items() <= after.items()
    new = set(after) - set(before)
    assert new == {*shards_of_one_row(3, 7, 8), "replay/parity/000003-0.xor"}


def test_shards_go_when_the_ring_has_passed_them(store: Store) -> None:
    """All of a group at once."""
    store.add(6, 10)  # rows 3 to 13 of seed 3 and 3 to 13 of seed 8 are left
    store.save()
    assert store.shards()[:3] == shards_of_one_row(3, 0, 1, 2)  # row 3 was written with them
    store.add(1, 0)
    store.save()
    assert store.shards()[:3] == shards_of_one_row(3, 0, 1, 2)  # the snapshot before needs them
    store.save()
    assert store.shards() == [
        *shards_of_one_row(3, *range(4, 14)),
        *shards_of_one_row(8, *range(2, 13)),
    ]
    np.testing.assert_array_equal(rows(store.again(), 3)[:, 0], range(4, 14))
    store.add(30, 0)  # more than a ring at once
    store.save()
    store.save()
    in_ring = shards_of_one_row(3, *range(34, 44))
    assert [name for name in store.shards() if "seed-3" in name][-10:] == in_ring
    np.testing.assert_array_equal(rows(store.again(), 3)[:, 0], range(34, 44))
    store.add(0, 30)
    store.save()
    store.save()
    assert store.shards() == [*in_ring, *shards_of_one_row(8, *range(33, 43))]


def test_two_snapshots_are_kept(store: Store) -> None:
    assert KEPT == 2
    for value in (3.0, 4.0, 5.0):
        store.save(value)
        numbers = sorted(path.name for path in store.folder.iterdir() if path.name != "replay")
        assert len(numbers) == 2
    assert numbers == ["000004", "000005"]
    flip(store.folder / "000005" / "members.json")
    assert store.again().value() == 4.0


def test_what_an_interrupted_save_left_is_cleaned_up(store: Store) -> None:
    aside = store.folder / ".000003.tmp"
    aside.mkdir()
    (aside / "state.safetensors").write_bytes(b"half")
    older = store.folder / ".000002.tmp"
    older.mkdir()
    orphan = store.folder / "replay/seed-3/000000000007-000000000011.npy"
    orphan.write_bytes(b"half")
    half = orphan.with_name(f".{orphan.name}.tmp")
    half.write_bytes(b"ha")
    other = store.again()
    assert other.value() == 2.0
    assert other.warnings == []
    other.add(9, 3)
    assert other.save(3.0).name == "000003"
    assert not any(path.exists() for path in (aside, older, orphan, half))
    assert other.again().value() == 3.0


@pytest.mark.parametrize("from_then_on", [False, True])
def test_a_disk_that_does_not_read_takes_no_snapshot(
    from_then_on: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that is verified loses neither itself nor the one before, whatever fails after it."""
    before = store.save(2.0)
    real = Manifest.read
    failed: list[Path] = []
    next_name = f"{int(before.name) + 1:06d}"

    def read(folder: Path) -> Manifest:
        is_verification = folder.name == next_name and not failed
        if not is_verification and (from_then_on or not failed):
            failed.append(folder)
            raise UnreadableError("manifest.json cannot be read: Input/output error")
        return real(folder)

    monkeypatch.setattr(Manifest, "read", read)
    after = store.save(3.0)
    monkeypatch.undo()
    assert failed
    assert after.is_dir()
    assert before.is_dir()
    assert store.again().value() == 3.0
    store.save(4.0)
    assert not before.exists()


def test_a_snapshot_that_does_not_read_back_is_no_reason_to_prune(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes everything and keeps nothing: the snapshots from before stay."""
    replace = Path.replace

    def lossy(self: Path, target: Path) -> Path:
        if self.parent.name == ".000003.tmp" and target.name == "state.safetensors":
            flip(self)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", lossy)
    with pytest.raises(RunError, match=r"cannot be read back: state\.safetensors"):
        store.save(3.0)
    monkeypatch.undo()
    assert (store.folder / "000001").exists()
    assert store.again().value() == 2.0


# A full disk


def full_disk(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_every_write_may_be_the_one_that_fails(tmp_path: Path) -> None:
    """Wherever a save breaks off, what was there before is whole, and the next save works."""
    sync = os.fsync
    for broken in range(1, 100):
        store = Store(tmp_path / str(broken) / "snapshot")
        store.folder.parent.mkdir()
        store.add(4, 2)
        store.save(1.0)
        store.add(3, 1)
        calls = [0]

        def fail(descriptor: int, calls: list[int] = calls, broken: int = broken) -> None:
            calls[0] += 1
            if calls[0] == broken:
                full_disk()
            sync(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            try:
                store.save(2.0)
            except OSError:
                pass
            else:
                assert calls[0] < broken
                break
        # Only the last fsync, of the folder that the new one was renamed in, is too late.
        other = store.again()
        assert other.value() in (1.0, 2.0)
        assert other.warnings == []
        store.add(1, 1)
        store.save(3.0)
        assert store.again().value() == 3.0
        assert not list(store.folder.glob(".*"))
    assert broken > 10


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write(file, b"before")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{file}'"):
        write(file, b"after")
    assert file.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def train(path: Path, steps: int, **options: Any) -> td7.Run:
    settings: dict[str, Any] = {
        "env": "toys:Point-v0",
        "evaluate_every": 40,
        "evaluation_episodes": 1,
        "metrics_every": 10,
        "set": SMALL,
        "quiet": True,
        **options,
    }
    return td7.train(steps=steps, out=str(path), **settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("finished") / "run", 80).path


def fill_disk(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """For files whose names end so."""
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name.endswith(where):
            full_disk()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)


@pytest.mark.parametrize("where", ["state.safetensors", "policy.json", "timings.csv", ".npy"])
def test_a_full_disk_ends_a_run_in_one_line_and_it_can_be_resumed(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = train(tmp_path / "run", 60).path
    fill_disk(monkeypatch, where)
    with pytest.raises(RunError) as caught:
        td7.resume(run, steps=80, quiet=True)
    told = str(caught.value)
    assert told.startswith(f"cannot write to {run}: No space left on device")
    assert f"`td7 resume {run}`" in told
    assert "\n" not in told
    monkeypatch.undo()
    td7.resume(run, quiet=True)
    assert differences(contents(run), contents(finished)) == []


@pytest.mark.parametrize("where", ["state.safetensors", "manifest.json", ".npy"])
def test_a_full_disk_at_the_first_snapshot_promises_none(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = tmp_path / "run"
    fill_disk(monkeypatch, where)
    with pytest.raises(RunError) as caught:
        train(run, 80)
    told = f"there is no snapshot yet, `td7 resume {run}` starts anew"
    assert str(caught.value) == f"cannot write to {run}: No space left on device; {told}"
    monkeypatch.undo()
    td7.resume(run, quiet=True)
    assert differences(contents(run), contents(finished)) == []


def test_a_full_disk_under_a_table_too(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path / "run", 60).path
    monkeypatch.setattr("td7.runs.folder.Table.append", full_disk)
    with pytest.raises(
        RunError, match="No space left on device; everything trained so far is saved"
    ):
        td7.resume(run, steps=80, quiet=True)
    monkeypatch.undo()
    td7.resume(run, quiet=True)
    assert differences(contents(run), contents(finished)) == []


# Damage to a whole run


def test_a_run_falls_back_and_says_so(
    tmp_path: Path, finished: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", 60).path
    td7.resume(run, steps=80, quiet=True)  # a second snapshot
    flip(newest(run) / "state.safetensors")
    td7.resume(run, quiet=True)
    err = capfd.readouterr().err
    assert err.splitlines() == [
        "snapshot 000002 is damaged (state.safetensors does not have the SHA-256 of its manifest); "
        "trying the one before"
    ]
    assert differences(contents(run), contents(finished)) == []


def test_a_run_without_a_good_snapshot_says_so(tmp_path: Path, finished: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (newest(run) / "manifest.json").unlink()
    before = contents(run)
    for _ in range(2):  # and the folder is not left locked
        with pytest.raises(RunError, match=r"no usable snapshot in .*000001: manifest.json"):
            td7.resume(run, quiet=True)
    assert differences(contents(run), before) == []


def test_a_table_shorter_than_its_snapshot_is_an_error(tmp_path: Path, finished: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / FINISHED).unlink()  # as if it had been killed
    table = run / "episodes.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InputError, match=r"episodes\.csv does not hold the rows that its snapshot"):
        td7.resume(run, quiet=True)


def test_rows_that_a_kill_cut_short_are_forgotten(tmp_path: Path, finished: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / FINISHED).unlink()
    spoilt = {"episodes": b"0,100,5,1.0,20\n0,12", "evaluations": b"0", "metrics": b"\0\xff,"}
    for name, text in spoilt.items():
        with (run / f"{name}.csv").open("ab") as file:
            file.write(text)
    td7.resume(run, quiet=True)
    assert differences(contents(run), contents(finished)) == []


@pytest.mark.parametrize(
    ("place", "now", "told"),
    [
        ("td7.training.state.versions", {"torch": "99.0"}, ("torch ", "99.0")),
        ("td7.runs.record.source", "0123456789ab", ("td7's source ", "0123456789ab")),
    ],
)
def test_another_version_gives_a_warning(
    place: str,
    now: Any,
    told: tuple[str, str],
    tmp_path: Path,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    monkeypatch.setattr(place, lambda: now)
    td7.resume(run, quiet=True)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"this run began with {told[0]}")
    assert f" and continues with {told[1]}; " in line


# No pickle


def test_no_file_is_a_pickle(finished: Path) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        ".json": lambda file: json.loads(file.read_text()),
        ".mac": lambda file: bytes.fromhex(file.read_text()),
        ".npy": lambda file: np.load(file, allow_pickle=False),
        ".csv": lambda file: file.read_text(),
        ".safetensors": load_file,
        ".xor": Path.read_bytes,
        ".png": Path.read_bytes,  # the learning curve
    }
    files = [path for path in finished.rglob("*") if path.is_file() and path.name != ".lock"]
    assert {file.suffix for file in files} == set(readers)
    # Whatever the first bytes stand for: a signature may begin with any hexadecimal digit.
    errors = (pickle.UnpicklingError, ValueError, EOFError, LookupError, ImportError, TypeError)
    for file in files:
        assert readers[file.suffix](file) is not None
        with pytest.raises((*errors, AttributeError)):
            pickle.loads(file.read_bytes())
    assert (finished / ".lock").read_bytes() == b""

"""One damaged file of replay rows is recovered, and what is missing is written again."""

import errno
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from folders import SMALL, all_contents, differences
from snapshot_store import (
    DAMAGES,
    SEEDS,
    Store,
    edit_manifest,
    empty,
    flip,
    without_parity,
)
from td7.engine.replay import Replay
from td7.errors import RunError
from td7.runs.manifest import Manifest
from td7.runs.parity import Parity, ParityWriter, rebuild
from td7.runs.snapshots import Snapshots

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
Damage = Callable[[Path], object]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two snapshots, of the values 1 and 2."""
    store = Store(tmp_path / "snapshot")
    store.add(4, 2)
    store.save(1.0)
    store.add(3, 1)
    store.save(2.0)
    return store


def check_whole(store: Store) -> None:
    """The newest snapshot verifies, has all rows, and can lose any one file."""
    other = store.resumed()
    assert other.warnings == []
    assert {len(group) > 1 for group in store.groups()} == {True}
    everything = {name for group in store.groups() for name in group}
    needed = {name for seed in SEEDS for name in _shards(store, seed)}
    assert needed <= everything
    for name in sorted(everything):
        path = store.folder / name
        before = path.read_bytes()
        path.unlink()
        damaged = store.resumed()
        assert len(damaged.warnings) == 1
        path.write_bytes(before)


def _shards(store: Store, seed: int) -> list[str]:
    loaded = store.again().snapshots.load()
    assert loaded is not None
    return [shard.name for shard in loaded.rows[seed].shards]


# -- the arithmetic --------------------------------------------------------------------------------


def test_parity_is_the_xor_of_bytes(tmp_path: Path) -> None:
    parity = Parity()
    parity.add(bytes([0b1100, 0b0001]))
    parity.add(bytes([0b1010, 0b0001, 0b1111]))  # longer than what came before
    parity.add(b"")
    parity.add(bytes([0b0001]), begin=2)
    assert parity.content == bytes([0b0110, 0b0000, 0b1110])


def test_any_file_is_rebuilt_from_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    contents = [random.bytes(size) for size in (2_500_000, 3, 0, 2_500_001)]
    files = [tmp_path / str(i) for i in range(len(contents))]
    parity = Parity()
    for path, content in zip(files, contents, strict=True):
        with path.open("wb") as file:
            writer = ParityWriter(file, parity)
            writer.write(content[:2])
            writer.write(content[2:])
        assert path.read_bytes() == content
    xor = tmp_path / "xor"
    xor.write_bytes(parity.content)
    assert xor.stat().st_size == 2_500_001
    for path, content in zip(files, contents, strict=True):
        others = [other for other in (*files, xor) if other != path]
        assert rebuild(others, len(content)) == content


@pytest.mark.parametrize(
    ("rows", "saves"),
    [((20_000,), 1), ((3_000, 3_000), 3), ((500,) * 10, 2), ((2_000, 10), 2), ((350, 40, 7), 2)],
)
def test_it_takes_less_than_a_tenth_of_the_space(
    tmp_path: Path, rows: tuple[int, ...], saves: int
) -> None:
    """From 64 KB of new rows on, with the headers of more files than there were without."""
    import torch

    from td7.types import RowLayout

    layout = RowLayout(state_dim=17, action_dim=6)
    replay = Replay(layout, saves * max(rows), len(rows), torch.device("cpu"), torch.float32)
    snapshots = Snapshots(tmp_path / "snapshot", pytest.fail)
    for _ in range(saves):
        for member, count in enumerate(rows):
            replay.append(member, np.ones((count, layout.width), np.float32))
        snapshots.save({}, {"seeds": list(range(len(rows)))}, replay)
    files = [path for path in (tmp_path / "snapshot/replay").glob("*/*") if path.is_file()]
    alone = saves * sum(4 * layout.width * count + 128 for count in rows)
    assert sum(path.stat().st_size for path in files) <= 1.10 * alone


# -- one damaged file ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", DAMAGES)
def test_any_damaged_file_is_recovered(store: Store, way: str) -> None:
    """Loading changes no file; saving writes it again as it was."""
    good = {name: (store.folder / name).read_bytes() for name in store.files()}
    assert len(good) == 6 + 1 + 4 + 1
    for name, content in good.items():
        path = store.folder / name
        DAMAGES[way](path)
        other = store.resumed()
        (line,) = other.warnings
        assert line.startswith(name)
        outcome = "no row is lost" if "parity" in name else "its rows were recovered"
        assert line.endswith(f"; {outcome}, and the next snapshot replaces it")
        assert not path.is_file() or path.read_bytes() != content
        # The snapshot before has the file as well, or does not need it.
        flip(store.folder / "000002" / "state.safetensors")
        fallen_back = store.resumed()
        assert fallen_back.value() == 1.0
        flip(store.folder / "000002" / "state.safetensors")

        shutil.copytree(store.folder, store.folder.with_name("copy"))
        continued = Store(store.folder.with_name("copy"))
        continued.snapshots = Snapshots(continued.folder, continued.warnings.append)
        restored = continued.resumed()
        restored.add(1, 0)
        restored.save(3.0)
        check_whole(restored)
        if "parity" not in name:
            assert (continued.folder / name).read_bytes() == content
        shutil.rmtree(continued.folder)

        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(content)
    check_whole(store)


def test_a_file_replaced_by_another_of_the_same_size_is_recovered(store: Store) -> None:
    a, b = store.shards()[:2]
    shutil.copyfile(store.folder / a, store.folder / b)
    (line,) = store.resumed().warnings
    assert line.startswith(f"{b} does not have the SHA-256 of its manifest; its rows were")


def test_one_damaged_file_per_group_is_recovered(store: Store) -> None:
    for group in store.groups():
        flip(store.folder / group[1])
    other = store.resumed()
    assert len(other.warnings) == 2
    other.save(3.0)
    check_whole(other)


# -- more than one ---------------------------------------------------------------------------------


def test_two_damaged_files_of_a_group_that_both_need_leave_none(store: Store) -> None:
    before = sorted(store.folder.rglob("*"))
    a, b = store.groups()[0][1:3]
    flip(store.folder / a)
    (store.folder / b).unlink()
    other = store.again()
    with pytest.raises(RunError) as caught:
        other.snapshots.load()
    text = str(caught.value)
    assert text.startswith(f"no usable snapshot in {store.folder}: 000002: {a} does not have the ")
    assert f"manifest, and {b} is missing; 000001: " in text
    assert "\n" not in text
    assert sorted([*store.folder.rglob("*"), store.folder / b]) == before  # a disk may come back


@pytest.mark.parametrize("with_parity", [False, True])
def test_two_damaged_files_of_the_last_group_leave_the_snapshot_before(
    store: Store, with_parity: bool
) -> None:
    group = store.groups()[1]
    first, second = group[0 if with_parity else 1], group[2]
    flip(store.folder / first)
    empty(store.folder / second)
    other = store.resumed()
    assert other.value() == 1.0
    line = other.warnings[0]
    assert line.startswith(f"snapshot 000002 is damaged ({group[0 if with_parity else 1][:6]}")
    assert line.endswith("); trying the one before")
    other.add(3, 1)
    other.save(2.0)
    check_whole(other)


def test_a_parity_file_that_does_not_fit_recovers_nothing(store: Store) -> None:
    """Its checksum is right, but it is another file's."""
    a, b = (group[0] for group in store.groups())
    shutil.copyfile(store.folder / a, store.folder / b)
    for number in ("000001", "000002"):
        edit_manifest(
            store.folder / number,
            lambda m: b in m["files"] and m["files"].update({b: m["files"][a]}),
        ) if number == "000002" else None
    flip(store.folder / store.groups()[1][1])
    other = store.again()
    assert other.value() == 1.0
    assert "and its parity file does not fit); trying" in other.warnings[0]


# -- missing at the next save ----------------------------------------------------------------------


@pytest.mark.parametrize("what", ["replay", "replay/seed-3", "replay/parity"])
def test_what_was_deleted_during_a_run_is_written_again(store: Store, what: str) -> None:
    shutil.rmtree(store.folder / what)
    store.add(1, 1)
    store.save(3.0)
    check_whole(store)
    flip(store.folder / "000003" / "members.json")
    other = store.resumed()  # the snapshot before has its rows as well
    assert other.value() == 2.0


@pytest.mark.parametrize(
    "way", [way for way in DAMAGES if way not in ("one bit flipped", "all zeros")]
)
def test_any_file_damaged_during_a_run_is_written_again(store: Store, way: str) -> None:
    for name in store.files():
        DAMAGES[way](store.folder / name)
        store.save(3.0)
        check_whole(store)


def test_deleted_after_the_ring_has_wrapped(store: Store) -> None:
    """Rows that the replay does not hold any more need no file."""
    store.add(9, 20)
    shutil.rmtree(store.folder / "replay")
    store.save(3.0)
    check_whole(store)
    assert [shard.begin for shard in _first_shards(store)] == [6, 13]


def _first_shards(store: Store) -> list[Any]:
    loaded = store.again().snapshots.load()
    assert loaded is not None
    return [loaded.rows[seed].shards[0] for seed in SEEDS]


@pytest.mark.parametrize("way", ["missing", "one bit flipped"])
def test_a_shard_of_which_the_ring_holds_a_part(tmp_path: Path, way: str) -> None:
    """It cannot be written as it was: the rows that count are, and its group is protected anew."""
    store = Store(tmp_path / "snapshot")
    store.add(8, 160 // 8)  # shards of two rows
    store.save(1.0)
    store.add(3, 3)  # row 0 is gone, row 1 is left of seed 8's first needed shard
    store.save(2.0)
    shards = {name for seed in SEEDS for name in _shards(store, seed)}
    for name in sorted(shards):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(store.folder, tmp_path / "copy")
        other = Store(tmp_path / "copy")
        DAMAGES[way](other.folder / name)
        resumed = other.resumed()
        resumed.save(3.0)
        check_whole(resumed)
        flip(resumed.folder / "000003" / "state.safetensors")
        assert resumed.resumed().value() == 2.0  # recovered from its old parity file


def test_a_group_is_dropped_whole(store: Store) -> None:
    """Shards that no row is needed of protect the others of their group."""
    store.add(10, 0)  # seed 3 has passed both groups, seed 8 needs them
    store.save(3.0)
    first, second, third = store.groups()
    assert len(first) == 6 + 1
    assert len(second) == 4 + 1
    check_whole(store)
    obsolete = first[1]
    assert "seed-3" in obsolete
    (store.folder / obsolete).unlink()
    (line,) = store.resumed().warnings
    assert line == f"{obsolete} is missing; no row is lost, and the next snapshot replaces it"
    store.save(4.0)
    check_whole(store)
    assert [len(group) for group in store.groups()] == [len(second), len(third), len(first) - 1]
    store.add(0, 10)
    store.save(5.0)
    assert [name.partition("/0000")[0] for group in store.groups() for name in group[1:]] == [
        *["replay/seed-3"] * (len(third) - 1),
        *["replay/seed-8"] * 10,
    ]
    store.save(6.0)  # now the snapshot before does not need them either
    check_whole(store)
    in_groups = [name for group in store.groups() for name in group]
    assert store.files() == sorted(in_groups)


def test_a_save_that_fails_loses_nothing_that_could_be_recovered(tmp_path: Path) -> None:
    """Files are damaged, and the save that replaces them breaks off, wherever that is."""
    sync = os.fsync
    made = Store(tmp_path / "made")
    made.add(8, 20)
    made.save(1.0)
    made.add(3, 3)
    made.save(2.0)
    names = [_shards(made, seed)[0] for seed in SEEDS]
    assert any(
        shard.begin < made.replay.added[m] - 10 for m, shard in enumerate(_first_shards(made))
    )
    for broken in range(1, 200):
        folder = tmp_path / str(broken)
        shutil.copytree(made.folder, folder)
        flip(folder / names[1])
        flip(folder / made.groups()[1][0])
        store = Store(folder).resumed()
        store.add(1, 1)
        calls = [0]

        def fail(descriptor: int, calls: list[int] = calls, broken: int = broken) -> None:
            calls[0] += 1
            if calls[0] == broken:
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            try:
                store.save(3.0)
            except OSError:
                assert store.resumed().value() in (2.0, 3.0)
            else:
                break
        store.save(4.0)
        assert store.resumed().value() == 4.0
        check_whole(store)
        shutil.rmtree(folder)
    assert broken > 10


# -- snapshots without parity ----------------------------------------------------------------------


def test_snapshots_without_parity_are_read_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("td7.runs.shards.PIECES", 1)  # a file per seed and save
    store = Store(tmp_path / "snapshot")
    store.add(4, 2)
    store.save(1.0)
    store.add(3, 1)
    store.save(2.0)
    monkeypatch.undo()
    without_parity(store.folder)
    assert store.files() == [
        "replay/seed-3/000000000000-000000000004.npy",
        "replay/seed-3/000000000004-000000000007.npy",
        "replay/seed-8/000000000000-000000000002.npy",
        "replay/seed-8/000000000002-000000000003.npy",
    ]
    other = store.resumed()
    assert other.warnings == []
    last = store.folder / store.files()[1]
    good = last.read_bytes()
    flip(last)
    fallen_back = store.again()
    assert fallen_back.value() == 1.0
    assert fallen_back.warnings == [
        f"snapshot 000002 is damaged (replay/seed-3/{last.name} does not have the SHA-256 of its "
        "manifest); trying the one before"
    ]
    last.write_bytes(good)
    last.unlink()
    last.with_name("000000000000-000000000004.npy").unlink()
    other.add(5, 2)
    other.save(3.0)  # rows 0 and 1 of seed 3 are gone, the others are written again
    other.resumed()
    assert other.again().value() == 3.0
    assert sum(map(len, other.groups())) == 2 + 5 + 2 + 1
    other.add(10, 10)
    other.save(4.0)
    other.save(5.0)
    check_whole(other)


# -- whole runs ------------------------------------------------------------------------------------

STEPS = (60, 90, 120)
KINDS: dict[str, dict[str, Any]] = {
    "checkpointed": {"set": SMALL},
    "lockstep": {"set": {**SMALL, "checkpoints": "none"}},
    "processes": {"set": SMALL, "processes": 2},
    "wrapped": {"set": {**SMALL, "replay_capacity": 40}},
}


def train(path: Path, steps: int, kind: str, **options: Any) -> td7.Run:
    settings: dict[str, Any] = {
        "env": "toys:Point-v0",
        "seeds": [0, 4],
        "evaluate_every": 30,
        "evaluation_episodes": 2,
        "metrics_every": 10,
        "quiet": True,
        **KINDS[kind],
        **options,
    }
    return td7.train(steps=steps, out=str(path), **settings)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """Runs with two snapshots, and what is in the folders of those that were not interrupted."""

    @cache
    def make(kind: str) -> tuple[Path, Any]:
        folder = tmp_path_factory.mktemp(kind)
        run = train(folder / "run", STEPS[0], kind).path
        td7.resume(run, steps=STEPS[1], quiet=True)
        return run, all_contents(train(folder / "whole", STEPS[2], kind).path)

    return make


def resumed(run: Path, steps: int = STEPS[2]) -> Any:
    td7.resume(run, steps=steps, quiet=True)
    return all_contents(run)


def snapshot_folder(run: Path) -> Path:
    """Of the run, or of its first process."""
    processes = sorted(run.glob("snapshot/process-*"))
    return (processes[0] if processes else run) / "snapshot"


WAYS = [(kind, way) for kind in KINDS for way in DAMAGES if kind != "processes" or way == "missing"]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_run_with_a_damaged_file_resumes_exactly(
    sample: Callable[[str], tuple[Path, Any]],
    kind: str,
    tmp_path: Path,
    way: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run, whole = sample(kind)
    shutil.copytree(run, tmp_path / "run")
    names = sorted((snapshot_folder(tmp_path / "run") / "replay").glob("*/*"))
    DAMAGES[way](names[list(DAMAGES).index(way) * len(names) // len(DAMAGES)])
    assert differences(resumed(tmp_path / "run"), whole) == []
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith(", and the next snapshot replaces it")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_last_rows_are_lost_resumes_exactly(
    sample: Callable[[str], tuple[Path, Any]],
    kind: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """From the snapshot before, if that does not need them."""
    run, whole = sample(kind)
    shutil.copytree(run, tmp_path / "run")
    folder = snapshot_folder(tmp_path / "run")
    older, newer = (set(Manifest.read(path).replay) for path in sorted(folder.glob("0*")))
    for name in newer - older:
        flip(folder / name)
    outcome = resumed(tmp_path / "run")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("snapshot 000002 is damaged (")
    assert differences(outcome, whole) == []


@pytest.mark.parametrize("kind", ["checkpointed", "lockstep", "wrapped"])
def test_rows_deleted_during_a_run_cost_nothing(
    sample: Callable[[str], tuple[Path, Any]],
    kind: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, whole = sample(kind)
    shutil.copytree(run, tmp_path / "run")
    save = Snapshots.save
    deleted: list[int] = []

    def delete_before(self: Snapshots, *arguments: Any) -> Path:
        if len(deleted) < 3:
            deleted.append(len(list((self.folder / "replay").glob("*/*"))))
            shutil.rmtree(self.folder / "replay")
        return save(self, *arguments)

    monkeypatch.setattr(Snapshots, "save", delete_before)
    td7.resume(tmp_path / "run", steps=STEPS[2] - 10, snapshot_every=1e-9, quiet=True)
    monkeypatch.undo()
    assert len(deleted) == 3
    assert min(deleted) > 10
    assert differences(resumed(tmp_path / "run"), whole) == []
    assert capfd.readouterr().err == ""

"""Snapshots whose checksums are right but whose content is not: the one before counts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import td7
import toys
from folders import SMALL, contents, differences, newest
from offline_runs import BOUNDS, TINY, point_fields, save
from snapshot_store import Store, edit_manifest, edit_members, empty
from td7.errors import InputError, RunError
from td7.files import FileDigest
from td7.runs.record import FINISHED

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


# -- manifests -------------------------------------------------------------------------------------

SHARD = "replay/seed-3/000000000004-000000000005.npy"
PARITY = "replay/parity/000002-0.xor"
MANIFESTS: dict[str, Callable[[Any], object]] = {
    "lacks a shard": lambda m: m["files"].pop(SHARD) and None,
    "lacks a shard, here and in its group": lambda m: (
        m["files"].pop(SHARD) and m["parity"][PARITY].remove(SHARD)
    ),
    "lacks a parity file": lambda m: m["files"].pop(PARITY) and None,
    "lacks its state": lambda m: m["files"].pop("000002/state.safetensors") and None,
    "names the state of another": lambda m: m["files"].update(
        {"000001/state.safetensors": m["files"].pop("000002/state.safetensors")}
    ),
    "names another shard": lambda m: m["files"].update(
        {"replay/seed-3/000000000004-000000000006.npy": m["files"].pop(SHARD)}
    ),
    "names rows of another seed": lambda m: m["files"].update(
        {"replay/seed-4/000000000004-000000000005.npy": m["files"][SHARD]}
    ),
    "names rows twice": lambda m: m["files"].update(
        {"replay/seed-3/000000000000-000000000003.npy": m["files"][SHARD]}
    ),
    "names an absolute path": lambda m: m["files"].update({"/etc/hostname": m["files"][SHARD]}),
    "names a path outside": lambda m: m["files"].update({"replay/../../x": m["files"][SHARD]}),
    "a path outside of a seed": lambda m: m["files"].update(
        {"replay/seed-../000000000004-000000000005.npy": m["files"][SHARD]}
    ),
    "parity outside": lambda m: m["parity"].update({"replay/parity/../../x.xor": []}),
    "a group of one file twice": lambda m: m["parity"][PARITY].append(SHARD),
    "a group of itself": lambda m: m["parity"][PARITY].append(PARITY),
    "a group of numbers": lambda m: m["parity"][PARITY].append(3),
    "no groups": lambda m: m.update(parity=[]),
    "a group of no list": lambda m: m["parity"].update({PARITY: SHARD}),
    "no files": lambda m: m.update(files=[]),
    "no checksum": lambda m: m["files"].update({SHARD: None}),
    "half a checksum": lambda m: m["files"][SHARD].pop("sha256") and None,
    "a size in words": lambda m: m["files"][SHARD].update(bytes="132"),
    "more than a checksum": lambda m: m["files"][SHARD].update(more=1),
    "another format": lambda m: m.update(format=4),
    "a format in words": lambda m: m.update(format="3"),
    "no object": lambda _: [],
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_is_not_as_it_should_be_is_damage(store: Store, name: str) -> None:
    before = (store.folder / "000002" / "manifest.json").read_bytes()
    edit_manifest(store.folder / "000002", MANIFESTS[name])
    assert (store.folder / "000002" / "manifest.json").read_bytes() != before
    other = store.resumed()
    assert other.value() == 1.0
    assert len(other.warnings) == 2  # each time that it was loaded
    assert other.warnings[0].startswith("snapshot 000002 is damaged (")
    assert "\n" not in other.warnings[0]
    other.add(1, 1)
    other.save(3.0)
    assert other.again().value() == 3.0


def test_swapped_manifests_leave_none(store: Store) -> None:
    a, b = (store.folder / number / "manifest.json" for number in ("000001", "000002"))
    first, second = a.read_bytes(), b.read_bytes()
    b.write_bytes(first)
    other = store.again()
    assert other.value() == 1.0
    assert other.warnings == [
        "snapshot 000002 is damaged (manifest.json does not name 000002/members.json); "
        "trying the one before"
    ]
    a.write_bytes(second)
    with pytest.raises(RunError, match=r"000001: manifest\.json does not name 000001/members"):
        store.again().value()


SHARDS: dict[str, Callable[[Any], object]] = {
    "none": lambda m: m.pop("shards"),
    "of no seed": lambda m: m["shards"].clear(),
    "of another seed": lambda m: m["shards"].update({"4": m["shards"].pop("3")}),
    "a number": lambda m: m["shards"].update({"3": 7}),
    "numbers": lambda m: m["shards"].update({"3": [1, 2]}),
    "one is missing": lambda m: m["shards"]["3"].pop(2),
    "the last is missing": lambda m: m["shards"]["3"].pop(),
    "in another order": lambda m: m["shards"]["3"].reverse(),
    "one twice": lambda m: m["shards"]["3"].append(m["shards"]["3"][-1]),
    "one outside": lambda m: m["shards"]["3"].append("../../x.npy"),
    "seeds in words": lambda m: m.update(seeds=["3", "8"]),
    "no seeds": lambda m: m.pop("seeds"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards_that_are_not_as_they_should_be_are_damage(store: Store, name: str) -> None:
    edit_members(store.folder / "000002", SHARDS[name])
    other = store.again()
    assert other.value() == 1.0
    assert len(other.warnings) == 1
    assert "\n" not in other.warnings[0]


def replace_shard(store: Store, change: Callable[[Path], object]) -> None:
    """Change the content of a shard of the newest snapshot, and its checksum with it."""
    path = store.folder / SHARD
    change(path)
    digest = FileDigest.of(path)._asdict()
    edit_manifest(store.folder / "000002", lambda m: m["files"].update({SHARD: digest}))


def saved(array: Any, **options: Any) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, array, **options)

    return change


CONTENTS: dict[str, Callable[[Path], object]] = {
    "no rows": saved(np.ones((0, 7), np.float32)),
    "two rows": saved(np.ones((2, 7), np.float32)),
    "narrow rows": saved(np.ones((1, 6), np.float32)),
    "one dimension": saved(np.ones(7, np.float32)),
    "float64": saved(np.ones((1, 7))),
    "integers": saved(np.ones((1, 7), np.int32)),
    "objects": saved(np.array([[None] * 7], object), allow_pickle=True),
    "another order": saved(np.asfortranarray(np.ones((2, 7), np.float32))),
    "an archive": lambda path: np.savez(path.open("wb"), np.ones((1, 7), np.float32)),
    "text": lambda path: path.write_text("rows\n"),
    "nothing": empty,
    "less than its header states": lambda path: path.write_bytes(path.read_bytes()[:-4]),
    "more than its header states": lambda path: path.write_bytes(path.read_bytes() + b"more"),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_rows_that_are_not_as_they_should_be_are_damage(store: Store, name: str) -> None:
    replace_shard(store, CONTENTS[name])
    other = store.again()
    assert other.value() == 1.0
    (line,) = other.warnings
    assert line.startswith("snapshot 000002 is damaged (")
    assert "\n" not in line


def test_names_of_snapshots(store: Store) -> None:
    """What only looks like a number is left alone."""
    for name in ("²", "7", "٣٤٥٦٧٨"):
        (store.folder / name).mkdir()
    assert store.again().value() == 2.0
    store.save(3.0)
    assert {"²", "7", "٣٤٥٦٧٨"} < {path.name for path in store.folder.iterdir()}
    (store.folder / "000009").write_text("a file\n")
    other = store.resumed()
    assert other.value() == 3.0
    other.save(4.0)
    assert (store.folder / "damaged-000009").is_file()


# -- what a run does with it -----------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "checkpointed": {"set": SMALL},
    "lockstep": {"set": {**SMALL, "checkpoints": "none"}},
    "offline": {"set": TINY["td7"]},
}
STEPS = (60, 90, 120)


def _train(kind: str, path: Path, steps: int, data: Path) -> Path:
    what: dict[str, Any] = {"env": "toys:Point-v0"}
    if kind == "offline":
        what = {"dataset": str(data)}
    return td7.train(
        **what,
        **KINDS[kind],
        seeds=[0, 4],
        steps=steps,
        evaluate_every=30,
        evaluation_episodes=2,
        metrics_every=10,
        quiet=True,
        out=str(path),
    ).path


class Sample:
    """A run with two snapshots, and what is in the folder of one that was not interrupted."""

    def __init__(self, kind: str, folder: Path) -> None:
        data = save(folder / "data.hdf5", point_fields(), **BOUNDS)
        self.path = _train(kind, folder / "run", STEPS[0], data)
        td7.resume(self.path, steps=STEPS[1], quiet=True)
        self.whole = contents(_train(kind, folder / "whole", STEPS[2], data))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    return {kind: Sample(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def member(**values: Any) -> Callable[[Any], object]:
    return lambda m: m["members"][1].update(values)


def both(name: str, value: Any) -> Callable[[Any], object]:
    return lambda m: m.update({name: [value, value]})


MEMBERS: dict[str, Callable[[Any], object]] = {
    **{
        f"no {name}": lambda m, name=name: m.pop(name)  # type: ignore[misc]  # bound at once
        for name in (
            *("config", "versions", "seeds", "members", "updates", "rows_added", "table_rows"),
            *("pending_evaluations", "seconds", "times"),
        )
    },
    "a config that is no object": lambda m: m.update(config=[]),
    "steps in words": lambda m: m["config"].update(steps="90"),
    "versions that are no object": lambda m: m.update(versions=None),
    "other seeds": lambda m: m.update(
        seeds=[0, 5], shards={"0": m["shards"]["0"], "5": m["shards"]["4"]}
    ),
    "one member": lambda m: m["members"].pop(),
    "a member that is no object": lambda m: m.update(members=[1, 2]),
    "a member without its seed": lambda m: m["members"][0].pop("seed"),
    "a member without its steps": lambda m: m["members"][0].pop("steps"),
    "other steps": member(steps=30),
    "another member's seed": member(seed=0),
    "an unknown field of a member": member(luck=7),
    "a member that has finished": member(finished=True),
    "negative steps": member(steps=-1),
    "half a step": member(steps=60.5),
    "more steps than the run has": member(steps=10_000),
    "steps true": member(steps=True),
    "negative episodes": member(episodes=-2),
    "owed in words": member(owed="3"),
    "an evaluation in words": member(evaluation="good"),
    "learns 1": member(learns=1),
    "no assessment": member(assessment=None),
    "an assessment in words": member(assessment={"best": "high"}),
    "an unknown field of an assessment": member(assessment={"best": 1.0, "worst": 0.0}),
    "negative updates": both("updates", -1),
    "half an update": both("updates", 1.5),
    "one update": lambda m: m.update(updates=[1]),
    "huge updates": both("updates", 10**30),
    "negative rows": both("rows_added", -1),
    "other rows": lambda m: m.update(rows_added=[n + 1 for n in m["rows_added"]]),
    "rows in words": both("rows_added", "60"),
    "evaluations that are no list": lambda m: m.update(pending_evaluations={}),
    "an evaluation of nothing": lambda m: m.update(pending_evaluations=[{}]),
    "an evaluation without its policy": lambda m: m.update(
        pending_evaluations=[{"seed": 0, "step": 30, "episodes": 2}]
    ),
    "an evaluation of another seed": lambda m: m.update(
        pending_evaluations=[{"seed": 1, "step": 30, "episodes": 2}]
    ),
    "tables that are no object": lambda m: m.update(table_rows=[]),
    "a table in words": lambda m: m["table_rows"].update(evaluations="12"),
    "negative rows of a table": lambda m: m["table_rows"]["evaluations"].update({"0": -1}),
    "more rows than the table has": lambda m: m["table_rows"]["evaluations"].update({"0": 99}),
    "a table's seed in words": lambda m: m["table_rows"]["evaluations"].update({"x": 1}),
    "seconds in words": lambda m: m["seconds"].update(update="long"),
    "negative seconds": lambda m: m["seconds"].update(update=-1.0),
    "times without seconds": lambda m: m["seconds"].pop("update"),
    "half a time": lambda m: m["times"].update(update=0.5),
}


def check_falls_back(sample: Sample, run: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The run resumes exactly from the snapshot before; return the line that it prints."""
    td7.resume(run, steps=STEPS[2], quiet=True)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("snapshot 000002 is damaged (")
    assert line.endswith("); trying the one before")
    assert len(line) < 300
    assert differences(contents(run), sample.whole) == []
    return line


@pytest.mark.parametrize("name", MEMBERS)
def test_members_that_do_not_fit_are_damage(
    samples: dict[str, Sample], name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = list(KINDS)[list(MEMBERS).index(name) % len(KINDS)]
    shutil.copytree(samples[kind].path, tmp_path / "run")
    edit_members(newest(tmp_path / "run"), MEMBERS[name])
    check_falls_back(samples[kind], tmp_path / "run", capfd)


Tensors = dict[str, torch.Tensor]


def first(tensors: Tensors, part: str) -> str:
    return next(name for name in sorted(tensors) if part in name)


def changed(part: str, change: Callable[[Any], Any]) -> Callable[[Tensors], object]:
    """Change the first tensor whose name has this part."""
    return lambda t: t.update({first(t, part): change(t[first(t, part)]).contiguous()})


TENSORS: dict[str, tuple[str, Callable[[Tensors], object]]] = {
    "none": ("checkpointed", dict.clear),
    "one is missing": ("checkpointed", lambda t: t.pop(first(t, "critic"))),
    "another name": ("offline", lambda t: t.update({"x": t.pop(first(t, "actor"))})),
    "one seed too few": ("checkpointed", changed("learner.", lambda t: t[:1])),
    "one seed for both": ("lockstep", changed("learner.", lambda t: t[:1, None])),
    "float64": ("checkpointed", changed("learner.", lambda t: t.double())),
    "negative counts": ("lockstep", changed(".steps", lambda t: t.long() * 0 - 1)),
    "no checkpoint": ("checkpointed", lambda t: t.pop(first(t, "checkpoint."))),
    "a long checkpoint": ("checkpointed", changed("checkpoint.", lambda t: torch.cat([t, t]))),
    "too few priorities": ("checkpointed", changed("replay.priorities", lambda t: t[1:])),
    "priorities of float32": ("offline", changed("replay.priorities", lambda t: t.float())),
    "negative priorities": ("checkpointed", changed("replay.priorities", lambda t: -t)),
    "priorities without a value": ("offline", changed("replay.priorities", lambda t: t * np.nan)),
    "an infinite maximum": ("lockstep", changed("replay.max_priority", lambda t: t + np.inf)),
    "several maxima": ("lockstep", changed("replay.max_priority", lambda t: t.expand(2))),
    "no actions": ("lockstep", lambda t: t.pop(first(t, "episode_actions"))),
    "wide actions": ("lockstep", changed("episode_actions", lambda t: torch.zeros(3, 9))),
    "flat actions": ("lockstep", changed("episode_actions", lambda t: torch.zeros(6))),
    "one action": ("lockstep", changed("episode_actions", lambda t: torch.tensor(1.0))),
    "more actions than steps": (
        "lockstep",
        changed("episode_actions", lambda t: torch.zeros(1_000, t.shape[1])),
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_damage(
    samples: dict[str, Sample], name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, change = TENSORS[name]
    shutil.copytree(samples[kind].path, tmp_path / "run")
    snapshot = newest(tmp_path / "run")
    tensors = load_file(snapshot / "state.safetensors")
    change(tensors)
    replace_file(snapshot, "state.safetensors", lambda path: save_file(tensors, path))
    check_falls_back(samples[kind], tmp_path / "run", capfd)


def replace_file(snapshot: Path, name: str, write: Callable[[Path], object]) -> None:
    """Write a file of a snapshot anew, and its checksum with it."""
    write(snapshot / name)
    digest = FileDigest.of(snapshot / name)._asdict()
    edit_manifest(snapshot, lambda m: m["files"].update({f"{snapshot.name}/{name}": digest}))


@pytest.mark.parametrize("content", [b"", b"no tensors", bytes(100), b"\x02" + bytes(7) + b"{}x"])
@pytest.mark.parametrize("name", ["state.safetensors", "members.json"])
def test_files_of_another_format_are_damage(store: Store, name: str, content: bytes) -> None:
    replace_file(store.folder / "000002", name, lambda path: path.write_bytes(content))
    other = store.again()
    assert other.value() == 1.0
    (line,) = other.warnings
    assert line.startswith(f"snapshot 000002 is damaged ({name}")


@pytest.mark.parametrize("text", ["[]", "7", '{"a": ' * 50_000, "NaN", '"\\ud800"'])
def test_members_of_another_kind_are_damage(store: Store, text: str) -> None:
    replace_file(store.folder / "000002", "members.json", lambda path: path.write_text(text))
    other = store.again()
    assert other.value() == 1.0
    (line,) = other.warnings
    assert line.startswith("snapshot 000002 is damaged (members.json is damaged: ")


def test_rows_of_another_width_are_damage(
    samples: dict[str, Sample], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of a seed's: they agree with each other, but not with the task."""
    sample = samples["checkpointed"]
    shutil.copytree(sample.path, tmp_path / "run")
    snapshot = newest(tmp_path / "run")
    names = json.loads((snapshot / "members.json").read_text())["shards"]["4"]
    copies = {}
    for name in names:
        file = snapshot.parent / name
        copies[name] = file.read_bytes()
        np.save(file, np.load(file)[:, :5])
        digest = FileDigest.of(file)._asdict()
        edit_manifest(snapshot, lambda m, n=name, d=digest: m["files"].update({n: d}))  # type: ignore[misc]  # bound at once
    with pytest.raises(RunError, match="000002: the replay rows of seed 4 do not fit; 000001: "):
        td7.resume(tmp_path / "run", steps=STEPS[2], quiet=True)


def test_another_config_is_an_error_and_no_damage(
    samples: dict[str, Sample], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(samples["checkpointed"].path, tmp_path / "run")
    edit_members(newest(tmp_path / "run"), lambda m: m["config"].update(evaluate_every=60))
    with pytest.raises(InputError, match=r"a run's config cannot change on resume: evaluate_every"):
        td7.resume(tmp_path / "run", steps=STEPS[2], quiet=True)
    assert capfd.readouterr().err == ""


def test_a_table_that_lost_rows_since_the_snapshot_before(
    samples: dict[str, Sample], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sample = samples["checkpointed"]
    shutil.copytree(sample.path, tmp_path / "run")
    (tmp_path / "run" / FINISHED).unlink()  # as if it had been killed
    table = tmp_path / "run" / "metrics.csv"
    header, *lines = table.read_text().splitlines()
    latest = max(lines, key=lambda line: int(line.split(",")[1]))
    table.write_text("\n".join([header, *(line for line in lines if line != latest)]) + "\n")
    line = check_falls_back(sample, tmp_path / "run", capfd)
    assert "metrics.csv does not hold the rows that its snapshot counts" in line

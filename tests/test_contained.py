"""Datasets that lead out of their file, declare more than there is, or are damaged."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dataset_files import fields_of, refused, save
from td7.datasets import contained
from td7.datasets.contained import HEAP
from td7.datasets.hdf5 import write_hdf5
from td7.datasets.read import read
from td7.errors import InputError
from test_minari import EPISODES, save_minari

FIELDS = fields_of("..T.C")
ROWS = len(FIELDS["rewards"])


def external(file: Any, secret: Path) -> None:
    file.create_dataset("rewards", (ROWS,), "f4", external=[(str(secret), 0, 4 * ROWS)])


def external_link(file: Any, secret: Path) -> None:
    file["rewards"] = h5py.ExternalLink(str(secret), "/rewards")


def soft_link(file: Any, secret: Path) -> None:
    file["rewards"] = h5py.SoftLink("/observations")


def virtual(file: Any, secret: Path) -> None:
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "rewards", (ROWS,))
    file.create_virtual_dataset("rewards", layout)


def filtered(file: Any, secret: Path) -> None:
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((ROWS,))
    settings.set_filter(32_001, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((ROWS,))
    h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_FLOAT, space, settings)


WAYS_OUT: list[tuple[Callable[[Any, Path], None], str]] = [
    (external, "rewards is stored in other files"),
    (external_link, "rewards is an external link"),
    (soft_link, "rewards is a soft link"),
    (virtual, "rewards is a virtual dataset"),
    (filtered, "rewards needs the filter '32001'"),
]


@pytest.mark.parametrize(("lead_out", "message"), WAYS_OUT)
@pytest.mark.parametrize("is_minari", [False, True])
def test_what_leads_out_of_a_file_is_refused(
    lead_out: Callable[[Any, Path], None],
    message: str,
    is_minari: bool,
    tmp_path: Path,
    minari_root: Path,
) -> None:
    """The other file is a FIFO: whoever opens it waits for ever."""
    os.mkfifo(tmp_path / "secret")
    path: str | Path = tmp_path / "a.hdf5"
    if is_minari:
        save_minari(path := "some-v0", EPISODES)
        main = minari_root / "some-v0" / "data" / "main_data.hdf5"
    else:
        main = save(tmp_path / "a.hdf5", FIELDS)
    with h5py.File(main, "r+") as file:
        group = file["episode_0"] if is_minari else file
        del group["rewards"]
        lead_out(group, tmp_path / "secret")
    refused(path, message)


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.hdf5")
    refused(tmp_path / "a.hdf5", "neither a file nor a local Minari dataset")


# -- sizes -----------------------------------------------------------------------------------------


def test_rows_that_a_file_only_declares_are_not_read(tmp_path: Path) -> None:
    """A terabyte in a file of a few kilobytes, where unwritten chunks count as zeros."""
    path = tmp_path / "a.hdf5"
    widths = {"observations": 3, "actions": 2, "rewards": 0, "terminals": 0}
    with h5py.File(path, "w") as file:
        for name, width in widths.items():
            shape = (10**11, width) if width else (10**11,)
            file.create_dataset(name, shape, "f4", chunks=(1_000_000, width)[: len(shape)])
    assert path.stat().st_size < 10_000
    refused(path, "needs 5600.0 GB of memory, but only ")


def test_what_a_file_declares_must_fit_into_the_free_memory(
    tmp_path: Path, minari_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_minari("some-v0", EPISODES)
    for source in (save(tmp_path / "a.hdf5", FIELDS), "some-v0"):
        assert len(read(source).rows) > 0
    monkeypatch.setattr(contained, "free_bytes", lambda: 300)
    for source in (tmp_path / "a.hdf5", "some-v0"):
        refused(source, "GB of memory, but only 0.0 GB are free")


def test_a_group_within_itself_ends(minari_root: Path) -> None:
    save_minari("some-v0", EPISODES)
    with h5py.File(minari_root / "some-v0" / "data" / "main_data.hdf5", "r+") as file:
        file["episode_0/infos/again"] = file["episode_0"]
    refused("some-v0", "has two names; allowed: one")


# -- Minari's metadata -----------------------------------------------------------------------------


def change_metadata(root: Path, **fields: Any) -> None:
    path = root / "some-v0" / "data" / "metadata.json"
    data = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))


@pytest.mark.parametrize("kind", ["observation", "action"])
def test_minari_does_not_make_the_task_that_a_dataset_names(
    kind: str, minari_root: Path, tmp_path: Path
) -> None:
    """Where a space is missing, Minari would call any function of any module for it."""
    save_minari("some-v0", EPISODES, env="Hopper-v5")
    text = json.loads((minari_root / "some-v0" / "data" / "metadata.json").read_text())["env_spec"]
    call = {"entry_point": "os:mkdir", "kwargs": {"path": str(tmp_path / "called")}}
    spec = {**json.loads(text), **call, "additional_wrappers": []}
    change_metadata(minari_root, env_spec=json.dumps(spec), **{f"{kind}_space": None})
    refused("some-v0", "metadata.json cannot be read", f"{kind}_space")
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_link_in_a_minari_folder_is_not_followed(data_format: str, minari_root: Path) -> None:
    save_minari("some-v0", EPISODES, data_format=data_format)
    folder = minari_root / "some-v0" / "data"
    file = min(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json")
    file.rename(minari_root / "elsewhere")
    file.symlink_to(minari_root / "elsewhere")
    with pytest.raises(InputError, match="is a link, which td7 does not follow"):
        read("some-v0")


def test_a_minari_space_is_not_larger_than_its_text(minari_root: Path) -> None:
    save_minari("some-v0", EPISODES)
    space = {"type": "Box", "dtype": "float32", "shape": [10**12], "low": 0.0, "high": 1.0}
    change_metadata(minari_root, observation_space=json.dumps(space))
    refused("some-v0", "the observation space is a Box of shape (1000000000000,)")


# -- damage ----------------------------------------------------------------------------------------


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.hdf5"
    attributes = {"task": "Hopper-v4", "kind": "medium", "action_low": (-1.0, -1.0)}
    write_hdf5(path, **FIELDS, attributes=attributes)
    return path


def test_a_heap_in_which_hdf5_would_search_for_ever_is_refused(own_file: Path) -> None:
    content = bytearray(own_file.read_bytes())
    first = content.index(HEAP) + 16
    content[first : first + 16] = bytes(16)  # the free space, and no byte of it
    own_file.write_bytes(content)
    refused(own_file, "its heap of strings is damaged")


def outcome(path: Path) -> str:
    try:
        rows = read(path).rows
    except InputError as error:
        return "refused" if "\n" not in str(error) else str(error)
    return "read" if np.isfinite(rows).all() else "not finite"


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_one_line(seed: int, own_file: Path) -> None:
    """Whatever it is, and wherever: in HDF5's own records more often than in the numbers."""
    content = own_file.read_bytes()
    source = random.Random(seed)
    outcomes = set()
    for _ in range(60):
        damaged = bytearray(content)
        at = source.randrange(len(content) - 8)
        damaged[at : at + 8] = source.choice([b"\xff" * 8, bytes(8), source.randbytes(8)])
        own_file.write_bytes(damaged)
        outcomes.add(outcome(own_file))
    assert outcomes == {"read", "refused"}

"""The datasets by name: D4RL's, files in a folder, and Minari's on this machine."""

from pathlib import Path
from typing import NamedTuple

from td7.datasets.download import DATASETS
from td7.datasets.minari import local_datasets

D4RL, LOCAL, MINARI = "D4RL", "local", "Minari"


class ListedDataset(NamedTuple):
    name: str
    origin: str
    bytes: int
    path: str | None  # None: not on this machine, `td7 dataset fetch` downloads it


def listed_datasets(folder: Path) -> list[ListedDataset]:
    """List D4RL's datasets, the other files in the folder and Minari's datasets; opens no file."""
    sizes = {
        file: file.stat().st_size
        for file in sorted(folder.glob("*"))
        if file.suffix.lower() in (".hdf5", ".h5") and file.is_file()
    }
    listed = []
    for name, remote in DATASETS.items():
        path = folder / remote.file
        # `td7 dataset fetch` compares the SHA-256.
        is_here = sizes.get(path) == remote.bytes
        listed.append(ListedDataset(name, D4RL, remote.bytes, str(path) if is_here else None))
    known = {dataset.path for dataset in listed}
    listed += [
        ListedDataset(file.stem, LOCAL, size, str(file))
        for file, size in sizes.items()
        if str(file) not in known
    ]
    for name, path in local_datasets().items():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        listed.append(ListedDataset(name, MINARI, size, str(path)))
    return listed

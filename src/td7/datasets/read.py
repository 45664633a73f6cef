"""A dataset by its path or id, whatever its format."""

from difflib import get_close_matches
from pathlib import Path

from td7.datasets import download as fetching
from td7.datasets.dataset import Dataset
from td7.datasets.hdf5 import TIME_LIMIT, read_hdf5
from td7.datasets.minari import minari_folder, minari_root, read_minari
from td7.errors import InputError
from td7.rollouts.environment import ActionMap


def read(
    source: str | Path, *, bounds: ActionMap | None = None, time_limit: int | None = None
) -> Dataset:
    """The dataset in an HDF5 file of D4RL's layout or a Minari folder, or with a local Minari id.

    `bounds` are those of the actions in the data, which become [-1, 1]. Without them they are what
    the data says (attributes of `write`, Minari's action space), and [-1, 1] where it says nothing.
    `time_limit` is the task's, for data that do not say where it cut an episode; without, D4RL's.
    """
    path = Path(source)
    if path.is_file():
        return read_hdf5(path, str(source), bounds, time_limit or TIME_LIMIT)
    if folder := minari_folder(path):
        return read_minari(folder, str(source), bounds)
    if path.is_dir():
        raise InputError(f"{source} is a folder without a Minari dataset: no metadata.json")
    if str(source) in fetching.DATASETS:
        hint = f"; `td7 dataset fetch {source}` gets D4RL's file of that name"
    else:
        near = _nearest(path)
        hint = f"; did you mean {near!r}?" if near else ""
    raise InputError(f"{source} is neither a file nor a local Minari dataset{hint}")


def _nearest(path: Path) -> str | None:
    """What was probably meant by a path or an id that does not exist."""
    beside = {other.name: str(other) for other in path.parent.glob("*") if other != path}
    if close := get_close_matches(path.name, beside, n=1):
        return beside[close[0]]
    root = minari_root()
    folders = (  # an id has up to three parts; deeper down lie an episode's own folders
        folder for depth in (1, 2, 3) for folder in root.glob("*/" * depth + "data/metadata.json")
    )
    ids = [folder.parent.parent.relative_to(root).as_posix() for folder in folders]
    return next(iter(get_close_matches(str(path), ids, n=1)), None)

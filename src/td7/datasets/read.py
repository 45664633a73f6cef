"""Read a dataset of either format by its path or id."""

from difflib import get_close_matches
from pathlib import Path

from td7.datasets.checks import reading
from td7.datasets.dataset import Dataset
from td7.datasets.download import DATASETS
from td7.datasets.hdf5 import TIME_LIMIT, read_hdf5
from td7.datasets.minari import minari_folder, minari_root, read_minari
from td7.errors import InputError
from td7.rollouts.environment import ActionMap


def read(
    source: str | Path, *, bounds: ActionMap | None = None, time_limit: int | None = None
) -> Dataset:
    """Read an HDF5 file of D4RL's layout, a Minari folder, or a local Minari dataset by its id.

    `bounds` are the task's action bounds, which become [-1, 1]. Without them, the dataset's own
    apply (attributes of `write_hdf5`, Minari's action space), or [-1, 1] if it states none.
    `time_limit` is the task's, for data without timeouts; it defaults to D4RL's.
    """
    path = Path(source)
    with reading(str(source)):
        if path.is_file():
            return read_hdf5(path, str(source), bounds, time_limit or TIME_LIMIT)
        if folder := minari_folder(path):
            return read_minari(folder, str(source), bounds)
    if path.is_dir():
        raise InputError(f"{source} is a folder without a Minari dataset: no metadata.json")
    if str(source) in DATASETS:
        hint = f"; `td7 dataset fetch {source}` downloads D4RL's file of that name"
    else:
        match = _nearest(path)
        hint = f"; did you mean {match!r}?" if match else ""
    raise InputError(f"{source} is neither a file nor a local Minari dataset{hint}")


def _nearest(path: Path) -> str | None:
    """Return the existing path or Minari id that is most like one that does not exist."""
    siblings = {other.name: str(other) for other in path.parent.glob("*") if other != path}
    if close := get_close_matches(path.name, siblings, n=1):
        return siblings[close[0]]
    root = minari_root()
    files = (  # an id has up to three parts; the folders of episodes lie deeper
        file for depth in (1, 2, 3) for file in root.glob("*/" * depth + "data/metadata.json")
    )
    ids = [file.parent.parent.relative_to(root).as_posix() for file in files]
    return next(iter(get_close_matches(str(path), ids, n=1)), None)

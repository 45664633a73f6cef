"""D4RL's HDF5 files and Minari's datasets as replay rows, and D4RL's normalised score.

A file's rows are D4RL's q-learning view of it: the last row of an episode that its time limit cut
is left out, a terminal row stays. A row's next state is the file's `next_observations`; without
them it is the next row's observation, which after a terminal row belongs to another episode and
counts for nothing in a value, and a file's last row, which has none, is left out.

D4RL itself takes the next row's observation in any case, leaves the file's last row out in any
case, and also a terminal row on the last step of the time limit, which here is an end.
"""

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium
import h5py
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from td7 import files
from td7.datasets import download as fetching
from td7.errors import InputError, one_line
from td7.rollouts.environment import ActionMap
from td7.types import Float32, Float64, RowLayout, Task

Flags = NDArray[np.bool_]  # [N]

ATTRIBUTE = "td7."  # how the attributes of our own files begin
ROUNDING = 1e-4  # actions may leave their bounds by so much; they are clipped
TIME_LIMIT = 1000  # environment steps, of every task of D4RL's MuJoCo files

NUMBERS = ("observations", "actions", "next_observations", "rewards")
FLAGS = ("terminals", "timeouts")
OPTIONAL = ("next_observations", "timeouts")
COLUMNS = ("rewards", *FLAGS)  # one number a row; the other fields have several


class Reference(NamedTuple):
    """The returns that D4RL scores as 0 and as 100."""

    random: float
    expert: float


REFERENCE_RETURNS = {  # by Gymnasium's name without its version
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Hopper": Reference(-20.272305, 3234.3),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}


@final
@dataclass(frozen=True)
class Dataset:
    """Transitions as the replay keeps them, and the episodes they come from.

    `returns` and `lengths` are those of complete episodes, rows that were left out included. What
    is no complete one, as the last of a file may be, is in `rows` alone: where neither the task
    nor a time limit ended it, or where the file says that only its recording did.
    """

    source: str  # as given
    name: str  # of the file without its suffix, or Minari's id
    task_id: str  # Gymnasium's; empty if unknown
    task_kwargs: Mapping[str, Any] | None  # what it was made with; None if unknown
    layout: RowLayout
    bounds: ActionMap  # of the actions in the data
    rows: Float32  # [N, layout.width], actions in [-1, 1]
    returns: Float64  # [episodes], undiscounted
    lengths: NDArray[np.int64]  # [episodes], environment steps
    self_collected: bool  # written by this package, not D4RL's or Minari's own data
    warnings: tuple[str, ...]
    d4rl: str = ""  # D4RL's name of the file, if its SHA-256 says that it is D4RL's
    left_out: int = 0  # rows of the source that are not learned from


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
        return _read_hdf5(path, str(source), bounds, time_limit or TIME_LIMIT)
    if folder := _minari_folder(path):
        return _read_minari(folder, str(source), bounds)
    if path.is_dir():
        raise InputError(f"{source} is a folder without a Minari dataset: no metadata.json")
    if str(source) in fetching.DATASETS:
        hint = f"; `td7 dataset fetch {source}` gets D4RL's file of that name"
    else:
        near = _nearest(path)
        hint = f"; did you mean {near!r}?" if near else ""
    raise InputError(f"{source} is neither a file nor a local Minari dataset{hint}")


def write(
    path: Path,
    *,
    observations: ArrayLike,
    actions: ArrayLike,
    next_observations: ArrayLike,
    rewards: ArrayLike,
    terminals: ArrayLike,
    timeouts: ArrayLike,
    attributes: Mapping[str, Any],
) -> None:
    """A self-collected dataset in D4RL's layout: [N, dimensions] and [N], in time's order.

    `attributes` has `task` and `kind`, and whatever else HDF5 can hold, `task_kwargs` as JSON; in
    the file their names begin with `td7.`. Actions are the task's own: bounds other than [-1, 1]
    belong in there too, as `action_low` and `action_high`. `cut_rows` are the timeouts that only
    the recording made.
    """
    if missing := {"task", "kind"} - attributes.keys():
        raise ValueError(f"{path}: attributes without {', '.join(sorted(missing))}")
    numbers = zip(NUMBERS, (observations, actions, next_observations, rewards), strict=True)
    flags = zip(FLAGS, (terminals, timeouts), strict=True)
    fields: dict[str, NDArray[Any]] = {
        **{name: _float32(str(path), name, given) for name, given in numbers},
        **{name: _booleans(str(path), name, np.asarray(given)) for name, given in flags},
    }
    _check_fields(str(path), fields)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, array in fields.items():
            file.create_dataset(name, data=array, compression="gzip")
        for name, value in {**attributes, "self_collected": True}.items():
            file.attrs[ATTRIBUTE + name] = value
    files.write(path, lambda out: out.write(buffer.getbuffer()))


def score(task_id: str, returns: ArrayLike) -> Float64 | None:
    """D4RL's 100 * (return - random) / (expert - random); None for a task without references."""
    reference = REFERENCE_RETURNS.get(Task(task_id).family)
    if reference is None:
        return None
    random, expert = reference
    return np.asarray(100 * (np.asarray(returns, np.float64) - random) / (expert - random))


def other_task(dataset: Dataset, task: Task) -> str | None:
    """A warning, if the data say that they are of another task than this one."""
    own = Task(dataset.task_id, dict(dataset.task_kwargs or {}))
    # A name of D4RL's tells no version, nor how its task was made.
    by_name = not dataset.self_collected and _task_of(dataset.name) == own.id
    same = own.family == task.family if by_name else own.name == task.name
    if (same or not own.id) and dataset.task_kwargs in (None, task.kwargs):
        return None
    return f"its data are of {_words(own)}, but it is evaluated on {_words(task)}"


def _words(task: Task) -> str:
    given = " ".join(f"{name}={json.dumps(value)}" for name, value in task.kwargs.items())
    return f"{task.id} with {given}" if given else task.id


def summary(dataset: Dataset) -> dict[str, Any]:
    """A dataset in plain values; None where there is nothing to take a statistic of."""
    scores = score(dataset.task_id, dataset.returns)
    return {
        "source": dataset.source,
        "name": dataset.name,
        "task": dataset.task_id,
        "task_kwargs": dataset.task_kwargs,
        "self_collected": dataset.self_collected,
        "d4rl": dataset.d4rl,
        "rows": len(dataset.rows),
        "left_out": dataset.left_out,
        "episodes": len(dataset.returns),
        "state_dim": dataset.layout.state_dim,
        "action_dim": dataset.layout.action_dim,
        "returns": _statistics(dataset.returns),
        "lengths": _statistics(dataset.lengths),
        "scores": None if scores is None else _statistics(scores),
        "terminal_share": float(np.mean(dataset.rows[:, -1] == 0)),
        "warnings": list(dataset.warnings),
    }


def _statistics(values: NDArray[Any]) -> dict[str, float | None] | None:
    if not len(values):
        return None
    return {
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "min": float(values.min()),
        "median": float(np.median(values)),
        "max": float(values.max()),
    }


# -- D4RL's files --------------------------------------------------------------------------------


def _read_hdf5(path: Path, where: str, bounds: ActionMap | None, time_limit: int) -> Dataset:
    if not h5py.is_hdf5(path):
        raise InputError(f"{where} is not an HDF5 file")
    with _reading(where):
        file = h5py.File(path, "r")
    with file:
        fields = _fields(where, file)
        layout = RowLayout(fields["observations"].shape[1], fields["actions"].shape[1])
        with _reading(f"{where}: attributes"):
            attributes = dict(file.attrs)
            task_id = _text(attributes.get(f"{ATTRIBUTE}task", "")) or _task_of(path.stem)
            stamp = attributes.get(f"{ATTRIBUTE}task_kwargs")
            kwargs = None if stamp is None else dict(json.loads(stamp))
            cut = np.asarray(attributes.get(f"{ATTRIBUTE}cut_rows", ()), np.int64)
            self_collected = bool(attributes.get(f"{ATTRIBUTE}self_collected", False))
            stated = _stated_bounds(attributes, layout)
        bounds = _bounds(where, bounds, stated, layout)
        terminals, timeouts, derived = _ends(where, fields, time_limit)
        rewards = _numbers(where, fields["rewards"])
        rows, clipped = _rows(where, fields, layout, bounds, terminals, timeouts, rewards)
    d4rl = fetching.identified(path)
    returns, lengths = _episodes(rewards, terminals | timeouts)
    is_whole = ~np.isin(np.cumsum(lengths) - 1, cut)
    return Dataset(
        source=where,
        name=path.stem,
        task_id=task_id,
        task_kwargs=kwargs,
        layout=layout,
        bounds=bounds,
        rows=rows,
        returns=returns[is_whole],
        lengths=lengths[is_whole],
        self_collected=self_collected,
        warnings=(*derived, *clipped, *_impostor(path, d4rl)),
        d4rl=d4rl,
        left_out=len(rewards) - len(rows),
    )


def _text(value: Any) -> str:
    """Of an attribute, which HDF5 may hold as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _impostor(path: Path, d4rl: str) -> list[str]:
    """A warning of a file with the name of one of D4RL's, which it is not."""
    names = {dataset.file: name for name, dataset in fetching.DATASETS.items()}
    if d4rl or path.name not in names:
        return []
    return [f"it has the name of D4RL's {names[path.name]}, but not its SHA-256"]


def _rows(
    where: str,
    fields: Mapping[str, Any],
    layout: RowLayout,
    bounds: ActionMap,
    terminals: Flags,
    timeouts: Flags,
    rewards: Float32,
) -> tuple[Float32, list[str]]:
    """The rows that are kept, and warnings. One field at a time: some hold gigabytes."""
    keep = terminals | ~timeouts
    if "next_observations" not in fields:
        keep[-1] = False
    if not keep.any():
        raise InputError(f"{where}: none of the {len(keep)} rows in observations has a next state")
    rows = np.empty((np.count_nonzero(keep), layout.width), np.float32)
    state, action, next_state, reward, not_terminated = np.split(
        rows, np.cumsum(layout.splits)[:-1], axis=1
    )
    observations = _numbers(where, fields["observations"])
    state[:] = observations[keep]
    if "next_observations" in fields:
        del observations
        next_state[:] = _numbers(where, fields["next_observations"])[keep]
    else:
        next_state[:] = observations[1:][keep[:-1]]
        del observations
    actions, clipped = _unit_actions(where, _numbers(where, fields["actions"]), bounds)
    action[:] = actions[keep]
    reward[:, 0] = rewards[keep]
    not_terminated[:, 0] = ~terminals[keep]
    return rows, clipped


def _fields(where: str, file: Any) -> dict[str, Any]:
    """The file's fields by their names, unread, with shapes that fit together."""
    fields = {}
    for name in (*NUMBERS, *FLAGS):
        if name not in file:
            if name in OPTIONAL:
                continue
            has = ", ".join(list(file)[:12]) or "nothing"
            raise InputError(f"{where}: no field {name!r}; it has {has}")
        with _reading(f"{where}: {name}"):
            fields[name] = file[name]
        if not isinstance(fields[name], h5py.Dataset):
            raise InputError(f"{where}: {name} is a group; allowed: an array")
    _check_fields(where, fields)
    return fields


def _check_fields(where: str, fields: Mapping[str, Any]) -> None:
    """Numbers, as many rows in every field, shapes [N, dimensions]; of columns [N] or [N, 1]."""
    for name, field in fields.items():
        # HDF5 has arrays without a shape, too: they hold nothing.
        shape: tuple[int, ...] = field.shape or ()
        states: tuple[int, ...] = fields["observations"].shape or (0,)
        fits = shape[1:] in ((), (1,)) if name in COLUMNS else len(shape) == 2
        if field.dtype.kind not in "fiub":
            raise InputError(f"{where}: {name} holds {field.dtype}; allowed: numbers")
        if not shape or not fits or 0 in shape:
            allowed = "[rows]" if name in COLUMNS else "[rows, dimensions]"
            raise InputError(f"{where}: {name} has the shape {shape}; allowed: {allowed}, not 0")
        if shape[0] != states[0]:
            raise InputError(f"{where}: {name} has {shape[0]} rows, observations {states[0]}")
        if name == "next_observations" and shape != states:
            raise InputError(f"{where}: {name} has the shape {shape}, observations {states}")


def _numbers(where: str, field: Any) -> Float32:
    """All of a field, flat where it has one column; HDF5 converts on the way."""
    name = field.name.strip("/")
    with _reading(f"{where}: {name}"):
        array = field.astype(np.float32)[...]
    return _float32(where, name, array.reshape(-1) if name in COLUMNS else array)


def _ends(where: str, fields: Mapping[str, Any], time_limit: int) -> tuple[Flags, Flags, list[str]]:
    """Where the task ended, where the time limit cut (both at once is an end), and warnings."""
    flags = {}
    for name in FLAGS:
        if name in fields:
            with _reading(f"{where}: {name}"):
                flags[name] = _booleans(where, name, fields[name][...])
    terminals = flags["terminals"]
    if "timeouts" in flags:
        return terminals, flags["timeouts"], []
    # D4RL counts the same, but after a terminal row its count runs one step ahead.
    steps = np.arange(len(terminals))
    starts = np.zeros_like(steps)
    starts[1:][terminals[:-1]] = steps[1:][terminals[:-1]]
    timeouts = (steps - np.maximum.accumulate(starts)) % time_limit == time_limit - 1
    derived = f"no field timeouts: every {time_limit}th step of an episode is taken for one"
    return terminals, timeouts, [derived]


def _episodes(rewards: Float32, ends: Flags) -> tuple[Float64, NDArray[np.int64]]:
    """Returns and lengths of the complete episodes."""
    lasts = np.flatnonzero(ends)
    lengths = np.diff(lasts, prepend=-1)
    if not len(lasts):
        return np.empty(0), lengths
    firsts = lasts - lengths + 1
    return np.add.reduceat(rewards[: lasts[-1] + 1], firsts, dtype=np.float64), lengths


def _task_of(name: str) -> str:
    """The task of D4RL's file with this name, such as hopper_medium-v2; empty if it is none."""
    families = {family.lower(): family for family in REFERENCE_RETURNS}
    kinds = "random|medium|expert|full|replay|mixed"
    match = re.fullmatch(rf"({'|'.join(families)})([-_]({kinds}))+(-v\d+)?", name.lower())
    # D4RL numbers the data. Its tasks are Gymnasium's v2, of which v4 is the one still made.
    return f"{families[match[1]]}-v4" if match else ""


def _stated_bounds(attributes: Mapping[str, Any], layout: RowLayout) -> ActionMap:
    """The bounds of the actions that a file states; [-1, 1] if it states none."""
    low, high = (
        np.atleast_1d(attributes.get(f"{ATTRIBUTE}action_{side}", [default] * layout.action_dim))
        for side, default in (("low", -1.0), ("high", 1.0))
    )
    return ActionMap(tuple(map(float, low)), tuple(map(float, high)))


# -- Minari's ------------------------------------------------------------------------------------


def _minari_root() -> Path:
    """Where Minari keeps its local datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH", "~/.minari/datasets")).expanduser()


def _minari_folder(path: Path) -> Path | None:
    """Where the data of a Minari dataset lies, given its folder or its id; None if it is none."""
    places = (path, path / "data", _minari_root() / path / "data")
    return next((place for place in places if (place / "metadata.json").is_file()), None)


def _read_minari(folder: Path, where: str, bounds: ActionMap | None) -> Dataset:
    """Every row is kept: the next observation is there also where an episode was cut."""
    try:
        import minari

        with _reading(where):
            data = minari.MinariDataset(folder)
    except ImportError as error:
        hint = "pip install 'td7[minari]'"
        raise InputError(f"{where}: Minari's datasets need the extra `minari`: {hint}") from error
    states = _flat_box(where, "observation", data.observation_space)
    actions = _flat_box(where, "action", data.action_space)
    layout = RowLayout(*states.shape, *actions.shape)
    stated = ActionMap(tuple(map(float, actions.low)), tuple(map(float, actions.high)))
    bounds = _bounds(where, bounds, stated, layout)
    rows, returns, lengths = _minari_rows(where, data, layout)
    action = rows[:, layout.state_dim :][:, : layout.action_dim]
    action[:], clipped = _unit_actions(where, action, bounds)
    return Dataset(
        source=where,
        name=data.id,
        task_id=data.env_spec.id if data.env_spec else "",
        task_kwargs=_made_with(data.env_spec) if data.env_spec else None,
        layout=layout,
        bounds=bounds,
        rows=rows,
        returns=np.array(returns, np.float64),
        lengths=np.array(lengths, np.int64),
        self_collected=False,
        warnings=tuple(clipped),
    )


def _made_with(spec: EnvSpec) -> dict[str, Any]:
    """What a task was made with other than usual, but for how it is drawn."""
    usual = gymnasium.registry.get(spec.id, EnvSpec(spec.id))
    kwargs, steps = {**spec.kwargs, "render_mode": None}, spec.max_episode_steps
    if steps not in (None, usual.max_episode_steps):
        kwargs["max_episode_steps"] = steps
    known = {**usual.kwargs, "render_mode": None}
    return {name: value for name, value in kwargs.items() if (name, value) not in known.items()}


def _minari_rows(
    where: str, data: Any, layout: RowLayout
) -> tuple[Float32, list[float], list[int]]:
    """All rows, actions as they are, and the complete episodes' returns and lengths."""
    parts, returns, lengths = [np.empty((0, layout.width), np.float32)], [], []
    with _reading(where):
        episodes = iter(data.iterate_episodes())
    for number in range(data.total_episodes):
        here = f"{where}: episode {number}"
        with _reading(here):
            rows, complete = _episode_rows(here, next(episodes), layout)
        parts.append(rows)
        if complete:
            returns.append(float(rows[:, -2].sum(dtype=np.float64)))
            lengths.append(len(rows))
    rows = np.concatenate(parts)
    if not len(rows):
        raise InputError(f"{where}: observations has no rows; allowed: some")
    if len(rows) != data.total_steps:  # Minari passes over the rest of an episode it reads in parts
        raise InputError(f"{where}: its episodes have {len(rows)} rows, not {data.total_steps}")
    return rows, returns, lengths


def _episode_rows(where: str, episode: Any, layout: RowLayout) -> tuple[Float32, bool]:
    """An episode's rows, actions as they are, and whether it ended or was cut."""
    numbers, flags = {}, {}
    for name in ("observations", "actions", "rewards"):
        with _reading(f"{where}: {name}"):
            numbers[name] = _float32(where, name, getattr(episode, name))
    for name in ("terminations", "truncations"):
        with _reading(f"{where}: {name}"):
            flags[name] = _booleans(where, name, np.asarray(getattr(episode, name)))
    observations, actions, rewards = numbers.values()
    terminations, truncations = flags.values()
    n = len(actions)
    for name, array, shape in (
        ("observations", observations, (n + 1, layout.state_dim)),
        ("actions", actions, (n, layout.action_dim)),
        ("rewards", rewards, (n,)),
        ("terminations", terminations, (n,)),
        ("truncations", truncations, (n,)),
    ):
        if array.shape != shape:
            raise InputError(f"{where}: {name} has the shape {array.shape}; allowed: {shape}")
    parts = (observations[:-1], actions, observations[1:], rewards, ~terminations)
    return np.column_stack(parts), bool((terminations | truncations)[-1:].any())


def _flat_box(where: str, kind: str, space: Any) -> Box:
    if isinstance(space, Box) and len(space.shape) == 1 and space.shape[0]:
        return space
    raise InputError(f"{where}: the {kind} space is {one_line(space)}; allowed: a flat Box")


# -- what both share -----------------------------------------------------------------------------


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever a library raises over damaged data, as one line that says where."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except Exception as error:
        raise InputError(f"{what} cannot be read: {one_line(error)}") from error


def _float32(where: str, name: str, given: ArrayLike) -> Float32:
    """Finite numbers."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite: told below
        array = np.asarray(given, np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        first = np.unravel_index(np.argmin(finite), array.shape)
        raise InputError(
            f"{where}: {name} holds {array[first]} in row {first[0]}; allowed: finite float32"
        )
    return array


def _booleans(where: str, name: str, array: NDArray[Any]) -> Flags:
    """[N] from [N] or [N, 1]."""
    flags = array.reshape(-1)
    wrong = np.flatnonzero((flags != 0) & (flags != 1))
    if len(wrong):
        raise InputError(
            f"{where}: {name} holds {flags[wrong[0]]} in row {wrong[0]}; allowed: 0 and 1"
        )
    return flags.astype(bool)


def _bounds(where: str, given: ActionMap | None, stated: ActionMap, layout: RowLayout) -> ActionMap:
    """The bounds given, or else those stated by the data, if they are any for its actions."""
    bounds = stated if given is None else given
    if not len(bounds.low) == len(bounds.high) == layout.action_dim:
        whose = "its bounds" if given is None else "the task's"
        raise InputError(
            f"{where}: actions has {layout.action_dim} dimensions, {whose} {len(bounds.low)}"
        )
    for dimension, (low, high) in enumerate(zip(bounds.low, bounds.high, strict=True)):
        if not -np.inf < low < high < np.inf:
            raise InputError(
                f"{where}: the bounds of actions are [{low}, {high}] in dimension {dimension}; "
                "allowed: finite, low < high"
            )
    return bounds


def _unit_actions(where: str, actions: Float32, bounds: ActionMap) -> tuple[Float64, list[str]]:
    """The actions in [-1, 1], and a warning where rounding had carried some over the bounds."""
    low, high = np.array(bounds.low, np.float32), np.array(bounds.high, np.float32)
    beyond = np.maximum(low - actions, actions - high)
    row, dimension = np.unravel_index(np.argmax(beyond), beyond.shape)
    furthest = beyond[row, dimension]
    if furthest > ROUNDING:
        allowed = (bounds.low[dimension], bounds.high[dimension])
        hint = "" if allowed != (-1.0, 1.0) else ", unless --env names a task of other bounds"
        raise InputError(
            f"{where}: actions holds {actions[row, dimension]} in row {row}, dimension {dimension};"
            f" allowed: {allowed[0]} to {allowed[1]}{hint}"
        )
    clipped = []
    if furthest > 0:
        n = np.count_nonzero((beyond > 0).any(axis=1))
        clipped = [f"{n} actions were outside their bounds by up to {furthest:.1e}: clipped"]
    return bounds.to_unit(actions), clipped


def _nearest(path: Path) -> str | None:
    """What was probably meant by a path or an id that does not exist."""
    beside = {other.name: str(other) for other in path.parent.glob("*") if other != path}
    if close := get_close_matches(path.name, beside, n=1):
        return beside[close[0]]
    root = _minari_root()
    folders = (  # an id has up to three parts; deeper down lie an episode's own folders
        folder for depth in (1, 2, 3) for folder in root.glob("*/" * depth + "data/metadata.json")
    )
    ids = [folder.parent.parent.relative_to(root).as_posix() for folder in folders]
    return next(iter(get_close_matches(str(path), ids, n=1)), None)

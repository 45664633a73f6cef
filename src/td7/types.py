"""The types that several packages share. Worker processes import this module, so no torch here."""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
AnyFloat = NDArray[np.floating[Any]]
AnyPath = str | os.PathLike[str]  # what a user may pass; a `td7.Run` is one
Settings = Mapping[str, Any] | Iterable[str]  # likewise: a value per name, or words name=value
Space = Mapping[str, str | Iterable[Any]] | Iterable[str]  # likewise: ranges and choices
Varied = Mapping[str, Iterable[Any]] | Iterable[str]  # likewise: values per name, or name=a,b


CALLABLES = "callable/"  # Gymnasium's namespace of tasks that a Python program makes itself


def without_version(id: str) -> str:
    """Return a task's id without its version, such as -v4, if it has one."""
    return re.sub(r"-v\d+$", "", id)


# The packages whose import registers the tasks of a namespace, such as dm_control/walker-walk-v0.
NAMESPACES = {"dm_control": "shimmy"}


@dataclass(frozen=True)
class Wrapper:
    """A subclass of gymnasium.Wrapper, as `module:Class`, and keyword arguments for it."""

    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The word that `--wrapper` takes."""
        return (
            f"{self.name}:{json.dumps(self.kwargs, sort_keys=True)}" if self.kwargs else self.name
        )


@dataclass(frozen=True)
class Task:
    """An environment: a Gymnasium id (or `module:Id-v0`), keyword arguments for it, wrappers."""

    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[Wrapper, ...] = ()  # the first is the innermost
    seed_bits: int | None = None  # of reset seeds; None: `describe` has yet to find it out

    @property
    def module(self) -> str:
        """The module whose import registers the task, or "" if its id names none."""
        return self.id.rpartition(":")[0] or NAMESPACES.get(self.id.partition("/")[0], "")

    @property
    def is_callable(self) -> bool:
        """Whether a Python program gave a function that makes it, which no id can name."""
        return self.id.startswith(CALLABLES)

    @property
    def title(self) -> str:
        """The id as people read it: of a task that a program makes itself, the function's name."""
        return self.id.removeprefix(f"{CALLABLES}__main__.").removeprefix(CALLABLES)

    @property
    def name(self) -> str:
        """The id without its module."""
        return self.id.rpartition(":")[2]

    @property
    def family(self) -> str:
        """The name without its version."""
        return without_version(self.name)


@dataclass(frozen=True)
class Entry:
    """A Box within a Dict or Tuple observation: the keys and positions that lead to it."""

    path: tuple[str | int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class TaskSpec:
    """What a learner needs to know about a task. States are flat; actions lie in [-1, 1]."""

    task: Task
    state_shape: tuple[int, ...]  # of the task's own observations; [n] of a Dict or a Tuple
    action_shape: tuple[int, ...]
    action_low: tuple[float, ...]  # the task's own bounds, one number per dimension
    action_high: tuple[float, ...]
    time_limit: int | None  # environment steps per episode, if the task has a limit
    action_dtype: str = "float32"  # of the task's own actions; for integers they are rounded
    entries: tuple[Entry, ...] = ()  # of a Dict or Tuple observation, in the order of the state

    @property
    def state_dim(self) -> int:
        return math.prod(self.state_shape)

    @property
    def action_dim(self) -> int:
        return math.prod(self.action_shape)


@dataclass(frozen=True)
class ModuleSource:
    """A module that is not part of an installed package."""

    sha256: str  # of its file, the first digits
    folder: str  # in which Python found it, for PYTHONPATH


@dataclass(frozen=True)
class Probe:
    """The first steps of an episode with a fixed reset seed and fixed actions.

    An observation of many numbers is kept as the means of groups of neighbours.
    """

    observations: tuple[tuple[float, ...], ...]  # after the reset and after every action
    rewards: tuple[float, ...]  # of every action


@dataclass(frozen=True)
class Fingerprint:
    """What a task is like, by which a later change of it is noticed."""

    modules: Mapping[str, ModuleSource]  # of its classes, and those that a run names
    packages: Mapping[str, str]  # the versions of installed ones that its classes come from
    probe: Probe | None  # None: not played, or not the same when played twice


@dataclass(frozen=True)
class Exploration:
    """How a policy acts in training, given its network's output and standard normal noise."""

    kind: str  # a key of `numpy_actor.EXPLORERS`
    # Standard deviation of added noise, in units of the [-1, 1] action. A number; in a learner of
    # members that differ, a tensor [S].
    scale: Any = 0.0


class _Sliceable(Protocol):
    def __getitem__(self, key: Any, /) -> Any: ...


Array = TypeVar("Array", bound=_Sliceable)  # of NumPy or PyTorch


class Transitions(NamedTuple, Generic[Array]):
    """The parts of packed rows [..., width]."""

    state: Array
    action: Array  # in [-1, 1]
    next_state: Array
    reward: Array  # [..., 1]
    not_terminated: Array  # [..., 1]; 0 only where the task really ended


@dataclass(frozen=True)
class RowLayout:
    """Where the parts of a transition lie in a packed replay row."""

    state_dim: int
    action_dim: int

    @property
    def width(self) -> int:
        return 2 * self.state_dim + self.action_dim + 2

    def split(self, rows: Array) -> Transitions[Array]:
        """Views into rows [..., width]."""
        widths = (self.state_dim, self.action_dim, self.state_dim, 1, 1)
        bounds = pairwise(accumulate(widths, initial=0))
        return Transitions(*(rows[..., begin:end] for begin, end in bounds))

    def row(
        self,
        state: AnyFloat,
        action: AnyFloat,
        next_state: AnyFloat,
        reward: float,
        terminated: bool,  # as the environment reports it
    ) -> Float32:
        """Return a transition as the replay stores it."""
        row = np.empty(self.width, np.float32)
        # Differs from paper: a true end on the very last step of the time limit is an end; the
        # authors' program takes it for the time limit.
        last = (reward, 0.0 if terminated else 1.0)
        np.concatenate((state, action, next_state, last), out=row, casting="same_kind")
        return row


@dataclass(frozen=True)
class Episode:
    """One training episode."""

    rows: Float32  # [length, RowLayout.width]: packed transitions, actions in [-1, 1]
    episode_return: float
    length: int
    finished: bool  # False if the limit on its steps cut it


@dataclass(frozen=True)
class EvaluationEpisode:
    episode_return: float
    length: int


PAPER_TASKS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4", "Humanoid-v4")


def aligned(size: int, alignment: int) -> int:
    """Return `size` rounded up to a multiple of `alignment`."""
    return -(-size // alignment) * alignment

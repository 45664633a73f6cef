"""Trained policies: saved as safetensors and JSON, loaded for `policy.predict(observation)`."""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from td7.configs import parse_number
from td7.errors import InputError, one_line, one_of
from td7.files import check_no_links, typed
from td7.networks.description import Layout, Network, from_json, to_json
from td7.networks.numpy_actor import ACTIVATIONS, EXPLORERS, NORMS, Actor, unflatten
from td7.networks.numpy_actor import flatten as flatten_weights
from td7.rollouts.environment import ActionMap
from td7.rollouts.observations import flatten
from td7.runs.members import Members
from td7.runs.policy_files import (
    DESCRIPTION,
    UNVERIFIED,
    has_checksums,
    read_description,
    steps_of,
    weights_file,
    write_policies,
)
from td7.runs.record import read_task
from td7.types import AnyFloat, AnyPath, Entry, Exploration, Float32, TaskSpec

FORMAT = 2
LARGEST_SIZE = 10_000_000  # of a layer or of an observation, far beyond any in use


class Policy:
    """The trained policy of one seed, with the `predict` of Stable-Baselines3.

    `spec` describes its task: shapes of states and actions, bounds of actions, the time limit.
    `steps` is the number of steps that it was trained for, if it is known.
    """

    def __init__(
        self, spec: TaskSpec, network: Network, flat: AnyFloat, exploration: Exploration
    ) -> None:
        self.spec = spec
        self.network = network
        self.flat = flat
        self.exploration = exploration
        self.steps: int | None = None  # that it was trained for, if they are known
        self.has_checksum = True
        self.actor = Actor(network, flat)  # actions in [-1, 1]
        self._map = ActionMap(spec.action_low, spec.action_high)
        self.action_bounds = _float32_bounds(spec.action_low, spec.action_high)
        dtype = np.dtype(spec.action_dtype)
        self.action_dtype = np.dtype(np.float32) if dtype.kind == "f" else dtype
        self._random = np.random.default_rng()

    def __repr__(self) -> str:
        sizes = f"{self.spec.state_shape} to {self.spec.action_shape}"
        return f"<policy of {self.spec.task.id}, {sizes}>"

    def change_task(self, kwargs: Mapping[str, Any]) -> None:
        """Have it act in a task with other keyword arguments."""
        task = self.spec.task
        self.spec = replace(self.spec, task=replace(task, kwargs={**task.kwargs, **kwargs}))

    def check_fits(self, spec: TaskSpec) -> None:
        """Raise if a task, as it is made now, has states or actions of another size."""
        for name in ("state_dim", "action_dim"):
            now, then = getattr(spec, name), getattr(self.spec, name)
            if now != then:
                what = name.replace("_dim", "s")
                raise InputError(
                    f"{spec.task.id} has {what} of {now} numbers, but the policy was trained with "
                    f"{then}"
                )

    def predict(
        self,
        observation: ArrayLike | Mapping[Any, Any] | tuple[Any, ...],
        state: None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], None]:
        """Return the task's own action(s) for one observation or a batch, and None.

        Where the task's observation is a dictionary or a tuple, give it as the task does (a batch:
        with arrays that have one more axis in front) or flat, in the order of `spec.entries`.
        Actions are float32, or integers if the task's are. With `deterministic=False` they have the
        exploration noise of training. `state` and `episode_start` are ignored: there is no hidden
        state.
        """
        del state, episode_start
        if self.spec.entries and isinstance(observation, Mapping | tuple):
            observation = self._flattened(observation)
        try:
            with np.errstate(over="ignore"):
                observations = np.asarray(observation).astype(self.flat.dtype)
        except (ValueError, TypeError):
            raise InputError(f"{self.spec.task.id}: an observation is not numeric") from None
        shape = self.spec.state_shape
        batch_dims = observations.ndim - len(shape)
        if observations.shape[batch_dims:] != shape or batch_dims not in (0, 1):
            raise InputError(
                f"{self.spec.task.id} has observations {shape} or (n, {str(shape)[1:]}, "
                f"given {observations.shape}"
            )
        batch = observations.shape[:batch_dims]
        states = observations.reshape((*batch, self.spec.state_dim))
        if not np.isfinite(states).all():
            raise InputError(f"{self.spec.task.id}: an observation is not finite")
        if deterministic:
            action = self.actor(states)
        else:
            noise = self._random.standard_normal((*batch, self.spec.action_dim))
            action = self.actor.explore(states, noise, self.exploration)
        task_action = self._map.to_task(action)
        if self.action_dtype.kind != "f":
            task_action = np.rint(task_action).astype(self.action_dtype)
        else:
            task_action = task_action.astype(np.float32).clip(*self.action_bounds)
        return task_action.reshape((*batch, *self.spec.action_shape)), None

    def _flattened(self, observation: Any) -> NDArray[Any]:
        try:
            return flatten(self.spec.entries, observation)
        except ValueError as error:
            raise InputError(f"{self.spec.task.id}: an observation is wrong: {error}") from None


def _float32_bounds(low: Sequence[float], high: Sequence[float]) -> tuple[Float32, Float32]:
    """Return the outermost float32 within the bounds; the nearest float32 to 0.1 exceeds 0.1."""
    lows, highs = np.array(low, np.float32), np.array(high, np.float32)
    return (
        np.where(lows < np.array(low), np.nextafter(lows, np.float32(np.inf)), lows),
        np.where(highs > np.array(high), np.nextafter(highs, np.float32(-np.inf)), highs),
    )


def save(
    folder: Path,
    spec: TaskSpec,
    network: Network,
    policies: Mapping[int, AnyFloat],
    record: Mapping[str, Any],
    members: Members | None = None,
) -> None:
    """Write policy.json and a safetensors file per policy, which are by the ids of members.

    `members` also lists those to come later; without, ids are seeds.
    """
    layout = Layout.of(network)
    files = {}
    for id, flat in policies.items():
        weights = {name: np.ascontiguousarray(w) for name, w in unflatten(layout, flat).items()}
        files[id] = safetensors.numpy.save(weights)
    description = {
        "format": FORMAT,
        **record,
        **(members or Members(tuple(policies))).to_json(),
        "task": asdict(spec),
        "network": to_json(network),
    }
    write_policies(folder, description, files)


def kept_policies(path: Path, step: int) -> Path:
    """Return the folder of a run's policies that were evaluated at `step`, if they are kept."""
    return path / "policies" / f"{step:09d}"


def policy_folder(path: AnyPath) -> Path:
    """Return the folder with policy.json: `path` itself or, in a run folder, policy/."""
    folder = Path(path)
    is_kept = folder.parent.name == "policies" and folder.name.isdecimal()
    if is_kept:  # the step may lack the leading zeros of its folder
        folder = kept_policies(folder.parent.parent, int(folder.name))
    return folder if (folder / "policy.json").exists() else folder / "policy"


def load(path: AnyPath, seed: int | None = None, *, member: int | None = None) -> Policy:
    """Load the policy of a run or policy folder; one with a single policy needs no `seed`.

    Where hyperparameters vary, `member` is the number of a policy.
    """
    path = Path(path)
    folder = policy_folder(path)
    if not path.exists() and not folder.exists():
        raise InputError(f"{path} does not exist")
    if not folder.exists():
        raise InputError(
            f"{path} holds no policy: policy/policy.json is written with a run's first snapshot"
        )
    check_no_links(path)
    file = folder / DESCRIPTION
    try:
        data = read_description(folder)
        if data["format"] != FORMAT:
            raise InputError(f"{folder} has format {data['format']}, this version reads {FORMAT}")
        members = Members.from_json(data)
        spec, network = _spec(data["task"]), _network(data["network"])
        explorations = _explorations(data, members)
        sizes = (network.widths()["state"], network.widths()[network.output])
        if sizes != (spec.state_dim, spec.action_dim):
            raise ValueError(
                f"the network has sizes {sizes}, its task {(spec.state_dim, spec.action_dim)}"
            )
    except OSError:
        raise InputError(f"{folder} has no {DESCRIPTION}") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError) and str(folder) in str(error):
            raise
        raise InputError(f"{file} is damaged: {_reason(error)}") from error
    id = members.chosen(path, seed, member)
    file = weights_file(folder, id, members.kind)
    if not file.exists() and folder.parent.name == "policies":
        name = members.name(id)
        raise InputError(f"{path} has no policy of {name}, which was stopped before that step")
    try:
        content = file.read_bytes()
        steps = steps_of(data, file, id, content)
        flat = _flat(network, safetensors.numpy.load(content))
        policy = Policy(spec, network, flat, explorations[members.ids.index(id)])
    except InputError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{file} is damaged: {_reason(error)}") from error
    policy.steps, policy.has_checksum = steps, has_checksums(data)
    return policy


def note_unverified(path: AnyPath, loaded: Iterable[Policy], say: Callable[[str], None]) -> None:
    """Say it if one of the policies has no checksum."""
    if not all(policy.has_checksum for policy in loaded):
        say(f"{Path(path)} {UNVERIFIED}")


def _flat(network: Network, weights: Mapping[str, AnyFloat]) -> AnyFloat:
    """The weights as a policy has them, which must be those of the network and no others."""
    layout = Layout.of(network)
    numbers = sum(weight.size for weight in weights.values())
    used = sum(
        math.prod((*p.shape[:-2], p.fan_in, p.shape[-1])) if len(p.shape) == 2 else p.size
        for p in layout.parameters
    )
    if numbers != used:
        raise ValueError(f"it has {numbers:,} numbers, the network {used:,}")
    return flatten_weights(layout, weights)


def _network(data: Any) -> Network:
    """The network, whose every field has the right type, so that no size is a fraction."""
    network = from_json(typed("network", data, dict))
    widths = network.widths()
    for name, width in widths.items():
        _check_size(f"the width of {name!r}", width)
    _check_size("heads", network.heads)
    known = set(network.inputs)
    for layer in network.layers:
        for names, what, allowed in (
            (layer.inputs, "input", known),
            ((layer.norm,), "norm", NORMS),
            ((layer.activation,), "activation", ACTIVATIONS),
        ):
            for name in names:
                one_of(f"{what} of {layer.output}", name, list(allowed))
        if not layer.is_linear and layer.width != sum(widths[name] for name in layer.inputs):
            raise ValueError(f"{layer.output} has another width than its inputs")
        known.add(layer.output)
    return network


def _check_size(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST_SIZE:
        raise InputError(
            f"{name} must be a whole number, 1 to {LARGEST_SIZE:,}, given {reprlib.repr(value)}"
        )


def _explorations(data: Mapping[str, Any], members: Members) -> list[Exploration]:
    """How each member acts in training: as written once for all, or in a list."""
    written = data["exploration"]
    explorations = [
        Exploration(**one)
        for one in (written if isinstance(written, list) else [written] * len(members))
    ]
    for one in explorations:
        if one.kind not in EXPLORERS or not isinstance(one.scale, int | float):
            raise ValueError(f"exploration {reprlib.repr(written)}")
    if len(explorations) != len(members):
        raise ValueError(f"{len(explorations)} explorations of {len(members)} members")
    return explorations


def _spec(data: Mapping[str, Any]) -> TaskSpec:
    """The task, whose every field has the right type."""
    task = typed("task", typed("task", data, dict)["task"], dict)
    limit = data["time_limit"]
    spec = TaskSpec(
        read_task(task),
        _shape(data, "state_shape"),
        _shape(data, "action_shape"),
        tuple(float(bound) for bound in typed("action_low", data["action_low"], list)),
        tuple(float(bound) for bound in typed("action_high", data["action_high"], list)),
        time_limit=None if limit is None else parse_number("time_limit", limit, int, at_least=1),
        action_dtype=typed("action_dtype", data.get("action_dtype", "float32"), str),
        entries=tuple(map(_entry, typed("entries", data.get("entries", []), list))),
    )
    if spec.entries and spec.state_shape != (sum(entry.size for entry in spec.entries),):
        raise ValueError(f"its entries are not those of states of shape {spec.state_shape}")
    if not len(spec.action_low) == len(spec.action_high) == spec.action_dim:
        raise ValueError(f"actions of shape {spec.action_shape} need {spec.action_dim} bounds")
    if not all(low <= high for low, high in zip(spec.action_low, spec.action_high, strict=True)):
        raise ValueError("a lower bound of the actions is not below the upper one")
    if np.dtype(spec.action_dtype).kind not in "fiu":  # raises if there is no such type
        raise ValueError(f"action_dtype {spec.action_dtype!r}")
    return spec


def _entry(data: Any) -> Entry:
    entry = typed("entry", data, dict)
    path = tuple(typed("path", entry["path"], list))
    if not path or not all(type(key) in (str, int) for key in path):
        raise ValueError(f"the path of an entry is {reprlib.repr(entry['path'])}")
    return Entry(path, _shape(entry, "shape"))


def _shape(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    shape = tuple(typed(name, data[name], list))
    for size in shape:
        _check_size(name, size)
    return shape


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else one_line(error)

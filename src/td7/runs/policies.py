"""Trained policies: saved as safetensors and JSON, loaded for `policy.predict(observation)`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from td7.configs import parse
from td7.errors import InputError
from td7.files import check_no_links, read_json, write, write_json
from td7.networks.description import Layout, Network, from_json, to_json
from td7.networks.numpy_actor import EXPLORERS, Actor, flatten, unflatten
from td7.rollouts.environment import ActionMap
from td7.types import AnyFloat, AnyPath, Exploration, Float32, Task, TaskSpec

FORMAT = 2


class Policy:
    """The trained policy of one seed, with the `predict` of Stable-Baselines3."""

    def __init__(
        self, spec: TaskSpec, network: Network, flat: AnyFloat, exploration: Exploration
    ) -> None:
        self.spec = spec
        self.network = network
        self.flat = flat
        self.exploration = exploration
        self.actor = Actor(network, flat)  # actions in [-1, 1]
        self._map = ActionMap(spec.action_low, spec.action_high)
        self.action_bounds = _float32_bounds(spec.action_low, spec.action_high)
        dtype = np.dtype(spec.action_dtype)
        self.action_dtype = np.dtype(np.float32) if dtype.kind == "f" else dtype
        self._random = np.random.default_rng()

    def __repr__(self) -> str:
        sizes = f"{self.spec.state_shape} to {self.spec.action_shape}"
        return f"<policy of {self.spec.task.id}, {sizes}>"

    def predict(
        self,
        observation: ArrayLike,
        state: None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], None]:
        """Return the task's own action(s) for one observation or a batch, and None.

        Actions are float32, or integers if the task's are. With `deterministic=False` they have the
        exploration noise of training. `state` and `episode_start` are ignored: there is no hidden
        state.
        """
        del state, episode_start
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
    seeds: Sequence[int] = (),
) -> None:
    """Write policy.json and a safetensors file per seed; `seeds` also lists those to come later."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = Layout.of(network)
    for seed, flat in policies.items():
        weights = {name: np.ascontiguousarray(w) for name, w in unflatten(layout, flat).items()}
        write(folder / f"seed-{seed}.safetensors", safetensors.numpy.save(weights))
    description = {
        "format": FORMAT,
        **record,
        "seeds": list(seeds or policies),
        "task": asdict(spec),
        "network": to_json(network),
    }
    write_json(folder / "policy.json", description)


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


def load(path: AnyPath, seed: int | None = None) -> Policy:
    """Load the policy of a run or policy folder; one with a single seed needs no `seed`."""
    path = Path(path)
    folder = policy_folder(path)
    if not path.exists() and not folder.exists():
        raise InputError(f"{path} does not exist")
    if not folder.exists():
        raise InputError(
            f"{path} holds no policy: policy/policy.json is written with a run's first snapshot"
        )
    check_no_links(path)
    try:
        data = read_json(folder / "policy.json")
        if data["format"] != FORMAT:
            raise InputError(f"{folder} has format {data['format']}, this version reads {FORMAT}")
        seeds, network = list(data["seeds"]), from_json(data["network"])
        layout = Layout.of(network)
        spec = _spec(data["task"])
        exploration = Exploration(**data["exploration"])
        if exploration.kind not in EXPLORERS or not isinstance(exploration.scale, int | float):
            raise ValueError(f"exploration {data['exploration']}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / 'policy.json'} is damaged: {error!r}") from error
    if seed is None and len(seeds) > 1:
        raise InputError(f"{path} has several seeds: choose one of {', '.join(map(str, seeds))}")
    seed = seeds[0] if seed is None else parse("seed", seed, int)
    if seed not in seeds:
        raise InputError(f"{path} has no seed {seed}; allowed: {', '.join(map(str, seeds))}")
    file = folder / f"seed-{seed}.safetensors"
    if not file.exists() and folder.parent.name == "policies":
        raise InputError(f"{path} has no policy of seed {seed}, which was stopped before that step")
    try:
        weights = safetensors.numpy.load_file(file)
        return Policy(spec, network, flatten(layout, weights), exploration)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{file} is damaged: {error}") from error


def _spec(data: Mapping[str, Any]) -> TaskSpec:
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    spec = TaskSpec(**{**data, **lists, "task": Task(**data["task"])})
    np.dtype(spec.action_dtype)  # raises if there is no such type
    return spec

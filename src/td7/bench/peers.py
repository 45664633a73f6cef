"""Updates of other libraries, where they are installed, for `td7 bench` to compare with.

Stable-Baselines3, sb3-contrib and d3rlpy run with the network sizes and the batch size that the
same algorithm has here, on the same random transitions, in the same process and with as many
threads.
"""

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box

from td7.engine.compiling import compiled_autograd_unchanged
from td7.types import Float32, RowLayout, TaskSpec, Transitions

BATCH_SIZE = 256


class _Spaces(gymnasium.Env[Any, Any]):
    """A task of given sizes to build a model with. Nobody plays it."""

    def __init__(self, spec: TaskSpec) -> None:
        self.observation_space = Box(-np.inf, np.inf, (spec.state_dim,), np.float32)
        self.action_space = Box(-1.0, 1.0, (spec.action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape or (), np.float32), {}


# -- Stable-Baselines3 and sb3-contrib -----------------------------------------------------------


def _td3(env: _Spaces, **options: Any) -> Any:
    from stable_baselines3 import TD3

    return TD3("MlpPolicy", env, policy_kwargs={"net_arch": [256, 256]}, **options)


def _sac(env: _Spaces, **options: Any) -> Any:
    from stable_baselines3 import SAC

    return SAC("MlpPolicy", env, policy_kwargs={"net_arch": [256, 256]}, **options)


def _tqc(env: _Spaces, **options: Any) -> Any:
    from sb3_contrib import TQC

    five = {
        "net_arch": {"pi": [256, 256], "qf": [512, 512, 512]},
        "n_critics": 5,
        "n_quantiles": 25,
    }
    return TQC("MlpPolicy", env, policy_kwargs=five, **options)


def _sb3_updates(
    make: Callable[..., Any], spec: TaskSpec, data: Float32, device: str, rounds: int
) -> Callable[[], None]:
    """Updates by the model's own `train`, which samples from its own replay of these rows."""
    from stable_baselines3.common.logger import Logger

    options = {"learning_rate": 3e-4, "batch_size": BATCH_SIZE, "buffer_size": len(data)}
    model = make(_Spaces(spec), device=device, **options)
    model.set_logger(Logger(folder=None, output_formats=[]))
    parts = RowLayout(spec.state_dim, spec.action_dim).split(data)
    buffer = model.replay_buffer
    for field, values in (
        (buffer.observations, parts.state[:, None]),
        (buffer.actions, parts.action[:, None]),
        (buffer.next_observations, parts.next_state[:, None]),
        (buffer.rewards, parts.reward),
        (buffer.dones, 1.0 - parts.not_terminated),
    ):
        field[:] = values
    buffer.full = True
    return lambda: model.train(gradient_steps=rounds, batch_size=BATCH_SIZE)


# -- d3rlpy --------------------------------------------------------------------------------------


def _td3_bc(**options: Any) -> Any:
    from d3rlpy.algos import TD3PlusBCConfig

    return TD3PlusBCConfig(**options)


def _iql(**options: Any) -> Any:
    from d3rlpy.algos import IQLConfig

    return IQLConfig(**options)


def _cql(**options: Any) -> Any:
    from d3rlpy.algos import CQLConfig
    from d3rlpy.models.encoders import VectorEncoderFactory

    three = VectorEncoderFactory(hidden_units=[256, 256, 256])
    return CQLConfig(
        actor_encoder_factory=three,
        critic_encoder_factory=three,
        alpha_learning_rate=0.0,  # the weight is fixed, as it is here
        **options,
    )


def _d3rlpy_updates(
    make: Callable[..., Any], spec: TaskSpec, data: Float32, device: str, rounds: int
) -> Callable[[], None]:
    """Updates by `impl.update`, always of the same batch, which lies on the device as tensors.

    Sampling and copying, which `fit` and the algorithm's own `update` include, are left out, while
    sampling counts here. `compile_graph` is off, since it is for GPUs only.
    """
    from d3rlpy import TorchMiniBatch

    where = {"cpu": "cpu:0", "cuda": "cuda:0"}[device]
    algorithm = make(batch_size=BATCH_SIZE).create(device=where)
    algorithm.create_impl((spec.state_dim,), spec.action_dim)
    rows = data[np.arange(BATCH_SIZE) % len(data)]
    split = RowLayout(spec.state_dim, spec.action_dim).split(rows)
    parts = Transitions(*(torch.tensor(part, device=where) for part in split))
    batch = TorchMiniBatch(
        observations=parts.state,
        actions=parts.action,
        rewards=parts.reward,
        next_observations=parts.next_state,
        next_actions=parts.action,
        returns_to_go=torch.zeros_like(parts.reward),
        terminals=1 - parts.not_terminated,
        intervals=torch.ones_like(parts.reward),
        device=where,
    )
    steps = count()

    def run() -> None:
        for _ in range(rounds):
            algorithm.impl.update(batch, next(steps))

    return run


# -- all -----------------------------------------------------------------------------------------


class Peer(NamedTuple):
    name: str
    module: str  # that an installation provides
    updates: Callable[..., Callable[[], None]]
    make: Callable[..., Any]


PEERS = {
    "td3": Peer("stable-baselines3", "stable_baselines3", _sb3_updates, _td3),
    "sac": Peer("stable-baselines3", "stable_baselines3", _sb3_updates, _sac),
    "tqc": Peer("sb3-contrib", "sb3_contrib", _sb3_updates, _tqc),
    "td3+bc": Peer("d3rlpy", "d3rlpy", _d3rlpy_updates, _td3_bc),
    "iql": Peer("d3rlpy", "d3rlpy", _d3rlpy_updates, _iql),
    "cql": Peer("d3rlpy", "d3rlpy", _d3rlpy_updates, _cql),
}


def peer(algorithm: str) -> str:
    """The installed library that has this algorithm; an empty string if there is none."""
    known = PEERS.get(algorithm)
    return known.name if known and find_spec(known.module) else ""


def _import(module: str) -> None:
    """Import a library without its output and without its change to PyTorch's compiler."""
    # They import gym, if present, which warns about its age; d3rlpy turns compiled autograd on
    # where there is CUDA.
    with compiled_autograd_unchanged(), redirect_stderr(io.StringIO()):
        import_module(module)


def updates(
    algorithm: str, spec: TaskSpec, data: Float32, device: str, rounds: int
) -> Callable[[], None]:
    """Work of `rounds` updates of the other library, on these rows."""
    known = PEERS[algorithm]
    _import(known.module)
    return known.updates(known.make, spec, data, device, rounds)

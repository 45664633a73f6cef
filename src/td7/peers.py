"""Updates of Stable-Baselines3 and sb3-contrib, if installed, for `td7 bench` to measure beside.

With the sizes and batch that the same algorithm has here, on the same made-up transitions.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from td7.types import Float32, RowLayout, TaskSpec


class _Spaces(gymnasium.Env[Any, Any]):
    """A task of given sizes, to build a model with; it is never played."""

    def __init__(self, spec: TaskSpec) -> None:
        self.observation_space = Box(-np.inf, np.inf, (spec.state_dim,), np.float32)
        self.action_space = Box(-1.0, 1.0, (spec.action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape or (), np.float32), {}


def _models() -> dict[str, tuple[str, Callable[..., Any]]]:
    """algorithm: (peer, how to make its model of an environment, with options)."""
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    two = {"net_arch": [256, 256]}
    try:
        from stable_baselines3 import SAC, TD3
    except ImportError:
        return found
    name = "stable-baselines3"
    found["td3"] = name, lambda env, **o: TD3("MlpPolicy", env, policy_kwargs=two, **o)
    found["sac"] = name, lambda env, **o: SAC("MlpPolicy", env, policy_kwargs=two, **o)
    try:
        from sb3_contrib import TQC
    except ImportError:
        return found
    five = {
        "net_arch": {"pi": [256, 256], "qf": [512, 512, 512]},
        "n_critics": 5,
        "n_quantiles": 25,
    }
    found["tqc"] = "sb3-contrib", lambda env, **o: TQC("MlpPolicy", env, policy_kwargs=five, **o)
    return found


def peer(algorithm: str) -> str:
    """The name of the peer that has this algorithm and is installed, or nothing."""
    models = _models()
    return models[algorithm][0] if algorithm in models else ""


def updates(
    algorithm: str, spec: TaskSpec, data: Float32, device: str, count: int
) -> Callable[[], None]:
    """`count` updates of the peer's, with a replay of these rows."""
    from stable_baselines3.common.logger import Logger

    _, make = _models()[algorithm]
    options = {"learning_rate": 3e-4, "batch_size": 256, "buffer_size": len(data)}
    model = make(_Spaces(spec), device=device, **options)
    model.set_logger(Logger(folder=None, output_formats=[]))
    layout = RowLayout(spec.state_dim, spec.action_dim)
    state, action, next_state, reward, not_terminated = np.split(
        data, np.cumsum(layout.splits)[:-1], axis=1
    )
    buffer = model.replay_buffer
    for part, given in (
        (buffer.observations, state[:, None]),
        (buffer.actions, action[:, None]),
        (buffer.next_observations, next_state[:, None]),
        (buffer.rewards, reward),
        (buffer.dones, 1.0 - not_terminated),
    ):
        part[:] = given
    buffer.full = True
    return lambda: model.train(gradient_steps=count, batch_size=256)

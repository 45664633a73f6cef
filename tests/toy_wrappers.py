"""Wrappers of tasks, which worker processes import as `toy_wrappers:Name`."""

from typing import Any, SupportsFloat

import gymnasium

AnyEnv = gymnasium.Env[Any, Any]


class Scaled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Scales rewards, and then adds to them."""

    def __init__(self, env: AnyEnv, scale: float = 10.0, shift: float = 0.0) -> None:
        super().__init__(env)
        self._scale, self._shift = scale, shift

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return (
            observation,
            self._scale * float(reward) + self._shift,
            terminated,
            truncated,
            info,
        )


class Outer:
    """Holds another class, as a module may."""

    class Inner(Scaled):
        pass


class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that cannot be made."""

    def __init__(self, env: AnyEnv) -> None:
        raise ValueError("the glue\nis dry")


class NoWrapper:
    """Something else."""

"""A tiny Gymnasium task whose spaces and faults a test chooses, registered for one test."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from td7.errors import InputError
from td7.rollouts.environment import Environment
from td7.rollouts.registration import make
from td7.types import Task

TWO_NUMBERS = Box(-np.inf, np.inf, (2,), np.float32)
ONE_ACTION = Box(-1, 1, (1,), np.float32)


class Tiny(gymnasium.Env[Any, Any]):
    """Observes the number of steps in every entry of one reused array; keeps the last action."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        *,
        observation_space: Space[Any] = TWO_NUMBERS,
        action_space: Space[Any] = ONE_ACTION,
        ends_at: int | None = None,
        emits: tuple[int, ...] | None = None,
        fails: str | None = None,
        warns: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if fails:
            raise ValueError(fails)
        if warns:
            warnings.warn(warns, stacklevel=2)
        self.observation_space = observation_space
        self.action_space = action_space
        self.render_mode = render_mode
        self.ends_at = ends_at
        shape = observation_space.shape if emits is None else emits
        self.observation: NDArray[Any] = np.zeros(shape or (), observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.observation[...] = 0
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.last_action = action
        self.count += 1
        self.observation[...] = self.count
        return self.observation, 0.5, self.count == self.ends_at, False, {}

    def render(self) -> Any:
        return np.full((4, 5, 3), self.count, np.uint8)


class NotRendered(Tiny):
    """A task that draws nothing."""

    metadata = {"render_modes": []}  # noqa: RUF012


class IgnoresRenderMode(Tiny):
    """A task that ignores its render mode."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "render_mode": None})


class RefusesRenderMode(NotRendered):
    """A task that refuses a render mode that it does not have."""

    def __init__(self, *, render_mode: str | None = None, fails: str | None = None) -> None:
        super().__init__(fails=fails)
        assert render_mode is None


Register = Callable[..., Task]


@pytest.fixture
def register() -> Iterator[Register]:
    """Register environments, each under a new id, until the test ends."""
    before = dict(gymnasium.registry)
    numbers = itertools.count()

    def register(
        entry_point: Any = Tiny, *, max_episode_steps: int | None = None, **kwargs: Any
    ) -> Task:
        id = f"Td7Test{next(numbers)}-v0"
        gymnasium.register(
            id, entry_point=entry_point, max_episode_steps=max_episode_steps, kwargs=kwargs
        )
        return Task(id)

    yield register
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def tiny(environment: Environment) -> Tiny:
    base = environment.env.unwrapped
    assert isinstance(base, Tiny)
    return base


def refused(task: Task, *, render: bool = False) -> str:
    """Return the message with which a task is refused; it is one line."""
    with pytest.raises(InputError) as caught:
        make(task, render=render)
    message = str(caught.value)
    assert message.isprintable()  # no line breaks, no colours
    return message

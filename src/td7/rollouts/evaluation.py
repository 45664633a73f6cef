"""Returns of a policy, entirely apart from training: own environment, own random stream."""

from collections.abc import Callable, Iterator

import numpy as np

from td7.errors import EnvironmentFault
from td7.rollouts.environment import Environment
from td7.seeding import Stream, derived_seed
from td7.types import AnyFloat, EvaluationEpisode

LONGEST = 100_000  # steps of an evaluation episode of a task without a time limit
BEGINNING = 25  # steps of an episode that tell whether it is the same again

Policy = Callable[[AnyFloat], AnyFloat]


def check_finite(state: AnyFloat, reward: float, where: str) -> None:
    if not np.isfinite(state).all():
        dimension = int(np.flatnonzero(~np.isfinite(state))[0])
        raise EnvironmentFault(
            f"{where}: the environment gave a non-finite observation (dim {dimension})"
        )
    if not np.isfinite(reward):
        raise EnvironmentFault(f"{where}: the environment gave a non-finite reward ({reward})")


def beginning(environment: Environment, policy: Policy, seed: int) -> list[str]:
    """The first steps of an episode in words, to compare: a NaN is the same as another."""
    state = environment.reset(seed)
    seen = [repr(state.tolist())]
    for _ in range(BEGINNING):
        if not np.isfinite(state).all():  # nothing to act on; who evaluates it says so
            break
        state, *rest = environment.step(policy(state))
        seen.append(repr((state.tolist(), *rest)))
        _, terminated, truncated = rest
        if terminated or truncated:
            break
    return seen


def evaluate(
    environment: Environment,
    policy: Policy,
    *,
    seed: int,
    step: int,
    episodes: int,
    on_frame: Callable[[], None] | None = None,
) -> Iterator[EvaluationEpisode]:
    """Undiscounted returns; episode i depends only on (policy, seed, step, i)."""
    for i in range(episodes):
        where = f"seed {seed}, evaluation at step {step}, episode {i}"
        state = environment.reset(derived_seed(seed, Stream.EVALUATION_RESET, step, i))
        check_finite(state, 0.0, f"{where}, reset")
        total, length, ended = 0.0, 0, False
        while not ended:
            if on_frame is not None:
                on_frame()
            state, reward, terminated, truncated = environment.step(policy(state))
            length += 1
            check_finite(state, reward, f"{where}, step {length}")
            if length >= LONGEST and environment.spec.time_limit is None:
                raise EnvironmentFault(
                    f"{where}: no end after {length:,} steps; a task without a time limit can be "
                    "given one, in a run of its own: --env-kwargs max_episode_steps=1000"
                )
            total += reward
            ended = terminated or truncated
        yield EvaluationEpisode(total, length)

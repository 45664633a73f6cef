"""Returns of a policy, independent of training: own environment, own random stream."""

from collections.abc import Callable, Iterator

from td7.errors import EnvironmentFault
from td7.rollouts.environment import Environment
from td7.seeding import Stream, derived_seed
from td7.types import AnyFloat, EvaluationEpisode

MAX_STEPS = 100_000  # per evaluation episode of a task without a time limit
COMPARED_STEPS = 25  # per episode, to see whether it is reproducible

Policy = Callable[[AnyFloat], AnyFloat]


def first_steps(
    environment: Environment, policy: Policy, seed: int, episode: str = ""
) -> list[str]:
    """Return the first steps of an episode as text."""
    state = environment.reset(seed, episode)
    steps = [repr(state.tolist())]
    for _ in range(COMPARED_STEPS):
        state, *rest = environment.step(policy(state))
        steps.append(repr((state.tolist(), *rest)))
        _, terminated, truncated = rest
        if terminated or truncated:
            break
    return steps


def evaluate(
    environment: Environment,
    policy: Policy,
    *,
    seed: int,
    step: int,
    episodes: int,
    on_frame: Callable[[], None] | None = None,
) -> Iterator[EvaluationEpisode]:
    """Yield undiscounted returns; episode i depends only on (policy, seed, step, i)."""
    for i in range(episodes):
        where = f"seed {seed}, evaluation at step {step}, episode {i}"
        state = environment.reset(derived_seed(seed, Stream.EVALUATION_RESET, step, i), where)
        total, length, ended = 0.0, 0, False
        while not ended:
            if on_frame is not None:
                on_frame()
            state, reward, terminated, truncated = environment.step(policy(state))
            length += 1
            if length >= MAX_STEPS and environment.spec.time_limit is None:
                raise EnvironmentFault(
                    f"{where}: the episode has not ended after {length:,} steps; give the task a "
                    "time limit in a new run: --env-kwargs max_episode_steps=1000"
                )
            total += reward
            ended = terminated or truncated
        yield EvaluationEpisode(total, length)

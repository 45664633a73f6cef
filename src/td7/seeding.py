"""Random streams, named by purpose: every random number is a function of (seed, purpose, index).

No generator outlives its episode, evaluation or block of updates, so there is no generator state to
save: the numbers of any of them can be drawn again at any time, in any process.
"""

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The purpose of a stream. Every result depends on these numbers: never change them."""

    PARAMETERS = 0  # index: network group
    EPISODE_RESET = 1  # index: episode
    RANDOM_ACTION = 2  # index: episode
    EXPLORATION = 3  # index: episode
    EVALUATION_RESET = 4  # index: time step, evaluation episode
    UPDATE = 5  # index: block of updates
    FRESH_RESET = 6  # index: time step, evaluation episode; of `td7 evaluate --fresh-seeds`


def generator(seed: int, stream: Stream, *index: int) -> np.random.Generator:
    """Return a new generator for one item of a stream."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, stream, *index)))


SEED_BITS = (63, 32, 31)  # what tasks may take; many with legacy seeding refuse the first


def reset_seed(seed: int, bits: int) -> int:
    """Return the first `bits` bits of a 63-bit seed, for a task that takes no more."""
    return seed >> (SEED_BITS[0] - bits)


def derived_seed(seed: int, stream: Stream, *index: int) -> int:
    """Return a 63-bit seed for an environment, or for a generator of PyTorch's."""
    return int(_sequence(seed, stream, *index).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, stream: Stream, *index: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *index))

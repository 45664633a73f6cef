"""D4RL's normalised scores, and the tasks that its files are named after."""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from td7.types import Float64, Task


class Reference(NamedTuple):
    """The returns that D4RL scores as 0 and as 100."""

    random: float
    expert: float


REFERENCE_RETURNS = {  # by Gymnasium's name without its version
    "HalfCheetah": Reference(-280.178953, 12135.0),
    "Hopper": Reference(-20.272305, 3234.3),
    "Walker2d": Reference(1.629008, 4592.3),
    "Ant": Reference(-325.6, 3879.7),
}


def score(task_id: str, returns: ArrayLike) -> Float64 | None:
    """100 * (return - random) / (expert - random), as D4RL has it; None for other tasks."""
    reference = REFERENCE_RETURNS.get(Task(task_id).family)
    if reference is None:
        return None
    random, expert = reference
    return np.asarray(100 * (np.asarray(returns, np.float64) - random) / (expert - random))


def task_of_file(name: str) -> str:
    """Return the task of D4RL's file with this name, such as hopper_medium-v2; "" if it is none."""
    families = {family.lower(): family for family in REFERENCE_RETURNS}
    kinds = "random|medium|expert|full|replay|mixed"
    match = re.fullmatch(rf"({'|'.join(families)})([-_]({kinds}))+(-v\d+)?", name.lower())
    # The name's number is the data's version. D4RL's tasks are Gymnasium's v2; v4 is the version of
    # them that can still be made.
    return f"{families[match[1]]}-v4" if match else ""

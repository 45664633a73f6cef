"""The steps after which trials are compared: the rungs of successive halving.

The random phase is the same for all trials, so that only the steps after it count. With reduction
3, a rung has a third of the steps of the next one, and about a third of its trials continue.
"""

import math
from collections.abc import Sequence

FEWEST_EVALUATIONS = 2  # between two rungs


def rungs(
    steps: int, random_steps: int, evaluate_every: int, reduction: int, trials: int
) -> list[int]:
    """Return the steps of all rungs, the last of which is `steps`."""
    training = steps - random_steps
    ends = [steps]
    for k in range(1, max(1, math.ceil(math.log(max(trials, 1), reduction))) + 1):
        end = random_steps + training / reduction**k
        end = evaluate_every * math.ceil(end / evaluate_every)
        if end <= random_steps or ends[0] - end < FEWEST_EVALUATIONS * evaluate_every:
            break
        ends.insert(0, end)
    return ends


def survives(score: float, scores: Sequence[float], reduction: int) -> bool:
    """Whether a score is among the best 1 / reduction of all at a rung; NaN is worst."""
    if math.isnan(score):
        return False
    better = sum(other > score for other in scores)
    return better < math.ceil(len(scores) / reduction)

"""Which kept policy counts as medium."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import td7
from recorded_runs import (
    FIRST,
    OTHER,
    N,
    assert_same,
    attributes,
    explored,
    kept,
    noise_of,
    recorded,
)
from td7.datasets.record import FIRST_EPISODE
from td7.runs import policy_files


@pytest.mark.parametrize(
    ("returns", "step"),
    [
        # Kept are 0, 40, 80, 120 and 160; wanted is the first and a third of the way to the best.
        ([10, 100, 36, 0, 41, 0, 70, 0, 0], 80),
        ([10, 0, 39, 0, 42, 100, 70, 0, 0], 40),
        ([10, 0, 100, 0, 25, 0, 69, 0, 0], 80),
        ([10, 100, 0, 40, 0, 40, 99, 40, 0], 120),  # those at 60, 100 and 140 were not kept
        ([10, 0, 100, 0, 100, 0, 90, 0, 100], 120),  # nearer is only the untrained one
        ([10, -900, 90, 0, 91, 0, 40, 0, 0], 120),  # the first counts, not the lowest
        ([-90, 0, -20, 0, -63, 0, 0, 0, -55], 80),
        ([-90, 0, -20, 0, -66, 0, 0, 0, -55], 160),
        ([5, 5, 5, 5, 5, 5, 5, 5, 5], 40),  # the first of equals that is trained
        ([50, 40, 30, 20, 10, 0, -10, -20, 50], 160),
    ],
)
def test_medium_is_nearest_to_a_third_of_the_way_up(
    returns: list[float],
    step: int,
    td3_copy: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_evaluations(td3_copy, returns)
    out = tmp_path / "medium.hdf5"
    fields = recorded(td3_copy, "medium", N, out, "--seed", OTHER)
    stamps = attributes(out)
    assert stamps["td7.policy_steps"] == [step]
    message = f"medium: the policy of step {step}, return {returns[step // 20]:.1f} (untrained "
    assert stamps["td7.policies"] == f"{message}{returns[0]:.1f}, best {max(returns):.1f})"
    assert stamps["td7.policies"] in capfd.readouterr().err.splitlines()
    policy = td7.load(kept(td3_copy, step), OTHER)
    assert_same(fields, explored(policy, noise_of(td3_copy), OTHER, FIRST_EPISODE, N))


def test_medium_is_not_a_checkpoint_that_is_still_the_first_policy(
    td3_copy: Path, tmp_path: Path
) -> None:
    write_evaluations(td3_copy, [10, 0, 40, 0, 90, 0, 100, 0, 100])
    file = f"seed-{OTHER}.safetensors"
    weights = (kept(td3_copy, 0) / file).read_bytes()
    policy_files.write_policies(
        kept(td3_copy, 40), policy_files.read_description(kept(td3_copy, 40)), {OTHER: weights}
    )
    out = tmp_path / "medium.hdf5"
    recorded(td3_copy, "medium", N, out, "--seed", OTHER)
    assert attributes(out)["td7.policy_steps"] == [80]


def write_evaluations(run: Path, returns: Sequence[float]) -> None:
    """Means of two episodes; the other seed has none of it."""
    lines = ["seed,step,episode,return,length"]
    for i, value in reversed(list(enumerate(returns))):  # a run that was stopped has no order
        for number, apart in enumerate((-1000, 1000)):
            lines.append(f"{OTHER},{20 * i},{number},{value + apart},30")
            lines.append(f"{FIRST},{20 * i},{number},{1000 * (i == 2)},30")
    (run / "evaluations.csv").write_text("\n".join(lines) + "\n")

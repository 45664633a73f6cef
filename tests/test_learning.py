"""It learns: InvertedPendulum-v5 pays 1 a step while the pole stands, at most 1000."""

from pathlib import Path

import pandas as pd
import pytest

import td7

# Smaller and with more frequent targets than the paper's: its tasks have a hundred times the steps.
SETTINGS = {
    "random_steps": 1_000,
    "hidden_dim": 64,
    "embedding_dim": 64,
    "batch_size": 128,
    "target_every": 25,
}


def train(path: Path, steps: int) -> pd.DataFrame:
    """Mean returns: a row an evaluation, a column a seed."""
    run = td7.train(
        env="InvertedPendulum-v5",
        steps=steps,
        seeds="0-2",
        set=SETTINGS,
        evaluate_every=500,
        out=str(path),
        quiet=True,
    )
    return run.evaluations.groupby(["step", "seed"])["return"].mean().unstack()


def test_learning_begins(tmp_path: Path) -> None:
    """From about 8 steps to several times that within 500 updates, from each seed."""
    returns = train(tmp_path / "run", 1_500)
    assert returns.loc[1_000].max() < 15
    assert returns.loc[1_500].min() > 30


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_inverted_pendulum_is_solved(tmp_path: Path) -> None:
    """At least 900 of 1000 within 9,000 steps, from each seed."""
    returns = train(tmp_path / "run", 9_000)
    assert returns.max().min() >= 900

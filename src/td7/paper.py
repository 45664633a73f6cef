"""The paper's printed numbers."""

from importlib.resources import files

import pandas as pd

from td7.errors import unknown

SEEDS = 10  # of every number in the paper

TABLES = (
    "online",
    "offline",
    "design",
    "design_percent_loss",
    "ablation_1M",
    "ablation_5M",
    "checkpoints_300k",
    "checkpoints_5M",
    "runtime",
)


def table(name: str) -> pd.DataFrame:
    """One of TABLES, a row a number."""
    if name not in TABLES:
        raise unknown("table of the paper", name, TABLES)
    with (files("td7") / "data" / "paper" / f"{name}.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False)  # "None" is a label

"""The paper's printed numbers."""

from importlib.resources import files

import pandas as pd

from td7.errors import unknown
from td7.statistics import Sample

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


def online(algorithm: str, environment: str, step: int) -> Sample | None:
    """Table 1's entry, such as ("TD7", "HalfCheetah", 300_000), if there is one."""
    rows = table("online")
    is_it = (rows["algorithm"] == algorithm) & (rows["environment"] == environment)
    found = rows[is_it & (rows["time_step"] == step)]
    if found.empty:
        return None
    return Sample.printed(float(found["mean"].iloc[0]), float(found["ci95"].iloc[0]), SEEDS)

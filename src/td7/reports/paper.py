"""The numbers that the paper prints."""

from functools import cache
from importlib.resources import files

import pandas as pd

from td7.errors import unknown
from td7.statistics import Sample

SEEDS = 10  # of every number in the paper
TOTAL = "Total"  # a column of the offline table

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
    """One of TABLES, a row per number."""
    if name not in TABLES:
        raise unknown("table of the paper", name, TABLES)
    with (files("td7.reports") / "paper" / f"{name}.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False)  # "None" is a label


def printed(name: str, step: int) -> dict[tuple[str, str], Sample]:
    """(label, place): the numbers at a step in a table, or in another table of the same study."""
    return {(label, place): s for (label, place, at), s in _numbers(name).items() if at == step}


def steps(name: str) -> list[int]:
    """The steps of a table and of the other tables of the same study."""
    return sorted({step for _, _, step in _numbers(name)})


def percent_losses() -> dict[str, Sample]:
    """By the labels in the design study's figure, at 1M steps."""
    return {
        str(row["variant"]): Sample.printed(
            float(row["mean_percent_loss_1M"]), float(row["ci95_range"]), SEEDS
        )
        for row in table("design_percent_loss").to_dict("records")
    }


def minutes() -> dict[tuple[str, str], float]:
    """(label, place): the minutes that one seed takes for 1M steps."""
    return {
        (str(row["algorithm"]), f"{row['environment']}-v4"): float(row["minutes"])
        for row in table("runtime").to_dict("records")
    }


def machine() -> str:
    """The machine of the paper's run times."""
    return str(table("runtime")["hardware"].iloc[0])


def _numbers(name: str) -> dict[tuple[str, str, int], Sample]:
    """(label, place, step): the numbers of a table's study; {} for a study without a table."""
    return _study_numbers(name.partition("_")[0]) if name else {}


@cache
def _study_numbers(study: str) -> dict[tuple[str, str, int], Sample]:
    numbers = {}
    for name in (n for n in TABLES if n.partition("_")[0] == study):
        rows = table(name)
        if "environment" not in rows or "ci95" not in rows:
            continue
        for row in rows.to_dict("records"):
            label = str(row.get("variant", row.get("algorithm")))
            if "dataset" in row:
                place, step = _dataset(str(row["environment"]), str(row["dataset"])), 1_000_000
                mean = float(row["normalized_score"])
            else:
                place, step = f"{row['environment']}-v4", int(row["time_step"])
                mean = float(row["mean"])
            numbers[label, place, step] = Sample.printed(mean, float(row["ci95"]), SEEDS)
    return numbers


def _dataset(environment: str, kind: str) -> str:
    return TOTAL if environment == TOTAL else f"{environment}-{kind}-v2".lower()

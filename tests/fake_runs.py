"""Run folders written by hand: round numbers that a reader can check."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Two seeds at m - 100 and m + 100: sd 100 sqrt(2), so the interval is 1.96 / sqrt(2) * that = 196.
SPREAD, INTERVAL = 100, 196.0
VERSIONS = {"td7": "0.1.0", "python": "3.11.2", "torch": "2.11.0", "mujoco": "3.4.0"}


def write_config(folder: Path, **fields: Any) -> None:
    """Write config.json with what every reader needs, and these fields."""
    config = {
        "algorithm": "td7",
        "variant": "",
        "task": {"id": "Ant-v4", "kwargs": {}},
        "seeds": [0],
        "steps": 1_000,
        "hyperparameters": {},
        "evaluate_every": 500,
        "evaluation_episodes": 2,
        "dataset": None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


def dataset_fields(source: str, **fields: Any) -> dict[str, Any]:
    """The `dataset` of config.json."""
    defaults = {
        "rows": 10,
        "sha256": "0",
        "self_collected": False,
        "mean_return": None,
        "d4rl": None,
    }
    return {"source": source, **defaults, **fields}


def pair(mean: float, evaluations: int = 3, start: float = 1.0) -> dict[int, list[float]]:
    """Seeds 0 and 1, from `start` to mean ± SPREAD in equal steps."""
    ends = {0: mean - SPREAD, 1: mean + SPREAD}
    return {seed: np.linspace(start, end, evaluations).tolist() for seed, end in ends.items()}


def write_run(
    folder: Path,
    returns: Mapping[int, Sequence[float]],
    *,
    variant: str = "",
    algorithm: str = "td7",
    env: str = "Ant-v4",
    dataset: str = "",
    self_collected: bool = False,
    d4rl: str | None = None,
    data_return: float | None = None,
    every: int = 500_000,
    steps: int = 0,
    seeds: Sequence[int] | None = None,
    values: Mapping[int, Sequence[float]] | None = None,
    seconds: float | None = 600.0,
    learned: tuple[float, int] | None = None,
    hardware: Mapping[str, Any] | None = None,
    changed: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
) -> Path:
    """`returns`: a seed's evaluations at 0, `every`, …, two episodes each, 1 above and below.

    `learned`: seconds, and how many updates of all seeds took them. `also`: of config.json.
    """
    folder.mkdir(parents=True)
    length = max((len(own) for own in returns.values()), default=1)
    origin = {"self_collected": self_collected, "mean_return": data_return, "d4rl": d4rl}
    config = {
        "algorithm": algorithm,
        "variant": variant,
        "task": {"id": env, "kwargs": dict(kwargs or {})},
        "seeds": list(returns if seeds is None else seeds),
        "steps": steps or (length - 1) * every,
        "hyperparameters": dict(changed or {}),
        "evaluate_every": every,
        "dataset": dataset_fields(dataset, **origin) if dataset else None,
        "versions": VERSIONS,
        "hardware": dict(hardware or {"cores": 2, "gpu": None}),
        "command": f"td7 train {algorithm}",
        "started": "2026-01-01T00:00:00+0000",
    }
    write_config(folder, **{**config, **(also or {})})
    if not steps or steps <= (length - 1) * every:
        (folder / "finished.json").write_text(json.dumps({"steps": config["steps"]}))
    lines = ["seed,step,episode,return,length"]
    for seed, own in returns.items():
        for i, value in enumerate(own):
            head = f"{seed},{i * every}"
            lines += [f"{head},0,{value + 1},10", f"{head},1,{value - 1},10"]
    (folder / "evaluations.csv").write_text("\n".join(lines) + "\n")
    if values is not None:
        rows = [f"{s},{i * every},{i},{v}" for s, own in values.items() for i, v in enumerate(own)]
        text = "\n".join(["seed,step,update,policy_value", *rows])
        (folder / "metrics.csv").write_text(text + "\n")
    if seconds is not None:
        learn = f"learn,{learned[0]},{learned[1]}\n" if learned else ""
        (folder / "timings.csv").write_text(f"phase,seconds,times\n{learn}total,{seconds},1\n")
    return folder


def write_varied_run(
    folder: Path,
    means: Mapping[Any, float],
    names: Sequence[str],
    *,
    evaluations: int = 3,
    also: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """A run whose hyperparameters vary: `means` has the values of each configuration, and a mean.

    A configuration has the seeds 0 and 1, of the returns of `pair`.
    """
    returns = [own for mean in means.values() for own in pair(mean, evaluations).values()]
    columns = [tuple(values[i] for values in means for _ in range(2)) for i, _ in enumerate(names)]
    members = {
        "seeds": [0, 1] * len(means),
        "numbers": list(range(len(returns))),
        "varied": dict(zip(names, columns, strict=True)),
        "hyperparameters": dict.fromkeys(names, 1.0),
    }
    path = write_run(folder, dict(enumerate(returns)), also={**members, **(also or {})}, **options)
    file = path / "evaluations.csv"
    header, *rows = file.read_text().splitlines()
    lines = [",".join([header.replace("seed", "member"), "seed", *names])]
    for row in rows:
        number = int(row.partition(",")[0])
        lines.append(",".join([row, f"{number % 2}", *(repr(own[number]) for own in columns)]))
    file.write_text("\n".join(lines) + "\n")
    return path

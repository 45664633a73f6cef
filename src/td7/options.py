"""Every option of `td7 train` and `td7 study`, declared once, as data."""

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from td7.configs import as_words, check_fields, parse, setting
from td7.errors import InputError, one_of, unknown
from td7.types import Task

DEVICES = ("auto", "cpu", "cuda")
MOST_SEEDS = 1_000  # more is a slip of the finger
MOST_STEPS = 10**12  # likewise
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class TrainOptions:
    """Every option of `td7 train` and every argument of `td7.train`."""

    algorithm: str = setting("", "which algorithm; `td7 list algorithms`", group="What")
    variant: str = setting("", "a row of a study, STUDY/LABEL; `td7 list studies`", group="What")
    env: str = setting(
        "", "Gymnasium id of the task; `td7 list tasks` (of a dataset: its own)", group="What"
    )
    env_kwargs: Any = setting(
        (), "what the task is made with, e.g. max_episode_steps=200", group="What"
    )
    dataset: str = setting(
        "",
        "learn from data instead of collecting it: a D4RL file, a Minari id or folder",
        group="What",
    )
    steps: int = setting(
        1_000_000,
        "environment steps, a seed; with --dataset, updates",
        group="What",
        at_least=1,
        at_most=MOST_STEPS,
    )
    seeds: Any = setting("0", "e.g. 0-9 or 0,3,7; they are trained side by side", group="What")
    set: Any = setting(
        (), "hyperparameters, e.g. batch_size=128; `td7 train --help` lists them", group="What"
    )
    evaluate_every: int = setting(
        5_000, "steps (or updates) between evaluations", group="Evaluation", at_least=1
    )
    evaluation_episodes: int = setting(10, "episodes an evaluation", group="Evaluation", at_least=1)
    metrics_every: int = setting(
        1_000, "updates between rows of metrics.csv", group="Output", at_least=1
    )
    keep_policies: int = setting(
        0,
        "steps (or updates) between evaluated policies that are kept, a multiple of "
        "--evaluate-every; 0: only the last are",
        group="Output",
        at_least=0,
    )
    out: str = setting("", "run folder (default: runs/ALGORITHM-TASK-TIME)", group="Output")
    snapshot_every: float = setting(
        5.0,
        "minutes between snapshots to resume from; 0: only when stopped and at the end",
        group="Output",
        at_least=0,
    )
    tensorboard: bool = setting(
        False, "also write event files for TensorBoard, to RUN/tensorboard", group="Output"
    )
    quiet: bool = setting(False, "say nothing but warnings", group="Output")
    device: str = setting(
        "auto", "auto, cpu or cuda (auto: cuda if there is one)", group="Hardware"
    )
    replay_device: str = setting(
        "auto",
        "where transitions are kept: auto (with the learner), or cpu to save a GPU's memory",
        group="Hardware",
    )
    workers: str = setting(
        "auto",
        "processes that play episodes; 0: none, they are played between updates "
        "(auto: none on a cpu; on cuda one a seed and five to evaluate, as cores allow)",
        group="Hardware",
    )
    processes: str = setting(
        "auto",
        "on a cpu, processes that the seeds are divided among; part of the result's last digits "
        "(auto: one a seed, up to five a core, from 50_000 updates on; else 1)",
        group="Hardware",
    )
    threads: str = setting(
        "auto",
        "PyTorch's, on a cpu, of each process; part of the result's last digits (auto: 1 for "
        "small networks, else all)",
        group="Hardware",
    )
    precision: str = setting("float32", "of the learner: float32 or float64", group="Hardware")
    engine: str = setting(
        "auto",
        "how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled, "
        "which takes a minute to begin, from 20_000 updates on)",
        group="Hardware",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def task(self) -> Task:
        """The one asked for; without an id, it is the data's own."""
        return Task(self.env, parse_env_kwargs(self.env_kwargs))


def document_options(function: Any, options: type, result: type) -> None:
    """For help() and editors: arguments are the function's own and the fields of these options."""
    first, *fields = dataclasses.fields(options)
    given = inspect.Parameter(
        first.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=first.default
    )
    found = [
        given,
        *(
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
            for f in fields
        ),
        *(
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        ),
    ]
    function.__signature__ = inspect.Signature(found, return_annotation=result)
    lines = [f"    {f.name}: {f.metadata['doc']}" for f in dataclasses.fields(options)]
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__), "", "Options:", *lines])


Options = TypeVar("Options")


def options_from(cls: type[Options], values: Mapping[str, Any]) -> Options:
    """Fields of type Any are taken as they are, all others parsed."""
    kinds = cls.__annotations__
    parsed = {}
    for name, value in values.items():
        if name not in kinds:
            raise unknown("option", name, kinds, shown=len(kinds))
        parsed[name] = value if kinds[name] is Any else parse(name, value, kinds[name])
    return cls(**parsed)


def parse_seeds(given: Any) -> tuple[int, ...]:
    """0-9, 0,3,7, an int or ints, as distinct whole numbers from 0 on."""
    if isinstance(given, str):
        seeds: list[int] = []
        for part in given.split(","):
            match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
            if not match:
                raise InputError(f"seeds takes 0-9 or 0,3,7, given {given!r}")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise InputError(f"seeds {part.strip()} runs backwards")
            end = min(last + 1, first + MOST_SEEDS + 1)  # one too many is enough to tell
            seeds.extend(range(first, end))
    else:
        items = [given] if isinstance(given, int) else given
        if not isinstance(items, Iterable):
            raise InputError(f"seeds takes whole numbers, given {given!r}")
        seeds = [parse("seeds", seed, int) for seed in islice(items, MOST_SEEDS + 1)]
    if not seeds:
        raise InputError("seeds is empty: at least one is needed")
    if len(seeds) > MOST_SEEDS:
        raise InputError(f"seeds are more than {MOST_SEEDS:,} at once")
    if min(seeds) < 0:
        raise InputError(f"seeds must be at least 0, given {min(seeds)}")
    if max(seeds) > LARGEST_SEED:
        raise InputError(f"seeds must be at most {LARGEST_SEED}, given {max(seeds)}")
    twice = [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]
    if twice:
        raise InputError(f"seed {twice[0]} is given twice")
    return tuple(seeds)


def parse_env_kwargs(given: Any) -> dict[str, Any]:
    """Words name=value, the value JSON where it can be read as such; or a mapping."""
    if isinstance(given, Mapping):
        return {str(name): _plain(str(name), value) for name, value in given.items()}
    kwargs: dict[str, Any] = {}
    for word in as_words("--env-kwargs", given):
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--env-kwargs takes name=value, given {word!r}")
        try:
            kwargs[name] = json.loads(value)
        except ValueError:
            kwargs[name] = value
    return kwargs


def _plain(name: str, value: Any) -> Any:
    """As config.json can keep it."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    try:
        json.dumps(plain)
    except (TypeError, ValueError):
        raise InputError(f"env_kwargs: {name} is {value!r}; allowed: what JSON can hold") from None
    return plain


BACKENDS = ("local", "ray")


@dataclass(frozen=True)
class StudyOptions:
    """Every option of `td7 study` and every argument of `td7.study`."""

    name: str = setting("", "which study; `td7 list studies`", group="What")
    rows: Any = setting((), "some rows, by label; `td7 list studies NAME`", group="What")
    tasks: Any = setting(
        "", "as A,B: tasks, or offline datasets and paths of datasets (the paper's)", group="What"
    )
    env_kwargs: Any = setting(
        (), "what every task is made with, e.g. max_episode_steps=200", group="What"
    )
    seeds: Any = setting("0-9", "of every run, stacked", group="What")
    steps: int = setting(
        0,
        "of every run; offline, updates; 0: the paper's",
        group="What",
        at_least=0,
        at_most=MOST_STEPS,
    )
    set: Any = setting((), "hyperparameters of every row whose algorithm has them", group="What")
    datasets: str = setting(
        "datasets", "folder with D4RL's files, for the study offline", group="What"
    )
    evaluate_every: int = setting(
        5_000, "steps (or updates) between evaluations", group="Evaluation", at_least=1
    )
    evaluation_episodes: int = setting(10, "episodes an evaluation", group="Evaluation", at_least=1)
    metrics_every: int = setting(
        1_000, "updates between rows of metrics.csv", group="Output", at_least=1
    )
    keep_policies: int = setting(
        0, "steps (or updates) between evaluated policies that are kept", group="Output", at_least=0
    )
    snapshot_every: float = setting(
        5.0, "minutes between a run's snapshots; 0: only when stopped", group="Output", at_least=0
    )
    out: str = setting("", "folder of the study's runs (studies/NAME)", group="Output")
    quiet: bool = setting(False, "say nothing but what came of it", group="Output")
    device: str = setting("auto", "auto, cpu or cuda", group="Hardware")
    engine: str = setting("auto", "how updates run", group="Hardware")
    workers: str = setting("auto", "processes that play episodes, a run", group="Hardware")
    at_once: int = setting(1, "runs at the same time on this machine", group="Hardware", at_least=1)
    seeds_each: int = setting(
        0,
        "seeds of a run; 0: all. On a CPU runs of some beside each other are faster",
        group="Hardware",
        at_least=0,
    )
    backend: str = setting("local", "where runs are: local, or ray for a cluster", group="Hardware")
    address: str = setting(
        "", "of the Ray cluster, e.g. auto (one of this machine alone)", group="Ray"
    )
    cpus: float = setting(1.0, "of the cluster's cores, a run", group="Ray", at_least=0)
    gpus: str = setting(
        "auto", "of its GPUs, a run; 0.5: two runs share one (auto: 1 with cuda)", group="Ray"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        one_of("device", self.device, DEVICES)
        if one_of("backend", self.backend, BACKENDS) == "ray":
            return
        for f in fields(self):
            if f.metadata["group"] == "Ray" and getattr(self, f.name) != f.default:
                raise InputError(f"--{f.name} is of no use without --backend ray")

    @property
    def folder(self) -> Path:
        return Path(self.out or f"studies/{self.name}")

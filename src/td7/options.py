"""Every option of `td7 train` and `td7 study`, declared once, as data.

Words of the command line become options in `options_from`, options become words in `to_words`;
`option_values` reads and writes the values that are more than one word or number.
"""

import dataclasses
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from td7.configs import check_fields, parse, setting
from td7.errors import InputError, Option, assigned, one_of, unknown
from td7.option_values import IS_FURTHER_VALUE, READERS, WRITERS, one_word
from td7.types import Task

# Those of `td7.algorithms.ALGORITHMS`, which takes PyTorch to import.
ALGORITHM_NAMES = ("td7", "td3", "td3+ofe", "sac", "tqc", "td3+bc", "cql", "iql", "xql")
DEVICES = ("auto", "cpu", "cuda")
ENGINES = ("eager", "compiled", "graph")  # and auto
PRECISIONS = ("float32", "float64")  # and auto
BACKENDS = ("local", "ray")
MOST_STEPS = 10**12  # more are probably a typing error
MOST_EPISODES = 10**6  # per evaluation, likewise

Options = TypeVar("Options")


@dataclass(frozen=True)
class TrainOptions:
    """Every option of `td7 train` and every argument of `td7.train`.

    Fields of type Any accept words as well as Python values and hold what `READERS` made of them.
    """

    algorithm: str = setting("", "algorithm to train; see `td7 list algorithms`", group="What")
    variant: str = setting(
        "",
        "row of a study to train, as STUDY/LABEL; see `td7 list studies`; MODULE:NAME/LABEL for a "
        "study of your own",
        group="What",
    )
    env: str = setting(
        "",
        "Gymnasium id of the task; see `td7 list tasks` (default with --dataset: the dataset's)",
        group="What",
    )
    env_kwargs: Any = setting(
        (),
        "keyword arguments of the task, e.g. max_episode_steps=200; values are read as JSON where "
        "possible, otherwise as text",
        group="What",
    )
    wrapper: Any = setting(
        (),
        "gymnasium.Wrapper around the task, as MODULE:CLASS or, with keyword arguments, "
        "MODULE:CLASS:JSON; the first is the innermost",
        group="What",
        metavar="MODULE:CLASS",
    )
    dataset: str = setting(
        "",
        "dataset to learn from, instead of collecting data: a D4RL file, a Minari id or folder",
        group="What",
    )
    steps: int = setting(
        1_000_000,
        "environment steps per seed; with --dataset, updates per seed",
        group="What",
        at_least=1,
        at_most=MOST_STEPS,
    )
    seeds: Any = setting("0", "seeds to train side by side, e.g. 0-9 or 0 3 7", group="What")
    set: Any = setting(
        (),
        "hyperparameters, e.g. batch_size=128 discount=0.9; see `td7 train ALGORITHM --help`",
        group="What",
    )
    vary: Any = setting(
        (),
        "hyperparameters with several values, e.g. learning_rate=1e-4,3e-4: every combination is "
        "trained with every seed, side by side",
        group="What",
    )
    start_from: Any = setting(
        "",
        "run whose learner to begin with, of the same algorithm (default: new networks); the "
        "replay begins empty",
        group="What",
    )
    normalise_observations: bool = setting(
        False,
        "normalise observations by their running mean and standard deviation (the paper does not)",
        group="What",
    )
    evaluate_every: int = setting(
        5_000, "steps (or updates) between evaluations", group="Evaluation", at_least=1
    )
    evaluation_episodes: int = setting(
        10, "episodes per evaluation", group="Evaluation", at_least=1, at_most=MOST_EPISODES
    )
    metrics_every: int = setting(
        1_000, "updates between rows of metrics.csv", group="Output", at_least=1
    )
    keep_policies: int = setting(
        0,
        "steps (or updates) between evaluated policies to keep, a multiple of --evaluate-every; "
        "0 keeps only the last policies",
        group="Output",
        at_least=0,
    )
    out: str = setting("", "run folder (default: runs/ALGORITHM-TASK-TIME)", group="Output")
    snapshot_every: float = setting(
        5.0,
        "minutes between snapshots for resuming; 0 saves only when the run stops or ends",
        group="Output",
        at_least=0,
    )
    tensorboard: bool = setting(
        False, "also write TensorBoard event files to RUN/tensorboard", group="Output"
    )
    wandb: str = setting(
        "",
        "log to this project of Weights & Biases, or ENTITY/PROJECT; WANDB_MODE=offline in the "
        "environment only writes files, for `wandb sync`",
        group="Output",
    )
    mlflow: str = setting(
        "", "log to MLflow: http://HOST:PORT, file:FOLDER or another tracking URI", group="Output"
    )
    quiet: bool = setting(False, "print only warnings", group="Output")
    device: str = setting(
        "auto", "auto, cpu or cuda (auto: cuda if available, otherwise cpu)", group="Hardware"
    )
    replay_device: str = setting(
        "auto",
        "where transitions are stored: auto (on the learner's device), or cpu to save GPU memory",
        group="Hardware",
    )
    workers: str = setting(
        "auto",
        "processes that play episodes; 0 plays them in the learner's process, between updates "
        "(auto: 0 on a cpu; on cuda one per seed and five for evaluation, as cores allow)",
        group="Hardware",
    )
    step_timeout: float = setting(
        600.0,
        "seconds that one environment step may take in a worker, which is then replaced, once per "
        "episode; after that, the run is saved and ends (0: no limit; no effect with --workers 0)",
        group="Hardware",
        at_least=0,
    )
    processes: str = setting(
        "auto",
        "on a cpu, learner processes that share the seeds; affects the last digits of results "
        "(auto: from 50_000 updates on one per seed, at most five per core; otherwise 1)",
        group="Hardware",
    )
    threads: str = setting(
        "auto",
        "on a cpu, PyTorch threads per process; affects the last digits of results "
        "(auto: 1 for small networks, otherwise all cores)",
        group="Hardware",
    )
    precision: str = setting(
        "auto",
        "precision of the learner: auto, float32 or float64 (auto: float32, on cuda with TF32 "
        "matrix products, which float32 avoids)",
        group="Hardware",
    )
    engine: str = setting(
        "auto",
        "how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled "
        "from 20_000 updates on, as compiling takes about a minute, otherwise eager)",
        group="Hardware",
    )

    def __post_init__(self) -> None:
        read_fields(self)
        check_fields(self, Option)

    @property
    def task(self) -> Task:
        """The task to train on; without an id it is the dataset's."""
        return Task(self.env, self.env_kwargs, tuple(self.wrapper))


# What `td7 study` passes to each of its runs; study.json lists these options in this order.
RUN_OPTIONS = (
    *("seeds", "evaluate_every", "evaluation_episodes", "metrics_every", "keep_policies"),
    *("snapshot_every", "wandb", "mlflow", "env_kwargs", "wrapper", "device", "engine", "workers"),
    "set",
)


def as_in_train(name: str, **changes: Any) -> Any:
    """Declare a field of TrainOptions again, with another default or other metadata."""
    declared = TrainOptions.__dataclass_fields__[name]
    default = changes.pop("default", declared.default)
    return dataclasses.field(default=default, metadata={**declared.metadata, **changes})


@dataclass(frozen=True)
class StudyOptions:
    """Every option of `td7 study` and every argument of `td7.study`."""

    name: str = setting(
        "", "study to run; see `td7 list studies`; MODULE:NAME for your own", group="What"
    )
    rows: Any = setting(
        (), "rows to run, by label (default: all); see `td7 list studies NAME`", group="What"
    )
    env: Any = setting(
        "",
        "tasks, as A,B; offline, datasets by name or path (default: those of the paper)",
        group="What",
        values="tasks",
    )
    env_kwargs: Any = as_in_train("env_kwargs")
    wrapper: Any = as_in_train("wrapper")
    seeds: Any = as_in_train("seeds", default="0-9", doc="seeds of each row on each task")
    steps: int = as_in_train(
        "steps",
        default=0,
        doc="environment steps (offline: updates) per seed; 0 runs as many as the paper",
        at_least=0,
    )
    set: Any = as_in_train(
        "set", doc="hyperparameters, for each row whose algorithm has a hyperparameter by that name"
    )
    datasets: str = setting(
        "datasets", "folder of the D4RL files that the offline study reads", group="What"
    )
    evaluate_every: int = as_in_train("evaluate_every")
    evaluation_episodes: int = as_in_train("evaluation_episodes")
    metrics_every: int = as_in_train("metrics_every")
    keep_policies: int = as_in_train("keep_policies")
    snapshot_every: float = as_in_train("snapshot_every")
    wandb: str = as_in_train("wandb")
    mlflow: str = as_in_train("mlflow")
    out: str = setting("", "folder of the study's runs (default: studies/NAME)", group="Output")
    quiet: bool = setting(False, "print only the outcome", group="Output")
    device: str = as_in_train("device")
    engine: str = as_in_train("engine")
    workers: str = as_in_train("workers")
    at_once: int = setting(1, "runs at the same time on this machine", group="Hardware", at_least=1)
    seeds_each: int = setting(
        0,
        "seeds per run; 0 trains all seeds in one run. On a cpu, several runs with few seeds each "
        "(--at-once) are faster",
        group="Hardware",
        at_least=0,
    )
    backend: str = setting(
        "local", "where runs are trained: local, or ray for a cluster", group="Hardware"
    )
    address: str = setting(
        "",
        "address of the Ray cluster, e.g. auto (default: a cluster of this machine alone)",
        group="Ray",
    )
    cpus: float = setting(1.0, "CPU cores of the cluster per run", group="Ray", at_least=0)
    gpus: str = setting(
        "auto",
        "GPUs of the cluster per run; 0.5 lets two runs share one (auto: 1 with --device cuda, "
        "otherwise 0)",
        group="Ray",
    )

    def __post_init__(self) -> None:
        read_fields(self)
        check_fields(self, Option)
        check_device(self.device)
        if one_of("backend", self.backend, BACKENDS) == "ray":
            return
        for f in fields(self):
            if f.metadata["group"] == "Ray" and getattr(self, f.name) != f.default:
                raise InputError(
                    f"{Option(f.name)} has no effect without {assigned(Option('backend'), 'ray')}"
                )

    @property
    def folder(self) -> Path:
        return Path(self.out or f"studies/{self.name.rpartition(':')[2]}")

    @property
    def run_options(self) -> TrainOptions:
        """The options that every run has; a plan adds each run's row, task and steps."""
        return TrainOptions(**{name: getattr(self, name) for name in RUN_OPTIONS})


def check_device(device: str) -> None:
    """Raise unless it is a device; one of several GPUs is chosen in the environment."""
    if number := re.fullmatch(r"cuda:?(\d+)", device):
        raise InputError(
            f"device {device}: a run takes the first GPU that it sees, device cuda; "
            f"CUDA_VISIBLE_DEVICES={number[1]} in its environment makes that GPU {number[1]}"
        )
    one_of("device", device, DEVICES)


# -- words → options -----------------------------------------------------------------------------


def options_from(cls: type[Options], values: Mapping[str, Any]) -> Options:
    """Return options of class `cls` from words or Python values."""
    kinds = cls.__annotations__
    parsed = {}
    for name, value in values.items():
        if name not in kinds:
            raise unknown("option", name, kinds, shown=len(kinds))
        parsed[name] = value if kinds[name] is Any else parse(Option(name), value, kinds[name])
    return cls(**parsed)


def with_hyperparameters(
    cls: type, values: Mapping[str, Any], hyperparameters: Collection[str]
) -> Mapping[str, Any]:
    """Return values for `options_from`: hyperparameters among them become part of `set`."""
    kinds = cls.__annotations__
    direct = {name: value for name, value in values.items() if name not in kinds}
    for name in direct:
        if name not in hyperparameters:
            allowed = [*kinds, *hyperparameters]
            raise unknown("option", name, allowed, shown=len(allowed))
    if not direct:
        return values
    settings = READERS["set"](values.get("set", ()))
    if twice := next((name for name in direct if name in settings), None):
        raise InputError(f"{twice} is given twice: as {twice}={direct[twice]!r}, and in set")
    options = {name: value for name, value in values.items() if name in kinds}
    return {**options, "set": {**settings, **direct}}


def read_fields(options: Any) -> None:
    for f in fields(options):
        if (kind := kind_of_values(f)) in READERS:
            value = READERS[kind](getattr(options, f.name))
            object.__setattr__(options, f.name, value)  # frozen, but not yet built


def kind_of_values(field: "dataclasses.Field[Any]") -> str:
    """Return the name of the field's values in the tables of `option_values`, if it has one."""
    return field.metadata["values"] or field.name


# -- options → words -----------------------------------------------------------------------------


def to_words(options: Any, names: Collection[str] | None = None) -> list[str]:
    """Return command-line words that `options_from` reads back as these options.

    Without `names`, these are the words of all options that differ from their defaults.
    """
    defaults = type(options)()
    words: list[str] = []
    for position, f in enumerate(fields(options)):
        value = getattr(options, f.name)
        is_wanted = value != getattr(defaults, f.name) if names is None else f.name in names
        if not is_wanted:
            continue
        if f.type is bool:
            words += [flag(f.name)] if value else []
            continue
        values = WRITERS.get(kind_of_values(f), one_word)(value)
        if position == 0:  # the argument of the command itself
            words += values
        elif len(values) > 1 and kind_of_values(f) not in IS_FURTHER_VALUE:
            words += [word for one in values for word in (flag(f.name), one)]
        elif values and values[0].startswith("-"):  # argparse would take it for an option
            words += [f"{flag(f.name)}={values[0]}", *values[1:]]
        elif values:
            words += [flag(f.name), *values]
    return words


def flag(name: str) -> str:
    """Return the command-line option of a field."""
    return Option(name).flag


# -- documentation -------------------------------------------------------------------------------


def in_python(doc: str) -> str:
    """Return an option's help with the options that it names as Python spells them."""
    return re.sub("--(?!help)([a-z-]+)", lambda match: f"`{match[1].replace('-', '_')}`", doc)


def document_options(function: Any, options: type, result: type) -> None:
    """Give `function`, which takes **options, the signature and docstring that help() shows."""
    first, *others = dataclasses.fields(options)
    parameters = [
        inspect.Parameter(
            first.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=first.default
        ),
        *(
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
            for f in others
        ),
        *(
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ),
        inspect.Parameter("hyperparameters", inspect.Parameter.VAR_KEYWORD),
    ]
    function.__signature__ = inspect.Signature(parameters, return_annotation=result)
    lines = [f"    {f.name}: {in_python(f.metadata['doc'])}" for f in (first, *others)]
    lines.append("    hyperparameters: by name; `td7 list algorithms NAME` lists an algorithm's")
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__), "", "Options:", *lines])

"""`td7.train`, `td7.resume`: one run from start to end. The command line is these, in words."""

import dataclasses
import inspect
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from td7.configs import check, hyper, named, number, parse, parse_as, with_values, words_of
from td7.datasets import dataset as datasets
from td7.errors import InputError, RunError, one_line, one_of, unknown
from td7.processes import end_script
from td7.rollouts.environment import ActionMap, describe, make, own_words
from td7.rollouts.evaluation import evaluate as play
from td7.runs import folder as runs
from td7.runs import policies
from td7.runs.listeners import Listener, ListenerFault, check_package
from td7.runs.video import record
from td7.training.hardware import (
    check_learner,
    check_memory,
    choose_device,
    choose_engine,
    choose_processes,
    choose_replay_device,
    choose_threads,
    choose_workers,
    hardware,
)
from td7.types import AnyPath, RowLayout, Task, TaskSpec

if TYPE_CHECKING:
    from td7.algorithms import Algorithm
    from td7.datasets.dataset import Dataset
    from td7.training.loop import Given, RunConfig
    from td7.training.progress import Progress


MOST_SEEDS = 1_000  # more is a slip of the finger
MOST_STEPS = 10**12  # likewise
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class TrainOptions:
    """Every option of `td7 train` and every argument of `td7.train`."""

    algorithm: str = hyper("", "which algorithm; `td7 list algorithms`", group="What")
    variant: str = hyper("", "a row of a study, STUDY/LABEL; `td7 list studies`", group="What")
    env: str = hyper(
        "", "Gymnasium id of the task; `td7 list tasks` (of a dataset: its own)", group="What"
    )
    env_kwargs: Any = hyper(
        (), "what the task is made with, e.g. max_episode_steps=200", group="What"
    )
    dataset: str = hyper(
        "",
        "learn from data instead of collecting it: a D4RL file, a Minari id or folder",
        group="What",
    )
    steps: int = hyper(
        1_000_000,
        "environment steps, a seed; with --dataset, updates",
        group="What",
        at_least=1,
        at_most=MOST_STEPS,
    )
    seeds: Any = hyper("0", "e.g. 0-9 or 0,3,7; they are trained side by side", group="What")
    set: Any = hyper(
        (), "hyperparameters, e.g. batch_size=128; `td7 train --help` lists them", group="What"
    )
    evaluate_every: int = hyper(
        5_000, "steps (or updates) between evaluations", group="Evaluation", at_least=1
    )
    evaluation_episodes: int = hyper(10, "episodes an evaluation", group="Evaluation", at_least=1)
    metrics_every: int = hyper(
        1_000, "updates between rows of metrics.csv", group="Output", at_least=1
    )
    keep_policies: int = hyper(
        0,
        "steps (or updates) between evaluated policies that are kept, a multiple of "
        "--evaluate-every; 0: only the last are",
        group="Output",
        at_least=0,
    )
    out: str = hyper("", "run folder (default: runs/ALGORITHM-TASK-TIME)", group="Output")
    snapshot_every: float = hyper(
        5.0,
        "minutes between snapshots to resume from; 0: only when stopped and at the end",
        group="Output",
        at_least=0,
    )
    tensorboard: bool = hyper(
        False, "also write event files for TensorBoard, to RUN/tensorboard", group="Output"
    )
    quiet: bool = hyper(False, "say nothing but warnings", group="Output")
    device: str = hyper("auto", "auto, cpu or cuda (auto: cuda if there is one)", group="Hardware")
    replay_device: str = hyper(
        "auto",
        "where transitions are kept: auto (with the learner), or cpu to save a GPU's memory",
        group="Hardware",
    )
    workers: str = hyper(
        "auto",
        "processes that play episodes; 0: none, they are played between updates "
        "(auto: none on a cpu; on cuda one a seed and five to evaluate, as cores allow)",
        group="Hardware",
    )
    processes: str = hyper(
        "auto",
        "on a cpu, processes that the seeds are divided among; part of the result's last digits "
        "(auto: one a seed, up to five a core, from 50_000 updates on; else 1)",
        group="Hardware",
    )
    threads: str = hyper(
        "auto",
        "PyTorch's, on a cpu, of each process; part of the result's last digits (auto: 1 for "
        "small networks, else all)",
        group="Hardware",
    )
    precision: str = hyper("float32", "of the learner: float32 or float64", group="Hardware")
    engine: str = hyper(
        "auto",
        "how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled, "
        "which takes a minute to begin, from 20_000 updates on)",
        group="Hardware",
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def task(self) -> Task:
        """The one asked for; without an id, it is the data's own."""
        return Task(self.env, environment_kwargs(self.env_kwargs))


class Run:
    """A run folder, read with pandas."""

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self.config = runs.read_config(self.path)

    def __fspath__(self) -> str:
        """So that whatever takes a run's path takes the run."""
        return str(self.path)

    @property
    def evaluations(self) -> pd.DataFrame:
        """seed, step, episode, return, length: a row an evaluation episode."""
        return self._read("evaluations.csv")

    def final(self) -> "pd.Series[float]":
        """Each seed's mean return in its last evaluation, for `td7.statistics`."""
        last = self.evaluations.set_index(["seed", "step"])["return"].groupby(level=[0, 1]).mean()
        return last.groupby(level="seed").last().rename("return")

    @property
    def episodes(self) -> pd.DataFrame:
        """seed, step, episode, return, length: a row a training episode."""
        return self._read("episodes.csv")

    @property
    def metrics(self) -> pd.DataFrame:
        """seed, step, update, and a column a metric."""
        return self._read("metrics.csv")

    def _read(self, name: str) -> pd.DataFrame:
        file = self.path / name
        try:
            return pd.read_csv(file)
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}") from None
        except ValueError as error:  # pandas' own, and of what is no text
            raise InputError(f"{file} is damaged: {one_line(error)}") from None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def train(algorithm: str = "", *, listener: Listener | None = None, **options: Any) -> Run:
    """Trains one algorithm on one task, all seeds side by side, and gives back the finished run.

    `listener(table, rows)` is told of new rows of "evaluations", "episodes" and "metrics" as they
    come, each a dictionary by column. What it raises ends the run, which is saved and can be
    resumed; rows that came with the one it raised at are in the tables only. After a crash, those
    since the last snapshot are told again.

    The options are those of `td7 train`: see `TrainOptions`. Without any, it is TD7.
    """
    end_script()
    return start(train_options({"algorithm": algorithm, **options}), listener=listener)


def tell_options(function: Any, options: type, result: type) -> None:
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


tell_options(train, TrainOptions, Run)


def train_options(values: Mapping[str, Any]) -> TrainOptions:
    """Options from Python values or from words."""
    from td7.algorithms import algorithm

    # A wrong one is told before anything else.
    hyperparameters = algorithm(str(values.get("algorithm") or "td7")).config.__dataclass_fields__
    for name, value in values.items():
        if name in hyperparameters and name not in TrainOptions.__annotations__:
            raise InputError(f"{name} is a hyperparameter: set={{{name!r}: {value!r}}}")
    if not isinstance(values.get("env", ""), str):
        kind = type(values["env"]).__name__
        raise InputError(
            f"env takes the id of a registered task, given a {kind}; register what makes it, "
            "gymnasium.register('Mine-v0', entry_point=...), and give 'Mine-v0'"
        )
    return options_from(TrainOptions, values)


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


def start(
    options: TrainOptions, shown: "Progress | None" = None, listener: Listener | None = None
) -> Run:
    """A new run: everything is checked before anything is written."""
    _check_listener(listener)
    dataset = read_dataset(options.dataset, options.task) if options.dataset else None
    config = run_config(options, dataset)
    workers = choose_workers(options.workers, config.device, len(config.seeds))
    spec = describe(config.task)
    if options.processes == "auto":
        config = _fitting(config, spec, options)
    check_memory(config, spec)
    check_learner(config, spec)
    if options.tensorboard:
        check_package()
    kind = config.variant or config.algorithm
    what = dataset.name if dataset else config.task.id
    path = Path(options.out) if options.out else _default_folder(kind, what)
    record = {
        **config.to_json(),
        "versions": runs.versions(),
        "hardware": hardware(config.device),
        "workers": options.workers,
        "snapshot_every": options.snapshot_every,
        "tensorboard": options.tensorboard,
        "command": runs.command(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    runs.create(path, record)
    return _run(config, spec, path, record, workers, options, dataset, shown, listener)


def _fitting(config: "RunConfig", spec: TaskSpec, options: TrainOptions) -> "RunConfig":
    """In one process, where there is no memory for several."""
    try:
        check_memory(config, spec)
    except InputError:
        threads = choose_threads(options.threads, config.hyperparameters, 1)
        return dataclasses.replace(config, processes=1, threads=threads)
    return config


def _check_listener(listener: object) -> None:
    if listener is not None and not callable(listener):
        kind = type(listener).__name__
        raise InputError(
            f"listener takes a function of a table's name and its rows, given a {kind}"
        )


def read_dataset(source: str, task: Task) -> "Dataset":
    """The data to learn from, with actions in [-1, 1] by the task's bounds.

    A task without an id is the data's own, made as it was for them and with these options.
    """

    def read(spec: TaskSpec) -> "Dataset":
        bounds = ActionMap(spec.action_low, spec.action_high)
        return datasets.read(source, bounds=bounds, time_limit=spec.time_limit)

    if task.id:
        spec = describe(task)
        dataset = read(spec)
    else:
        dataset = datasets.read(source)
        if not dataset.task_id:
            raise InputError(f"{source} does not say its task: give --env")
        spec = describe(_task(task, dataset))
    for name in ("state_dim", "action_dim"):
        theirs, ours = getattr(dataset.layout, name), getattr(spec, name)
        if theirs != ours:
            what = name.replace("_dim", "s")
            raise InputError(f"{source} has {what} of {theirs} numbers, {spec.task.id} of {ours}")
    # The task's bounds and limit count, also where data state others, or none.
    is_same = dataset.bounds == ActionMap(spec.action_low, spec.action_high)
    if not (task.id or (is_same and spec.time_limit in (None, datasets.TIME_LIMIT))):
        dataset = read(spec)
    other = datasets.other_task(dataset, spec.task)
    return dataclasses.replace(dataset, warnings=(*dataset.warnings, other)) if other else dataset


def _task(asked: Task, dataset: "Dataset | None" = None) -> Task:
    """The one asked for, or else the data's own, made as it was for them."""
    if asked.id or dataset is None:
        return asked
    return Task(dataset.task_id, {**(dataset.task_kwargs or {}), **asked.kwargs})


def run_config(options: TrainOptions, dataset: "Dataset | None" = None) -> "RunConfig":
    """What decides the result of a run with these options."""
    from td7.algorithms import algorithm
    from td7.studies.rows import study, variant
    from td7.training.loop import PRECISIONS, RunConfig

    name, settings = options.algorithm or "td7", dict(_settings(options.set))
    of_data = False
    if options.variant:
        row = variant(options.variant)
        of_data = bool(study(options.variant.partition("/")[0]).datasets)
        if options.algorithm not in ("", row.algorithm):
            raise InputError(
                f"{options.variant} is a variant of {row.algorithm}, given {options.algorithm}"
            )
        name = row.algorithm
        for field in set(settings) & set(row.settings):
            if parse_as(algorithm(name).config, field, settings[field]) != row.settings[field]:
                raise InputError(f"{options.variant} sets {field}={row.settings[field]} itself")
        settings = {**settings, **row.settings}
    if options.keep_policies % options.evaluate_every:
        raise InputError(
            f"keep-policies={options.keep_policies} must be a multiple of "
            f"evaluate-every={options.evaluate_every}"
        )
    task = _task(options.task, dataset)
    if not task.id:
        raise InputError("--env is missing: the Gymnasium id of a task, such as HalfCheetah-v4")
    chosen = algorithm(name)
    if dataset:
        settings = _offline_settings(chosen, settings)
    elif not chosen.online or of_data:
        raise InputError(f"{options.variant or chosen.name} learns from data: give --dataset")
    hyperparameters = with_values(chosen.config, settings).for_task(task)
    device = choose_device(options.device)
    seeds, updates = parse_seeds(options.seeds), options.steps
    if not dataset:
        updates -= hyperparameters.random_steps  # type: ignore[attr-defined]  # an OnlineConfig
    updates *= len(seeds)
    processes = choose_processes(
        options.processes,
        device,
        task,
        seeds=len(seeds),
        updates=updates,
        workers=choose_workers(options.workers, device, len(seeds)),
        threads=options.threads,
    )
    return RunConfig(
        algorithm=name,
        variant=options.variant,
        task=task,
        seeds=seeds,
        steps=options.steps,
        hyperparameters=hyperparameters,
        evaluate_every=options.evaluate_every,
        evaluation_episodes=options.evaluation_episodes,
        metrics_every=options.metrics_every,
        keep_policies=options.keep_policies,
        device=device,
        replay_device=choose_replay_device(options.replay_device, device),
        precision=one_of("precision", options.precision, PRECISIONS),
        engine=choose_engine(options.engine, device, updates),
        processes=processes,
        threads=choose_threads(options.threads, hyperparameters, processes),
        dataset=_given(dataset) if dataset else None,
    )


def _offline_settings(chosen: "Algorithm", settings: Mapping[str, Any]) -> dict[str, Any]:
    """With what the algorithm changes for given data; what only collecting needs is refused."""
    from td7.algorithms import ALGORITHMS
    from td7.algorithms.learner import ONLINE_GROUPS

    if chosen.offline is None:
        allowed = ", ".join(a.name for a in ALGORITHMS.values() if a.offline is not None)
        raise InputError(f"{chosen.name} does not learn from a dataset; allowed: {allowed}")
    defaults = with_values(chosen.config, chosen.offline)
    for f in dataclasses.fields(defaults):
        if f.name in settings and f.metadata["group"] in ONLINE_GROUPS:
            given, own = settings[f.name], getattr(defaults, f.name)
            if parse_as(chosen.config, f.name, given) != own:
                raise InputError(f"{f.name}={given} is of no use with --dataset: data are given")
    return {**chosen.offline, **settings}


def _given(dataset: "Dataset") -> "Given":
    from td7.training.loop import Given

    path = Path(dataset.source)  # a whole path is right from elsewhere, too; an id stays as it is
    source = str(path.resolve()) if path.exists() else dataset.source
    digest = sha256(dataset.rows.data).hexdigest()
    mean = float(dataset.returns.mean()) if len(dataset.returns) else None
    return Given(source, len(dataset.rows), digest, dataset.self_collected, mean, dataset.d4rl)


def _settings(given: Any) -> Mapping[str, Any]:
    """Hyperparameters from a mapping or from words."""
    return given if isinstance(given, Mapping) else named(given)


def resume(
    path: AnyPath,
    *,
    steps: int | None = None,
    dataset: str | None = None,
    set: Any = (),  # the option's name
    workers: int | str | None = None,
    snapshot_every: float | None = None,
    quiet: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Goes on with a run that was stopped, exactly; `steps` may extend it.

    `workers` and `snapshot_every` are as before unless they are given; `listener` is as in `train`.
    `dataset` tells where its data are now, if they were moved.
    `set` is for making sure: hyperparameters that differ from the run's are an error.
    """
    from td7.runs.snapshots import has_snapshot
    from td7.training.loop import check_same

    end_script()
    _check_listener(listener)
    path = Path(path)
    record = runs.read_config(path)
    config = _recorded(path, record)
    if dataset and not config.dataset:
        raise InputError(f"{path} collects its own data: --dataset is of no use")
    how = {"workers": workers, "snapshot_every": snapshot_every, "tensorboard": None}
    before = {name: record[name] for name in how if name in record}
    given = {name: value for name, value in how.items() if value is not None}
    options = train_options({**before, **given, "quiet": quiet})
    data = None
    if config.dataset:
        source = dataset or config.dataset.source
        data = read_dataset(source, config.task)
        now = _given(data)
        if now.sha256 != config.dataset.sha256:
            raise InputError(f"{source} does not hold the data that {path} began with")
        config = dataclasses.replace(config, dataset=now)
    players = choose_workers(options.workers, config.device, len(config.seeds))
    settings = _settings(set)
    if settings:
        changed = with_values(
            type(config.hyperparameters),
            {**dataclasses.asdict(config.hyperparameters), **settings},
        )
        check_same(dataclasses.asdict(changed), dataclasses.asdict(config.hyperparameters))
    if steps is not None:
        steps = parse("steps", steps, int)
        check_same({"steps": steps}, {"steps": config.steps})
        config = dataclasses.replace(config, steps=steps)
    finished = runs.finished_steps(path)
    if finished is not None and not has_snapshot(path):  # someone saved room
        if config.steps > finished:
            raise InputError(
                f"{path} has no snapshot to go on from; it is finished, with {finished:,} "
                f"{config.counted}: `td7 train` with another --out makes more"
            )
        return Run(path)
    spec = describe(config.task)
    check_memory(config, spec)
    return _run(config, spec, path, record, players, options, data, listener=listener, resumed=True)


def _recorded(path: Path, record: Mapping[str, Any]) -> "RunConfig":
    """The config that a run began with, if it can go on here.

    Its hyperparameters are its own: what they came from, a row or defaults, may be others by now.
    """
    from td7.training.loop import RunConfig

    try:
        config = RunConfig.from_json(record)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path / 'config.json'} is damaged: {error!r}") from None
    parse_seeds(config.seeds)
    choose_device(config.device)  # which this machine may not have
    choose_replay_device(config.replay_device, config.device)
    choose_engine(config.engine, config.device, config.steps)
    return config


def _run(*given: Any, **more: Any) -> Run:
    """`_trained`; what the caller's function raised comes out as it was."""
    try:
        return _trained(*given, **more)
    except ListenerFault as fault:
        raised = fault.raised
    raise raised


def _trained(
    config: "RunConfig",
    spec: TaskSpec,
    path: Path,
    record: Mapping[str, Any],
    workers: int,
    options: TrainOptions,
    dataset: "Dataset | None",
    shown: "Progress | None" = None,
    listener: Listener | None = None,
    *,
    resumed: bool = False,
) -> Run:
    import torch

    from td7.training.multiprocess import training as training_of
    from td7.training.progress import progress

    shown = shown or progress(quiet=options.quiet)
    # What the engine sets is for this run, not for whoever calls it.
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(config.threads)
    announce = partial(_announce, config, spec, path, dataset, shown)
    try:
        if not resumed:  # before anything is taken; what is resumed may yet be refused
            announce()
        training = training_of(config, dataset)(
            config,
            spec,
            path,
            shown,
            workers=workers,
            snapshot_every=options.snapshot_every,
            tensorboard=options.tensorboard,
            listener=listener,
        )
        try:
            may_change = ("steps", "dataset")  # extended, moved; the folder is ours from here on
            now = {**record, **{name: config.to_json()[name] for name in may_change}}
            if now != record:
                runs.write_config(path, now)
            if resumed:
                has_snapshot = training.has_snapshot
                begun = f"{training.begun:,} on"
                announce(begun if has_snapshot else "the start, as there is no snapshot")
            if runs.finished_steps(path) == config.steps:
                shown.say("it was finished already: nothing is left to train")
            training.run()
        finally:
            training.close()
    except RunError as error:
        raise runs.with_details_kept(error, path) from error.__cause__
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
        shown.close()
    return Run(path)


def _announce(
    config: "RunConfig",
    spec: TaskSpec,
    path: Path,
    dataset: "Dataset | None",
    shown: "Progress",
    since: str = "",
) -> None:
    """What a run does, and what it takes."""
    from td7.engine.replay import required_bytes

    where = f"{dataset.name} ({config.task.id})" if dataset else config.task.id
    for warning in dataset.warnings if dataset else ():
        shown.warn(f"{where}: {warning}")
    seeds, counted = ",".join(map(str, config.seeds)), config.counted
    layout, size = RowLayout(spec.state_dim, spec.action_dim), len(config.seeds)
    taken = sum(required_bytes(layout, config.replay_rows, size, shared=dataset is not None))
    replay = f"{taken / 1e9:.2f} GB" if taken >= 1e8 else f"{taken / 1e6:.1f} MB"
    among = f" ({config.processes} processes)" if config.processes > 1 else ""
    shown.say(
        f"{config.variant or config.algorithm} on {where}, seeds {seeds}, {config.steps:,} "
        f"{counted}{since and ' from '}{since}, {config.device}{among}, replay {replay} on "
        f"{config.replay_device} → {path}"
    )
    if dataset is None and config.steps <= config.online.random_steps:
        shown.warn(
            f"nothing is trained: all {config.steps:,} steps are random, "
            f"as random_steps={config.online.random_steps:,}"
        )
    if after := config.steps % config.evaluate_every:
        shown.say(
            f"the last evaluation is at {config.steps - after:,} {counted}, since --evaluate-every "
            f"is {config.evaluate_every:,}"
        )


def load(path: AnyPath, seed: int | None = None) -> policies.Policy:
    """The trained policy of a run folder; `policy.predict(observation)` gives (action, None)."""
    return policies.load(path, seed)


def evaluate(
    path: AnyPath,
    *,
    seed: int | None = None,
    episodes: int = 10,
    video: str | None = None,
    say: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """seed, episode, return, length of a run's policies (or of one seed's), played anew.

    And D4RL's score, of agents that learned from data, on tasks that have one. Episode i is the
    i-th of the run's last evaluation; of kept policies, RUN/policies/STEP, of the one at that
    step. `video` films episode 0 of the first policy, which may take minutes; `say` is told so.
    """
    episodes = number("episodes", episodes, int, at_least=1)
    run, kept = runs.folder_of(Path(path))
    config = runs.read_config(run)
    try:
        seeds = parse_seeds(config["seeds"] if seed is None else [seed])
    except KeyError as error:
        raise InputError(f"{run / 'config.json'} is damaged: {error!r}") from None
    found = {s: load(path, s) for s in seeds}
    steps = dict.fromkeys(seeds, kept) if kept is not None else _last_evaluations(run)
    if video:
        record(found[seeds[0]], Path(video), seed=seeds[0], step=steps.get(seeds[0], 0), say=say)
    rows = []
    for s, policy in found.items():
        with closing(make(policy.spec.task)) as player, own_words(f"seed {s}, evaluation"):
            results = play(player, policy.actor, seed=s, step=steps.get(s, 0), episodes=episodes)
            rows += [(s, i, e.episode_return, e.length) for i, e in enumerate(results)]
    table = pd.DataFrame(rows, columns=["seed", "episode", "return", "length"])
    task_id = found[seeds[0]].spec.task.id
    scores = datasets.score(task_id, table["return"]) if config.get("dataset") else None
    if scores is not None:
        table["score"] = scores
    return table


def _last_evaluations(run: Path) -> dict[int, int]:
    """The step of every seed's last evaluation; a seed that had none yet is not there."""
    evaluations = Run(run).evaluations
    if not {"seed", "step"} <= set(evaluations.columns):
        raise InputError(f"{run / 'evaluations.csv'} is damaged: no columns seed and step")
    last = evaluations.groupby("seed")["step"].max()
    return dict(zip(last.index.tolist(), last.tolist(), strict=True))


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


def environment_kwargs(given: Any) -> dict[str, Any]:
    """Words name=value, the value JSON where it can be read as such; or a mapping."""
    if isinstance(given, Mapping):
        return {str(name): _plain(str(name), value) for name, value in given.items()}
    kwargs: dict[str, Any] = {}
    for word in words_of("--env-kwargs", given):
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


def _default_folder(kind: str, env: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", f"{kind}-{env}")
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, i = base, 1
    while path.exists():
        i += 1
        path = base.with_name(f"{base.name}-{i}")
    return path

"""Options → RunConfig: what a run will do, decided and checked before anything is written."""

import dataclasses
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.algorithms import algorithm
from td7.configs import build_config, parse_field, parse_settings
from td7.datasets import read as read_module
from td7.datasets.dataset import task_mismatch
from td7.datasets.hdf5 import TIME_LIMIT
from td7.errors import InputError, one_of
from td7.options import TrainOptions, options_from, parse_seeds
from td7.rollouts.environment import ActionMap
from td7.rollouts.registration import describe
from td7.runs.record import DatasetRecord, RunRecord, config_error
from td7.training.config import PRECISIONS
from td7.training.hardware import (
    choose_device,
    choose_engine,
    choose_processes,
    choose_replay_device,
    choose_threads,
    choose_workers,
)
from td7.types import Task, TaskSpec

if TYPE_CHECKING:
    from td7.algorithms import Algorithm
    from td7.datasets.dataset import Dataset
    from td7.training.config import RunConfig


def train_options(values: Mapping[str, Any]) -> TrainOptions:
    """Options from Python values or from words."""

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


def read_dataset(source: str, task: Task) -> "Dataset":
    """The data to learn from, with actions in [-1, 1] by the task's bounds.

    A task without an id is the data's own, made as it was for them and with these options.
    """

    def read(spec: TaskSpec) -> "Dataset":
        bounds = ActionMap(spec.action_low, spec.action_high)
        return read_module.read(source, bounds=bounds, time_limit=spec.time_limit)

    if task.id:
        spec = describe(task)
        dataset = read(spec)
    else:
        dataset = read_module.read(source)
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
    if not (task.id or (is_same and spec.time_limit in (None, TIME_LIMIT))):
        dataset = read(spec)
    other = task_mismatch(dataset, spec.task)
    return dataclasses.replace(dataset, warnings=(*dataset.warnings, other)) if other else dataset


def _task(asked: Task, dataset: "Dataset | None" = None) -> Task:
    """The one asked for, or else the data's own, made as it was for them."""
    if asked.id or dataset is None:
        return asked
    return Task(dataset.task_id, {**(dataset.task_kwargs or {}), **asked.kwargs})


def run_config(options: TrainOptions, dataset: "Dataset | None" = None) -> "RunConfig":
    """What decides the result of a run with these options."""
    from td7.studies.rows import study, variant
    from td7.training.config import RunConfig

    name, settings = options.algorithm or "td7", dict(settings_of(options.set))
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
            if parse_field(algorithm(name).config, field, settings[field]) != row.settings[field]:
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
    hyperparameters = build_config(chosen.config, settings).for_task(task)
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
        dataset=dataset_record(dataset) if dataset else None,
    )


def _offline_settings(chosen: "Algorithm", settings: Mapping[str, Any]) -> dict[str, Any]:
    """With what the algorithm changes for given data; what only collecting needs is refused."""
    from td7.algorithms import ALGORITHMS
    from td7.algorithms.config import ONLINE_GROUPS

    if chosen.offline is None:
        allowed = ", ".join(a.name for a in ALGORITHMS.values() if a.offline is not None)
        raise InputError(f"{chosen.name} does not learn from a dataset; allowed: {allowed}")
    defaults = build_config(chosen.config, chosen.offline)
    for f in dataclasses.fields(defaults):
        if f.name in settings and f.metadata["group"] in ONLINE_GROUPS:
            given, own = settings[f.name], getattr(defaults, f.name)
            if parse_field(chosen.config, f.name, given) != own:
                raise InputError(f"{f.name}={given} is of no use with --dataset: data are given")
    return {**chosen.offline, **settings}


def dataset_record(dataset: "Dataset") -> DatasetRecord:
    path = Path(dataset.source)  # a whole path is right from elsewhere, too; an id stays as it is
    source = str(path.resolve()) if path.exists() else dataset.source
    digest = sha256(dataset.rows.data).hexdigest()
    mean = float(dataset.returns.mean()) if len(dataset.returns) else None
    return DatasetRecord(
        source, len(dataset.rows), digest, dataset.self_collected, mean, dataset.d4rl
    )


def settings_of(given: Any) -> Mapping[str, Any]:
    """Hyperparameters from a mapping or from words."""
    return given if isinstance(given, Mapping) else parse_settings(given)


def recorded_config(record: RunRecord) -> "RunConfig":
    """The config that a run began with, if it can go on here.

    Its hyperparameters are its own: what they came from, a row or defaults, may be others by now.
    """
    from td7.training.config import RunConfig

    try:
        config = RunConfig.from_record(record)
    except KeyError as error:
        raise config_error(record.folder, error) from None
    choose_device(config.device)  # which this machine may not have
    choose_replay_device(config.replay_device, config.device)
    choose_engine(config.engine, config.device, config.steps)
    return config

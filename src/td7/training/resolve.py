"""Options → RunConfig: what a run will do, decided and checked before anything is written."""

import dataclasses
from collections.abc import Mapping
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from td7.algorithms import ALGORITHMS, Algorithm, algorithm, registered_name
from td7.algorithms.config import LearnerConfig, OnlineConfig, check_varies, without_effect
from td7.configs import build_config, parse_field, parse_settings
from td7.datasets.dataset import Dataset, task_mismatch
from td7.datasets.hdf5 import TIME_LIMIT
from td7.datasets.read import read
from td7.errors import InputError, Option, assigned
from td7.option_values import MOST_SEEDS, parse_seeds
from td7.options import TrainOptions, options_from, with_hyperparameters
from td7.rollouts.callables import register_callable
from td7.rollouts.environment import ActionMap
from td7.rollouts.registration import describe
from td7.runs.members import Members
from td7.runs.record import DatasetRecord, RunRecord, config_error
from td7.runs.trust import foreign_module, text_argument
from td7.studies.rows import Row, Study, study_and_row
from td7.training.config import RunConfig, precision_settings
from td7.training.hardware import (
    choose_device,
    choose_engine,
    choose_processes,
    choose_replay_device,
    choose_threads,
    choose_workers,
)
from td7.types import Task, TaskSpec

DATASET = Option("dataset")


def train_options(values: Mapping[str, Any]) -> TrainOptions:
    """Options from Python values, hyperparameters among them, or from words."""
    # An unknown algorithm is reported before any other mistake.
    if values.get("variant"):
        chosen = algorithm_of(*study_and_row(str(values["variant"])))
    else:
        chosen = algorithm(str(values.get("algorithm") or "td7"))
    values = with_hyperparameters(TrainOptions, values, chosen.config.__dataclass_fields__)
    env = values.get("env", "")
    if callable(env):
        values = {**values, "env": register_callable(env)}
    elif not isinstance(env, str):
        kind = type(env).__name__
        raise InputError(
            f"env takes the id of a task, or a class or function that makes it, given a {kind}"
        )
    return options_from(TrainOptions, values)


def algorithm_of(chosen: Study, row: Row) -> Algorithm:
    """The algorithm of a study's row; raise unless it can train the row."""
    try:
        own = algorithm(row.algorithm)
        settings = _offline_settings(own, row.settings) if chosen.datasets else row.settings
        build_config(own.config, settings)
    except InputError as error:
        raise InputError(f"{chosen.name}/{row.label}: {error}") from error
    return own


# -- the dataset and its task ----------------------------------------------------------------------


def read_dataset(source: str, task: Task) -> Dataset:
    """The dataset to learn from, with actions in [-1, 1] by the task's bounds.

    A task without an id is the one that the data name: its arguments are those that it had for
    the data, updated with the task's own, and its wrappers come before the task's own.
    """

    def read_as(spec: TaskSpec) -> Dataset:
        bounds = ActionMap(spec.action_low, spec.action_high)
        return read(source, bounds=bounds, time_limit=spec.time_limit)

    if task.id:
        spec = describe(task)
        dataset = read_as(spec)
    else:
        dataset = read(source)
        if not dataset.task_id:
            raise InputError(f"{source} does not name its task: give {Option('env')}")
        _check_task_of(dataset)
        spec = describe(_task(task, dataset))
    for name in ("state_dim", "action_dim"):
        theirs, ours = getattr(dataset.layout, name), getattr(spec, name)
        if theirs != ours:
            what = name.replace("_dim", "s")
            raise InputError(
                f"{source} has {what} of {theirs} numbers, but {spec.task.id} has {what} of {ours}"
            )
    # The task's bounds and time limit count, even where the data state others or none.
    is_same = dataset.bounds == ActionMap(spec.action_low, spec.action_high)
    if not (task.id or (is_same and spec.time_limit in (None, TIME_LIMIT))):
        dataset = read_as(spec)
    warning = task_mismatch(dataset, spec.task)
    if warning is None:
        return dataset
    return dataclasses.replace(dataset, warnings=(*dataset.warnings, warning))


def _check_task_of(dataset: Dataset) -> None:
    """Raise if a file would have a module imported, or a task read what it names."""
    id, named = dataset.task_id, f"{dataset.source} names the task {dataset.task_id!r}"
    if foreign_module(id):
        raise InputError(
            f"{named}; its module is imported only if you give {assigned(Option('env'), id)}"
        )
    wrappers = (wrapper.name for wrapper in dataset.task_wrappers)
    if module := foreign_module(*wrappers):
        raise InputError(
            f"{named} with a wrapper of the module {module!r}, which is imported only if you give "
            f"{assigned(Option('env'), id)} {assigned(Option('wrapper'), '…')}"
        )
    if argument := text_argument(dataset.task):
        raise InputError(
            f"{named} with the text {argument}, which is used only if you give it: "
            f"{assigned(Option('env'), id)} {assigned(Option('env_kwargs'), '…')}"
        )


def _task(task: Task, dataset: Dataset | None) -> Task:
    """The task itself if it has an id, else the one of the data, to which it adds."""
    if task.id or dataset is None:
        return task
    stated = dataset.task
    return Task(stated.id, {**stated.kwargs, **task.kwargs}, (*stated.wrappers, *task.wrappers))


def dataset_record(dataset: Dataset) -> DatasetRecord:
    path = Path(dataset.source)  # made absolute, for other working directories; an id stays
    mean = float(dataset.returns.mean()) if len(dataset.returns) else None
    return DatasetRecord(
        source=str(path.resolve()) if path.exists() else dataset.source,
        rows=len(dataset.rows),
        sha256=sha256(dataset.rows.data).hexdigest(),
        self_collected=dataset.self_collected,
        mean_return=mean,
        d4rl=dataset.d4rl,
    )


# -- the config ------------------------------------------------------------------------------------


def run_config(
    options: TrainOptions, dataset: Dataset | None = None, members: Members | None = None
) -> RunConfig:
    """Everything that decides the result of a run with these options.

    `members` take the place of those that the options state.
    """
    selection = _select(options)
    if options.keep_policies % options.evaluate_every:
        raise InputError(
            f"{assigned(Option('keep_policies'), options.keep_policies)} must be a multiple of "
            f"{assigned(Option('evaluate_every'), options.evaluate_every)}"
        )
    task = _task(options.task, dataset)
    if not task.id:
        raise InputError(
            f"{Option('env')} is missing: the Gymnasium id of a task, such as HalfCheetah-v4"
        )
    hyperparameters = _hyperparameters(options, selection, task, dataset)
    device = choose_device(options.device)
    members = members or _members(options, selection, hyperparameters, dataset)
    updates = len(members) * _updates_per_seed(options.steps, hyperparameters, dataset)
    processes = choose_processes(
        options.processes,
        device,
        task,
        seeds=len(members),
        updates=updates,
        workers=choose_workers(options.workers, device, len(members)),
        threads=options.threads,
    )
    return RunConfig(
        algorithm=selection.algorithm,
        variant=selection.variant,
        task=task,
        seeds=members.seeds,
        varied=members.varied,
        numbers=members.numbers,
        steps=options.steps,
        hyperparameters=hyperparameters,
        evaluate_every=options.evaluate_every,
        evaluation_episodes=options.evaluation_episodes,
        metrics_every=options.metrics_every,
        keep_policies=options.keep_policies,
        device=device,
        replay_device=choose_replay_device(options.replay_device, device),
        **precision_settings(options.precision, device),
        engine=choose_engine(options.engine, device, updates),
        processes=processes,
        threads=choose_threads(options.threads, hyperparameters, processes),
        dataset=dataset_record(dataset) if dataset else None,
        normalise_observations=_normalises(options, selection),
    )


class _Selection(NamedTuple):
    algorithm: str  # perhaps MODULE:NAME
    variant: str
    settings: Mapping[str, Any]  # hyperparameters that are not the algorithm's defaults
    is_offline_row: bool  # a row of a study of datasets


def _select(options: TrainOptions) -> _Selection:
    """The algorithm and its settings, from the variant's row if the options name one."""
    settings = settings_of(options.set)
    if not options.variant:
        name = registered_name(options.algorithm or "td7")
        return _Selection(name, "", settings, is_offline_row=False)
    study, row = study_and_row(options.variant)
    name = registered_name(row.algorithm)
    if options.algorithm and registered_name(options.algorithm) != name:
        raise InputError(f"{options.variant} is a variant of {name}, given {options.algorithm}")
    config = algorithm(name).config
    for field in set(settings) & set(row.settings):
        own, given = (parse_field(config, field, s[field]) for s in (row.settings, settings))
        if given != own:
            raise InputError(f"{options.variant} sets {field}={row.settings[field]} itself")
    variant = f"{study.name}/{row.label}"
    return _Selection(name, variant, {**settings, **row.settings}, bool(study.datasets))


def _hyperparameters(
    options: TrainOptions, selection: _Selection, task: Task, dataset: Dataset | None
) -> LearnerConfig:
    chosen, settings = algorithm(selection.algorithm), selection.settings
    if dataset:
        settings = _offline_settings(chosen, settings)
    elif not chosen.online or selection.is_offline_row:
        raise InputError(f"{options.variant or chosen.name} learns from a dataset: give {DATASET}")
    config = build_config(chosen.config, settings)
    own = settings_of(options.set)
    offline = chosen.offline if dataset else None
    for name, why in without_effect(chosen.config, settings, own, offline=offline).items():
        raise InputError(f"{name}={own[name]} has no effect {why}")
    return config.for_task(task)


def _members(
    options: TrainOptions,
    selection: _Selection,
    hyperparameters: LearnerConfig,
    dataset: Dataset | None,
) -> Members:
    """Every seed or, if hyperparameters vary, every combination of values with every seed."""
    seeds, chosen = parse_seeds(options.seeds), algorithm(selection.algorithm)
    varied: dict[str, list[float]] = {}
    for name, given in options.vary.items():
        check_varies(chosen.config, name)
        if name in selection.settings:
            raise InputError(f"{name} is given twice: in {Option('set')} and in {Option('vary')}")
        values = [parse_field(chosen.config, name, value) for value in given]
        if len(set(values)) < max(2, len(values)):
            raise InputError(f"{Option('vary')}: {name} takes two or more different values")
        for value in values:
            replace = {**vars(hyperparameters), name: value}
            for _, why in without_effect(
                chosen.config, replace, [name], offline=chosen.offline if dataset else None
            ).items():
                raise InputError(f"{name}={value} has no effect {why}")
        varied[name] = values
    if not varied:
        return Members(seeds)
    rows = list(product(*varied.values(), seeds))
    if len(rows) > MOST_SEEDS:
        raise InputError(
            f"at most {MOST_SEEDS:,} members can be trained at once, given {len(rows):,}"
        )
    *columns, all_seeds = zip(*rows, strict=True)
    return Members(all_seeds, dict(zip(varied, columns, strict=True)), tuple(range(len(rows))))


def _normalises(options: TrainOptions, selection: _Selection) -> bool:
    if options.normalise_observations:
        learner = algorithm(selection.algorithm).learner
        if learner.normalises_observations:
            raise InputError(
                f"--normalise-observations has no effect: {selection.algorithm} normalises "
                "observations itself"
            )
    return options.normalise_observations


def _offline_settings(chosen: Algorithm, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what the algorithm changes for datasets."""
    if chosen.offline is None:
        allowed = ", ".join(a.name for a in ALGORITHMS.values() if a.offline is not None)
        raise InputError(f"{chosen.name} does not learn from a dataset; allowed: {allowed}")
    return {**chosen.offline, **settings}


def _updates_per_seed(steps: int, hyperparameters: LearnerConfig, dataset: Dataset | None) -> int:
    if dataset is None and isinstance(hyperparameters, OnlineConfig):
        return steps - hyperparameters.random_steps
    return steps


def settings_of(settings: Any) -> Mapping[str, Any]:
    """Hyperparameters from a mapping or from words."""
    return settings if isinstance(settings, Mapping) else parse_settings(settings)


def recorded_config(record: RunRecord) -> RunConfig:
    """The config that a run began with, if the run can continue on this machine.

    Its hyperparameters are its own: the rows and defaults that they came from may have changed.
    """
    try:
        config = RunConfig.from_record(record)
    except KeyError as error:
        raise config_error(record.folder, error) from None
    choose_device(config.device)  # which this machine may lack
    choose_replay_device(config.replay_device, config.device)
    choose_engine(config.engine, config.device, config.steps)
    return config

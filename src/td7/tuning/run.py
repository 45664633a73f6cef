"""`td7.tune`: a search over hyperparameters."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from td7.algorithms import algorithm
from td7.configs import parse_number
from td7.errors import InputError, Option, Stopped
from td7.files import FolderLock, make_folder
from td7.modules import stop_script_import
from td7.option_types import TuneKeywords
from td7.options import document_options, options_from, with_hyperparameters
from td7.processes import available_cores
from td7.rollouts.registration import describe
from td7.runs.members import Members
from td7.studies.run import cluster_resources
from td7.training.config import RunConfig
from td7.training.hardware import PROCESSES_PER_CORE, check_memory, choose_device
from td7.training.resolve import read_dataset, run_config
from td7.tuning.folder import SearchRecord, check_continues
from td7.tuning.options import TuneOptions
from td7.tuning.page import write_search
from td7.tuning.plan import Plan
from td7.tuning.progress import progress_maker
from td7.tuning.ray_waves import RayWaves
from td7.tuning.result import Search
from td7.tuning.rungs import rungs
from td7.tuning.search import Backend, SearchRun
from td7.tuning.space import Space, search_space
from td7.tuning.trials import Trials, optuna
from td7.tuning.waves import LocalWaves

GPU_MEMBERS = 32  # that a wave has on a GPU: more hardly make more updates per second


def tune(algorithm: str = "", **options: Unpack[TuneKeywords]) -> Search:
    """Search for good hyperparameters: trials train side by side, and most of them end early.

    `search` names what to search: `{"learning_rate": "1e-4..1e-3:log", "discount": [0.97, 0.99]}`,
    in addition to the usual ranges of the algorithm. The result has the best trial as `best`, and
    all trials as a DataFrame, `trials`. Call it again to continue a search that was stopped.

    The options are those of `td7 tune`, and hyperparameters, such as `batch_size=128`, that all
    trials have. `set` takes these as well, as a dictionary.
    """
    stop_script_import()
    return run_search(make_plan(tune_options({"algorithm": algorithm, **options})))


document_options(tune, TuneOptions, Search)


def tune_options(values: Mapping[str, Any]) -> TuneOptions:
    """Options from Python values, hyperparameters among them, or from words."""
    chosen = algorithm(str(values.get("algorithm") or "td7"))
    values = with_hyperparameters(TuneOptions, values, chosen.config.__dataclass_fields__)
    return options_from(TuneOptions, values)


def make_plan(options: TuneOptions) -> Plan:
    """What a search will do; every mistake shows here, before anything is written."""
    optuna()
    _check_evaluations(options)
    on_ray = options.backend == "ray"
    run_options = options.run_options
    if on_ray and options.device != "cpu":  # a node may have the GPU that this machine lacks
        engine = "auto" if options.engine == "graph" else options.engine
        run_options = replace(run_options, device="cpu", engine=engine)
    dataset = read_dataset(options.dataset, run_options.task) if options.dataset else None
    config = run_config(run_options, dataset)
    chosen = algorithm(config.algorithm)
    space = search_space(
        chosen,
        config.hyperparameters,
        options.search,
        options.set,
        with_defaults=not options.search_only,
        is_offline=dataset is not None,
    )
    usual = {name: getattr(config.hyperparameters, name) for name in space}
    ends = [options.steps]
    random_steps = _random_steps(options, config, space)
    if options.pruner != "none":
        every, reduction = options.evaluate_every, options.reduction
        ends = rungs(options.steps, random_steps, every, reduction, options.trials)
    device = options.device.replace("auto", "cpu") if on_ray else choose_device(options.device)
    size = _wave_size(options, device)
    if not on_ray:
        seeds = tuple(options.seeds) * size
        members = Members(seeds, numbers=tuple(range(len(seeds))))
        check_memory(run_config(run_options, dataset, members), describe(config.task))
    return Plan(
        options=options,
        space=space,
        rungs=ends,
        size=size,
        device=device,
        algorithm=config.algorithm,
        place=dataset.name if dataset else config.task.title,
        usual=usual if all(usual[name] in space[name] for name in space) else {},
    )


def _random_steps(options: TuneOptions, config: RunConfig, space: Space) -> int:
    """The time steps before the last trial trains; raise if it never does."""
    if config.dataset is not None:
        return 0
    random_steps = config.random_steps
    if (dimension := space.get("random_steps")) is not None:
        random_steps = int(max(dimension.choices or (dimension.high,)))
    if options.steps <= random_steps:
        raise InputError(
            f"nothing is trained: all {options.steps:,} steps are random, as "
            f"random_steps={random_steps:,}; give more {Option('steps')}"
        )
    return random_steps


def _wave_size(options: TuneOptions, device: str) -> int:
    """Trials per wave."""
    if options.wave != "auto":
        size = parse_number(Option("wave"), options.wave, int, otherwise="auto", at_least=1)
    else:
        members = GPU_MEMBERS if device == "cuda" else PROCESSES_PER_CORE * len(available_cores())
        size = max(1, members // len(options.seeds))
    return min(size, options.trials)


def _check_evaluations(options: TuneOptions) -> None:
    if options.steps < options.evaluate_every:
        raise InputError(
            f"{Option('steps')} {options.steps:,} must be at least {Option('evaluate_every')} "
            f"{options.evaluate_every:,}: trials are scored by evaluations"
        )


def run_search(plan: Plan) -> Search:
    """Carry out a search, or continue the one in its folder."""
    folder = plan.folder
    record = SearchRecord.read(folder)
    if record is None:
        if folder.exists() and any(path.name != ".lock" for path in folder.iterdir()):
            raise InputError(f"{folder} is not empty; give {Option('out')} a new folder")
        texts = {name: dimension.text for name, dimension in plan.space.items()}
        record = SearchRecord(plan.options, texts, list(plan.rungs), [])
    else:
        check_continues(folder, record, plan.options)
        plan = replace(plan, rungs=record.rungs)
        record.options = replace(plan.options, wave=record.options.wave)
    make_folder(folder)
    with closing(FolderLock(folder)):
        record.write(folder)
        trials = Trials(folder, plan.options, plan.space)
        search = SearchRun(plan, record, trials, folder.absolute())
        try:
            with closing(_backend(plan, trials)) as backend:
                search.run(backend, lambda _: write(folder))
        except Stopped as stop:
            raise Stopped(stop.signum, folder) from stop
        write(folder)
    return Search(folder)


def _backend(plan: Plan, trials: Trials) -> Backend:
    options = plan.options
    if options.backend == "ray":
        resources = cluster_resources(options, plan.device)
        return RayWaves(options.address, resources, plan.folder, options.at_once)
    return LocalWaves(progress_maker(trials, quiet=options.quiet))


def write(folder: Path) -> None:
    """Write what a search has found so far, as a page and a table."""
    write_search(Search(folder))

"""`td7.study`: all runs of a study, such as one of the paper's tables."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from td7.configs import parse_number
from td7.errors import InputError, Option, say
from td7.modules import stop_script_import
from td7.option_types import StudyKeywords
from td7.options import StudyOptions, document_options, options_from, with_hyperparameters
from td7.rollouts.registration import describe
from td7.runs.loggers.selection import Loggers
from td7.studies.folder import PlannedRun, RunState, StudyRequest, run_state, write_request
from td7.studies.local import launch
from td7.studies.plan import (
    StudyStatus,
    missing_datasets,
    plan_runs,
    settings_left_out,
    usual_rates,
)
from td7.studies.progress import StudyProgress
from td7.studies.ray_cluster import Resources, launch_on_ray
from td7.studies.rows import BUILT_IN, Study
from td7.studies.rows import study as named
from td7.training.hardware import choose_device
from td7.training.resolve import algorithm_of, run_config
from td7.types import Task

RETRIES = 3  # of a run whose node is lost


@dataclass(frozen=True)
class Plan:
    """Every run of a study and how far it is. Planning writes nothing."""

    options: StudyOptions
    request: StudyRequest
    device: str  # on a cluster it may be auto: what a node has
    resources: Resources
    states: Mapping[PlannedRun, RunState]

    @property
    def status(self) -> StudyStatus:
        done = [run for run, state in self.states.items() if state is RunState.DONE]
        return StudyStatus(list(self.states), done)

    @property
    def usual_rates(self) -> dict[str, float]:
        return usual_rates(self.device.replace("auto", "cpu"))

    @property
    def seconds_left(self) -> float | None:
        """Return the estimated time for the runs that are not done; None if it is unknown."""
        return self.status.seconds_left(self.usual_rates, self.options.at_once)

    @property
    def notes(self) -> list[str]:
        """Return a line per hyperparameter that does not apply to some rows."""
        return settings_left_out(self.request)

    @property
    def missing_datasets(self) -> list[str]:
        """Return a line for each dataset that a run needs and that does not exist."""
        return missing_datasets(
            run for run, state in self.states.items() if state is not RunState.DONE
        )


def study(name: str, **options: Unpack[StudyKeywords]) -> StudyStatus:
    """Make all runs of one of the paper's tables, or of a study of yours, one per row and task.

    A study of yours is MODULE:NAME, which imports the module that registers it. Call `td7.study`
    again to continue: finished runs are kept and interrupted ones are resumed. The result lists the
    runs that are `done` and the errors of those that `failed`. After a signal it raises
    `td7.Stopped`.

    The options are those of `td7 study`, and hyperparameters, such as `batch_size=128`, for each
    row whose algorithm has one by that name. `set` takes them as well, as a dictionary.
    """
    stop_script_import()
    plan = make_plan(study_options({"name": name, **options}))
    for note in () if plan.options.quiet else plan.notes:
        say(f"note: {note}")
    return run_study(plan)


document_options(study, StudyOptions, StudyStatus)


def study_options(values: Mapping[str, Any]) -> StudyOptions:
    """Return options from Python values, hyperparameters among them, or from words."""
    chosen = named(str(values["name"]))
    if chosen.name not in BUILT_IN and ":" not in chosen.name:
        raise InputError(
            f"study {chosen.name!r}: name it as MODULE:{chosen.name}, so that the process of each "
            "run can import it"
        )
    values = with_hyperparameters(StudyOptions, values, _hyperparameters(chosen))
    options = options_from(StudyOptions, values)
    return replace(options, name=chosen.name, rows=[chosen.label(row) for row in options.rows])


def _hyperparameters(chosen: Study) -> dict[str, None]:
    """Return the names of the hyperparameters of all its algorithms; raise for a faulty row."""
    configs = dict.fromkeys(algorithm_of(chosen, row).config for row in chosen.rows.values())
    return {name: None for config in configs for name in config.__dataclass_fields__}


def make_plan(options: StudyOptions) -> Plan:
    """Return what there is to run, all of it checked, so that no mistake shows after an hour."""
    on_ray = options.backend == "ray"
    device = options.device if on_ray else choose_device(options.device)  # a node has its own
    run_options = replace(options.run_options, device=device)
    loggers = Loggers.of(run_options).checked()
    chosen = named(options.name)
    request = StudyRequest(
        options.name,
        options.rows or tuple(chosen.rows),
        options.env or chosen.datasets or chosen.tasks,
        options.steps or chosen.steps,
        replace(run_options, wandb=loggers.wandb, mlflow=loggers.mlflow),
        options.seeds_each,
    )
    runs = plan_runs(request, options.folder, Path(options.datasets))
    online = [run for run in runs if run.options.env]
    for task in dict.fromkeys(run.task for run in online):
        describe(Task(task, options.env_kwargs, tuple(options.wrapper)))
    here: dict[str, Any] = {}
    if on_ray and device != "cpu":  # a node may have the GPU that this machine lacks
        here = {"device": "cpu", "engine": "auto" if options.engine == "graph" else options.engine}
    for run in online:
        run_config(replace(run.options, **here))
    states = {run: run_state(run) for run in runs}
    return Plan(options, request, device, _resources(options, device), states)


def _resources(options: StudyOptions, device: str) -> Resources:
    """Return what a run takes of a cluster's node."""
    usual = 1.0 if device == "cuda" else 0.0
    gpus = (
        usual
        if options.gpus == "auto"
        else parse_number(Option("gpus"), options.gpus, float, otherwise="auto", at_least=0)
    )
    return Resources(options.cpus, gpus, RETRIES)


def run_study(plan: Plan) -> StudyStatus:
    """Make the runs that are not done; a run that fails does not stop the others."""
    if missing := plan.missing_datasets:
        more = f" ({len(missing) - 1} more are missing)" if len(missing) > 1 else ""
        raise InputError(f"{missing[0]}{more}")
    options, runs = plan.options, list(plan.states)
    write_request(plan.request, options.folder)
    with closing(StudyProgress(plan.usual_rates, options.at_once)) as progress:
        show = (lambda _: None) if options.quiet else progress.show
        if options.backend == "ray":
            return launch_on_ray(runs, options.folder, options.address, plan.resources, show)
        return launch(runs, options.folder, options.at_once, show)

"""`td7.study`: all runs of one of the paper's tables. The command line is this, in words."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td7.configs import as_words, parse_number, parse_settings
from td7.errors import InputError
from td7.options import StudyOptions, document_options, options_from, parse_env_kwargs, parse_seeds
from td7.processes import stop_script_import
from td7.rollouts.registration import describe
from td7.studies import folder as folder_module
from td7.studies import plan as plan_module
from td7.studies.folder import PlannedRun, RunState, StudyRequest, fraction, write_request
from td7.studies.local import launch
from td7.studies.plan import StudyStatus, measured_rates, missing_data, seconds_left, usual_rates
from td7.studies.progress import StudyProgress
from td7.studies.ray_cluster import Share, launch_on_ray
from td7.training.hardware import choose_device
from td7.training.resolve import run_config, train_options
from td7.types import Task

TRIES = 3  # after the first, where nodes are lost


@dataclass(frozen=True)
class Plan:
    """Every run of a study, and where it stands. Nothing is written yet."""

    options: StudyOptions
    request: StudyRequest
    device: str  # auto: whatever a node has
    share: Share
    states: Mapping[PlannedRun, RunState]

    @property
    def done(self) -> list[PlannedRun]:
        return [run for run, state in self.states.items() if state is RunState.DONE]

    @property
    def rates(self) -> dict[str, float]:
        """Seed-steps a second of each algorithm: by the runs that are done, or as elsewhere."""
        usual = usual_rates(self.device.replace("auto", "cpu"))
        return {**usual, **measured_rates(self.done, self.options.at_once)}

    @property
    def seconds(self) -> float | None:
        """What is left takes about so long; None: nobody knows."""
        left = [run for run, state in self.states.items() if state is not RunState.DONE]
        return seconds_left({run: 1 - fraction(run) for run in left}, self.rates)

    @property
    def missing(self) -> list[str]:
        """A line for each dataset that is yet to be got."""
        return missing_data(run for run, state in self.states.items() if state is not RunState.DONE)


def study(name: str, **options: Any) -> StudyStatus:
    """Makes all runs of one of the paper's tables, one row on one task each; given again, goes on.

    The options are those of `td7 study`: see `StudyOptions`. What comes back says which runs are
    `done`, and of those that `failed` why. `td7.Stopped` is raised after a signal.
    """
    stop_script_import()
    return run_study(make_plan(study_options({"name": name, **options})))


document_options(study, StudyOptions, StudyStatus)


def study_options(values: Mapping[str, Any]) -> StudyOptions:
    """Options from Python values or from words."""
    return options_from(StudyOptions, values)


def make_plan(options: StudyOptions) -> Plan:
    """What there is to do, all of it checked: mistakes show before an hour is gone."""
    on_ray = options.backend == "ray"
    device = options.device if on_ray else choose_device(options.device)  # a node has its own
    tasks = options.tasks.split(",") if isinstance(options.tasks, str) else options.tasks
    kwargs = parse_env_kwargs(options.env_kwargs)
    request = StudyRequest(
        options.name,
        tuple(as_words("--rows", options.rows)),
        tuple(task for task in tasks if task),
        options.steps,
        {
            "seeds": parse_seeds(options.seeds),
            "evaluate_every": options.evaluate_every,
            "evaluation_episodes": options.evaluation_episodes,
            "metrics_every": options.metrics_every,
            "keep_policies": options.keep_policies,
            "snapshot_every": options.snapshot_every,
            **({"env_kwargs": kwargs} if kwargs else {}),
            "device": device,
            "engine": options.engine,
            "workers": options.workers,
            "set": dict(
                options.set if isinstance(options.set, Mapping) else parse_settings(options.set)
            ),
        },
        options.seeds_each,
    )
    runs = plan_module.plan(request, options.folder, Path(options.datasets))
    for task in dict.fromkeys(run.where for run in runs if "env" in run.options):
        describe(Task(task, kwargs))
    elsewhere = {}  # a node may have the GPU that is not here
    if on_ray and device != "cpu":
        engine = "auto" if options.engine == "graph" else options.engine
        elsewhere = {"device": "cpu", "engine": engine}
    for run in runs:
        if "env" in run.options:
            run_config(train_options({**run.options, **elsewhere}))
    states = {run: folder_module.state(run) for run in runs}
    return Plan(options, request, device, _share(options, device), states)


def _share(options: StudyOptions, device: str) -> Share:
    """What a run takes of a cluster's node."""
    usual = 1.0 if device == "cuda" else 0.0
    gpus = (
        usual if options.gpus == "auto" else parse_number("gpus", options.gpus, float, at_least=0)
    )
    return Share(options.cpus, gpus, TRIES)


def run_study(plan: Plan) -> StudyStatus:
    """Makes the runs that are not done; what fails is noted, the others go on."""
    if plan.missing:
        first, *others = plan.missing
        raise InputError(first + (f" ({len(others)} more are missing)" if others else ""))
    options, runs = plan.options, list(plan.states)
    write_request(plan.request, options.folder)
    with closing(StudyProgress(plan.rates, options.at_once)) as progress:
        show = (lambda _: None) if options.quiet else progress.show
        if options.backend == "ray":
            return launch_on_ray(runs, options.folder, options.address, plan.share, show)
        return launch(runs, options.folder, options.at_once, show)

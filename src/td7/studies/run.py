"""`td7.study`: all runs of one of the paper's tables. The command line is this, in words."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from td7.api import (
    MOST_STEPS,
    environment_kwargs,
    options_from,
    parse_seeds,
    run_config,
    tell_options,
    train_options,
)
from td7.configs import check, hyper, named, number, words_of
from td7.errors import InputError, one_of
from td7.processes import end_script
from td7.rollouts.environment import describe
from td7.studies import plan as planning
from td7.studies.local import Standing, launch
from td7.studies.plan import Planned, Request, State
from td7.studies.ray_cluster import Share, launch_on_ray
from td7.training.hardware import DEVICES, choose_device
from td7.training.progress import StudyProgress
from td7.types import Task

BACKENDS = ("local", "ray")
TRIES = 3  # after the first, where nodes are lost


@dataclass(frozen=True)
class StudyOptions:
    """Every option of `td7 study` and every argument of `td7.study`."""

    name: str = hyper("", "which study; `td7 list studies`", group="What")
    rows: Any = hyper((), "some rows, by label; `td7 list studies NAME`", group="What")
    tasks: Any = hyper(
        "", "as A,B: tasks, or offline datasets and paths of datasets (the paper's)", group="What"
    )
    env_kwargs: Any = hyper(
        (), "what every task is made with, e.g. max_episode_steps=200", group="What"
    )
    seeds: Any = hyper("0-9", "of every run, stacked", group="What")
    steps: int = hyper(
        0,
        "of every run; offline, updates; 0: the paper's",
        group="What",
        at_least=0,
        at_most=MOST_STEPS,
    )
    set: Any = hyper((), "hyperparameters of every row whose algorithm has them", group="What")
    datasets: str = hyper(
        "datasets", "folder with D4RL's files, for the study offline", group="What"
    )
    evaluate_every: int = hyper(
        5_000, "steps (or updates) between evaluations", group="Evaluation", at_least=1
    )
    evaluation_episodes: int = hyper(10, "episodes an evaluation", group="Evaluation", at_least=1)
    metrics_every: int = hyper(
        1_000, "updates between rows of metrics.csv", group="Output", at_least=1
    )
    keep_policies: int = hyper(
        0, "steps (or updates) between evaluated policies that are kept", group="Output", at_least=0
    )
    snapshot_every: float = hyper(
        5.0, "minutes between a run's snapshots; 0: only when stopped", group="Output", at_least=0
    )
    out: str = hyper("", "folder of the study's runs (studies/NAME)", group="Output")
    quiet: bool = hyper(False, "say nothing but what came of it", group="Output")
    device: str = hyper("auto", "auto, cpu or cuda", group="Hardware")
    engine: str = hyper("auto", "how updates run", group="Hardware")
    workers: str = hyper("auto", "processes that play episodes, a run", group="Hardware")
    at_once: int = hyper(1, "runs at the same time on this machine", group="Hardware", at_least=1)
    seeds_each: int = hyper(
        0,
        "seeds of a run; 0: all. On a CPU runs of some beside each other are faster",
        group="Hardware",
        at_least=0,
    )
    backend: str = hyper("local", "where runs are: local, or ray for a cluster", group="Hardware")
    address: str = hyper(
        "", "of the Ray cluster, e.g. auto (one of this machine alone)", group="Ray"
    )
    cpus: float = hyper(1.0, "of the cluster's cores, a run", group="Ray", at_least=0)
    gpus: str = hyper(
        "auto", "of its GPUs, a run; 0.5: two runs share one (auto: 1 with cuda)", group="Ray"
    )

    def __post_init__(self) -> None:
        check(self)
        one_of("device", self.device, DEVICES)
        if one_of("backend", self.backend, BACKENDS) == "ray":
            return
        for f in fields(self):
            if f.metadata["group"] == "Ray" and getattr(self, f.name) != f.default:
                raise InputError(f"--{f.name} is of no use without --backend ray")

    @property
    def folder(self) -> Path:
        return Path(self.out or f"studies/{self.name}")

    def share(self, device: str) -> Share:
        """What a run takes of a cluster's node."""
        usual = 1.0 if device == "cuda" else 0.0
        gpus = usual if self.gpus == "auto" else number("gpus", self.gpus, float, at_least=0)
        return Share(self.cpus, gpus, TRIES)


@dataclass(frozen=True)
class Plan:
    """Every run of a study, and where it stands. Nothing is written yet."""

    options: StudyOptions
    request: Request
    device: str  # auto: whatever a node has
    share: Share
    states: Mapping[Planned, State]

    @property
    def done(self) -> list[Planned]:
        return [run for run, state in self.states.items() if state is State.DONE]

    @property
    def rates(self) -> dict[str, float]:
        """Seed-steps a second of each algorithm: by the runs that are done, or as elsewhere."""
        usual = planning.usual_rates(self.device.replace("auto", "cpu"))
        return {**usual, **planning.measured_rates(self.done, self.options.at_once)}

    @property
    def seconds(self) -> float | None:
        """What is left takes about so long; None: nobody knows."""
        left = [run for run, state in self.states.items() if state is not State.DONE]
        return planning.seconds_left({run: 1 - planning.fraction(run) for run in left}, self.rates)

    @property
    def missing(self) -> list[str]:
        """A line for each dataset that is yet to be got."""
        return planning.missing_data(
            run for run, state in self.states.items() if state is not State.DONE
        )


def study(name: str, **options: Any) -> Standing:
    """Makes all runs of one of the paper's tables, one row on one task each; given again, goes on.

    The options are those of `td7 study`: see `StudyOptions`. What comes back says which runs are
    `done`, and of those that `failed` why. `td7.Stopped` is raised after a signal.
    """
    end_script()
    return carry_out(planned(study_options({"name": name, **options})))


tell_options(study, StudyOptions, Standing)


def study_options(values: Mapping[str, Any]) -> StudyOptions:
    """Options from Python values or from words."""
    return options_from(StudyOptions, values)


def planned(options: StudyOptions) -> Plan:
    """What there is to do, all of it checked: mistakes show before an hour is gone."""
    on_ray = options.backend == "ray"
    device = options.device if on_ray else choose_device(options.device)  # a node has its own
    tasks = options.tasks.split(",") if isinstance(options.tasks, str) else options.tasks
    kwargs = environment_kwargs(options.env_kwargs)
    request = Request(
        options.name,
        tuple(words_of("--rows", options.rows)),
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
            "set": dict(options.set if isinstance(options.set, Mapping) else named(options.set)),
        },
        options.seeds_each,
    )
    runs = planning.plan(request, options.folder, Path(options.datasets))
    for task in dict.fromkeys(run.where for run in runs if "env" in run.options):
        describe(Task(task, kwargs))
    elsewhere = {}  # a node may have the GPU that is not here
    if on_ray and device != "cpu":
        engine = "auto" if options.engine == "graph" else options.engine
        elsewhere = {"device": "cpu", "engine": engine}
    for run in runs:
        if "env" in run.options:
            run_config(train_options({**run.options, **elsewhere}))
    states = {run: planning.state(run) for run in runs}
    return Plan(options, request, device, options.share(device), states)


def carry_out(plan: Plan) -> Standing:
    """Makes the runs that are not done; what fails is noted, the others go on."""
    if plan.missing:
        first, *others = plan.missing
        raise InputError(first + (f" ({len(others)} more are missing)" if others else ""))
    options, runs = plan.options, list(plan.states)
    planning.write_request(plan.request, options.folder)
    with closing(StudyProgress(plan.rates, options.at_once)) as progress:
        show = (lambda _: None) if options.quiet else progress.show
        if options.backend == "ray":
            return launch_on_ray(runs, options.folder, options.address, plan.share, show)
        return launch(runs, options.folder, options.at_once, show)

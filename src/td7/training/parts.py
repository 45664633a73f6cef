"""What a loop is built from."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from td7.algorithms import algorithm
from td7.algorithms.config import stacked
from td7.algorithms.learner import Learner
from td7.algorithms.normalisation import NormalisedLearner
from td7.datasets.dataset import Dataset
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.files import FolderLock
from td7.rollouts.pool import Executor, make_executor
from td7.runs.folder import RunFolder
from td7.runs.listeners import Listener
from td7.runs.loggers.selection import Loggers
from td7.runs.snapshots import Snapshots
from td7.training.config import RunConfig
from td7.training.member import Member, Origin
from td7.training.progress import Progress
from td7.training.timing import Clock
from td7.training.warm_start import WarmStart
from td7.types import AnyFloat, Probe, RowLayout, TaskSpec


@dataclass(frozen=True)
class RunSetup:
    """A run and the way it is carried out. Only `config` decides the result."""

    config: RunConfig
    spec: TaskSpec
    path: Path  # the run folder, absolute, as a task may change the working folder
    progress: Progress
    dataset: Dataset | None = None  # None: the run collects its own data
    start: WarmStart | None = None  # None: with new networks, or from a snapshot
    origins: Sequence[Origin] = ()  # of other runs, that its members continue; empty: they begin
    workers: int = 0  # processes that play episodes; 0: the learner's own process does
    snapshot_every: float = 0.0  # minutes; 0: only when stopped and at the end
    step_timeout: float = 0.0  # seconds that a step in a worker may take; 0: for ever
    loggers: Loggers = Loggers()
    on_probe: Callable[[Probe], None] = lambda _: None  # receives those of evaluations
    listener: Listener | None = None
    can_interrupt: bool = True  # a second signal ends the run without a snapshot
    lock: FolderLock | None = None  # of the run folder, if it is locked already
    given: Path | None = None  # the run folder as the user gave it, for messages
    is_announced: bool = False  # the user knows what the run does, which is part of a search


@dataclass
class RunParts:
    """What a loop in one process works with."""

    clock: Clock
    folder: RunFolder
    snapshots: Snapshots
    learner: Learner
    replay: Replay
    engine: Engine
    executor: Executor
    members: list[Member]
    checkpoints: list[AnyFloat]  # each member's flat policy weights
    resources: ExitStack  # closes the folder, the executor and what a loop adds


def build_parts(setup: RunSetup, *, workers: int) -> RunParts:
    """Build the parts of a run at its first step; `workers` processes play its episodes."""
    config, progress = setup.config, setup.progress
    clock = Clock()
    with clock.phase("setup"), ExitStack() as resources:
        folder = RunFolder(setup.path, config.members, scored=config.is_scored, lock=setup.lock)
        resources.callback(folder.close)
        learner, replay = _learner_and_replay(setup)
        engine = Engine(
            learner,
            replay,
            config.hyperparameters.batch_size,
            config.seeds,
            config.engine,
            warn=progress.warn,
            say=progress.say,
            tf32=config.tf32,
            names=[config.members.name(id) for id in config.members.ids],
        )
        folder.add_metrics(engine.metrics)
        executor = make_executor(
            config.task,
            learner.policy_network,
            workers,
            progress.warn,
            step_timeout=setup.step_timeout,
        )
        resources.callback(executor.close)
        return RunParts(
            clock=clock,
            folder=folder,
            snapshots=Snapshots(setup.path / "snapshot", progress.warn),
            learner=learner,
            replay=replay,
            engine=engine,
            executor=executor,
            members=[Member(id) for id in config.members.ids],
            checkpoints=_first_checkpoints(setup, learner),
            resources=resources.pop_all(),
        )


def build_learner(
    config: RunConfig, spec: TaskSpec, device: torch.device, dtype: torch.dtype
) -> Learner:
    """The learner of all members, and of the padding, which begins like the first member."""
    build = algorithm(config.algorithm).learner
    members = config.members
    members = members.take([*range(len(members)), *[0] * config.padding])
    hyperparameters = stacked(config.hyperparameters, members.varied, device)
    learner = build(hyperparameters, spec, members.seeds, device, dtype)
    return NormalisedLearner(learner, spec.state_dim) if config.normalise_observations else learner


def _learner_and_replay(setup: RunSetup) -> tuple[Learner, Replay]:
    """Build both on the run's device; a replay of a dataset is full from the start."""
    config, spec, dataset = setup.config, setup.spec, setup.dataset
    device, dtype = torch.device(config.device), getattr(torch, config.precision)
    learner = build_learner(config, spec, device, dtype)
    if setup.start is not None:  # before the dataset's statistics are taken
        setup.start.fill(learner, config.seeds)
    replay = Replay(
        RowLayout(spec.state_dim, spec.action_dim),
        config.replay_rows,
        len(config.seeds) + config.padding,
        device,
        dtype,
        rows_on_host=config.replay_device != config.device,
        shared=dataset is not None,
    )
    if dataset is not None:
        replay.fill(learner.prepare_rows(dataset.rows, dataset.layout))
    return learner, replay


def _first_checkpoints(setup: RunSetup, learner: Learner) -> list[AnyFloat]:
    """The initial policies, or the last ones of the run that this one starts from."""
    if setup.start is not None:
        return setup.start.checkpoints(learner, setup.config.seeds)
    policies = learner.policies()[: len(setup.config.seeds)]
    return list(policies.to("cpu", copy=True).numpy())

"""Start a new run, continue one that was stopped, and run it to its end."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any

import torch

from td7.algorithms import algorithm
from td7.configs import build_config, parse
from td7.errors import InputError, Option, RunError, assigned, say
from td7.files import working_folder_kept
from td7.options import TrainOptions
from td7.rollouts.fingerprint import take
from td7.rollouts.registration import described
from td7.runs.fingerprint import ProbeCheck, change_warning, folders_named
from td7.runs.folder import (
    check_new,
    create_folder,
    keep_details,
    record_probe,
    write_config,
)
from td7.runs.listeners import Listener, ListenerFault
from td7.runs.loggers.selection import Loggers
from td7.runs.members import Members
from td7.runs.record import (
    RunRecord,
    check_tables,
    command_line,
    commit,
    finished_steps,
    versions,
)
from td7.runs.single_policy import check_not_exported
from td7.runs.snapshots import (
    check_processes,
    has_snapshot,
    lacks_snapshot,
    process_folders,
)
from td7.runs.trust import check_names, is_signed
from td7.training.announce import announce
from td7.training.config import RunConfig, check_same
from td7.training.faults import run_error
from td7.training.hardware import (
    check_learner,
    check_memory,
    choose_threads,
    choose_workers,
    hardware,
)
from td7.training.loops import loop_for
from td7.training.member import Origin
from td7.training.parts import RunSetup
from td7.training.progress import Progress, make_progress
from td7.training.resolve import (
    dataset_record,
    read_dataset,
    recorded_config,
    run_config,
    settings_of,
    train_options,
)
from td7.training.warm_start import read_again, read_start
from td7.types import Fingerprint, TaskSpec

MAY_CHANGE = ("steps", "dataset")  # of config.json on resume: a run is extended, its data are moved
UNPADDED = ("eager",)  # engines that compile nothing, so that shapes may change
# Kept unless they are given again.
RESUMED_OPTIONS = ("workers", "snapshot_every", "step_timeout", "tensorboard", "wandb", "mlflow")


@dataclass(frozen=True)
class ResumeOptions:
    """What a user may give on resume; None is as before."""

    steps: int | None = None
    dataset: str | None = None  # where the data are now
    set: Any = ()  # hyperparameters, which must be those of the run
    workers: int | str | None = None
    snapshot_every: float | None = None
    step_timeout: float | None = None
    quiet: bool = False
    trust: bool = False  # the user's word for what the folder names


@dataclass(frozen=True)
class Stack:
    """The members of a run of a search, which options cannot state."""

    members: Members
    padding: int = 0
    origins: Sequence[Origin] = ()  # that the members continue, if they do


def start(
    options: TrainOptions,
    progress: Progress | None = None,
    listener: Listener | None = None,
    stack: Stack | None = None,
) -> Path:
    """Train a new run and return its folder. Everything is checked before anything is written."""
    _check_listener(listener)
    if options.out:
        check_new(Path(options.out))
    dataset = read_dataset(options.dataset, options.task) if options.dataset else None
    config = run_config(options, dataset, stack.members if stack is not None else None)
    workers = choose_workers(options.workers, config.device, len(config.seeds))
    spec, fingerprint = _examine(config)
    config = replace(config, task=spec.task)
    if stack is not None and config.processes == 1 and config.engine not in UNPADDED:
        config = replace(config, padding=stack.padding)
    if options.processes == "auto":
        config = _fit_to_memory(config, spec, options)
    check_memory(config, spec)
    learner, begin = check_learner(config, spec), None
    if options.start_from:
        begin = read_start(Path(options.start_from), config, spec, learner, say)
        config = replace(config, start_from=begin.record)
    loggers = Loggers.of(options).checked()
    kind = config.variant or config.algorithm
    what = dataset.name if dataset else config.task.title
    given = Path(options.out) if options.out else _default_folder(kind, what)
    path = given.absolute()  # a task may change the working folder
    record = _config_json(config, options, fingerprint, loggers)
    with _named_as(given, path), closing(create_folder(path, record)) as lock:
        setup = RunSetup(
            config=config,
            spec=spec,
            path=path,
            progress=progress or make_progress(quiet=options.quiet),
            dataset=dataset,
            start=begin,
            origins=stack.origins if stack is not None else (),
            is_announced=stack is not None,
            workers=workers,
            snapshot_every=options.snapshot_every,
            step_timeout=options.step_timeout,
            loggers=loggers,
            on_probe=partial(record_probe, path, record),
            listener=listener,
            lock=lock,
            given=given,
        )
        run_to_end(setup, record)
    return path


def continue_run(
    path: Path,
    changes: ResumeOptions,
    listener: Listener | None = None,
    progress: Progress | None = None,
) -> Path:
    """Continue a run from its last snapshot; refuse what does not fit it before any change."""
    _check_listener(listener)
    record = RunRecord.read(path)
    check_not_exported(record)
    with folders_named(record.fingerprint):
        return _continue(record, changes, listener, progress)


def _continue(
    record: RunRecord,
    changes: ResumeOptions,
    listener: Listener | None,
    progress: Progress | None,
) -> Path:
    path, folder = record.folder, record.folder.absolute()  # a task may change the working folder
    is_vouched = check_names(record, record.task, algorithm=record.algorithm, trust=changes.trust)
    config = recorded_config(record)
    if changes.dataset and not config.dataset:
        raise InputError(f"{path} collects its own data: {Option('dataset')} has no effect")
    options = _resumed_options(record.data, changes)
    loggers = Loggers.of(options)
    if loggers.has_service and not is_vouched:
        raise InputError(
            f"{path} is not signed with your key and is logged to a service: add --trust if you "
            "trust its author"
        )
    dataset = None
    if config.dataset:
        source = changes.dataset or config.dataset.source
        if not (changes.dataset or is_vouched):
            raise InputError(
                f"{path} is not signed with your key and reads a dataset: add "
                f"{assigned(Option('dataset'), source)} if you trust it"
            )
        dataset = read_dataset(source, config.task)
        now = dataset_record(dataset)
        if now.sha256 != config.dataset.sha256:
            raise InputError(f"{source} does not hold the data that {path} began with")
        config = replace(config, dataset=now)
    workers = choose_workers(options.workers, config.device, len(config.seeds))
    _check_settings(config, changes.set)
    if changes.steps is not None:
        steps = parse(Option("steps"), changes.steps, int)
        check_same({"steps": steps}, {"steps": config.steps})
        config = replace(config, steps=steps)
    if _is_finished_for_good(path, config):
        return folder
    check_processes(path, config.processes)
    for each in {path, *process_folders(path)}:
        check_tables(each)
    spec, fingerprint = _examine(config)
    check_memory(config, spec)
    begin = None
    if config.start_from is not None and lacks_snapshot(path, config.processes):
        learner = check_learner(config, spec)
        begin = read_again(record, config, spec, learner, say, is_vouched=is_vouched)
    progress = progress or make_progress(quiet=options.quiet)
    setup = RunSetup(
        config=config,
        spec=spec,
        path=folder,
        progress=progress,
        dataset=dataset,
        start=begin,
        workers=workers,
        snapshot_every=options.snapshot_every,
        step_timeout=options.step_timeout,
        loggers=loggers.usable(progress.warn),
        on_probe=ProbeCheck(record.fingerprint, progress.warn),
        listener=listener,
        given=path,
    )
    warning = change_warning(record.fingerprint, fingerprint)
    with _named_as(path, folder):
        run_to_end(setup, record.data, resumed=True, signed=is_vouched, warning=warning)
    return folder


def run_to_end(
    setup: RunSetup,
    record: Mapping[str, Any],
    *,
    resumed: bool = False,
    signed: bool = True,
    warning: str = "",
) -> None:
    """Train a run to its last step; `record` holds its config.json, `signed` if it may be.

    `warning` is for a run that can continue.
    """
    config, path, progress = setup.config, setup.path, setup.progress
    with (
        ListenerErrorsAsRaised(),
        working_folder_kept(),
        closing(progress),
        _torch_settings(config.threads),
    ):
        try:
            if not (resumed or setup.is_announced):
                announce(setup)
            with ExitStack() as resources:
                with _remedied(setup):
                    loop = resources.enter_context(closing(loop_for(setup)))
                    was_saved = loop.restore()
                changes = {name: config.to_json()[name] for name in MAY_CHANGE}
                # The folder is locked from here on.
                if {**record, **changes} != record or (signed and not is_signed(path)):
                    write_config(path, {**record, **changes}, signed=signed)
                if resumed:
                    steps = loop.status().fewest_steps
                    resumption = f"resumed after {steps:,} {config.step_unit}"
                    announce(
                        setup, resumption if was_saved else "restarted because it has no snapshot"
                    )
                if warning:
                    progress.warn(warning)
                if finished_steps(path) == config.steps:
                    progress.say("the run was finished already; there is nothing left to train")
                loop.run()
        except RunError as error:
            raise keep_details(error, path) from error.__cause__


@contextmanager
def _remedied(setup: RunSetup) -> Iterator[None]:
    """What fails before training begins is reported like what fails during it."""
    try:
        yield
    except Exception as error:
        fault = run_error(error, setup.path, f"`td7 resume {setup.path}` tries again")
        # Other RunErrors, such as those of snapshots, name their own remedy, if there is one.
        if fault is None or type(error) is RunError:
            raise
        raise fault from error


@contextmanager
def _named_as(given: Path, folder: Path) -> Iterator[None]:
    """Errors name the run folder as the user gave it."""
    try:
        yield
    except (InputError, RunError) as error:
        error.args = (str(error.args[0]).replace(str(folder), str(given)), *error.args[1:])
        raise


class ListenerErrorsAsRaised:
    """A context from which exceptions of the user's listener come out without their wrapper."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, ListenerFault):
            context = error.raised.__context__
            try:
                raise error.raised
            finally:
                error.raised.__context__ = context  # `raise` has put the wrapper there


@contextmanager
def _torch_settings(threads: int) -> Iterator[None]:
    """PyTorch uses this many threads; afterwards the caller's settings are back."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)


def _examine(config: RunConfig) -> tuple[TaskSpec, Fingerprint]:
    """The run's task, and the fingerprint of its code."""
    learner = algorithm(config.algorithm).learner
    with described(config.task) as environment:
        return environment.spec, take(environment, [learner.__module__])


# -- a new run -------------------------------------------------------------------------------------


def _config_json(
    config: RunConfig, options: TrainOptions, fingerprint: Fingerprint, loggers: Loggers
) -> dict[str, Any]:
    return {
        **config.to_json(),
        "versions": versions(),
        "commit": commit(),
        "fingerprint": asdict(fingerprint),
        "hardware": hardware(config.device),
        "workers": options.workers,
        "snapshot_every": options.snapshot_every,
        "step_timeout": options.step_timeout,
        **asdict(loggers),
        **({"logging_id": token_hex(4)} if loggers.has_service else {}),
        "command": command_line(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _fit_to_memory(config: RunConfig, spec: TaskSpec, options: TrainOptions) -> RunConfig:
    """The same run, but in one process where memory is too short for several."""
    try:
        check_memory(config, spec)
    except InputError:
        threads = choose_threads(options.threads, config.hyperparameters, 1)
        return replace(config, processes=1, threads=threads)
    return config


def _default_folder(kind: str, env: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", f"{kind}-{env}")
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, i = base, 1
    while path.exists():
        i += 1
        path = base.with_name(f"{base.name}-{i}")
    return path


def _check_listener(listener: object) -> None:
    if listener is not None and not callable(listener):
        kind = type(listener).__name__
        raise InputError(
            f"listener must be a function that takes a table's name and rows, given a {kind}"
        )


# -- a resumed run ---------------------------------------------------------------------------------


def _resumed_options(record: Mapping[str, Any], changes: ResumeOptions) -> TrainOptions:
    """How the run is carried out: as before, except for the options given on resume."""
    before = {name: record[name] for name in RESUMED_OPTIONS if name in record}
    now = {name: getattr(changes, name, None) for name in RESUMED_OPTIONS}
    changed = {name: value for name, value in now.items() if value is not None}
    return train_options({**before, **changed, "quiet": changes.quiet})


def _check_settings(config: RunConfig, settings: Any) -> None:
    """Refuse hyperparameters that differ from the run's."""
    values = asdict(config.hyperparameters)
    if expected := settings_of(settings):
        changed = build_config(type(config.hyperparameters), {**values, **expected})
        check_same(asdict(changed), values)


def _is_finished_for_good(path: Path, config: RunConfig) -> bool:
    """Whether the run is finished and has no snapshots any more; refuse more steps then."""
    finished = finished_steps(path)
    if finished is None or has_snapshot(path):
        return False
    if config.steps > finished:
        raise InputError(
            f"{path} has no snapshot to continue from; it is finished, with {finished:,} "
            f"{config.step_unit}; to train for longer, start a run with another {Option('out')}"
        )
    return True

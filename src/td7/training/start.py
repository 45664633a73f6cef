"""One run from its options, or from its folder, to its end."""

import dataclasses
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.configs import build_config, parse
from td7.errors import InputError, RunError
from td7.options import TrainOptions
from td7.rollouts.registration import describe
from td7.runs.folder import create_folder, keep_details, write_config
from td7.runs.listeners import Listener, ListenerFault, check_package
from td7.runs.record import RunRecord, command_line, finished_steps, versions
from td7.runs.snapshots import has_snapshot
from td7.training.config import check_same
from td7.training.hardware import (
    check_learner,
    check_memory,
    choose_threads,
    choose_workers,
    hardware,
)
from td7.training.resolve import (
    dataset_record,
    read_dataset,
    recorded_config,
    run_config,
    settings_of,
    train_options,
)
from td7.types import RowLayout, TaskSpec

if TYPE_CHECKING:
    from td7.datasets.dataset import Dataset
    from td7.training.config import RunConfig
    from td7.training.progress import Progress


def start(
    options: TrainOptions, shown: "Progress | None" = None, listener: Listener | None = None
) -> Path:
    """A new run: everything is checked before anything is written."""
    check_listener(listener)
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
        "versions": versions(),
        "hardware": hardware(config.device),
        "workers": options.workers,
        "snapshot_every": options.snapshot_every,
        "tensorboard": options.tensorboard,
        "command": command_line(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    create_folder(path, record)
    return run_to_end(config, spec, path, record, workers, options, dataset, shown, listener)


def continue_run(
    path: Path,
    how: Mapping[str, Any],
    *,
    steps: int | None,
    dataset: str | None,
    set: Any,  # the option's name
    quiet: bool,
    listener: Listener | None,
) -> Path:
    """A run that was stopped, from its last snapshot; `how` has the options that are given."""
    check_listener(listener)
    record = RunRecord.read(path)
    config = recorded_config(record)
    if dataset and not config.dataset:
        raise InputError(f"{path} collects its own data: --dataset is of no use")
    kept = ("workers", "snapshot_every", "tensorboard")
    before = {name: record.data[name] for name in kept if name in record.data}
    given = {name: value for name, value in how.items() if value is not None}
    options = train_options({**before, **given, "quiet": quiet})
    data = None
    if config.dataset:
        source = dataset or config.dataset.source
        data = read_dataset(source, config.task)
        now = dataset_record(data)
        if now.sha256 != config.dataset.sha256:
            raise InputError(f"{source} does not hold the data that {path} began with")
        config = dataclasses.replace(config, dataset=now)
    players = choose_workers(options.workers, config.device, len(config.seeds))
    settings = settings_of(set)
    if settings:
        changed = build_config(
            type(config.hyperparameters),
            {**dataclasses.asdict(config.hyperparameters), **settings},
        )
        check_same(dataclasses.asdict(changed), dataclasses.asdict(config.hyperparameters))
    if steps is not None:
        steps = parse("steps", steps, int)
        check_same({"steps": steps}, {"steps": config.steps})
        config = dataclasses.replace(config, steps=steps)
    finished = finished_steps(path)
    if finished is not None and not has_snapshot(path):  # someone saved room
        if config.steps > finished:
            raise InputError(
                f"{path} has no snapshot to go on from; it is finished, with {finished:,} "
                f"{config.step_unit}: `td7 train` with another --out makes more"
            )
        return path
    spec = describe(config.task)
    check_memory(config, spec)
    return run_to_end(
        config, spec, path, record.data, players, options, data, listener=listener, resumed=True
    )


def _fitting(config: "RunConfig", spec: TaskSpec, options: TrainOptions) -> "RunConfig":
    """In one process, where there is no memory for several."""
    try:
        check_memory(config, spec)
    except InputError:
        threads = choose_threads(options.threads, config.hyperparameters, 1)
        return dataclasses.replace(config, processes=1, threads=threads)
    return config


def check_listener(listener: object) -> None:
    if listener is not None and not callable(listener):
        kind = type(listener).__name__
        raise InputError(
            f"listener takes a function of a table's name and its rows, given a {kind}"
        )


def run_to_end(*given: Any, **more: Any) -> Path:
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
) -> Path:
    import torch

    from td7.training.loops import loop_for
    from td7.training.multiprocess import MultiprocessTraining
    from td7.training.progress import progress

    shown = shown or progress(quiet=options.quiet)
    # What the engine sets is for this run, not for whoever calls it.
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(config.threads)
    announce = partial(_announce, config, spec, path, dataset, shown)
    try:
        if not resumed:  # before anything is taken; what is resumed may yet be refused
            announce()
        several = config.processes > 1
        training_of: Any = (
            partial(MultiprocessTraining, dataset=dataset) if several else loop_for(config, dataset)
        )
        training = training_of(
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
                write_config(path, now)
            if resumed:
                has_snapshot = training.has_snapshot
                begun = f"{training.begun:,} on"
                announce(begun if has_snapshot else "the start, as there is no snapshot")
            if finished_steps(path) == config.steps:
                shown.say("it was finished already: nothing is left to train")
            training.run()
        finally:
            training.close()
    except RunError as error:
        raise keep_details(error, path) from error.__cause__
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
        shown.close()
    return path


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
    seeds, counted = ",".join(map(str, config.seeds)), config.step_unit
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


def _default_folder(kind: str, env: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", f"{kind}-{env}")
    base = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, i = base, 1
    while path.exists():
        i += 1
        path = base.with_name(f"{base.name}-{i}")
    return path

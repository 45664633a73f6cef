"""What a user is shown when a run begins or continues."""

from td7.engine.replay import required_bytes
from td7.errors import Option, assigned
from td7.training.config import RunConfig
from td7.training.parts import RunSetup
from td7.types import RowLayout

LONG_RUN = 100_000  # steps or updates per seed: losing more is worth a warning


def announce(setup: RunSetup, resumption: str = "") -> None:
    """Say what the run does, what it takes, and what may surprise."""
    config, dataset, progress = setup.config, setup.dataset, setup.progress
    where = f"{dataset.name} ({config.task.id})" if dataset else config.task.title
    for warning in dataset.warnings if dataset else ():
        progress.warn(f"{where}: {warning}")
    steps = f"{config.steps:,} {config.step_unit}" + (f", {resumption}" if resumption else "")
    processes = f" ({config.processes} processes)" if config.processes > 1 else ""
    progress.say(
        f"{config.variant or config.algorithm} on {where}, "
        f"{_who(config)}, {steps}, {config.device}{processes}, "
        f"replay {_replay_size(setup)} on {config.replay_device} → {setup.given or setup.path}"
    )
    start = config.start_from
    if start is not None and not resumption:
        first = "" if dataset else f"; its policy plays {config.random_steps:,} steps first"
        progress.say(
            f"begins with the learner of {start.source} at step {max(start.steps):,}{first}"
        )
    if dataset is None and config.steps <= config.random_steps:
        how = "random" if start is None else "before training"
        progress.warn(
            f"nothing is trained: all {config.steps:,} steps are {how}, "
            f"as random_steps={config.random_steps:,}"
        )
    if setup.snapshot_every == 0 and config.steps > LONG_RUN:
        progress.warn(
            f"with {assigned(Option('snapshot_every'), 0)}, a power cut or `kill -9` loses all "
            "training since the run began or was last resumed"
        )
    if after := config.steps % config.evaluate_every:
        progress.say(
            f"the last evaluation is at {config.steps - after:,} {config.step_unit}, because "
            f"{Option('evaluate_every')} is {config.evaluate_every:,}"
        )


def _who(config: RunConfig) -> str:
    """The seeds and, if hyperparameters vary, by how many configurations they are trained."""
    members = config.members
    seeds = ",".join(map(str, dict.fromkeys(members.seeds)))
    if not members.numbers:
        return f"seeds {seeds}"
    count = len(members.configurations())
    what = f"{count} configuration{'s' * (count > 1)} of {', '.join(members.varied)}"
    return f"{len(members)} members ({what}), seeds {seeds}"


def _replay_size(setup: RunSetup) -> str:
    config, spec = setup.config, setup.spec
    layout = RowLayout(spec.state_dim, spec.action_dim)
    shared = setup.dataset is not None
    members = len(config.seeds) + config.padding
    size = sum(required_bytes(layout, config.replay_rows, members, shared=shared))
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"

"""Every option of `td7 tune` and every argument of `td7.tune`."""

from dataclasses import dataclass
from typing import Any

from td7.configs import check_fields, setting
from td7.errors import Option
from td7.options import TrainOptions, as_in_train, read_fields

SAMPLERS = ("tpe", "random", "qmc", "gp")
PRUNERS = ("halving", "median", "none")

# What all runs of a search share with `td7 train`.
RUN_OPTIONS = (
    *("algorithm", "env", "env_kwargs", "wrapper", "dataset", "normalise_observations"),
    *("evaluate_every", "evaluation_episodes", "metrics_every", "snapshot_every", "device"),
    *("replay_device", "workers", "step_timeout", "processes", "threads", "precision", "engine"),
)


@dataclass(frozen=True)
class TuneOptions:
    algorithm: str = as_in_train("algorithm")
    env: str = as_in_train("env")
    env_kwargs: Any = as_in_train("env_kwargs")
    wrapper: Any = as_in_train("wrapper")
    dataset: str = as_in_train("dataset")
    steps: int = as_in_train(
        "steps",
        default=100_000,
        doc="environment steps of the best trials; with --dataset, updates",
    )
    seeds: Any = as_in_train("seeds", default="0-2", doc="seeds of every trial")
    trials: int = setting(
        64, "sets of hyperparameters to try", group="Search", at_least=1, at_most=100_000
    )
    search: Any = setting(
        (),
        "what to search, e.g. learning_rate=1e-4..1e-3:log or discount=0.97,0.99; replaces or adds "
        "to the algorithm's usual ranges, see `td7 tune ALGORITHM --help`",
        group="Search",
    )
    search_only: bool = setting(False, "search nothing but what --search names", group="Search")
    set: Any = as_in_train(
        "set", doc="hyperparameters that all trials have, e.g. batch_size=128; not searched"
    )
    sampler: str = setting(
        "tpe", "how trials are chosen, by Optuna", group="Search", choices=SAMPLERS
    )
    sampler_seed: int = setting(0, "seed of that choice", group="Search", at_least=0)
    pruner: str = setting(
        "halving",
        "which trials end early: halving, all but the best at each rung; median, those below the "
        "median of finished ones",
        group="Search",
        choices=PRUNERS,
    )
    reduction: int = setting(
        3,
        "steps between rungs grow, and trials shrink, by this factor",
        group="Search",
        at_least=2,
        at_most=100,
    )
    wave: str = setting(
        "auto",
        "trials that train side by side in one run (auto: as many as fill the device)",
        group="Search",
    )
    normalise_observations: bool = as_in_train("normalise_observations")
    evaluate_every: int = as_in_train("evaluate_every")
    evaluation_episodes: int = as_in_train("evaluation_episodes")
    metrics_every: int = as_in_train("metrics_every")
    out: str = setting("", "folder of the search (default: tune/ALGORITHM-TASK)", group="Output")
    snapshot_every: float = as_in_train("snapshot_every")
    quiet: bool = setting(False, "print only warnings and the result", group="Output")
    device: str = as_in_train("device")
    replay_device: str = as_in_train("replay_device")
    workers: str = as_in_train("workers")
    step_timeout: float = as_in_train("step_timeout")
    processes: str = as_in_train("processes")
    threads: str = as_in_train("threads")
    precision: str = as_in_train("precision")
    engine: str = as_in_train("engine")

    def __post_init__(self) -> None:
        read_fields(self)
        check_fields(self, Option)

    @property
    def run_options(self) -> TrainOptions:
        """The options of every run; a wave adds its members, steps and folder."""
        return TrainOptions(
            **{name: getattr(self, name) for name in RUN_OPTIONS},
            steps=self.steps,
            seeds=self.seeds,
            set=self.set,
        )

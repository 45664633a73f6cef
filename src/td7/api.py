"""`td7.train`, `td7.resume`: one run from start to end. The command line is these, in words."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from td7.configs import parse_number
from td7.datasets.scores import score
from td7.errors import InputError, one_line
from td7.options import TrainOptions, document_options, parse_seeds
from td7.processes import stop_script_import
from td7.rollouts.environment import environment_faults
from td7.rollouts.evaluation import evaluate as play
from td7.rollouts.registration import make
from td7.runs import policies
from td7.runs.listeners import Listener
from td7.runs.record import folder_of, read_config
from td7.runs.video import record
from td7.types import AnyPath


class Run:
    """A run folder, read with pandas."""

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self.config = read_config(self.path)

    def __fspath__(self) -> str:
        """So that whatever takes a run's path takes the run."""
        return str(self.path)

    @property
    def evaluations(self) -> pd.DataFrame:
        """seed, step, episode, return, length: a row an evaluation episode."""
        return self._read("evaluations.csv")

    def final(self) -> "pd.Series[float]":
        """Each seed's mean return in its last evaluation, for `td7.statistics`."""
        last = self.evaluations.set_index(["seed", "step"])["return"].groupby(level=[0, 1]).mean()
        return last.groupby(level="seed").last().rename("return")

    @property
    def episodes(self) -> pd.DataFrame:
        """seed, step, episode, return, length: a row a training episode."""
        return self._read("episodes.csv")

    @property
    def metrics(self) -> pd.DataFrame:
        """seed, step, update, and a column a metric."""
        return self._read("metrics.csv")

    def _read(self, name: str) -> pd.DataFrame:
        file = self.path / name
        try:
            return pd.read_csv(file)
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}") from None
        except ValueError as error:  # pandas' own, and of what is no text
            raise InputError(f"{file} is damaged: {one_line(error)}") from None

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def train(algorithm: str = "", *, listener: Listener | None = None, **options: Any) -> Run:
    """Trains one algorithm on one task, all seeds side by side, and gives back the finished run.

    `listener(table, rows)` is told of new rows of "evaluations", "episodes" and "metrics" as they
    come, each a dictionary by column. What it raises ends the run, which is saved and can be
    resumed; rows that came with the one it raised at are in the tables only. After a crash, those
    since the last snapshot are told again.

    The options are those of `td7 train`: see `TrainOptions`. Without any, it is TD7.
    """
    from td7.training.resolve import train_options
    from td7.training.start import start

    stop_script_import()
    return Run(start(train_options({"algorithm": algorithm, **options}), listener=listener))


document_options(train, TrainOptions, Run)


def resume(
    path: AnyPath,
    *,
    steps: int | None = None,
    dataset: str | None = None,
    set: Any = (),  # the option's name
    workers: int | str | None = None,
    snapshot_every: float | None = None,
    quiet: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Goes on with a run that was stopped, exactly; `steps` may extend it.

    `workers` and `snapshot_every` are as before unless they are given; `listener` is as in `train`.
    `dataset` tells where its data are now, if they were moved.
    `set` is for making sure: hyperparameters that differ from the run's are an error.
    """
    from td7.training.start import continue_run

    stop_script_import()
    how = {"workers": workers, "snapshot_every": snapshot_every}
    done = continue_run(
        Path(path), how, steps=steps, dataset=dataset, set=set, quiet=quiet, listener=listener
    )
    return Run(done)


def load(path: AnyPath, seed: int | None = None) -> policies.Policy:
    """The trained policy of a run folder; `policy.predict(observation)` gives (action, None)."""
    return policies.load(path, seed)


def evaluate(
    path: AnyPath,
    *,
    seed: int | None = None,
    episodes: int = 10,
    video: str | None = None,
    say: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """seed, episode, return, length of a run's policies (or of one seed's), played anew.

    And D4RL's score, of agents that learned from data, on tasks that have one. Episode i is the
    i-th of the run's last evaluation; of kept policies, RUN/policies/STEP, of the one at that
    step. `video` films episode 0 of the first policy, which may take minutes; `say` is told so.
    """
    episodes = parse_number("episodes", episodes, int, at_least=1)
    run, kept = folder_of(Path(path))
    config = read_config(run)
    try:
        seeds = parse_seeds(config["seeds"] if seed is None else [seed])
    except KeyError as error:
        raise InputError(f"{run / 'config.json'} is damaged: {error!r}") from None
    found = {s: load(path, s) for s in seeds}
    steps = dict.fromkeys(seeds, kept) if kept is not None else _last_evaluations(run)
    if video:
        record(found[seeds[0]], Path(video), seed=seeds[0], step=steps.get(seeds[0], 0), say=say)
    rows = []
    for s, policy in found.items():
        with closing(make(policy.spec.task)) as player, environment_faults(f"seed {s}, evaluation"):
            results = play(player, policy.actor, seed=s, step=steps.get(s, 0), episodes=episodes)
            rows += [(s, i, e.episode_return, e.length) for i, e in enumerate(results)]
    table = pd.DataFrame(rows, columns=["seed", "episode", "return", "length"])
    task_id = found[seeds[0]].spec.task.id
    scores = score(task_id, table["return"]) if config.get("dataset") else None
    if scores is not None:
        table["score"] = scores
    return table


def _last_evaluations(run: Path) -> dict[int, int]:
    """The step of every seed's last evaluation; a seed that had none yet is not there."""
    evaluations = Run(run).evaluations
    if not {"seed", "step"} <= set(evaluations.columns):
        raise InputError(f"{run / 'evaluations.csv'} is damaged: no columns seed and step")
    last = evaluations.groupby("seed")["step"].max()
    return dict(zip(last.index.tolist(), last.tolist(), strict=True))

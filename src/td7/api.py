"""The public functions of runs: train, resume, load, evaluate, report. The commands call these."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pandas as pd
from pandas.api.types import is_integer_dtype

from td7.configs import parse_number
from td7.datasets.scores import score
from td7.errors import InputError, Option
from td7.files import shown, working_folder_kept
from td7.modules import stop_script_import
from td7.option_types import TrainKeywords
from td7.option_values import parse_env_kwargs
from td7.options import MOST_EPISODES, TrainOptions, document_options
from td7.rollouts.callables import MakeTask, register_again
from td7.rollouts.environment import Environment
from td7.rollouts.evaluation import Evaluator
from td7.rollouts.fingerprint import probe, take
from td7.rollouts.registration import make
from td7.runs import policies
from td7.runs.fingerprint import change_warning, folders_named
from td7.runs.listeners import Listener
from td7.runs.record import RunRecord, changes_since_finish, run_and_step
from td7.runs.tables import read_table
from td7.runs.trust import check_task
from td7.runs.video import WHOLE, Cut, record
from td7.seeding import Stream
from td7.types import AnyPath, Settings

if TYPE_CHECKING:  # these take seconds to load
    from matplotlib.figure import Figure

    from td7.reports.write import WrittenReport


class Run:
    """A run folder that is opened for reading, while it trains or later.

    `path` is the folder and `config` its config.json, as a dictionary. Every function of td7 that
    takes the path of a run also takes a `Run`. A notebook shows the run's task, algorithm, result
    and learning curve.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self._record = RunRecord.read(self.path)
        self.config = self._record.data

    def __fspath__(self) -> str:
        """The path, for functions that take one, such as `open` and `os.listdir`."""
        return str(self.path)

    @property
    def evaluations(self) -> pd.DataFrame:
        """The table evaluations.csv: seed, step, episode, return and length.

        It has one row per evaluation episode. Runs on a dataset also have its D4RL score. If
        hyperparameters vary, this and the other tables have the member instead of the seed, and at
        the end the seed and the hyperparameters.
        """
        return self._read("evaluations.csv")

    def final(self) -> "pd.Series[float]":
        """Each seed's mean return in its last evaluation, for `td7.statistics`.

        If hyperparameters vary, it has each member's.
        """
        kind = self._record.members.kind
        last = self.evaluations.set_index([kind, "step"])["return"].groupby(level=[0, 1]).mean()
        return last.groupby(level=kind).last().rename("return")

    @property
    def episodes(self) -> pd.DataFrame:
        """The table episodes.csv: seed, step, episode, return and length.

        It has one row per training episode.
        """
        return self._read("episodes.csv")

    @property
    def metrics(self) -> pd.DataFrame:
        """The table metrics.csv: seed, step, update, and one column per metric."""
        return self._read("metrics.csv")

    def summary(self) -> pd.DataFrame:
        """Mean returns of the first, the best and the last evaluation.

        There is a row per seed, then "mean" and "interval", 1.96 sd / sqrt(n) over the seeds. The
        last evaluation is the last one that every seed has, at step `attrs["step"]`. Runs on a
        dataset also have its D4RL score, on tasks that have one. If hyperparameters vary, there is
        a row per member, then "mean" and "interval" for each configuration; the first columns are
        the seed and what varies.
        """
        from td7.reports import single_run

        return single_run.summary(self._record, self.evaluations)

    def plot(self) -> "Figure":
        """The learning curve as a matplotlib figure: every seed, their mean and its interval.

        If hyperparameters vary, it has the mean and interval of each of the best configurations.
        A notebook shows it as the last value of a cell; elsewhere `run.plot().savefig(file)`.
        """
        from td7.reports import single_run

        figure: Figure = single_run.plot(self._record, self.evaluations)
        return figure

    def policy(self, seed: int | None = None, *, member: int | None = None) -> policies.Policy:
        """The trained policy of a seed; a run of one seed needs no `seed`. See `td7.load`."""
        return load(self.path, seed, member=member)

    def _read(self, name: str) -> pd.DataFrame:
        return read_table(self.path / name)

    def __repr__(self) -> str:
        return f"Run({str(shown(self.path))!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: task, algorithm, steps, seeds, result and learning curve."""
        from td7.reports import single_run

        return single_run.as_html(self._record, self.evaluations)


def train(
    algorithm: str = "", *, listener: Listener | None = None, **options: Unpack[TrainKeywords]
) -> Run:
    """Train one algorithm on one task, all seeds side by side, and return the finished run.

    `listener(table, rows)` receives new rows of the tables "evaluations", "episodes" and "metrics"
    as they are written, each row a dictionary by column. An exception in it stops the run, which
    is saved and can be resumed; further rows that were written at the same time are in the tables
    only. After a crash, the listener receives the rows since the last snapshot again. A listener
    with the methods `started(path)` and `ended(path, error)` learns when training starts, which
    includes every resume, and how it ends; `error` is None if the run is finished.

    `env` may be a class or function that makes the task, such as one of a notebook.

    The options are those of `td7 train`, and every hyperparameter of the algorithm, such as
    `batch_size=128`. `set` takes hyperparameters as well, as a dictionary. The default algorithm is
    TD7.
    """
    from td7.training.resolve import train_options
    from td7.training.start import start

    stop_script_import()
    return _drawn(start(train_options({"algorithm": algorithm, **options}), listener=listener))


document_options(train, TrainOptions, Run)


def resume(
    path: AnyPath,
    *,
    env: MakeTask | None = None,
    steps: int | None = None,
    dataset: str | None = None,
    set: Settings = (),  # the option's name
    workers: int | str | None = None,
    snapshot_every: float | None = None,
    step_timeout: float | None = None,
    quiet: bool = False,
    listener: Listener | None = None,
    trust: bool = False,
) -> Run:
    """Continue a run that was stopped, exactly as if it had not been; `steps` may extend it.

    `workers`, `snapshot_every` and `step_timeout` stay as before unless they are given; `listener`
    is as in `train`. `env` makes the task, if a function made it in training. `dataset` is where
    the run's data are now, if they were moved. `set` is a check: hyperparameters that differ from
    the run's are an error. A folder that another user made may name modules and files: `trust` says
    that you know its author.
    """
    from td7.training.start import ResumeOptions, continue_run

    stop_script_import()
    if env is not None:
        register_again(env, path, RunRecord.read(Path(path)).task)
    options = ResumeOptions(
        steps=steps,
        dataset=dataset,
        set=set,
        workers=workers,
        snapshot_every=snapshot_every,
        step_timeout=step_timeout,
        quiet=quiet,
        trust=trust,
    )
    return _drawn(continue_run(Path(path), options, listener))


def _drawn(path: Path) -> Run:
    """The run, with its learning curve in its folder."""
    from td7.reports import single_run

    single_run.draw(path)
    return Run(path)


def load(path: AnyPath, seed: int | None = None, *, member: int | None = None) -> policies.Policy:
    """Load the trained policy of a seed; a run of one seed needs no `seed`.

    If hyperparameters vary, `member` is the number of the policy in the run's tables.
    `path` is a run folder, one of its kept policies RUN/policies/STEP, or a folder that
    `td7.export` wrote. The policy acts without PyTorch. Of a run with checkpoints, such as TD7's,
    it is the checkpoint.
    """
    return policies.load(path, seed, member=member)


def evaluate(
    path: AnyPath,
    *,
    seed: int | None = None,
    member: int | None = None,
    env: MakeTask | None = None,
    episodes: int = 10,
    env_kwargs: Settings = (),
    fresh_seeds: bool = False,
    video: str | None = None,
    video_seconds: float | None = None,
    video_width: int | None = None,
    say: Callable[[str], None] | None = None,
    trust: bool = False,
) -> pd.DataFrame:
    """Play the policies of a run, or of one seed, and return a table of their episodes.

    Its columns are seed, episode, return and length. If hyperparameters vary, it has the columns of
    the run's tables instead; `member` chooses one policy by its number, `seed` all of this seed.
    Policies that learned from a dataset also get D4RL's score on tasks that have one. Episode i is
    the i-th of the run's last evaluation, or, for kept policies RUN/policies/STEP, of the one at
    that step. For robustness checks, `env_kwargs` replaces keyword arguments of the task, and
    `fresh_seeds` has episodes begin from other reset seeds than any that the run has used; the
    table's `attrs` hold both. `video` is a file for a film of the first policy's episode 0, or of
    its first `video_seconds`, with frames `video_width` pixels wide. That may take minutes; `say`
    receives a message about it, and about files that were changed since the run ended. A task that
    has changed since the run began is a message as well, or a warning without `say`. `env` and
    `trust` are as in `resume`.
    """
    episodes = parse_number(Option("episodes"), episodes, int, at_least=1, at_most=MOST_EPISODES)
    cut = Cut.of(video_seconds, video_width)
    if cut != WHOLE and not video:
        raise InputError(
            f"{Option('video_seconds')} and {Option('video_width')} have no effect without "
            f"{Option('video')}"
        )
    run, kept = run_and_step(Path(path))
    run_record = RunRecord.read(run)
    if env is not None:
        register_again(env, run, run_record.task)
    members = run_record.members
    ids = members.matching(run, seed, member)
    loaded = {id: load(path, member=id) if members.numbers else load(path, id) for id in ids}
    changes = parse_env_kwargs(env_kwargs)
    resets = Stream.FRESH_RESET if fresh_seeds else Stream.EVALUATION_RESET
    if say is not None:
        policies.note_unverified(path, loaded.values(), say)
    for policy in loaded.values():
        check_task(run_record, policy.spec.task, trust=trust)
        policy.change_task(changes)
    steps = dict.fromkeys(ids, kept) if kept is not None else _last_evaluations(run_record)
    if say is not None:
        for change in changes_since_finish(run):
            say(f"{run}: {change}")
    first, rows = ids[0], []
    with folders_named(run_record.fingerprint):
        if video:
            with working_folder_kept():
                film, of, step = Path(video), members.seed(first), steps.get(first, 0)
                record(loaded[first], film, seed=of, step=step, cut=cut, resets=resets, say=say)
        for id, policy in loaded.items():
            new = partial(make, policy.spec.task)
            with working_folder_kept(), closing(Evaluator(new)) as player:
                policy.check_fits(player.environments[0].spec)
                if id == first:
                    _warn_of_changes(run_record, player.environments[0], changes, say)
                of, step = members.seed(id), steps.get(id, 0)
                results = player.play(
                    policy.actor, seed=of, step=step, episodes=episodes, resets=resets
                )
                rows += [(id, i, e.episode_return, e.length) for i, e in enumerate(results)]
    table = pd.DataFrame(rows, columns=[members.kind, "episode", "return", "length"])
    table.attrs.update(env_kwargs=changes, fresh_seeds=fresh_seeds)
    task_id = loaded[first].spec.task.id
    scores = score(task_id, table["return"]) if run_record.dataset else None
    if scores is not None:
        table["score"] = scores
    for name, values in members.column_values().items():
        table[name] = table["member"].map(values)
    return table


def _warn_of_changes(
    run: RunRecord,
    environment: Environment,
    kwargs: Mapping[str, object],
    say: Callable[[str], None] | None,
) -> None:
    """Warn of a task that is not as it was, but for the `kwargs` that the user changes."""
    then = run.fingerprint
    if then is None:
        return
    acts = then.probe is not None and not kwargs
    now = replace(take(environment), probe=probe(environment) if acts else None)
    if warning := change_warning(then, now):
        message = f"{run.folder}: {warning}"
        say(message) if say is not None else warnings.warn(message, stacklevel=3)


def _last_evaluations(run: RunRecord) -> dict[int, int]:
    """The step of each member's last evaluation, for members that have had one."""
    evaluations, kind = Run(run.folder).evaluations, run.members.kind
    file = run.folder / "evaluations.csv"
    if not {kind, "step"} <= set(evaluations.columns):
        raise InputError(f"{file} is damaged: no columns {kind} and step")
    numbers = evaluations[[kind, "step"]]
    if len(numbers) and not (
        all(map(is_integer_dtype, numbers.dtypes)) and numbers.min().min() >= 0
    ):
        raise InputError(f"{file} is damaged: {kind} and step must be whole numbers, 0 or more")
    last = evaluations.groupby(kind)["step"].max()
    return dict(zip(last.index.tolist(), last.tolist(), strict=True))


def report(
    paths: AnyPath | Iterable[AnyPath],
    *,
    out: AnyPath | None = None,
    figures: bool = True,
    markdown: AnyPath | Iterable[AnyPath] = (),
) -> "WrittenReport":
    """Write tables, figures and a web page of runs into the folder `out`; return what was written.

    `paths` are runs, run folders, study folders, or folders of these, and `out` is "report" unless
    it is given. The folder of a search, alone, has a page of its own, report.html, which is written
    into it unless `out` is given. `markdown` names files that receive all tables, or those that
    their marks name, as `td7 report --help` describes. The result has the path of the page, a line
    on the runs, and notes on what is missing.
    """
    from td7.reports.write import write_report
    from td7.tuning.folder import is_search

    folders, files = _as_paths(paths), _as_paths(markdown)
    target = None if out is None else Path(out)
    searches = [folder for folder in folders if is_search(folder)]
    if not searches:
        out_folder = target or Path("report")
        return write_report(folders, out_folder, with_figures=figures, markdown=files)
    if len(folders) > 1 or files:
        raise InputError(
            f"{searches[0]} holds a search, which has a page of its own; give it alone, without "
            f"{Option('markdown')}"
        )
    from td7.tuning.page import write_search
    from td7.tuning.result import Search

    return write_search(Search(searches[0]), target)


def _as_paths(given: AnyPath | Iterable[AnyPath]) -> list[Path]:
    if isinstance(given, str | os.PathLike):
        return [Path(given)]
    return [Path(path) for path in given]

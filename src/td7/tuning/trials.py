"""The trials of a search, kept in Optuna's journal, which `optuna-dashboard` opens as well.

Each trial has the user attribute `scores`: the mean returns of its seeds at every rung reached.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td7.errors import InputError, needs_extra, one_line
from td7.statistics import Sample
from td7.tuning.options import TuneOptions
from td7.tuning.rungs import survives
from td7.tuning.space import Dimension, Space

JOURNAL = "optuna.log"
STUDY = "td7"
SCORES = "scores"
FEWEST_FOR_IMPORTANCE = 10  # trials; with fewer it is noise


@dataclass(frozen=True)
class Trial:
    """One set of hyperparameters, and what it has come to."""

    number: int
    values: Mapping[str, Any]  # of the hyperparameters that are searched
    state: str  # "running", "finished" or "pruned"
    scores: Mapping[int, tuple[float, ...]]  # steps of a rung: the mean return of each seed
    is_usual: bool = False  # it has the values that the algorithm has without a search

    @property
    def steps(self) -> int:
        """Of the last rung that it has reached."""
        return max(self.scores, default=0)

    @property
    def sample(self) -> Sample:
        """Its seeds at that rung."""
        return Sample.of(self.scores[self.steps])

    @property
    def mean(self) -> float:
        """At that rung; NaN if a seed has diverged."""
        return self.sample.mean


def optuna() -> Any:
    """The package, without its messages; raise if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise needs_extra("td7 tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Optuna warns that some of its parts are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Trials:
    """Asks for trials, keeps their scores, and decides which of them continue."""

    def __init__(self, folder: Path, options: TuneOptions, space: Space) -> None:
        self._options = options
        package = optuna()
        journal = package.storages.journal
        with _without_warnings():
            backend = journal.JournalFileBackend(str(folder / JOURNAL))
            storage = package.storages.JournalStorage(backend)
            try:
                self._study = package.create_study(
                    study_name=STUDY,
                    storage=storage,
                    direction="maximize",
                    pruner=_pruner(package, options),
                    load_if_exists=True,
                )
            except (ValueError, KeyError) as error:  # of a damaged journal
                raise InputError(f"{folder / JOURNAL} is damaged: {one_line(error)}") from None
        self._distributions = {n: _distribution(package, one) for n, one in space.items()}
        self._states = {
            package.trial.TrialState.COMPLETE: "finished",
            package.trial.TrialState.PRUNED: "pruned",
            package.trial.TrialState.FAIL: "pruned",
        }

    def __len__(self) -> int:
        return len(self._study.trials)

    def suggest(self, values: Mapping[str, Any]) -> None:
        """Have these values be among the trials that `ask` returns next."""
        self._study.enqueue_trial(dict(values), skip_if_exists=True)

    def ask(self) -> Trial:
        """A new trial, which depends on its number and on those before it: see `SAMPLERS`."""
        options = self._options
        with _without_warnings():
            self._study.sampler = SAMPLERS[options.sampler](optuna(), options, len(self))
            trial = self._study.ask(self._distributions)
        return self[trial.number]

    def __getitem__(self, number: int) -> Trial:
        return self._trial(self._study.trials[number])

    def all(self) -> list[Trial]:
        waiting = optuna().trial.TrialState.WAITING
        return [self._trial(one) for one in self._study.trials if one.state != waiting]

    def running(self) -> list[Trial]:
        return [trial for trial in self.all() if trial.state == "running"]

    def _trial(self, frozen: Any) -> Trial:
        scores = {
            int(steps): tuple(map(float, values))
            for steps, values in frozen.user_attrs.get(SCORES, {}).items()
        }
        state = self._states.get(frozen.state, "running")
        is_usual = frozen.number == 0 and "fixed_params" in frozen.system_attrs  # of `suggest`
        return Trial(frozen.number, dict(frozen.params), state, scores, is_usual)

    def score(self, number: int, steps: int, returns: Sequence[float]) -> None:
        """Keep the seeds' mean returns at a rung. Doing it twice changes nothing."""
        trial = self._live(number)
        if steps in self[number].scores:
            return
        scores = {**self._study.trials[number].user_attrs.get(SCORES, {})}
        trial.report(Sample.of(returns).mean, steps)
        trial.set_user_attr(SCORES, {**scores, str(steps): list(returns)})

    def judge(self, number: int, *, is_last: bool) -> None:
        """End a trial that has come to the last rung, or that the pruner does not let continue."""
        trial, state = self[number], optuna().trial.TrialState
        if trial.state != "running":
            return
        if math.isnan(trial.mean) or (not is_last and self._live(number).should_prune()):
            self._study.tell(number, state=state.PRUNED)
        elif is_last:
            self._study.tell(number, trial.mean)

    def _live(self, number: int) -> Any:
        return optuna().trial.Trial(self._study, self._study.trials[number]._trial_id)

    def importances(self) -> dict[str, float]:
        """How much each hyperparameter matters for the score at the first rung, by PED-ANOVA.

        All trials come to that rung, and only a few to the last. Empty if there are too few trials.
        """
        package = optuna()
        first = min((step for one in self.all() for step in one.scores), default=0)
        scored = [
            (one, score)
            for one in self._study.trials
            if math.isfinite(score := one.intermediate_values.get(first, math.nan))
        ]
        if len(scored) < FEWEST_FOR_IMPORTANCE:
            return {}
        study = package.create_study(direction="maximize")
        for one, score in scored:
            study.add_trial(
                package.trial.create_trial(
                    params=one.params, distributions=one.distributions, value=score
                )
            )
        evaluator = package.importance.PedAnovaImportanceEvaluator()
        with _without_warnings():
            shares = package.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in shares.items()}


def _distribution(package: Any, dimension: Dimension) -> Any:
    distributions = package.distributions
    if dimension.choices:
        return distributions.CategoricalDistribution(dimension.choices)
    kind = "IntDistribution" if dimension.is_whole else "FloatDistribution"
    return getattr(distributions, kind)(dimension.low, dimension.high, log=dimension.is_log)


def _pruner(package: Any, options: TuneOptions) -> Any:
    if options.pruner == "median":
        return package.pruners.MedianPruner(n_startup_trials=1)
    if options.pruner == "none":
        return package.pruners.NopPruner()

    class Halving(package.pruners.BasePruner):  # type: ignore[misc]  # imported late
        """Successive halving: of all trials that have reached a rung, the best ones continue.

        Optuna's own judges each trial among those before it; here, those of a wave come together.
        """

        def prune(self, study: Any, trial: Any) -> bool:
            rung = trial.last_step
            scores = {
                one.number: one.intermediate_values[rung]
                for one in study.get_trials(deepcopy=False)
                if rung in one.intermediate_values
            }
            return not survives(trial.number, scores, options.reduction)

    return Halving()


def _tpe(package: Any, options: TuneOptions, number: int) -> Any:
    startup = max(8, options.trials // 4)
    return package.samplers.TPESampler(
        seed=options.sampler_seed + number,
        n_startup_trials=startup,
        multivariate=True,
        constant_liar=True,
    )


# A sampler of Optuna for the trial of this number. The journal does not hold a sampler's state;
# with a seed per trial, a search that was stopped asks for the same trials. `qmc` counts its points
# in the journal, and scrambles all of them in the same way.
SAMPLERS: Mapping[str, Callable[[Any, TuneOptions, int], Any]] = {
    "tpe": _tpe,
    "random": lambda package, options, number: package.samplers.RandomSampler(
        seed=options.sampler_seed + number
    ),
    "qmc": lambda package, options, _: package.samplers.QMCSampler(
        seed=options.sampler_seed, scramble=True
    ),
    "gp": lambda package, options, number: package.samplers.GPSampler(
        seed=options.sampler_seed + number
    ),
}

"""Statistics of returns over seeds: pure functions of numbers.

Scores are matrices [seeds, tasks], curves [evaluations] or [seeds, evaluations]. Gaps, nan and
unequal lengths raise a ValueError; only `common` leaves values out, and it lists them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

SCORES = ("seeds", "tasks")
CURVES = ("evaluations",), ("seeds", "evaluations")
LEVEL = 0.05  # of significance, the paper's
RESAMPLES = 2000  # of a bootstrap


class Interval(NamedTuple):
    """The ends of an interval, such as a 95% confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Sample:
    """Results of several seeds: their mean, standard deviation and number."""

    mean: float
    sd: float  # with Bessel's correction; nan for one seed
    n: int

    @classmethod
    def of(cls, values: Any) -> "Sample":
        x = np.asarray(values, np.float64)
        sd = float(x.std(ddof=1)) if len(x) > 1 else float("nan")
        return cls(float(x.mean()), sd, len(x))

    @classmethod
    def printed(cls, mean: float, interval: float, n: int) -> "Sample":
        """From a table of the paper, which prints mean ± interval."""
        return cls(mean, interval * np.sqrt(n) / 1.96, n)

    @property
    def interval(self) -> float:
        """The paper's interval, 1.96 / sqrt(n) * sd."""
        return float(1.96 / np.sqrt(self.n) * self.sd)

    @property
    def student(self) -> float:
        """Half of the 95% interval by Student's t, wider than the paper's; nan for one seed."""
        return float(stats.t.ppf(0.975, self.n - 1) * self.sd / np.sqrt(self.n))

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ± {self.interval:{spec}}"

    def __str__(self) -> str:
        return f"{self:.0f}"


def welch(a: Sample, b: Sample) -> float:
    """The p-value of a two-sided Welch's t-test of equal means."""
    result = stats.ttest_ind_from_stats(a.mean, a.sd, a.n, b.mean, b.sd, b.n, equal_var=False)
    return float(result.pvalue)


def has_welch(a: Sample, b: Sample) -> bool:
    """Whether Welch's test has an answer: two seeds or more on both sides, and a spread."""
    return bool(np.isfinite(a.sd) and np.isfinite(b.sd) and a.sd + b.sd > 0)


def difference_interval(a: Sample, b: Sample) -> Interval:
    """The 95% interval of the mean of a minus that of b, by Welch's test.

    It holds 0 where `welch` is above 0.05: Student's t with Welch and Satterthwaite's degrees of
    freedom.
    """
    if not has_welch(a, b):
        raise ValueError(f"no interval of sd {a.sd:g} over {a.n} seeds, {b.sd:g} over {b.n}")
    x, y = (sample.sd**2 / sample.n for sample in (a, b))
    freedom = (x + y) ** 2 / (x**2 / (a.n - 1) + y**2 / (b.n - 1))
    half = float(stats.t.ppf(1 - LEVEL / 2, freedom) * np.sqrt(x + y))
    return Interval(a.mean - b.mean - half, a.mean - b.mean + half)


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation: 1 for the same order, -1 for the reverse."""
    x, y = (_numbers(what, values, ("pairs",)) for what, values in (("a", a), ("b", b)))
    if len(x) != len(y):
        raise ValueError(f"a has {len(x)} numbers, b {len(y)}")
    if len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")  # equal numbers have no order
    return float(stats.spearmanr(x, y).statistic)


def highlighted(samples: Mapping[str, Sample]) -> set[str]:
    """The names of the highest mean and of those that are not significantly worse.

    Tables 1 and 2 of the paper highlight entries "not statistically significantly worse than the
    highest performance (according to a Welch's t-test with significance level 0.05)". We read
    *worse* as one-sided, half of `welch`: this reproduces all but two of the 125 printed entries;
    a two-sided test reproduces all but five.
    """
    if not samples:
        raise ValueError("nothing to highlight: no samples")
    for name, sample in samples.items():
        if not np.isfinite(sample.mean):
            raise ValueError(f"{name}: the mean is {sample.mean}")
        if len(samples) > 1 and not np.isfinite(sample.sd):
            raise ValueError(f"{name}: {sample.n} seed, sd {sample.sd}; Welch's test needs two")
    best = max(samples.values(), key=lambda sample: sample.mean)
    return {name for name, sample in samples.items() if _worse(sample, best) >= LEVEL}


def _worse(sample: Sample, best: Sample) -> float:
    """The p-value of a one-sided Welch's t-test that a sample is worse than the best."""
    if sample.mean == best.mean:  # also where neither has a spread, and t would be 0 / 0
        return 0.5
    return welch(sample, best) / 2


def iqm(scores: ArrayLike) -> float:
    """The interquartile mean over all seeds and tasks: without the lowest and highest quarter."""
    return float(_iqm(_numbers("scores", scores, SCORES)))


def iqm_interval(scores: ArrayLike, random: np.random.Generator) -> Interval:
    """The 95% percentile bootstrap interval of `iqm`, which resamples the seeds of every task."""
    x = _numbers("scores", scores, SCORES)
    return _percentiles(_iqm(_resampled("scores", x, random)))


def _iqm(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., seeds, tasks] → [...]"""
    pooled = scores.reshape(*scores.shape[:-2], -1)
    return np.asarray(stats.trim_mean(pooled, 0.25, axis=-1))


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """P(X > Y) + P(X = Y) / 2 for seeds X of a and Y of b on a task, averaged over tasks.

    On one task this is Mann and Whitney's U divided by the number of pairs. The numbers of seeds
    may differ.
    """
    return float(_improvement(*_pair("a", a, "b", b)))


def probability_of_improvement_interval(
    a: ArrayLike, b: ArrayLike, random: np.random.Generator
) -> Interval:
    """Its 95% percentile bootstrap interval, which resamples the seeds of a and b on every task."""
    x, y = _pair("a", a, "b", b)
    return _percentiles(_improvement(_resampled("a", x, random), _resampled("b", y, random)))


def improvement_over_tasks(tasks: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """`probability_of_improvement` of (seeds of a, seeds of b) per task, of any numbers."""
    return float(np.mean([_improvement(*_columns(a, b)) for a, b in tasks]))


def improvement_over_tasks_interval(
    tasks: Sequence[tuple[ArrayLike, ArrayLike]], random: np.random.Generator
) -> Interval:
    """Its 95% percentile bootstrap interval, which resamples the seeds of a and b on every task."""
    columns = [_columns(a, b) for a, b in tasks]
    parts = [
        _improvement(_resampled("a", x, random), _resampled("b", y, random)) for x, y in columns
    ]
    return _percentiles(np.mean(parts, axis=0))


def _columns(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two arrays [seeds] as [seeds, tasks] of one task."""
    return _numbers("a", a, ("seeds",))[:, None], _numbers("b", b, ("seeds",))[:, None]


def _improvement(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two arrays [..., seeds, tasks] → [...]"""
    wins = np.sign(x[..., :, None, :] - y[..., None, :, :])  # 1, 0 or -1 per pair of seeds
    return np.asarray((wins.mean(axis=(-3, -2, -1)) + 1) / 2)


def _resampled(
    what: str, scores: NDArray[np.float64], random: np.random.Generator
) -> NDArray[np.float64]:
    """[resamples, seeds, tasks]: the seeds of every task, drawn with replacement."""
    seeds, tasks = scores.shape
    if seeds < 2:
        raise ValueError(f"{what}: one seed has no interval; at least two are needed")
    drawn = random.integers(seeds, size=(RESAMPLES, seeds, tasks))
    return np.asarray(scores[drawn, np.arange(tasks)])


def _percentiles(resamples: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(resamples, (0.025, 0.975))
    return Interval(float(low), float(high))


def normalised(scores: ArrayLike, baseline: ArrayLike) -> Sample:
    """Every seed's mean over tasks of score / baseline; `baseline` has one number per task.

    The paper's "average performance over all five MuJoCo tasks, normalized with respect to" that
    of another row (Figure "Ablation": TD7's at 5M). Row i of [seeds, tasks] counts as one seed.
    """
    x = _numbers("scores", scores, SCORES)
    reference = _numbers("baseline", baseline, ("tasks",))
    if len(reference) != x.shape[1]:
        raise ValueError(f"scores have {x.shape[1]} tasks, the baseline {len(reference)}")
    return Sample.of(_ratios(x, reference).mean(axis=1))


def percent_loss(reference: ArrayLike, variant: ArrayLike) -> Sample:
    """100 (1 - variant / mean of the reference), averaged over tasks; negative if it is better.

    The paper's Figure "Mean Percent Loss". The reference counts as exact: its spread does not
    enter the interval. Row i of [seeds, tasks] is averaged over tasks first, so the interval is
    over as many numbers as there are seeds. The paper does not state this; its printed intervals
    scatter around those of independent tasks as ten such numbers would.
    """
    y, x = _pair("reference", reference, "variant", variant)
    return Sample.of(100 * (1 - _ratios(x, y.mean(axis=0))).mean(axis=1))


def _ratios(x: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    if (reference <= 0).any():
        task = int(np.argmax(reference <= 0))
        raise ValueError(
            f"task {task}: cannot divide by {reference[task]:g}, which is not positive"
        )
    return x / reference


def smoothed(curve: ArrayLike, window: int = 10) -> NDArray[np.float64]:
    """The mean of every evaluation and the `window` - 1 before it, or as many as there are.

    The paper: "smoothed uniformly over a window of 10 evaluations". We read this as a window that
    ends at the evaluation, so that no later one enters.
    """
    x = _numbers("curve", curve, *CURVES)
    if window < 1:
        raise ValueError(f"a window of {window} evaluations; at least one is needed")
    ends = range(1, x.shape[-1] + 1)
    means = [x[..., max(0, end - window) : end].mean(axis=-1) for end in ends]
    return np.stack(means, axis=-1)


def times_to_reach(steps: Sequence[int], curves: ArrayLike, score: float) -> tuple[int | None, ...]:
    """Every seed's step of the first evaluation at or above the score; None if there is none."""
    x = _numbers("curves", curves, ("seeds", "evaluations"))
    if len(steps) != x.shape[1]:
        raise ValueError(f"{len(steps)} steps, but {x.shape[1]} evaluations")
    _increasing("steps", steps)
    if not np.isfinite(score):
        raise ValueError(f"a score of {score} cannot be reached")
    reached = x >= score
    return tuple(int(steps[int(row.argmax())]) if row.any() else None for row in reached)


def drops(curve: ArrayLike, percent: float, within: int) -> float:
    """The share of evaluations with one among the next `within` that is > `percent` % lower.

    The paper's figure of Hopper's instability shows this for TD3's evaluations in the last 1M of
    5M steps, with `within` 1, 5 and 10; the caller selects the evaluations. Its axis has ">", its
    caption "at least". The last `within` evaluations do not count, because fewer follow them, nor
    do evaluations that are not positive, because a percentage of them has no meaning.
    """
    x = _numbers("curve", curve, *CURVES)
    evaluations = x.shape[-1]
    if not 1 <= within < evaluations:
        raise ValueError(f"within {within} evaluations; allowed: 1 to {evaluations - 1}")
    now = x[..., :-within]
    counts = now > 0
    if not counts.any():
        raise ValueError(f"drops need positive returns; the highest is {now.max():g}")
    windows = np.lib.stride_tricks.sliding_window_view(x, within, axis=-1)
    lowest = windows[..., 1:, :].min(axis=-1)
    return float((100 * (now - lowest) > percent * now)[counts].mean())


@dataclass(frozen=True)
class Aligned:
    """Curves on the steps that all of them have."""

    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    values: NDArray[np.float64]  # [seeds, evaluations]
    left_out: tuple[str, ...]  # a line per seed with evaluations that another lacks


def common(curves: Mapping[int, Sequence[tuple[int, float]]]) -> Aligned:
    """Curves by seed, as (step, return) in the order of steps → the same on their common steps."""
    if not curves:
        raise ValueError("no curves to align")
    by_seed = {seed: dict(curve) for seed, curve in curves.items()}
    for seed, curve in curves.items():
        _increasing(f"seed {seed}", [step for step, _ in curve])
    shared = sorted(set.intersection(*(set(curve) for curve in by_seed.values())))
    if not shared:
        counts = ", ".join(f"seed {seed}: {len(curve)}" for seed, curve in by_seed.items())
        raise ValueError(f"no step is common to all seeds; numbers of evaluations: {counts}")
    values = [[curve[step] for step in shared] for curve in by_seed.values()]
    lines = (_left_out(seed, by_seed, shared) for seed in by_seed)
    return Aligned(
        tuple(by_seed),
        tuple(shared),
        _numbers("returns", values, ("seeds", "evaluations")),
        tuple(line for line in lines if line),
    )


def _left_out(seed: int, by_seed: Mapping[int, Mapping[int, float]], shared: Sequence[int]) -> str:
    """A seed's evaluations that are not at shared steps, and the seeds without them; "" if none."""
    own = sorted(set(by_seed[seed]) - set(shared))
    if not own:
        return ""
    lacking = [str(other) for other, curve in by_seed.items() if set(own) - set(curve)]
    steps = f"step {own[0]:,}" if len(own) == 1 else f"steps {own[0]:,} to {own[-1]:,}"
    return (
        f"seed {seed}: {len(own)} of {len(by_seed[seed])} evaluations left out ({steps}), "
        f"missing in seed {', '.join(lacking)}"
    )


def _pair(
    name: str, a: ArrayLike, other: str, b: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two arrays [seeds, tasks] of the same tasks."""
    x, y = _numbers(name, a, SCORES), _numbers(other, b, SCORES)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"{name} has {x.shape[1]} tasks, {other} {y.shape[1]}")
    return x, y


def _numbers(what: str, values: ArrayLike, *shapes: tuple[str, ...]) -> NDArray[np.float64]:
    """An array of finite numbers with one of the shapes."""
    allowed = " or ".join(f"[{', '.join(axes)}]" for axes in shapes)
    try:
        x = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what}: gaps or unequal lengths; needed: a full {allowed}") from None
    if x.ndim not in [len(axes) for axes in shapes]:
        raise ValueError(f"{what}: the shape is {list(x.shape)}; needed: {allowed}")
    if x.size == 0:
        raise ValueError(f"{what}: empty, with shape {list(x.shape)}")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        index, value = bad[0].tolist(), x[tuple(bad[0])]
        raise ValueError(
            f"{what}: {len(bad)} of {x.size} are not finite; the first is {value} at {index}"
        )
    return x


def _increasing(what: str, steps: Sequence[int]) -> None:
    for before, after in pairwise(steps):
        if after <= before:
            raise ValueError(f"{what}: step {after:,} follows {before:,}; steps must increase")

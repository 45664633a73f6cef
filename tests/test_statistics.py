"""Statistics, by hand and beside SciPy; the paper's tables as it prints them."""

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from td7.errors import InputError
from td7.report import paper
from td7.statistics import (
    Interval,
    Sample,
    common,
    drops,
    highlighted,
    iqm,
    iqm_interval,
    normalised,
    percent_loss,
    probability_of_improvement,
    probability_of_improvement_interval,
    rank_correlation,
    smoothed,
    times_to_reach,
    welch,
)


def test_a_sample_by_hand() -> None:
    """2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, variance 13; 1.96 sqrt(13 / 3)."""
    sample = Sample.of([2, 4, 9])
    assert (sample.mean, sample.n) == (5, 3)
    assert sample.sd == pytest.approx(math.sqrt(13))
    assert sample.interval == pytest.approx(1.96 * math.sqrt(13 / 3))
    assert str(sample) == "5 ± 4"


def test_one_seed_has_no_interval() -> None:
    assert math.isnan(Sample.of([3.0]).interval)


def test_what_a_table_prints_is_a_sample_again() -> None:
    sample = Sample.of(np.random.default_rng(0).normal(100, 10, 10))
    again = Sample.printed(sample.mean, sample.interval, 10)
    assert again.mean == sample.mean
    assert again.sd == pytest.approx(sample.sd)


def test_welch_is_scipys_on_the_raw_numbers() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(0, 1, 10), random.normal(1, 3, 7)
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert welch(Sample.of(a), Sample.of(b)) == pytest.approx(expected)


def test_welch_by_hand() -> None:
    """Means 1 apart, both errors 0.5: t = 1 / sqrt(0.5) with 18 degrees of freedom."""
    a, b = Sample(0, math.sqrt(2.5), 10), Sample(1, math.sqrt(2.5), 10)
    assert welch(a, b) == pytest.approx(2 * stats.t.sf(math.sqrt(2), 18))


def test_rank_correlation_by_hand() -> None:
    """Ranks 1 2 3 4 and 2 1 3 4: squared differences 1 + 1; 1 - 6 * 2 / (4 * (16 - 1))."""
    assert rank_correlation([10, 20, 30, 40], [0.2, 0.1, 7, 8]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert math.isnan(rank_correlation([1, 2, 3], [5, 5, 5]))
    with pytest.raises(ValueError, match="a has 2 numbers, b 3"):
        rank_correlation([1, 2], [1, 2, 3])


def test_the_papers_table_1() -> None:
    there = paper.printed("online", 300_000)
    assert str(there["TD7", "HalfCheetah-v4"]) == "15031 ± 401"
    assert ("TD7", "Pendulum-v4") not in there


def test_every_table_is_there_and_full() -> None:
    sizes = {name: len(paper.table(name)) for name in paper.TABLES}
    assert sizes == {
        "online": 75,
        "offline": 50,
        "design": 115,
        "design_percent_loss": 21,
        "ablation_1M": 80,
        "ablation_5M": 25,
        "checkpoints_300k": 20,
        "checkpoints_5M": 60,
        "runtime": 5,
    }
    assert not any(paper.table(name).isna().any().any() for name in paper.TABLES)
    with pytest.raises(InputError, match="did you mean 'online'"):
        paper.table("onlin")


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def scores(seeds: int = 10, tasks: int = 3) -> NDArray[np.float64]:
    """Random, and of another scale for every task."""
    return generator().normal(100, 20, (seeds, tasks)) * np.arange(1, tasks + 1)


# Student's interval


def test_students_interval_by_hand() -> None:
    """2, 4, 9: t(0.975) with two degrees of freedom is 4.303, times sqrt(13 / 3)."""
    assert Sample.of([2, 4, 9]).student == pytest.approx(4.302653 * math.sqrt(13 / 3))


def test_students_interval_is_scipys() -> None:
    values = scores()[:, 0]
    sample = Sample.of(values)
    low, high = stats.t.interval(0.95, 9, loc=values.mean(), scale=stats.sem(values))
    assert (sample.mean - sample.student, sample.mean + sample.student) == pytest.approx(
        (low, high)
    )
    assert sample.student > sample.interval


def test_one_seed_has_no_student_interval() -> None:
    assert math.isnan(Sample.of([3.0]).student)


# The interquartile mean


def test_the_interquartile_mean_by_hand() -> None:
    """Of 0, 1, 2, 3, 4, 5, 6, 700 two go at either end; (2 + 3 + 4 + 5) / 4."""
    assert iqm([[700, 1], [2, 4], [3, 5], [6, 0]]) == 3.5
    assert iqm([[1, 2, 9]]) == 4  # a quarter of three is none


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 3), (10, 5)])
def test_the_interquartile_mean_is_scipys(shape: tuple[int, int]) -> None:
    matrix = scores(*shape)
    assert iqm(matrix) == pytest.approx(stats.trim_mean(matrix.ravel(), 0.25))


def test_the_interval_of_the_iqm_draws_within_tasks() -> None:
    """Seeds that agree on every task have nothing to draw, however far the tasks are apart."""
    assert iqm_interval([[1, 100], [1, 100]], generator()) == Interval(50.5, 50.5)


def test_the_interval_of_the_iqm_by_hand() -> None:
    """Seeds 0 and 4 of one task: 0, 2 and 4 have chances of 1/4, 1/2, 1/4."""
    assert iqm_interval([[0], [4]], generator()) == Interval(0, 4)


def test_the_interval_of_the_iqm_is_scipys() -> None:
    matrix = scores()

    def statistic(*tasks: Any, axis: int) -> Any:
        return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    expected = stats.bootstrap(  # unpaired samples are drawn each on its own: tasks
        tuple(matrix.T), statistic, n_resamples=10_000, method="percentile", rng=1
    ).confidence_interval
    found = iqm_interval(matrix, generator())
    assert found == pytest.approx((expected.low, expected.high), rel=0.01)
    assert found.low < iqm(matrix) < found.high


def test_intervals_repeat_with_their_generator() -> None:
    a, b = scores(), scores(7) + 20
    first = iqm_interval(a, generator())
    assert iqm_interval(a, generator()) == first
    assert iqm_interval(a, np.random.default_rng(1)) != first
    first = probability_of_improvement_interval(a, b, generator())
    assert probability_of_improvement_interval(a, b, generator()) == first
    assert probability_of_improvement_interval(a, b, np.random.default_rng(1)) != first


# The probability of improvement


def test_the_probability_of_improvement_by_hand() -> None:
    """Task 1: 1 and 3 over 2, 3, 0: 1 + 2.5 of 6. Task 2: 5 and 5 over 5, 4, 9: 3 of 6."""
    a, b = [[1, 5], [3, 5]], [[2, 5], [3, 4], [0, 9]]
    assert probability_of_improvement(a, b) == pytest.approx((3.5 / 6 + 3 / 6) / 2)
    assert probability_of_improvement(b, a) == pytest.approx(1 - (3.5 / 6 + 3 / 6) / 2)
    assert probability_of_improvement(a, a) == 0.5
    assert probability_of_improvement([[1]], [[0]]) == 1


def test_the_probability_of_improvement_is_mann_and_whitneys() -> None:
    a, b = scores(10).round(-1), scores(7).round(-1)[::-1]  # rounded: there are ties
    u = [stats.mannwhitneyu(x, y).statistic / 70 for x, y in zip(a.T, b.T, strict=True)]
    assert probability_of_improvement(a, b) == pytest.approx(np.mean(u))


def test_the_interval_of_improvement_draws_within_tasks() -> None:
    """a is always above b on task 1 and always below on task 2: nothing to draw."""
    a, b = [[10, 1], [11, 2]], [[0, 90], [1, 91], [2, 92]]
    found = probability_of_improvement_interval(a, b, generator())
    assert found == Interval(0.5, 0.5)


def test_the_interval_of_improvement_is_scipys() -> None:
    a, b = scores(10), scores(7)[::-1] + 10

    def statistic(*columns: Any) -> float:
        return probability_of_improvement(np.stack(columns[:3], 1), np.stack(columns[3:], 1))

    expected = stats.bootstrap(
        (*a.T, *b.T), statistic, n_resamples=4000, vectorized=False, method="percentile", rng=1
    ).confidence_interval
    found = probability_of_improvement_interval(a, b, generator())
    assert found == pytest.approx((expected.low, expected.high), abs=0.015)


# Highlights


def test_highlights_by_hand() -> None:
    """Errors of 1 each, so t = difference / sqrt(2) with 18 degrees of freedom.

    2.4 below the best, t is 1.697 and the one-sided p 0.053; 2.5 below, 1.768 and 0.047.
    """
    sd = math.sqrt(10)
    samples = {"best": Sample(10, sd, 10), "no worse": Sample(7.6, sd, 10)}
    assert highlighted({**samples, "worse": Sample(7.5, sd, 10)}) == {"best", "no worse"}


def test_the_test_of_highlights_is_scipys() -> None:
    """From samples that agree to ones far apart, so that it crosses 0.05 on the way."""
    a, b = scores(8, 1)[:, 0], scores(10, 1)[:, 0]
    sure = []
    for below in range(0, 60, 2):
        lower = b - b.mean() + a.mean() - below
        p = stats.ttest_ind(a, lower, equal_var=False, alternative="greater").pvalue
        sure.append(bool(p < 0.05))
        found = highlighted({"a": Sample.of(a), "b": Sample.of(lower)})
        assert found == ({"a"} if sure[-1] else {"a", "b"})
    assert 5 < sum(sure) < 25


def test_highlights_at_the_edges() -> None:
    assert highlighted({"one seed": Sample.of([3])}) == {"one seed"}
    same = {"a": Sample(5, 0, 3), "b": Sample(5, 0, 3), "c": Sample(4.9, 0, 3)}
    assert highlighted(same) == {"a", "b"}
    with pytest.raises(ValueError, match="no samples"):
        highlighted({})
    with pytest.raises(ValueError, match=r"b: 1 seed, sd nan; Welch's test needs two"):
        highlighted({"a": Sample(5, 1, 3), "b": Sample.of([3])})
    with pytest.raises(ValueError, match="b: the mean is nan"):
        highlighted({"a": Sample(5, 1, 3), "b": Sample(math.nan, 1, 3)})


# Highlighted in Tables 1 and 2, beside the highest.
ALSO_HIGHLIGHTED: dict[tuple[Hashable, ...], set[str]] = {
    ("Hopper", 300_000): {"TD7"},
    ("Hopper", 1_000_000): {"TD7"},
    ("Hopper", 5_000_000): {"TQC"},
    ("Ant", 300_000): {"TD7"},
    ("Hopper", "Medium-Replay"): {"X-QL", "TD7"},
    ("Hopper", "Medium-Expert"): {"TD3+BC"},
    ("Walker2d", "Medium"): {"TD3+BC", "IQL"},
}
# By the caption's rule they would be, too: one-sided p of 0.08 and 0.09.
NOT_REPRODUCED: dict[tuple[Hashable, ...], set[str]] = {("Hopper", 1_000_000): {"TD3", "TD3+OFE"}}
# And by the same rule, two-sided.
NOT_TWO_SIDED: dict[tuple[Hashable, ...], set[str]] = {
    ("Hopper", 1_000_000): {"TD3", "TD3+OFE", "SAC"},
    ("Hopper", 5_000_000): {"TD3+OFE"},
    ("Walker2d", 5_000_000): {"TQC"},
}


@pytest.mark.parametrize(
    ("table", "columns", "mean"),
    [
        ("online", ["environment", "time_step"], "mean"),
        ("offline", ["environment", "dataset"], "normalized_score"),
    ],
)
def test_the_papers_highlights(table: str, columns: list[str], mean: str) -> None:
    for key, rows in paper.table(table).groupby(columns):
        samples = {
            name: Sample.printed(value, interval, paper.SEEDS)
            for name, value, interval in zip(
                rows["algorithm"], rows[mean], rows["ci95"], strict=True
            )
        }
        best = max(samples, key=lambda name: samples[name].mean)
        printed = {best} | ALSO_HIGHLIGHTED.get(key, set())
        assert highlighted(samples) == printed | NOT_REPRODUCED.get(key, set()), key
        two_sided = {name for name, s in samples.items() if welch(s, samples[best]) >= 0.05}
        assert two_sided == printed | NOT_TWO_SIDED.get(key, set()), key


# Percent loss and normalised means


def test_percent_loss_by_hand() -> None:
    """References of 10 and 100. Losses of 20 and 40% on task 1, 0 and -10% on task 2."""
    found = percent_loss([[9, 100], [11, 100], [10, 100]], [[8, 100], [6, 110]])
    assert found.mean == pytest.approx(12.5)  # seeds: 10 and 15
    assert found.interval == pytest.approx(1.96 * 2.5)
    assert found.n == 2


def test_percent_loss_at_the_edges() -> None:
    matrix = scores()
    assert percent_loss(matrix, matrix).mean == pytest.approx(0)
    alone = percent_loss([[10]], [[5]])
    assert alone.mean == 50
    assert math.isnan(alone.interval)
    with pytest.raises(ValueError, match="reference has 3 tasks, variant 2"):
        percent_loss(matrix, matrix[:, :2])
    with pytest.raises(ValueError, match="task 1: no share of -2, which is not positive"):
        percent_loss([[1, -2]], [[1, 1]])


def printed_design() -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Variants, means and intervals [variants, tasks] of the design study's table."""
    rows = paper.table("design")
    variants = list(dict.fromkeys(rows["variant"]))
    means, intervals = (rows[name].to_numpy(float).reshape(-1, 5) for name in ("mean", "ci95"))
    return variants, means, intervals


def test_the_papers_percent_losses() -> None:
    """All 21 from the printed means, against TD7 without checkpoints, to the printed digit."""
    variants, means, _ = printed_design()
    assert variants[:2] == ["TD7 (no checkpoints)", "TD3"]
    printed = paper.table("design_percent_loss")["mean_percent_loss_1M"]
    found = [percent_loss(means[:1], [row]).mean for row in means[2:]]
    assert len(found) == 21
    assert found == pytest.approx(list(printed), abs=0.055)  # 0.05, and the means' own rounding


def test_the_papers_intervals_of_percent_losses() -> None:
    """They cannot be recomputed without the seeds; what is printed fits our definition.

    A mean over tasks of every seed has an interval below the mean of the tasks' intervals, and if
    tasks are independent, a squared one around sum(interval²) / 25. The printed ones average 1.07
    of that, from 0.46 to 1.93: too far apart for a formula of the tasks' intervals alone, and a
    quarter of it if the bracket were the whole range. With the reference's own spread, 0.71.
    """
    _, means, intervals = printed_design()
    printed = paper.table("design_percent_loss")["ci95_range"].to_numpy(float)
    tasks = 100 * intervals[2:] / means[0]
    assert (printed < tasks.mean(axis=1)).all()
    shares = printed**2 / ((tasks**2).sum(axis=1) / 25)
    assert shares.mean() == pytest.approx(1.07, abs=0.005)
    assert (shares.min(), shares.max()) == pytest.approx((0.46, 1.93), abs=0.005)
    reference = 100 * intervals[0] / means[0]
    paired = printed**2 / ((tasks**2 + reference**2).sum(axis=1) / 25)
    assert paired.mean() == pytest.approx(0.71, abs=0.005)


@pytest.mark.parametrize(
    ("step", "gain"),
    [
        (5_000_000, 50.7),  # as the abstract has it
        (300_000, 234.2),  # the abstract has 276.7, which Table 1 does not give
    ],
)
def test_the_abstracts_gains_over_td3(step: int, gain: float) -> None:
    rows = paper.table("online")
    rows = rows[rows["time_step"] == step]
    td3, td7 = ([list(rows[rows["algorithm"] == name]["mean"])] for name in ("TD3", "TD7"))
    assert -percent_loss(td3, td7).mean == pytest.approx(gain, abs=0.055)


def test_normalised_by_hand() -> None:
    """Seed 1: (10 / 20 + 30 / 10) / 2 = 1.75; seed 2: (20 / 20 + 15 / 10) / 2 = 1.25."""
    found = normalised([[10, 30], [20, 15]], [20, 10])
    assert found.mean == 1.5
    assert found.sd == pytest.approx(math.sqrt(2 * 0.25**2))
    assert math.isnan(normalised([[10, 30]], [20, 10]).interval)


def test_normalised_is_what_percent_loss_leaves() -> None:
    reference, variant = scores(), scores(7)[::-1] - 10
    found, loss = normalised(variant, reference.mean(axis=0)), percent_loss(reference, variant)
    assert 100 * (1 - found.mean) == pytest.approx(loss.mean)
    assert 100 * found.interval == pytest.approx(loss.interval)


def test_normalised_needs_a_positive_baseline_of_every_task() -> None:
    with pytest.raises(ValueError, match="scores of 2 tasks, a baseline of 3"):
        normalised([[1, 2]], [1, 2, 3])
    with pytest.raises(ValueError, match="task 1: no share of 0, which is not positive"):
        normalised([[1, 2]], [1, 0])


# Curves


def test_smoothing_by_hand() -> None:
    """With one, then two, then three; from there on the last three."""
    assert smoothed([3, 5, 10, 0, 2], window=3).tolist() == [3, 4, 6, 5, 4]
    assert smoothed([3, 5, 10], window=1).tolist() == [3, 5, 10]
    assert smoothed(np.arange(12.0))[[0, 8, 9, 10, 11]].tolist() == [0, 4, 4.5, 5.5, 6.5]


def test_smoothing_is_each_seeds_own_and_numpys() -> None:
    curves = scores(3, 25)
    found = smoothed(curves)
    for row, curve in zip(found, curves, strict=True):
        assert row[9:] == pytest.approx(np.convolve(curve, np.full(10, 0.1), "valid"))
    assert found.mean(axis=0) == pytest.approx(smoothed(curves.mean(axis=0)))
    with pytest.raises(ValueError, match="a window of 0 evaluations"):
        smoothed([1, 2], window=0)


def test_time_to_reach_by_hand() -> None:
    """The first at or above, though it falls again."""
    steps = [0, 5_000, 10_000, 15_000]
    for score, step in {7: 5_000, 7.5: 15_000, 1: 0, 10: None}.items():
        assert times_to_reach(steps, [[1, 7, 3, 9]], score) == (step,)
    assert times_to_reach(steps, [[1, 7, 3, 9], [0, 0, 0, 0]], 2) == (5_000, None)


def test_time_to_reach_needs_a_step_of_every_evaluation() -> None:
    with pytest.raises(ValueError, match="2 steps, but 3 evaluations"):
        times_to_reach([0, 1], [[1, 2, 3]], 2)
    with pytest.raises(ValueError, match="steps: step 5 follows 5; steps must increase"):
        times_to_reach([0, 5, 5], [[1, 2, 3]], 2)
    with pytest.raises(ValueError, match="a score of nan is never reached"):
        times_to_reach([0, 5], [[1, 2]], math.nan)


def test_drops_by_hand() -> None:
    """100, 70, 100, 20, 90, 90: falls to the next of 30, none, 80, none and 0%."""
    curve = [100, 70, 100, 20, 90, 90]
    assert drops(curve, percent=0, within=1) == 2 / 5
    assert drops(curve, percent=29, within=1) == 2 / 5
    assert drops(curve, percent=30, within=1) == 1 / 5  # more than 30%, not 30%
    assert drops(curve, percent=80, within=1) == 0
    # The lowest of the next three: 20 after 100, 70 and 100, as 1 - 20 / 70 = 71%.
    assert drops(curve, percent=75, within=3) == 2 / 3
    assert drops(curve, percent=50, within=3) == 1
    # The worst fall counts from the evaluation itself, not from the one before the fall.
    assert drops([100, 60, 36, 36], percent=50, within=2) == 1 / 2


def test_drops_of_several_seeds_are_their_mean() -> None:
    curves = scores(4, 30)
    expected = np.mean([drops(curve, 20, 5) for curve in curves])
    assert drops(curves, 20, 5) == pytest.approx(expected)


def test_drops_leave_out_what_has_no_percentage() -> None:
    assert drops([5, -3], 10, 1) == 1  # what is fallen to may be negative
    assert drops([5, -3, -9, 0, 5, 5], 10, 1) == 1 / 2  # after the first and the fifth only
    with pytest.raises(ValueError, match="no percentage of returns of at most 0"):
        drops([-5, 0, 5], 10, 1)
    for within in (0, 3):
        with pytest.raises(ValueError, match=f"within {within} evaluations; allowed: 1 to 2"):
            drops([5, 4, 3], 10, within)


# Alignment


def test_common_by_hand() -> None:
    curves = {
        7: [(0, 1.0), (10, 2.0), (20, 3.0), (3000, 4.0)],
        8: [(0, 5.0), (20, 6.0)],
        9: [(0, 7.0), (5, 0.0), (20, 8.0), (3000, 9.0)],
    }
    found = common(curves)
    assert found.seeds == (7, 8, 9)
    assert found.steps == (0, 20)
    assert found.values.tolist() == [[1, 3], [5, 6], [7, 8]]
    assert found.left_out == (
        "seed 7: 2 of 4 evaluations left out (steps 10 to 3,000), not in seed 8, 9",
        "seed 9: 2 of 4 evaluations left out (steps 5 to 3,000), not in seed 7, 8",
    )


def test_common_says_nothing_when_nothing_is_left_out() -> None:
    found = common({0: [(0, 1.0), (5, 2.0)], 1: [(0, 3.0), (5, 4.0)]})
    assert found.left_out == ()
    assert found.values.tolist() == [[1, 2], [3, 4]]
    assert common({3: [(0, 1.0)]}).seeds == (3,)


def test_common_tells_of_a_single_evaluation() -> None:
    found = common({0: [(0, 1.0), (5_000, 2.0)], 1: [(0, 3.0)]})
    line = "seed 0: 1 of 2 evaluations left out (step 5,000), not in seed 1"
    assert found.left_out == (line,)


def test_common_tells_every_evaluation_it_leaves_out() -> None:
    """Of random gaps: what is kept and what the lines count is all there was."""
    random = generator()
    curves = {
        seed: [(step, 1.0) for step in range(20) if step == 7 or random.random() < 0.9]
        for seed in range(4)
    }
    found = common(curves)
    told = sum(int(line.split()[2]) for line in found.left_out)
    assert told > 0
    assert told + found.values.size == sum(len(curve) for curve in curves.values())


def test_common_refuses() -> None:
    with pytest.raises(ValueError, match="no curves"):
        common({})
    with pytest.raises(ValueError, match=r"no step is common .*; evaluations of seed 0: 1, seed 1"):
        common({0: [(0, 1.0)], 1: []})
    with pytest.raises(ValueError, match="seed 4: step 10 follows 10; steps must increase"):
        common({4: [(10, 1.0), (10, 2.0)]})
    with pytest.raises(ValueError, match=r"returns: 1 of 2 not finite; first nan at \[1, 0\]"):
        common({0: [(0, 1.0)], 1: [(0, math.nan)]})


# What every function of arrays refuses

OF_SCORES: dict[str, Callable[[Any], object]] = {
    "iqm": iqm,
    "iqm_interval": lambda given: iqm_interval(given, generator()),
    "improvement, a": lambda given: probability_of_improvement(given, scores()),
    "improvement, b": lambda given: probability_of_improvement(scores(), given),
    "improvement_interval": lambda given: probability_of_improvement_interval(
        given, scores(), generator()
    ),
    "normalised": lambda given: normalised(given, [1, 1, 1]),
    "percent_loss, reference": lambda given: percent_loss(given, scores()),
    "percent_loss, variant": lambda given: percent_loss(scores(), given),
}
OF_CURVES: dict[str, Callable[[Any], object]] = {
    "smoothed": smoothed,
    "times_to_reach": lambda given: times_to_reach(range(3), given, 1),
    "drops": lambda given: drops(given, 10, 1),
}
BAD = {
    "nan": ([[1, 2, 3], [4, math.nan, 6]], r"1 of 6 not finite; first nan at \[1, 1\]"),
    "infinite": ([[math.inf, 2, 3], [4, 5, -math.inf]], r"2 of 6 not finite; first inf"),
    "ragged": ([[1, 2, 3], [4, 5]], "gaps or unequal lengths"),
    "empty": (np.empty((0, 3)), r"empty, of shape \[0, 3\]"),
    "too deep": ([[[1.0]]], r"of shape \[1, 1, 1\]; needed: \["),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("function", [*OF_SCORES, *OF_CURVES])
def test_refused(function: str, bad: str) -> None:
    given, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        (OF_SCORES | OF_CURVES)[function](given)


@pytest.mark.parametrize("function", [*OF_SCORES, *OF_CURVES])
def test_not_refused(function: str) -> None:
    """So that a refusal above is about what is bad."""
    (OF_SCORES | OF_CURVES)[function]([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("function", OF_SCORES)
def test_scores_are_matrices(function: str) -> None:
    with pytest.raises(ValueError, match=r"of shape \[3\]; needed: \[seeds, tasks\]"):
        OF_SCORES[function]([1, 2, 3])


@pytest.mark.parametrize("function", ["iqm_interval", "improvement_interval"])
def test_a_bootstrap_needs_two_seeds(function: str) -> None:
    with pytest.raises(ValueError, match="one seed has no interval"):
        OF_SCORES[function]([[1, 2, 3]])

"""Statistics: by hand, and compared with SciPy's."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from td7.statistics import (
    Interval,
    Sample,
    common,
    difference_interval,
    drops,
    has_welch,
    highlighted,
    improvement_over_tasks,
    improvement_over_tasks_interval,
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


def test_a_printed_mean_and_interval_give_the_sample_back() -> None:
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


def test_the_interval_of_a_difference_by_hand() -> None:
    """Errors of 1 each: t of 18 degrees of freedom is 2.1009 in tables, times sqrt(2) is 2.971."""
    sd = math.sqrt(10)
    interval = difference_interval(Sample(10, sd, 10), Sample(6, sd, 10))
    assert interval == pytest.approx((4 - 2.971, 4 + 2.971), abs=1e-3)
    # Without a spread of b: the errors are a's alone, and so are the 9 degrees of freedom, 2.2622.
    interval = difference_interval(Sample(10, sd, 10), Sample(6, 0, 3))
    assert interval == pytest.approx((4 - 2.262, 4 + 2.262), abs=1e-3)


def test_the_interval_of_a_difference_is_scipys_and_agrees_with_p() -> None:
    a, b = scores(10)[:, 0], scores(7)[:, 1]
    test = stats.ttest_ind(a, b, equal_var=False)
    interval = difference_interval(Sample.of(a), Sample.of(b))
    assert interval == pytest.approx(tuple(test.confidence_interval(0.95)))
    at_the_edge = Sample.of(a - interval.low)
    assert welch(at_the_edge, Sample.of(b)) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("a", "b"), [([1], [1, 2]), ([1, 2], [3]), ([1], [2]), ([1, 1], [2, 2]), ([1, 1], [1, 1])]
)
def test_differences_without_a_test(a: list[float], b: list[float]) -> None:
    samples = Sample.of(a), Sample.of(b)
    assert not has_welch(*samples)
    with pytest.raises(ValueError, match="no interval of sd"):
        difference_interval(*samples)


def test_rank_correlation_by_hand() -> None:
    """Ranks 1 2 3 4 and 2 1 3 4: squared differences 1 + 1; 1 - 6 * 2 / (4 * (16 - 1))."""
    assert rank_correlation([10, 20, 30, 40], [0.2, 0.1, 7, 8]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert math.isnan(rank_correlation([1, 2, 3], [5, 5, 5]))
    with pytest.raises(ValueError, match="a has 2 numbers, b 3"):
        rank_correlation([1, 2], [1, 2, 3])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def scores(seeds: int = 10, tasks: int = 3) -> NDArray[np.float64]:
    """Random numbers, with another scale for every task."""
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
    """0, 1, 2, 3, 4, 5, 6, 700 lose two at either end: (2 + 3 + 4 + 5) / 4."""
    assert iqm([[700, 1], [2, 4], [3, 5], [6, 0]]) == 3.5
    assert iqm([[1, 2, 9]]) == 4  # a quarter of three numbers is none


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 3), (10, 5)])
def test_the_interquartile_mean_is_scipys(shape: tuple[int, int]) -> None:
    matrix = scores(*shape)
    assert iqm(matrix) == pytest.approx(stats.trim_mean(matrix.ravel(), 0.25))


def test_the_interval_of_the_iqm_draws_within_tasks() -> None:
    """Resampling equal seeds changes nothing, however much the tasks differ."""
    assert iqm_interval([[1, 100], [1, 100]], generator()) == Interval(50.5, 50.5)


def test_the_interval_of_the_iqm_by_hand() -> None:
    """Scores of 0 and 4 on one task: means of 0, 2 and 4 with probabilities 1/4, 1/2, 1/4."""
    assert iqm_interval([[0], [4]], generator()) == Interval(0, 4)


def test_the_interval_of_the_iqm_is_scipys() -> None:
    matrix = scores()

    def statistic(*tasks: Any, axis: int) -> Any:
        return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    expected = stats.bootstrap(  # resamples every task independently
        tuple(matrix.T), statistic, n_resamples=10_000, method="percentile", rng=1
    ).confidence_interval
    interval = iqm_interval(matrix, generator())
    assert interval == pytest.approx((expected.low, expected.high), rel=0.01)
    assert interval.low < iqm(matrix) < interval.high


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
    """a is always above b on task 1 and always below on task 2: resampling changes nothing."""
    a, b = [[10, 1], [11, 2]], [[0, 90], [1, 91], [2, 92]]
    interval = probability_of_improvement_interval(a, b, generator())
    assert interval == Interval(0.5, 0.5)


def test_improvement_over_tasks_with_different_seeds() -> None:
    """Task 1: 1 and 3 over 2, 3, 0: 3.5 of 6. Task 2: 5 over 4, 9: 1 of 2."""
    tasks = [([1, 3], [2, 3, 0]), ([5], [4, 9])]
    assert improvement_over_tasks(tasks) == pytest.approx((3.5 / 6 + 1 / 2) / 2)
    with pytest.raises(ValueError, match="one seed has no interval"):
        improvement_over_tasks_interval(tasks, generator())


def test_improvement_over_tasks_is_that_of_matrices() -> None:
    a, b = scores(10), scores(7)[::-1] + 10
    tasks = list(zip(a.T, b.T, strict=True))
    assert improvement_over_tasks(tasks) == pytest.approx(probability_of_improvement(a, b))
    expected = probability_of_improvement_interval(a, b, generator())
    interval = improvement_over_tasks_interval(tasks, generator())
    assert interval == pytest.approx(expected, abs=0.015)  # of other resamples


def test_the_interval_of_improvement_is_scipys() -> None:
    a, b = scores(10), scores(7)[::-1] + 10

    def statistic(*columns: Any) -> float:
        return probability_of_improvement(np.stack(columns[:3], 1), np.stack(columns[3:], 1))

    expected = stats.bootstrap(
        (*a.T, *b.T), statistic, n_resamples=4000, vectorized=False, method="percentile", rng=1
    ).confidence_interval
    interval = probability_of_improvement_interval(a, b, generator())
    assert interval == pytest.approx((expected.low, expected.high), abs=0.015)


# Highlights


def test_highlights_by_hand() -> None:
    """Errors of 1 each, so t = difference / sqrt(2) with 18 degrees of freedom.

    2.4 below the best, t is 1.697 and the one-sided p 0.053; 2.5 below, 1.768 and 0.047.
    """
    sd = math.sqrt(10)
    samples = {"best": Sample(10, sd, 10), "no worse": Sample(7.6, sd, 10)}
    assert highlighted({**samples, "worse": Sample(7.5, sd, 10)}) == {"best", "no worse"}


def test_the_test_of_highlights_is_scipys() -> None:
    """From equal means to distant ones, so that p crosses 0.05."""
    a, b = scores(8, 1)[:, 0], scores(10, 1)[:, 0]
    significant = []
    for below in range(0, 60, 2):
        lower = b - b.mean() + a.mean() - below
        p = stats.ttest_ind(a, lower, equal_var=False, alternative="greater").pvalue
        significant.append(bool(p < 0.05))
        names = highlighted({"a": Sample.of(a), "b": Sample.of(lower)})
        assert names == ({"a"} if significant[-1] else {"a", "b"})
    assert 5 < sum(significant) < 25


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


# Percent loss and normalised means


def test_percent_loss_by_hand() -> None:
    """References of 10 and 100. Losses of 20 and 40% on task 1, 0 and -10% on task 2."""
    loss = percent_loss([[9, 100], [11, 100], [10, 100]], [[8, 100], [6, 110]])
    assert loss.mean == pytest.approx(12.5)  # seeds: 10 and 15
    assert loss.interval == pytest.approx(1.96 * 2.5)
    assert loss.n == 2


def test_percent_loss_at_the_edges() -> None:
    matrix = scores()
    assert percent_loss(matrix, matrix).mean == pytest.approx(0)
    alone = percent_loss([[10]], [[5]])
    assert alone.mean == 50
    assert math.isnan(alone.interval)
    with pytest.raises(ValueError, match="reference has 3 tasks, variant 2"):
        percent_loss(matrix, matrix[:, :2])
    with pytest.raises(ValueError, match="task 1: cannot divide by -2, which is not positive"):
        percent_loss([[1, -2]], [[1, 1]])


def test_normalised_by_hand() -> None:
    """Seed 1: (10 / 20 + 30 / 10) / 2 = 1.75; seed 2: (20 / 20 + 15 / 10) / 2 = 1.25."""
    ratio = normalised([[10, 30], [20, 15]], [20, 10])
    assert ratio.mean == 1.5
    assert ratio.sd == pytest.approx(math.sqrt(2 * 0.25**2))
    assert math.isnan(normalised([[10, 30]], [20, 10]).interval)


def test_normalised_is_the_complement_of_percent_loss() -> None:
    reference, variant = scores(), scores(7)[::-1] - 10
    ratio, loss = normalised(variant, reference.mean(axis=0)), percent_loss(reference, variant)
    assert 100 * (1 - ratio.mean) == pytest.approx(loss.mean)
    assert 100 * ratio.interval == pytest.approx(loss.interval)


def test_normalised_needs_a_positive_baseline_of_every_task() -> None:
    with pytest.raises(ValueError, match="scores have 2 tasks, the baseline 3"):
        normalised([[1, 2]], [1, 2, 3])
    with pytest.raises(ValueError, match="task 1: cannot divide by 0, which is not positive"):
        normalised([[1, 2]], [1, 0])


# Curves


def test_smoothing_by_hand() -> None:
    """Windows of one, two and three evaluations; then always the last three."""
    assert smoothed([3, 5, 10, 0, 2], window=3).tolist() == [3, 4, 6, 5, 4]
    assert smoothed([3, 5, 10], window=1).tolist() == [3, 5, 10]
    assert smoothed(np.arange(12.0))[[0, 8, 9, 10, 11]].tolist() == [0, 4, 4.5, 5.5, 6.5]


def test_smoothing_treats_each_seed_as_numpy_does() -> None:
    curves = scores(3, 25)
    rows = smoothed(curves)
    for row, curve in zip(rows, curves, strict=True):
        assert row[9:] == pytest.approx(np.convolve(curve, np.full(10, 0.1), "valid"))
    assert rows.mean(axis=0) == pytest.approx(smoothed(curves.mean(axis=0)))
    with pytest.raises(ValueError, match="a window of 0 evaluations"):
        smoothed([1, 2], window=0)


def test_time_to_reach_by_hand() -> None:
    """The first evaluation at or above the score, even if later ones are below."""
    steps = [0, 5_000, 10_000, 15_000]
    for score, step in {7: 5_000, 7.5: 15_000, 1: 0, 10: None}.items():
        assert times_to_reach(steps, [[1, 7, 3, 9]], score) == (step,)
    assert times_to_reach(steps, [[1, 7, 3, 9], [0, 0, 0, 0]], 2) == (5_000, None)


def test_time_to_reach_needs_a_step_of_every_evaluation() -> None:
    with pytest.raises(ValueError, match="2 steps, but 3 evaluations"):
        times_to_reach([0, 1], [[1, 2, 3]], 2)
    with pytest.raises(ValueError, match="steps: step 5 follows 5; steps must increase"):
        times_to_reach([0, 5, 5], [[1, 2, 3]], 2)
    with pytest.raises(ValueError, match="a score of nan cannot be reached"):
        times_to_reach([0, 5], [[1, 2]], math.nan)


def test_drops_by_hand() -> None:
    """100, 70, 100, 20, 90, 90: drops to the next of 30, none, 80, none and 0%."""
    curve = [100, 70, 100, 20, 90, 90]
    assert drops(curve, percent=0, within=1) == 2 / 5
    assert drops(curve, percent=29, within=1) == 2 / 5
    assert drops(curve, percent=30, within=1) == 1 / 5  # more than 30%, not 30%
    assert drops(curve, percent=80, within=1) == 0
    # The lowest of the next three: 20 after 100, 70 and 100, as 1 - 20 / 70 = 71%.
    assert drops(curve, percent=75, within=3) == 2 / 3
    assert drops(curve, percent=50, within=3) == 1
    # The lowest counts from the evaluation itself, not from the one before the lowest.
    assert drops([100, 60, 36, 36], percent=50, within=2) == 1 / 2


def test_drops_of_several_seeds_are_their_mean() -> None:
    curves = scores(4, 30)
    expected = np.mean([drops(curve, 20, 5) for curve in curves])
    assert drops(curves, 20, 5) == pytest.approx(expected)


def test_drops_leave_out_evaluations_that_are_not_positive() -> None:
    assert drops([5, -3], 10, 1) == 1  # the lower one may be negative
    assert drops([5, -3, -9, 0, 5, 5], 10, 1) == 1 / 2  # after the first and the fifth only
    with pytest.raises(ValueError, match="drops need positive returns; the highest is 0"):
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
    aligned = common(curves)
    assert aligned.seeds == (7, 8, 9)
    assert aligned.steps == (0, 20)
    assert aligned.values.tolist() == [[1, 3], [5, 6], [7, 8]]
    assert aligned.left_out == (
        "seed 7: 2 of 4 evaluations left out (steps 10 to 3,000), missing in seed 8, 9",
        "seed 9: 2 of 4 evaluations left out (steps 5 to 3,000), missing in seed 7, 8",
    )


def test_common_notes_nothing_if_nothing_is_left_out() -> None:
    aligned = common({0: [(0, 1.0), (5, 2.0)], 1: [(0, 3.0), (5, 4.0)]})
    assert aligned.left_out == ()
    assert aligned.values.tolist() == [[1, 2], [3, 4]]
    assert common({3: [(0, 1.0)]}).seeds == (3,)


def test_common_notes_a_single_evaluation() -> None:
    aligned = common({0: [(0, 1.0), (5_000, 2.0)], 1: [(0, 3.0)]})
    line = "seed 0: 1 of 2 evaluations left out (step 5,000), missing in seed 1"
    assert aligned.left_out == (line,)


def test_common_notes_every_evaluation_that_it_leaves_out() -> None:
    """With random gaps, the evaluations kept and those noted add up to all."""
    random = generator()
    curves = {
        seed: [(step, 1.0) for step in range(20) if step == 7 or random.random() < 0.9]
        for seed in range(4)
    }
    aligned = common(curves)
    noted = sum(int(line.split()[2]) for line in aligned.left_out)
    assert noted > 0
    assert noted + aligned.values.size == sum(len(curve) for curve in curves.values())


def test_common_rejects_curves_that_cannot_be_aligned() -> None:
    with pytest.raises(ValueError, match="no curves"):
        common({})
    with pytest.raises(
        ValueError, match=r"no step is common .*; numbers of evaluations: seed 0: 1, seed 1"
    ):
        common({0: [(0, 1.0)], 1: []})
    with pytest.raises(ValueError, match="seed 4: step 10 follows 10; steps must increase"):
        common({4: [(10, 1.0), (10, 2.0)]})
    with pytest.raises(
        ValueError, match=r"returns: 1 of 2 are not finite; the first is nan at \[1, 0\]"
    ):
        common({0: [(0, 1.0)], 1: [(0, math.nan)]})


# What every function of arrays rejects

OF_SCORES: dict[str, Callable[[Any], object]] = {
    "iqm": iqm,
    "iqm_interval": lambda x: iqm_interval(x, generator()),
    "improvement, a": lambda x: probability_of_improvement(x, scores()),
    "improvement, b": lambda x: probability_of_improvement(scores(), x),
    "improvement_interval": lambda x: probability_of_improvement_interval(x, scores(), generator()),
    "normalised": lambda x: normalised(x, [1, 1, 1]),
    "percent_loss, reference": lambda x: percent_loss(x, scores()),
    "percent_loss, variant": lambda x: percent_loss(scores(), x),
}
OF_CURVES: dict[str, Callable[[Any], object]] = {
    "smoothed": smoothed,
    "times_to_reach": lambda x: times_to_reach(range(3), x, 1),
    "drops": lambda x: drops(x, 10, 1),
}
BAD = {
    "nan": ([[1, 2, 3], [4, math.nan, 6]], r"1 of 6 are not finite; the first is nan at \[1, 1\]"),
    "infinite": ([[math.inf, 2, 3], [4, 5, -math.inf]], r"2 of 6 are not finite; the first is inf"),
    "ragged": ([[1, 2, 3], [4, 5]], "gaps or unequal lengths"),
    "empty": (np.empty((0, 3)), r"empty, with shape \[0, 3\]"),
    "too deep": ([[[1.0]]], r"the shape is \[1, 1, 1\]; needed: \["),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("function", [*OF_SCORES, *OF_CURVES])
def test_bad_numbers_are_rejected(function: str, bad: str) -> None:
    numbers, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        (OF_SCORES | OF_CURVES)[function](numbers)


@pytest.mark.parametrize("function", [*OF_SCORES, *OF_CURVES])
def test_good_numbers_are_accepted(function: str) -> None:
    """So a rejection above is due to the bad numbers."""
    (OF_SCORES | OF_CURVES)[function]([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("function", OF_SCORES)
def test_scores_are_matrices(function: str) -> None:
    with pytest.raises(ValueError, match=r"the shape is \[3\]; needed: \[seeds, tasks\]"):
        OF_SCORES[function]([1, 2, 3])


@pytest.mark.parametrize("function", ["iqm_interval", "improvement_interval"])
def test_a_bootstrap_needs_two_seeds(function: str) -> None:
    with pytest.raises(ValueError, match="one seed has no interval"):
        OF_SCORES[function]([[1, 2, 3]])

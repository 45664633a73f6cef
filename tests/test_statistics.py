"""Statistics, by hand and beside SciPy; the paper's tables as it prints them."""

import math

import numpy as np
import pytest
from scipy import stats

from td7 import paper
from td7.errors import InputError
from td7.statistics import Sample, welch


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


def test_the_papers_table_1() -> None:
    sample = paper.online("TD7", "HalfCheetah", 300_000)
    assert sample is not None
    assert str(sample) == "15031 ± 401"
    assert paper.online("TD7", "Pendulum", 300_000) is None


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

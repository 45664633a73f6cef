"""Statistics of returns over seeds: pure functions of numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Sample:
    """What is known of some seeds' results: their mean, standard deviation and number."""

    mean: float
    sd: float  # with Bessel's correction; nan for one seed
    n: int

    @classmethod
    def of(cls, values: Any) -> "Sample":
        given = np.asarray(values, np.float64)
        sd = float(given.std(ddof=1)) if len(given) > 1 else float("nan")
        return cls(float(given.mean()), sd, len(given))

    @classmethod
    def printed(cls, mean: float, interval: float, n: int) -> "Sample":
        """As a table of the paper prints it, mean ± interval."""
        return cls(mean, interval * np.sqrt(n) / 1.96, n)

    @property
    def interval(self) -> float:
        """The paper's, 1.96 / sqrt(n) * sd."""
        return float(1.96 / np.sqrt(self.n) * self.sd)

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} ± {self.interval:{spec}}"

    def __str__(self) -> str:
        return f"{self:.0f}"


def welch(a: Sample, b: Sample) -> float:
    """The p-value of Welch's t-test, two-sided: could both have the same mean?"""
    result = stats.ttest_ind_from_stats(a.mean, a.sd, a.n, b.mean, b.sd, b.n, equal_var=False)
    return float(result.pvalue)

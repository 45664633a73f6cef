"""Time steps to reach the scores of a baseline."""

from collections.abc import Mapping, Sequence

import numpy as np

from td7.report import paper
from td7.report.result import Result
from td7.report.tables.table import BASELINE, Cell, Table, Value, made_table
from td7.statistics import times_to_reach
from td7.studies.rows import Study


def reaching(study: Study, results: Sequence[Result], notes: list[str]) -> Table | None:
    """When seeds first get to where the paper's TD3 is after its steps."""
    del notes
    records: list[Mapping[str, Value]] = []
    lines = []
    for result in results:
        assert result.curves is not None  # as for every view
        for paper_step in paper.steps(study.table):
            there = paper.printed(study.table, paper_step).get((BASELINE, result.place))
            if there is None:
                continue
            times = times_to_reach(result.curves.steps, result.curves.values, there.mean)
            got_there = sum(time is not None for time in times)
            median = float(np.median([np.inf if time is None else time for time in times]))
            known_median = median if np.isfinite(median) else None
            minutes = None
            if known_median is not None and result.seconds_a_step is not None:
                minutes = known_median * result.seconds_a_step / 60
            records.append(
                {
                    "study": study.name,
                    "row": result.label,
                    "place": result.place,
                    "score": there.mean,
                    "paper_step": paper_step,
                    "seeds": len(result.seeds),
                    "seeds_reaching": got_there,
                    "median_steps": known_median,
                    "minutes": minutes,
                }
            )
            score = f"{there.mean:.0f}, at {paper_step:,}"
            share = f"{got_there} of {len(result.seeds)}"
            steps = f"> {result.last:,}" if known_median is None else f"{known_median:,.0f}"
            said = "–" if minutes is None else f"{minutes:.1f}"
            words = (result.label, result.where, score, share, steps, said)
            lines.append(tuple(Cell(word) for word in words))
    caption = (
        f"Steps before the first evaluation that has a seed where the paper's {BASELINE} is after "
        "its steps: the median over seeds, where those that never get there count as later than "
        "all. Minutes: at the run's milliseconds a step, all seeds together."
    )
    header = ("row", "task", f"{BASELINE}'s score", "seeds that reach it", "steps", "minutes")
    title = f"Steps to {BASELINE}'s scores: {study.title}"
    return made_table(study, "reaching", title, caption, header, lines, records)

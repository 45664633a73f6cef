"""The page of a search: SEARCH/report.html, which needs nothing else."""

import html
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from statistics import median
from urllib.parse import quote

from td7.errors import InputError
from td7.files import check_no_link, make_folder, write
from td7.reports.formats import csv_cell
from td7.reports.html import whole_page
from td7.reports.parts import scrollable
from td7.reports.result import plain
from td7.reports.tables.table import NOTHING, Cell
from td7.reports.write import WrittenReport
from td7.runs.record import total_seconds
from td7.statistics import Sample
from td7.training.progress import duration
from td7.tuning.charts import chart_data, curves, panels
from td7.tuning.folder import wave_folder
from td7.tuning.progress import ranked, score_text, value_text
from td7.tuning.result import Search
from td7.tuning.trials import Trial

PAGE, TABLE = "report.html", "trials.csv"
FRESH_SEEDS = 10
MOST_LINES = 30  # of a table that is shown without a click
TITLES = {
    "best": "The best trial",
    "figures": "Hyperparameters",
    "curves": "The best trials",
    "trials": "All trials",
    "waves": "Rungs and waves",
}


def write_search(search: Search, out: Path | None = None) -> WrittenReport:
    """Write the page and the table of all trials into a folder, by default the search's own."""
    folder = search.path if out is None else out
    make_folder(folder)
    texts = {PAGE: page(search), TABLE: as_csv(search)}
    for name, text in texts.items():
        check_no_link(folder / name)
        write(folder / name, text.encode())
    files = tuple(folder / name for name in texts)
    return WrittenReport(files[0], files, summary(search), notes=())


def as_csv(search: Search) -> str:
    """trials.csv."""
    table = search.trials
    for name in table:
        table[name] = [csv_cell(value) for value in table[name]]
    return str(table.to_csv(lineterminator="\n"))


def page(search: Search) -> str:
    """The whole page: what was found first, how it was found last."""
    shown = curves(search)
    has_scores = any(trial.scores for trial in search.all)
    bodies = {
        "best": _best(search),
        "figures": _figures(search) if has_scores else "",
        "curves": _curves(search) if shown else "",
        "trials": _trials(search),
        "waves": _rungs(search) + _waves(search),
    }
    return whole_page(
        title=f"Search: {plain(search.title)}",
        summary=summary(search),
        links={name: TITLES[name] for name, body in bodies.items() if body},
        sections=[
            f'<section id="{name}" aria-labelledby="{name}-title">\n'
            f'<h2 id="{name}-title">{TITLES[name]}</h2>\n{body}\n</section>'
            for name, body in bodies.items()
            if body
        ],
        data=chart_data(search, shown),
    )


def summary(search: Search) -> str:
    """The number of trials and seeds, how they ended, and their time."""
    options, trials = search.record.options, search.all
    finished, pruned = (
        sum(trial.state == state for trial in trials) for state in ("finished", "pruned")
    )
    seconds = [_seconds(search, number) for number in range(len(search.record.waves))]
    return (
        f"{len(trials)} of {options.trials} trials with {_count(len(options.seeds), 'seed')} each: "
        f"{finished} to the last step, {pruned} ended early, "
        f"{duration(sum(filter(None, seconds)))} in all."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _unit(search: Search) -> str:
    return "updates" if search.record.options.dataset else "steps"


# -- the best trial ------------------------------------------------------------------------------


def _best(search: Search) -> str:
    """Its values and scores beside the usual ones, and how to make sure of it."""
    last = f"{search.record.rungs[-1]:,} {_unit(search)}"
    best = search.shown().best
    if best is None:
        return f"<p>No trial has come to {last} yet.</p>"
    usual = next((trial for trial in search.all if trial.is_usual), None)
    names = {best.number: "the best"}
    if usual:
        names[usual.number] = "the usual values" if usual != best else "the best: the usual values"
    lines = [
        [
            Cell(f"trial {n}, {name}"),
            *_scores(search, search.all[n]),
            *_values(search, search.all[n]),
        ]
        for n, name in names.items()
    ]
    header = ("trial", *_rung_names(search), *search.record.space)
    return "\n".join(
        [
            f"<p>Trial {best.number} has the highest score after {last}: "
            f"<strong>{html.escape(score_text(best.sample))}</strong>. "
            f"This command trains with its values:</p>",
            _code([search.command]),
            scrollable(header, lines, "", 'aria-labelledby="best-title"'),
            '<p class="faint">A score is the mean return of the last evaluation, averaged over the '
            "seeds, ± 1.96 sd/√n.</p>",
            _check(search, best, usual),
        ]
    )


def _check(search: Search, best: Trial, usual: Trial | None) -> str:
    """How the best trial is compared with the usual values, with seeds that no trial had."""
    fresh = f"--seeds {fresh_seeds(search.record.options.seeds)}"
    lines = [f"{search.command} {fresh} --out runs/best"]
    if usual != best:
        lines.insert(0, f"{search.train_line({})} {fresh} --out runs/usual")
        lines.append("td7 compare runs/usual runs/best")
    return (
        f"<p>The best of {_count(len(search.all), 'trial')} is partly the luckiest, so that its "
        "score is too high an estimate. Fresh seeds give one that is not:</p>\n" + _code(lines)
    )


def fresh_seeds(seeds: Sequence[int]) -> str:
    """Ten seeds after those of the search: `10-19` if those are 0-2."""
    first = FRESH_SEEDS * (max(seeds) // FRESH_SEEDS + 1)
    return f"{first}-{first + FRESH_SEEDS - 1}"


def _code(lines: Iterable[str]) -> str:
    """Commands; a click selects one. Lines break between words, not after hyphens."""
    words = [html.escape(plain(line)).split(" ") for line in lines]
    spans = [" ".join(f"<span>{word}</span>" for word in line) for line in words]
    return "\n".join(f"<pre>{line}</pre>" for line in spans)


# -- figures -------------------------------------------------------------------------------------


def _figures(search: Search) -> str:
    text = (
        "Each point is a trial, at its score after the last rung that it has reached: scores of "
        "different rungs (colours) are those of trainings of different length."
    )
    if search.importances:
        text += (
            " Importance, by Optuna's PED-ANOVA, is the share of each hyperparameter in what tells "
            "the best trials from others at the first rung, which all trials have reached."
        )
    return f'<p class="faint">{text}</p>\n{panels(search)}'


def _curves(search: Search) -> str:
    text = "Means over the seeds and their intervals. Trials end at the last rung that they reach."
    return (
        f'<p class="faint">{text}</p>\n<div data-curves="trials"><p class="faint">Learning curves '
        "need JavaScript.</p></div>"
    )


# -- tables --------------------------------------------------------------------------------------


def _trials(search: Search) -> str:
    """All trials, the best first, and trials.csv."""
    if not search.all:
        return "<p>No trial has begun yet.</p>"
    scored = ranked(search.all)
    others = [trial for trial in search.all if trial not in scored]
    header = ("trial", *_rung_names(search), *search.record.space, "state")
    lines = [
        [
            Cell(str(trial.number)),
            *_scores(search, trial),
            *_values(search, trial),
            Cell(trial.state if trial in scored or trial.state == "running" else "diverged"),
        ]
        for trial in [*scored, *others]
    ]
    table = scrollable(header, lines, 'id="table-trials"', 'aria-labelledby="trials-title"')
    if len(lines) > MOST_LINES:
        table = f"<details><summary>{len(lines)} trials</summary>{table}</details>"
    address = f"data:text/csv;charset=utf-8,{quote(as_csv(search))}"
    link = f'<p class="downloads"><a download="{TABLE}" href="{address}">{TABLE}</a></p>'
    return f"{table}\n{link}"


def _rung_names(search: Search) -> list[str]:
    return [f"{steps:,} {_unit(search)}" for steps in search.record.rungs]


def _scores(search: Search, trial: Trial) -> list[Cell]:
    """At every rung."""
    return [
        Cell(score_text(Sample.of(trial.scores[end])) if end in trial.scores else NOTHING)
        for end in search.record.rungs
    ]


def _values(search: Search, trial: Trial) -> list[Cell]:
    values = [trial.values.get(name, NOTHING) for name in search.record.space]
    return [Cell(plain(value_text(value))) for value in values]


def _rungs(search: Search) -> str:
    """How many trials come to each rung, and its best score."""
    header = ("rung", _unit(search), "trials", "best", "median")
    lines = []
    for i, end in enumerate(search.record.rungs):
        means = [Sample.of(t.scores[end]).mean for t in search.all if end in t.scores]
        means = sorted(mean for mean in means if not isnan(mean))
        numbers = [f"{means[-1]:,.1f}", f"{median(means):,.1f}"] if means else [NOTHING] * 2
        texts = [str(i + 1), f"{end:,}", str(len(means)), *numbers]
        lines.append([Cell(text) for text in texts])
    table = scrollable(header, lines, "", 'aria-labelledby="waves-title"')
    return f"<h3>Rungs</h3>\n{table}\n"


def _waves(search: Search) -> str:
    header = ("wave", "rung", _unit(search), "trials", "time", "folder")
    lines = []
    for number, wave in enumerate(search.record.waves):
        seconds = _seconds(search, number)
        texts = [
            *(str(number + 1), str(wave.rung + 1), f"{search.record.rungs[wave.rung]:,}"),
            *(", ".join(map(str, wave.trials)), duration(seconds) if seconds else NOTHING),
            str(wave_folder(Path(), number)),
        ]
        lines.append([Cell(text) for text in texts])
    table = scrollable(header, lines, "", 'aria-labelledby="waves-title"') if lines else ""
    return f"<h3>Waves</h3>\n{table}"


def _seconds(search: Search, number: int) -> float | None:
    """How long a wave took; None if it has not finished, or its folder is gone."""
    try:
        return total_seconds(wave_folder(search.path, number))
    except (InputError, OSError, ValueError):
        return None

"""The committed results and the documents that show them."""

import csv
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from mini_report import record_of, table_of
from td7.reports.markdown import MARKED, with_tables
from td7.reports.paper import printed
from td7.reports.report import Report, read_report
from td7.reports.tables.table import mean_text
from td7.statistics import Sample, welch
from td7.types import PAPER_TASKS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = ROOT / "docs" / "reproduction"
STUDIES = ("online", "design", "ablation-main", "runtime", "offline")
# `td7 report results/STUDY --markdown FILE` writes the tables of these.
WITH_TABLES = {
    **{f"docs/reproduction/{name.partition('-')[0]}.md": name for name in STUDIES},
    **{f"results/{name}/README.md": name for name in ("online", "offline")},
}


@pytest.fixture(scope="module")
def report() -> Report:
    """Of all studies of the paper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return read_report([Path("results", name) for name in STUDIES])


# -- tables that the report writes ---------------------------------------------------------------


@pytest.mark.parametrize("file", WITH_TABLES)
def test_tables_in_the_texts_are_those_of_the_files(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    text = Path(file).read_text()
    assert with_tables(text, read_report([Path("results", WITH_TABLES[file])])) == text
    if file.startswith("docs"):
        assert f"td7 report results/{WITH_TABLES[file]} --out report --markdown {file}" in text


def test_files_with_tables_are_under_test() -> None:
    files = [ROOT / "README.md", *PAGES.parent.rglob("*.md"), *RESULTS.rglob("*.md")]
    marked = {str(file.relative_to(ROOT)) for file in files if MARKED.search(file.read_text())}
    assert marked == set(WITH_TABLES)


def test_the_committed_results_are_the_means_of_their_rows() -> None:
    """By another way than the report's: the csv module and sums."""
    for record in table_of(read_report([RESULTS / "online"]), "online-scores").records:
        name = f"{str(record['row']).lower()}-{record['place']}"
        by_seed: dict[str, list[float]] = {}
        with (RESULTS / "online" / name / "evaluations.csv").open() as file:
            for row in csv.DictReader(file):
                if int(row["step"]) == record["step"]:
                    by_seed.setdefault(row["seed"], []).append(float(row["return"]))
        means = [sum(own) / len(own) for own in by_seed.values()]
        assert record["mean"] == pytest.approx(sum(means) / len(means))
        assert record["interval"] == pytest.approx(Sample.of(means).interval)


# -- numbers in sentences and in tables by hand --------------------------------------------------


@pytest.mark.parametrize("page", ["docs/reproduction/online.md", "results/online/README.md"])
def test_results_in_the_texts_are_those_of_the_files(page: str) -> None:
    """Every finished run's mean and interval, as they stand in its evaluations."""
    text = (ROOT / page).read_text()
    runs = sorted((RESULTS / "online").glob("*/evaluations.csv"))
    assert runs
    for file in runs:
        evaluations = pd.read_csv(file)
        last = evaluations[evaluations["step"] == evaluations["step"].max()]
        assert str(Sample.of(last.groupby("seed")["return"].mean())) in text, file.parent.name


def test_results_in_the_readme_are_those_of_the_files(report: Report) -> None:
    """TD7 at 300,000 steps, and the paper's."""
    records = [
        record_of(table_of(report, "online-scores"), row="TD7", step=300_000, place=task)
        for task in PAPER_TASKS
    ]
    text = (ROOT / "README.md").read_text()
    for prefix, name in (("", "td7"), ("paper_", "paper")):
        cells = [mean_text(r[f"{prefix}mean"], r[f"{prefix}interval"], ".0f") for r in records]
        assert f"| {name} | {' | '.join(cells)} |" in text


def test_what_the_pages_call_significant_is(report: Report) -> None:
    """That no entry differs from the paper's, over how many, and the range of p."""
    records = table_of(report, "online-scores").records
    p = sorted(record["p"] for record in records if record["p"] is not None)
    assert (len(p), f"{p[0]:.2f}", f"{p[-1]:.2f}") == (13, "0.18", "0.93")
    assert p[0] == record_of(table_of(report, "online-scores"), place="Ant-v4", step=300_000)["p"]
    index, online = ((PAGES / name).read_text() for name in ("index.md", "online.md"))
    for text in (index, online, (ROOT / "README.md").read_text()):
        assert re.search(r"None of\s+the 13", text)
    assert "p-values from 0.18 (TD7 on Ant at\n300,000 steps) to 0.93" in index
    assert "the\nsmallest p-value is 0.18" in online or "the smallest p-value is 0.18" in online
    other = [table for table in report.tables if table.kind == "scores" and table.study != "online"]
    assert all(record["p"] is None for table in other for record in table.records)


def test_further_seeds_in_the_texts_are_those_of_the_files() -> None:
    online = RESULTS / "online"
    text = (online / "README.md").read_text()
    files = sorted((online / "further-seeds").glob("*.csv"))
    assert len(files) == 3
    for file in files:
        runs = [pd.read_csv(path) for path in (online / file.stem / "evaluations.csv", file)]
        means = [run[run["step"] == 300_000].groupby("seed")["return"].mean() for run in runs]
        samples = [Sample.of(seeds) for seeds in (*means, pd.concat(means))]
        task = file.stem.removeprefix("td7-")
        paper = printed("online", 300_000)["TD7", task]
        cells = [task, *map(str, samples), str(paper), f"{welch(samples[-1], paper):.2f}"]
        assert f"| {' | '.join(cells)} |" in text


def test_value_targets_of_ofe_in_the_text_are_those_of_the_run() -> None:
    metrics = pd.read_csv(RESULTS / "online" / "td3+ofe-HalfCheetah-v4" / "metrics.csv")
    highest = metrics.pivot_table(index="step", columns="seed", values="clip_max")
    text = (PAGES / "online.md").read_text()
    for step in (180_000, 200_000, 280_000, 300_000):
        seeds = highest.loc[step]
        others = seeds.drop([1, 3])
        cells = (f"{step:,}", f"{seeds[3]:,.0f}", f"{seeds[1]:,.0f}")
        assert f"| {' | '.join(cells)} | {others.min():,.0f} to {others.max():,.0f} |" in text


def test_run_times_in_the_text_are_those_of_the_files(report: Report) -> None:
    records = table_of(report, "runtime-speed").records
    text = (PAGES / "runtime.md").read_text()
    for row in dict.fromkeys(record["row"] for record in records):
        own = {
            (r["seeds"], r["machine"].startswith("NVIDIA")): r for r in records if r["row"] == row
        }
        minutes = [
            own[key]["minutes_per_million_steps"] for key in ((1, False), (1, True), (10, True))
        ]
        cells = [*(f"{number:.1f}" for number in minutes), f"{own[1, True]['paper_minutes']:.0f}"]
        assert f"| {row} | {' | '.join(cells)} |" in text
        seed_steps = [f"{s * 1000 / own[s, True]['milliseconds_per_step']:,.0f}" for s in (10, 1)]
        assert all(re.search(rf"\b{rate}\b", text) for rate in seed_steps), (row, seed_steps)


def test_offline_scores_in_the_text_are_those_of_the_files(report: Report) -> None:
    table = table_of(report, "offline-scores")
    rows = ("CQL", "TD3+BC", "IQL", "X-QL", "TD7")
    text = (PAGES / "offline.md").read_text()
    places = list(dict.fromkeys(record["place"] for record in table.records))
    assert len(places) == 7
    for place in places[:6]:
        own = [record_of(table, row=row, place=place, step=100_000) for row in rows]
        cells = [mean_text(record["mean"], record["interval"], ".1f") for record in own]
        assert f"| {place} | {own[0]['data_mean']:.1f} | {' | '.join(cells)} |" in text


def test_speeds_in_the_texts_are_those_of_the_files() -> None:
    text = (RESULTS / "bench" / "README.md").read_text()
    for file in (RESULTS / "bench").glob("*.json"):
        measured = json.loads(file.read_text())
        for result in measured["results"]:
            assert f"| {result['seed_updates_per_second']:,.0f} |" in text, file.name
        for run in measured.get("end_to_end", []):
            for rate in ("steady", "seed_steps_per_second"):
                assert f"{run[rate]:,.0f} seed-steps/s" in text, file.name


def test_returns_on_dm_control_in_the_text_are_those_of_the_file() -> None:
    folder = RESULTS / "dm_control"
    evaluations = pd.read_csv(folder / "walker-walk" / "evaluations.csv")
    last = evaluations[evaluations["step"] == 40_000].groupby("seed")["return"].mean()
    text = (folder / "README.md").read_text()
    assert f"{last[0]:.0f} (seed 0) and {last[1]:.0f} (seed 1)" in text

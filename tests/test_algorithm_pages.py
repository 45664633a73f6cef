"""docs/algorithms: names, numbers and tables of the pages are those of the program and the runs."""

import json
import pkgutil
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from td7.algorithms import ALGORITHMS
from td7.datasets.scores import score
from td7.reports.paper import printed, steps
from td7.statistics import Sample, highlighted, welch
from td7.studies.rows import STUDIES
from test_structure import ROOT

FOLDER = ROOT / "docs" / "algorithms"
RESULTS = ROOT / "results"
FILES = {name: name.replace("+", "-") for name in ALGORITHMS}
TEXTS = {name: (FOLDER / f"{file}.md").read_text() for name, file in FILES.items()}
INDEX = (FOLDER / "index.md").read_text()
LABELS = {
    **{"td7": "TD7", "td3": "TD3", "td3+ofe": "TD3+OFE", "sac": "SAC", "tqc": "TQC"},
    **{"td3+bc": "TD3+BC", "cql": "CQL", "iql": "IQL", "xql": "X-QL"},
}
SECTIONS = (
    "The equations",
    "One update",
    "Hyperparameters",
    "Results beside the paper's",
    "Replicate them",
    "Differences from the paper",
    "When to use it",
)


def table(text: str, first: str) -> list[list[str]]:
    """The cells of the rows of the table whose head begins with `first`."""
    (body,) = re.findall(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    return [[cell.strip() for cell in row.strip("| \n").split(" | ")] for row in body.splitlines()]


@cache
def evaluations(file: Path) -> pd.DataFrame:
    return pd.read_csv(file)


def sample(files: list[Path], step: int, column: str = "return") -> Sample:
    """The mean evaluation of each seed at a step."""
    means = [
        rows[rows["step"] == step].groupby("seed")[column].mean()
        for rows in map(evaluations, files)
    ]
    return Sample.of(pd.concat(means))


def test_there_is_a_page_for_each_algorithm() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *FILES.values()}
    contents = (ROOT / "docs" / "index.md").read_text()
    for name, text in TEXTS.items():
        assert f"algorithms/{FILES[name]}\n" in contents
        assert text.startswith(f"# {LABELS[name]}\n")
        assert f"```{{hyperparameters}} {name}\n```" in text
        sections = re.findall(r"^## (.*)", text, re.M)
        assert [s for s in sections if s in SECTIONS] == list(SECTIONS), name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_name_on_the_pages_resolves(name: str) -> None:
    names = re.findall(r"`(td7(?:\.\w+){2,})`", TEXTS[name])
    assert len(names) >= 3
    for dotted in names:
        assert pkgutil.resolve_name(dotted) is not None


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.online])
def test_online_results_are_those_of_the_runs(name: str) -> None:
    rows = table(TEXTS[name], "task")
    for task, step_text, seeds, *cells in rows:
        step = int(step_text.replace(",", ""))
        run = f"{name}-{task}"
        files = [RESULTS / "online" / run / "evaluations.csv"]
        if seeds == "20":
            files.append(RESULTS / "online" / "further-seeds" / f"{run}.csv")
        here, paper = sample(files, step), printed("online", step)[LABELS[name], task]
        assert here.n == int(seeds)
        assert cells == [str(here), str(paper), f"{welch(here, paper):.2f}"], (task, step)
        assert float(cells[-1]) > 0.05  # as the text says
    shown = {task for task, *_ in rows}
    assert shown == {
        f.name.removeprefix(f"{name}-") for f in (RESULTS / "online").glob(f"{name}-*-v*")
    }


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.offline is not None])
def test_offline_results_are_those_of_the_runs(name: str) -> None:
    rows = table(TEXTS[name], "data")
    (folder,) = (RESULTS / "offline").glob(f"*-{LABELS[name]}")
    for data, mean, updates, seeds, *cells in rows:
        task, kind = re.findall(r"(\w+-v4)-(.*)", data)[0]
        config = json.loads((folder / data / "config.json").read_text())
        mean_score = score(task, config["dataset"]["mean_return"])
        here = sample([folder / data / "evaluations.csv"], int(updates.replace(",", "")), "score")
        assert here.n == int(seeds)
        d4rl = f"{task.removesuffix('-v4')}-{kind.replace('replay', 'medium-replay')}-v2".lower()
        paper = printed("offline", 1_000_000)[LABELS[name], d4rl]
        assert [mean, *cells] == [f"{mean_score:.1f}", f"{here:.1f}", f"{paper:.1f}"], data
    assert len({data for data, *_ in rows}) == 6


def test_ablations_are_those_of_the_runs() -> None:
    rows = table(TEXTS["td7"], "row")
    for label, here, paper in rows:
        (file,) = (RESULTS / "ablation-main").glob(f"*-{label.replace(' ', '_')}/*/evaluations.csv")
        assert here == str(sample([file], 100_000))
        assert paper == str(printed("ablation", 1_000_000)[label, "HalfCheetah-v4"])
    assert {label for label, *_ in rows} == set(STUDIES["ablation-main"].rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_interval_is_in_a_table(name: str) -> None:
    """The tests above read the tables; no other number with an interval stands on a page."""
    text = TEXTS[name].replace("± 1.96 sd / √n", "")
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    assert "±" not in prose


def test_td7_is_the_best_of_the_papers_agents() -> None:
    """Or not significantly worse than the best, as the pages say."""
    for study, every_step in (("online", steps("online")), ("offline", [1_000_000])):
        for step in every_step:
            numbers = printed(study, step)
            for place in {place for _, place in numbers}:
                best = highlighted({a: s for (a, p), s in numbers.items() if p == place})
                assert "TD7" in best, (place, step)


def test_comparisons_in_the_texts_hold() -> None:
    online, offline = RESULTS / "online", RESULTS / "offline"
    cheetah = {
        name: sample([online / f"{name}-HalfCheetah-v4" / "evaluations.csv"], 300_000).mean
        for name in ("td7", "td3", "sac", "td3+ofe")
    }
    ratios = {name: round(cheetah["td7"] / mean, 1) for name, mean in cheetah.items()}
    assert ratios == {"td7": 1.0, "td3": 2.0, "sac": 1.9, "td3+ofe": 1.5}
    ofe = evaluations(online / "td3+ofe-HalfCheetah-v4" / "evaluations.csv")
    median = ofe[ofe["step"] == 300_000].groupby("seed")["return"].mean().median()
    assert f"The median of the ten is {median:.0f}." in TEXTS["td3+ofe"]
    scores = {
        (name, file.parent.name): sample([file], 100_000, "score").mean
        for name in ("td7", "td3+bc", "cql", "iql", "xql")
        for file in offline.glob(f"*-{LABELS[name]}/*/evaluations.csv")
    }
    data = {data for name, data in scores if name == "cql"}
    assert all(scores["td7", d] > scores["td3+bc", d] for d in data)
    above = {(n, d) for (n, d), mean in scores.items() if mean > scores["td7", d]}
    assert above == {("cql", "Hopper-v4-replay")}
    better = {d for d in data if scores["xql", d] > scores["iql", d]}
    assert better == {d for d in data if "expert" in d} | {"HalfCheetah-v4-medium"}


INDEX_ORDER = ("td7", "td3", "sac", "tqc", "td3+ofe", "td3+bc", "cql", "iql", "xql")


def test_the_index_lists_the_agents() -> None:
    rows = table(INDEX, "agent | learns")
    assert sorted(INDEX_ORDER) == sorted(ALGORITHMS)
    for name, (link, learns, idea, _, command) in zip(INDEX_ORDER, rows, strict=True):
        agent = ALGORITHMS[name]
        kinds = {"online": agent.online, "offline": agent.offline is not None}
        assert link == f"[{LABELS[name]}]({FILES[name]}.md)"
        assert learns == " and ".join(kind for kind, learns in kinds.items() if learns)
        assert len(idea.split()) <= 6
        assert command == f"`td7 train {name}`"


def test_costs_are_those_that_were_measured() -> None:
    updates: dict[str, float] = {}
    for name in ("two-cores", "two-cores-agents", "two-cores-offline"):
        measured = json.loads((RESULTS / "bench" / f"{name}.json").read_text())["results"]
        for result in measured:
            if result["engine"] == "compiled":
                updates.setdefault(result["algorithm"], result["seed_updates_per_second"])
    for label, cpu, gpu in table(INDEX, "agent | updates per second, two CPU cores"):
        (name,) = (n for n, known in LABELS.items() if known == label)
        assert cpu == f"{updates[name]:.0f}"
        files = list((RESULTS / "runtime" / "h200-ten").glob(f"*-{label}/*/timings.csv"))
        speed = "–"
        for file in files:
            learn = pd.read_csv(file).set_index("phase").loc["learn"]
            speed = f"{learn['times'] / learn['seconds']:,.0f}"
        assert gpu == speed, label
    assert updates["td3"] > 5 * updates["td7"]


def test_the_page_of_td7_lists_all_studies() -> None:
    rows = table(TEXTS["td7"], "study")
    assert [name.strip("`") for name, *_ in rows] == list(STUDIES)
    for name, count, _, where in rows:
        study = STUDIES[name.strip("`")]
        assert int(count) == len(study.rows)
        assert where == study.where.partition(";")[0]

"""The page of a search, its figure and `td7 report`; one small search is shared."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import optuna
import pytest

import td7
from commands import FailingCommand
from doc_blocks import blocks, small_sizes
from folders import two_policies
from td7.cli.main import main
from td7.tuning.charts import chart_data, curves
from td7.tuning.figures import Shown, draw_history, draw_slice, overview, panel, rung_colours
from td7.tuning.folder import SearchRecord, wave_folder
from td7.tuning.page import as_csv, fresh_seeds, page, summary
from td7.tuning.result import Search
from td7.tuning.run import make_plan, run_search
from td7.tuning.trials import FEWEST_FOR_IMPORTANCE, Trial, Trials

HOSTILE = '</script><img src=x onerror="alert(1)">$x^$ & {{body}}'
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four trials of two seeds, in waves of two, over two rungs."""
    out = tmp_path_factory.mktemp("search") / "found"
    td7.tune(
        "td3",
        env="toys:Point-v0",
        trials=4,
        seeds=[0, 1],
        steps=80,
        wave="2",
        reduction=2,
        search={"learning_rate": "1e-4..1e-2:log", "discount": [0.9, 0.99]},
        search_only=True,
        evaluate_every=10,
        evaluation_episodes=1,
        set={"random_steps": 30, "hidden_dim": 16, "batch_size": 16},
        out=str(out),
        quiet=True,
        device="cpu",
        engine="eager",
        processes="1",
        workers="0",
    )
    return out


@pytest.fixture(scope="module")
def search(folder: Path) -> Search:
    return Search(folder)


@pytest.fixture(scope="module")
def made(folder: Path) -> str:
    return (folder / "report.html").read_text()


def changed(search: Search, trials: list[Trial], **options: Any) -> Search:
    """The same search with other trials and options."""
    other = Search(search.path)
    other._all = trials
    other.record = replace(other.record, options=replace(other.record.options, **options))
    return other


def section(made: str, name: str) -> str:
    (found,) = re.findall(rf'<section id="{name}".*?</section>', made, re.DOTALL)
    return str(found)


def data_of(made: str) -> Mapping[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', made)
    return dict(json.loads(text))


# -- the page ------------------------------------------------------------------------------------


def test_a_search_ends_with_its_page_and_its_table(search: Search, made: str) -> None:
    assert page(search) == made
    assert (search.path / "trials.csv").read_text() == as_csv(search)
    assert re.findall(r'<section id="(\w+)"', made) == [
        *("best", "figures", "curves", "trials", "waves")
    ]
    assert summary(search) in made
    ended = finished(search)
    assert summary(search).startswith(
        f"4 of 4 trials with 2 seeds each: {ended} to the last step, {4 - ended} ended early"
    )


def finished(search: Search) -> int:
    """How many of the four trials have come to the last step: one or two."""
    count = sum(trial.state == "finished" for trial in search.all)
    assert 0 < count < 4
    return count


def test_the_page_loads_nothing_and_its_ids_are_unique(made: str) -> None:
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\([^#]", made)
    assert not re.findall(r"\{\{\w+\}\}", made)
    ids = re.findall(r'\bid="([^"]*)"', made)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:aria-labelledby="|href="#|url\(#)([^")]*)', made):
        assert target in ids


def test_it_is_written_after_every_wave(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two more trials need at least one more wave."""
    out = tmp_path / "again"
    shutil.copytree(folder, out)
    written = []
    monkeypatch.setattr(
        "td7.tuning.run.write_search", lambda search: written.append(len(search.record.waves))
    )
    record = SearchRecord.read(out)
    assert record is not None
    count = len(record.waves)
    run_search(make_plan(replace(record.options, trials=6, out=str(out))))
    assert written[0] == count + 1
    assert written[-1] == written[-2] > count


def test_the_best_trial_is_beside_the_usual_values(search: Search, made: str) -> None:
    best, own = search.best, section(made, "best")
    assert best.mean == max(t.mean for t in search.all if t.steps == 80)
    assert f"Trial {best.number} has the highest score after 80 steps" in own
    names = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', own)
    usual = search.all[0]
    assert usual.is_usual
    assert usual.values == {"learning_rate": 3e-4, "discount": 0.99}
    assert not any(trial.is_usual for trial in search.all[1:])
    expected = {best.number: f"trial {best.number}, the best", 0: "trial 0, the usual values"}
    assert names == (
        ["trial 0, the best: the usual values"] if best == usual else [*expected.values()]
    )


def test_its_commands_can_be_run(search: Search, made: str, working_folder: Path) -> None:
    """The command of the best trial as it is on the page trains what the trial was."""
    spans = re.findall(r"<pre>(.*?)</pre>", section(made, "best"))
    commands = [re.sub(r"</?span>", "", line) for line in spans]
    assert commands[0] == search.command
    assert main([*commands[0].split()[1:], "--seeds", "0-1", "--quiet", "--out", "run"]) == 0
    run = td7.Run(working_folder / "run")
    hyperparameters = run.config["hyperparameters"]
    assert {name: hyperparameters[name] for name in search.best.values} == search.best.values
    assert run.final().tolist() == pytest.approx(search.best.scores[80])
    for line in commands[1:]:
        assert line.startswith("td7 compare") or "--seeds 10-19 --out runs/" in line


def test_fresh_seeds_are_none_of_the_search() -> None:
    assert [fresh_seeds(seeds) for seeds in ((0, 1), (3, 9), (10,), (25, 4))] == [
        *("10-19", "10-19", "20-29", "30-39")
    ]


def test_the_table_has_every_trial_the_best_first(search: Search, made: str) -> None:
    own = section(made, "trials")
    body = own.partition("<tbody>")[2]
    numbers = [int(n) for n in re.findall(r'<th scope="row"[^>]*>(\d+)</th>', body)]
    assert sorted(numbers) == [0, 1, 2, 3]
    assert numbers[0] == search.best.number
    assert body.count("<td") == 4 * (2 + 2 + 1)  # rungs, values, state
    rows = body.partition("</tbody>")[0]
    ended = finished(search)
    assert (rows.count("pruned"), rows.count("finished")) == (4 - ended, ended)
    first = next(trial for trial in search.all if trial.number == numbers[0])
    assert f"{first.values['learning_rate']:.3g}" in body.partition("</tr>")[0]


def test_rungs_and_waves(search: Search, made: str) -> None:
    own = section(made, "waves")
    rungs, waves = own.split("<h3>Waves</h3>")
    assert re.findall(r"<td[^>]*>([\d,]+)</td><td[^>]*>(\d+)</td>", rungs) == [
        *[(str(search.record.rungs[0]), "4"), ("80", str(finished(search)))]
    ]
    assert waves.count("<tr>") == 1 + len(search.record.waves)
    assert re.findall(r"waves/\d+", waves) == [
        f"waves/{n:03d}" for n in range(len(search.record.waves))
    ]


def test_curves_are_those_of_the_trials_last_wave(search: Search, made: str) -> None:
    """From step 0 to the trial's last step, also if it has continued."""
    (study,) = data_of(made)["studies"]
    rows = {row["row"].partition(",")[0]: row for row in study["curves"]}
    assert rows.keys() == {f"trial {n}" for n in range(4)}
    for trial in search.all:
        row = rows[f"trial {trial.number}"]
        assert row["steps"] == list(range(0, trial.steps + 1, 10))
        last = [values[-1] for values in row["values"]]
        assert last == pytest.approx(trial.scores[trial.steps], abs=1e-5)


# -- its figures ---------------------------------------------------------------------------------


def test_every_trial_is_a_point_that_names_itself(search: Search, made: str) -> None:
    """In the history and in a slice per hyperparameter, with its score and its values."""
    panels = re.findall(r"<h4>(.*?)</h4>(<svg.*?</svg>)", section(made, "figures"))
    assert [heading for heading, _ in panels] == [
        *("Score by trial", "Score by learning_rate", "Score by discount")
    ]
    for _, svg in panels:
        root = ElementTree.fromstring(svg)
        titles = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]
        assert sorted(title.partition(":")[0] for title in titles) == [
            f"trial {n}" for n in range(4)
        ]
        best = next(title for title in titles if title.startswith(f"trial {search.best.number}:"))
        assert f"{search.best.mean:,.1f}" in best
        assert "rung 2, 80 steps" in best
        assert "learning_rate = " in best


def test_pictures_have_the_pages_colours(made: str) -> None:
    """Light and dark: no colour of their own, no font, nothing that styles the rest of the page."""
    drawn = "".join(re.findall(r"<svg.*?</svg>", section(made, "figures"), re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", drawn)) == set()
    assert "<style" not in drawn
    assert "font" not in drawn
    assert {"var(--best)", "var(--ink)", "var(--faint)", "var(--here)"} <= set(
        re.findall(r"var\(--\w+\)", drawn)
    )


def test_positions_are_values_on_their_scale(search: Search) -> None:
    shown = search.shown()
    _, axes = panel()
    points = draw_slice(axes, shown, "learning_rate")
    assert axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    assert (0.5e-4 < low < 1e-4, 1e-2 < high < 2e-2) == (True, True)
    drawn = {line.get_gid(): line for line in axes.lines if line.get_gid()}
    for gid, trials in points.items():
        assert drawn[gid].get_xdata().tolist() == [t.values["learning_rate"] for t in trials]
        assert drawn[gid].get_ydata().tolist() == [t.mean for t in trials]
    _, axes = panel()
    points = draw_slice(axes, shown, "discount")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.9", "0.99"]
    drawn = {line.get_gid(): line for line in axes.lines if line.get_gid()}
    for gid, trials in points.items():
        places = [round(float(x)) for x in drawn[gid].get_xdata()]
        assert places == [[0.9, 0.99].index(t.values["discount"]) for t in trials]


def test_the_best_so_far_never_falls_and_counts_the_last_rung_only(search: Search) -> None:
    def trial(number: int, *scores: float) -> Trial:
        rungs = dict(zip((40, 80), ((score,) for score in scores), strict=False))
        return Trial(number, {}, "finished", rungs)

    record = replace(search.record, rungs=[40, 80])
    trials = [trial(3, 1.0), trial(0, 0.0, 5.0), trial(1, 99.0), trial(2, 0.0, 4.0)]
    _, axes = panel()
    draw_history(axes, Shown.of(record, trials, trials[1]))
    (line,) = [line for line in axes.lines if line.get_label() == "best so far"]
    assert line.get_xdata().tolist() == [0, 2, 3]
    assert line.get_ydata().tolist() == [5.0, 5.0, 5.0]


def test_every_rung_has_a_colour_of_its_own() -> None:
    for count in (1, 2, 3, 5):
        colours = rung_colours(count)
        assert len(set(colours)) == count
        assert colours[-1] == "#0072b2"


def test_a_notebook_shows_a_search(search: Search) -> None:
    figure = search.plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["history", "learning_rate", "discount"]
    shown = search._repr_html_()
    assert "<b>td3 on toys:Point-v0</b>" in shown
    assert "4 of 4 trials, best " in shown
    assert 'src="data:image/png;base64,iVBOR' in shown
    assert search.command in shown


def test_importances_need_some_trials(folder: Path, tmp_path: Path) -> None:
    """They are shares of what decides the scores at the first rung, which all trials have."""
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    search = Search(out)
    assert search.importances == {}
    assert "Importance" not in page(search)
    options = search.record.options
    trials = Trials(out, options, make_plan(options).space)
    while len(trials) < 2 * FEWEST_FOR_IMPORTANCE:
        trial = trials.ask()
        trials.score(trial.number, search.record.rungs[0], [1e4 * trial.values["learning_rate"]])
    shares = Search(out).importances
    assert shares.keys() == {"learning_rate", "discount"}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["learning_rate"] > 0.5
    assert "<h4>Importance</h4>" in page(Search(out))


# -- other searches ------------------------------------------------------------------------------


def test_a_search_that_has_just_begun_has_a_page(search: Search) -> None:
    running = [Trial(n, t.values, "running", {}) for n, t in enumerate(search.all)]
    made = page(changed(search, running))
    assert "No trial has come to 80 steps yet." in made
    assert "figures" not in re.findall(r'<section id="(\w+)"', made)
    assert page(changed(search, []))
    assert "0 of 4 trials" in changed(search, [])._repr_html_()


def test_a_trial_that_diverged_is_listed_and_not_drawn(search: Search) -> None:
    """NaN is neither a number of a chart nor the best."""
    bad = replace(search.all[0], scores={40: (float("nan"), 1.0)}, state="pruned")
    other = changed(search, [bad, *search.all[1:]])
    made = page(other)
    assert "diverged" in section(made, "trials")
    assert "trial 0:" not in made
    assert overview(other.shown())


def test_hostile_names_are_text(search: Search, tmp_path: Path) -> None:
    """In values of the journal, in the task's name and in ranges."""
    trials = [replace(t, values={**t.values, "discount": HOSTILE}) for t in search.all]
    other = changed(search, trials, env=HOSTILE)
    other.record.space["discount"] = f"{HOSTILE},b"
    made = page(other)
    assert "<img" not in made
    assert made.count("</script>") == 2
    assert "{{body}}" in made  # as text
    assert overview(other.shown())
    assert "<img src=x" not in other._repr_html_()


def test_a_wave_whose_folder_is_gone_has_no_curves(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(folder, out)
    for number in range(len(Search(out).record.waves)):
        shutil.rmtree(wave_folder(out, number))
    search = Search(out)
    assert curves(search) == []
    assert chart_data(search, [])["studies"] == []
    assert 'id="curves"' not in page(search)


# -- the guide -----------------------------------------------------------------------------------


def test_the_guides_own_loop_prunes(working_folder: Path) -> None:
    """An exception of its listener ends the trial and nothing else; its runs are small here."""
    code = blocks("docs/guides/tuning.md")[-1].code.partition("study = ")[0]
    names: dict[str, Any] = {}
    exec(compile(code, "tuning.md", "exec"), names)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    with small_sizes():
        study.optimize(names["objective"], n_trials=1)
        study.pruner = optuna.pruners.ThresholdPruner(lower=1e9)
        study.optimize(names["objective"], n_trials=1)
    trained, pruned = study.trials
    assert (trained.state.name, pruned.state.name) == ("COMPLETE", "PRUNED")
    assert trained.value == trained.intermediate_values[100]
    assert list(pruned.intermediate_values) == [0]


# -- td7 report ----------------------------------------------------------------------------------


def test_td7_report_writes_the_page_again(
    folder: Path, tmp_path: Path, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into the search's folder, or into another."""
    out = tmp_path / "found"
    shutil.copytree(folder, out)
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text() == made
    assert f"wrote 2 files, among them {out / 'report.html'}" in capsys.readouterr().out
    written = td7.report(Search(out), out=tmp_path / "elsewhere")
    assert written.page == tmp_path / "elsewhere" / "report.html"
    assert written.page.read_text() == made


def test_td7_report_leaves_searches_out_of_other_runs(
    folder: Path, tmp_path: Path, failing_command: FailingCommand
) -> None:
    """Their runs end at different steps; a search alone is reported by its own command."""
    shutil.copytree(folder, tmp_path / "runs" / "found")
    two_policies(tmp_path / "runs" / "run")
    written = td7.report(tmp_path / "runs", out=tmp_path / "report")
    found = tmp_path / "runs" / "found"
    assert f"{found} left out: a search; `td7 report {found}` is about it" in written.notes
    assert written.summary.startswith("1 run ")
    shutil.rmtree(tmp_path / "runs" / "run")
    error = failing_command("report", str(tmp_path / "runs"))
    assert f"{found} is a search; give td7 report its folder" in error
    error = failing_command("report", str(found), str(found))
    assert f"{found} holds a search, which has a page of its own; give it alone" in error

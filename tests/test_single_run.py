"""A run in Python: its summary, its figure, its policy, and what a notebook shows of it."""

import html
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import td7
import toys
from doc_blocks import blocks, run_page
from fake_runs import INTERVAL, pair, write_run
from folders import SMALL
from td7.cli.main import main
from td7.datasets.scores import score
from td7.studies.plan import StudyStatus
from td7.studies.progress import StudyProgress
from td7.training.progress import NotebookProgress, make_progress
from test_progress import status

assert toys  # registers the tasks
PNG = b"\x89PNG"


def run_of(folder: Path, *runs: Any, **options: Any) -> td7.Run:
    return td7.Run(write_run(folder / "run", *runs, **options))


# -- in short ------------------------------------------------------------------------------------


def test_a_summary_by_hand(tmp_path: Path) -> None:
    """Of the last evaluation that every seed has; the interval is the paper's."""
    run = run_of(tmp_path, {0: [1, 1900, 900], 1: [3, 5, 1100, 7]}, every=500)
    table = run.summary()
    assert table.to_dict("list") == {
        "first": [1, 3, 2, pytest.approx(INTERVAL / 100)],
        "best": [1900, 1100, 1500, pytest.approx(4 * INTERVAL)],
        "last": [900, 1100, 1000, pytest.approx(INTERVAL)],
    }
    assert table.index.tolist() == [0, 1, "mean", "interval"]
    assert table.attrs == {"step": 1000}


def test_a_summary_of_one_seed_has_no_interval(tmp_path: Path) -> None:
    table = run_of(tmp_path, {4: [1, 5]}).summary()
    assert table["last"].tolist()[:2] == [5, 5]
    assert np.isnan(table["last"].to_numpy()[-1])


def test_a_summary_on_a_dataset_has_scores(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": "Hopper-v4", "dataset": "hopper_medium-v2.hdf5"}
    table = run_of(tmp_path / "scored", pair(1000), **options).summary()
    assert table["score"].tolist()[:3] == pytest.approx(
        [float(score("Hopper-v4", value)) for value in (900, 1100, 1000)]  # type: ignore[arg-type]
    )
    other = run_of(tmp_path / "other", pair(1000), **{**options, "env": "toys:Point-v0"})
    assert "score" not in other.summary()


def test_what_has_no_evaluation_is_one_line(tmp_path: Path) -> None:
    begun = run_of(tmp_path / "begun", {}, seeds=[0, 1], steps=9)
    with pytest.raises(td7.InputError, match=r"run has no evaluation yet$"):
        begun.plot()
    for run in (begun, run_of(tmp_path / "one", {0: [1.0]}, seeds=[0, 1], steps=9)):
        with pytest.raises(td7.InputError, match=r"run has no evaluation of every seed yet$"):
            run.summary()
        assert "no evaluation yet" in run._repr_html_()


# -- figures -------------------------------------------------------------------------------------


def test_a_notebook_shows_the_figure_of_a_run(tmp_path: Path) -> None:
    figure = run_of(tmp_path, pair(1000)).plot()
    (axes,) = figure.axes
    assert axes.get_title() == "td7 on Ant-v4"
    assert [line.get_label() for line in axes.lines] == ["seed 0", "seed 1", "mean ± 1.96 sd/√n"]
    assert figure._repr_png_().startswith(PNG)  # type: ignore[attr-defined]  # for IPython
    figure.savefig(tmp_path / "file.svg")
    assert (tmp_path / "file.svg").stat().st_size > 1000


@pytest.mark.draws
def test_runs_of_python_draw_their_learning_curve(tmp_path: Path) -> None:
    """As those of the command do: byte for byte."""
    options: dict[str, Any] = {
        **{"env": "toys:Point-v0", "steps": 40, "evaluate_every": 20, "evaluation_episodes": 1},
        **{"quiet": True, **SMALL},
    }
    run = td7.train(**options, out=tmp_path / "run")
    picture = run.path / "learning_curve.png"
    drawn = picture.read_bytes()
    assert drawn.startswith(PNG)
    picture.unlink()
    td7.resume(run, quiet=True)
    assert picture.read_bytes() == drawn
    picture.unlink()
    assert main(["resume", str(run.path), "--quiet"]) == 0
    assert picture.read_bytes() == drawn


def test_a_policy_of_a_run(finished_run: Path) -> None:
    run = td7.Run(finished_run)
    action, _ = run.policy(3).predict([0.5, 0.0])
    np.testing.assert_array_equal(action, td7.load(finished_run, 3).predict([0.5, 0.0])[0])
    with pytest.raises(td7.InputError, match="has several seeds: choose one of 0, 3"):
        run.policy()


# -- in a notebook -------------------------------------------------------------------------------


def test_a_notebook_shows_what_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_of(tmp_path, pair(1000), algorithm="td3")._repr_html_()
    for text in (
        "<b>td3 on Ant-v4</b>",
        "return 1,000.0 ± 196.0 after 1,000,000 steps (mean ± 1.96 sd/√n of 2 seeds)",
        "1,000,000 steps, seeds 0, 1, finished, <code>run</code>",
        '<img width="480" alt="learning curve" src="data:image/png;base64,iVBOR',
    ):
        assert text in shown
    one = run_of(tmp_path / "<b>", {3: [1, 5.25]}, steps=2_000_000, env="A<b>-v0")._repr_html_()
    assert "return 5.2 after 500,000 steps<br>" in one
    assert "2,000,000 steps, seed 3, not finished, <code>&lt;b&gt;/run</code>" in one
    assert "<b>td7 on A&lt;b&gt;-v0</b>" in one


def test_a_notebook_shows_seeds_as_a_range_and_scores(tmp_path: Path) -> None:
    returns = {seed: [1.0, 1000.0] for seed in range(4)}
    options: dict[str, Any] = {"env": "Hopper-v4", "dataset": "/data/hopper_medium-v2.hdf5"}
    shown = run_of(tmp_path, returns, **options, d4rl="")._repr_html_()
    assert "<b>td7 on hopper_medium-v2</b>" in shown
    assert "D4RL score 31.3 ± 0.0 after 500,000 updates (mean" in shown
    assert "500,000 updates, seeds 0–3, finished" in shown


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What IPython is asked to show, as in a notebook: new or update, and the HTML."""
    events: list[tuple[str, str]] = []

    def note(kind: str, shown: Any) -> None:
        events.append((kind, shown._repr_mimebundle_([], [])["text/html"]))

    def display(shown: Any, *, display_id: bool) -> Any:
        assert display_id
        note("new", shown)
        return SimpleNamespace(update=partial(note, "update"))

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return events


def test_progress_in_a_notebook_replaces_one_display(
    displays: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    assert isinstance(make_progress(quiet=False), NotebookProgress)
    assert not isinstance(make_progress(quiet=True), NotebookProgress)
    progress = NotebookProgress(lambda: now[0])
    progress.say("[a message]")
    progress.warn("a warning")
    for now[0] in (100.0, 100.1, 101.0):
        progress.show(status)
    progress.show(status, final=True)
    progress.close()
    assert capsys.readouterr() == ("[a message]\n", "a warning\n")
    assert [kind for kind, _ in displays] == ["new", "update", "update"]
    for text in ("td7 Toy", "75%", "10s elapsed", "training", "12.5"):
        assert text in displays[0][1]


def test_progress_of_a_study_in_a_notebook(
    displays: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = StudyProgress({}, at_once=1)
    progress.show(StudyStatus([], []))
    progress.show(StudyStatus([], [], {"TD7--Ant-v4": "no memory"}))
    progress.close()
    assert [kind for kind, _ in displays] == ["new", "update"]
    assert "0 of 0 runs done, 1 failed, 0s left" in displays[1][1]
    assert capsys.readouterr() == ("", "")


# -- reports -------------------------------------------------------------------------------------


def test_a_report_from_python_is_that_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path, pair(1000))
    begun = write_run(tmp_path / "begun", {}, seeds=(5,), steps=9)
    out, file = tmp_path / "python", tmp_path / "tables.md"
    written = td7.report([run, begun], out=out, figures=False, markdown=file)
    assert written.page == out / "report.html"
    assert written.page.is_file()
    assert set(written.files) == {p for p in out.rglob("*.*") if p.name != "files.json"}
    assert "1 run (1 finished)" in written.summary
    assert file.read_text().startswith("# Results compared")
    shown = written._repr_html_()
    assert f'<br><a href="{out}/report.html">{out}/report.html</a>' in shown
    assert f"note: {html.escape(written.notes[0])}<br>" in shown
    assert str(written).splitlines() == [
        written.summary,
        *(f"note: {note}" for note in written.notes),
        str(written.page),
    ]
    command = ["report", str(run.path), str(begun), "--out", str(tmp_path / "words")]
    assert main([*command, "--no-figures"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [f"note: {note}" for note in written.notes]
    assert written.notes
    for path in written.files:
        assert path.read_bytes() == (tmp_path / "words" / path.relative_to(out)).read_bytes()


@pytest.mark.parametrize("kind", [td7.Run, Path, str])
def test_a_report_takes_one_run_of_any_kind(kind: Any, tmp_path: Path) -> None:
    path = run_of(tmp_path, pair(1000)).path
    written = td7.report(kind(path), out=tmp_path / "out", figures=False)
    assert "1 run (1 finished) with 2 seeds" in written.summary


def test_figures_of_a_report_are_optional(tmp_path: Path) -> None:
    written = td7.report(run_of(tmp_path, pair(1000)), out=tmp_path / "out")
    assert {path.suffix for path in written.files} >= {".svg", ".png", ".pdf"}
    with pytest.raises(td7.InputError, match="nowhere does not exist"):
        td7.report(tmp_path / "nowhere", out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_pandas_shows_a_summary_in_a_notebook(tmp_path: Path) -> None:
    table = run_of(tmp_path, pair(1000)).summary()
    assert isinstance(table, pd.DataFrame)
    assert "<th>interval</th>" in table._repr_html_()  # type: ignore[operator]


def test_python_of_the_page_runs(
    tmp_path: Path, example_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/reference/python.md: what it draws and writes; the second program is a mistake."""
    run_page("docs/reference/python.md", tmp_path, example_run)
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    assert capsys.readouterr().out.endswith("report/report.html\n")
    (wrong,) = (b.code for b in blocks("docs/reference/python.md") if b.not_run is not None)
    with pytest.raises(td7.InputError, match="unknown option 'step'; did you mean 'steps'"):
        exec(wrong, {"td7": td7})

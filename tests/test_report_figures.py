"""Figures show the numbers of the tables and curves."""

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from fake_runs import INTERVAL, pair, write_run
from mini_report import table_of
from td7.reports.chart_data import chart_data
from td7.reports.curves import learning_curve, normalised_curves
from td7.reports.figures import figures, save, split_rows
from td7.reports.report import Report, read_report
from td7.reports.style import MOST_LINES, new_panels, row_style, style_of, wrap_label
from td7.reports.write import write
from td7.studies.rows import STUDIES


def drawn(report: Report) -> dict[str, Any]:
    """The figures of a report by name."""
    return dict(figures(report.studies, report.tables))


def rows_of(axes: Any) -> list[Any]:
    """The rows' lines, without those that draw marks."""
    return [line for line in axes.lines if not line.get_label().startswith("_")]


def test_figures_exist_and_are_not_empty(report_folder: Path) -> None:
    names = {path.stem for path in (report_folder / "figures").iterdir()}
    assert names == {
        *(f"{study}-curves" for study in STUDIES),
        *(f"{study}-speed" for study in STUDIES),
        *("design-losses", "ablation-losses", "ablation-main-losses", "ablation-main-normalised"),
        *("checkpoints-drops", "checkpoints-seeds", "extrapolation-values"),
        *("online-time-curves", "runtime-time-curves"),
    }
    from matplotlib.image import imread

    for name in names:
        image = imread(report_folder / "figures" / f"{name}.png")[..., :3]
        assert min(image.shape[:2]) > 150
        assert 0.005 < (image.min(axis=2) < 0.9).mean() < 0.7  # some ink, mostly paper
        root = ElementTree.parse(report_folder / "figures" / f"{name}.svg").getroot()
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
        assert (report_folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_figures_are_reproducible(mini_report: Report, report_folder: Path, tmp_path: Path) -> None:
    shown = drawn(mini_report)
    for path in save(shown["design-losses"], tmp_path, "design-losses"):
        assert path.read_bytes() == (report_folder / "figures" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("evaluations", "window"), [(3, 1), (11, 2), (49, 9), (50, 10), (61, 10), (201, 10)]
)
def test_curves_are_smoothed_like_the_papers(evaluations: int, window: int, tmp_path: Path) -> None:
    """Over ten evaluations, or a fifth of a short curve. An unfinished curve does not count."""
    climbing = [float(i) for i in range(evaluations)]
    write_run(tmp_path / "td7", {0: climbing, 1: climbing}, variant="online/TD7", every=5000)
    longer = {0: [*climbing, 0.0]}
    write_run(tmp_path / "td3", longer, variant="online/TD3", algorithm="td3", every=5000)
    begun, steps = {0: [0.0, 1.0]}, 5000 * (evaluations - 1)
    write_run(
        tmp_path / "sac", begun, variant="online/SAC", algorithm="sac", every=5000, steps=steps
    )
    report = read_report([tmp_path])
    shown = drawn(report)
    (axes,) = shown["online-curves"].axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert lines["TD7"][-1] == pytest.approx(evaluations - 1 - (window - 1) / 2)
    assert ("evaluations)" in axes.get_ylabel()) == (window > 1)
    assert f"mean of {window} " in axes.get_ylabel() or window == 1
    (study,) = chart_data(report)["studies"]
    assert study["window"] == window


def test_a_panel_has_at_most_six_lines_of_different_colours(tmp_path: Path) -> None:
    """In every kind of figure, whatever colours the rows have in the study's figures."""
    for label in ("TD7", "TD3", "SAC", "TQC"):
        write_run(tmp_path / label, pair(9000, 21), variant=f"online/{label}", every=50_000)
    for number in range(9):
        changed = {"batch_size": number + 1}
        write_run(tmp_path / f"{number}", pair(1000, 21), changed=changed, every=50_000)
    shown = drawn(read_report([tmp_path]))
    lines: dict[str, set[str]] = {}
    for name, figure in shown.items():
        for axes in figure.axes if "speed" not in name else ():
            colours = [line.get_color() for line in rows_of(axes)]
            assert 1 < len(colours) <= MOST_LINES, name
            assert len(set(colours)) == len(colours), name
            kind = re.sub(r"-agents|-others-\d", "", name)
            lines.setdefault(kind, set()).update(line.get_label() for line in rows_of(axes))
    assert {kind: len(labels) for kind, labels in lines.items()} == {
        **{"online-curves": 13, "online-time-curves": 13, "online-drops": 13},
    }


def test_agents_and_other_rows_have_different_colours(tmp_path: Path) -> None:
    """Rows that no study lists take colours of agents; in one figure they get free ones."""
    for label in ("SAC", "TQC", "TD3+OFE"):
        write_run(tmp_path / label, pair(9000), variant=f"online/{label}")
    for size in (1, 2, 3):
        write_run(tmp_path / f"{size}", pair(1000), changed={"batch_size": size})
    (axes,) = drawn(read_report([tmp_path]))["online-curves"].axes
    assert len({line.get_color() for line in rows_of(axes)}) == len(rows_of(axes)) == 6


def test_a_longer_run_does_not_squeeze_the_others(tmp_path: Path) -> None:
    """Every curve takes at least half of the axis; a note names those that continue."""
    write_run(tmp_path / "td3", pair(1000, 101), variant="online/TD3", every=10_000)
    write_run(tmp_path / "td7", pair(1000, 11), variant="online/TD7", every=2_000)
    begun = {0: [0.0, 100.0]}  # of a run that is as long as the first: it squeezes nothing
    write_run(tmp_path / "sac", begun, variant="online/SAC", every=2_000, steps=1_000_000)
    write_run(tmp_path / "tqc", {0: [5.0]}, variant="online/TQC", every=10_000, steps=300)
    shown = drawn(read_report([tmp_path]))
    (axes,) = shown["online-curves"].axes
    ends = {line.get_label(): line.get_xdata()[-1] for line in axes.lines}
    assert ends == {"TD7": 20, "TD3": 40, "SAC": 2, "TQC": 0}
    assert axes.get_xlim()[1] < 45
    lines = ["time steps (thousands)", "continued to 1,000,000: TD3"]
    assert axes.get_xlabel().splitlines() == lines
    (timed,) = shown["online-time-curves"].axes
    assert [len(line.get_xdata()) for line in timed.lines] == [5, 11]
    assert timed.get_xlabel().endswith("continued to 1,000,000: TD3")


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (3, 3), (4, 2), (5, 3), (7, 3), (9, 3)])
def test_lines_of_panels_are_full(panels: int, columns: int) -> None:
    _, axes = new_panels(panels)
    lines = [one.get_subplotspec().rowspan.start for one in axes]
    assert (len(lines), lines.count(0)) == (panels, columns)


def test_lines_show_means(mini_report: Report) -> None:
    """SAC from 1 to 15900 in two steps."""
    shown = drawn(mini_report)
    (axes,) = shown["online-curves"].axes
    lines = {line.get_label(): line for line in rows_of(axes)}
    assert set(lines) == {"TD7", "TD3", "SAC"}
    assert lines["SAC"].get_xdata().tolist() == [0, 500, 1000]
    assert lines["SAC"].get_ydata().tolist() == pytest.approx([1, (1 + 15900) / 2, 15900])
    (timed,) = shown["online-time-curves"].axes
    minutes = {line.get_label(): line.get_xdata().tolist() for line in timed.lines}
    assert minutes == {"TD7": [0, 10, 20], "TD3": [0, 5, 10], "SAC": [0, 5, 10]}
    both, one = shown["runtime-time-curves"].axes
    assert one.get_title() == "HalfCheetah-v4, 1 seed on 2 cores"
    minutes = {line.get_label(): line.get_xdata().tolist() for line in both.lines}
    assert minutes == {"TD3": [0, 60, 120], "TD7": [0, pytest.approx(50), pytest.approx(100)]}


def marks_in(axes: Any) -> list[tuple[str, float, float, float]]:
    """(marker, x, mean, half of the interval), in the order in which they were drawn."""
    marks = []
    for container in axes.containers:
        line, _, (bars,) = container.lines
        (x,), (y,) = line.get_data()
        (segment,) = bars.get_segments()
        low, high = segment[:, 1]
        assert high - y == pytest.approx(y - low)
        marks.append((str(line.get_marker()), float(x), float(y), float(high - y)))
    return marks


def test_marks_are_the_papers_numbers(tmp_path: Path) -> None:
    """At every step up to the end of the panel where a row here has an evaluation as well.

    Curves over minutes have none, nor has a task that the paper does not have.
    """
    for env in ("Ant-v4", "Ant-v5"):
        write_run(tmp_path / env, pair(9000, 61), variant="online/TD7", env=env, every=5000)
    shown = drawn(read_report([tmp_path]))
    v4, v5 = shown["online-curves"].axes
    assert (v4.get_title(), v5.get_title()) == ("Ant-v4", "Ant-v5")
    (shape, *here), (papers_shape, *printed) = marks_in(v4)
    assert (shape, papers_shape) == ("o", "D")
    assert here == pytest.approx([300, 9000, INTERVAL])
    assert printed == pytest.approx([307.5, 6171, 831])  # Table 1
    assert marks_in(v5) == []
    assert not any(axes.containers for axes in shown["online-time-curves"].axes)
    (legend,) = shown["online-curves"].legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["TD7", "here, at one step", "paper, at one step"]


def test_marks_of_several_rows_are_side_by_side(tmp_path: Path) -> None:
    """A curve that is not smoothed goes through its own evaluations, which need no marks."""
    for label in ("TD3", "SAC", "TQC", "TD7"):
        write_run(tmp_path / label, pair(9000), variant=f"online/{label}")
    shown = drawn(read_report([tmp_path]))["online-curves"]
    marks = marks_in(shown.axes[0])
    assert [marker for marker, *_ in marks] == ["D"] * 4
    assert [mean for _, _, mean, _ in marks] == [3942, 3681, 3582, 8509]  # at 1M steps
    assert [x for _, x, _, _ in marks] == pytest.approx([1025, 1050, 1075, 1025])
    colours = [container.lines[0].get_color() for container in shown.axes[0].containers]
    assert colours == [line.get_color() for line in rows_of(shown.axes[0])]
    assert "here, at one step" not in {text.get_text() for text in shown.legends[0].get_texts()}


def test_curves_of_single_seeds_and_of_shares(mini_report: Report) -> None:
    shown = drawn(mini_report)
    (axes,) = shown["checkpoints-seeds"].axes
    first, second = (line.get_ydata().tolist() for line in axes.lines)
    assert (first[-4:], second[-4:]) == ([100, 40, 100, 100], [100, 100, 100, 100])
    (axes,) = shown["ablation-main-normalised"].axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    # No SALE goes from 1 to 9000 in two steps, TD7 comes to 10000.
    assert lines["No SALE"] == pytest.approx([1e-4, 0.45005, 0.9])


def test_curves_over_tasks_do_not_mix_versions(tmp_path: Path) -> None:
    for label, shares in {"TD7": (1, 1), "No SALE": (0.5, 0.25)}.items():
        for env, share in zip(("Ant-v4", "Ant-v5"), shares, strict=True):
            run, last = tmp_path / f"{label}-{env}", 1000 * share
            write_run(run, {0: [last, last]}, variant=f"ablation-main/{label}", env=env)
    shown = read_report([tmp_path]).results
    figure = normalised_curves(shown, 1)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == [
        "mean of 1 task, v4",
        "mean of 1 task, v5",
    ]
    ends = [[float(line.get_ydata()[-1]) for line in axes.lines] for axes in figure.axes]
    assert ends == [[1, 0.5], [1, 0.25]]


def test_curves_over_tasks_name_those_that_they_leave_out(tmp_path: Path) -> None:
    for label, tasks in {"TD7": ("Ant-v4", "Hopper-v4"), "No SALE": ("Ant-v4",)}.items():
        for env in tasks:
            run = tmp_path / f"{label}-{env}"
            write_run(run, pair(1000), variant=f"ablation-main/{label}", env=env)
    figure = normalised_curves(read_report([tmp_path]).results, 1)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title() == "mean of 1 task, v4"
    note = axes.get_xlabel().partition("\n")[2].replace("\n", " ")
    assert note == "without Hopper-v4, which not all rows have"


def _markers(axes: Any) -> list[tuple[str, list[float]]]:
    return [(line.get_marker(), line.get_xdata().tolist()) for line in axes.lines]


def test_a_curve_of_one_point_has_a_marker(tmp_path: Path) -> None:
    """Its interval is drawn as well: a line of one point would not show."""
    values = {0: [math.nan, math.nan, 900.0], 1: [math.nan, math.nan, 1100.0]}
    write_run(tmp_path / "ex", pair(1), variant="extrapolation/No clipping, 1M", values=values)
    write_run(tmp_path / "td3", pair(8), variant="checkpoints/TD3", algorithm="td3")
    begun = {0: [900.0], 1: [1100.0]}
    write_run(tmp_path / "td7", begun, variant="checkpoints/TD7", steps=1_000_000)
    drawn = dict(figures(read_report([tmp_path]).studies, []))
    returns, estimates = drawn["extrapolation-values"].axes
    steps = [0, 500, 1000]
    assert _markers(returns) == [("None", steps)] * 2
    assert _markers(estimates) == [("o", steps)] * 2
    assert estimates.get_xlim() == returns.get_xlim()
    (axes,) = drawn["checkpoints-curves"].axes
    assert sorted(_markers(axes)) == [("None", steps), ("o", [0])]
    edges = [band.get_linewidth().tolist() for band in axes.collections]
    assert sorted(edges) == [[0], [4]]
    (axes,) = drawn["checkpoints-seeds"].axes
    assert _markers(axes) == [("o", [0])] * 2
    evaluations = pd.DataFrame({"step": [0, 0], "seed": [0, 1], "return": [900, 1100]})
    (axes,) = learning_curve(evaluations, "td7 on Ant-v4", "environment steps").axes
    assert _markers(axes) == [("o", [0])] * 3


def test_panels_of_drops_name_their_window(tmp_path: Path) -> None:
    """A panel per task and window; on the page its axis is 0 to 100 %, even if all are 0."""
    for env, evaluations in (("Hopper-v4", 21), ("Ant-v4", 41)):
        returns = {0: [100.0] * evaluations}
        write_run(tmp_path / env, returns, variant="checkpoints/TD7", env=env, every=5000)
    report = read_report([tmp_path])
    axes = drawn(report)["checkpoints-drops"].axes
    words = [one.get_xlabel().partition("\n")[2] for one in axes]
    assert words == ["within 1 evaluation"] * 2 + ["within 5 evaluations"]
    (study,) = chart_data(report)["studies"]
    titles = [f"{one.get_title()}, {word}" for one, word in zip(axes, words, strict=True)]
    assert [drop["title"] for drop in study["drops"]] == titles
    assert {(drop["lowest"], drop["highest"]) for drop in study["drops"]} == {(0, 100)}


def test_a_high_legend_does_not_shrink_the_panels(tmp_path: Path) -> None:
    heights = []
    for rows in (1, 6):
        for i in range(rows):
            changed = {"batch_size": i + 1, "random_steps": 300, "hidden_dim": 16, "discount": 0.5}
            write_run(tmp_path / f"{rows}/{i}", pair(1000), changed=changed)
        report = read_report([tmp_path / str(rows)])
        drawn = dict(figures(report.studies, []))["online-curves"]
        drawn.canvas.draw()
        heights.append(drawn.axes[0].get_window_extent().height)
    assert heights[1] == pytest.approx(heights[0], rel=0.15)


def test_the_figure_of_a_single_run() -> None:
    """A line per seed, and their mean and the paper's interval at the steps that all have."""
    steps, seeds, values = [0, 5, 0, 5, 9], [0, 0, 1, 1, 1], [900, 1900, 1100, 2100, 7]
    evaluations = pd.DataFrame({"step": steps, "seed": seeds, "return": values})
    (axes,) = learning_curve(evaluations, "td7 on Ant-v4", "environment steps").axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axes.lines}
    assert lines == {
        **{"seed 0": [900, 1900], "seed 1": [1100, 2100, 7]},
        "mean ± 1.96 sd/√n": [1000, 2000],
    }
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).y0 == pytest.approx(1000 - INTERVAL)
    assert (axes.get_title(), axes.get_xlabel()) == ("td7 on Ant-v4", "environment steps")


def test_bars_show_the_tables_numbers(mini_report: Report) -> None:
    shown = drawn(mini_report)
    (axes,) = shown["design-losses"].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TD3", "zs'a'"]
    here, there = axes.containers[0], axes.containers[2]
    assert [bar.get_width() for bar in here] == pytest.approx([62.5, 17.5])
    records = table_of(mini_report, "design-losses").records
    losses = [record["paper_percent_loss"] for record in records]
    assert [bar.get_width() for bar in there] == pytest.approx(losses)
    (axes,) = shown["runtime-speed"].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TD3", "TD7"]
    both, one, paper_ = axes.containers
    assert [bar.get_width() for bar in both] == pytest.approx([120, 100])
    assert [bar.get_width() for bar in one] == pytest.approx([100])
    assert [bar.get_width() for bar in paper_] == [47, 110]
    assert "100.0, 50.0 per seed" in [text.get_text() for text in axes.texts]


def test_axes_have_titles_and_lines_a_legend(mini_report: Report) -> None:
    """The y-axis in the first panel of every line of panels, since the others have the same."""
    for name, figure in drawn(mini_report).items():
        if name.endswith(("-speed", "-losses")):
            assert all(axes.get_xlabel() for axes in figure.axes), name  # bars, with names
            continue
        for axes in figure.axes:
            place = axes.get_subplotspec()
            assert axes.get_ylabel() or not place.is_first_col(), name
            assert axes.get_xlabel() or not place.is_last_row(), name
        if name != "extrapolation-values":  # whose panels have the rows as titles
            (legend,) = figure.legends
            labels = {line.get_label() for axes in figure.axes for line in axes.lines}
            shown = {text.get_text().replace("\n", " ") for text in legend.get_texts()}
            rows = {label for label in labels if not label.startswith("_")}
            assert rows == shown - {"here, at one step", "paper, at one step"}, name


@pytest.mark.parametrize("study", STUDIES)
def test_lines_of_a_figure_differ_without_colour(study: str) -> None:
    """Rows in one figure have different line styles; an agent has the same in all figures."""
    labels = list(STUDIES[study].rows)
    for part, own in split_rows(study, labels).items():
        dashes = [row_style(study, label).dashes for label in own]
        assert len(set(dashes)) == len(dashes), part
    assert len({row_style(study, label) for label in labels}) == len(labels)
    drawn = [label for own in split_rows(study, labels).values() for label in own]
    assert set(drawn) == set(labels)
    for label in ("TD7", "TD3"):
        assert row_style(study, label) == row_style("online", label)


def test_labels_that_no_study_lists_have_different_styles(tmp_path: Path) -> None:
    """Even if they consist of the same letters."""
    write_run(tmp_path / "td7", pair(1000))
    for rate in (0.1, 0.01, 0.001, 0.0001):
        write_run(tmp_path / f"{rate}", pair(1000), changed={"learning_rate": rate})
    report = read_report([tmp_path]).results
    styles = {result.label: style_of(result) for result in report}
    assert len(set(styles)) == len(set(styles.values())) == 5
    assert styles["TD7"] == row_style("online", "TD7")


def test_wrapped_labels_keep_names_and_values_together() -> None:
    label = "TD7, learning_rate 0.0001, batch_size 1024, hidden_dim 64"
    lines = ["TD7, learning_rate 0.0001,", "batch_size 1024, hidden_dim 64"]
    assert wrap_label(label).splitlines() == lines


def test_a_dollar_sign_in_a_label_is_no_mathematics(tmp_path: Path) -> None:
    write_run(tmp_path / "run", pair(5), variant=r"design/$\wrong$", env=r"Ant$\x$-v4")
    made = read_report([tmp_path])
    files = write(made, tmp_path / "out")
    (svg,) = (file for file in files if file.name == "design-curves.svg")
    assert r"$\wrong$" in svg.read_text()

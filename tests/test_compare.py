"""`td7 compare`: pairs, numbers that a reader can check, and lines about what is not comparable."""

import io
import json
import math
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

import td7
from commands import FailingCommand, all_files
from fake_runs import write_run
from td7.cli.main import main
from td7.cli.terminal import comparison_tables
from td7.errors import InputError
from td7.reports.compare import Average, Compared, Comparison, compare_folders
from test_structure import ROOT

PAGE = (ROOT / "docs" / "guides" / "comparing.md").read_text()


def write(folder: Path, *last: float, **options: Any) -> Path:
    """A run with these returns in the last of two evaluations, a seed each."""
    return write_run(folder, {seed: [0.0, r] for seed, r in enumerate(last)}, **options)


def compared(*folders: Path, step: int | None = None) -> Compared:
    return compare_folders(folders, step)


def only(result: Compared) -> Comparison:
    (comparison,) = result.comparisons
    return comparison


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """TD3 with 1, 3 and 5, SAC with 2 and 8."""
    return (
        write(tmp_path / "td3", 1, 3, 5, algorithm="td3"),
        write(tmp_path / "sac", 2, 8, algorithm="sac"),
    )


def test_a_comparison_by_hand(two: tuple[Path, Path]) -> None:
    """TD3: mean 3, variance 4, squared error 4/3. SAC: mean 5, variance 18, squared error 9.

    SAC is better in 4 of 6 pairs: 2 > 1 and 8 > 1, 3, 5.
    """
    result = compared(*two)
    row = only(result)
    assert (row.task, row.step, row.baseline, row.row) == ("Ant-v4", 500_000, "TD3", "SAC")
    assert (row.baseline_mean, row.mean, row.difference) == (3, 5, 2)
    assert (row.baseline_seeds, row.seeds) == (3, 2)
    assert row.baseline_interval == pytest.approx(1.96 * 2 / math.sqrt(3))
    assert row.interval == pytest.approx(1.96 * 3)
    assert row.probability == pytest.approx(4 / 6)
    test = stats.ttest_ind([2, 8], [1, 3, 5], equal_var=False)
    assert row.p == pytest.approx(test.pvalue)
    limits = (row.difference_low, row.difference_high)
    assert limits == pytest.approx(tuple(test.confidence_interval()))
    assert row.probability_low is not None
    assert row.probability_high is not None
    assert 0 <= row.probability_low < 4 / 6 < row.probability_high <= 1
    assert (row.quantity, row.step_unit) == ("return", "time steps")
    assert (row.baseline_folder, row.folder) == tuple(map(str, two))
    assert (result.averages, result.notes) == ((), ())


def test_numbers_repeat(two: tuple[Path, Path]) -> None:
    assert compared(*two) == compared(*two)


def test_every_row_is_compared_with_the_first(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / a, i, i + 1, algorithm=a) for i, a in enumerate(("sac", "td3", "td7"))
    ]
    rows = compared(*folders).comparisons
    assert [(row.baseline, row.row, row.difference) for row in rows] == [
        ("SAC", "TD3", 1),
        ("SAC", "TD7", 2),
    ]


def test_tasks_are_compared_on_their_own_and_averaged(tmp_path: Path) -> None:
    """TD3 is better in 4 of 4 pairs on Ant-v4, and in 1 of 2 on Hopper-v4: 0.75."""
    for algorithm, ant, hopper in (("sac", (0, 1), (5, 6)), ("td3", (2, 3), (5.5,))):
        write(tmp_path / f"{algorithm}-ant", *ant, algorithm=algorithm)
        write(tmp_path / f"{algorithm}-hopper", *hopper, algorithm=algorithm, env="Hopper-v4")
    folders = sorted(tmp_path.iterdir())
    for result in (compared(*folders), compared(folders[0], tmp_path)):
        assert [(r.task, r.baseline, r.row, r.probability) for r in result.comparisons] == [
            ("Ant-v4", "SAC", "TD3", 1),
            ("Hopper-v4", "SAC", "TD3", 0.5),
        ]
        assert result.averages == (
            Average("SAC", "TD3", ("Ant-v4", "Hopper-v4"), 0.75, None, None),  # for one seed
        )
        assert result.notes == ("TD3 on Hopper-v4: one seed: no interval and no test",)


def test_an_average_has_an_interval(tmp_path: Path) -> None:
    """On one task always better, on the other never: resampling changes nothing."""
    for algorithm, ant, hopper in (("sac", (0, 1), (5, 6)), ("td3", (2, 3, 4), (3, 4))):
        write(tmp_path / f"{algorithm}-ant", *ant, algorithm=algorithm)
        write(tmp_path / f"{algorithm}-hopper", *hopper, algorithm=algorithm, env="Hopper-v4")
    (average,) = compared(*sorted(tmp_path.iterdir())).averages
    assert (average.probability, average.probability_low, average.probability_high) == (0.5,) * 3


def test_a_study_folder_is_compared_with_its_first_row(tmp_path: Path) -> None:
    for i, label in enumerate(("zs'a'", "TD7 (no checkpoints)")):
        write(tmp_path / f"{i}", i, i + 1, variant=f"design/{label}")
    row = only(compared(tmp_path))
    assert (row.baseline, row.row) == ("TD7 (no checkpoints)", "zs'a'")


def test_seeds_are_pooled_within_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "td3/a", {0: [0, 1]}, algorithm="td3")
    write_run(tmp_path / "td3/b", {1: [0, 3]}, algorithm="td3")
    sac = write(tmp_path / "sac", 1, 2, algorithm="sac")
    result = compared(sac, tmp_path / "td3")
    assert (only(result).mean, only(result).seeds) == (2, 2)
    (note,) = result.notes
    assert "pools the seeds of" in note  # and no longer: one seed


# -- what is not comparable ----------------------------------------------------------------------


def test_runs_of_other_lengths_are_compared_at_the_last_step_of_both(tmp_path: Path) -> None:
    long = write_run(tmp_path / "long", {0: [0, 1, 5, 9], 1: [0, 2, 6, 9]}, algorithm="td3")
    short = write_run(tmp_path / "short", {0: [0, 4], 1: [0, 5]}, algorithm="sac", every=1_000_000)
    result = compared(long, short)
    assert (only(result).step, only(result).baseline_mean, only(result).mean) == (
        1_000_000,
        5.5,
        4.5,
    )
    assert result.notes == (
        "Ant-v4: SAC and TD3 are compared at step 1,000,000, the last that both have; "
        "they end at 1,000,000 and 1,500,000",
    )


def test_the_step_can_be_chosen(two: tuple[Path, Path]) -> None:
    row = only(compared(*two, step=0))
    assert (row.step, row.difference, row.p, row.difference_low) == (0, 0, None, None)
    with pytest.raises(InputError, match=r"not both evaluated at step 7; the nearest step is 0$"):
        compared(*two, step=7)


@pytest.mark.parametrize(
    ("returns", "every", "message"),
    [
        ([0.0, 1.0], 300_000, "share only step 0, before training, at which they were evaluated"),
        ([], 500_000, "sac: no evaluation yet of a run of 500,000 steps"),
    ],
)
def test_runs_without_a_common_evaluation(
    returns: list[float], every: int, message: str, tmp_path: Path
) -> None:
    td3 = write(tmp_path / "td3", 1, 2, algorithm="td3")
    options: dict[str, Any] = {"algorithm": "sac", "every": every, "steps": 500_000, "seeds": [0]}
    sac = write_run(tmp_path / "sac", {0: returns} if returns else {}, **options)
    with pytest.raises(InputError, match=message):
        compared(td3, sac)


def test_a_baseline_without_evaluations_is_an_error(tmp_path: Path) -> None:
    """The next run must not become the baseline silently."""
    none = write_run(tmp_path / "none", {}, seeds=[0], steps=10)
    others = [write(tmp_path / name, 1, 2, algorithm=name) for name in ("td3", "sac")]
    with pytest.raises(InputError, match=r"none is the baseline, but has no evaluations: .*yet"):
        compared(none, *others)
    result = compared(*others, none)
    assert [note for note in result.notes if "no evaluation yet of a run of 10 steps" in note]


def test_one_seed_has_no_interval_and_no_test(tmp_path: Path) -> None:
    td3 = write(tmp_path / "td3", 1, 3, algorithm="td3")
    sac = write(tmp_path / "sac", 2, algorithm="sac")
    result = compared(td3, sac)
    row = only(result)
    assert (row.difference, row.difference_low, row.difference_high, row.p) == (0, None, None, None)
    assert (row.interval, row.probability) == (None, 0.5)
    assert (row.probability_low, row.probability_high) == (None, None)
    assert result.notes == ("SAC on Ant-v4: one seed: no interval and no test",)


def test_returns_that_do_not_vary_have_no_test(tmp_path: Path) -> None:
    folders = [write(tmp_path / a, 7, 7, algorithm=a) for a in ("td3", "sac")]
    result = compared(*folders)
    row = only(result)
    assert (row.difference, row.difference_low, row.p, row.probability) == (0, None, None, 0.5)
    assert result.notes == (
        "Ant-v4: SAC and TD3: the returns of their seeds do not vary, so that there is no test",
    )


WRAPPED = {"id": "Ant-v4", "kwargs": {}, "wrappers": [{"name": "a:B", "kwargs": {}}]}


@pytest.mark.parametrize(
    ("options", "task", "is_similar"),
    [
        ({"env": "Hopper-v4"}, "Hopper-v4", False),
        ({"kwargs": {"gravity": 3}}, "Ant-v4 (gravity=3)", True),
        ({"also": {"task": WRAPPED}}, "Ant-v4 (a:B)", True),
        ({"dataset": "/data/ant.hdf5"}, "ant (of other origin)", True),
    ],
)
def test_other_tasks_are_not_compared(
    options: dict[str, Any], task: str, is_similar: bool, tmp_path: Path
) -> None:
    td3 = write(tmp_path / "td3", 1, 3, algorithm="td3")
    sac = write(tmp_path / "sac", 2, 4, algorithm="sac", **options)
    line = f"{task}: SAC has a run, but not TD3, the baseline"
    line += "; other arguments, wrappers or data make another task" if is_similar else ""
    with pytest.raises(InputError) as error:
        compared(td3, sac)
    alone = "Ant-v4: only TD3, the baseline, has a run"
    assert str(error.value) == f"nothing to compare: {alone}; {line}"
    td7_run = write(tmp_path / "td7", 3, 4)
    result = compared(td3, sac, td7_run)
    assert only(result).row == "TD7"
    assert result.notes == (line,)


def test_runs_of_one_row_on_different_tasks_say_so(tmp_path: Path) -> None:
    runs = [write(tmp_path / name, 1, 3, env=f"{name}-v4") for name in ("Ant", "Hopper")]
    with pytest.raises(InputError) as error:
        compared(*runs)
    reason = "the runs of TD7 are on different tasks: Ant-v4, Hopper-v4"
    assert str(error.value) == f"nothing to compare: {reason}"


def test_runs_that_were_evaluated_differently_are_named(tmp_path: Path) -> None:
    td3 = write(tmp_path / "td3", 1, 3, algorithm="td3")
    sac = write(tmp_path / "sac", 2, 4, algorithm="sac", also={"evaluation_episodes": 1})
    assert compared(td3, sac).notes == (
        "Ant-v4: SAC and TD3 were not measured in the same way: evaluation_episodes 1 and 2",
    )


def test_another_version_of_the_task_is_named(tmp_path: Path) -> None:
    tasks = [
        {"modules": {"ant": {"sha256": digest, "folder": "/"}}, "packages": {}, "probe": None}
        for digest in "01"
    ]
    td3, sac = (
        write(tmp_path / algorithm, 1, 3, algorithm=algorithm, also={"fingerprint": task})
        for algorithm, task in zip(("td3", "sac"), tasks, strict=True)
    )
    assert compared(td3, sac).notes == (
        "Ant-v4: SAC has another version of the task than TD3: the source of module 'ant'",
    )


def test_the_same_experiment_twice_is_named(tmp_path: Path) -> None:
    old = write(tmp_path / "old", 1, 3)
    new = write(tmp_path / "new", 2, 4)
    further = write_run(tmp_path / "further", {5: [0, 1], 6: [0, 2]})
    result = compared(old, new, further)
    assert [(row.baseline, row.row) for row in result.comparisons] == [
        ("TD7 (old)", "TD7 (new)"),
        ("TD7 (old)", "TD7 (further)"),
    ]
    assert result.notes == (
        "Ant-v4: TD7 (new) and TD7 (old) are the same experiment, with seeds 0, 1 in both",
        "Ant-v4: TD7 (further) and TD7 (old) are the same experiment with other seeds; "
        "in one folder, their seeds are pooled",
    )


def test_the_same_experiment_by_another_name_is_named(tmp_path: Path) -> None:
    """A row that is not the study's any more has its own label; other settings make another row."""
    settings = {"discount": 0.9}
    named = write(tmp_path / "named", 1, 2, variant="mine/short", changed=settings)
    plain = write(tmp_path / "plain", 1, 2, changed=settings)
    other = write(tmp_path / "other", 1, 2, changed={"discount": 0.8})
    same = "Ant-v4: TD7, discount 0.9 and short are the same experiment, with seeds 0, 1 in both"
    notes = compared(named, plain, other).notes
    assert [note for note in notes if "no row" not in note] == [same]


def test_folders_of_the_same_rows_are_two_sides(tmp_path: Path) -> None:
    """On every task the first folder's is the baseline, although all have the same label."""
    for folder in ("old", "new"):
        for env in ("Ant-v4", "Hopper-v4"):
            write(tmp_path / folder / env, 1, 2, env=env)
    folders = [tmp_path / "old", tmp_path / "new"]
    (average,) = compared(*folders).averages
    assert (average.baseline, average.row) == ("TD7 (old)", "TD7 (new)")
    runs = [run for folder in folders for run in sorted(folder.iterdir())]
    assert set(compared(*runs).comparisons) == set(compared(*folders).comparisons)


def test_names_of_folders_are_one_line(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, 1, 2) for name in ("a\nb", "c\x1b[31m")]
    row = only(compared(*folders))
    assert (row.baseline, row.row) == ("TD7 (a b)", "TD7 (c\\x1b[31m)")


def test_sides_whose_folders_are_mixed_up_are_named_by_their_first(tmp_path: Path) -> None:
    for name in ("a-ant", "b-ant", "a-hopper", "b-hopper"):
        write(tmp_path / name, 1, 2, env="Ant-v4" if "ant" in name else "Hopper-v4")
    names = ("a-ant", "b-ant", "a-hopper", "b-hopper")
    (average,) = compared(*(tmp_path / name for name in names)).averages
    assert (average.baseline, average.row) == ("TD7 (a-ant)", "TD7 (b-ant)")


def test_differences_that_a_label_does_not_show_are_named(tmp_path: Path) -> None:
    """A row that the study does not list may be anything."""
    folders = [
        write(tmp_path / f"{rate}", 1, 2, variant="mine/a", changed={"discount": rate})
        for rate in (0.7, 0.8)
    ]
    notes = compared(*folders).notes
    assert "Ant-v4: a (0.8) and a (0.7) differ: discount 0.8 and 0.7" in notes


def test_rows_are_named_by_what_differs_among_all_that_are_given(tmp_path: Path) -> None:
    """As in a report of all of them; what they have in common is a line."""
    folders = [
        write(tmp_path / f"{rate}", 1, 2, env="My-v0", changed={"discount": rate, "batch_size": 9})
        for rate in (0.7, 0.8)
    ]
    result = compared(*folders)
    assert (only(result).baseline, only(result).row) == ("TD7, discount 0.7", "TD7, discount 0.8")
    assert result.notes == (
        "TD7, discount 0.7 on My-v0: with batch_size 9",
        "TD7, discount 0.8 on My-v0: with batch_size 9",
    )


def test_other_data_of_the_same_name_are_named(tmp_path: Path) -> None:
    options = {"dataset": "/data/hopper_medium-v2.hdf5", "env": "Hopper-v4"}
    td3 = write(tmp_path / "td3", 1, 3, algorithm="td3+bc", **options)
    iql = write(tmp_path / "iql", 2, 4, algorithm="iql", **options)
    config = json.loads((iql / "config.json").read_text())
    config["dataset"]["sha256"] = "1"
    (iql / "config.json").write_text(json.dumps(config))
    result = compared(td3, iql)
    assert only(result).quantity == "D4RL score"
    assert only(result).step_unit == "updates"
    assert result.notes == (
        "hopper-medium-v2: IQL and TD3+BC learned from different data of this name",
    )


def test_a_folder_given_twice_counts_once(two: tuple[Path, Path]) -> None:
    result = compared(*two, two[0])
    assert only(result).row == "SAC"
    assert result.notes == (f"{two[0]} is given twice; it counts once",)
    with pytest.raises(InputError, match=r"TD3 on Ant-v4 is alone; .*; .* is given twice"):
        compared(two[0], two[0])
    with pytest.raises(InputError, match="give at least two runs"):
        td7.compare()


# -- the command and the function ----------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    assert main(["compare", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    return out, err


def test_json_is_all_that_is_printed(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "td7", 1)
    before = all_files(tmp_path)
    out, err = run(capsys, *two, other, "--json")
    data = json.loads(out)
    assert list(data) == ["comparisons", "averages", "notes"]
    first, second = data["comparisons"]
    assert (first["row"], first["difference"], second["row"], second["p"]) == (
        "SAC",
        2,
        "TD7",
        None,
    )
    assert data["notes"] == ["TD7 on Ant-v4: one seed: no interval and no test"]
    assert err == f"note: {data['notes'][0]}\n"
    assert all_files(tmp_path) == before
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"\| … (.*?) \|", PAGE)))
    names = {f.name for cls in (Comparison, Average) for f in fields(cls)}
    assert set(documented) == names


def test_the_table_of_python_has_the_same_numbers(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "td7", 1)
    table = td7.compare(td7.Run(two[0]), *map(str, two[1:]), other)
    assert capsys.readouterr() == ("", "note: TD7 on Ant-v4: one seed: no interval and no test\n")
    out, _ = run(capsys, *two, other, "--json")
    data = json.loads(out)
    assert list(table.columns) == list(data["comparisons"][0])
    assert (table.attrs["notes"], table.attrs["averages"]) == (data["notes"], data["averages"])
    assert list(table["difference"]) == [2, -2]
    alone = td7.compare(two[0], other)
    assert alone["p"].dtype == "float64"  # also where there is none
    assert alone["p"].isna().all()
    assert list(td7.compare(*two, step=0)["step"]) == [0]
    with pytest.raises(InputError, match="step=-1 must be at least 0"):
        td7.compare(*two, step=-1)


def test_a_mistake_gets_one_line(two: tuple[Path, Path], failing_command: FailingCommand) -> None:
    message = failing_command("compare", *two, "--step", "few")
    assert message == "--step takes a whole number, given 'few'"
    assert failing_command("compare", *two, "nowhere") == "nowhere does not exist"
    assert "is alone; a comparison needs two runs" in failing_command("compare", two[0])
    assert "the following arguments are required: DIR" in failing_command("compare")


def test_names_are_no_markup_and_narrow_tables_lose_nothing(tmp_path: Path) -> None:
    td3 = write(tmp_path / "td3", 10_000, 30_000, variant="mine/[red]a[/red]")
    sac = write(tmp_path / "sac", 20_000, 90_000, variant="mine/[b]" + "b" * 40)
    console = Console(width=80, file=io.StringIO(), record=True)
    for table in comparison_tables(compared(td3, sac)):
        console.print(table)
    text = console.export_text()
    assert "[red]a[/red]" in text
    assert "[b]bb" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("size", "mean"),
    [(4_000, "6,000 ± 3,920"), (40, "60.0 ± 39.2"), (0.4, "0.600 ± 0.392")],
)
def test_numbers_have_at_least_three_digits(
    size: float, mean: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    td3 = write(tmp_path / "td3", size / 2, size, algorithm="td3")
    sac = write(tmp_path / "sac", size, 2 * size, algorithm="sac")
    assert f"│ {mean} │" in run(capsys, td3, sac)[0]


# -- docs/guides/comparing.md --------------------------------------------------------------------


def test_the_examples_of_the_page_are_what_td7_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```sh\n(td7 compare[^\n]*)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for command, output in examples:
        printed = "".join(run(capsys, *shlex.split(command)[2:]))
        assert [line.rstrip() for line in printed.splitlines()] == output.splitlines()


def test_the_program_of_the_page_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "comparing.md", "exec"), {})
    out, err = capsys.readouterr()
    assert re.search(r"Hopper-v4 +TD7", out)
    assert err == ""

"""`td7 report`: what it writes, what it refuses, how long it takes."""

import json
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from fake_runs import pair, write_run
from mini_report import record_of, table_of
from td7.cli.main import main
from td7.reports.collect import collect
from td7.reports.report import read_report
from td7.reports.write import write


def _gone(folder: Path) -> list[str]:
    return [str(folder / "nowhere")]


def _empty(folder: Path) -> list[str]:
    return [str(folder)]


def _no_evaluations(folder: Path) -> list[str]:
    run = write_run(folder / "run", {}, seeds=(0,), steps=9)
    return [str(run)]


def _onto_a_file(folder: Path) -> list[str]:
    run = write_run(folder / "run", pair(1))
    (folder / "file").write_text("")
    return [str(run), "--out", str(folder / "file"), "--no-figures"]


def _damaged_request(folder: Path) -> list[str]:
    run = write_run(folder / "run", pair(1))
    (folder / "study.json").write_text("[]")
    return [str(run.parent)]


def _linked_tables(folder: Path) -> list[str]:
    run = write_run(folder / "run", pair(1))
    (folder / "report").mkdir()
    (folder / "report" / "tables").symlink_to(folder)
    return [str(run), "--out", str(folder / "report"), "--no-figures"]


BAD = {
    _gone: "does not exist",
    _empty: "holds no runs",
    _no_evaluations: "no run has an evaluation yet",
    _onto_a_file: "cannot write to",
    _damaged_request: "is damaged",
    _linked_tables: "report/tables is a link, which td7 does not follow",
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_an_input_error_is_one_line_on_stderr(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *make(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert BAD[make] in captured.err
    assert not captured.out


def test_the_command_writes_the_report_and_leaves_the_runs_alone(
    mini_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], report_folder: Path
) -> None:
    shutil.copytree(mini_runs / "online", tmp_path / "online")
    before = {p: p.read_bytes() for p in (tmp_path / "online").rglob("*.*")}
    out = tmp_path / "out"
    words = ["report", str(tmp_path / "online"), "--out", str(out), "--no-figures"]
    assert main([*words, "--markdown", str(tmp_path / "page.md")]) == 0
    captured = capsys.readouterr()
    assert (
        "3 runs (3 finished) with 6 seeds in all, 40.0 minutes of wall-clock time" in captured.out
    )
    assert f"{out / 'report.html'}" in captured.out
    name = "tables/online-scores.csv"
    assert (out / name).read_text() == (report_folder / name).read_text()
    assert (tmp_path / "page.md").read_text() == (out / "report.md").read_text()
    assert not (out / "figures").exists()
    assert {p: p.read_bytes() for p in (tmp_path / "online").rglob("*.*")} == before


def test_tables_replace_what_is_between_their_marks(mini_runs: Path, tmp_path: Path) -> None:
    """The rest of the file stays; a second time changes nothing."""
    file = tmp_path / "text.md"
    marks = "<!-- td7 report: online-headline -->\n{}<!-- td7 report -->"
    file.write_text(f"before\n{marks.format('old')}\nafter\n")
    words = ["report", str(mini_runs / "online"), "--out", str(tmp_path / "out"), "--no-figures"]
    for _ in range(2):
        assert main([*words, "--markdown", str(file), str(tmp_path / "new.md")]) == 0
        lines = [
            "| 1,000,000 steps, 2 seeds (paper) | HalfCheetah-v4 |",
            "|---|---|",
            "| TD3 | 11000 ± 196 (10574 ± 897) |",
            "| SAC | 15900 ± 196 (10484 ± 659) |",
            "| TD7 | 16000 ± 196 (17434 ± 155) |",
        ]
        table = "".join(f"{line}\n" for line in lines)
        assert file.read_text() == f"before\n{marks.format(table)}\nafter\n"
        assert (tmp_path / "new.md").read_text() == (tmp_path / "out/report.md").read_text()
    file.write_text(marks.format("old").replace("headline", "headline with caption"))
    assert main([*words, "--markdown", str(file)]) == 0
    caption = (
        "Mean ± 1.96 / sqrt(n) \\* sd over seeds, which is the paper's interval; the paper's "
        "numbers are in parentheses."
    )
    captioned = f"{caption}\n\n{table}"
    assert file.read_text() == marks.format(captioned).replace("headline", "headline with caption")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Mine\n", "it is not a report, and it has no complete marks"),
        ("<!-- td7 report: online-headline -->\n", "it has no complete marks"),
        (
            "<!-- td7 report: online-headlin -->\n<!-- td7 report -->",
            "unknown table of the report 'online-headlin'; did you mean 'online-headline'?",
        ),
    ],
)
def test_a_text_without_complete_marks_stays_as_it_is(
    mini_runs: Path, tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.md"
    file.write_text(text)
    words = ["report", str(mini_runs / "online"), "--out", str(tmp_path / "out"), "--no-figures"]
    assert main([*words, "--markdown", str(file)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert file.read_text() == text


def test_a_report_removes_the_files_of_an_earlier_report(tmp_path: Path) -> None:
    write_run(tmp_path / "a/run", pair(1000))
    write_run(tmp_path / "b/run", pair(1000), variant="beyond/SAC", algorithm="sac")
    out = tmp_path / "out"
    write(read_report([tmp_path / "a"]), out, with_figures=False)
    (out / "tables" / "mine.csv").write_text("not the report's")
    write(read_report([tmp_path / "b"]), out, with_figures=False)
    names = {path.name for path in (out / "tables").glob("*.csv")}
    assert names == {"mine.csv", "beyond-scores.csv", "beyond-speed.csv"}


def test_a_thousand_runs(tmp_path: Path) -> None:
    """Fifty rows, twenty tasks, ten seeds: tables and the page need seconds and little memory."""
    for row in range(50):
        for task in range(20):
            write_run(
                tmp_path / f"{row}/{task}",
                {seed: [1.0] * 20 + [float(row + seed)] for seed in range(10)},
                variant=f"design/row {row}",
                env=f"Task{task}-v0",
                every=50_000,
            )
    begin = time.process_time()
    report = read_report([tmp_path])
    write(report, tmp_path / "out", with_figures=False)
    assert time.process_time() - begin < 20
    records = table_of(report, "design-scores").records
    assert len(records) == 1000
    record = record_of(table_of(report, "design-scores"), row="row 40", place="Task19-v0")
    assert (record["mean"], record["seeds"]) == (44.5, 10)
    tracemalloc.start()  # slows everything down, hence fewer runs
    collect([tmp_path / f"{row}" for row in range(10)])
    assert tracemalloc.get_traced_memory()[1] < 40e6  # bytes, of two hundred runs
    tracemalloc.stop()


def test_a_report_replaces_links_and_removes_only_its_own_files(tmp_path: Path) -> None:
    """A stranger's run may lie beside a report, in which files.json names files of the reader's."""
    run, out, mine = write_run(tmp_path / "run", pair(1)), tmp_path / "report", tmp_path / "mine"
    mine.write_text("mine")
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    for name in ("report.html", "report.md", "curves.csv", "files.json"):
        (out / name).symlink_to(mine)
    write(read_report([run]), out, with_figures=True)
    assert mine.read_text() == "mine"
    (out / "tables" / "old.csv").write_text("of an earlier report")
    names = ["tables/old.csv", "notes.txt", "../mine", "tables/../../mine", 3, None]
    for content in (json.dumps(names), "[" * 100_000):
        (out / "files.json").write_text(content)
        write(read_report([run]), out, with_figures=False)
        assert not (out / "tables" / "old.csv").exists()
        assert (out / "notes.txt").exists()
        assert mine.exists()

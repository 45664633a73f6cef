"""The HTML page."""

import math
import re
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

import pytest

from fake_runs import pair, write_run
from td7.errors import InputError
from td7.reports.chart_data import chart_data
from td7.reports.html import page
from td7.reports.markdown import markdown_page, with_tables
from td7.reports.report import read_report
from td7.reports.videos import LARGEST_VIDEO
from td7.studies.rows import STUDIES

MP4 = b"\0\0\0\x20ftypisom"  # how such a file begins


def test_the_page_loads_nothing_from_elsewhere(report_folder: Path) -> None:
    page = (report_folder / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(", page)
    assert not re.findall(r"\{\{\w+\}\}", page)
    assert 'lang="en"' in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:aria-labelledby="|href="#)([^"]*)"', page):
        assert target in ids


def test_results_come_first_and_versions_last(report_folder: Path) -> None:
    """On the page and in its navigation, and in Markdown; every caption is before its table."""
    page = (report_folder / "report.html").read_text()
    sections = re.findall(r'<section id="([^"]*)"', page)
    assert sections == [*STUDIES, "every-run", "missing", "machines"]
    assert re.findall(r'<a href="#([^"]*)">', page) == sections
    tables = re.findall(
        r'<h3 id="([^"]*)-title">.*?<p id="\1-caption".*?<table id="table-\1"', page, re.DOTALL
    )
    assert len(tables) == len(re.findall(r'<table id="', page))
    assert tables[0] == "online-headline"
    markdown = (report_folder / "report.md").read_text()
    headings = re.findall("^## (.*)$", markdown, re.MULTILINE)
    assert headings[0].startswith("Compared with the paper: ")
    assert headings[-2:] == ["What is missing", "Machines and versions"]


def test_titles_are_neutral_where_no_number_of_the_paper_is_used(tmp_path: Path) -> None:
    """Such as for runs of one's own task; the command that wrote a page can write it again."""
    write_run(tmp_path / "own/td7", pair(1000), env="Own-v0")
    report = read_report([tmp_path / "own"])
    made, markdown = page(report), markdown_page(report)
    assert "<title>TD7: results</title>" in made
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", made)[0] == "Online training"
    assert "section 6" not in made.partition("<script")[0]
    assert markdown.startswith("# Results of the runs\n")
    assert "## Returns: Online training\n" in markdown
    assert with_tables(markdown, report) == markdown
    with pytest.raises(InputError, match="it is not a report"):
        with_tables("# Results of the runs of a reader\n", report)
    write_run(tmp_path / "td7", pair(1000))
    report = read_report([tmp_path])
    made, markdown = page(report), markdown_page(report)
    assert "<title>TD7: results compared with the paper&#x27;s</title>" in made
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", made)[0] == "TD7 and its baselines"
    assert "## Returns: TD7 and its baselines (section 6, Table 1)\n" in markdown
    assert with_tables(markdown, report) == markdown


def test_a_studys_tables_have_different_headings(report_folder: Path) -> None:
    made = (report_folder / "report.html").read_text()
    for section in re.findall(r"<section id=.*?</section>", made, re.DOTALL):
        headings = re.findall(r"<h3[^>]*>(.*?)</h3>", section)
        assert len(set(headings)) == len(headings)


def test_what_readers_need_stays_in_view() -> None:
    """By the style; tests/browser/check_page.py checks it in a browser."""
    style = (files("td7.reports") / "page" / "style.css").read_text()
    rules = dict(re.findall(r"^([^{}\n]+) \{\s*(.*?)\s*\}", style, re.MULTILINE | re.DOTALL))
    assert "position: sticky; top: 0;" in rules["nav"]
    assert "position: sticky; top: var(--nav);" in rules[".charts .legend"]
    first_column = rules["tr > :first-child"]
    assert "position: sticky; left: 0;" in first_column
    assert "background: inherit;" in first_column  # it covers the others
    assert "overflow-x: auto;" in rules[".scroll"]
    for mark in (".scroll::-webkit-scrollbar", ".scroll.more"):  # that there is more
        assert rules[mark]


def test_long_labels_are_wrapped(tmp_path: Path) -> None:
    """Otherwise they push the other columns out of the window."""
    changed = {"batch_size": 16, "random_steps": 300, "hidden_dim": 16}
    for name, own in (("td7", {}), ("changed", changed)):
        write_run(tmp_path / name, pair(1000), changed=own)
    report = read_report([tmp_path])
    made = page(report)
    label = "TD7, batch_size 16, random_steps 300, hidden_dim 16"
    assert f'<th scope="row" class="words long">{label}</th>' in made
    assert made.count(f'<th scope="row" class="words long">{label}</th>') > 2  # also of every run
    assert '<th scope="row" class="words">TD7</th>' in made


def test_videos_are_embedded_in_the_page(tmp_path: Path) -> None:
    """Those that are too large, and other files, are noted instead."""
    run = write_run(tmp_path / "run", pair(1000))
    (run / "policy.mp4").write_bytes(MP4)
    (run / "policy.gif").write_bytes(b"GIF89a")
    (run / ".film.tmp.mp4").write_bytes(b"being filmed")
    (run / "large.mp4").write_bytes(MP4 + bytes(LARGEST_VIDEO + 1 - len(MP4)))
    (run / "passwords.gif").write_bytes(b"root:secret")
    (run / "folder.mp4").mkdir()
    report = read_report([tmp_path])
    made = page(report)
    assert re.findall(r'<(video|img) [^>]*src="(data:[^"]*)"', made) == [
        ("img", f"data:image/gif;base64,{b64encode(b'GIF89a').decode()}"),
        ("video", f"data:video/mp4;base64,{b64encode(MP4).decode()}"),
    ]
    note = "large.mp4 is not on the page: 4,000,001 bytes, the limit is 4,000,000"
    assert f"online: TD7 on Ant-v4: {note}" in report.notes
    for name in ("passwords.gif", "folder.mp4"):
        note = f"online: TD7 on Ant-v4: {name} is not on the page: it is not a video"
        assert note in report.notes


def test_the_videos_of_a_page_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("td7.reports.videos.ALL_VIDEOS", len(MP4) + 1)
    for name in ("a", "b"):
        run = write_run(tmp_path / name, pair(1000), variant=f"design/{name}")
        (run / "policy.mp4").write_bytes(MP4)
    report = read_report([tmp_path])
    assert [len(result.videos) for result in report.results] == [1, 0]
    assert any("design: b on Ant-v4: policy.mp4 is not on the page" in n for n in report.notes)


def test_the_page_has_the_value_estimates_of_every_seed(tmp_path: Path) -> None:
    """They start at the first evaluation where all seeds have one."""
    values = {0: [math.nan, 400.0, 900.0], 1: [7.0, 400.0, 1100.0]}
    write_run(tmp_path / "run", pair(3000), values=values)
    report = read_report([tmp_path])
    (study,) = chart_data(report)["studies"]
    (estimates,) = study["estimates"]
    assert estimates["steps"] == (500_000, 1_000_000)
    assert estimates["values"] == [[400, 900], [400, 1100]]
    assert (estimates["seeds"], estimates["quantity"]) == ((0, 1), "value estimate")


def test_the_page_knows_the_lengths_of_runs(tmp_path: Path) -> None:
    """By which it cuts curves: of an unfinished run what it will have, of a point none."""
    write_run(tmp_path / "done", pair(1))
    write_run(tmp_path / "begun", pair(1), algorithm="td3", steps=3_000_000)
    write_run(tmp_path / "point", {0: [1.0]}, algorithm="sac", steps=10)
    (study,) = chart_data(read_report([tmp_path]))["studies"]
    lengths = {curve["row"]: curve["length"] for curve in study["curves"]}
    assert lengths == {"TD7": 1_000_000, "TD3": 3_000_000, "SAC": None}

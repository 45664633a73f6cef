"""CSV, Markdown, LaTeX and the page have the same cells and numbers."""

import csv
import html
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from fake_runs import pair, write_run
from mini_report import table_of
from td7.reports.formats import as_csv, as_markdown, latex, markdown
from td7.reports.parts import column_order
from td7.reports.report import Report, read_report
from td7.reports.write import write


def _unescaped_markdown(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    return [
        re.sub(r"\\(.)", r"\1", cell.strip().removeprefix("**").removesuffix("**"))
        for cell in cells
    ]


def _unescaped_latex(line: str) -> list[str]:
    cells = []
    for cell in re.split(r"(?<!\\)&", line.removesuffix(r" \\")):
        text = re.sub(r"^\\textbf\{(.*)\}$", r"\1", cell.strip())
        for written, plain in (
            (r"$\pm$", "±"),
            ("--", "–"),
            ("$>$", ">"),
            ("$<$", "<"),
            (r"\textbackslash{}", "\\"),
        ):
            text = text.replace(written, plain)
        cells.append(re.sub(r"\\([&%$#_{}])", r"\1", text))
    return cells


def test_markdown_latex_and_page_have_the_same_cells(
    mini_report: Report, report_folder: Path
) -> None:
    page = (report_folder / "report.html").read_text()
    for table in mini_report.tables:
        want = [[cell.text for cell in line] for line in table.lines]
        lines = (report_folder / "tables" / f"{table.name}.md").read_text().splitlines()
        assert [_unescaped_markdown(line) for line in lines[2:]] == want
        body = (report_folder / "tables" / f"{table.name}.tex").read_text()
        inside = body.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
        assert [_unescaped_latex(line) for line in inside if line != r"\midrule"] == want
        shown = page.partition(f'<table id="table-{table.name}"')[2].partition("</table>")[0]
        rows = re.findall(r"<tr>(.*?)</tr>", shown)[1:]
        plain = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
        order = column_order(table.header)
        on_page = [[html.unescape(re.sub("<.*?>", "", c)) for c in row] for row in plain]
        assert on_page == [[row[i] for i in order] for row in want]
        bold = [[cell.bold for cell in line] for line in table.lines]
        bold_on_page = [[c.startswith("<strong>") for c in row] for row in plain]
        assert bold_on_page == [[row[i] for i in order] for row in bold]
        assert [["**" in c for c in re.split(r"(?<!\\)\|", x)[1:-1]] for x in lines[2:]] == bold


def test_csv_and_page_have_the_same_numbers(mini_report: Report, report_folder: Path) -> None:
    page = (report_folder / "report.html").read_text()
    embedded = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    by_name = {table["name"]: table["records"] for table in embedded["tables"]}
    assert set(by_name) == {table.name for table in mini_report.tables}
    for name, records in by_name.items():
        text = (report_folder / "tables" / f"{name}.csv").read_text()
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == len(records)
        for row, record in zip(rows, records, strict=True):
            for key, value in record.items():
                shown = "" if value is None else str(value)
                assert row[key] == shown or float(row[key]) == value, (name, key)
        (address,) = re.findall(rf'download="{name}\.csv" href="data:[^,]*,([^"]*)"', page)
        assert unquote(address) == text


def test_cells_print_the_records(mini_report: Report) -> None:
    """Of every table of scores: each mean ± interval stands in the line of its row."""
    for table in mini_report.tables:
        if table.name.endswith("-scores"):
            spec = ".1f" if table.study == "offline" else ".0f"
            for record in table.records:
                if "1 seed" in record["place"]:  # 1, 2, 3: returns have three digits
                    spec = ".2f"
                column = next(
                    i for i, h in enumerate(table.header) if h.startswith(str(record["place"]))
                )
                (line,) = (
                    line
                    for line in table.lines
                    if [c.text for c in line[:2]] == [f"{record['step']:,}", record["row"]]
                )
                text = f"{record['mean']:{spec}}"
                if record["interval"] is not None:
                    text += f" ± {record['interval']:{spec}}"
                assert line[column].text == text


def test_curves_on_the_page_are_those_of_the_csv(report_folder: Path) -> None:
    page = (report_folder / "report.html").read_text()
    embedded = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    shown = {
        (study["name"], run["row"], run["place"], str(seed), str(step)): value
        for study in embedded["studies"]
        for run in study["curves"]
        for seed, values in zip(run["seeds"], run["values"], strict=True)
        for step, value in zip(run["steps"], values, strict=True)
    }
    rows = list(csv.DictReader((report_folder / "curves.csv").read_text().splitlines()))
    keys = ("study", "row", "place", "seed", "step")
    assert len(rows) == len(shown) > 100
    for row in rows:
        value = shown[tuple(row[key] for key in keys)]  # type: ignore[index]  # five words
        assert value == pytest.approx(float(row["value"]), rel=1e-5)


@pytest.mark.parametrize("text", ["zs'a'", "a & b", "50%_x", r"\top", "<b>|*`#~^{}$", "</script>"])
def test_labels_are_escaped(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "run", pair(5), variant=f"design/{text}")
    made = read_report([tmp_path])
    write(made, tmp_path / "out", with_figures=False)
    page = (tmp_path / "out/report.html").read_text()
    assert f">{html.escape(text)}</th>" in page
    assert "<b>" not in page.partition("<script")[0]
    embedded_text = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(embedded_text)
    embedded = json.loads(embedded_text)
    assert embedded["tables"][0]["records"][0]["row"] == text
    table = table_of(made, "design-scores")
    assert _unescaped_markdown(as_markdown(table).splitlines()[2])[1] == text
    rows = list(csv.DictReader(as_csv(table).splitlines()))
    assert rows[0]["row"] == text


HOSTILE = "a\n\n# Owned\x1b[2J\u2029\tb"


def test_labels_are_one_line_everywhere(tmp_path: Path) -> None:
    """None becomes a heading of Markdown, a paragraph of LaTeX, or a terminal's command."""
    write_run(
        tmp_path / "run",
        {0: [4.0, 5.0]},  # one seed, which is a note
        variant=f"my{HOSTILE}/{HOSTILE}",
        env=HOSTILE,
        kwargs={HOSTILE: HOSTILE},
        hardware={"gpu": HOSTILE},
        also={"command": HOSTILE},
    )
    made = read_report([tmp_path])
    assert made.notes
    files = write(made, tmp_path / "out", with_figures=False)
    for file in files:
        text = file.read_text()
        assert "\x1b" not in text
        assert not any(line.startswith("# Owned") for line in text.splitlines())
    assert not set("\x1b\n") & set("".join([*made.notes, *made.machines]))
    table = next(file for file in files if file.suffix == ".tex").read_text()
    assert "\n\n" not in table


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-zs", "@SUM(A1)"])
def test_no_label_is_a_formula_of_a_spreadsheet(text: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", pair(-5), variant=f"design/{text}")
    made = read_report([tmp_path])
    (row,) = csv.DictReader(as_csv(table_of(made, "design-scores")).splitlines())
    assert row["row"] == f"'{text}"
    assert row["mean"] == "-5.0"
    write(made, tmp_path / "out", with_figures=False)
    rows = list(csv.DictReader((tmp_path / "out" / "curves.csv").read_text().splitlines()))
    assert {row["row"] for row in rows} == {f"'{text}"}
    assert any(float(row["value"]) < 0 for row in rows)


def test_captions_come_before_tables(mini_report: Report, report_folder: Path) -> None:
    """In LaTeX and in Markdown; on the page as well, see test_report_page.py."""
    markdown_page = (report_folder / "report.md").read_text()
    for table in mini_report.tables:
        text = (report_folder / "tables" / f"{table.name}.tex").read_text()
        assert 0 < text.index(r"\caption{") < text.index(r"\begin{tabular}")
        part = f"## {markdown(table.title)}\n\n{markdown(table.caption)}\n\n{as_markdown(table)}\n"
        assert part in markdown_page


def test_latex_aligns_numbers_right(report_folder: Path) -> None:
    """Also in the second column, and text in the third; on the page as well."""
    for name, columns in {
        "online-headline": "lr",
        "online-reaching": "llrrrr",
        "ablation-losses": "rlllrr",
        "checkpoints-drops": "llrrrrrr",
    }.items():
        text = (report_folder / "tables" / f"{name}.tex").read_text()
        assert f"\\begin{{tabular}}{{{columns}}}" in text, name


def test_latex_escapes() -> None:
    assert latex(r"a_b & 5% #1 {x} $ ± – \n ~^") == (
        r"a\_b \& 5\% \#1 \{x\} \$ $\pm$ -- \textbackslash{}n \textasciitilde{}\textasciicircum{}"
    )
    assert latex("zs'a'") == "zs'a'"

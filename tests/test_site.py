"""The documentation: its site builds, code runs, commands parse, links lead somewhere."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from filelock import FileLock

import td7
from doc_blocks import (
    DOCS,
    ROOT,
    algorithm_of,
    anchors,
    blocks,
    code_of,
    commands_of,
    documents,
    links,
    pages,
    run_page,
)
from td7.algorithms import ALGORITHMS
from td7.cli.main import COMMANDS, build_parser, main, whole_parser
from td7.cli.train import hyperparameters
from td7.configs import build_config
from td7.datasets.download import DATASETS
from td7.options import TrainOptions
from td7.training.resolve import run_config, settings_of, train_options

# Other tests run the code of these pages, and check more of it.
RUN_BY = {
    "docs/extend/algorithm.md": "test_architecture.py",
    "docs/extend/study.md": "test_architecture.py",
    "docs/guides/comparing.md": "test_compare.py",
    "docs/guides/logging.md": "test_logging.py",
    "docs/reference/python.md": "test_single_run.py",
}

# Blocks that no test runs or parses, and why.
NOT_RUN: dict[str, list[str]] = {
    "docs/coming-from/authors-td7.md": ["another program", "files of another program"],
    "docs/coming-from/cleanrl.md": [
        "another program",
        "the end of a copied file",
        "it imports my_td7.py, the copied file",
    ],
    "docs/coming-from/d3rlpy.md": ["another library", "another library"],
    "docs/coming-from/stable-baselines3.md": ["another library"],
    "docs/extend/algorithm.md": ["it imports absolute.py, the module above"],
    "docs/extend/study.md": ["it imports discount.py, the module above"] * 2,
    "docs/guides/clusters.md": [*["needs Slurm"] * 4, *["needs Kubernetes"] * 2],
    "docs/reference/python.md": ["a mistake, which type checkers find"],
}

# Languages of blocks that are neither run nor parsed.
SHOWN = {"text", "bibtex", "json", "yaml", "toml", "csv", "bash", "ini", "dockerfile"}
DIRECTIVES = {"toctree", "hyperparameters", "command", "options", "study", "include", "eval-rst"}


# -- the site ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` builds it, once for all of pytest's workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "site.lock"):
        if not (folder / "site").exists():
            _build(folder / "site")
    return folder / "site"


def _build(out: Path) -> None:
    nowhere = "http://localhost:9"
    with tempfile.TemporaryDirectory() as trees:
        words = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", trees]
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *words, str(DOCS), str(out)],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
            env={**os.environ, "http_proxy": nowhere, "https_proxy": nowhere},
        )
    if done.returncode or done.stderr:
        shutil.rmtree(out, ignore_errors=True)
        pytest.fail(done.stderr)


def test_the_site_builds(site: Path) -> None:
    text = (DOCS / "index.md").read_text()
    entries = re.findall(r"^[\w-]+/[\w-]+$", text, re.MULTILINE)
    assert len(entries) >= 40
    for entry in ("index", *entries):
        assert (site / f"{entry}.html").is_file(), entry


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No script, style, picture or font of another host; formulas need no script at all."""
    formulas = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|source|iframe)[^>]* src=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]* href=\"([^\"]+)\"", text)
        assert [url for url in loaded if re.match(r"(https?:)?//", url)] == [], page
        formulas += text.count("<math")
    assert formulas > 50
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)[\"' ]*(https?:)?//", style.read_text()), style


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in td7.__all__:
        assert f'id="td7.{name}"' in text, name


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    names = {name for name in parser._option_string_actions if name.startswith("--")}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names.update(*map(_flags, action.choices.values()))
    return names - {"--help", "--version"}


def test_the_reference_has_every_option(site: Path) -> None:
    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    sections = dict(re.findall(r'<section id="td7-(\w+)">(.*?)</section>', text, re.DOTALL))
    assert sections.keys() == COMMANDS.keys()
    (commands,) = (a for a in whole_parser()._actions if isinstance(a.choices, dict))
    assert isinstance(commands.choices, dict)
    for name, parser in commands.choices.items():
        flags = set(re.findall(r'<span class="pre">(--[\w-]+)</span>', sections[name]))
        assert flags >= _flags(parser), name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_page_has_every_hyperparameter(name: str, site: Path) -> None:
    page = site / "algorithms" / f"{name.replace('+', '-')}.html"
    text = page.read_text(encoding="utf-8")
    (table,) = re.findall(r'<table class="generated.*?</table>', text, re.DOTALL)
    first = r'<tr class="row-\w+"><td><p><code[^>]*><span class="pre">(\w+)</span>'
    fields = [field for group in hyperparameters(name).values() for field, *_ in group]
    assert re.findall(first, table) == fields


# -- its code ------------------------------------------------------------------------------------


def test_every_block_has_a_known_language() -> None:
    """So that no program escapes by being called py, and no command by being called console."""
    known = {"python", "sh", *SHOWN}
    for page in pages():
        for block in blocks(page):
            language = block.language.removeprefix("{").partition("}")[0]
            assert language in (DIRECTIVES if block.language.startswith("{") else known), block


def test_blocks_that_are_not_run_are_listed() -> None:
    reasons: dict[str, list[str]] = {}
    for page in pages():
        if reasons_of_page := [b.not_run for b in blocks(page) if b.not_run is not None]:
            reasons[page] = reasons_of_page
    assert reasons == NOT_RUN


@pytest.mark.parametrize("page", [p for p in pages() if code_of(p) and p not in RUN_BY])
def test_python_runs(page: str, tmp_path: Path, example_run: Path) -> None:
    """All blocks of a page in order, in an empty folder."""
    run_page(page, tmp_path, example_run)


@pytest.mark.parametrize("page", RUN_BY)
def test_other_tests_run_the_rest(page: str) -> None:
    name = Path(page).name
    assert (
        f'"{name}"' in (ROOT / "tests" / RUN_BY[page]).read_text()
        or page in (ROOT / "tests" / RUN_BY[page]).read_text()
    )
    assert code_of(page)


# -- its commands --------------------------------------------------------------------------------


COMMAND_LINES = [
    pytest.param(words, id=f"{block.page}:{' '.join(words)}"[:120])
    for page in pages()
    for block, words in commands_of(page)
]


@pytest.mark.parametrize("words", COMMAND_LINES)
def test_commands_parse(
    words: list[str], working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each gets past the parser and its own checks: only folders and files are missing."""
    name = words[0]
    if name == "train":
        parsed = vars(build_parser(words)[0].parse_args(words))
        if parsed["algorithm"].startswith("my_"):  # module:name, which the reader has written
            parsed["algorithm"] = "td7"
        options = train_options({f: parsed[f] for f in TrainOptions.__dataclass_fields__})
        if options.dataset:  # which need not be here
            build_config(algorithm_of(options).config, settings_of(options.set))
        else:
            run_config(replace(options, device="cpu", engine="auto"))  # main would train
    elif name == "study":
        here = ["cpu" if before == "--device" else word for before, word in pairwise(("", *words))]
        assert main([*here, *([] if "--dry-run" in words else ["--dry-run"])]) == 0
    elif name == "tune":
        assert main([*words, *([] if "--dry-run" in words else ["--dry-run"])]) == 0
    elif name == "bench":
        build_parser(words)[0].parse_args(words)  # main would measure
    elif words[:2] == ["dataset", "fetch"]:
        build_parser(words)[0].parse_args(words)  # main would ask the network
        assert words[2] in DATASETS
    elif name in ("list", "completion", "--version", "--help") or "--help" in words:
        assert main(words) == 0
    else:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "does not exist" in error or "is neither a file nor a local Minari dataset" in error


# -- its links -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", documents(), ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    """Relative links and pictures, and their anchors, on the site and where files are browsed."""
    for link in links(file):
        target = (file.parent / link.target).resolve() if link.target else file
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        if link.anchor and target.suffix == ".md":
            assert link.anchor in anchors(target), link

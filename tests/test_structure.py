"""Docs and code agree, every ignore and every value has its reason; test_site runs the docs."""

import importlib
import re
from itertools import pairwise
from pathlib import Path

import pytest

import td7

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "td7"


def _modules() -> dict[str, Path]:
    paths = [p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py"]
    names = {p: ".".join(p.relative_to(SOURCE).with_suffix("").parts) for p in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def test_every_ignore_has_its_reason() -> None:
    pattern = r"# (?:type: ignore\[[\w-]+\]|noqa: \w+)(.*)"
    found = [
        (f"{path.name}: {line}", reason)
        for path in _modules().values()
        for line in path.read_text().splitlines()
        for reason in re.findall(pattern, line)
    ]
    found += re.findall(
        r'^    ("[A-Z]+\d+",)(.*)', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert len(found) >= 20
    assert [where for where, reason in found if not reason.strip().startswith("# ")] == []


@pytest.mark.parametrize("module", ["cql", "iql", "td3_bc", "xql"])
def test_values_of_the_offline_baselines_name_their_source(module: str) -> None:
    """A comment beside or above each; docs/reproduction/offline-sources.md has them in full."""
    lines = _modules()[f"algorithms.{module}"].read_text().splitlines()
    values = [
        (above, line)
        for above, line in pairwise(lines)
        if re.match(r"[A-Z_]+(, [A-Z_]+)* = |    \w+: \w+ = setting\(", line)
    ]
    assert values
    assert [line for above, line in values if "  # " not in line and "# " not in above] == []


def test_public_names_exist() -> None:
    for name in td7.__all__:
        assert getattr(td7, name).__doc__
        assert name in dir(td7)  # what editors and shells complete from
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        td7.trian  # noqa: B018


def _words(text: str) -> str:
    return " ".join(text.replace("\\|", "|").split())


def test_every_difference_is_listed() -> None:
    """A comment `# Differs from paper: …`, with its continuation lines, stands in the document."""
    document = _words((ROOT / "docs" / "reproduction" / "differences.md").read_text())
    found = 0
    for path in _modules().values():
        pattern = r"# Differs from paper: (.*(?:\n\s*# .*)*)"
        for comment in re.findall(pattern, path.read_text()):
            found += 1
            text = _words(re.sub(r"\n\s*# ", " ", comment))
            assert text in document, f"{path.name}: {text}"
    assert found >= 7


@pytest.mark.parametrize("page", ["paper-map.md", "differences.md"])
def test_every_name_in_the_docs_resolves(page: str) -> None:
    names = re.findall(r"`(td7(?:\.\w+)+)`", (ROOT / "docs" / "reproduction" / page).read_text())
    assert len(names) >= 7
    for name in names:
        parts = name.split(".")
        module = next(
            ".".join(parts[:i])
            for i in range(len(parts), 0, -1)
            if ".".join(parts[1:i]) in {*_modules(), ""}
        )
        thing = importlib.import_module(module)
        for part in name.removeprefix(module).strip(".").split("."):
            thing = getattr(thing, part)


def test_files_that_the_page_on_changes_names_exist() -> None:
    text = (ROOT / "docs" / "extend" / "where-to-change.md").read_text()
    names = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert len(names) >= 30
    assert [name for name in names if not (SOURCE / name).exists()] == []


def _blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_readme_is_short_and_begins_with_a_picture() -> None:
    """People decide within a minute; the rest is on the site."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 950
    first, *others = text.split("\n## ")
    assert len(first.splitlines()) <= 25
    assert "](docs/figures/td7-online.svg)" in first
    assert len(re.findall(r"^- \*\*", first, re.MULTILINE)) == 4  # reasons
    assert all(re.search(r"\d", reason) for reason in first.split("\n- **")[1:])
    titles = [section.partition("\n")[0] for section in others]
    assert titles[:5] == [
        "Install",
        "First run",
        "From Python",
        "Your own task",
        "Compare and reproduce",
    ]


def test_pictures_of_the_readme_are_small() -> None:
    text = (ROOT / "README.md").read_text()
    names = re.findall(r"\]\(([\w./-]+\.(?:svg|png|webp))\)", text) + re.findall(
        r'src="([^"]+)"', text
    )
    assert len(names) == 3
    assert all((ROOT / name).stat().st_size < 1_000_000 for name in names)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", "\n".join(_blocks("sh")), re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()

"""A unit of the package imports only from units above it; what workers import loads no torch.

A unit is a folder or a module directly in `td7`. Units on one line do not import each other, except
those of the first.
"""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "td7"
PATHS = sorted(SOURCE.rglob("*.py"))
ALL_MODULES = [
    ".".join(("td7", *p.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for p in PATHS
]

LAYERS = """
aliases errors types configs option_values seeding files memory modules processes statistics
options
networks | studies.rows
algorithms | rollouts
engine | option_types
runs
datasets
training
studies
reports | bench
tuning
api
cli
"""
# The units of the first line.
SHARED = set(LAYERS.split("\n")[1].split())
FORBIDDEN = {("reports", "training"), ("reports", "engine")}

# Worker processes import these, or commands that must start at once.
FREE_OF_TORCH = (
    *("td7.options", "td7.studies.rows", "td7.runs.policies", "td7.runs.video", "td7.runs.record"),
    *("td7.networks.description", "td7.networks.numpy_actor", "td7.networks.onnx"),
    *(name for name in ALL_MODULES if name.startswith("td7.rollouts.")),
    *(name for name in ALL_MODULES if name.startswith("td7.reports.")),
    *(n for n in ALL_MODULES if n.startswith("td7.datasets.") and n != "td7.datasets.record"),
)

LEVELS = {
    unit: level
    for level, line in enumerate(LAYERS.split("\n"))
    for unit in line.replace("|", " ").split()
}


def unit_of(module: str) -> str:
    """Return a module's unit, the longest that matches: `networks` for `td7.networks.masked`."""
    name = module.removeprefix("td7").removeprefix(".")
    return max((u for u in LEVELS if f"{name}.".startswith(f"{u}.")), key=len, default="")


def imports() -> list[tuple[str, str]]:
    """Return (module, imported module), imports within functions and for types included."""
    pairs = []
    for name, path in zip(ALL_MODULES, PATHS, strict=True):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                names = [f"{module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            pairs += [(name, n) for n in names if n.startswith("td7.")]
    return pairs


def test_every_module_belongs_to_a_unit() -> None:
    packages = {"td7", "td7.__main__", "td7.studies"}
    assert [name for name in ALL_MODULES if not unit_of(name) and name not in packages] == []


def test_units_import_from_units_above_them() -> None:
    wrong = set()
    for module, other in imports():
        here, there = unit_of(module), unit_of(other)
        if here in ("", there) or not there:
            continue
        is_above = LEVELS[there] < LEVELS[here]
        is_shared = {here, there} <= SHARED
        if not (is_above or is_shared) or (here, there) in FORBIDDEN:
            wrong.add(f"{module} imports {other}")
    assert sorted(wrong) == []


def test_modules_import_each_other_in_one_direction() -> None:
    """Imports for types alone are included, so that none hides a cycle."""
    modules = set(ALL_MODULES)
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for module, other in imports():
        target = other if other in modules else other.rpartition(".")[0]
        if target in modules and module not in (target, "td7"):
            edges[module].add(target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path, module))
        if module not in done:
            for other in sorted(edges[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in sorted(modules):
        visit(module, ())


def test_importing_them_does_not_load_torch() -> None:
    """A fresh process imports one after the other and names the first that does."""
    script = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{name} imports torch")
"""
    command = [sys.executable, "-c", script, *FREE_OF_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

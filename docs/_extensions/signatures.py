"""What autodoc shows of the package: short signatures, and links to its own types."""

import re
import sys
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

from td7.algorithms import Learner
from td7.errors import RunError, Stopped
from td7.runs.policies import Policy

# What is shown in place of the whole; options follow on the page, from the directive `options`.
SIGNATURES = {
    "td7.Policy.predict": "(observation, state=None, episode_start=None, deterministic=True)",
    "td7.train": "(algorithm='td7', *, listener=None, **options)",
    "td7.study": "(name, **options)",
}
# Types of annotations that are described elsewhere, or nowhere.
PLAIN = (
    *("Figure", "gymnasium.core.Env", "td7.algorithms.learner.Method"),
    *("td7.types.RowLayout", "td7.types.Transitions"),
)
MADE_BY_TD7 = (Learner, Policy, RunError, Stopped)  # readers of the site do not construct them


def process_signature(
    app: Sphinx, kind: str, name: str, thing: Any, options: Any, signature: str, returns: str
) -> tuple[str | None, str | None] | None:
    if name in SIGNATURES:
        return SIGNATURES[name], returns
    return ("", None) if thing in MADE_BY_TD7 else None


def process_docstring(
    app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Markdown's `code` becomes that of reStructuredText."""
    if name in SIGNATURES and "Options:" in lines:
        del lines[lines.index("Options:") :]
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def resolve(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, shown: nodes.TextElement
) -> nodes.Element | None:
    """Link a type that an annotation names without its module; leave Python's own as text."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    if target.partition(".")[0] in sys.stdlib_module_names or target in PLAIN:
        return shown
    domain = env.domains.python_domain
    assert isinstance(domain, PythonDomain)
    found = {
        (entry.docname, entry.node_id): name
        for name, entry in domain.objects.items()
        if name.rpartition(".")[2] == target.rpartition(".")[2]
    }
    if len(found) != 1:
        return None
    ((page, anchor),) = found
    return make_refnode(app.builder, node["refdoc"], page, anchor, [shown], target)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, which browsers show without scripts, fonts or a network."""

from typing import Any

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
CONVERTER = LatexToMathML(annotation=True, fancy_error=False)


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node, is_block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_mathml(node, is_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, is_block: bool) -> str:
    try:
        return CONVERTER.convert_with_local_state(node.astext().strip(), displaystyle=is_block)
    except LatexError as error:
        LOGGER.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

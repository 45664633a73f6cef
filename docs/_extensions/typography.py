"""Where lines break: never within 15265 ± 479, and within long words of code on a phone."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

PHONE = 42  # characters of code that fit on its line


class LineBreaks(SphinxPostTransform):
    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        del kwargs
        for text in list(self.document.findall(nodes.Text)):
            if " ± " in text and not isinstance(text.parent, nodes.literal_block):
                text.parent.replace(text, nodes.Text(text.replace(" ± ", "\u00a0±\u00a0")))
        for code in self.document.findall(nodes.literal):
            if max(map(len, code.astext().split()), default=0) > PHONE:
                code["classes"].append("long")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(LineBreaks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Keeps a mean and its interval, such as 15265 ± 479, on one line."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class Intervals(SphinxPostTransform):
    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        del kwargs
        for text in list(self.document.findall(nodes.Text)):
            if " ± " in text and not isinstance(text.parent, nodes.literal_block):
                text.parent.replace(text, nodes.Text(text.replace(" ± ", "\u00a0±\u00a0")))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(Intervals)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

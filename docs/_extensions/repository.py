"""Links to files of the repository that are not part of the site.

`[results](../../results/online/README.md)` works where the repository is browsed. On the site it
becomes a link if `repository_url` is set in conf.py; otherwise the reader sees the file's path.
"""

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class RepositoryLinks(SphinxTransform):
    """Replaces the links that MyST made for files outside the documentation, and for folders."""

    default_priority = 5  # before downloads are collected

    def apply(self, **kwargs: Any) -> None:
        del kwargs
        for link in list(self.document.findall(_is_link)):
            path = self._path(link)
            if path is not None:
                link.replace_self(self._shown(link, path))

    def _path(self, link: nodes.Element) -> Path | None:
        """Return the path that a link names, below the repository; None if the site has it."""
        docs = Path(self.env.srcdir)
        target = link["reftarget"]
        is_page = link.get("refdomain") == "doc"
        if is_page and target in self.env.found_docs:
            return None
        if is_page:  # MyST has removed the suffix of a page that is not the site's
            target += ".md"
        # A file that a page includes has links that are relative to it.
        here = Path(link.source or docs / link["refdoc"]).parent
        path = Path(os.path.normpath(here / target.partition("#")[0]))
        is_outside = not path.is_relative_to(docs) and path.is_relative_to(docs.parent)
        if path.is_dir() or (path.is_file() and is_outside):
            return path.relative_to(docs.parent)
        return None  # a file of the site that readers download, a name, or an error

    def _shown(self, link: nodes.Element, path: Path) -> nodes.Node:
        url = self.config.repository_url.rstrip("/")
        if url:
            kind = "tree" if (Path(self.env.srcdir).parent / path).is_dir() else "blob"
            reference = nodes.reference(refuri=f"{url}/{kind}/main/{path.as_posix()}")
            reference += link.children
            return reference
        literal = nodes.literal(text=path.as_posix())
        text = link.astext().strip().rstrip("/")
        is_path = "/" in text and text in path.as_posix()
        if is_path or path.as_posix().endswith(text) or text.endswith(path.name):
            return literal
        before = link.parent[: link.parent.index(link)]
        is_in_parentheses = bool(before) and before[-1].astext().endswith("(")
        begin, end = (": ", "") if is_in_parentheses else (" (", ")")
        shown = nodes.inline()
        shown += [*link.children, nodes.Text(begin), literal, nodes.Text(end)]
        return shown


def _is_link(node: nodes.Node) -> bool:
    kinds = addnodes.pending_xref | addnodes.download_reference
    return isinstance(node, kinds) and node.get("reftype") == "myst"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("repository_url", "", "env", str)
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

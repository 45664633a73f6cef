"""A figure as SVG within a page, with the page's own fonts and colours, light and dark."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from td7.tuning.figures import (
    BEST_COLOUR,
    LINE_COLOUR,
    blue_shares,
    figure_settings,
    rung_colours,
)

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
GREY = "color-mix(in srgb, var(--faint) 60%, var(--paper))"
NOT_SHOWN = {f"{{{SVG}}}metadata", f"{{{SVG}}}style"}


def page_colours(rungs: int) -> dict[str, str]:
    """The page's colour for every colour of the figures."""
    mixed = {
        colour: f"color-mix(in srgb, var(--here) {share:.0%}, {GREY})"
        for colour, share in zip(rung_colours(rungs), blue_shares(rungs), strict=True)
    }
    fixed = {
        rung_colours(1)[0]: "var(--here)",
        BEST_COLOUR: "var(--best)",
        LINE_COLOUR: "var(--ink)",
        "#000000": "var(--faint)",
        "#b0b0b0": "var(--faint)",
    }
    return {**mixed, **fixed}


def inline(
    figure: Any,
    name: str,
    *,
    label: str,
    colours: Mapping[str, str],
    titles: Mapping[str, Sequence[str]],
) -> str:
    """The figure as an element of a page; `name` makes its ids unique.

    `titles` are shown when the mouse is over a point: one per point of each group.
    """
    text = io.StringIO()
    with figure_settings():
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(text.getvalue())
    _name_ids(root, name, titles)
    for element in root.iter():
        for child in [child for child in element if child.tag in NOT_SHOWN]:
            element.remove(child)
        if "style" in element.attrib:
            element.set("style", _style(element.attrib["style"], colours))
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", label)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    made = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r"\s*\n\s*", " ", made).replace("> <", "><")


def _name_ids(root: Any, name: str, titles: Mapping[str, Sequence[str]]) -> None:
    """Give points their titles; keep the ids that the figure itself refers to, with the name."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = set(re.findall(r"[(\"]#([\w.-]+)[)\"]", text))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in titles:
            _add_titles(element, titles[own])
        if own in used:
            element.set("id", f"{name}-{own}")
        for key, value in element.attrib.items():
            if key == f"{{{XLINK}}}href":
                element.set(key, f"#{name}-{value[1:]}")
            elif value.startswith("url(#"):
                element.set(key, f"url(#{name}-{value[5:]}")


def _add_titles(group: Any, titles: Sequence[str]) -> None:
    points = list(group.iter(f"{{{SVG}}}use"))
    if len(points) != len(titles):  # matplotlib draws no point outside of a panel
        return
    for point, title in zip(points, titles, strict=True):
        ElementTree.SubElement(point, f"{{{SVG}}}title").text = title


def _style(text: str, colours: Mapping[str, str]) -> str:
    """With the page's colours, and without fonts."""
    rules = [rule.strip().split(": ", 1) for rule in text.split(";") if ": " in rule]
    kept = [(key, value) for key, value in rules if not key.startswith("font")]
    return "; ".join(f"{key}: {colours.get(value, value)}" for key, value in kept)

"""The documentation site: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

from td7 import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "td7"
author = "The td7 contributors"
project_copyright = "the td7 contributors"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "mathml",  # these are in _extensions
    "program",
    "repository",
    "signatures",
    "typography",
]
exclude_patterns = ["_build", "_extensions", "**/examples/**"]
smartquotes = False  # -- stands before options
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(torch|numpy|np|pandas|pd)\..*")]  # their sites are elsewhere

html_theme = "furo"
html_title = f"td7 {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0061a0",
        "color-brand-content": "#0061a0",
        "color-brand-visited": "#0061a0",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc4f5",
        "color-brand-content": "#7cc4f5",
        "color-brand-visited": "#7cc4f5",
    },
}
repository_url = ""  # a public address turns paths outside docs/ into links
copybutton_exclude = ".linenos, .gp, .go"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes the notebook

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 70  # longer ones have a line per parameter

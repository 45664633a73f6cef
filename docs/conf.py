"""The documentation site: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

from td7 import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "td7"
author = "The td7 contributors"
project_copyright = "the td7 contributors"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "**/examples/**"]
html_theme = "furo"
html_title = f"td7 {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes the notebook

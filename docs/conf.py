"""How the documentation is built: ``sphinx-build -W docs docs/_build/html``."""

from __future__ import annotations

import sys
from pathlib import Path

import sklearn_fairleak

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "sklearn_fairleak"
author = "The sklearn_fairleak developers"
project_copyright = f"2026, {author}"
version = release = sklearn_fairleak.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "filled_pages",
]
root_doc = "index"
templates_path = ["_templates"]
exclude_patterns = ["_templates", "_ext", "_build", "examples", "benchmarks/results", "**/README.rst"]
default_role = "literal"
highlight_language = "python"

# Every reference must lead somewhere; types of other projects have no page here.
nitpicky = True
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(numpy|np|pandas|pd|scipy|sklearn|fairlearn|matplotlib|narwhals|typing|fractions|pathlib)\..*",
    ),
    (r"py:class", r"(default|optional|array-like|ndarray|callable|DataFrame|Series|Bunch|Fraction|Path)"),
]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": ["examples"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 5,
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_fairleak"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}

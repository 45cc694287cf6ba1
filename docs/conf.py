"""The site: Markdown by MyST, tutorials run by MyST-NB, the API from docstrings. `make docs` builds it."""

import os
import sys
from importlib import import_module
from pathlib import Path

import calmoe

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "calmoe"
author = "The calmoe developers"
version = release = calmoe.__version__
project_copyright = author

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "outside",
    "docstrings",
]
exclude_patterns = ["_build"]
highlight_language = "text"
default_role = "py:obj"  # a name in backticks links to its entry, if it has one

# Markdown. Headings have GitHub's anchors, so that a link works on GitHub and on the site.
myst_heading_anchors = 4

# Tutorials run once a build, on one thread: the same figures everywhere, no core waits for another. A cell
# that fails breaks the build. Output that repeats in one cell is one block.
os.environ["OMP_NUM_THREADS"] = "1"
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings of the environment that builds the site

# The API. Types stand in the signature; `__all__` says what is public.
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
# members that torch and scikit-learn bring
FOREIGN = ("training", "forward", "set_fit_request", "set_score_request", "get_metadata_routing")
autodoc_default_options = {"members": True, "exclude-members": ", ".join(FOREIGN)}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

for lazy in ("calmoe", "calmoe.metrics"):  # autodoc does not see names that are loaded when first used
    module = import_module(lazy)
    vars(module).update({name: getattr(module, name) for name in module.__all__})

html_theme = "furo"
html_title = f"calmoe {version}"
html_static_path = ["_static"]
html_css_files = ["calmoe.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

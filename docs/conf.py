"""The site: `make docs`. Pages are read where they stand, from the root of the repository, so that their links work there."""

import sys
from importlib import metadata
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))  # for `site_parts`

project = "torchlht"
author = "the torchlht developers"
version = release = metadata.version("torchlht")
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/*.md", "benchmarks/reproduce/**.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["docs/gallery/*.ipynb", "docs/gallery/*.py", "docs/gallery/*.zip", "docs/examples"]
suppress_warnings = ["config.cache"]

sys.path.insert(0, str(DOCS / "examples"))  # for `made_up`

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "site_parts",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # tests execute the tutorials; the site shows them as they are kept

# scikit-learn adds these, with links to its own glossary.
REQUESTS = ",".join(f"set_{name}_request" for name in ("fit", "partial_fit", "predict", "score"))
default_role = "py:obj"  # single backticks in docstrings: a link where it is a name of ours, else code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    **dict.fromkeys(["Breadth", "Count", "Many", "Parallel", "Rank", "Seed", "Side", "Threads", "Width", "Workers"], "int"),
    **dict.fromkeys(["NotNegative", "Number", "OpenShare", "Positive", "Share", "WholeShare"], "float"),
    **dict.fromkeys(["Bools", "Floats", "Ints"], "ndarray"),
    "ArrayLike": "ArrayLike",
    "Inputs": "Inputs",
}
napoleon_use_ivar = True
strip_signature_backslash = True  # else names lose the underscore at their end
napoleon_attr_annotations = False
autodoc_default_options = {"members": True, "exclude-members": REQUESTS}

sphinx_gallery_conf = {
    "examples_dirs": "docs/examples",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "show_memory": False,
    "ignore_pattern": "made_up",
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "furo"
html_title = f"torchlht {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_search_scorer = str(DOCS / "static" / "scorer.js")
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = "$ "

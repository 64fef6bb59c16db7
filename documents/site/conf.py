"""`make site`: the documents as they are, copied to site/documents, become pages in site/html."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

project = html_title = "Shardlab"
extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_inline"]  # the glossary's anchors
root_doc = "README"
myst_heading_anchors = 6  # GitHub's
highlight_language = "bash"  # of indented blocks, which are commands
html_theme = "furo"
html_static_path = [str(HERE / "tables.css")]
html_css_files = ["tables.css"]
html_copy_source = False
exclude_patterns = ["choose/form.md"]  # `fill choose --blank` prints it
# Only a runner of GitHub knows the address.
if repository := os.environ.get("GITHUB_REPOSITORY"):
    html_theme_options = {
        "source_repository": f"https://github.com/{repository}/",
        "source_branch": "main",
        "source_directory": "",
    }

"""`make site`: the documents as they are, copied to site/documents, become pages in site/html."""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
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


def setup(app: Sphinx) -> None:
    app.connect("source-read", list_exercises)


def list_exercises(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the pages of README.md's exercises into its navigation (nav.md), in the order of its table."""
    if page == root_doc:
        folders = re.findall(r"^\| \[[\w-]+\]\((\S+)/README\.md\)", source[0], re.MULTILINE)
        for name in ("README.md", "RESULTS.md"):
            pages = [f"{folder}/{name}" for folder in folders if Path(app.srcdir, folder, name).exists()]
            source[0] = source[0].replace(f"EXERCISE/{name}", "\n".join(pages))

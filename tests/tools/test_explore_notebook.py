"""The notebook runs from top to bottom over the reference runs, and its cells show what they say."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

REPO = Path(__file__).parents[2]


def test_every_cell_of_the_notebook_runs() -> None:
    notebook = nbformat.read(REPO / "tools" / "explore.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), (
        "commit it without outputs: they would be old figures"
    )
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(REPO / "tools")}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3
    assert "completed" in outputs[0]["data"]["text/plain"]

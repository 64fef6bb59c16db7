"""Imports go one way: in tools from the commands to the logs, in workshop from the job to the record.

Of workshop the tools import record and settings alone, and no part of them needs torch.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.launching import REPO, run
from workshop.record.exercises import exercises_with

EXERCISES = [str(folder.relative_to(REPO)) for folder in exercises_with("*.slurm")]
# Each imports from those after it only.
TOOLS = ("commands", "plan", "submit", "tables", "logs")
WORKSHOP = ("simulate", "measure", "training", "kernels", "data", "sample", "settings", "record")
# Makes the import of these packages fail, then imports all modules of the tools.
WITHOUT_TORCH = """
import importlib, pathlib, sys
for name in ("torch", "transformers", "accelerate", "deepspeed", "datasets"):
    sys.modules[name] = None
for path in sorted(pathlib.Path("tools").rglob("*.py")):
    if path.name != "__main__.py":
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
"""


def imported(path: Path) -> set[str]:
    """Modules, and names in modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def above(package: str, order: tuple[str, ...], part: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}." for name in order[: order.index(part)])


@pytest.mark.parametrize(
    ("files", "forbidden"),
    [
        *((f"tools/{part}/*.py", above("tools", TOOLS, part)) for part in TOOLS),
        *((f"workshop/{part}/**/*.py", (*above("workshop", WORKSHOP, part), "workshop.job.")) for part in WORKSHOP),
        ("workshop/job/*.py", above("workshop", WORKSHOP, "settings")),
        ("workshop/kernels/fast_models/*.py", ("workshop.settings.settings.", "workshop.kernels.operators.")),
        ("workshop/**/*.py", ("tools.",)),
        ("tools/**/*.py", (*above("workshop", WORKSHOP, "settings"), "workshop.job.", "workshop.launch.")),
        *((f"{name}/*.py", ("tools.",)) for name in EXERCISES),
    ],
)
def test_part_imports_nothing_that_lies_above_it(files: str, forbidden: tuple[str, ...]) -> None:
    for path in REPO.glob(files):
        names = imported(path) - {"tools.__main__.main"}  # report fills its blocks with the commands themselves
        if path.name == "tables.py":  # read by the tools alone
            names = {name for name in names if not name.startswith(("tools.tables.", "tools.logs."))}
        assert [name for name in names if f"{name}.".startswith(forbidden)] == [], path


def test_tools_import_without_torch() -> None:
    run("python", "-c", WITHOUT_TORCH)


@pytest.mark.parametrize("folder", ["tools", "workshop"])
def test_modules_import_each_other_in_no_circle(folder: str) -> None:
    paths = {path: ".".join(path.relative_to(REPO).with_suffix("").parts) for path in (REPO / folder).rglob("*.py")}
    names = {name.removesuffix(".__init__") for name in paths.values()}
    edges = {}
    for path, name in paths.items():
        used = {one if one in names else one.rpartition(".")[0] for one in imported(path)}
        edges[name.removesuffix(".__init__")] = (used & names) - {folder, name.removesuffix(".__init__")}
    edges.pop("tools.__main__", None)
    TopologicalSorter(edges).prepare()  # CycleError names the circle

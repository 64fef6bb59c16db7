"""Imports go one way: from commands to logs to the contract of the run folder, and from exercises to workshop."""

import ast
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
# Each may import from those after it.
ORDER = ("commands", "doctor", "watch", "page", "plan", "submit", "tables", "logs")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("wing", ORDER)
def test_wing_imports_nothing_of_the_wings_before_it(wing: str) -> None:
    before = tuple(f"tools.{name}" for name in ORDER[: ORDER.index(wing)])
    for path in (REPO / "tools" / wing).glob("*.py"):
        upward = {name for name in imported(path) if name.startswith((*before, "workshop", "torch"))}
        upward = {name for name in upward if not name.startswith("workshop.run_folder")}
        # report fills its blocks with the commands themselves
        assert upward - {"tools.__main__.main"} == set(), path


@pytest.mark.parametrize(
    ("places", "others", "allowed"),
    [
        ("workshop/run_folder/*.py", ("tools", "workshop", "torch", "numpy"), ("workshop.run_folder",)),
        ("workshop/**/*.py", ("tools",), ()),
        ("workshop/kernels/fast_models/*.py", ("workshop",), ("workshop.kernels.fast_models", "workshop.run_folder")),
        *((f"{name}/*.py", ("tools",), ()) for name in sorted({path.parent.name for path in REPO.glob("*/*.slurm")})),
    ],
)
def test_what_lies_below_imports_nothing_from_above(places: str, others: tuple[str], allowed: tuple[str]) -> None:
    for path in REPO.glob(places):
        found = {name for name in imported(path) if name.split(".")[0] in others}
        assert {name for name in found if not name.startswith(allowed or "-")} == set(), path


@pytest.mark.parametrize("folder", ["tools", "workshop"])
def test_modules_import_each_other_in_no_circle(folder: str) -> None:
    paths = {path: ".".join(path.relative_to(REPO).with_suffix("").parts) for path in (REPO / folder).rglob("*.py")}
    names = {name.removesuffix(".__init__") for name in paths.values()}
    edges = {}
    for path, name in paths.items():
        used = {one if one in names else one.rpartition(".")[0] for one in imported(path)}
        edges[name.removesuffix(".__init__")] = (used & names) - {folder, name.removesuffix(".__init__")}
    edges.pop("tools.__main__", None)  # report fills its blocks with the commands themselves
    while leaves := {module for module, uses in edges.items() if not uses & edges.keys()}:
        edges = {module: uses for module, uses in edges.items() if module not in leaves}
    assert edges == {}

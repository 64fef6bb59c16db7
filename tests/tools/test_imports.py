"""Imports inside the tools go one way, from commands to logs and from there to evidence."""

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
        # report fills its blocks with the commands themselves
        assert upward - {"tools.__main__.main"} == set(), path


def test_contract_imports_the_standard_library_only() -> None:
    for path in (REPO / "run_folder").glob("*.py"):
        assert not {name for name in imported(path) if name.startswith(("tools", "workshop", "torch", "numpy"))}, path


@pytest.mark.parametrize("wing", ["logs", "tables", "submit", "plan", "page", "doctor", "watch"])
def test_modules_of_a_wing_import_each_other_in_no_circle(wing: str) -> None:
    edges = {
        path.stem: {name.split(".")[2] for name in imported(path) if name.startswith(f"tools.{wing}.")}
        for path in (REPO / "tools" / wing).glob("*.py")
    }
    while leaves := {module for module, uses in edges.items() if not uses & edges.keys()}:
        edges = {module: uses for module, uses in edges.items() if module not in leaves}
    assert edges == {}


def test_workshop_does_not_import_the_tools() -> None:
    for path in (REPO / "workshop").rglob("*.py"):
        assert not {name for name in imported(path) if name.startswith("tools")}, path


def test_exercises_do_not_import_the_tools() -> None:
    """Arrows run one way: exercises -> workshop -> evidence <- tools."""
    for path in [path for launcher in REPO.glob("*/*.slurm") for path in launcher.parent.glob("*.py")]:
        assert not {name for name in imported(path) if name.startswith("tools")}, path


def test_kernels_know_nothing_of_the_workshop() -> None:
    for path in (REPO / "workshop/kernels/fast_models").glob("*.py"):
        found = {name for name in imported(path) if name.startswith("workshop.")}
        assert {name for name in found if not name.startswith("workshop.kernels.fast_models")} == set(), path


def test_modules_of_the_workshop_import_each_other_in_no_circle() -> None:
    paths = {path: ".".join(path.relative_to(REPO).with_suffix("").parts) for path in (REPO / "workshop").rglob("*.py")}
    names = {name.removesuffix(".__init__") for name in paths.values()}
    edges = {}
    for path, name in paths.items():
        used = {one if one in names else one.rpartition(".")[0] for one in imported(path)}
        edges[name.removesuffix(".__init__")] = (used & names) - {"workshop", name.removesuffix(".__init__")}
    while leaves := {module for module, uses in edges.items() if not uses & edges.keys()}:
        edges = {module: uses for module, uses in edges.items() if module not in leaves}
    assert edges == {}

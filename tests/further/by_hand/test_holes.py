"""A participant's test of the holes: right only for what is right and sends no more than it need, else a reason."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.launching import REPO, run

HOLES, SOLUTIONS = REPO / "further/by-hand/holes", REPO / "instructor/answers/holes"
# Of each hole what to replace in the solution, by what, and what is said about it.
SUM, RING = "dist.all_reduce(parameter.grad)", "    for step in range(2 * (ranks - 1)):"
NO_RING = "    dist.all_reduce(tensor)\n    return\n"
# Every part straight to its rank and every sum straight to all.
TO_ALL = """    others = [other for other in range(ranks) if other != rank]
    for adds in (True, False):
        works = [dist.isend(parts[other if adds else rank].clone(), other) for other in others]
        for other in others:
            message = torch.empty_like(parts[rank if adds else other])
            dist.recv(message, other)
            parts[rank].add_(message) if adds else parts[other].copy_(message)
        [work.wait() for work in works]
    return
"""
LOOP = f"    for parameter in model.parameters():\n        {SUM}"
WRONG = (
    {
        "gradient_sum": (SUM, f"{SUM}\n        parameter.grad /= 2", "finds 0.5 times the right one"),
        "accumulation": (LOOP, LOOP.replace("    ", "        ", 1).replace("\n", "\n    "), "sends 90 numbers; 30 are"),
        "sharded_block": ("return own", "return gradient", "has the shape [15]; expected a tensor of the shape [8]"),
        "clip_shards": ("torch.clamp(max_norm / norm, max=1.0)", "max_norm / norm", "times the right one"),
        "ring_all_reduce": (RING, NO_RING + RING, "calls all-reduce; expected send"),
    },
    {
        "gradient_sum": (SUM, "parameter.grad = parameter.grad[0]", 'gradient_sum.py", line 9'),
        "sharded_block": ("dist.reduce_scatter(own", "dist.all_reduce(padded)\n    (own", "sends 48 numbers; 32 are"),
        "clip_shards": ("dist.all_reduce(squares)", "pass", "sends nothing"),
        "ring_all_reduce": ("list(tensor.tensor_split(ranks))", "[tensor] * ranks", "sends 40 numbers; 16 are enough"),
    },
    {
        "gradient_sum": (SUM, f"{SUM[:-1]}, async_op=True)", "did it wait for what it sent?"),
        "clip_shards": ("max_norm / norm", "1.0 / norm", "finds 2 times the right one"),
        "ring_all_reduce": (RING, TO_ALL + RING, "send (rank 2); expected send to the next rank and receive"),
    },
)
# Right, too: PyTorch's functional collectives, whose results are tensors of a class of their own.
IMPORT = "from torch.distributed._functional_collectives import all_reduce\n"
FUNCTIONAL = "parameter.grad = all_reduce(parameter.grad, 'sum', dist.group.WORLD)"


def said_about(folder: Path) -> str:
    """What a participant sees who has this code."""
    for name in ("test_holes.py", "pytest.ini"):
        if not (folder / name).exists():
            shutil.copy(HOLES / name, folder)
    words = ("python", "-m", "pytest", f"--basetemp={folder}-tmp", folder)
    return run(*words, code=None, PYTHONPATH=f"{REPO}:{os.environ['PYTHONPATH']}").stdout


def test_solutions_are_right(tmp_path: Path) -> None:
    assert "5 passed" in said_about(Path(shutil.copytree(SOLUTIONS, tmp_path / "holes")))


def test_usual_mistakes_are_named_and_stubs_are_skipped(tmp_path: Path) -> None:
    assert all("raise NotImplementedError" in (HOLES / f"{name}.py").read_text() for name in WRONG[0])
    folders = [Path(shutil.copytree(HOLES, tmp_path / str(number))) for number in range(len(WRONG))]
    for folder, mistakes in zip(folders, WRONG, strict=True):
        for name, (old, new, _) in mistakes.items():
            solution = (SOLUTIONS / f"{name}.py").read_text()
            assert old in solution
            (folder / f"{name}.py").write_text(solution.replace(old, new))
    solution = (SOLUTIONS / "accumulation.py").read_text()
    (folders[-1] / "accumulation.py").write_text(IMPORT + solution.replace(SUM, FUNCTIONAL))
    with ThreadPoolExecutor() as threads:
        every = [*threads.map(said_about, folders)]
    for said, mistakes in zip(every, WRONG, strict=True):
        assert f"{len(mistakes)} failed" in said
        for *_, reason in mistakes.values():
            assert reason in said
    assert "1 passed, 1 skipped" in every[-1] and "not filled in yet" in every[-1]

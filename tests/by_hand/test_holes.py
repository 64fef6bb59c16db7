"""A verdict on forty people's code: right only for what is right, a reason for what is not, and no harm done."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.commands import grade_code
from tools.page import grades

SOLUTIONS = REPO / "instructor/answers/holes"
# Of each hole what to replace in the solution, by what, and what is said about it.
SUM, RING = "dist.all_reduce(parameter.grad)", "    for step in range(2 * (ranks - 1)):"
LOOP = f"    for parameter in model.parameters():\n        {SUM}"
ALONE = "is that of this rank alone: nothing was added from the others"
WRONG = {
    "gradient_sum": [
        (SUM, "pass", ALONE),
        (SUM, f"{SUM}\n        parameter.grad /= 2", "is 0.5 times the right one (there are 2 ranks)"),
        (SUM, "parameter.grad = parameter.grad[0]", "the same size (gradient_sum.py, line 9)"),
    ],
    "accumulation": [
        (SUM, "pass", ALONE),
        (LOOP, LOOP.replace("    ", "        ", 1).replace("\n", "\n    "), "sends 45 numbers, expected 15: each grad"),
        (").backward()", ").div(len(micro_batches)).backward()", "is 0.333 times"),
    ],
    "sharded_block": [
        ("return own", "return gradient", "has the shape [15], expected [8]"),
        ("return own", "return own / dist.get_world_size()", "is 0.5 times the right one"),
        ("return own", "return padded.chunk(2)[dist.get_rank()]", ALONE),
        ("dist.all_gather(shards, shard)", "shards = [shard, shard]", "differs by up to"),
    ],
    "clip_shards": [
        ("dist.all_reduce(squares)", "pass", ALONE),
        ("return norm", "return", "returns or leaves None, expected a tensor"),
        ("torch.clamp(max_norm / norm, max=1.0)", "max_norm / norm", "times the right one"),
        ("torch.zeros(())", "torch.zeros(1)", "has the shape [1], expected []"),
    ],
    "ring_all_reduce": [
        (RING, f"    dist.all_reduce(tensor)\n    return\n{RING}", "calls all-reduce; expected send and receive alone"),
        (RING, f"    return\n{RING}", ALONE),
        ("range(2 * (ranks - 1))", "range(ranks - 1)", "differs by up to"),
        ("list(tensor.tensor_split(ranks))", "[tensor] * ranks", "sends 10 numbers at a time, expected parts of at m"),
    ],
}
NO_NAMESPACES = ["unshare", "-r", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"']
ALLOWED = shutil.which("unshare") is not None and subprocess.run(["unshare", "-rnmp", "true"]).returncode == 0


def graded(*folders: Path, before: list[str] = ()) -> tuple[dict[tuple[str, str], str], list[list[str]]]:
    """What is said about a folder's hole; the cells of each line of the table."""
    command = [*before, sys.executable, "-m", "tools", "grade-code", *map(str, folders)]
    lines = subprocess.run(command, cwd=REPO, capture_output=True, text=True).stdout.splitlines()
    said = [line.split(": ", 2) for line in lines[: -1 - len(folders)]]
    table = [line.split(maxsplit=5) for line in lines[-len(folders) :]]
    return {(Path(folder).name, hole): text for folder, hole, text in said}, table


def test_solution_is_right_a_stub_not_filled_in_and_each_usual_mistake_named(tmp_path: Path) -> None:
    expected = {}
    for name, mistakes in WRONG.items():
        solution = (SOLUTIONS / f"{name}.py").read_text()
        for number, (old, new, reason) in enumerate(mistakes):
            assert old in solution
            file = tmp_path / f"wrong-{number}" / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(solution.replace(old, new))
            expected[file.parent.name, name] = reason
    said, table = graded(SOLUTIONS, REPO / "by-hand/holes", *sorted(tmp_path.iterdir()))
    assert [line[1:5] for line in table[:2]] == [["holes", "5", "0", "0"], ["holes", "0", "0", "5"]]
    assert said.keys() == expected.keys()
    assert {place: said[place] for place in said if expected[place] not in said[place]} == {}


@pytest.mark.parametrize("allowed", [True, False])
def test_code_that_loops_reads_the_answers_or_asks_the_network_gets_nothing(tmp_path: Path, allowed: bool) -> None:
    """Where a site forbids namespaces, the last two succeed: the table says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = {
            "gradient_sum": "import time\nwhile True:\n    time.sleep(1)",  # leaves the processor to other tests
            "accumulation": f"open({str(SOLUTIONS / 'accumulation.py')!r})",
            "sharded_block": f"import socket\nsocket.create_connection({server.getsockname()})",
            "clip_shards": "bytearray(3 * 2**30)",
            "ring_all_reduce": "import os\nos._exit(0)",
        }
        for name, start in code.items():
            (tmp_path / f"{name}.py").write_text(f"{start}\n{(SOLUTIONS / f'{name}.py').read_text()}")
        said, (line,) = graded(tmp_path, before=NO_NAMESPACES if ALLOWED and not allowed else [])
    said = {name: text for (_, name), text in said.items()}
    assert "no end after 10 s" in said.pop("gradient_sum")
    assert "MemoryError" in said.pop("clip_shards")
    assert "a rank ended before its answer" in said.pop("ring_all_reduce")
    isolated = ALLOWED and allowed
    assert line[1:] == ["holes", *("05" if isolated else "23"), "0", *([] if isolated else ["not isolated"])]
    if isolated:
        assert "No such file or directory" in said.pop("accumulation")
        assert "Connection refused" in said.pop("sharded_block")
    assert said == {}


def test_page_has_each_hole_with_its_reason_and_that_the_code_was_not_isolated() -> None:
    found = [["gradient_sum", "is <0.5> times"], ["clip_shards", None], ["accumulation", ""]]
    grade = grade_code._grade(Path("ada"), "ada", found, isolated=False)
    text = re.sub(r"<[^>]+>|\s+", " ", grades.render([grade], "grade-code", "1 folder"))
    assert "not isolated" in text and "gradient_sum ada is &lt;0.5&gt; times" in " ".join(text.split())

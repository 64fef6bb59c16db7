"""collectives.csv: what a ring sends, and errors that name the line."""

from pathlib import Path

import pytest

from tools.errors import LogError
from tools.logs import collectives

HEADER = "step,collective,group,dtype,bytes,calls\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "collectives.csv"
    path.write_text(text)
    return path


def test_ring_sends_each_kind_s_share_of_the_message(tmp_path: Path) -> None:
    lines = ["all-reduce,0 1 2 3,bfloat16,1000,2", "all-gather,0 1,bfloat16,1000,1", "send,0 1,float32,1000,1"]
    found = collectives.read(written(tmp_path, HEADER + "".join(f"3,{line}\n" for line in lines)))
    assert [kind.sent_bytes for kind in found] == [3000, 500, 1000]


@pytest.mark.parametrize(
    ("text", "line"),
    [("step,calls\n", 1), (HEADER + "3,all-gather,0 1,float32,8\n", 2), (HEADER + "3,all-gather,,float32,8,1\n", 2)],
)
def test_damaged_file_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(LogError) as error:
        collectives.read(written(tmp_path, text))
    assert error.value.line == line

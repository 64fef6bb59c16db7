"""A message that says "1 runs" makes its reader look for the others."""

from run_folder.plural import counted


def test_one_is_singular_and_all_else_plural() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 2048)] == ["0 runs", "1 run", "2 runs", "2,048 runs"]
    assert [counted(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]

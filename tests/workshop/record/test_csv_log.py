"""Logs whose job was killed while it wrote."""

from pathlib import Path

from workshop.record.csv_log import rows


def test_last_cell_that_may_be_cut_off_has_no_value(tmp_path: Path) -> None:
    """`8` may be the beginning of `82`; a cell with its unit is whole."""
    for end, last in (("8", ""), ("8 MiB", "8 MiB"), ("8\n", "8")):
        (tmp_path / "log.csv").write_text(f"index, memory.used [MiB]\n0, 82\n1, {end}")
        _, found = rows(tmp_path / "log.csv", ["memory.used"])
        assert [row["memory.used"] for _, row in found] == ["82", last]

import re
import sys

from tools.benchmarks import hostile_lines


def test_no_reader_raises_anything_but_an_error_that_names_the_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hostile_lines.py", "--lines", "2000", "--seed", "7"])
    assert hostile_lines.main() == 0
    rows = re.findall(r"^\| \w+ \| (\d+) \| (\d+) \| 0 \| [\d.]+ \|$", capsys.readouterr().out, re.MULTILINE)
    assert len(rows) == len(hostile_lines.READERS)
    assert all(sum(map(int, column)) > 50 for column in zip(*rows, strict=True))


def test_reader_that_raises_something_else_is_told(monkeypatch, capsys):
    def read(path):
        raise IndexError

    monkeypatch.setattr(hostile_lines, "READERS", [read])
    monkeypatch.setattr(sys, "argv", ["hostile_lines.py", "--lines", "40"])
    assert hostile_lines.main() == 1

import csv
import os
import pwd

import pytest

from tools.__main__ import main
from tools.commands import check
from tools.tables.repository import table_definitions

README = "**Table 1** *Summary*\n\n| Metric | Value |\n|---|---:|\n| Train Loss (mean) | |\n| Steps per Epoch | |\n"


@pytest.fixture
def files(make_readme, tmp_path, monkeypatch):
    """Writes a participant's two cells into NAME.md; gives its path."""
    make_readme(README)
    definitions = table_definitions(tmp_path)
    monkeypatch.setattr(check, "table_definitions", lambda: definitions)

    def write(name: str, loss: str, steps: str) -> str:
        text = README.replace("(mean) | |", f"(mean) | {loss} |").replace("Epoch | |", f"Epoch | {steps} |")
        (tmp_path / f"{name}.md").write_text(text)
        return str(tmp_path / f"{name}.md")

    return write


def test_broken_file_costs_only_its_own_line(files, make_run, logs, tmp_path, capsys):
    make_run("r1")
    right, half = files("ada", "0.7039", "32"), files("bob", "0.9", "")
    (tmp_path / "eve.md").write_text(README.replace("Value", "Figure"))
    broken = str(tmp_path / "eve.md")
    assert main(["grade", right, half, broken, "--logs", str(logs), "--format", "csv"]) == 1
    header, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["file", "tables", "right", "wrong", "not filled in", "problem"]
    assert rows[:2] == [[right, "1", "2", "0", "0", ""], [half, "1", "0", "1", "1", ""]]
    assert rows[2][:5] == [broken, "", "", "", ""]
    assert rows[2][5].startswith("line 3: the columns of Table 1 are not those of"), "the path has its own column"
    missing = str(tmp_path / "missing.md")
    assert main(["grade", missing, "--logs", str(logs), "--format", "csv"]) == 1
    assert capsys.readouterr().out.endswith(f"{missing},,,,,cannot be read as text: No such file or directory\n")
    assert main(["grade", right, "--logs", str(logs)]) == 0
    assert capsys.readouterr().out.split()[-5:] == [right, "1", "2", "0", "0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_file_is_compared_with_the_runs_of_the_user_it_is_named_after(files, make_run, logs, capsys):
    make_run("r1", summary={"train_loss": 0.5})
    os.chown(make_run("r2", {"start_time": "2026-11-21T09:50:00+00:00"}, {"train_loss": 0.6}), 54321, -1)
    root = pwd.getpwuid(0).pw_name
    mine, theirs, nobody = files(root, "0.5", "32"), files("54321", "0.6", "32"), files("my_results", "0.6", "32")
    assert main(["grade", mine, theirs, "--logs", str(logs)]) == 0
    assert main(["grade", nobody, "--logs", str(logs)]) == 1
    assert f"named after no owner of runs; expected one of 54321.md, {root}.md" in capsys.readouterr().out

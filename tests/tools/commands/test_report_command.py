import pytest

from tools.__main__ import main

TABLE = "**Table 1** *Summary*\n\n| Metric | Value |\n|---|---:|\n| F1 (%) | |\n"
COMMAND = "python -m tools fill baseline --logs logs --plain"


@pytest.fixture
def root(make_readme, make_run, tmp_path):
    """A repository with one run and a README that has a blank table and an empty generated block."""
    make_run("r1")
    make_readme(f"# Baseline\n\n{TABLE}\n## Results\n\n<!-- generated: {COMMAND} -->\n<!-- end generated -->\n\nEnd.\n")
    return tmp_path


def test_block_is_filled_the_blank_table_stays_blank_and_what_drifted_is_named(root, capsys):
    assert main(["report", "--root", str(root)]) == 0
    text = (root / "baseline/README.md").read_text()
    assert text.count("| F1 (%) | |") == 1
    assert "|---|---:|\n| F1 (%) | 55.12 |\n\nFrom `logs/baseline/r1`\n\n<!-- end generated -->\n\nEnd.\n" in text
    assert "baseline/README.md: generated block updated" in capsys.readouterr().out
    (root / "baseline/README.md").write_text(text.replace("55.12", "99.99"))
    assert main(["report", "--root", str(root), "--check"]) == 1
    assert "baseline/README.md: generated block has drifted" in capsys.readouterr().out
    assert "99.99" in (root / "baseline/README.md").read_text()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("rm -rf logs", "only `python -m tools"),
        ("python -c 'x", "No closing quotation"),
        ("python -m tools plot baseline --output baseline/loss.png", "expected `--output FILE.svg` at its end"),
    ],
)
def test_readme_cannot_start_another_command_or_write_another_file(root, capsys, command, says):
    (root / "baseline/README.md").write_text(f"<!-- generated: {command} -->\n<!-- end generated -->\n")
    assert main(["report", "--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert "baseline/README.md:1: " in error and says in error


def test_plot_is_compared_as_text_and_a_check_writes_nothing(root, capsys):
    plot = "python -m tools plot baseline --logs logs --plain --output baseline/loss.svg"
    readme, picture = root / "baseline/README.md", root / "baseline/loss.svg"
    readme.write_text(f"<!-- generated: {plot} -->\n<!-- end generated -->\n")
    assert main(["report", "--root", str(root), "--check"]) == 1 and not picture.exists()
    assert "baseline/loss.svg: plot has drifted" in capsys.readouterr().out
    assert main(["report", "--root", str(root)]) == 0
    assert "\n![Training loss and GPU memory of baseline](loss.svg)\n" in readme.read_text()
    assert main(["report", "--root", str(root), "--check"]) == 0
    assert "prefers-color-scheme: dark" in picture.read_text() and "fill: currentColor" in picture.read_text()
    picture.write_text(picture.read_text().replace("Training loss", "Loss"))
    assert main(["report", "--root", str(root), "--check"]) == 1 and "Training loss" not in picture.read_text()

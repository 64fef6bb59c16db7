"""Blocks, plots and figures in sentences: where one drifts, `report --check` fails, and `report` mends it."""

import re
from pathlib import Path

import pytest

from tools.__main__ import main

RESULTS = """# Results

## One host

**Table 1** *Speeds*

| Model and data | Strategy | Samples/s, 4 x 4 | Runtime |
|---|---|---|---|
| small, 500 | DDP | 1,046.20 | 78 s |
| small, 500 | FULL_SHARD | 25.77 | OOM |

### A part of it

| Per step | GPU |
|---|---|
| idle | 8<!--wait--> ms |

## Another host

**Table 1** *Speeds*

| Model and data | Strategy | Samples/s, 4 x 4 | Runtime |
|---|---|---|---|
| small, 500 | DDP | 90.84 | 99 s |

<!-- figures
ddp: #another-host Table 1 | small, 500 | DDP | Samples/s, 4 x 4
time: #another-host Table 1 | small, 500 | DDP | Runtime
wait: difference time ddp
-->
"""
README = """# Exercise

It was 1,046<!--ddp--> samples/s in 78<!--time--> s, 40.6<!--ratio--> times as much; of it 8<!--idle--> ms idle.
The other: OOM<!--failed-->. <!-- a note --> See [here 5][there].

[there]: https://example.org "elsewhere"

<!-- figures
ddp full: RESULTS.md#one-host Table 1 | small, 500 | DDP; FULL_SHARD | Samples/s, 4 x 4
ratio: ratio ddp full
time: RESULTS.md#one-host Table 1 | small, 500 | DDP | Runtime
idle: RESULTS.md#a-part-of-it Per step | idle | GPU
failed: RESULTS.md#one-host Table 1 | small, 500 | FULL_SHARD | Runtime
-->
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "RESULTS.md").write_text(RESULTS)
    return tmp_path


def report(root: Path, *options: str) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tools.commands.report.REPO", root)
        return main(["report", *options])


@pytest.mark.parametrize(
    ("right", "drifted"), [("1,046<", "1,047<"), ("78<", "87<"), ("40.6<", "40.9<"), (" 8<", " 9<")]
)
def test_drifted_figure_is_named_and_mended(root: Path, capsys, right: str, drifted: str) -> None:
    (root / "README.md").write_text(README.replace(right, drifted))
    assert report(root, "--check") == 1
    assert f"README.md:3: {drifted.strip(' <')}, but " in capsys.readouterr().out
    assert report(root) == 0
    assert (root / "README.md").read_text() == README
    assert report(root, "--check") == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("| DDP | Runtime", "| DDQ | Runtime", "README.md:11: .* is 0 cells of RESULTS.md#one-host, not 1"),
        ("#one-host", "#no-host", "README.md:9: RESULTS.md has no heading #no-host"),
        ("RESULTS.md#a-part", "RESULTZ.md#a-part", "RESULTZ.md: No such file"),
        ("78<!--time-->", "78<!--tim-->", "README.md:3: 78<!--tim-->: not defined"),
        ("ratio ddp full", "ratio ddp fool", "README.md:10: .* NAME: ratio or difference or .* of two names above"),
        ("ratio ddp full", "sum ddp full", "README.md:10: .* expected NAME: FILE#SECTION TABLE"),
        ("DDP; FULL_SHARD", "DDP", "README.md:9: .* expected as many names as rows or columns"),
        ("1,046<", "many<", "README.md:3: <!--ddp-->: no number, expected 1,046.2"),
        ("1,046<", "OOM<", "README.md:3: OOM<!--ddp-->: no number, expected 1,046.2"),
    ],
)
def test_figure_from_nowhere_is_an_error(root: Path, capsys, before: str, after: str, complaint: str) -> None:
    (root / "README.md").write_text(README.replace(before, after))
    assert report(root, "--check") == 2
    error = capsys.readouterr().err
    assert re.search(complaint, error), error


# Generated blocks

TABLE = "**Table 1** *Summary*\n\n| Metric | Value |\n|---|---:|\n| F1 (%) | |\n"
COMMAND = "python -m tools fill baseline --logs logs --plain"


@pytest.fixture
def filled(make_readme, make_run, tmp_path):
    """A repository with one run and a README that has a blank table and an empty generated block."""
    make_run("r1")
    make_readme(f"# Baseline\n\n{TABLE}\n## Results\n\n<!-- generated: {COMMAND} -->\n<!-- end generated -->\n\nEnd.\n")
    return tmp_path


def test_block_is_filled_the_blank_table_stays_blank_and_what_drifted_is_named(filled, capsys):
    assert report(filled) == 0
    text = (filled / "baseline/README.md").read_text()
    assert text.count("| F1 (%) | |") == 1
    assert "|---|---:|\n| F1 (%) | 55.12 |\n\nFrom `logs/baseline/r1`\n\n<!-- end generated -->\n\nEnd.\n" in text
    assert "baseline/README.md: generated block updated" in capsys.readouterr().out
    (filled / "baseline/README.md").write_text(text.replace("55.12", "99.99"))
    assert report(filled, "--check") == 1
    assert "baseline/README.md: generated block has drifted" in capsys.readouterr().out
    assert "99.99" in (filled / "baseline/README.md").read_text()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("rm -rf logs", "only `python -m tools"),
        ("python -c 'x", "No closing quotation"),
        ("python -m tools plot baseline --output baseline/loss.png", "expected `--output FILE.svg` at its end"),
    ],
)
def test_readme_cannot_start_another_command_or_write_another_file(filled, capsys, command, says):
    (filled / "baseline/README.md").write_text(f"<!-- generated: {command} -->\n<!-- end generated -->\n")
    assert report(filled) == 2
    error = capsys.readouterr().err
    assert "baseline/README.md:1: " in error and says in error


def test_plot_is_compared_as_text_and_a_check_writes_nothing(filled, capsys):
    plot = "python -m tools plot baseline --logs logs --plain --output baseline/loss.svg"
    readme, picture = filled / "baseline/README.md", filled / "baseline/loss.svg"
    readme.write_text(f"<!-- generated: {plot} -->\n<!-- end generated -->\n")
    assert report(filled, "--check") == 1 and not picture.exists()
    assert "baseline/loss.svg: plot has drifted" in capsys.readouterr().out
    assert report(filled) == 0
    assert "\n![Training loss and GPU memory of baseline](loss.svg)\n" in readme.read_text()
    assert report(filled, "--check") == 0
    assert "prefers-color-scheme: dark" in picture.read_text() and "fill: currentColor" in picture.read_text()
    picture.write_text(picture.read_text().replace("Training loss", "Loss"))
    assert report(filled, "--check") == 1 and "Training loss" not in picture.read_text()

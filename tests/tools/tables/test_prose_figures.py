"""A figure in a sentence follows its table: where one drifts, `report --check` fails, and `report` mends it."""

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
| idle | 17<!--wait--> ms |

## Another host

**Table 1** *Speeds*

| Model and data | Strategy | Samples/s, 4 x 4 | Runtime |
|---|---|---|---|
| small, 500 | DDP | 90.84 | 99 s |

<!-- figures
wait: = 0 * ddp + 17
ddp: #another-host Table 1 | small, 500 | DDP | Samples/s, 4 x 4
-->
"""
README = """# Exercise

It was 1,046<!--ddp--> samples/s in 78<!--time--> s, 40.6<!--ratio--> times as much; of it 17<!--idle--> ms idle.
The other: OOM<!--failed-->. <!-- a note --> See [here 5][there].

[there]: https://example.org "elsewhere"

<!-- figures
ddp full: RESULTS.md#one-host Table 1 | small, 500 | DDP; FULL_SHARD | Samples/s, 4 x 4
ratio: = ddp / full
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
    return main(["report", "--root", str(root), *options])


@pytest.mark.parametrize(
    ("right", "drifted"), [("1,046<", "1,047<"), ("78<", "87<"), ("40.6<", "40.9<"), ("17<", "18<")]
)
def test_drifted_figure_is_named_and_mended(root: Path, capsys, right: str, drifted: str) -> None:
    (root / "README.md").write_text(README.replace(right, drifted))
    assert report(root, "--check") == 1
    assert f"README.md:3: {drifted.rstrip('<')}, but " in capsys.readouterr().out
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
        ("= ddp / full", "= ddp / fool", "README.md:10: .* expected arithmetic with names of figures"),
        ("DDP; FULL_SHARD", "DDP", "README.md:9: .* or NAME NAME"),
        ("1,046<", "many<", "README.md:3: <!--ddp-->: no figure before it"),
        ("1,046<", "OOM<", "README.md:3: 'OOM' quotes 1,046.2, but is no number"),
    ],
)
def test_figure_from_nowhere_is_an_error(root: Path, capsys, before: str, after: str, complaint: str) -> None:
    (root / "README.md").write_text(README.replace(before, after))
    assert report(root, "--check") == 2
    error = capsys.readouterr().err
    assert re.search(complaint, error), error

"""A demo shows what the commands print now, of runs that were made with tiny.env; nothing in it is typed by hand."""

import re
import shutil
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.rehearsal import chapters, demos
from tools.submit.submissions import read

LISTS = sorted(chapters.DEMOS.glob("*.txt"))


def test_every_chapter_has_a_list_of_runs_and_a_demo() -> None:
    taught = {path.parent.name for path in REPO.glob("*/README.md") if "\n**Table " in path.read_text()}
    assert {path.stem for path in LISTS} == taught == {path.stem for path in chapters.DEMOS.glob("*.md")}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_runs_of_a_list_are_kept_with_what_their_launchers_printed(path: Path) -> None:
    for line in read(path, {}):
        if line.count("nodes") == 1:
            run = demos.kept(line)
            assert run.state == "completed"
            assert "run folder: logs/" in (run.folder / demos.LAUNCHED).read_text()


def test_commands_of_the_demos_find_the_kept_runs_as_a_participant_finds_his_own(capsys) -> None:
    assert main(["demo", "fill baseline --tiny --only 2b"]) == 0
    fence, command, *printed = capsys.readouterr().out.splitlines()
    assert (fence, command) == ("```text", "$ python -m tools fill baseline --tiny --only 2b")
    assert "**Table 2b** *CPU memory, counted two ways (tiny runs)*" in printed
    assert any(re.match(r"From `logs/baseline/2\d+-\d+-p\d+`", line) for line in printed)


def test_participant_s_copy_has_one_right_and_one_wrong_cell(capsys) -> None:
    assert main(["demo", "check baseline"]) == 0
    printed = capsys.readouterr().out
    assert "$ python -m tools check my_results.md\n" in printed
    assert re.search(r"found \d+,\d+: read as \d+\.\d+\n.*: too small\n", printed)
    assert "11 cells: 1 right, 0 of an equal run, 1 wrong, 9 not filled in" in printed


def test_launcher_s_output_is_shown_with_what_one_types_for_it(capsys) -> None:
    assert main(["demo", "--gpus-per-node=2 fsdp/multi_gpu.slurm fsdp_configs/full_shard.json"]) == 0
    printed = capsys.readouterr().out
    command = "$ source tiny.env && GPUS_PER_NODE=2 bash fsdp/multi_gpu.slurm fsdp_configs/full_shard.json\n"
    assert printed.startswith(f"```text\n{command}run folder: logs/fsdp/")


def test_run_that_nobody_kept_is_an_error_that_says_where_they_are_listed(capsys) -> None:
    assert main(["demo", "FAULT=shard_missing resilience/drill.slurm"]) == 2
    assert "FAULT=shard_missing drill.slurm: no such run in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "demo: found nothing; expected a line of"),
        ("fsdp/walk.slurm", "error: 'fsdp/walk.slurm': found 'fsdp/walk.slurm', expected a launcher of fsdp: multi"),
        ("fsdp/multi_gpu.slurm 'a", 'argument COMMAND: found "fsdp/multi_gpu.slurm \'a", expected a shell line'),
        ("MAX_STEP=9 fsdp/walk.slurm", "error: 'MAX_STEP=9 fsdp/walk.slurm': found 'MAX_STEP', expected one of "),
        ("check", "the following arguments are required: file"),
        ("fill baseline --tinier", "unrecognized arguments: --tinier"),
    ],
)
def test_what_cannot_be_shown_is_said(words: str, says: str, capsys) -> None:
    try:
        code = main(["demo", words])
    except SystemExit as usage_error:
        code = usage_error.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_of_lines_that_differ_in_numbers_the_first_and_the_last_stay() -> None:
    steps = [f"{{'loss': '{9 - number}.5', 'epoch': '0.{number}'}}" for number in range(5)]
    assert demos.shortened(["begin", *steps, "end"]) == ["begin", steps[0], "...", steps[-1], "end"]


def test_of_torchrun_s_traceback_the_error_stays_and_of_a_script_s_all() -> None:
    calls = '  File ".venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n             ^^^^^^\n'
    begin, error = "Traceback (most recent call last):\n", "torch.ChildFailedError: \n  time : 2026\n"
    text = f"E1122 failed\n{begin}{calls}{error}"
    assert demos.without_torchrun(text) == f"E1122 failed\n{begin}  ... 3 lines of torchrun's traceback\n{error}"
    script = text.replace("torchrun", "train.py")
    assert demos.without_torchrun(script) == script


def test_kept_runs_name_no_folder_of_the_machine_and_hold_no_checkpoint(tmp_path, monkeypatch) -> None:
    logs = tmp_path / "logs"
    (first,) = (demos.RUNS / "baseline").iterdir()
    run = logs / "baseline" / first.name
    shutil.copytree(first, run)
    (run / "train.out").write_text(f"saved to {run}/out by {logs}/.code/0a1b2c/baseline/train.py and {REPO}/workshop\n")
    (run / "out").mkdir()
    (run / "out/model.safetensors").touch()
    (logs / ".local").mkdir()
    (logs / ".local/20261122-090000-baseline-line2.out").write_text(f"run folder: {run}\n")
    monkeypatch.setattr(demos, "RUNS", tmp_path / "kept")
    assert demos.keep(logs) == 1
    kept = tmp_path / "kept/baseline" / first.name
    assert (
        kept / "train.out"
    ).read_text() == f"saved to logs/baseline/{first.name}/out by baseline/train.py and workshop\n"
    assert (kept / demos.LAUNCHED).read_text() == f"run folder: logs/baseline/{first.name}\n"
    assert not (kept / "out").exists()

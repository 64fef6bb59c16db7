import pytest

from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.logs.run import Run
from tools.tables.markdown import TINY_LINE


@pytest.fixture
def fill(logs, capsys):
    def fill(*options: str, default_logs: bool = True) -> tuple[int, str, str]:
        chosen = ["--logs", str(logs)] if default_logs else []
        code = main(["fill", "baseline", *([] if "--only" in options else ["--only", "1,2"]), *chosen, *options])
        return code, *capsys.readouterr()

    return fill


def test_fill_prints_tables_sources_notes_and_the_next_command(fill, make_run):
    folder = make_run("r1", **{"gpu_memory.csv": None})
    code, printed, _ = fill()
    assert code == 0
    assert "| F1 (%) | 55.12 |" in printed
    assert "| Peak GPU Memory (MiB) | no GPU log |" in printed
    assert printed.count(f"From `{folder}`") == 2
    assert f"- Table 2: {folder}: no GPU log" in printed
    last = printed.split("\nnext: ")[1].splitlines()[1:]
    assert [line.split(" --logs")[0] for line in last] == [
        "  python -m tools fill baseline --blank > my_results_baseline.md",
        "  python -m tools check my_results_baseline.md",
    ]


TINY = {"model": {"name": "tiny", "hidden_size": 64}, "settings": {"model_name": "tiny"}}


def test_tiny_runs_fill_the_same_tables_and_it_is_said_that_they_are_tiny(fill, make_run, logs):
    tiny = make_run("r1", TINY)
    code, printed, error = fill()
    assert code == 3 and not printed and "not measured" not in error
    assert "- 1 run: tiny; `python -m tools fill " in error and f"--logs {logs} --tiny`" in error
    folder = make_run("r2", {"start_time": "2026-11-20T09:00:00+00:00"})
    code, printed, _ = fill()
    assert code == 0 and f"From `{folder}`" in printed and "- in no table: 1 run: tiny; " in printed
    code, printed, _ = fill("--tiny")
    assert code == 0 and printed.startswith(TINY_LINE) and f"From `{tiny}`" in printed
    assert "1 run: not tiny" in printed and "--tiny --blank > my_results_baseline.md" in printed
    assert TINY_LINE in fill("--tiny", "--logs", str(tiny), default_logs=False)[1]


def test_a_tiny_run_does_not_stand_for_three_models_in_a_table(make_run, logs, capsys):
    make_run("r1", TINY | {"exercise": "deepspeed-single-gpu", "config": "zero2_offload"})
    assert main(["fill", "deepspeed-single-gpu", "--tiny", "--only", "4", "--logs", str(logs)]) == 0
    printed = capsys.readouterr().out
    assert "| BLOOM-560m, 500 | Stage 2 + offload |" in printed and "BLOOM-3b" not in printed


def test_csv_holds_the_unrounded_figures_or_the_reason_why_there_is_none(fill, make_run):
    make_run("r1", **{"gpu_memory.csv": None})
    code, printed, _ = fill("--format", "csv")
    assert code == 0 and printed.startswith("table,row,column,value,unit,text\n")
    assert "\n1,F1 (%),Value,55.125,%,55.12\n2,Peak GPU Memory (MiB),Value,,MiB,no GPU log\n" in printed


def test_table_takes_the_runs_of_every_folder_given_or_of_one_owner(fill, make_run, tmp_path, monkeypatch):
    here = make_run("r1", {"start_time": "2026-11-21T09:00:00+00:00"}, **{"gpu_memory.csv": None})
    there = write_run(tmp_path / "host-b", "r2", {"start_time": "2026-11-21T10:00:00+00:00"})
    monkeypatch.setattr(Run, "owner", property(lambda run: {"r1": "ada", "r2": "grace"}[run.folder.name]))
    assert f"From `{here}`" in fill()[1]
    both = ["--logs", str(tmp_path / "host-b")]
    _, printed, _ = fill(*both)
    assert printed.count(f"From `{there}`") == 2
    assert f"- Table 1, 2: runs from several places: {here.parents[1]} (ada)" in printed
    assert " (grace); each cell shows the newest, --owner and --logs choose" in printed
    assert f"check my_results_baseline.md --logs {here.parents[1]} --logs {there.parents[1]}" in printed
    _, printed, _ = fill(*both, "--owner", "ada")
    assert printed.count(f"From `{here}`") == 2 and "places" not in printed and printed.endswith(" --owner ada\n")
    code, _, error = fill(*both, "--owner", "linus")
    assert code == 2 and "--owner linus: no run is in a folder of this user; there are runs of ada, grace" in error


def test_no_runs_at_all_has_its_own_exit_code_and_says_how_to_start_or_which_cannot_be_read(fill, make_run):
    code, printed, error = fill()
    assert code == 3 and not printed
    assert "no runs of baseline" in error and "sbatch baseline/" in error
    (make_run("bad") / "run.json").write_text("")
    code, printed, error = fill()
    assert code == 3 and not printed
    assert "unreadable: " in error and "bad/run.json" in error and "Start one" not in error


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["fill"], "error: fill needs an EXERCISE"),
        (["fill", "baseline", "--blank", "--only", "1,99"], "error: --only 99: "),
        (["fill", "no-such-exercise"], "error: no-such-exercise is no folder with a README.md; the exercises are: "),
        (["fill", "baseline", "--logs", "nowhere"], "error: nowhere: no such folder"),
    ],
)
def test_wrong_argument_is_one_line_and_no_traceback(arguments, error, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(error) and printed.count("\n") == 1

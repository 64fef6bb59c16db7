"""Every table is read, every label of it can be filled, and what a participant fills by hand is asked for."""

from pathlib import Path

import pytest

from tests.launching import tiny_profile
from tools.__main__ import main
from tools.errors import InputError
from tools.logs.run import Run
from tools.submit.submissions import Submission, read_list
from tools.submit.submitted import read_as_job
from tools.tables import markdown
from tools.tables.fill import NOT_MEASURED, fill
from tools.tables.forms import questions
from tools.tables.markdown import BY_HAND
from tools.tables.table import blank_cells, blank_tables, form_tables, predictions, tables_py
from workshop.record.exercises import exercises_with
from workshop.record.schema import RunRecord, typed
from workshop.settings.run_lines import MUST_DO


@pytest.mark.parametrize("exercise", exercises_with("tables.py"), ids=lambda folder: folder.name)
def test_every_cell_of_the_documents_has_a_figure_and_every_table_of_tables_py_is_in_a_document(exercise):
    tables = blank_tables(exercise)
    assert [table.number for table in tables] == [*tables_py(exercise).TABLES]
    for table in tables:
        assert blank_cells(table)


TABLE = "**Table 1** *Title*\n\n| Metric | Value |\n|---|---|\n| F1 (%) | |\n"


def read(folder: Path, text: str) -> list[markdown.Grid]:
    (folder / "README.md").write_text(text)
    return markdown.read_tables(folder / "README.md")


def test_generated_and_fenced_tables_are_no_definitions(tmp_path):
    generated = f"<!-- generated: python -m tools fill baseline -->\n{TABLE}<!-- end generated -->\n"
    assert [one.generated for one in read(tmp_path, generated + "```\n" + TABLE + "```\n" + TABLE)] == [True, False]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("**Table 1** *T*\n\ntext\n", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n| c |\n", "README.md:5: 1 cell, but the header of Table 1 has 2"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n\n", "README.md:3: Table 1 has no rows"),
    ],
)
def test_broken_table_is_named_with_its_line(tmp_path, text, error):
    with pytest.raises(InputError, match=error):
        read(tmp_path, text)


def test_block_of_the_results_gives_rows_that_no_blank_table_has(make_readme):
    head = "**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n"
    readme = make_readme(f"{head}| F1 (%) | ? |\n")
    (readme.parent / "RESULTS.md").write_text(
        "<!-- generated: python -m tools fill baseline --plain -->\n\n"
        f"{head}| F1 (%) | 55.12 |\n| Energy (J) | not logged |\n\n{head.replace('1', '2')}| Samples/s | 11.80 |\n\n"
        "<!-- end generated -->\n"
    )
    tables = blank_tables(readme.parent)
    assert [table.rows for table in tables] == [[["F1 (%)", "?"], ["Energy (J)", ""]], [["Samples/s", ""]]]
    readme.write_text(f"{head}| Samples/s | ? |\n")
    with pytest.raises(InputError, match=r"README.md: Table 1 of RESULTS.md has no cell Samples/s \| Value"):
        blank_tables(readme.parent)
    (readme.parent / "RESULTS.md").write_text(head.replace("1", "77") + "| F1 (%) | |\n")
    with pytest.raises(KeyError, match="77"):
        blank_tables(readme.parent)


def test_unknown_label_is_a_traceback_with_its_line(make_readme):
    (table,) = blank_tables(make_readme("**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n| F3 (%) | |\n").parent)
    with pytest.raises(KeyError, match=r"f3 \(%\)") as error:
        fill(table, [])
    assert str(error.traceback[-2].statement).strip() == "return figure(title), runs()"


def made(line: Submission) -> Run:
    """What a completed run of this line records of itself, without any figure."""
    settings, _ = read_as_job(line)
    config, nodes, per_node = line.config_path, line.count("nodes"), line.count("gpus-per-node")
    record = {"exercise": line.exercise.name, "config": config.stem if config else None, "state": "completed"}
    record["device"] = "cpu" if line.tiny else "cuda"
    record |= {"nodes": nodes, "gpus_per_node": per_node, "world_size": nodes * per_node}
    method = "ddp" if record["config"] == "ddp" else line.script.removesuffix(".py")
    # Tensor, context and pipeline parallel ranks share their examples.
    parts = {"dp_size": 1} if line.exercise.name == "dimensions" else {}
    facts = {"model": {"name": line.settings.get("MODEL_NAME", settings.model_name).rsplit("/", 1)[-1]}}
    record |= parts | facts | {"settings": vars(settings), "sharding": {"method": method}}
    return Run(Path("logs", record["exercise"], f"line-{line.source.number}"), typed(record, RunRecord))


@pytest.mark.parametrize("tiny", [False, True], ids=["GPU", "laptop"])
@pytest.mark.parametrize("folder", exercises_with("tables.py"), ids=lambda folder: folder.name)
def test_every_cell_by_hand_has_a_run_in_the_list_of_must_do_or_tiny_lines(folder: Path, tiny: bool) -> None:
    shell = tiny_profile() if tiny else {}
    path = folder / ("tiny.txt" if tiny else "submit.txt")
    lines = read_list(path, shell) if path.exists() else []
    runs = [made(line) for line in lines if tiny or line.contains(MUST_DO)]
    for table in form_tables(folder, tiny):
        filled = fill(next(one for one in blank_tables(folder, tiny) if one.number == table.number), runs)
        found = {place: filled.cells[place].text for place, mark in table.texts.items() if mark == BY_HAND}
        assert not {NOT_MEASURED, "no GPU"} & {*found.values()}, found


TAUGHT = [folder for folder in exercises_with("tables.py") if folder.name != "models"]


@pytest.mark.parametrize("folder", TAUGHT, ids=lambda folder: folder.name)
def test_figures_beside_the_predictions_are_cells_of_the_exercise(folder: Path) -> None:
    named = predictions(folder)
    assert named.keys() <= {str(number) for number in range(1, len(questions(folder)) + 1)}
    tables = {table.number: table for table in blank_tables(folder)}
    for number, *place in (cell for cells in named.values() for cell in cells):
        assert tuple(place) in fill(tables[number], []).cells, number


@pytest.mark.parametrize("every_row", [[], ["--all"]], ids=["must-do rows", "every row"])
def test_check_asks_for_the_marked_cells_and_judges_predictions(make_run, logs, tmp_path, capsys, every_row) -> None:
    make_run("r1")
    form = tmp_path / "my_results.md"
    assert main(["fill", "baseline", "--blank", *every_row]) == 0
    text = capsys.readouterr().out
    for cell, figure in (("4 x 2 per step.", 60), ("train on?", 20), ("| Steps per Epoch", 32)):
        text = text.replace(f"{cell} | ? |", f"{cell} | {figure} |")
    form.write_text(text)
    assert main(["check", str(form), "--logs", str(logs)]) == 0
    printed = capsys.readouterr().out
    assert "Table 1, Eval Loss (Epoch 1), Value: not filled in" in printed
    assert "F1 (%)" not in printed and "Table 2b: not filled in" not in printed
    assert "13 cells: 1 right, 0 wrong, 12 not filled in" in printed
    assert "prediction 1: 60\n  Table 1, Steps per Epoch, Value: 32: within a factor of two\n" in printed
    assert "prediction 3: 20\n  Table 1, Trainer's samples/s, Value: first read it\n" in printed
    assert "prediction 2" not in printed
    main(["check", str(form), "--logs", str(logs), "--show"])
    shown = "prediction 3: 20\n  Table 1, Trainer's samples/s, Value: 11.50: within a factor of two\n"
    assert shown in capsys.readouterr().out


def test_several_predictions_in_a_cell_are_judged_one_by_one(make_run, logs, tmp_path, capsys) -> None:
    for stage, states_mib in enumerate((2.53, 2.21, 1.96)):
        place = {"exercise": "deepspeed-multi-gpu", "config": f"zero{stage}", "world_size": 2, "device": "cpu"}
        states = {"model": {"name": "tiny", "hidden_size": 64}, "sharding": {"states_mib": states_mib}}
        make_run(f"r{stage}", place | states)
    assert main(["fill", "deepspeed-multi-gpu", "--blank", "--tiny"]) == 0
    form = tmp_path / "my_results.md"
    form.write_text(
        capsys.readouterr().out.replace("in stage 0; 1; 2; 3 (MiB)? | ? |", "in | 2.53; 1.96; 0.63; 1 |", 1)
    )
    main(["check", str(form), "--logs", str(logs), "--show"])
    judged = ["2.53: right", "2.21: within a factor of two", "1.96: off", "not measured: not comparable"]
    lines = [f"  Table 5b, States (MiB), Stage {stage}: {what}\n" for stage, what in enumerate(judged)]
    assert "prediction 1: 2.53; 1.96; 0.63; 1\n" + "".join(lines) in capsys.readouterr().out
    form.write_text(form.read_text().replace("2.53; 1.96; 0.63; 1", "2.53; 1.96"))
    main(["check", str(form), "--logs", str(logs), "--show"])
    shown = "prediction 1: 2.53; 1.96\n  for you to compare; 4 figures, as `12; 6`, would be judged\n"
    assert shown in capsys.readouterr().out


def test_a_laptop_is_not_asked_to_predict_rungs_that_it_does_not_run(capsys) -> None:
    main(["fill", "speed-ladder", "--blank"])
    assert "The gain of rung 1 bf16 | ? |" in capsys.readouterr().out
    main(["fill", "speed-ladder", "--blank", "--tiny"])
    assert "The gain of" not in capsys.readouterr().out

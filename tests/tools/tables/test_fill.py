import pytest

from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.table import table_definitions


@pytest.fixture
def fill(logs):
    """fill("2") -> the cells of a README's Table 2, by row; then its `runs` and `notes` are those of the table."""

    def fill(number: str) -> dict[str, list[str]]:
        filled = tables.fill(table_definitions()[number], find_runs(logs))
        fill.notes, fill.runs = filled.notes, [run.folder.name for run in filled.runs]
        shown: dict[str, list[str]] = {}
        for (row, _), cell in filled.cells.items():
            shown.setdefault(row, []).append(cell.text)
        return shown

    return fill


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"max_steps": 2}, "r1"),
        ({"num_epochs": 1}, "r1"),
        ({"num_epochs": 2}, "r2"),
        ({"num_epochs": 3, "learning_rate": 1e-3}, "r2"),
    ],
)
def test_short_try_does_not_replace_the_real_run_and_is_named(make_run, fill, settings, shown):
    real = {"num_epochs": 3, "max_steps": 0, "batch_size": 4, "grad_acc": 4}
    make_run("r1", {"start_time": "2026-11-21T09:00:00+00:00", "settings": real})
    make_run("r2", {"start_time": "2026-11-21T10:00:00+00:00", "settings": real | settings})
    fill("2")
    assert fill.runs == [shown]
    assert any("r2: newer, but a short test run: it trained on " in note for note in fill.notes) == (shown == "r1")


@pytest.mark.parametrize(
    ("record", "files", "cell"),
    [
        ({"state": "oom", "reason": "because"}, {}, "OOM"),
        ({"state": "failed", "reason": "because"}, {}, "FAILED"),
        ({"state": "running", "reason": "because"}, {}, "RUNNING"),
        ({}, {"gpu_memory.csv": None}, "no GPU log"),
        ({}, {"gpu_memory.csv": ""}, "empty GPU log"),
        ({"device": "cpu"}, {"gpu_memory.csv": None}, "no GPU"),
        ({}, {"gpu_memory.csv": "NVIDIA-SMI has failed.\n"}, "unreadable log"),
    ],
)
def test_failed_run_and_missing_evidence_are_words_in_the_cell(make_run, fill, record, files, cell):
    make_run("r1", record, **files)
    assert [*fill("2").values()][:3] == [[cell]] * 3
    assert bool(fill.notes) == (cell != "no GPU")
    assert any("because" in note for note in fill.notes) == (cell in ("OOM", "FAILED"))


def test_B5_a_failed_repeat_is_named_an_oom_or_another_precision_is_a_cell_and_repeats_have_a_median(make_run, fill):
    def grid_run(name: str, repeat: int, speed: float, **changes):
        settings = {"fp16": False, "bf16": True, "batch_size": 32, "max_length": 128, "repeat": repeat}
        sizes = {"parameters": round(989e6 / 6), "embedding_parameters": 10_000_000, "layers": 0, "hidden_size": 768}
        record = {"exercise": "benchmark", "config": "zero0", "precision": "bf16", "gpu_names": ["NVIDIA H200"]}
        names = ("median_tokens", "tokens", "logit_positions", "samples")
        speeds = {f"train/{name}_per_second": speed for name in names}
        make_run(name, record | {"settings": settings, "model": {"name": "gpt2"} | sizes} | changes, speeds)

    grid_run("r1", 1, 100_000.0)
    grid_run("r2", 2, 100_000.0, state="failed", reason="NCCL error")
    grid_run("r3", 1, 0.0, state="oom", config="zero1")
    grid_run("r4", 1, 100_000.0, precision="fp32", config="zero2")
    for repeat, speed in enumerate((1.0, 2.0, 9.0), 1):
        grid_run(f"r4{repeat}", repeat, speed, config="zero3")
    rows = fill("17")
    assert rows["zs0_bf16_gpus1_bs32_sl128"][:2] == ["100,000", "one run only"]
    assert any("FAILED: NCCL error" in note for note in fill.notes)
    assert set(rows["zs1_bf16_gpus1_bs32_sl128"]) == {"OOM"}
    assert set(rows["zs2_bf16_gpus1_bs32_sl128"]) == {"ran in fp32"}
    assert rows["zs3_bf16_gpus1_bs32_sl128"][:2] == ["2", "4"]

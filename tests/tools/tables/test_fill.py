import pytest

from tools.errors import InputError
from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.labels import blank_cells, blank_tables, tiny_view
from tools.tables.repository import table_definitions

TABLE_2 = "**Table 2** *GPU memory*\n\n| Metric | Value |\n|---|---|\n| Peak GPU Memory (MiB) | |\n"
GPU_LOG = """\
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 09:45:01.000, 0, H200, {used}, 143771, 50
"""


@pytest.fixture
def fill(logs):
    """fill("2") -> the cells of a README's Table 2, by row; then its `runs` and `notes` are those of the table."""

    def fill(number: str, tiny: bool = False) -> dict[str, list[str]]:
        table = table_definitions()[number]
        filled = tables.fill(tiny_view(table) if tiny else table, find_runs(logs))
        fill.notes, fill.runs = filled.notes, [run.folder.name for run in filled.runs]
        rows = zip(filled.table.rows, filled.cells, strict=True)
        return {row[0]: [cell.text for cell in cells if cell] for row, cells in rows}

    return fill


def test_table_1_is_filled_from_the_run_s_own_logs(make_run, fill):
    make_run("r1")
    values = [row[0] for row in fill("1").values()]
    losses, speeds = ["0.7039", "1.2965", "1.5810", "1.7790"], ["11.50", "11.80", "39.40"]
    assert values == [*losses, *speeds, "32", "19,597", "88.2", "41.00", "55.12"]


def test_K7_steps_per_epoch_is_not_the_highest_epoch_number(make_run, fill):
    make_run("r1", {"steps_per_epoch": 32})
    assert fill("1")["Steps per Epoch"] == ["32"]


def test_B4_gpu_memory_counts_samples_of_zero(make_run, fill):
    make_run("r1")
    assert [*fill("2").values()][:3] == [["21,658"], ["10,415"], ["0"]]


def test_K13_summed_rss_and_pss_stand_side_by_side(make_run, fill):
    pss = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n 0.0 0.0 5000.4 9000.0\n"
    make_run("r1", **{"cpu_pss.txt": pss})
    assert [*fill("2b").values()] == [["8,000"], ["5,000"]]


def test_reference_table_leaves_out_a_column_whose_figure_no_run_recorded(make_run, logs):
    settings = {"batch_size": 4, "grad_acc": 4, "fp16": True}
    make_run("r1", {"exercise": "deepspeed-single-gpu", "config": "zero2", "precision": "fp16", "settings": settings})
    filled = tables.fill(table_definitions()["4b"], find_runs(logs))
    assert "| States (MiB) |" in filled.markdown() and " | not recorded |" in filled.markdown()
    assert "States" not in filled.markdown(recorded_only=True) and "| Step time (ms) |" in filled.markdown(True)


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
    assert any("r2: newer, but a try: it trained on " in note for note in fill.notes) == (shown == "r1")


def test_tiny_run_after_the_longer_quickstart_is_no_try_of_it(make_run, fill):
    tiny = {"model_name": "tiny", "num_epochs": 3}
    quickstart = {"start_time": "2026-11-21T09:00:00+00:00", "train_examples": 6400}
    make_run("r1", quickstart | {"settings": tiny | {"dataset": "harbour"}})
    make_run("r2", {"train_examples": 128, "settings": tiny | {"dataset": "sample"}})
    fill("2", tiny=True)
    assert fill.runs == ["r2"]


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
def test_failed_run_and_missing_evidence_are_words_in_the_cell_even_if_there_are_logs(
    make_run, fill, record, files, cell
):
    make_run("r1", record, **files)
    assert [*fill("2").values()][:3] == [[cell]] * 3
    assert bool(fill.notes) == (cell != "no GPU")
    assert any("because" in note for note in fill.notes) == (cell in ("OOM", "FAILED"))


def test_evaluation_of_an_epoch_is_found_among_those_within_epochs(make_run, fill):
    text = "".join(f"{{'eval_loss': {place}, 'epoch': {place}}}\n" for place in (0.4, 0.96, 1.4, 2.0, 2.4))
    make_run("r1", summary=None, **{"train.out": text})
    assert [*fill("1").values()][1:4] == [["0.9600"], ["2.0000"], ["2.4 epochs only"]]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("completed", ["40,000", "30,000", "25.0", "100.0", "350.0", "250.0"]),
        ("oom", ["OOM", "30,000", "OOM", "OOM", "350.0", "OOM"]),
    ],
)
def test_offload_trade_off_compares_with_the_run_without_offload_or_says_how_that_failed(make_run, fill, state, shown):
    for config, used, runtime_s, ended in (
        ("zero2", 40_000, 100.0, state),
        ("zero2_offload", 30_000, 350.0, "completed"),
    ):
        record = {"exercise": "deepspeed-multi-gpu", "config": config, "world_size": 2, "state": ended}
        log = {"gpu_memory-node1.csv": GPU_LOG.format(used=used), "gpu_memory.csv": None}
        make_run(config, record | {"model": {"name": "bloom-1b7"}}, {"train_runtime_s": runtime_s}, **log)
    assert fill("7")["Stage 2"] == shown


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TABLE_2.replace("Peak GPU", "Peak TPU"), "README.md:5: Table 2: nothing fills the label 'Peak TPU Memory"),
        (TABLE_2.replace("Table 2", "Table 99"), "README.md:3: Table 99 is unknown"),
        (
            TABLE_2.replace("Value", "F1 (%)"),
            r"README.md:5: .* give two figures \(f1_percent, peak_gpu_mib\)",
        ),
        (TABLE_2.replace("Peak GPU Memory (MiB)", "Stage 1"), "README.md:5: .* give no figure"),
    ],
)
def test_label_that_nothing_fills_is_named_with_file_and_line(make_readme, text, error):
    with pytest.raises(InputError, match=error):
        blank_cells(*blank_tables(make_readme(text).parent))


@pytest.fixture
def grid_run(make_run):
    def make(name: str, repeat: int, speed: float, **changes):
        settings = {"fp16": False, "bf16": True, "batch_size": 32, "max_length": 128, "repeat": repeat}
        sizes = {"parameters": round(989e6 / 6), "embedding_parameters": 10_000_000, "layers": 0, "hidden_size": 768}
        record = {"exercise": "benchmark", "config": "zero0", "precision": "bf16", "gpu_names": ["NVIDIA H200"]}
        names = ("median_tokens", "tokens", "logit_positions", "samples")
        speeds = {f"train/{name}_per_second": speed for name in names}
        make_run(name, record | {"settings": settings, "model": {"name": "gpt2"} | sizes} | changes, speeds)

    return make


def test_repeats_are_summarised_by_median_and_standard_deviation(grid_run, fill):
    for repeat, speed in enumerate((100_000.0, 400_000.0, 200_000.0), 1):
        grid_run(f"r{repeat}", repeat, speed)
    grid_run("r4", 3, 210_000.0, start_time="2026-11-21T10:45:00+00:00")  # once more: the newest counts
    # 6 x parameters: 0.989 GFLOP per token x 210,000 / 989 TFLOP/s
    row = fill("17")["zs0_bf16_gpus1_bs32_sl128"]
    assert [*row[:2], *row[-4:]] == ["210,000", "151,767", "21.0", *["not logged"] * 3]


def test_B5_a_failed_repeat_is_named_and_an_oom_is_a_cell(grid_run, fill):
    grid_run("r1", 1, 100_000.0)
    grid_run("r2", 2, 100_000.0, state="failed", reason="NCCL error")
    grid_run("r3", 1, 0.0, state="oom", config="zero1")
    rows = fill("17")
    assert rows["zs0_bf16_gpus1_bs32_sl128"][:2] == ["100,000", "one run only"]
    assert any("FAILED: NCCL error" in note for note in fill.notes)
    assert set(rows["zs1_bf16_gpus1_bs32_sl128"]) == {"OOM"}


def test_precision_that_fell_back_is_not_shown_as_the_one_asked_for(grid_run, fill):
    grid_run("r1", 1, 100_000.0, precision="fp32")
    assert set(fill("17")["zs0_bf16_gpus1_bs32_sl128"]) == {"ran in fp32"}

import pytest

from tools.errors import InputError
from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.definitions import definitions, tiny_view

TABLE_1 = """**Table 1** *Training and evaluation summary*

| Metric | Value |
|:---|---:|
| Train Loss (mean) | |
| Eval Loss (Epoch 1) | |
| Eval Loss (Epoch 3) | |
| Training Speed (samples/sec) | |
| Evaluation Speed (samples/sec) | |
| Steps per Epoch | |
| Memory Allocated (MiB) | |
| GPU Utilization (%) | |
| Exact Match (%) | |
| F1 (%) | |
"""
TABLE_2 = """**Table 2** *GPU memory*

| Metric | Value |
|---|---|
| Peak GPU Memory Usage (MiB) | |
| Mean GPU Memory Usage (MiB) | |
| Minimum GPU Memory Usage (MiB) | |
"""
PINNED = """**Table 3** *Pinned memory*

| | Peak GPU Memory (MiB) | Peak CPU Memory (MiB) | Peak CPU Memory, PSS (MiB) | Total Runtime |
|---|---|---|---|---|
| pin_memory true | | | | |
| pin_memory false | | | | |
"""
TRADE_OFF = """**Table 7** *Offload trade-off*

| | GPU Mem (No Offload) | GPU Mem (Offload) | Mem Savings (%) | Train Runtime (No Offload) | Runtime change (%) |
|---|---|---|---|---|---|
| Stage 2 | | | | | |
"""


@pytest.fixture
def fill(make_readme, logs):
    def fill(text: str) -> list[list[str]]:
        (table,) = definitions(make_readme(text).parent)
        filled = tables.fill(table, find_runs(logs))
        fill.notes, fill.runs = filled.notes, filled.runs
        return [[cell.text for cell in row if cell] for row in filled.cells]

    return fill


GPU_LOG = """\
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 09:45:01.000, 0, H200, {used}, 143771, 50
"""


def test_table_1_is_filled_from_the_run_s_own_logs(make_run, fill):
    make_run("r1")
    values = [row[0] for row in fill(TABLE_1)]
    assert values == ["0.7039", "1.2965", "1.7790", "11.80", "39.40", "32", "19,597", "88.2", "41.00", "55.12"]


def test_K7_steps_per_epoch_is_not_the_highest_epoch_number(make_run, fill):
    make_run("r1", {"steps_per_epoch": 32})
    assert fill("**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n| Steps per Epoch | |\n") == [["32"]]


def test_B4_gpu_memory_counts_samples_of_zero(make_run, fill):
    make_run("r1")
    assert fill(TABLE_2) == [["21,658"], ["10,415"], ["0"]]


def test_K13_summed_rss_and_pss_stand_side_by_side(make_run, fill):
    pss = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n 0.0 0.0 5000.4 9000.0\n"
    record = {"exercise": "deepspeed-single-gpu", "config": "zero2_offload"}
    make_run("r1", record, **{"cpu_pss.txt": pss})
    assert fill(PINNED)[0] == ["21,658", "8,000", "5,000", "300 s"]


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
    fill(TABLE_2)
    assert [run.folder.name for run in fill.runs] == [shown]
    assert any("r2: newer, but a try: it trained on " in note for note in fill.notes) == (shown == "r1")


def test_tiny_run_after_the_longer_quickstart_is_no_try_of_it(make_run, make_readme, logs):
    tiny = {"model_name": "tiny", "num_epochs": 3}
    quickstart = {"start_time": "2026-11-21T09:00:00+00:00", "train_examples": 6400}
    make_run("r1", quickstart | {"settings": tiny | {"dataset": "harbour"}})
    make_run("r2", {"train_examples": 128, "settings": tiny | {"dataset": "sample"}})
    (table,) = definitions(make_readme(TABLE_2).parent)
    assert [run.folder.name for run in tables.fill(tiny_view(table), find_runs(logs)).runs] == ["r2"]


@pytest.mark.parametrize("state", ["oom", "failed", "running"])
def test_failed_run_is_a_word_in_the_cell_even_if_it_has_logs(make_run, fill, state):
    make_run("r1", {"state": state, "reason": "because"})
    assert fill(TABLE_2) == [[state.upper()]] * 3
    assert any("because" in note for note in fill.notes) == (state != "running")


@pytest.mark.parametrize(
    ("record", "files", "cell"),
    [
        ({}, {"gpu_memory.csv": None}, "no GPU log"),
        ({}, {"gpu_memory.csv": ""}, "empty GPU log"),
        ({"device": "cpu"}, {"gpu_memory.csv": None}, "no GPU"),
        ({}, {"gpu_memory.csv": "NVIDIA-SMI has failed.\n"}, "unreadable log"),
    ],
)
def test_missing_gpu_evidence_is_said_not_made_up(make_run, fill, record, files, cell):
    make_run("r1", record, **files)
    assert fill(TABLE_2) == [[cell]] * 3
    assert bool(fill.notes) == (cell != "no GPU")


def test_evaluation_of_an_epoch_is_found_among_those_within_epochs(make_run, fill):
    text = "".join(f"{{'eval_loss': {place}, 'epoch': {place}}}\n" for place in (0.4, 0.96, 1.4, 2.0, 2.4))
    make_run("r1", summary=None, **{"train.out": text})
    assert fill(TABLE_1)[1:3] == [["0.9600"], ["2.4 epochs only"]]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("completed", ["40,000 MiB", "30,000 MiB", "25.0", "100.0 s", "250.0"]),
        ("oom", ["OOM", "30,000 MiB", "OOM", "OOM", "OOM"]),
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
    assert fill(TRADE_OFF) == [shown]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TABLE_2.replace("Mean GPU", "Mean TPU"), "README.md:6: Table 2: nothing fills the label 'Mean TPU Memory"),
        (TABLE_2.replace("Table 2", "Table 99"), "README.md:3: Table 99 is unknown"),
        (TABLE_2.replace("Value", "F1 (%)"), r"README.md:5: the labels .* give two metrics \(f1, peak_gpu\)"),
        (TABLE_2.replace("Peak GPU Memory Usage (MiB)", "Stage 1"), "README.md:5: .* give no metric"),
    ],
)
def test_label_that_nothing_fills_is_named_with_file_and_line(make_readme, text, error):
    (table,) = definitions(make_readme(text).parent)
    with pytest.raises(InputError, match=error):
        tables.plan(table)


GRID = """**Table 17** *T*

| Experiment | Tokens/s | Tokens/s, std | MFU (%) |
|---|---|---|---|
| zs0_bf16_gpus1_bs32_sl128 | | | |
| zs1_bf16_gpus1_bs32_sl128 | | | |
"""


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
    assert fill(GRID)[0] == ["210,000", "151,767", "21.0"]


def test_B5_a_failed_repeat_is_named_and_an_oom_is_a_cell(grid_run, fill):
    grid_run("r1", 1, 100_000.0)
    grid_run("r2", 2, 100_000.0, state="failed", reason="NCCL error")
    grid_run("r3", 1, 0.0, state="oom", config="zero1")
    first, second = fill(GRID)
    assert first == ["100,000", "one run only", "10.0"]
    assert any("FAILED: NCCL error" in note for note in fill.notes)
    assert set(second) == {"OOM"}


def test_precision_that_fell_back_is_not_shown_as_the_one_asked_for(grid_run, fill):
    grid_run("r1", 1, 100_000.0, precision="fp32")
    assert set(fill(GRID)[0]) == {"ran in fp32"}

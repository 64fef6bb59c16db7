"""Tables 3 to 20: each cell finds its own runs, and the READMEs' arithmetic is computed here again."""

import re
from pathlib import Path
from typing import Any

import pytest

from tools.tables.repository import ROOT, exercise_folder

NAMES = ("deepspeed-single-gpu", "deepspeed-multi-gpu", "fsdp", "custom_model", "speed-ladder")
SINGLE, MULTI, FSDP, CUSTOM, LADDER = map(exercise_folder, NAMES)
# Width and number of blocks.
BLOOM = {"560m": (1024, 24), "1b7": (2048, 24), "3b": (2560, 30), "7b1": (4096, 30)}
# BLOOM-560m, as run.json describes it.
MODEL = {"name": "bloom-560m", "parameters": 559_214_592, "embedding_parameters": 256_901_120}
MODEL |= {"layers": 24, "hidden_size": 1024}
SIMPLE_GPT = {
    "model": {"name": "simple-gpt", "parameters": 254_527_488},
    "flops_per_gpu_per_step": 6_382_052_966_400,
}
FABRIC = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  1 on node1 device  0 NVIDIA H200
#  Rank  0 Group  0 Pid  2 on node2 device  0 NVIDIA H200
  4194304  1048576  float  sum  -1  N/A  N/A  N/A  N/A  9491.78  0.442  12.345  N/A
"""


@pytest.fixture
def run(make_run):
    """run("r1", FSDP, "ddp", nodes=2, gpus=4, speed=30.0): a completed run of that speed in samples/s."""

    def make(name: str, exercise: Path, config=None, nodes=1, gpus=1, speed=10.0, summary=(), files=(), **record: Any):
        # Summaries as the runs write them: samples/s is over all GPUs.
        speeds = {"train/samples_per_second": speed, "train/steps_per_second": speed / 16, "train_loss": 1.5}
        place = {"exercise": exercise.name, "experiment": exercise.name, "config": config}
        place |= {"nodes": nodes, "gpus_per_node": gpus, "world_size": nodes * gpus}
        return make_run(name, place | record, speeds | dict(summary), **dict(files))

    return make


@pytest.fixture
def rung(run):
    def make(name: str, rung: str, real: float, logits: float = 1.0, exercise: Path = LADDER, **record: Any):
        """100 rows of 512 positions per second, `real` tokens/s of them real, logits for a share of the positions."""
        settings = {"rung": rung, "max_length": 512, "packing": True, "batch_size": 64}
        summary = {"train/steps_per_second": 2.0, "peak_mem_alloc_mib": 1000.0, "train/tokens_per_second": 51_200.0}
        summary |= {"train/real_tokens_per_second": real, "train/logit_positions_per_second": 51_200.0 * logits}
        facts = {"model": MODEL, "settings": settings, "gpu_names": ["NVIDIA H200"], "precision": "bf16"}
        return run(name, exercise, speed=300.0, summary=summary, **(facts | record))

    return make


def test_K7_samples_per_second_are_the_total_which_grows_under_weak_scaling(run, filled_by_column) -> None:
    model = {"model": {"name": "bloom-1b7"}, "summary": {"train/steps_per_second": 0.625}}
    for gpus in (2, 4):
        run(f"r{gpus}", MULTI, "zero0", gpus=gpus, speed=10.0 * gpus, train_examples=10_000 * gpus, **model)
    run("r8", MULTI, "zero0", gpus=8, train_examples=10_000, **model)  # 10,000 in all: strong scaling
    rows = filled_by_column(MULTI, "5")
    assert [*rows["Samples/s"].values()] == ["20.00", "40.00", "not measured", "not measured"]
    assert [*rows["Steps/sec"].values()][:2] == ["0.625", "0.625"]


def test_a_newer_run_that_shards_less_does_not_hide_what_the_method_can(run, filled_by_column) -> None:
    for name, config, parameters in (("r1", "full_shard", True), ("r2", "shard_grad_op", False)):
        seen = {"parameters": parameters, "gradients": True, "optimizer": True, "cpu_offload": False}
        run(name, FSDP, config, gpus=4, sharding={"method": "fsdp2", **seen})
    assert [*filled_by_column(ROOT / "deepspeed-zero3-offload", "9")["Parameter sharding"].values()][2] == "yes"


def test_scale_factors_are_against_one_gpu_and_runtimes_of_unequal_work_are_none(run, filled_by_column) -> None:
    header, line = "step,step_time_s,tokens,real_tokens,loss,epoch\n", "1,0.5,{},10,9.0,0.1\n"
    fsdp2 = {"sharding": {"method": "fsdp2"}, "settings": {"batch_size": 1, "grad_acc": 4, "fp16": True}}
    for nodes, gpus, speed, runtime_s, tokens, steps in (
        (1, 1, 10.0, 400.0, 2048, 8),
        (1, 2, 10.0, 400.0, 4096, 4),
        (1, 4, 30.0, 160.0, 2048, 8),
        (2, 1, 10.0, 400.0, 8192, 8),
        (4, 1, 15.0, 800.0, 2048, 8),
    ):
        files = {"steps.csv": header + line.format(tokens) * steps}
        summary = {"train_runtime_s": runtime_s, "peak_mem_alloc_mib": 1000.0}
        run(f"r{nodes}{gpus}", FSDP, "full_shard", nodes, gpus, speed, summary, files, precision="fp16", **fsdp2)
    run("other", FSDP, "shard_grad_op", speed=99.0, precision="fp16", **fsdp2)
    hosts, nodes = (
        {label: [*row.values()] for label, row in filled_by_column(FSDP, one).items()} for one in ["11", "12"]
    )
    assert hosts["1 GPU"][:6] == ["1", "10.00", "1.00", "400.0", "1.00", "1.5000"]
    assert hosts["2 GPUs"][4] == "1.00"
    assert hosts["4 GPUs"][:6] == ["4", "30.00", "3.00", "160.0", "2.50", "1.5000"]
    assert nodes["1 node"][2] == "1.00"
    assert nodes["2 nodes"][4] == "unequal work"
    assert nodes["4 nodes"][:6] == ["4", "15.00", "1.50", "800.0", "0.50", "1.5000"]


def test_K12_bandwidth_of_another_world_is_not_shown(run, filled_by_column) -> None:
    run("r1", CUSTOM, nodes=2, files={"nccl.log": FABRIC}, settings={"use_fsdp": True}, **SIMPLE_GPT)
    assert filled_by_column(CUSTOM, "15")["2 nodes"]["AllReduce BW (GB/s)"] == "a world of 1, not 2"


def test_weak_scaling_efficiency_is_baseline_over_current_step_time(run, filled_by_column) -> None:
    for name, gpus, config, layers, speed in (
        ("r1", 2, "constant", 3, 20.0),
        ("r2", 4, "constant", 8, 16.0),
        ("r3", 2, "published", 3, 144.0),
    ):
        settings = {"use_fsdp": True, "num_layers": layers, "batch_size": 8}
        run(name, CUSTOM, config, gpus=gpus, speed=speed, settings=settings, **SIMPLE_GPT)
    filled = filled_by_column(CUSTOM, "16")["Constant work / 4 GPUs"]
    assert filled["Efficiency (%)"] == "80.0"
    assert [filled[name] for name in ("Num Layers", "Per-GPU Batch", "Total Params (M)")] == ["8", "8", "254.5"]
    assert filled["FLOPs per GPU per Step (TFLOP)"] == "6.38"


def test_rung_is_compared_with_the_one_below_and_the_textbook(rung, filled_by_column) -> None:
    rung("r1", "0_textbook", real=10_000)
    rung("r2", "1_bf16", real=20_000)
    rung("r3", "2_batch", real=30_000)
    rows = filled_by_column(LADDER, "18")
    assert rows["2 batch"] == {
        "Step time (ms)": "500.0",
        "Examples per step": "150",
        "Samples/s": "300.00",
        "Padded tokens/s": "51,200",
        "Real tokens/s": "30,000",
        "MFU (%)": "18.2",  # 51,200 x 3.506 GFLOP / 989 TFLOP/s
        "MFU by the convention (%)": "18.2",
        "Peak allocated (MiB)": "1,000",
        "Gain over the rung below": "1.50",
        "Gain over the textbook": "3.00",
        **dict.fromkeys(("Mean GPU Power (W)", "Energy (J)", "Real tokens per joule"), "not logged"),
    }
    assert rows["0 textbook"]["Gain over the textbook"] == "1.00"
    assert set(rows["4 packing"].values()) == {"not measured"}


def test_fp8_is_measured_by_its_own_peak_which_is_twice_that_of_bf16(rung, filled_by_column) -> None:
    settings = {"max_length": 512, "packing": True, "batch_size": 64, "float8": "tensorwise"}
    rung("r1", "11_labelled", real=30_000, settings=settings | {"rung": "11_labelled"})
    assert filled_by_column(LADDER, "18")["11 labelled"]["MFU (%)"] == "9.1"  # of 1,979 TFLOP/s; of bf16's 989: 18.2


def test_skipped_logits_are_not_counted_as_work_and_no_other_exercise_s_table_shows_a_rung(
    rung, filled_by_column
) -> None:
    rung("r1", "11_labelled", real=50_000, logits=0.0)
    rung("r2", "11_labelled", real=20_000, exercise=ROOT / "baseline")
    row = filled_by_column(LADDER, "18")["11 labelled"]
    assert row["MFU by the convention (%)"] == "18.2"
    assert row["MFU (%)"] == "10.2"  # less 6 x 256.9 M x 51,200
    assert row["Gain over the rung below"] == "not measured"
    rows = filled_by_column(ROOT / "baseline", "1").values()
    assert {cell for row in rows for cell in row.values()} == {"not measured"}


def test_four_gpus_are_compared_with_the_real_tokens_of_four_times_one_not_the_examples(rung, filled_by_column) -> None:
    large = {"model": MODEL | {"name": "bloom-1b7"}}
    four = {"gpus": 4, "gpu_names": ["NVIDIA H200"] * 4}
    rung("r1", "11_labelled", real=20_000, **large)
    rung("r2", "11_labelled", real=70_000, exercise=FSDP, sharding={"method": "ddp"}, **large, **four)
    rung("r3", "11_labelled", real=70_000, exercise=MULTI, config="zero1", **large, **four)
    rows, more = filled_by_column(LADDER, "19"), filled_by_column(LADDER, "19b")
    assert rows["One GPU"]["Samples/s"] == "300.00"
    assert rows["DDP"]["Of n times one GPU (%)"] == rows["ZeRO-1"]["Of n times one GPU (%)"] == "87.5"
    assert set(rows["FSDP2"].values()) == set(more["DDP"].values()) == {"not measured"}
    assert more["One GPU"] == rows["One GPU"]


def parameters(name: str) -> int:
    """Tied embedding and its norm, the blocks, the last norm."""
    width, blocks = BLOOM[name]
    return 250_880 * width + 2 * width + blocks * (12 * width**2 + 13 * width) + 2 * width


def first_cells(document: Path, row: str) -> list[str]:
    (line,) = re.findall(rf"^\| {row} \|(.*)\|$", document.read_text(), re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def bytes_left(stage: int, gpus: float) -> float:
    """Per parameter on each GPU: fp16 weights, fp16 gradients, fp32 weights with two moments."""
    parts = ((2, 3), (2, 2), (12, 1))  # bytes, and the stage from which on they are split
    return sum(size / gpus if stage >= split_from else size for size, split_from in parts)


def test_K7_memory_of_the_stages_is_16_bytes_split_and_has_no_activations_in_it() -> None:
    for stage in range(4):
        cells = first_cells(MULTI / "README.md", f"{stage}")
        figures = [f"{bytes_left(stage, gpus):g}" for gpus in (2, 8)]
        gib = [f"{bytes_left(stage, gpus) * parameters('1b7') / 2**30:.1f}" for gpus in (2, 8)]
        assert cells[-4:] == [figures[0], gib[0], figures[1], gib[1]]
    for name in BLOOM:
        total, weights = (f"{size * parameters(name) / 2**30:.1f}" for size in (16, 2))
        assert first_cells(SINGLE / "RESULTS.md", f"BLOOM-{name}") == [f"{parameters(name):,}", total, weights]

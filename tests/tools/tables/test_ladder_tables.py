"""Tables 18 to 20: rungs are told apart, compared with the one below, and no other chapter's table sees them."""

from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
# BLOOM-560m, as run.json describes it.
MODEL = {"name": "bloom-560m", "parameters": 559_214_592, "embedding_parameters": 256_901_120}
MODEL |= {"layers": 24, "hidden_size": 1024}


@pytest.fixture
def filled(filled_by_column):
    return lambda number, exercise="speed-ladder": filled_by_column(REPO / exercise, number)


@pytest.fixture
def rung_run(make_run):
    def make(name: str, rung: str, real: float, repeat: int = 1, logits: float = 1.0, rows: int = 64, **record):
        """100 rows of 512 positions per second, `real` tokens/s of them real, logits for a share of the positions."""
        settings = {"rung": rung, "repeat": repeat, "max_length": 512, "packing": True, "batch_size": rows}
        summary = {"train/samples_per_second": 300.0, "train/steps_per_second": 2.0, "peak_mem_alloc_mib": 1000.0}
        summary |= {"train/tokens_per_second": 51_200.0, "train/real_tokens_per_second": real}
        summary |= {"train/logit_positions_per_second": 51_200.0 * logits}
        facts = {"exercise": "speed-ladder", "experiment": "speed-ladder", "model": MODEL, "settings": settings}
        facts |= {"gpu_names": ["NVIDIA H200"], "precision": "bf16"}
        return make_run(name, facts | record, summary)

    return make


def test_rung_is_compared_with_the_one_below_and_the_textbook(rung_run, filled) -> None:
    rung_run("r1", "0_textbook", real=10_000)
    rung_run("r2", "1_bf16", real=20_000)
    rung_run("r3", "2_batch", real=30_000)
    rows = filled("18")
    assert rows["2 batch"] == {
        "Step time (ms)": "500.0",
        "Examples per step": "150",
        "Samples/s": "300.00",
        "Padded tokens/s": "51,200",
        "Real tokens/s": "30,000",
        "MFU (%)": "18.2",  # 51,200 x 3.506 GFLOP / 989 TFLOP/s
        "MFU by the convention (%)": "18.2",
        "Memory Allocated (MiB)": "1,000",
        "Gain over the rung below": "1.50",
        "Gain over the textbook": "3.00",
    }
    assert rows["0 textbook"]["Gain over the textbook"] == "1.00"
    assert set(rows["4 packing"].values()) == {"not measured"}


def test_skipped_logits_are_not_counted_as_work_done(rung_run, filled) -> None:
    rung_run("r1", "11_labelled", real=50_000, logits=0.0)
    row = filled("18")["11 labelled"]
    assert row["MFU by the convention (%)"] == "18.2"
    assert row["MFU (%)"] == "10.2"  # less 6 x 256.9 M x 51,200
    assert row["Gain over the rung below"] == "not measured"


def test_four_gpus_are_compared_with_four_times_one(rung_run, filled) -> None:
    large = {"model": MODEL | {"name": "bloom-1b7"}}
    four = {"world_size": 4, "gpus_per_node": 4, "gpu_names": ["NVIDIA H200"] * 4}
    rung_run("r1", "11_labelled", real=20_000, **large)
    rung_run("r2", "11_labelled", real=70_000, exercise="fsdp", sharding={"method": "ddp"}, **large, **four)
    rung_run("r3", "11_labelled", real=70_000, exercise="deepspeed-multi-gpu", config="zero1", **large, **four)
    rows = filled("19")
    assert rows["One GPU"]["Samples/s"] == "300.00"
    assert rows["DDP"]["Of n times one GPU (%)"] == rows["ZeRO-1"]["Of n times one GPU (%)"] == "25.0"
    assert set(rows["FSDP2"].values()) == {"not measured"}
    assert filled("19b")["One GPU"] == rows["One GPU"]
    assert set(filled("19b")["DDP"].values()) == {"not measured"}


def test_run_on_a_rung_is_in_no_table_of_the_chapter_it_ran_in(rung_run, filled) -> None:
    rung_run("r1", "11_labelled", real=20_000, exercise="baseline", experiment="baseline")
    assert {cell for row in filled("1", "baseline").values() for cell in row.values()} == {"not measured"}

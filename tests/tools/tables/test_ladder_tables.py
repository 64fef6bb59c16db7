"""Tables 18 to 20: rungs are told apart, compared with the one below, and no other chapter's table sees them."""

import json
import tomllib
from pathlib import Path

import pytest

from tools.__main__ import main
from tools.logs.mfu import flops_per_token
from tools.tables.definitions import definitions

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


def test_flops_are_those_of_the_convention() -> None:
    assert flops_per_token(559_214_592, 24, 1024, 512) == pytest.approx(3.51e9, rel=2e-3)


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


def test_repeats_give_the_median_and_not_the_newest(rung_run, filled) -> None:
    for name, repeat, real in (("r1", 1, 20_000), ("r2", 2, 90_000), ("r3", 3, 22_000)):
        rung_run(name, "1_bf16", real=real, repeat=repeat)
    for name, repeat, real in (("r4", 1, 8_000), ("r5", 2, 10_000), ("r6", 3, 40_000)):
        rung_run(name, "0_textbook", real=real, repeat=repeat)
    rung_run("r7", "2_batch", real=30_000)
    rows = filled("18")
    assert rows["1 bf16"]["Real tokens/s"] == "22,000"
    assert rows["1 bf16"]["Gain over the textbook"] == "2.20"
    assert rows["2 batch"]["Gain over the textbook"] == "3.00", "one run was compared with the textbook's newest"


def test_variant_is_compared_with_the_rung_it_varies(rung_run, filled) -> None:
    rung_run("r1", "9_rows", real=40_000)
    rung_run("r2", "variant_sdpa", real=30_000)
    assert filled("18b")["variant: sdpa"]["Gain over the rung below"] == "0.75"


def test_gpu_without_a_known_peak_has_no_utilisation(rung_run, filled) -> None:
    rung_run("r1", "1_bf16", real=20_000, gpu_names=["Some GPU"])
    assert filled("18")["1 bf16"]["MFU (%)"] == "no peak of Some GPU in bf16"


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


def test_run_that_asks_what_was_learnt_is_in_its_own_table_only(rung_run, filled) -> None:
    learning = {"rung": "11_labelled", "generate_train_size": 500, "num_epochs": 40, "max_steps": 0}
    folder = rung_run("r1", "11_labelled", real=50_000, settings=learning)
    rung_run("r2", "11_labelled", real=50_000, settings=learning | {"num_epochs": 2})
    rung_run("r3", "11_labelled", real=50_000, settings=learning | {"max_steps": 10})
    lines = [f"{step},0.5,512,500,{20 - step},1.0,180,100,9.5" for step in range(1, 21)]
    header = "step,step_time_s,tokens,real_tokens,loss,epoch,samples,logit_positions,peak_mem_alloc_mib"
    (folder / "steps.csv").write_text("\n".join([header, *lines]) + "\n")
    scores = {"exact_match": 1.25, "f1": 2.5, "train_exact_match": 75.0, "train_f1": 80.0, "eval_loss": [9.0, 8.0]}
    (folder / "summary.json").write_text(json.dumps(scores))
    rows = filled("18d")
    assert list(rows["11 labelled, 40 epochs"].values()) == [
        *("3,600", "20", "10", "0.5000", "8.0000", "75.00", "80.00", "1.25", "2.50")
    ]
    assert rows["11 labelled, 2 epochs"]["Training questions, F1 (%)"] == "no EM/F1"
    assert set(rows["0 textbook, 2 epochs"].values()) == {"not measured"}
    assert set(filled("18")["11 labelled"].values()) == {"not measured"}


def test_run_on_a_rung_is_in_no_table_of_the_chapter_it_ran_in(rung_run, filled) -> None:
    rung_run("r1", "11_labelled", real=20_000, exercise="baseline", experiment="baseline")
    assert {cell for row in filled("1", "baseline").values() for cell in row.values()} == {"not measured"}


def test_peer_is_compared_with_the_ladder_whatever_its_batch(rung_run, filled) -> None:
    rung_run("r1", "10_stream", real=100_000)
    rung_run("r2", "11_labelled", real=200_000)
    rung_run("r3", "peer_trl_padded", real=20_000, rows=16)
    rung_run("r4", "peer_trl_padded", real=40_000)
    rows = filled("18c")
    assert [rows["peer: trl padded, 16 rows"][f"Of {name} (%)"] for name in ("rung 10", "the top")] == ["20.0", "10.0"]
    assert rows["peer: trl padded, 64 rows"]["Of rung 10 (%)"] == "40.0"
    assert rows["10 stream"]["Of the top (%)"] == "50.0"


def test_peer_stands_beside_the_rung_that_computes_the_same_logits() -> None:
    (table,) = (one for one in definitions(REPO / "speed-ladder") if one.number == "18c")
    logits = {row[0].split(",")[0]: row[table.header.index("Logits computed")] for row in table.rows}
    assert logits["10 stream"] == logits["peer: trainer grouped"] == "all"
    assert logits["11 labelled"] == logits["peer: trl packed"] == logits["peer: trl padded"] == "labelled"


def test_ladder_is_the_folder_of_rungs() -> None:
    files = {path.stem for path in (REPO / "speed-ladder" / "rungs").glob("*.env")}
    assert files == tomllib.loads((REPO / "speed-ladder/tables.toml").read_text())["rungs"].keys()


def test_bars_are_drawn_from_a_table_and_a_wrong_column_is_named(rung_run, logs, tmp_path, capsys) -> None:
    rung_run("r1", "0_textbook", real=10_000)
    command = ["plot", str(REPO / "speed-ladder"), "--logs", str(logs), "--output", str(tmp_path / "bars.png")]
    assert main([*command, "--table", "18"]) == 0
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--table", "18", "--column", "Speed"]) == 2
    assert "--table 18 --column 'Speed': " in capsys.readouterr().err


def test_models_are_told_apart_by_name_rung_length_and_gpus(rung_run, filled) -> None:
    llama = {"name": "llama-3.1-8b", "parameters": 8_030_261_248, "embedding_parameters": 525_336_576}
    llama |= {"layers": 32, "hidden_size": 4096, "untied_embedding": True}
    sharded = {"model": llama, "world_size": 4, "nodes": 1, "sharding": {"method": "fsdp2"}}
    rung_run("r1", "11_labelled", real=40_000, **sharded)
    rung_run("r2", "variant_float8", real=52_000, **sharded)
    rows = filled("24", "models")
    bf16, float8 = (rows[f"llama-3.1-8b, {rung}"] for rung in ("11 labelled", "variant: float8"))
    assert (bf16["Gain over bf16"], float8["Gain over bf16"]) == ("1.00", "1.30")
    # 51,200 x (6 x (8,030 - 525) million + 12 x 32 x 4,096 x 512) over 4 x 989 TFLOP/s
    assert bf16["MFU (%)"] == "59.3"
    assert set(rows["bloom-7b1, 11 labelled"].values()) == {"not measured"}
    assert set(filled("23", "models")["llama-3.2-1b, 11 labelled"].values()) == {"not measured"}
    assert set(filled("23c", "models")["llama-3.1-8b, 11 labelled, 8,192 tokens"].values()) == {"not measured"}


def test_liger_s_loss_on_rung_10_is_a_row_of_its_own(rung_run, filled) -> None:
    rung_run("r1", "10_stream", real=130_000)
    newer = rung_run("r2", "10_stream", real=147_000)
    record = json.loads((newer / "run.json").read_text())
    record["settings"] |= {"loss": "liger", "loss_chunk": 16384}
    (newer / "run.json").write_text(json.dumps(record))
    rows = filled("18e")
    assert [rows[name]["Real tokens/s"] for name in ("10 stream", "10 stream, liger")] == ["130,000", "147,000"]
    assert rows["10 stream, liger"]["Of rung 10 (%)"] == "113.1"


def test_steps_with_more_rows_are_no_runs_of_the_rung_itself(rung_run, filled) -> None:
    rung_run("r1", "variant_all_logits", real=140_000)
    rung_run("r2", "variant_all_logits", real=150_000, rows=192)
    rows = filled("18e")
    found = [rows[f"variant: all logits{size}"]["Real tokens/s"] for size in ("", ", 128 rows", ", 192 rows")]
    assert found == ["140,000", "not measured", "150,000"]

"""The step without a Trainer gives the Trainer's losses, and what it sends is counted."""

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from tests.filled_tables import filled_table
from tests.launching import REPO, launch, losses
from tests.trainings_on_ranks import SETTINGS, Ranks, Training, counted, training
from tools.logs.figures import value_of
from workshop.training.hangs import collective_timeout_s

CHAPTER = REPO / "further/by-hand"
STEPS = 6
SIZES = {
    **{"TRAIN_SIZE": "24", "EVAL_SIZE": "8", "NUM_EPOCHS": "2", "MAX_STEPS": str(STEPS), "BATCH_SIZE": "2"},
    **{"WEIGHT_DECAY": "0.01", "MODEL_NAME": "simple-gpt", "VOCAB_SIZE": "1024", "HIDDEN_SIZE": "64"},
    **{"NUM_LAYERS": "3", "NUM_HEADS": "4", "FF_DIM": "256", "SEQ_LENGTH": "128"},
}
Strategy = tuple[str, str, dict[str, str]]  # script, configuration and settings
GPT_RUNS: dict[str, Strategy] = {
    "ddp": ("ddp", "", {}),
    "full_shard": ("fsdp", "fsdp_configs/full_shard.json", {}),
    "full_shard_offload": ("fsdp", "fsdp_configs/full_shard_offload.json", {}),
    "shard_grad_op": ("fsdp", "fsdp_configs/shard_grad_op.json", {"PROFILE": "5:6"}),
    **{f"zero{stage}": ("zero", f"ds_configs/zero{stage}.json", {}) for stage in (1, 2, 3)},
    "zero2_textbook": ("zero", "ds_configs/zero2_textbook.json", {"MAX_STEPS": "4"}),  # long enough to be counted
}
MUON = {"OPTIMIZER": "muon", "LEARNING_RATE": "5e-3"}
GPT_RUNS |= {
    "ddp_muon": ("ddp", "", MUON),
    "full_shard_muon": ("fsdp", "fsdp_configs/full_shard.json", MUON),
    "zero1_muon": ("zero", "ds_configs/zero1.json", MUON),
}
AS_THE_FORMULA = ["ddp", "full_shard", "full_shard_offload", "shard_grad_op", "hybrid_shard", "zero2_textbook"]
AS_THE_FORMULA += ["ddp_muon", "full_shard_muon"]
BLOOM = {"MODEL_NAME": "tiny"}
BLOOM_RUNS: dict[str, Strategy] = {
    "bloom_ddp": ("ddp", "", BLOOM),
    "bloom_full_shard": ("fsdp", "fsdp_configs/full_shard.json", BLOOM),
    "bloom_zero3": ("zero", "ds_configs/zero3.json", BLOOM),
}
# Four ranks with one micro-batch each have the examples of two ranks with two.
FOUR_RANKS: dict[str, Strategy] = {"hybrid_shard": ("fsdp", "fsdp_configs/hybrid_shard.json", {"GRAD_ACC": "1"})}
FULL_LENGTH = [
    name for name, (_, _, own) in (GPT_RUNS | FOUR_RANKS).items() if not own.keys() & {"MAX_STEPS", "OPTIMIZER"}
]


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders by the names above, and those of the Trainer with DDP: trainer_gpt and trainer_bloom."""
    folder = tmp_path_factory.mktemp("by-hand")

    def by_hand(name: str, run: Strategy) -> Training:
        script, config, own = run
        return training(folder / name, "by-hand", config, [__file__, script], **SIZES | own)

    ranks.train(
        [
            *(by_hand(name, run) for name, run in (GPT_RUNS | BLOOM_RUNS).items()),
            training(folder / "trainer_gpt", "custom_model", **SIZES | {"USE_FSDP": "false"}),
            training(folder / "trainer_bloom", "fsdp", "fsdp_configs/ddp.json", **SIZES | BLOOM),
        ]
    )
    ranks.train([by_hand(name, run) for name, run in FOUR_RANKS.items()], ranks=4)
    return folder


@pytest.mark.parametrize("name", [*FULL_LENGTH, *BLOOM_RUNS])
def test_step_by_hand_has_the_losses_of_the_trainer(runs: Path, name: str) -> None:
    expected = losses(runs / ("trainer_bloom" if name in BLOOM_RUNS else "trainer_gpt"))
    assert len(expected) == STEPS
    assert losses(runs / name) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] < expected[0] - 0.1, "hardly a training: the comparison would prove nothing"


@pytest.mark.parametrize("name", ["ddp", "hybrid_shard", "zero2"])
def test_no_group_of_ranks_ends_a_run_before_its_own_time_out_for_a_hang(runs: Path, name: str) -> None:
    """Groups that a mesh or DeepSpeed made later kept PyTorch's own time-out: 10 minutes with NCCL."""
    found_s = json.loads((runs / name / "time_outs.json").read_text())
    assert min(found_s) == collective_timeout_s(SimpleNamespace(hang_timeout_s=1800))
    assert not (runs / name / "stacks").exists(), "a run that ended well left them"
    assert len(found_s) > 1 or name == "ddp", "no group but the first: nothing was tested"


@pytest.mark.parametrize("name", [name for name, (script, *_) in (GPT_RUNS | FOUR_RANKS).items() if script == "fsdp"])
def test_gpu_holds_one_unit_whole_and_never_the_model(runs: Path, name: str) -> None:
    """Each rank moved all weights before it kept its part: Qwen2.5-32B's 122 GiB on an H100, for a rank's 15."""
    (model,), moved = (json.loads((runs / run / "moved.json").read_text()) for run in ("ddp", name))
    assert sum(moved) == model and 0 < max(moved) < model


@pytest.mark.parametrize("name", AS_THE_FORMULA)
def test_counted_bytes_are_those_of_the_formula(runs: Path, name: str) -> None:
    run = counted(runs / name, "by-hand")
    assert value_of(run, "sent_mib") == pytest.approx(value_of(run, "predicted_sent_mib"), rel=0.002)
    assert value_of(run, "sent_mib") > value_of(run, "predicted_sent_mib"), "targets and loss are counted"


def test_muon_on_rows_of_matrices_trains_as_on_whole_ones(runs: Path) -> None:
    """Not to the last digit: its products are bf16's, and sums over the ranks are rounded in another order."""
    whole, rows, adamw = (losses(runs / name) for name in ("ddp_muon", "full_shard_muon", "ddp"))
    assert rows == pytest.approx(whole, abs=0.002)
    assert losses(runs / "zero1_muon")[-1] < losses(runs / "zero1_muon")[0] - 0.1
    assert whole[-1] < whole[0] - 0.1 and abs(whole[-1] - adamw[-1]) > 0.02, "hardly a training, or AdamW's"
    muon, other = (counted(runs / name, "by-hand") for name in ("ddp_muon", "ddp"))
    matrices = sum(int(r) * int(c) for r, c in (size.split("x") for size in muon.record.sharding.matrices))
    saved_mib = value_of(other, "optimizer_states_mib") - value_of(muon, "optimizer_states_mib")
    assert saved_mib == pytest.approx(matrices * 4 / 2**20, rel=0.001), "one moment, not two"


def test_deepspeed_s_stages_1_and_2_reduce_gradients_with_an_all_reduce(runs: Path) -> None:
    """What the paper calls a reduce-scatter is an all-reduce unless the JSON says otherwise: P more per reduction."""
    for name, reductions in (("zero1", 1), ("zero2", 2)):
        run = counted(runs / name, "by-hand")
        expected = value_of(run, "predicted_sent_mib") * (1 + reductions / (reductions + 1))
        assert value_of(run, "sent_mib") == pytest.approx(expected, rel=0.002)


def test_launcher_leaves_a_run_that_fills_the_table(tmp_path: Path) -> None:
    own = SETTINGS | SIZES | {"MAX_STEPS": "8", "GRAD_ACC": "1", "GPUS_PER_NODE": "2"}
    launch(tmp_path, "further/by-hand/by_hand.slurm", "fsdp.py", "further/by-hand/fsdp_configs/full_shard.json", **own)
    row = filled_table(CHAPTER, "21b", tmp_path, tiny=True)["FULL_SHARD"]
    # Four units are gathered twice; all-reduces: targets, the gradients' norm, the loss.
    assert [row[name] for name in ("All-gather", "Reduce-scatter", "All-reduce")] == ["8", "4", "3"]
    assert row["Sent per rank (MiB)"] == row["Predicted (MiB)"] == "1.28"
    assert float(row["Step time (ms)"]) > 0


def noted(move: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    """A function that moves a module to a GPU, and notes the parameters that it moves whole: a GPU's double."""

    def noting(module: torch.nn.Module, *given: Any, **named: Any) -> Any:
        sizes.append(sum(weight.numel() for weight in module.parameters() if not isinstance(weight, DTensor)))
        return move(module, *given, **named)

    return noting


if __name__ == "__main__":  # on ranks: a script of the exercise, the time-out of each group of ranks, and its moves
    script, moved, undo = importlib.import_module(sys.argv[1]), [], ExitStack()
    for owner, name in ((torch.nn.Module, "to"), (script, "fully_shard")):
        if hasattr(owner, name):
            undo.enter_context(patch.object(owner, name, noted(getattr(owner, name), moved)))
    try:
        with undo:
            script.main()
    finally:  # its end is the process's
        if dist.get_rank() == 0:
            backends = (group._get_backend(torch.device("cpu")) for group in dist.distributed_c10d._world.pg_map)
            time_outs_s = [backend.options._timeout.total_seconds() for backend in backends]
            Path(os.environ["RUN_DIR"], "time_outs.json").write_text(json.dumps(time_outs_s))
            Path(os.environ["RUN_DIR"], "moved.json").write_text(json.dumps(moved))

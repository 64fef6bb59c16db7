"""The rungs are what they say, and the top one trains as the textbook does, also on several ranks and sharded."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import varlen_attention
from ladder_settings import RUNGS, LadderSettings, check_rung, sharding_arguments
from tests.launching import REPO, launch, losses, record, run, steps
from tests.trainings_on_ranks import SETTINGS, Ranks, training
from tests.workshop.environment import ENVIRONMENT
from tests.workshop.kernels.fast_models.small_models import EXAMPLES, TOKENIZER, small
from workshop.record.errors import InputError
from workshop.settings.configuration import check_configuration, configuration_of
from workshop.settings.deepspeed_config import operators_of
from workshop.training.callbacks import WARMUP_STEPS

LADDER = [path.stem for path in sorted(RUNGS.glob("[0-9]*.env"), key=lambda path: int(path.stem.split("_")[0]))]
# 16 examples, in two processes two per row or one: an epoch is one optimizer step either way.
TRAINING = SETTINGS | {
    **{"MAX_LENGTH": "512", "TRAIN_SIZE": "16", "NUM_EPOCHS": "4", "LEARNING_RATE": "1e-3", "MAX_STEPS": "4"},
    **{"MODEL_INIT": "pretrained", "GPUS_PER_NODE": "2"},
}
SHARDED = {"ddp": "fsdp_configs/ddp.json", "fsdp": "fsdp_configs/full_shard.json", "zero3": "ds_configs/zero3.json"}
PACKED = {"BATCH_SIZE": "2", "LOSS_CHUNK": "50", "COMPILE": "false", "DATA_WORKERS": "0", "RUNG": "12_documents"}


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the weights that all runs start from, as ZeRO-3 draws random ones in another order; and with run folders:
    the textbook by DDP in the chapter of FSDP, which knows no rungs, and the top rung.
    """
    folder = tmp_path_factory.mktemp("ladder")
    small("tiny").save_pretrained(folder / "tiny")
    TOKENIZER.save_pretrained(folder / "tiny")
    own = TRAINING | {"MODEL_NAME": str(folder / "tiny")}
    packed = [training(folder / name, "speed-ladder", path, **own | PACKED) for name, path in SHARDED.items()]
    ranks.train([training(folder / "textbook", "fsdp", "fsdp_configs/ddp.json", **own), *packed])
    return folder


def launched(folder: Path, launcher: str, *config: str, **settings: str) -> Path:
    own = {"MODEL_NAME": str(folder / "tiny")} | settings
    return launch(folder / "logs", launcher, *config, **TRAINING | own)


@pytest.mark.parametrize("method", SHARDED)
def test_top_rung_trains_as_the_textbook_when_sharded(method: str, folder: Path) -> None:
    run, textbook = folder / method, folder / "textbook"
    assert losses(run) == pytest.approx(losses(textbook), abs=1e-5)
    assert losses(textbook)[-1] < losses(textbook)[0] - 0.1, "hardly a training"
    for step, usual in zip(steps(run), steps(textbook), strict=True):
        assert (step["samples"], step["real_tokens"]) == (usual["samples"], usual["real_tokens"])
        assert int(step["tokens"]) == int(usual["tokens"]) / 2
        assert int(step["logit_positions"]) < int(step["real_tokens"]) / 10
    recorded = record(run)["settings"]
    assert (recorded["rung"], recorded["packing"], recorded["logits"]) == (PACKED["RUNG"], True, "labelled")
    # A changed model is not passed off as the library's.
    assert any(name.endswith("Attention") for name in record(run)["sharding"]["own_modules"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "config"),
    [("ladder_torchrun", "fsdp_configs/full_shard.json"), ("ladder_deepspeed", "ds_configs/zero3.json")],
)
def test_launcher_trains_on_the_rung_and_configuration_given(launcher: str, config: str, folder: Path) -> None:
    """In one process, whose batch holds the examples of two."""
    own = PACKED | {"GPUS_PER_NODE": "1", "BATCH_SIZE": "4", "MAX_STEPS": "1"}
    run = launched(folder, f"further/speed-ladder/{launcher}.slurm", config, **own)
    assert losses(run) == pytest.approx(losses(folder / "textbook")[:1], abs=1e-5)
    assert (record(run)["config"], record(run)["settings"]["rung"]) == (Path(config).stem, PACKED["RUNG"])


def test_peer_trains_on_the_ladder_s_examples_and_targets(folder: Path) -> None:
    one_process = {"GPUS_PER_NODE": "1", "BATCH_SIZE": "4", "GRAD_ACC": "4", "DATA_WORKERS": "0"}
    peer = launched(folder, "further/speed-ladder/peers.slurm", RUNG="peer_trainer_compiled", **one_process)
    assert losses(peer) == pytest.approx(losses(folder / "textbook"), abs=1e-5)
    assert [step["real_tokens"] for step in steps(peer)] == [step["real_tokens"] for step in steps(folder / "textbook")]


def test_top_rung_runs_on_a_laptop_and_answers_on_the_way(tmp_path: Path) -> None:
    command = f"source tiny.env && RUNG={LADDER[-1]} bash further/speed-ladder/ladder.slurm"
    own = {"GENERATE_SIZE": "4", "GENERATE_TRAIN_SIZE": "3", "GENERATE_BEFORE": "true", "GENERATE_STEPS": "2"}
    own |= {"LOG_DIR": str(tmp_path), "MAX_STEPS": "3", "LR_WARMUP_STEPS": "2", "CUDA_VISIBLE_DEVICES": ""}
    # Compilation takes half a minute; tests/workshop/kernels/fast_models compile.
    job = run("bash", "-c", command, COMPILE="false", **own)
    assert f"rung {LADDER[-1]}, repeat 1: ATTENTION=documents PACKING=true" in job.stdout
    assert "warning: ATTENTION=documents needs a GPU" in job.stdout
    printed = next(tmp_path.glob("*/*/train.out")).read_text()
    assert re.findall(r"'learning_rate': '?([\d.e-]+)", printed) == ["0", "0.001", "0.002"], "no warm-up"
    assert re.search(r"^held-out questions \(4\): exact match .* %; before the training exact match", job.stdout, re.M)
    assert re.search(r"^training questions \(3\): exact match ", job.stdout, re.M)
    (summary,) = tmp_path.glob("speed-ladder/*/summary.json")
    scores = json.loads(summary.read_text())
    assert {"exact_match", "f1_before", "train_f1"} <= scores.keys()
    assert list(scores["exact_match_by_step"]) == ["2"], "asked after every second step of three"


SWITCHES = {"ATTENTION": "sdpa", "PACKING": "true"}
FLEX = SWITCHES | {"ATTENTION": "flex"}
TENSORWISE = {"FLOAT8": "tensorwise", "BF16": "true"}
DEEPCOMPILE = "ds_configs/tuning/zero3_deepcompile.json"
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_deepcompile_compiles_the_whole_model_and_for_the_last_time_in_the_warm_up(monkeypatch) -> None:
    from deepspeed.compile import init_z3

    monkeypatch.setattr(init_z3, "WARMUP", init_z3.WARMUP)
    monkeypatch.chdir(REPO / "further/speed-ladder")
    own = {"RUNG": "mine", "CONFIG": DEEPCOMPILE, "COMPILE": "true", "BF16": "true", "FP16": "false"}
    settings = LadderSettings.from_environment(ENVIRONMENT | own)
    assert sharding_arguments(settings, gpu=True)["torch_compile"], "accelerate would not call DeepSpeed's compile()"
    assert init_z3.WARMUP < WARMUP_STEPS
    assert operators_of(configuration_of(settings).values) == ["dc", "fused_adam"]


@pytest.mark.parametrize(
    ("model", "switches", "message"),
    [
        ("phi", SWITCHES | {"LOSS": "chunked"}, r"LOSS=chunked: .* is a phi.* \(gradients of a small one differ"),
        ({"model_type": "mistral", "sliding_window": 100}, SWITCHES, r"sees 100 tokens back.*MAX_LENGTH=100 or less"),
        ("gpt2", FLEX, r"ATTENTION=flex: GPT-2 .*; expected ATTENTION=sdpa"),
        ({"model_type": "llama", "attention_dropout": 0.1}, FLEX, r"ATTENTION=flex: .*=0.1,.*=sdpa"),
        pytest.param("bloom", TENSORWISE, "FLOAT8=tensorwise needs .* 8.9 .*found none", marks=WITHOUT_GPU),
        ("bloom", {"CONFIG": DEEPCOMPILE}, "compile.deepcompile needs COMPILE=true"),
        ("bloom", {"OPTIMIZER": "muon"}, "OPTIMIZER=muon: nothing here trains with it"),
        ("bloom", TENSORWISE | {"CONFIG": "ds_configs/zero1.json"}, r"FLOAT8=tensorwise: .* is DeepSpeed's"),
        ("bloom", SWITCHES | {"CONFIG": "fsdp_configs/fsdp1_full_shard.json"}, "PACKING=true: .*json is FSDP1"),
        ("bloom", {"FP16": "true", "LOSS": "chunked"}, "FP16=true and LOSS=chunked"),
        ("bloom", {"CUDA_GRAPH": "true", "CONFIG": "fsdp_configs/ddp.json"}, "CUDA_GRAPH=true: .*ddp.json .*one GPU"),
        (
            "bloom",
            {"CUDA_GRAPH": "true", "GRADIENT_CHECKPOINTING": "true"},
            "CUDA_GRAPH=true and GRADIENT_CHECKPOINTING",
        ),
        ("bloom", {"ATTENTION": "cudnn"}, "called without a mask, .* has ALiBi; expected ATTENTION=documents"),
        ("llama", SWITCHES | {"ATTENTION": "cudnn"}, "ATTENTION=cudnn .* PACKING=true packs several documents"),
    ],
)
def test_what_cannot_work_is_refused(model, switches, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(REPO / "further/speed-ladder")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model} if isinstance(model, str) else model))
    environment = ENVIRONMENT | {"RUNG": "mine", "FP16": "false", "MODEL_NAME": str(tmp_path)} | switches
    environment |= {"LAUNCHER": "ladder_torchrun.slurm"}
    with pytest.raises(InputError, match=message):
        settings = LadderSettings.from_environment(environment)
        check_configuration(settings)
        check_rung(settings)


def causal_by_sdpa(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa):
    """What torch's kernel, which needs a GPU, computes of these arguments."""
    sizes = cu_seq_q.diff().tolist()
    assert (cu_seq_q.dtype, max_q, max_k, window_size) == (torch.int32, max(sizes), max(sizes), (-1, 0))
    assert torch.equal(cu_seq_q, cu_seq_k)
    documents = zip(*(part.transpose(0, 1).split(sizes, dim=1) for part in (query, key, value)), strict=True)
    rows = [sdpa(*document, is_causal=True, scale=scale, enable_gqa=enable_gqa) for document in documents]
    return torch.cat(rows, dim=1).transpose(0, 1)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_examples_in_one_flattened_row_are_computed_as_each_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attention function for TRL's padding-free rows keeps them apart."""
    monkeypatch.setattr(varlen_attention.varlen, "varlen_attn", causal_by_sdpa)
    varlen_attention.register()
    model, examples = small(family), [torch.tensor(example["input_ids"]) for example in EXAMPLES[:3]]
    alone = torch.cat([model(input_ids=tokens[None]).logits[0] for tokens in examples])
    model.set_attn_implementation(varlen_attention.NAME)

    # As TRL's collator gives them. Each token of padding is an example of its own.
    sizes = [len(tokens) for tokens in examples] + [1, 1]
    row = model(
        input_ids=torch.cat([*examples, torch.zeros(2, dtype=torch.long)])[None],
        position_ids=torch.cat([torch.arange(size) for size in sizes])[None],
        cu_seq_lens_q=torch.tensor([0, *sizes]).cumsum(0).int(),
        max_length_q=max(sizes),
        use_cache=False,
    ).logits[0]
    torch.testing.assert_close(row[:-2], alone, rtol=1e-4, atol=1e-5)

"""The cache is filled completely, also after an interruption; what stands in the way is said in one line, at once."""

import re
from pathlib import Path

import pytest

from tests.hub.commands import python
from tests.hub.hub_server import HubServer
from tests.launching import REPO
from workshop.data.hub import Repository, needs
from workshop.data.prefetch import wanted
from workshop.run_folder.env_file import sourced
from workshop.run_folder.errors import InputError

REFUSED = "http://127.0.0.1:9"  # the discard port: nobody listens there


def test_weights_once_tokenizer_and_both_splits_are_fetched(cache: Path) -> None:
    folder = cache / "hub/models--bigscience--bloom-560m/snapshots"
    files = {path.name for path in folder.glob("*/*")}
    assert {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"} <= files
    assert not {"pytorch_model.bin", "flax_model.msgpack"} & files
    sharded = {path.name for path in (cache / "hub/models--bigscience--bloom-7b1/snapshots").glob("*/*")}
    assert {f"model-0000{part}-of-00002.safetensors" for part in (1, 2)} < sharded
    assert "model.safetensors.index.json" in sharded
    splits = {path.name for path in (cache / "hub/datasets--rajpurkar--squad/snapshots").glob("*/plain_text/*")}
    assert splits == {f"{split}-00000-of-00001.parquet" for split in ("train", "validation")}


def test_an_exercise_needs_every_model_of_its_submit_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    squad = Repository("dataset", "rajpurkar/squad")
    bloom = {size: Repository("model", f"bigscience/bloom-{size}") for size in ("560m", "1b7", "3b", "7b1")}
    assert wanted(["baseline", "deepspeed-zero3-offload"]) == [bloom["560m"], squad, bloom["7b1"]]
    assert {bloom["560m"], bloom["1b7"], squad} <= {*wanted(["speed-ladder"])}
    assert {*wanted(["deepspeed-single-gpu"])} == {bloom["560m"], bloom["3b"], bloom["7b1"], squad}
    # Random weights and the custom model need a tokenizer only.
    assert wanted(["benchmark"]) == [Repository("tokenizer", "gpt2"), squad]
    assert wanted(["custom_model", "by-hand"]) == [Repository("tokenizer", "HuggingFaceTB/SmolLM2-135M"), squad]
    # A day needs what its must-do runs need.
    assert {*wanted(["half-day"])} == {bloom["560m"], squad}
    smollm2 = Repository("tokenizer", "HuggingFaceTB/SmolLM2-135M")
    assert {*wanted(["day-1"])} == {bloom["560m"], bloom["1b7"], smollm2, squad}
    monkeypatch.setenv("EVAL_DATASET", "somebody/questions")
    own = Repository("dataset", "somebody/questions")
    assert own in wanted(["baseline"]) and own in wanted(["bigscience/bloom-560m"])
    with pytest.raises(
        InputError, match=r"'baselin': expected an exercise \(baseline, .*\), half-day, .*, or a hub name"
    ):
        wanted(["baselin"])


def test_what_the_repository_brings_itself_is_not_asked_of_the_hub() -> None:
    for profile in ("tiny.env", "quickstart.env"):
        assert needs(sourced(REPO / profile, {})) == []
    by_hand = {"MODEL_NAME": "simple-gpt", "TOKENIZER_NAME": "gpt2", "DATASET": "sample"}
    gpt2, squad = Repository("tokenizer", "gpt2"), Repository("dataset", "rajpurkar/squad")
    assert needs(by_hand) == [gpt2]
    assert needs(by_hand | {"EVAL_DATASET": "rajpurkar/squad:validation[:10]"}) == [gpt2, squad]
    assert needs(by_hand | {"DATASET": "./chats.csv:train[:10]"}) == [gpt2]


def test_sizes_are_said_before_anything_is_fetched(hub: HubServer, tmp_path: Path) -> None:
    job = python(tmp_path, hub.url, "-m", "workshop.data.prefetch", "--sizes", "bigscience/bloom-560m")
    assert job.returncode == 0, job.stderr
    assert "model bigscience/bloom-560m: 0.000 GiB, 0.000 of them to be fetched" in job.stdout
    assert f"into {tmp_path}/hub" in job.stdout
    job = python(tmp_path, hub.url, "-m", "workshop.data.prefetch", "--sizes", "half-day")
    for name in ("baseline", "deepspeed-single-gpu", "fsdp"):
        assert f"\n{name} needs bigscience/bloom-560m, rajpurkar/squad; 0.000 GiB of it to be fetched\n" in job.stdout
    assert not list(tmp_path.rglob("*.safetensors"))


def test_an_interrupted_prefetch_is_completed_by_the_next_one(hub: HubServer, tmp_path: Path) -> None:
    """What came whole is kept; what lacks is fetched."""
    command = ("-m", "workshop.data.prefetch", "bigscience/bloom-560m")
    assert python(tmp_path, hub.url, *command, DATASET="sample").returncode == 0
    (weights,) = tmp_path.glob("hub/models--*/snapshots/*/model.safetensors")
    content, blob = weights.read_bytes(), weights.resolve()
    blob.with_suffix(".incomplete").write_bytes(content[:1000])
    blob.unlink()
    weights.unlink()
    hub.requests.clear()
    second = python(tmp_path, hub.url, *command, DATASET="sample")
    assert second.returncode == 0, second.stderr
    assert weights.read_bytes() == content
    fetched = [request for request in hub.requests if request.startswith("GET") and "/api/" not in request]
    assert all("safetensors" in request for request in fetched), fetched


@pytest.mark.parametrize(
    ("model", "cache", "changes", "expected"),
    [
        ("gated/bloom", "hf", {}, "MODEL_NAME=gated/bloom: .*/gated/bloom is gated; .* `hf auth login`"),
        ("my/bloom", "hf", {}, "MODEL_NAME=my/bloom: the hub has no .*; expected a name such as bigscience/bloom-560m"),
        ("big/bloom", "file/hf", {}, r"cannot write to the cache \S+/file/hf/hub \(HF_HOME\): .*you may write to"),
        ("big/bloom", "hf", {"HF_ENDPOINT": REFUSED}, f"HF_ENDPOINT: {REFUSED} cannot be reached .*login node"),
        ("big/bloom", "hf", {"HF_HUB_OFFLINE": "1"}, r"HF_ENDPOINT: \S+ cannot be reached \(HF_HUB_OFFLINE=1\)"),
    ],
)  # fmt: skip
def test_hindrance_is_said_in_one_line(
    model: str, cache: str, changes: dict[str, str], expected: str, hub: HubServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    job = python(tmp_path / cache, hub.url, "-m", "workshop.data.prefetch", model, **changes)
    assert job.returncode == 1
    (line,) = [line for line in job.stderr.splitlines() if line.startswith(("error", "Traceback"))]
    assert re.search(expected, line), line

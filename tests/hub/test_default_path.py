"""What a participant does who changes nothing: prefetch, then each kind of training on a node without network.

The cache is filled completely, also after an interruption; what stands in the way is said in one line, at once.
Pretrained BLOOM and rajpurkar/squad with few and short steps and with the exercises' own env_vars.sh; the baseline
through its launcher.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.hub.conftest import REFUSED, python, user
from tests.hub.hub_server import HubServer
from tests.launching import losses, record, run
from tests.trainings_on_ranks import SETTINGS, Ranks, training
from workshop.job.outcome import record_end

SHORT = dict.fromkeys(SETTINGS, "") | {  # an empty setting takes the value of env_vars.sh
    **{"TRAIN_SIZE": "16", "EVAL_SIZE": "8", "MAX_LENGTH": "128", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"NUM_EPOCHS": "1", "GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
}
LEARNING_RATE = 5e-5  # the exercises' own
SEVEN = ("train.py", "--model-name", "bigscience/bloom-7b1")
# Of the trainings beside the baseline: exercise, configuration, and the command or a setting.
TRAININGS = {
    "zero3": ("deepspeed-multi-gpu", "ds_configs/zero3.json", {"MODEL_NAME": "bigscience/bloom-560m"}),
    "offload": ("deepspeed-zero3-offload", "ds_zero3_offload.json", {"command": SEVEN}),
    "fsdp": ("fsdp", "fsdp_config.json", {}),
}


@pytest.fixture(scope="module")
def offline(cache: Path) -> Iterator[Ranks]:
    """With the filled cache and no network from the libraries' import on."""
    with Ranks(**user(cache, REFUSED, HF_HUB_OFFLINE="1")) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def runs(
    cache: Path, offline: Ranks, tmp_path_factory: pytest.TempPathFactory, optimizers_compiled: None
) -> dict[str, Path]:
    """Run folders of the baseline's launcher and of TRAININGS, without network; the cache was filled."""
    folder = tmp_path_factory.mktemp("runs")
    own = {"LOG_DIR": str(folder), "HF_HUB_OFFLINE": "1", "SAVE": "end", "MAX_STEPS": "2"}
    run("bash", "baseline/baseline.slurm", env=user(cache, REFUSED) | SHORT | own)
    (baseline,) = folder.glob("baseline/*")
    offline.train([training(folder / name, *plan, **SHORT | own | more) for name, (*plan, more) in TRAININGS.items()])
    return {"baseline": baseline} | {name: folder / name for name in TRAININGS}


@pytest.mark.parametrize("name", ["baseline", *TRAININGS])
def test_pretrained_weights_are_trained(hub: HubServer, runs: dict[str, Path], name: str) -> None:
    """Every saved parameter is the served one plus what Adam can add in so many steps; and something was added."""
    model = "bloom-7b1" if name == "offload" else "bloom-560m"  # bloom-7b1's weights lie in several files
    facts = record(runs[name])
    assert facts["model"]["name"] == model
    if name == "baseline":  # seen in the run: its settings say FP16=true
        assert facts["sharding"]["method"] == "none" and not facts["sharding"]["own_modules"]
        assert facts["precision"] == "fp32"
    served = {}
    for file in (hub.root / "models/bigscience" / model).glob("*.safetensors"):
        served |= load_file(file)
    saved = load_file(runs[name] / "bloom-qa-finetuned/model.safetensors")
    saved = {name.removeprefix("transformer."): weight for name, weight in saved.items()}
    saved.pop("lm_head.weight", None)
    assert saved.keys() == served.keys()
    assert served["word_embeddings.weight"].dtype == torch.float16
    furthest = max(float((saved[name] - served[name].float()).abs().max()) for name in served)
    assert 0 < furthest < 1.5 * LEARNING_RATE * len(losses(runs[name]))
    assert min(float(weight.float().std()) for weight in served.values()) > 0.1, "any weights would be near to these"


def test_a_node_without_network_and_cache_says_so_at_once(offline: Ranks, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE is not set: the launcher finds out, before the library tries for minutes."""
    begin = "cd baseline; source ../workshop/launch.sh; start_run; echo HF_HUB_OFFLINE=$HF_HUB_OFFLINE"
    environment = user(tmp_path / "hf", REFUSED) | SHORT | {"LOG_DIR": str(tmp_path)}
    shell = run("bash", "-c", begin, "baseline.slurm", env=environment)
    assert f"note: {REFUSED} cannot be reached" in shell.stderr
    assert "bigscience/bloom-560m and rajpurkar/squad can only come from the cache" in shell.stderr
    assert shell.stdout == "HF_HUB_OFFLINE=1\n"

    folder, model = tmp_path / "run", "bigscience/bloom-1b1"  # which nobody has fetched
    assert offline.ask(trainings=[training(folder, "baseline", **SHORT | {"MODEL_NAME": model})], ranks=1) == [1]
    printed = (folder / "train.out").read_text().replace("[rank0]: ", "").splitlines()
    (error,) = [line for line in printed if line.startswith(("error", "Traceback", "Retrying"))]
    assert "(TOKENIZER_NAME, or else MODEL_NAME): HF_HUB_OFFLINE=1 and the cache" in error
    assert f"run `python -m workshop.data.prefetch {model}` where there is a network" in error
    assert "workshop.data.prefetch" in record_end(folder, {}, 1, "")["reason"]


# In one process, because the libraries take seconds to import.
ONLINE = """
import os
from pathlib import Path
from workshop.data.encoding import load_tokenizer
from workshop.record.errors import InputError
from workshop.data.sources import load_splits

print(*map(len, load_splits("rajpurkar/squad").values()))
print(len([*Path(os.environ["HF_HOME"]).rglob("*.parquet")]))
for load, name in ((load_tokenizer, "gated/bloom"), (load_tokenizer, "bigscience/bloom-560"),
                   (load_splits, "rajpurkar/squat"), (load_splits, "gated/bloom")):
    try:
        load(name)
    except InputError as error:
        print(error)
"""


def test_a_job_with_network_tells_gated_from_missing(hub: HubServer, tmp_path: Path) -> None:
    job = python(tmp_path, hub.url, "-c", ONLINE)
    assert job.returncode == 0, job.stderr
    said = job.stdout.splitlines()
    assert said[:2] == ["192 48", "2"]
    gated, missing, no_data, gated_data = said[2:]
    assert "tokenizer 'gated/bloom'" in gated and f"{hub.url}/gated/bloom is gated" in gated
    assert "tokenizer 'bigscience/bloom-560'" in missing and "the hub has no" in missing
    assert "DATASET=rajpurkar/squat: the hub has no" in no_data and "such as rajpurkar/squad" in no_data
    assert f"{hub.url}/datasets/gated/bloom is gated" in gated_data


READ_ALL = """
import os
from transformers import AutoModelForCausalLM
from workshop.data.encoding import load_tokenizer
from workshop.data.sources import load_splits

try:
    open(os.environ["HF_HOME"] + "/hub/new", "w")
except OSError as error:
    print(error.strerror)
load_tokenizer("bigscience/bloom-560m")
AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m")
print(*map(len, load_splits("rajpurkar/squad").values()))
"""


def test_a_shared_cache_need_not_be_writable(cache: Path, offline: Ranks, tmp_path: Path) -> None:
    """An instructor fills HF_HOME for all; the participants, offline, may only read it, and have cached nothing."""
    (tmp_path / "read_all.py").write_text(READ_ALL)
    own = SHORT | {"XDG_CACHE_HOME": str(tmp_path / "own")}
    plan = training(tmp_path / "run", "baseline", "", [tmp_path / "read_all.py"], **own)
    if subprocess.run(["mount", "-o", "bind,ro", str(cache), str(cache)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        offline.train([plan], ranks=1)
    finally:
        subprocess.run(["umount", str(cache)], check=True)
    printed = (tmp_path / "run/train.out").read_text().splitlines()
    assert [line for line in printed if line in ("Read-only file system", "192 48")] == printed[:1] + printed[-1:]
    assert list((tmp_path / "own/shardlab/datasets").rglob("*.arrow"))


@pytest.mark.parametrize(
    ("model", "cache", "changes", "expected"),
    [
        ("my/bloom", "hf", {}, "MODEL_NAME=my/bloom: the hub has no .*; expected a name such as bigscience/bloom-560m"),
        ("big/bloom", "file/hf", {}, r"cannot write to the cache \S+/file/hf/hub \(HF_HOME\): .*you may write to"),
        ("big/bloom", "hf", {"HF_ENDPOINT": REFUSED}, f"HF_ENDPOINT: {REFUSED} cannot be reached .*login node"),
        ("big/bloom", "hf", {"HF_HUB_OFFLINE": "1"}, r"HF_ENDPOINT: \S+ cannot be reached \(HF_HUB_OFFLINE=1\)"),
    ],
)  # fmt: skip
def test_hindrance_is_said_in_one_line(model, cache, changes, expected, hub, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    job = python(tmp_path / cache, hub.url, "-m", "workshop.data.prefetch", model, **changes)
    assert job.returncode == 1
    (line,) = [line for line in job.stderr.splitlines() if line.startswith(("error", "Traceback"))]
    assert re.search(expected, line), line

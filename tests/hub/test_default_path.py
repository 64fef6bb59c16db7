"""What a participant does who changes nothing: prefetch, then each kind of training on a node without network.

Pretrained BLOOM and rajpurkar/squad through the exercises' own launchers, with few and short steps.
"""

import csv
import json
import subprocess
from collections.abc import Callable
from functools import cache as once
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.hub.commands import python, user
from tests.hub.hub_server import HubServer
from tests.launching import REPO

REFUSED = "http://127.0.0.1:9"  # the discard port: nobody listens there
SHORT = {
    **{"TRAIN_SIZE": "16", "EVAL_SIZE": "8", "MAX_LENGTH": "128", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"NUM_EPOCHS": "1", "GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
}
LEARNING_RATE = 5e-5  # the exercises' own
Launch = Callable[..., Path]


def start(launcher: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", launcher, *arguments]
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def launch(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """launch("fsdp/multi_gpu.slurm", GPUS_PER_NODE="2") -> run folder, offline; the same call runs once."""
    logs = tmp_path_factory.mktemp("logs")

    @once
    def run(launcher: str, *arguments: str, **settings: str) -> Path:
        experiment = f"run{len(list(logs.iterdir()))}"
        places = {"LOG_DIR": str(logs), "EXPERIMENT_NAME": experiment}
        job = start(launcher, *arguments, **user(cache, REFUSED, HF_HUB_OFFLINE="1") | SHORT | places | settings)
        assert job.returncode == 0, job.stdout[-5000:] + job.stderr[-2000:]
        (folder,) = (logs / experiment).iterdir()
        return folder

    return run


def losses(run: Path) -> dict[int, float]:
    with (run / "steps.csv").open() as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


def assert_trained_from(hub: HubServer, model: str, run: Path) -> None:
    """Every saved parameter is the served one plus what Adam can add in so many steps; and something was added."""
    served = {}
    for file in (hub.root / "models" / model).glob("*.safetensors"):
        served |= load_file(file)
    saved = load_file(run / "bloom-qa-finetuned/model.safetensors")
    saved = {name.removeprefix("transformer."): weight for name, weight in saved.items()}
    saved.pop("lm_head.weight", None)
    assert saved.keys() == served.keys()
    assert served["word_embeddings.weight"].dtype == torch.float16
    furthest = max(float((saved[name] - served[name].float()).abs().max()) for name in served)
    assert 0 < furthest < 1.5 * LEARNING_RATE * len(losses(run))
    assert min(float(weight.float().std()) for weight in served.values()) > 0.1, "any weights would be near to these"


def model_of(run: Path) -> str:
    return json.loads((run / "run.json").read_text())["model"]["name"]


def test_baseline_trains_the_fetched_weights_and_resumes(hub: HubServer, launch: Launch) -> None:
    whole = launch("baseline/baseline.slurm", NUM_EPOCHS="3", SAVE="epoch")
    assert model_of(whole) == "bloom-560m"
    assert_trained_from(hub, "bigscience/bloom-560m", whole)
    checkpoints = whole / "bloom-qa-finetuned"
    assert {path.name for path in checkpoints.glob("checkpoint-*")} == {"checkpoint-16", "checkpoint-24"}
    resume = {"NUM_EPOCHS": "3", "SAVE": "no", "RESUME_FROM": str(checkpoints / "checkpoint-16")}
    rest = losses(launch("baseline/baseline.slurm", **resume))
    assert rest == pytest.approx({step: loss for step, loss in losses(whole).items() if step > 16}, abs=1e-5)
    assert list(rest) == list(range(17, 25))


def test_zero3_trains_the_fetched_weights(hub: HubServer, launch: Launch, optimizers_compiled: None) -> None:
    names = {"MODEL_NAME": "bigscience/bloom-560m", "GPUS_PER_NODE": "2", "MAX_STEPS": "2", "SAVE": "end"}
    run = launch("deepspeed-multi-gpu/deepspeed.slurm", "ds_configs/zero3.json", **names)
    assert_trained_from(hub, "bigscience/bloom-560m", run)


def test_exercise_4_trains_the_weights_of_a_sharded_model(
    hub: HubServer, launch: Launch, optimizers_compiled: None
) -> None:
    names = {"GPUS_PER_NODE": "2", "SAVE": "end"}
    run = launch("deepspeed-zero3-offload/run.slurm", "--model-name", "bigscience/bloom-7b1", "--steps", "2", **names)
    assert model_of(run) == "bloom-7b1"
    assert_trained_from(hub, "bigscience/bloom-7b1", run)


def test_fsdp_trains_the_fetched_weights(hub: HubServer, launch: Launch) -> None:
    run = launch("fsdp/multi_gpu.slurm", GPUS_PER_NODE="2", MAX_STEPS="2", SAVE="end")
    assert_trained_from(hub, "bigscience/bloom-560m", run)


def test_a_node_without_network_and_cache_says_so_at_once(tmp_path: Path) -> None:
    """HF_HUB_OFFLINE is not set: the launcher finds out, before the library tries for minutes."""
    places = {"LOG_DIR": str(tmp_path), "EXPERIMENT_NAME": "run"}
    job = start("baseline/baseline.slurm", **user(tmp_path / "hf", REFUSED) | SHORT | places)
    assert job.returncode == 1
    assert f"note: {REFUSED} cannot be reached" in job.stderr
    assert "bigscience/bloom-560m and rajpurkar/squad can only come from the cache" in job.stderr
    errors = [line for line in job.stdout.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert "(TOKENIZER_NAME, or else MODEL_NAME): HF_HUB_OFFLINE=1 and the cache" in errors[0]
    assert "run `python -m workshop.prefetch bigscience/bloom-560m` where there is a network" in errors[0]
    assert "Traceback" not in job.stdout
    assert "Retrying" not in job.stdout
    reason = json.loads(next(tmp_path.glob("run/*/run.json")).read_text())["reason"]
    assert "workshop.prefetch" in reason


# In one process, because the libraries take seconds to import.
REFUSALS = """
from workshop.data.encoding import load_tokenizer
from workshop.errors import WorkshopError
from workshop.data.sources import load_squad

for load in (
    lambda: load_tokenizer("gated/bloom"),
    lambda: load_tokenizer("bigscience/bloom-560"),
    lambda: load_squad("rajpurkar/squat", "train"),
    lambda: load_squad("gated/bloom", "train"),
    lambda: load_squad("rajpurkar/squad", "test"),
):
    try:
        load()
    except WorkshopError as error:
        print(error)
"""


def test_a_job_with_network_tells_gated_from_missing(hub: HubServer, tmp_path: Path) -> None:
    job = python(tmp_path, hub.url, "-c", REFUSALS)
    assert job.returncode == 0, job.stderr
    gated, missing, no_data, gated_data, no_split = job.stdout.splitlines()
    assert "tokenizer 'gated/bloom'" in gated and f"{hub.url}/gated/bloom is gated" in gated
    assert "tokenizer 'bigscience/bloom-560'" in missing and "the hub has no" in missing
    assert "DATASET=rajpurkar/squat: the hub has no" in no_data and "such as rajpurkar/squad" in no_data
    assert f"{hub.url}/datasets/gated/bloom is gated" in gated_data
    assert "DATASET=rajpurkar/squad: found the splits train, validation; expected test" in no_split


READ_ALL = """
import os
from transformers import AutoModelForCausalLM
from workshop.data.encoding import load_tokenizer
from workshop.data.sources import load_squad

try:
    open(os.environ["HF_HOME"] + "/hub/new", "w")
except OSError as error:
    print(error.strerror)
load_tokenizer("bigscience/bloom-560m")
AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m")
print(*(len(load_squad("rajpurkar/squad", split)) for split in ("train", "validation")))
"""


def test_a_shared_cache_need_not_be_writable(cache: Path, tmp_path: Path) -> None:
    """An instructor fills HF_HOME for all; the participants, offline, may only read it, and have cached nothing."""
    home = tmp_path / "hf"
    home.mkdir()
    if subprocess.run(["mount", "-o", "bind,ro", str(cache), str(home)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        own = {"XDG_CACHE_HOME": str(tmp_path / "own"), "HF_HUB_OFFLINE": "1"}
        job = python(home, REFUSED, "-c", READ_ALL, **own)
    finally:
        subprocess.run(["umount", str(home)], check=True)
    assert job.returncode == 0, job.stderr[-2000:]
    assert job.stdout.splitlines() == ["Read-only file system", "192 48"]
    assert list((tmp_path / "own/shardlab/datasets").rglob("*.arrow"))

"""What a participant does who changes nothing: prefetch, then each kind of training on a node without network.

Pretrained BLOOM and rajpurkar/squad with few and short steps and with the exercises' own env_vars.sh; the baseline
through its launcher.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from run_folder.env_file import sourced
from tests.hub.commands import python, user
from tests.hub.hub_server import HubServer
from tests.launching import REPO, losses, record
from tests.trainings_on_ranks import Ranks, Training

REFUSED = "http://127.0.0.1:9"  # the discard port: nobody listens there
SHORT = {
    **{"TRAIN_SIZE": "16", "EVAL_SIZE": "8", "MAX_LENGTH": "128", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"NUM_EPOCHS": "1", "GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
}
LEARNING_RATE = 5e-5  # the exercises' own


# Of the trainings beside the baseline: configuration, arguments of train.py, settings.
TRAININGS = {
    "zero3": ("deepspeed-multi-gpu/ds_configs/zero3.json", [], {"MODEL_NAME": "bigscience/bloom-560m"}),
    "exercise 4": ("deepspeed-zero3-offload/ds_zero3_offload.json", ["--model-name", "bigscience/bloom-7b1"], {}),
    "fsdp": ("fsdp/fsdp_config.json", [], {}),
}


def start(launcher: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", launcher]
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=300)


def training(run: Path, config: str, arguments: list[str], **settings: str) -> Training:
    exercise = REPO / config.split("/")[0]
    own = {"RUN_DIR": str(run), "CONFIG": str(REPO / config) if config.endswith(".json") else "", "REPO": str(REPO)}
    environ = sourced(exercise / "env_vars.sh", SHORT | own | settings)
    return Training(exercise=exercise.name, environ=environ, command=["train.py", *arguments])


@pytest.fixture(scope="module")
def baseline(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the baseline's launcher, offline."""
    logs = tmp_path_factory.mktemp("logs")
    own = {"LOG_DIR": str(logs), "HF_HUB_OFFLINE": "1", "NUM_EPOCHS": "3", "SAVE": "epoch"}
    job = start("baseline/baseline.slurm", **user(cache, REFUSED) | SHORT | own)
    assert job.returncode == 0, job.stdout[-5000:] + job.stderr[-2000:]
    (run,) = logs.glob("baseline/*")
    return run


@pytest.fixture(scope="module")
def runs(cache: Path, baseline: Path, tmp_path_factory: pytest.TempPathFactory, optimizers_compiled: None) -> Path:
    """Run folders of TRAININGS, and of a baseline that goes on: ranks without network, whose cache was filled."""
    folder = tmp_path_factory.mktemp("runs")
    checkpoint = baseline / "bloom-qa-finetuned/checkpoint-16"
    shutil.copytree(baseline, folder / "resumed", ignore=shutil.ignore_patterns("bloom-qa-finetuned"))
    resumed = training(folder / "resumed", "baseline", [], NUM_EPOCHS="3", SAVE="no", RESUME_FROM=str(checkpoint))
    with Ranks(**user(cache, REFUSED, HF_HUB_OFFLINE="1")) as ranks:
        ranks.train([resumed], ranks=1)
        plans = TRAININGS.items()
        ranks.train(
            [training(folder / name, *plan, **own | {"SAVE": "end", "MAX_STEPS": "2"}) for name, (*plan, own) in plans]
        )
    return folder


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


def test_baseline_trains_the_fetched_weights_and_goes_on(hub: HubServer, baseline: Path, runs: Path) -> None:
    assert record(baseline)["model"]["name"] == "bloom-560m"
    assert_trained_from(hub, "bigscience/bloom-560m", baseline)
    assert {path.name for path in baseline.glob("*/checkpoint-*")} == {"checkpoint-16", "checkpoint-24"}
    assert losses(runs / "resumed") == pytest.approx(losses(baseline), abs=1e-5)
    assert (runs / "resumed/steps.csv").read_text() != (baseline / "steps.csv").read_text(), "no step was made again"


@pytest.mark.parametrize("name", TRAININGS)
def test_ranks_train_the_fetched_weights(hub: HubServer, runs: Path, name: str) -> None:
    model = "bloom-7b1" if name == "exercise 4" else "bloom-560m"  # bloom-7b1's weights lie in several files
    assert record(runs / name)["model"]["name"] == model
    assert_trained_from(hub, f"bigscience/{model}", runs / name)


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
    assert "run `python -m workshop.data.prefetch bigscience/bloom-560m` where there is a network" in errors[0]
    assert "Traceback" not in job.stdout
    assert "Retrying" not in job.stdout
    assert "workshop.data.prefetch" in record(next(tmp_path.glob("run/*")))["reason"]


# In one process, because the libraries take seconds to import.
REFUSALS = """
from workshop.data.encoding import load_tokenizer
from workshop.errors import WorkshopError
from workshop.data.sources import load_splits, split_of

for load in (
    lambda: load_tokenizer("gated/bloom"),
    lambda: load_tokenizer("bigscience/bloom-560"),
    lambda: load_splits("rajpurkar/squat"),
    lambda: load_splits("gated/bloom"),
    lambda: split_of("rajpurkar/squad", load_splits("rajpurkar/squad"), "test"),
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
from workshop.data.sources import load_splits

try:
    open(os.environ["HF_HOME"] + "/hub/new", "w")
except OSError as error:
    print(error.strerror)
load_tokenizer("bigscience/bloom-560m")
AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m")
print(*map(len, load_splits("rajpurkar/squad").values()))
"""


STREAMED = """
import os
from pathlib import Path
from workshop.data.sources import load_splits

for streaming in (True, True, False, True):
    print(*(sum(1 for _ in rows) for rows in load_splits("rajpurkar/squad", streaming).values()))
    print(len([*Path(os.environ["HF_HOME"]).rglob("*.parquet")]))
load_splits("no/such", True)
"""


def test_stream_of_the_hub_leaves_no_data_on_the_disk(hub: HubServer, tmp_path: Path) -> None:
    """Its README is in the cache then, which is not the data set."""
    job = python(tmp_path, hub.url, "-c", STREAMED)
    assert job.stdout.splitlines()[::2] == ["192 48"] * 4, job.stderr
    assert job.stdout.splitlines()[1::2] == ["0", "0", "2", "2"]
    assert "DATASET=no/such: cannot load it (Dataset 'no/such' doesn't exist on the Hub" in job.stderr


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

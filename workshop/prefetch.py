"""Fill the hub's cache on a login node, for compute nodes without network.

    python -m workshop.prefetch                       MODEL_NAME (bigscience/bloom-560m), DATASET (rajpurkar/squad)
    python -m workshop.prefetch baseline fsdp         what all runs in these exercises' submit.txt need
    python -m workshop.prefetch bigscience/bloom-1b7  a model by name
    python -m workshop.prefetch --sizes fsdp          only say how much there is to fetch

After an interruption start it again: files that were fetched whole are kept. The jobs then work without network.
HF_HOME says where the cache is, if not in ~/.cache/huggingface: set it in cluster.env where that is not on a shared
file system.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants, snapshot_download

from workshop.errors import WorkshopError
from workshop.hub import DATASET_FILES, NOT_ON_HUB, dataset_on_hub, endpoint, hub_error, unreachable
from workshop.squad import load_squad

REPO = Path(__file__).parents[1]
GIB = 2**30
# Weights once, in the format transformers reads first; not the copies for other frameworks.
TOKENIZER_FILES = ["*.json", "*.txt", "*.model"]
FILES = {"model": [*TOKENIZER_FILES, "*.safetensors"], "tokenizer": TOKENIZER_FILES, "dataset": DATASET_FILES}


@dataclass(frozen=True)
class Repository:
    """A repository of the hub; `kind` is model, tokenizer (a model's, without weights) or dataset."""

    kind: str
    name: str


def options_of(repository: Repository) -> dict[str, object]:
    # Models keep other frameworks' copies in folders below; a data set's files are in one.
    folders = [] if repository.kind == "dataset" else ["*/*"]
    repo_type = "dataset" if repository.kind == "dataset" else "model"
    return {"repo_type": repo_type, "allow_patterns": FILES[repository.kind], "ignore_patterns": folders}


def needs_of(exercise: Path) -> list[Repository]:
    """What the runs of an exercise's submit.txt load from the hub, each with the exercise's own defaults."""
    needs: dict[Repository, None] = {}
    for line in (exercise / "submit.txt").read_text().splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        settings = [word for word in words if "=" in word and not word.startswith("-")]
        if "--model-name" in words:  # exercise 4 takes it as an argument, which wins
            settings.append(f"MODEL_NAME={words[words.index('--model-name') + 1]}")
        needs |= dict.fromkeys(needs_with(exercise, settings))
    return list(needs)


def needs_with(exercise: Path, settings: Sequence[str]) -> list[Repository]:
    """What a run with these settings, NAME=VALUE, loads; the exercise's env_vars.sh gives the others."""
    names = ("MODEL_NAME", "MODEL_INIT", "TOKENIZER_NAME")  # the shell's are about another exercise
    script = 'source ./env_vars.sh && printf "%s\\n" '
    script += '"$MODEL_NAME" "$MODEL_INIT" "$TOKENIZER_NAME" "$DATASET" "$EVAL_DATASET"'
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"REPO": str(REPO)} | dict(setting.split("=", 1) for setting in settings)
    command = ["bash", "-c", script]
    answer = subprocess.run(command, cwd=exercise, env=environment, capture_output=True, text=True, check=True).stdout
    model, init, tokenizer, dataset, evaluation = answer.split("\n")[:5]
    needs = [Repository("model", model)] if model and model not in NOT_ON_HUB and init == "pretrained" else []
    if tokenizer or (model and not needs):
        needs.append(Repository("tokenizer", tokenizer or model))
    return needs + dataset_needs(dataset, evaluation)


def dataset_needs(*datasets: str) -> list[Repository]:
    return [Repository("dataset", name) for name in dict.fromkeys(datasets) if name and dataset_on_hub(name)]


def wanted(names: Iterable[str]) -> list[Repository]:
    """Exercises by their folder's name, anything else is a model of the hub. Without names: the settings' model."""
    datasets = os.environ.get("DATASET") or "rajpurkar/squad", os.environ.get("EVAL_DATASET", "")
    names = list(names) or [os.environ.get("MODEL_NAME") or "bigscience/bloom-560m"]
    needs: dict[Repository, None] = {}
    for name in names:
        exercise = REPO / name
        if (exercise / "submit.txt").is_file():
            needs |= dict.fromkeys(needs_of(exercise))
        elif "/" not in name.rstrip("/"):
            have = ", ".join(sorted(path.parent.name for path in REPO.glob("*/submit.txt")))
            raise WorkshopError(f"'{name}': expected an exercise ({have}) or a hub name such as bigscience/bloom-560m")
        else:
            needs |= {Repository("model", name): None} | dict.fromkeys(dataset_needs(*datasets))
    return list(needs)


def sizes(repository: Repository) -> tuple[int, int]:
    """Bytes of the repository's files, and of those that are not in the cache yet. Raises WorkshopError."""
    try:
        files = snapshot_download(repository.name, dry_run=True, **options_of(repository))
    except (OSError, ValueError) as error:
        raise failed(repository, error) from error
    if repository.kind == "model" and not any(file.filename.endswith(".safetensors") for file in files):
        raise WorkshopError(f"model {repository.name}: found no *.safetensors there, expected a model that has them")
    return sum(file.file_size for file in files), sum(file.file_size for file in files if file.will_download)


def fetch(repository: Repository) -> Path:
    """Download what is missing; the folder in the cache. Raises WorkshopError."""
    try:
        return Path(snapshot_download(repository.name, **options_of(repository)))
    except (OSError, ValueError) as error:
        raise failed(repository, error) from error


def failed(repository: Repository, error: BaseException) -> WorkshopError:
    kind = "dataset" if repository.kind == "dataset" else "model"
    variable = {"model": "MODEL_NAME", "tokenizer": "TOKENIZER_NAME", "dataset": "DATASET"}[repository.kind]
    return hub_error(f"{variable}={repository.name}", repository.name, error, kind)


def check_room(missing: int) -> None:
    """Before hours of download, not after them."""
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise WorkshopError(
            f"HF_HOME: {missing / GIB:.1f} GiB are to be fetched and {folder} has {free / GIB:.1f} GiB left; "
            "expected a cache with room for them"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.prefetch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="EXERCISE_OR_MODEL", help="default: MODEL_NAME")
    parser.add_argument("--sizes", action="store_true", help="say how much there is to fetch, and stop")
    options = parser.parse_args(arguments)

    repositories = wanted(options.names)
    if constants.HF_HUB_OFFLINE:
        raise WorkshopError("HF_HUB_OFFLINE=1: prefetching needs the network; expected it unset here, on a login node")
    if repositories and (reason := unreachable()):
        raise WorkshopError(
            f"HF_ENDPOINT: {endpoint()} cannot be reached ({reason}); expected a machine with network, for example "
            "the cluster's login node; behind a proxy set HTTPS_PROXY"
        )
    missing = 0
    for repository in repositories:
        total, to_fetch = sizes(repository)
        missing += to_fetch
        print(f"{repository.kind} {repository.name}: {total / GIB:.3f} GiB, {to_fetch / GIB:.3f} of them to be fetched")
    print(f"to be fetched: {missing / GIB:.3f} GiB into {constants.HF_HUB_CACHE}", flush=True)
    check_room(missing)
    if options.sizes:
        return
    for repository in repositories:
        print(f"{repository.kind} {repository.name}: {fetch(repository)}", flush=True)
        if repository.kind == "dataset":
            counts = [len(load_squad(repository.name, split)) for split in ("train", "validation")]
            print("{} training and {} evaluation examples".format(*counts))


if __name__ == "__main__":
    main(sys.argv[1:])

